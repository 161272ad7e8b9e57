import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BufferPool, toOffset } from "@tidemark/base";
import type { Clock } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import { LogError } from "@tidemark/log";
import type { AppendResult } from "@tidemark/log";
import { decodeRecords, recordsSection, runWorkerJob, scanBatch } from "@tidemark/wire";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ByteArena } from "./byte-arena.ts";
import { PartitionAccumulator } from "./partition-accumulator.ts";
import { APPENDER_BATCHES_MAX, RecordAppender } from "./record-appender.ts";
import { Tidemark } from "./tidemark.ts";
import type { Topic } from "./topic.ts";

interface Waiting {
  readonly values: readonly (string | undefined)[];
  readonly timestamps: readonly number[];
  /** Whether it has a key, and how many headers. */
  readonly extras: readonly (readonly [hasKey: boolean, headers: number])[];
  readonly succeed: () => void;
  readonly fail: (error: Error) => void;
}

const BATCH_BYTES = 1000;
const BATCH_BYTES_MAX = 2000;

/** Lets everything that is ready run. */
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** An appender over a log that answers when the test says so. */
function setUp({ needsKey = false } = {}) {
  const waiting: Waiting[] = [];
  let endOffset = 0;
  const append = (bytes: Uint8Array): Promise<AppendResult> =>
    new Promise((resolve, reject) => {
      const scan = scanBatch(bytes, 0);
      if (scan.type !== "batch") throw new Error("a batch is handed over");
      const { header } = scan;
      const baseOffset = endOffset;
      endOffset += header.recordsCount;
      const records = [...decodeRecords(header, recordsSection(bytes, header))];
      waiting.push({
        values: records.map(({ value }) =>
          Buffer.from(value ?? [])
            .toString()
            .slice(0, 8),
        ),
        timestamps: records.map(({ timestamp }) => timestamp),
        extras: records.map(({ key, headers }) => [key !== null, headers.length]),
        succeed: () =>
          resolve({ baseOffset: toOffset(baseOffset), lastOffset: toOffset(endOffset - 1), duplicate: false }),
        fail: reject,
      });
    });
  const accumulator = new PartitionAccumulator({
    topic: "t",
    partition: 0,
    log: { append },
    workers: {
      run: async (name, input) => runWorkerJob(NODE_CODECS, name, input),
      runNow: (name, input) => runWorkerJob(NODE_CODECS, name, input),
      close: async () => undefined,
    },
    pool: new BufferPool({ poisons: true }),
    producerId: 7,
    compression: "none",
    batchBytes: BATCH_BYTES,
    batchBytesMax: BATCH_BYTES_MAX,
  });
  const clock = { nowMs: 1000.5, looks: 0 };
  const calls = { begun: 0, ended: 0 };
  const told: string[] = [];
  const appender = new RecordAppender(
    {
      topic: "t",
      accumulator,
      clock: {
        wallMs: () => {
          clock.looks += 1;
          return clock.nowMs;
        },
      } as Clock,
      arena: new ByteArena(),
      batchBytesMax: BATCH_BYTES_MAX,
      rules: { needsKey, timestampBeforeMaxMs: Number.POSITIVE_INFINITY, timestampAfterMaxMs: 3_600_000 },
      checkOpen: () => undefined,
      begin: () => {
        calls.begun += 1;
        return () => (calls.ended += 1);
      },
    },
    { partition: 0, onAppended: (base, count) => told.push(`${count}@${base}`) },
  );
  return { waiting, accumulator, appender, clock, calls, told };
}

/** So large that two of them fill a batch. */
const HALF = "x".repeat(420);

