import { decodeUtf8, encodeUtf8 } from "@tidemark/base";
import { expect, test } from "vitest";
import { DEFAULT_LOG_CONFIG } from "./config.ts";
import { decodeTopic, encodeTopic } from "./topic-config.ts";
import type { TopicConfig } from "./topic-config.ts";

const CONFIG: TopicConfig = {
  ...DEFAULT_LOG_CONFIG,
  cleanupPolicy: "compact,delete",
  minCleanableDirtyRatio: 0.1,
  minCompactionLagMs: 1,
  maxCompactionLagMs: 2,
  deleteRetentionMs: 3,
  compressionType: "lz4",
  compression: "zstd",
  compressionLevel: 5,
};
const TOPIC = { name: "t", topicId: "AAAAAAAAAAAAAAAAAAAAAQ", partitions: 2, config: CONFIG };

/** The stored topic with some fields replaced, or left out. */
function stored(change: Readonly<Record<string, unknown>>): Uint8Array {
  const fields = JSON.parse(decodeUtf8(encodeTopic(TOPIC, "ready"))) as Record<string, unknown>;
  return encodeUtf8(JSON.stringify({ ...fields, ...change }));
}

test("a topic is read as it was stored", () => {
  expect(decodeTopic("t", encodeTopic(TOPIC, "ready"))).toEqual({ topic: TOPIC, status: "ready" });
});

test("a topic of a version that knew neither compaction nor a codec of the topic's own has the defaults", () => {
  const { cleanupPolicy, minCleanableDirtyRatio, minCompactionLagMs, maxCompactionLagMs, deleteRetentionMs } =
    DEFAULT_LOG_CONFIG;
  const { compressionType } = DEFAULT_LOG_CONFIG;
  const defaults = {
    cleanupPolicy,
    minCleanableDirtyRatio,
    minCompactionLagMs,
    maxCompactionLagMs,
    deleteRetentionMs,
    compressionType,
  };
  const absent = Object.fromEntries(Object.keys(defaults).map((name) => [name, undefined]));
  expect(decodeTopic("t", stored(absent))?.topic.config).toEqual({ ...CONFIG, ...defaults });
});

test.each([
  { cleanupPolicy: "shrink" },
  { minCleanableDirtyRatio: 2 },
  { minCleanableDirtyRatio: null },
  { minCompactionLagMs: 3 },
  { maxCompactionLagMs: -1 },
  { deleteRetentionMs: "1" },
  { compressionType: "brotli" },
])("what is no configuration counts as lost: %o", (change) => {
  expect(decodeTopic("t", stored(change))).toBeUndefined();
});
