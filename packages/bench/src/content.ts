import { encodeUtf8 } from "@tidemark/base";
import { encodeBatch, encodedRecordBytes, RECORD_BATCH_OVERHEAD } from "@tidemark/wire";
import type { RecordInput } from "@tidemark/wire";

const TIMESTAMP = 1_700_000_000_000;

/** Text of `bytes` bytes that compresses about as well as JSON events do. The same in every run. */
export function eventText(bytes: number): Uint8Array {
  const text = new Uint8Array(bytes);
  let state = 1;
  for (let at = 0; at < bytes;) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    const event = encodeUtf8(
      `{"delay":${(state >>> 16) % 400},"distance":${(state >>> 8) % 3000},"time":${(state % 240_000) / 1e4}},\n`,
    ).subarray(0, bytes - at);
    text.set(event, at);
    at += event.length;
  }
  return text;
}

/** `count` records without keys, all with the same value of `valueBytes`. */
export function records(count: number, valueBytes: number): RecordInput[] {
  const value = eventText(valueBytes);
  return Array.from({ length: count }, () => ({ key: null, value, timestamp: TIMESTAMP }));
}

export interface FilledBatch {
  readonly bytes: Uint8Array;
  readonly recordsCount: number;
  /** Mean size of a record in the file, with its part of the batch header. */
  readonly bytesPerRecord: number;
}

/** A batch of `count` records of `valueBytes`. */
export function batchOf(count: number, valueBytes: number): FilledBatch {
  const bytes = encodeBatch(records(count, valueBytes));
  return { bytes, recordsCount: count, bytesPerRecord: bytes.length / count };
}

/** A batch of as many records of `valueBytes` as fit into `limitBytes`. */
export function filledBatch(valueBytes: number, limitBytes: number): FilledBatch {
  const [record] = records(1, valueBytes);
  if (record === undefined) throw new RangeError("a batch has a record");
  let sizeBytes = RECORD_BATCH_OVERHEAD;
  let recordsCount = 0;
  for (;;) {
    sizeBytes += encodedRecordBytes(record, TIMESTAMP, recordsCount);
    if (recordsCount > 0 && sizeBytes > limitBytes) break;
    recordsCount += 1;
  }
  return batchOf(recordsCount, valueBytes);
}
