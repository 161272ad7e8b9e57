import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { TopicOptions } from "./options.ts";
import { Tidemark } from "./tidemark.ts";
import type { Topic } from "./topic.ts";

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemark-"));
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

async function recordsOf(topic: Topic) {
  const records: { value: string; timestamp: number }[] = [];
  for await (const { value, timestamp } of topic.fetch({ partition: 0, follow: false }))
    records.push({ value: new TextDecoder().decode(value ?? undefined), timestamp });
  return records;
}

const COMPACTING = {
  cleanupPolicy: "compact,delete",
  minCleanableDirtyRatio: 0.25,
  minCompactionLagMs: 1000,
  maxCompactionLagMs: 60_000,
  deleteRetentionMs: 5000,
  timestampType: "LogAppendTime",
  timestampBeforeMaxMs: 7000,
  timestampAfterMaxMs: 8000,
} as const satisfies TopicOptions;

describe("options of a topic", () => {
  test("are Kafka's defaults where nothing is said, are kept over a reopen, and can be changed then", async () => {
    {
      await using log = await Tidemark.open({ directory });
      expect((await log.topic("plain")).config).toMatchObject({
        cleanupPolicy: "delete",
        minCleanableDirtyRatio: 0.5,
        minCompactionLagMs: 0,
        maxCompactionLagMs: Number.MAX_SAFE_INTEGER,
        deleteRetentionMs: 86_400_000,
        timestampType: "CreateTime",
        timestampBeforeMaxMs: Number.MAX_SAFE_INTEGER,
        timestampAfterMaxMs: 3_600_000,
        compressionType: "producer",
      });
      await log.topic("t", COMPACTING);
    }
    {
      await using log = await Tidemark.open({ directory });
      expect((await log.topic("t")).config).toMatchObject(COMPACTING);
    }
    await using log = await Tidemark.open({ directory });
    expect((await log.topic("t", { cleanupPolicy: "delete" })).config).toMatchObject({
      ...COMPACTING,
      cleanupPolicy: "delete",
    });
  });

  const wrong: TopicOptions[] = [
    { cleanupPolicy: "delete,compact" as never },
    { minCleanableDirtyRatio: 1.5 },
    { minCleanableDirtyRatio: Number.NaN },
    { minCompactionLagMs: -1 },
    { maxCompactionLagMs: 0 },
    { minCompactionLagMs: 10, maxCompactionLagMs: 9 },
    { deleteRetentionMs: 0.5 },
    { timestampType: "Now" as never },
    { timestampBeforeMaxMs: -1 },
    { timestampAfterMaxMs: "1" as never },
  ];
  test.each(wrong)("that Kafka refuses are INVALID_CONFIG: %o", async (options) => {
    await using log = await Tidemark.open({ directory });
    await expect(log.topic("t", options)).rejects.toMatchObject({ code: "INVALID_CONFIG", topic: "t" });
    expect(log.topics()).toEqual([]);
  });

  test("that contradict what the topic was set to before are INVALID_CONFIG, and change nothing", async () => {
    {
      await using log = await Tidemark.open({ directory });
      await log.topic("t", { maxCompactionLagMs: 1000 });
    }
    await using log = await Tidemark.open({ directory });
    await expect(log.topic("t", { minCompactionLagMs: 1001 })).rejects.toMatchObject({ code: "INVALID_CONFIG" });
    expect((await log.topic("t")).config).toMatchObject({ minCompactionLagMs: 0, maxCompactionLagMs: 1000 });
  });
});

