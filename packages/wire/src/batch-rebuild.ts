import { fail } from "@tidemark/base";
import { WireError } from "./error.ts";
import {
  CONTROL_BIT,
  DELETE_HORIZON_BIT,
  isControlBatch,
  isLogAppendTime,
  isTransactional,
  LOG_APPEND_TIME_BIT,
  RECORD_BATCH_OVERHEAD,
  TRANSACTIONAL_BIT,
  writeHeader,
} from "./record-batch.ts";
import type { BatchHeader } from "./record-batch.ts";
import { varintBytes, VarintReader, varlongBytes, writeVarint, writeVarlong } from "./varint.ts";

/** One record of a batch that compaction looks at: where it lies, and what decides over it. */
export interface RawRecord {
  readonly offset: number;
  /** As a reader sees it. */
  readonly timestamp: number;
  /** A view, or `null`. */
  readonly key: Uint8Array | null;
  readonly hasValue: boolean;
  /** From the key's length to the end: what is copied as it is. A view. */
  readonly body: Uint8Array;
}

/** The time at which tombstones and markers of the batch may go, or `undefined` when it has none yet. */
export function deleteHorizonMs(header: BatchHeader): number | undefined {
  return (header.attributes & DELETE_HORIZON_BIT) === 0 ? undefined : header.baseTimestamp;
}

/**
 * The records of a batch, in order, without building them.
 * @param payload the records section, decompressed
 * @throws WireError INVALID_RECORD when lengths or counts disagree; INVALID_TIMESTAMP
 */
export function rawRecords(header: BatchHeader, payload: Uint8Array): RawRecord[] {
  const records: RawRecord[] = [];
  const reader = new VarintReader(payload);
  for (let index = 0; index < header.recordsCount; index += 1) {
    const length = reader.readVarint();
    const endBytes = reader.position + length;
    if (reader.fault !== undefined || length <= 0 || endBytes > payload.length)
      throw invalid(header, index, "a record runs past the payload");
    reader.position += 1;
    const timestampDelta = reader.readVarlong();
    const offset = header.baseOffset + reader.readVarint();
    const bodyBytes = reader.position;
    const keyBytes = reader.readVarint();
    const key = keyBytes < 0 ? null : payload.subarray(reader.position, reader.position + keyBytes);
    reader.position += Math.max(keyBytes, 0);
    const hasValue = reader.readVarint() >= 0;
    if (reader.fault !== undefined || reader.position > endBytes)
      throw invalid(header, index, "a field runs past its record");
    const timestamp = isLogAppendTime(header) ? header.maxTimestamp : header.baseTimestamp + timestampDelta;
    if (!Number.isSafeInteger(timestamp))
      throw new WireError("INVALID_TIMESTAMP", "timestamp outside 53 bits", { baseOffset: header.baseOffset, index });
    records.push({ offset, timestamp, key, hasValue, body: payload.subarray(bodyBytes, endBytes) });
    reader.position = endBytes;
  }
  if (header.recordsCount > 0 && reader.position !== payload.length)
    throw invalid(header, header.recordsCount, "bytes after the last record");
  return records;
}

/**
 * The batch with these of its records only, uncompressed: offsets, sequences, producer and epoch stay what they were.
 * @param horizonMs becomes the base timestamp, and is marked as what it is; `undefined` for none
 * @throws InvariantError without records
 * Source: apache/kafka clients/.../common/record/internal/MemoryRecords.java, buildRetainedRecordsInto
 */
export function rebuildBatch(
  header: BatchHeader,
  records: readonly RawRecord[],
  horizonMs: number | undefined,
): Uint8Array {
  const first = records[0] ?? fail("a batch that is rebuilt keeps a record", { baseOffset: header.baseOffset });
  const baseTimestamp = horizonMs ?? first.timestamp;
  const sizes = records.map((record) => sizeOf(record, header.baseOffset, baseTimestamp));
  const sizeInBytes = sizes.reduce((sum, bytes) => sum + varintBytes(bytes) + bytes, RECORD_BATCH_OVERHEAD);
  const batch = new Uint8Array(sizeInBytes);
  let at = RECORD_BATCH_OVERHEAD;
  let maxTimestamp = -1;
  for (const [index, record] of records.entries()) {
    at = writeVarint(batch, at, sizes[index] ?? 0) + 1;
    at = writeVarlong(batch, at, record.timestamp - baseTimestamp);
    at = writeVarint(batch, at, record.offset - header.baseOffset);
    batch.set(record.body, at);
    at += record.body.length;
    maxTimestamp = Math.max(maxTimestamp, record.timestamp);
  }
  const attributes = keptAttributes(header) | (horizonMs === undefined ? 0 : DELETE_HORIZON_BIT);
  writeHeader(batch, sizeInBytes, {
    ...header,
    attributes,
    baseTimestamp,
    maxTimestamp: isLogAppendTime(header) ? header.maxTimestamp : maxTimestamp,
    recordsCount: records.length,
  });
  return batch;
}

/**
 * The header of the batch alone: what stays of one whose records are all gone, so that its producer's sequence is known.
 * Source: apache/kafka DefaultRecordBatch.writeEmptyHeader
 */
export function emptyBatch(header: BatchHeader): Uint8Array {
  const batch = new Uint8Array(RECORD_BATCH_OVERHEAD);
  const fields = { ...header, attributes: keptAttributes(header), baseTimestamp: -1, recordsCount: 0 };
  writeHeader(batch, batch.length, fields);
  return batch;
}

/** All but the codec and the horizon. */
function keptAttributes(header: BatchHeader): number {
  return (
    (isLogAppendTime(header) ? LOG_APPEND_TIME_BIT : 0) |
    (isTransactional(header) ? TRANSACTIONAL_BIT : 0) |
    (isControlBatch(header) ? CONTROL_BIT : 0)
  );
}

function sizeOf(record: RawRecord, baseOffset: number, baseTimestamp: number): number {
  const deltas = varlongBytes(record.timestamp - baseTimestamp) + varintBytes(record.offset - baseOffset);
  return 1 + deltas + record.body.length;
}

function invalid(header: BatchHeader, index: number, reason: string): WireError {
  return new WireError("INVALID_RECORD", reason, { baseOffset: header.baseOffset, index });
}