describe("the stream", () => {
  test("takes records until enough batches wait, goes on after drain, and is over after flush", async () => {
    const { waiting, appender, calls, told } = setUp();
    let taken = 0;
    while (appender.append({ value: HALF })) taken += 1;
    // One more than may wait has been begun.
    expect(taken).toBe(2 * APPENDER_BATCHES_MAX);
    let isDrained = false;
    const drained = appender.drain().then(() => (isDrained = true));
    await settle();
    expect([isDrained, waiting.length]).toEqual([false, 5]);
    waiting[0]?.succeed();
    await drained;
    let isFlushed = false;
    const flushed = appender.flush().then(() => (isFlushed = true));
    for (let at = 1; at < waiting.length; at += 1) {
      expect(isFlushed).toBe(false);
      waiting[at]?.succeed();
      await settle();
    }
    await flushed;
    expect(told).toEqual(["2@0", "2@2", "2@4", "2@6", "2@8", "2@10", "1@12"]);
    expect(appender.acknowledgedCount).toBe(13);
    expect(calls).toEqual({ begun: 1, ended: 1 });
  });

  test("with nothing under way drain and flush resolve at once", async () => {
    const { appender } = setUp();
    await appender.drain();
    await appender.flush();
    expect(appender.acknowledgedCount).toBe(0);
  });

  test("who never waits is refused, and nothing that was taken is lost", async () => {
    const { waiting, appender } = setUp();
    let taken = 0;
    const refusal = (() => {
      try {
        for (;;) {
          appender.append({ value: HALF });
          taken += 1;
        }
      } catch (error) {
        return error;
      }
    })();
    expect(refusal).toMatchObject({ code: "QUEUE_FULL", retriable: true, topic: "t", partition: 0 });
    expect(taken).toBe(4 * APPENDER_BATCHES_MAX);
    const flushed = appender.flush();
    for (let at = 0; appender.acknowledgedCount < taken; at += 1) {
      await settle();
      waiting[at]?.succeed();
      await settle();
    }
    await flushed;
    expect(appender.append({ value: HALF })).toBe(true);
  });

  test("a batch that fails ends it: what comes later hears of that", async () => {
    const { waiting, appender, told, calls } = setUp();
    while (appender.append({ value: HALF }));
    await settle();
    waiting[0]?.succeed();
    const flushed = appender.flush();
    const full = new LogError({ code: "KAFKA_STORAGE_ERROR", failure: "ENOSPC", path: "p", operation: "write" });
    waiting[1]?.fail(full);
    const expected = { code: "KAFKA_STORAGE_ERROR", retriable: true, topic: "t", partition: 0 };
    await expect(flushed).rejects.toMatchObject(expected);
    await expect(appender.drain()).rejects.toMatchObject(expected);
    expect(() => appender.append({ value: "more" })).toThrow(expect.objectContaining(expected));
    for (let at = 2; calls.ended === 0; at += 1) {
      waiting[at]?.succeed();
      await settle();
    }
    await expect(appender.flush()).rejects.toMatchObject(expected);
    expect(told[0]).toBe("2@0");
    expect(told).not.toContain("2@2");
  });
});

describe("a record", () => {
  test("that is too large is not taken, and others may follow", async () => {
    const { waiting, appender } = setUp();
    expect(() => appender.append({ value: "x".repeat(BATCH_BYTES_MAX) })).toThrow(
      expect.objectContaining({ code: "MESSAGE_TOO_LARGE" }),
    );
    expect(() => appender.append({ value: 7 as never })).toThrow(expect.objectContaining({ code: "INVALID_REQUEST" }));
    appender.append({ value: "next" });
    await settle();
    expect(waiting.map(({ values }) => values)).toEqual([["next"]]);
  });

  test("is the same with bytes or a text for its value, alone or with nothing for the rest; what needs a key has one", async () => {
    const { waiting, appender } = setUp();
    const value = new TextEncoder().encode("a");
    appender.append({ value });
    appender.append({ value, key: null });
    appender.append({ value: "a", headers: [] });
    expect(() => appender.append(null as never)).toThrow(expect.objectContaining({ code: "INVALID_REQUEST" }));
    await settle();
    value.fill(0);
    expect(waiting.map(({ values }) => values)).toEqual([["a", "a", "a"]]);
    const strict = setUp({ needsKey: true }).appender;
    // First of a batch, and behind another one.
    for (let round = 0; round < 2; round += 1) {
      expect(() => strict.append({ value })).toThrow(expect.objectContaining({ code: "INVALID_RECORD" }));
      expect(strict.append({ value, key: value })).toBe(true);
    }
  });

  test("keeps key, headers and time behind one that has none of them", async () => {
    const { waiting, appender } = setUp();
    const value = new TextEncoder().encode("a");
    for (const extra of [{}, { key: value }, { headers: { h: value } }, { timestamp: 5 }])
      appender.append({ value, ...extra });
    await settle();
    expect(waiting.map(({ extras }) => extras)).toEqual([
      [
        [false, 0],
        [true, 0],
        [false, 1],
        [false, 0],
      ],
    ]);
    expect(waiting[0]?.timestamps).toEqual([1000, 1000, 1000, 5]);
  });

  test("is stamped with the time of its turn, and may name another one", async () => {
    const { waiting, appender, clock } = setUp();
    appender.append({ value: "a" });
    appender.append({ value: "b", timestamp: 5 });
    clock.nowMs = 1001.5;
    appender.append({ value: "c" }); // The same turn.
    await settle();
    appender.append({ value: "d" });
    waiting[0]?.succeed();
    await settle();
    expect(waiting.map(({ timestamps }) => timestamps)).toEqual([[1000, 5, 1000], [1001]]);
    expect(clock.looks).toBe(2);
  });

  test("shares a batch with those of other callers, and each hears of its own", async () => {
    const { waiting, accumulator, appender, told } = setUp();
    const others: string[] = [];
    const other = {
      count: 1,
      onAppended: (offset: number) => others.push(`@${offset}`),
      onFailed: (error: unknown) => others.push(String(error)),
    };
    appender.append({ value: "a" });
    appender.append({ value: "b" });
    accumulator.add({ key: null, value: new Uint8Array([120]), timestamp: 1 }, other);
    appender.append({ value: "c" });
    await settle();
    waiting[0]?.succeed();
    await appender.flush();
    expect([told, others]).toEqual([["2@0", "1@3"], ["@2"]]);
  });
});