describe("compressionType", () => {
  test("is what the topic's own appends are compressed with, whatever compression says", async () => {
    const value = "again and ".repeat(1000);
    await using log = await Tidemark.open({ directory });
    const sizes = [];
    for (const [name, options] of [
      ["as-it-comes", { compression: "gzip" }],
      ["stored-plain", { compression: "gzip", compressionType: "none" }],
      ["stored-zstd", { compressionType: "zstd", compressionLevel: 19 }],
    ] as const) {
      const topic = await log.topic(name, options);
      expect(topic.config.compressionType).toBe("compressionType" in options ? options.compressionType : "producer");
      await topic.append({ value });
      expect((await recordsOf(topic)).map(({ value: found }) => found)).toEqual([value]);
      sizes.push(topic.partition(0).segments[0]?.sizeBytes ?? 0);
    }
    expect(sizes.map((size) => size < value.length / 10)).toEqual([true, false, true]);
  });

  const wrong: TopicOptions[] = [
    { compressionType: "uncompressed" as never },
    { compressionType: "zstd", compressionLevel: 23 },
    { compression: "gzip", compressionType: "lz4", compressionLevel: 3 },
    { compressionLevel: 3 },
  ];
  test.each(wrong)("with a level that its codec does not have is INVALID_CONFIG: %o", async (options) => {
    await using log = await Tidemark.open({ directory });
    await expect(log.topic("t", options)).rejects.toMatchObject({ code: "INVALID_CONFIG", topic: "t" });
  });

  test("keeps its level until another codec is set", async () => {
    const levels = [];
    for (const options of [
      { compression: "gzip", compressionLevel: 9 },
      {},
      { compressionType: "gzip" },
      { compressionType: "gzip", compression: "lz4" },
      { compressionType: "producer", compression: "gzip" },
      { compressionType: "zstd" },
      { compressionType: "gzip", compressionLevel: 2 },
      { compressionType: "producer" },
      { compression: "lz4" },
    ] as const) {
      await using log = await Tidemark.open({ directory });
      levels.push((await log.topic("t", options)).config.compressionLevel);
    }
    expect(levels).toEqual([9, 9, 9, 9, 9, undefined, 2, 2, undefined]);
  });
});

describe("a compacted topic", () => {
  test("refuses a record without a key by Kafka's name, and nothing else with it", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { cleanupPolicy: "compact" });
    const refused = { code: "INVALID_RECORD", kind: "fix-call" };
    const neighbour = topic.append({ key: "a", value: "1" });
    await expect(topic.append({ value: "no key" })).rejects.toMatchObject(refused);
    await expect(
      topic.append([
        { key: "b", value: "2" },
        { key: null, value: "no key" },
      ]),
    ).rejects.toMatchObject(refused);
    const appender = topic.appender({ partition: 0 });
    expect(() => appender.append({ value: "no key" })).toThrow(expect.objectContaining({ code: "INVALID_RECORD" }));
    appender.append({ key: "", value: "an empty key is one" });
    await appender.flush();
    await neighbour;
    expect((await recordsOf(topic)).map(({ value }) => value)).toEqual(["1", "an empty key is one"]);
  });
});

describe("timestamps", () => {
  test("too far from the clock are refused record by record", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { timestampBeforeMaxMs: 60_000, timestampAfterMaxMs: 60_000 });
    const now = Date.now();
    const neighbour = topic.append({ value: "now" });
    for (const timestamp of [now - 120_000, now + 120_000])
      await expect(topic.append({ value: "x", timestamp })).rejects.toMatchObject({ code: "INVALID_TIMESTAMP" });
    await topic.append([{ value: "near" }, { value: "a little old", timestamp: now - 30_000 }]);
    await neighbour;
    expect(await recordsOf(topic)).toHaveLength(3);
  });

  test("of the log take the place of the record's, and the append tells them", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { timestampType: "LogAppendTime", timestampBeforeMaxMs: 0 });
    const before = Date.now();
    const answers = [
      await topic.append({ value: "a", timestamp: 5 }),
      ...(await topic.append([
        { value: "b", timestamp: 6 },
        { value: "c", timestamp: 7 },
      ])),
    ];
    const times = (await recordsOf(topic)).map(({ timestamp }) => timestamp);
    expect(answers.map(({ timestamp }) => timestamp)).toEqual(times);
    expect(Math.min(...times)).toBeGreaterThanOrEqual(before);
  });
});
