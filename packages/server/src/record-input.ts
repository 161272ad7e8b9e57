import { isCompacted } from "@tidemark/log";
import type { TopicConfig } from "@tidemark/log";
import type { RecordHeader, RecordInput } from "@tidemark/wire";
import type { RecordMemory } from "./byte-arena.ts";
import { TidemarkError } from "./error.ts";

/** Text is stored as UTF-8. */
export type Bytes = string | Uint8Array;

/** A record to be appended. The bytes are copied before `append` returns; the caller may reuse them. */
export interface RecordToAppend {
  /** Decides the partition, unless one is named. Default `null`. */
  readonly key?: Bytes | null;
  readonly value: Bytes | null;
  /** By name, or as a list where order or repeated names matter. */
  readonly headers?:
    | Readonly<Record<string, Bytes | null>>
    | readonly { readonly key: string; readonly value: Bytes | null }[];
  /** Unix time in ms, an integer of at least 0. Default: now. */
  readonly timestamp?: number;
}

/** 2^53 - 2: the largest of which every difference is exact. */
const TIMESTAMP_MAX = Number.MAX_SAFE_INTEGER - 1;

/** What a topic demands of its records. */
export interface RecordRules {
  /** A topic that is compacted keeps the last value of each key. */
  readonly needsKey: boolean;
  /** How far a record's own time may lie from `nowMs`; infinite where the log writes its time over it. */
  readonly timestampBeforeMaxMs: number;
  readonly timestampAfterMaxMs: number;
}

/** The rules of a topic with this configuration. */
export function recordRulesOf(config: TopicConfig): RecordRules {
  const isOwnTime = config.timestampType === "CreateTime";
  return {
    needsKey: isCompacted(config),
    timestampBeforeMaxMs: isOwnTime ? config.timestampBeforeMaxMs : Number.POSITIVE_INFINITY,
    timestampAfterMaxMs: isOwnTime ? config.timestampAfterMaxMs : Number.POSITIVE_INFINITY,
  };
}

/**
 * The record as the encoder wants it, its bytes where `memory` puts them. What the log would refuse is refused here: there it would take
 * the other records of its batch with it.
 * @throws TidemarkError INVALID_REQUEST, INVALID_TIMESTAMP; INVALID_RECORD for one without a key that needs one
 */
export function toRecordInput(
  record: RecordToAppend,
  nowMs: number,
  memory: RecordMemory,
  rules: RecordRules,
): RecordInput {
  if (typeof record !== "object" || record === null) throw wrong("a record is an object with a value");
  const { timestamp = nowMs } = record;
  if (!(Number.isInteger(timestamp) && timestamp >= 0 && timestamp <= TIMESTAMP_MAX)) {
    throw new TidemarkError("INVALID_TIMESTAMP", `timestamp ${timestamp} is not an integer in 0..2^53 - 2`);
  }
  if (timestamp !== nowMs) checkTime(timestamp, nowMs, rules);
  const key = toBytes(record.key ?? null, "key", memory);
  if (key === null && rules.needsKey)
    throw new TidemarkError("INVALID_RECORD", "a record without a key, in a topic that is compacted");
  const value = toBytes(record.value, "value", memory);
  return record.headers === undefined
    ? { key, value, timestamp }
    : { key, value, timestamp, headers: toHeaders(record.headers, memory) };
}

function checkTime(timestamp: number, nowMs: number, rules: RecordRules): void {
  const { timestampBeforeMaxMs, timestampAfterMaxMs } = rules;
  if (nowMs - timestamp <= timestampBeforeMaxMs && timestamp - nowMs <= timestampAfterMaxMs) return;
  const limits = `at most ${timestampBeforeMaxMs} ms before and ${timestampAfterMaxMs} ms after`;
  throw new TidemarkError("INVALID_TIMESTAMP", `timestamp ${timestamp} is not near the log's time ${nowMs}: ${limits}`);
}

/** The record with its bytes in `memory`. */
export function copyRecordInput(record: RecordInput, memory: RecordMemory): RecordInput {
  const copy = (bytes: Uint8Array | null): Uint8Array | null => (bytes === null ? null : memory.copy(bytes));
  return {
    ...record,
    key: copy(record.key),
    value: copy(record.value),
    ...(record.headers && { headers: record.headers.map(({ key, value }) => ({ key, value: copy(value) })) }),
  };
}

function toBytes(value: Bytes | null, what: string, memory: RecordMemory): Uint8Array | null {
  if (value === null) return null;
  if (typeof value === "string") return memory.encode(value);
  if (value instanceof Uint8Array) return memory.copy(value);
  throw wrong(`the ${what} of a record is a string, a Uint8Array or null, not ${typeof value}`);
}

function toHeaders(headers: NonNullable<RecordToAppend["headers"]>, memory: RecordMemory): readonly RecordHeader[] {
  if (!Array.isArray(headers)) {
    return Object.entries(headers).map(([key, value]) => ({ key, value: toBytes(value, `header "${key}"`, memory) }));
  }
  return (headers as readonly { readonly key: string; readonly value: Bytes | null }[]).map(({ key, value }) => {
    if (typeof key !== "string") throw wrong("the key of a header is a string");
    return { key, value: toBytes(value, `header "${key}"`, memory) };
  });
}

function wrong(message: string): TidemarkError {
  return new TidemarkError("INVALID_REQUEST", message);
}
