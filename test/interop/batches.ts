import { NODE_CODECS } from "@tidemark/codecs";
import { compressPayload, encodeBatch, recordsSection, scanBatch, withCompressedPayload } from "@tidemark/wire";
import type { BatchHeader, BatchOptions, RecordInput } from "@tidemark/wire";

import type { SeededRandom } from "./random.ts";

/**
 * An hour before the time at which Oracle.java's log stands: Kafka refuses timestamps far ahead of it, and forgets
 * producers whose last record is a day old.
 */
const TIMESTAMP_START = 1_750_000_000_000;

export interface BatchShape {
  readonly recordsMax: number;
  readonly valueBytesMax: number;
  readonly compressed: boolean;
  /** No record without timestamp. */
  readonly alwaysTimed?: boolean;
}

/** A batch of random records as `options` says; keys, values and headers may be absent or empty. */
export function randomBatch(random: SeededRandom, shape: BatchShape, options: BatchOptions = {}): Uint8Array {
  const count = random.between(1, shape.recordsMax);
  const records = Array.from({ length: count }, () => randomRecord(random, shape));
  const batch = encodeBatch(records, options);
  if (!shape.compressed) return batch;
  return withCompressedPayload(
    batch,
    "gzip",
    compressPayload(NODE_CODECS, "gzip", recordsSection(batch, headerOf(batch))),
  );
}

function randomRecord(random: SeededRandom, shape: BatchShape): RecordInput {
  const value = random.oneIn(10) ? null : random.bytes(random.between(0, shape.valueBytesMax));
  const headers = random.oneIn(5) ? [{ key: "source", value: random.oneIn(2) ? null : random.bytes(3) }] : [];
  return {
    key: random.oneIn(2) ? null : random.bytes(random.between(0, 9)),
    value,
    headers,
    timestamp: random.oneIn(30) && !shape.alwaysTimed ? -1 : TIMESTAMP_START + random.between(0, 100_000),
  };
}

export function headerOf(bytes: Uint8Array, positionBytes = 0): BatchHeader {
  const scan = scanBatch(bytes, positionBytes);
  if (scan.type !== "batch") throw new Error(`no batch: ${scan.type}`);
  return scan.header;
}

export function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

export function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("base64");
}
