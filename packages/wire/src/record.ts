import { encodeUtf8, fail } from "@tidemark/base";
import type { BufferPool, Offset } from "@tidemark/base";
import { WireError } from "./error.ts";
import { RECORD_BATCH_OVERHEAD, TRANSACTIONAL_BIT, writeHeader } from "./record-batch.ts";
import { varintBytes, varlongBytes, writeVarint, writeVarlong } from "./varint.ts";

/*
 * One record inside a batch; all lengths and deltas are zigzag varints, -1 = null:
 *
 *   length | attributes i8 | timestampDelta varlong | offsetDelta | keyLength key | valueLength value |
 *   headersCount { keyLength key | valueLength value } ...
 *
 * Source: apache/kafka clients/.../common/record/internal/DefaultRecord.java
 */

export interface RecordHeader {
  readonly key: string;
  readonly value: Uint8Array | null;
}

/** A record to be written. */
export interface RecordInput {
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers?: readonly RecordHeader[];
  /** ms, -1 = none. */
  readonly timestamp: number;
}

/** A record that was read. `key` and `value` are views on the payload it came from. */
export interface DecodedRecord {
  readonly offset: Offset;
  /** ms, -1 = none. With LogAppendTime the maximum of the batch, for every record. */
  readonly timestamp: number;
  readonly timestampType: "CreateTime" | "LogAppendTime";
  /** -1 when the batch has none. */
  readonly sequence: number;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly RecordHeader[];
}

export interface BatchOptions {
  /** -1 = none, the default of all three producer fields. */
  readonly producerId?: number;
  readonly producerEpoch?: number;
  readonly baseSequence?: number;
  readonly transactional?: boolean;
  /** Default 0, as producers send it: the leader stamps it. */
  readonly baseOffset?: number;
  /** Default -1, as producers send it: the leader stamps it. */
  readonly partitionLeaderEpoch?: number;
}

/** Where `encodeBatch` puts the batch. */
export interface BatchMemory {
  /** Default: fresh memory. */
  readonly pool?: BufferPool;
}

const NO_HEADERS: readonly RecordHeader[] = [];
/** batchLength is an int32. */
export const BATCH_BYTES_MAX = 2 ** 31 - 1;
/** Deltas between two timestamps in -1 .. this are safe integers. */
const TIMESTAMP_MAX = Number.MAX_SAFE_INTEGER - 1;
/** Up to here a loop beats the fixed cost of `set` (about 17 ns on Node 20). */
const SHORT_COPY_BYTES_MAX = 8;

/**
 * One uncompressed batch, CreateTime, in memory of its own. Base timestamp = that of the first record.
 *
 * Sizes every record once, allocates once, writes once.
 * @throws WireError INVALID_TIMESTAMP when one is not an integer in -1 .. 2^53 - 2; MESSAGE_TOO_LARGE past 2 GiB
 * @throws InvariantError without records, or with producer fields out of range
 * Source: apache/kafka MemoryRecordsBuilder.java
 */
export function encodeBatch(records: readonly RecordInput[], options: BatchOptions & BatchMemory = {}): Uint8Array {
  const bodyBytes = new Int32Array(records.length);
  const sizeInBytes = sizeBatch(records, bodyBytes);
  const batch = options.pool?.take(sizeInBytes) ?? new Uint8Array(sizeInBytes);
  writeBatch(batch, batch.length, records, bodyBytes, options);
  return batch;
}

/**
 * As `encodeBatch`, into the front of memory that the caller uses again: for small batches an allocation costs more than
 * the encoding.
 * @returns size of the batch; when that is more than `target.length` nothing was written: come again with more room
 */
export function encodeBatchInto(
  target: Uint8Array,
  records: readonly RecordInput[],
  options: BatchOptions = {},
): number {
  const bodyBytes = new Int32Array(records.length);
  const sizeInBytes = sizeBatch(records, bodyBytes);
  if (sizeInBytes <= target.length) writeBatch(target, sizeInBytes, records, bodyBytes, options);
  return sizeInBytes;
}

/** Size of the whole batch; leaves the size of each record's body in `bodyBytes`. Checks every timestamp. */
function sizeBatch(records: readonly RecordInput[], bodyBytes: Int32Array): number {
  const baseTimestamp = records[0]?.timestamp ?? fail("a batch has at least one record");
  let sizeInBytes = RECORD_BATCH_OVERHEAD;
  let delta = 0;
  for (const record of records) {
    const { timestamp } = record;
    if (!(timestamp >= -1 && timestamp <= TIMESTAMP_MAX && Number.isInteger(timestamp))) {
      throw new WireError("INVALID_TIMESTAMP", "a timestamp is -1 .. 2^53 - 2 ms", { timestamp, offsetDelta: delta });
    }
    const bytes = recordBodyBytes(record, timestamp - baseTimestamp, delta);
    sizeInBytes += varintBytes(bytes) + bytes;
    if (sizeInBytes > BATCH_BYTES_MAX) throw new WireError("MESSAGE_TOO_LARGE", "batch over 2 GiB", { sizeInBytes });
    bodyBytes[delta] = bytes;
    delta += 1;
  }
  return sizeInBytes;
}

