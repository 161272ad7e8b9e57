import { NODE_CODECS } from "@tidemark/codecs";
import { compressPayload, encodeBatch, recordsSection, scanBatch, withCompressedPayload } from "@tidemark/wire";
import type { BatchHeader, BatchOptions, RecordInput } from "@tidemark/wire";

import type { SeededRandom } from "./random.ts";

/**
 * An hour before the time at which Oracle.java's log stands: Kafka refuses timestamps far ahead of it, and forgets
 * producers whose last record is a day old.
 */
export const TIMESTAMP_START = 1_750_000_000_000;

export interface RecordsShape {
  readonly recordsMax: number;
  readonly valueBytesMax: number;
  /** No record without timestamp. */
  readonly alwaysTimed?: boolean;
}

export interface BatchShape extends RecordsShape {
  /** With any codec. */
  readonly compressed: boolean;
}

const CODECS = ["gzip", "snappy", "lz4", "zstd"] as const;

/** A batch of random records as `options` says; keys, values and headers may be absent or empty. */
export function randomBatch(random: SeededRandom, shape: BatchShape, options: BatchOptions = {}): Uint8Array {
  const batch = encodeBatch(randomRecords(random, shape), options);
  if (!shape.compressed) return batch;
  const codec = CODECS[random.between(0, CODECS.length - 1)] ?? "gzip";
  const payload = compressPayload(NODE_CODECS, codec, recordsSection(batch, headerOf(batch)));
  return withCompressedPayload(batch, codec, payload);
}

export function randomRecords(random: SeededRandom, shape: RecordsShape): RecordInput[] {
  return Array.from({ length: random.between(1, shape.recordsMax) }, () => randomRecord(random, shape));
}

function randomRecord(random: SeededRandom, shape: RecordsShape): RecordInput {
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