describe("over a log on a disk", () => {
  let directory: string;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "tidemark-"));
  });

  afterEach(async () => {
    await rm(directory, { recursive: true, force: true });
  });

  async function valuesOf(topic: Topic): Promise<string[]> {
    const values: string[] = [];
    for await (const { key, value } of topic.fetch({ partition: 0, follow: false }))
      values.push(`${Buffer.from(key ?? "-").toString()}=${Buffer.from(value ?? []).toString()}`);
    return values;
  }

  test("every record is there once, in order, although its memory was used again at once", async () => {
    await using log = await Tidemark.open({ directory, batchBytes: 2000 });
    const topic = await log.topic("t");
    const runs: [number, number][] = [];
    const appender = topic.appender({ partition: 0, onAppended: (base, count) => runs.push([base, count]) });
    const key = new Uint8Array(1);
    for (let number = 0; number < 3000; number += 1) {
      key[0] = 97 + (number % 26);
      if (!appender.append({ key, value: `v${number}` })) await appender.drain();
    }
    await appender.flush();
    const letter = (number: number) => String.fromCharCode(97 + (number % 26));
    expect(await valuesOf(topic)).toEqual(Array.from({ length: 3000 }, (_, number) => `${letter(number)}=v${number}`));
    let next = 0;
    for (const [base, count] of runs) {
      expect(base).toBe(next);
      next += count;
    }
    expect([next, appender.acknowledgedCount]).toEqual([3000, 3000]);
  });

  test("close waits for what was taken; nothing is taken after it", async () => {
    const log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    const appender = topic.appender({ partition: 0 });
    appender.append({ value: "last" });
    await log.close();
    expect(appender.acknowledgedCount).toBe(1);
    expect(() => appender.append({ value: "late" })).toThrow(expect.objectContaining({ code: "CLOSED" }));
    await appender.flush();
    await using again = await Tidemark.open({ directory });
    expect(await valuesOf(await again.topic("t"))).toEqual(["-=last"]);
  });

  test("a partition that is not there, or no options, are refused", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    expect(() => topic.appender({ partition: 1 })).toThrow(
      expect.objectContaining({ code: "UNKNOWN_TOPIC_OR_PARTITION" }),
    );
    expect(() => topic.appender(undefined as never)).toThrow(expect.objectContaining({ code: "INVALID_REQUEST" }));
  });

  test("leaving its scope flushes it", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { flush: "always" });
    {
      await using appender = topic.appender({ partition: 0 });
      appender.append({ value: "durable" });
    }
    expect(topic.offsets(0).latest).toBe(1);
  });
});