function writeBatch(
  target: Uint8Array,
  sizeInBytes: number,
  records: readonly RecordInput[],
  bodyBytes: Int32Array,
  options: BatchOptions,
): void {
  const baseTimestamp = records[0]?.timestamp ?? fail("a batch has at least one record");
  let maxTimestamp = baseTimestamp;
  let position = RECORD_BATCH_OVERHEAD;
  let delta = 0;
  for (const record of records) {
    const { timestamp } = record;
    if (timestamp > maxTimestamp) maxTimestamp = timestamp;
    position = writeVarint(target, position, bodyBytes[delta] as number);
    position = writeRecordBody(target, position, record, timestamp - baseTimestamp, delta);
    delta += 1;
  }
  if (position !== sizeInBytes) fail("a batch is as large as it was sized", { position, sizeInBytes });
  completeBatch(target, sizeInBytes, options, { recordsCount: records.length, baseTimestamp, maxTimestamp });
}

/** Writes header and CRC of the batch at the front of `target`, whose records are in place. @throws InvariantError */
export function completeBatch(
  target: Uint8Array,
  sizeInBytes: number,
  options: BatchOptions,
  records: { readonly recordsCount: number; readonly baseTimestamp: number; readonly maxTimestamp: number },
): void {
  const { producerId = -1, producerEpoch = -1, baseSequence = -1 } = options;
  checkProducerFields(producerId, producerEpoch, baseSequence);
  writeHeader(target, sizeInBytes, {
    baseOffset: options.baseOffset ?? 0,
    partitionLeaderEpoch: options.partitionLeaderEpoch ?? -1,
    attributes: options.transactional === true ? TRANSACTIONAL_BIT : 0,
    lastOffsetDelta: records.recordsCount - 1,
    baseTimestamp: records.baseTimestamp,
    maxTimestamp: records.maxTimestamp,
    producerId,
    producerEpoch,
    baseSequence,
    recordsCount: records.recordsCount,
  });
}

/** Exact size of one record inside a batch, in bytes, with its length field. For filling a batch up to a limit. */
export function encodedRecordBytes(record: RecordInput, baseTimestamp: number, offsetDelta: number): number {
  const bytes = recordBodyBytes(record, record.timestamp - baseTimestamp, offsetDelta);
  return varintBytes(bytes) + bytes;
}

function checkProducerFields(producerId: number, producerEpoch: number, baseSequence: number): void {
  if (!(Number.isSafeInteger(producerId) && producerId >= -1)) fail("-1 <= producer id <= 2^53 - 1", { producerId });
  if (!(Number.isInteger(producerEpoch) && producerEpoch >= -1 && producerEpoch < 2 ** 15)) {
    fail("-1 <= producer epoch <= 2^15 - 1", { producerEpoch });
  }
  if (!(Number.isInteger(baseSequence) && baseSequence >= -1 && baseSequence < 2 ** 31)) {
    fail("-1 <= base sequence <= 2^31 - 1", { baseSequence });
  }
}

/** Bytes after the length field. */
export function recordBodyBytes(record: RecordInput, timestampDelta: number, offsetDelta: number): number {
  const headers = record.headers ?? NO_HEADERS;
  let bytes = 1 + varlongBytes(timestampDelta) + varintBytes(offsetDelta) + varintBytes(headers.length);
  bytes += nullableBytes(record.key) + nullableBytes(record.value);
  for (const header of headers) {
    const keyBytes = utf8Bytes(header.key);
    bytes += varintBytes(keyBytes) + keyBytes + nullableBytes(header.value);
  }
  return bytes;
}

function nullableBytes(value: Uint8Array | null): number {
  return value === null ? 1 : varintBytes(value.length) + value.length;
}

/** Writes what stands after the length field, and returns the position after it. The caller made room. */
export function writeRecordBody(
  target: Uint8Array,
  positionBytes: number,
  record: RecordInput,
  timestampDelta: number,
  offsetDelta: number,
): number {
  const headers = record.headers ?? NO_HEADERS;
  target[positionBytes] = 0; // Attributes: none are defined.
  let position = writeVarlong(target, positionBytes + 1, timestampDelta);
  position = writeVarint(target, position, offsetDelta);
  position = writeNullable(target, position, record.key);
  position = writeNullable(target, position, record.value);
  position = writeVarint(target, position, headers.length);
  for (const header of headers) {
    position = writeVarint(target, position, utf8Bytes(header.key));
    position = writeUtf8(target, position, header.key);
    position = writeNullable(target, position, header.value);
  }
  return position;
}

function writeNullable(target: Uint8Array, positionBytes: number, value: Uint8Array | null): number {
  if (value === null) {
    target[positionBytes] = 1; // Zigzag -1.
    return positionBytes + 1;
  }
  const position = writeVarint(target, positionBytes, value.length);
  if (value.length > SHORT_COPY_BYTES_MAX) {
    target.set(value, position);
  } else {
    for (let index = 0; index < value.length; index += 1) target[position + index] = value[index] as number;
  }
  return position + value.length;
}

/** Bytes of the text in UTF-8; a lone surrogate becomes U+FFFD, as in `encodeUtf8`. */
function utf8Bytes(text: string): number {
  for (let index = 0; index < text.length; index += 1) {
    if (text.charCodeAt(index) >= 0x80) return encodeUtf8(text).length;
  }
  return text.length;
}

function writeUtf8(target: Uint8Array, positionBytes: number, text: string): number {
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    if (unit >= 0x80) {
      const encoded = encodeUtf8(text); // Header keys are ASCII in practice; the others pay for a second encoding.
      target.set(encoded, positionBytes);
      return positionBytes + encoded.length;
    }
    target[positionBytes + index] = unit;
  }
  return positionBytes + text.length;
}
