import { decodeUtf8, parseOffset } from "@tidemark/base";
import { WireError } from "./error.ts";
import { isControlBatch, isLogAppendTime } from "./record-batch.ts";
import type { BatchHeader } from "./record-batch.ts";
import type { DecodedRecord, RecordHeader } from "./record.ts";
import { decrementSequence, incrementSequence } from "./sequence.ts";
import { VarintReader } from "./varint.ts";

const NO_HEADERS: readonly RecordHeader[] = [];

/**
 * The records of a batch, in order, as a reader sees them; control records come as they are, key and value raw.
 *
 * Offsets may have gaps (compaction). A batch that counts no records yields none and its payload is not looked at.
 * @param payload the records section, decompressed; keys and values are views on it
 * @param fromOffset records below it are stepped over, of which nothing but length and offset is looked at. Default: all are given
 * @throws WireError INVALID_RECORD when lengths or counts disagree, or anything follows the last record
 * @throws WireError INVALID_TIMESTAMP when a timestamp is no safe integer
 * Source: apache/kafka DefaultRecord.readFrom, DefaultRecordBatch.RecordIterator
 */
export function* decodeRecords(
  header: BatchHeader,
  payload: Uint8Array,
  fromOffset = 0,
): Generator<DecodedRecord, void, undefined> {
  if (header.recordsCount === 0) return;
  const reader = new VarintReader(payload);
  let isBelow = fromOffset > header.baseOffset;
  for (let index = 0; index < header.recordsCount; index += 1) {
    const endBytes = enterRecord(reader, header, index);
    if (isBelow) {
      const fromBytes = reader.position;
      isBelow = stepToDelta(reader) < fromOffset - header.baseOffset && reader.fault === undefined;
      reader.position = isBelow ? endBytes : fromBytes;
      if (isBelow) {
        leaveRecord(reader, header, index, endBytes);
        continue;
      }
    }
    const record = decodeRecord(reader, header, index);
    leaveRecord(reader, header, index, endBytes);
    yield record;
  }
  refuseLeftOver(reader, header);
}

/** Reads a record up to its offset delta, and that. */
function stepToDelta(reader: VarintReader): number {
  reader.position += 1;
  reader.readVarlong();
  return reader.readVarint();
}

function decodeRecord(reader: VarintReader, header: BatchHeader, index: number): DecodedRecord {
  reader.position += 1; // Attributes: any byte is accepted.
  const timestamp = recordTimestamp(reader, header, index);
  const offsetDelta = reader.readVarint();
  const offset = parseOffset(header.baseOffset + offsetDelta);
  if (offset === undefined) throw invalid("offset outside 0 .. 2^53 - 1", header, index);
  const key = readNullable(reader, header, index);
  const value = readNullable(reader, header, index);
  return {
    offset,
    timestamp,
    timestampType: isLogAppendTime(header) ? "LogAppendTime" : "CreateTime",
    sequence: header.baseSequence < 0 ? -1 : sequenceAfter(header.baseSequence, offsetDelta),
    key,
    value,
    headers: readHeaders(reader, header, index),
  };
}

/** A delta below zero is nothing a producer makes, and still readable. */
function sequenceAfter(baseSequence: number, offsetDelta: number): number {
  return offsetDelta < 0 ? decrementSequence(baseSequence, -offsetDelta) : incrementSequence(baseSequence, offsetDelta);
}

function readNullable(reader: VarintReader, header: BatchHeader, index: number): Uint8Array | null {
  const length = reader.readVarint();
  if (length < 0) return null;
  const from = reader.position;
  if (length > reader.end - from) throw invalid("a field runs past its record", header, index);
  reader.position = from + length;
  return reader.bytes.subarray(from, from + length);
}

function readHeaders(reader: VarintReader, header: BatchHeader, index: number): readonly RecordHeader[] {
  const count = readHeadersCount(reader, header, index);
  if (count === 0) return NO_HEADERS;
  const headers: RecordHeader[] = [];
  for (let entry = 0; entry < count; entry += 1) {
    const key = readNullable(reader, header, index);
    if (key === null) throw invalid("a header has no key", header, index);
    headers.push({ key: decodeUtf8(key), value: readNullable(reader, header, index) });
  }
  return headers;
}

/** Times of the records of a batch, ms, of those that have one; and whether all have a key. */
export interface RecordsSummary {
  /** At least -1, which is none. */
  readonly maxTimestamp: number;
  /** Infinity when no record has one. */
  readonly minTimestamp: number;
  /** Records without a key; a compacted topic takes none. */
  readonly keylessCount: number;
}

/**
 * Walks the records of a client's batch without building them: the header's count against its last offset delta and
 * against what is there, deltas 0 .. n - 1, every length, and nothing left over.
 *
 * Kafka lets the deltas of an uncompressed batch pass as sent; here offsets are what the header says they are.
 * Allocates one reader. O(payload) at most: keys and values are stepped over.
 * @param payload the records section, decompressed
 * @returns the latest time among others, which is what a CreateTime leader stores (`stampMaxTimestamp`)
 * @throws WireError INVALID_RECORD, INVALID_TIMESTAMP
 * Source: apache/kafka storage/.../internals/log/LogValidator.java
 */
export function validateRecords(header: BatchHeader, payload: Uint8Array): RecordsSummary {
  if (header.recordsCount === 0) throw invalid("a batch without records", header, 0);
  if (header.recordsCount !== header.lastOffsetDelta + 1) {
    throw invalid("records count is not last offset delta + 1", header, 0);
  }
  const reader = new VarintReader(payload);
  let maxTimestamp = -1;
  let minTimestamp = Number.POSITIVE_INFINITY;
  let keylessCount = 0;
  for (let index = 0; index < header.recordsCount; index += 1) {
    const endBytes = enterRecord(reader, header, index);
    reader.position += 1;
    const timestamp = recordTimestamp(reader, header, index);
    if (timestamp > maxTimestamp) maxTimestamp = timestamp;
    if (timestamp < minTimestamp && timestamp !== -1) minTimestamp = timestamp;
    if (reader.readVarint() !== index) throw invalid("offset deltas are not 0, 1, 2 ...", header, index);
    if (skipNullable(reader, header, index) < 0) keylessCount += 1;
    skipNullable(reader, header, index);
    const count = readHeadersCount(reader, header, index);
    for (let entry = 0; entry < count; entry += 1) {
      if (skipNullable(reader, header, index) < 0) throw invalid("a header has no key", header, index);
      skipNullable(reader, header, index);
    }
    leaveRecord(reader, header, index, endBytes);
  }
  refuseLeftOver(reader, header);
  return { maxTimestamp, minTimestamp, keylessCount };
}

/**
 * What a leader demands of the header of a client's batch, before it looks at the records.
 * @throws WireError INVALID_RECORD; INVALID_TIMESTAMP for log append time without a time, and for times that are no safe integer
 * Source: apache/kafka LogValidator.validateBatch, UnifiedLog.analyzeAndValidateRecords
 */
export function validateClientHeader(header: BatchHeader): void {
  if (header.baseOffset !== 0) throw invalid("a client's base offset is not 0", header, 0);
  if (header.recordsCount === 0) throw invalid("a batch without records", header, 0);
  if (header.recordsCount !== header.lastOffsetDelta + 1) {
    throw invalid("records count is not last offset delta + 1", header, 0);
  }
  if (isControlBatch(header)) throw invalid("a client's control batch", header, 0);
  if (!Number.isSafeInteger(header.producerId)) throw invalid("producer id outside 53 bits", header, 0);
  if (header.producerId >= 0 && header.baseSequence < 0) throw invalid("a producer id without a sequence", header, 0);
  if (!Number.isSafeInteger(header.baseTimestamp) || !Number.isSafeInteger(header.maxTimestamp)) {
    throw new WireError("INVALID_TIMESTAMP", "timestamp outside 53 bits", { baseOffset: header.baseOffset });
  }
  if (isLogAppendTime(header) && header.maxTimestamp === -1) {
    throw new WireError("INVALID_TIMESTAMP", "log append time without a time", { baseOffset: header.baseOffset });
  }
}

function skipNullable(reader: VarintReader, header: BatchHeader, index: number): number {
  const length = reader.readVarint();
  if (length > 0) {
    if (length > reader.end - reader.position) throw invalid("a field runs past its record", header, index);
    reader.position += length;
  }
  return length;
}

/** Reads the length of a record and closes the reader in on its body. Returns the end of the body. */
function enterRecord(reader: VarintReader, header: BatchHeader, index: number): number {
  reader.end = reader.bytes.length;
  const length = reader.readVarint();
  if (reader.fault !== undefined) throw invalid(`record length ${reader.fault}`, header, index);
  if (length <= 0) throw invalid(`record length ${length}`, header, index);
  if (length > reader.end - reader.position) throw invalid("a record runs past the payload", header, index);
  reader.end = reader.position + length;
  return reader.end;
}

function leaveRecord(reader: VarintReader, header: BatchHeader, index: number, endBytes: number): void {
  if (reader.fault !== undefined) throw invalid(`a varint is ${reader.fault}`, header, index);
  if (reader.position !== endBytes) throw invalid("a record is longer than its fields", header, index);
}

function refuseLeftOver(reader: VarintReader, header: BatchHeader): void {
  if (reader.position !== reader.bytes.length)
    throw invalid("bytes after the last record", header, header.recordsCount);
}

/** Base and delta are checked with the sum: each may have been rounded where the sum hides it. */
function recordTimestamp(reader: VarintReader, header: BatchHeader, index: number): number {
  const delta = reader.readVarlong();
  if (isLogAppendTime(header)) {
    if (Number.isSafeInteger(header.maxTimestamp)) return header.maxTimestamp;
  } else {
    const timestamp = header.baseTimestamp + delta;
    if (Number.isSafeInteger(timestamp) && Number.isSafeInteger(delta) && Number.isSafeInteger(header.baseTimestamp)) {
      return timestamp;
    }
  }
  throw new WireError("INVALID_TIMESTAMP", "timestamp outside 53 bits", { baseOffset: header.baseOffset, index });
}

function readHeadersCount(reader: VarintReader, header: BatchHeader, index: number): number {
  const count = reader.readVarint();
  if (count < 0 || count > reader.end - reader.position) throw invalid(`headers count ${count}`, header, index);
  return count;
}

function invalid(reason: string, header: BatchHeader, index: number): WireError {
  return new WireError("INVALID_RECORD", reason, { baseOffset: header.baseOffset, index });
}
