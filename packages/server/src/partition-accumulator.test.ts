import { BufferPool, encodeUtf8, toOffset, WorkerError } from "@tidemark/base";
import type { WorkerPool } from "@tidemark/base";
import { LogError } from "@tidemark/log";
import type { AppendResult } from "@tidemark/log";
import { NODE_CODECS } from "@tidemark/codecs";
import { codecId, decodeRecords, decompressPayload, recordsSection, runWorkerJob, scanBatch } from "@tidemark/wire";
import type { BatchHeader, CompressionCodec, RecordInput } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { BATCHES_IN_FLIGHT_MAX, PartitionAccumulator } from "./partition-accumulator.ts";

interface HandedOver {
  readonly header: BatchHeader;
  readonly values: readonly string[];
  readonly succeed: (baseOffset: number, duplicate?: boolean) => void;
  readonly fail: (error: Error) => void;
}

/** A log that answers when the test says so. */
class FakeLog {
  readonly batches: HandedOver[] = [];

  append(bytes: Uint8Array): Promise<AppendResult> {
    return new Promise((resolve, reject) => {
      const scan = scanBatch(bytes, 0);
      if (scan.type !== "batch") throw new Error("a batch is handed over");
      const { header } = scan;
      const section = recordsSection(bytes, header);
      const payload = codecId(header) === 0 ? section : decompressPayload(NODE_CODECS, "gzip", section, 2 ** 30);
      this.batches.push({
        header,
        values: [...decodeRecords(header, payload)].map(({ value }) =>
          Buffer.from(value ?? [])
            .toString()
            .slice(0, 8),
        ),
        succeed: (baseOffset, duplicate = false) =>
          resolve({
            baseOffset: toOffset(baseOffset),
            lastOffset: toOffset(baseOffset + header.lastOffsetDelta),
            duplicate,
          }),
        fail: reject,
      });
    });
  }
}

/** A pool that finishes jobs when the test says so, in any order. */
class FakePool implements WorkerPool {
  readonly jobs: { readonly finish: () => void; readonly fail: (error: Error) => void }[] = [];

  run: WorkerPool["run"] = (name, input) =>
    new Promise((resolve, reject) => {
      this.jobs.push({ finish: () => resolve(runWorkerJob(NODE_CODECS, name, input)), fail: reject });
    });

  runNow: WorkerPool["runNow"] = (name, input) => runWorkerJob(NODE_CODECS, name, input);

  close(): Promise<void> {
    return Promise.resolve();
  }
}

function record(value: string, bytes = value.length): RecordInput {
  return { key: null, value: encodeUtf8(value.padEnd(bytes, ".")), timestamp: 1000 };
}

/** Lets everything that is ready run. */
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

function setUp(options: { compression?: CompressionCodec; batchBytes?: number; batchBytesMax?: number } = {}) {
  const log = new FakeLog();
  const pool = new FakePool();
  const { compression = "none", batchBytes = 1000, batchBytesMax = 2000 } = options;
  const accumulator = new PartitionAccumulator({
    topic: "t",
    partition: 0,
    log,
    workers: pool,
    pool: new BufferPool({ poisons: true }),
    producerId: 77,
    compression,
    batchBytes,
    batchBytesMax,
  });
  const results: string[] = [];
  const add = (value: string, bytes?: number) =>
    accumulator.add(record(value, bytes), {
      count: 1,
      onAppended: (offset) => results.push(`${value}@${offset}`),
      onFailed: (error) => results.push(`${value}:${(error as LogError).code}`),
    });
  const addMany = (...records: readonly RecordInput[]) =>
    accumulator.addMany(
      records,
      (first, count, base) => results.push(`[${first},${first + count})@${base}`),
      (error) => results.push(`many:${(error as LogError).code}`),
    );
  return { log, pool, accumulator, results, add, addMany };
}

const ENOSPC = () => new LogError({ code: "KAFKA_STORAGE_ERROR", failure: "ENOSPC", path: "p", operation: "write" });
const GAP = () =>
  new LogError({ code: "OUT_OF_ORDER_SEQUENCE_NUMBER", producerId: 77, baseSequence: 5, expectedSequence: 0 });
const sequencesOf = (log: FakeLog) => log.batches.map(({ header }) => [header.baseSequence, header.recordsCount]);

describe("how records become batches", () => {
  test("appends of one turn share a batch, each with its own offset", async () => {
    const { log, results, add } = setUp();
    for (const value of ["a", "b", "c"]) add(value);
    await settle();
    expect(log.batches.map(({ values }) => values)).toEqual([["a", "b", "c"]]);
    expect(log.batches[0]?.header).toMatchObject({ producerId: 77, producerEpoch: 0, baseSequence: 0 });
    log.batches[0]?.succeed(40);
    await settle();
    expect(results).toEqual(["a@40", "b@41", "c@42"]);
  });

  test("while one is with the log a batch grows, and goes out when that one is back", async () => {
    const { log, add } = setUp();
    add("a");
    await settle();
    add("b");
    await settle();
    add("c");
    await settle();
    expect(log.batches).toHaveLength(1);
    log.batches[0]?.succeed(0);
    await settle();
    expect(log.batches.map(({ values }) => values)).toEqual([["a"], ["b", "c"]]);
  });

  test("a full batch does not wait, up to five with the log", async () => {
    const { log, add } = setUp();
    for (let index = 0; index < 20; index += 1) add(`r${index}`, 400);
    await settle();
    expect(log.batches.map(({ values }) => values)).toEqual(
      [0, 2, 4, 6, 8].map((at) => [`r${at}`.padEnd(8, "."), `r${at + 1}`.padEnd(8, ".")]),
    );
    expect(log.batches).toHaveLength(BATCHES_IN_FLIGHT_MAX);
    log.batches[0]?.succeed(0);
    await settle();
    expect(log.batches).toHaveLength(BATCHES_IN_FLIGHT_MAX + 1);
  });

  test("no batch of single records is larger than batchBytes or batchBytesMax", async () => {
    for (const limits of [
      { batchBytes: 300, batchBytesMax: 5000 },
      { batchBytes: 5000, batchBytesMax: 300 },
    ]) {
      const { log, add } = setUp(limits);
      for (let index = 0; index < 40; index += 1) add(`r${index}`, 20);
      await settle();
      for (const { header } of log.batches) expect(header.sizeInBytes).toBeLessThanOrEqual(300);
      expect(log.batches[0]?.header.sizeInBytes).toBeGreaterThan(270);
    }
  });

  test("one append's records fill as few batches as batchBytesMax allows, to the byte", async () => {
    // A record of 20 bytes takes 27, from delta 64 on 28; 61 for the header.
    const { log, results, addMany } = setUp({ batchBytesMax: 61 + 27 * 4 });
    addMany(...Array.from({ length: 10 }, (_, index) => record(`r${index}`, 20)));
    await settle();
    for (let at = 0; at < 3; at += 1) {
      log.batches[at]?.succeed(at * 4);
      await settle(); // The last one, not full, waits for those before it.
    }
    expect(log.batches.map(({ header }) => [header.recordsCount, header.sizeInBytes])).toEqual([
      [4, 169],
      [4, 169],
      [2, 115],
    ]);
    expect(results).toEqual(["[0,4)@0", "[4,8)@4", "[8,10)@8"]);
  });

  test("a small array joins the batch that is being filled, a larger one begins its own, and the order stays", async () => {
    const { log, add, addMany } = setUp({ batchBytes: 200 });
    add("a");
    addMany(record("b"), record("c"));
    addMany(record("d", 100), record("e", 100));
    add("f");
    await settle();
    expect(log.batches.map(({ values }) => values.map((value) => value.slice(0, 1)).join(""))).toEqual(["abc", "de"]);
    log.batches[0]?.succeed(0);
    log.batches[1]?.succeed(3);
    await settle();
    expect(log.batches[2]?.values).toEqual(["f"]);
  });
});

describe("sequences", () => {
  test("go on from batch to batch", async () => {
    const { log, add } = setUp();
    for (let index = 0; index < 7; index += 1) add(`r${index}`, 400);
    await settle();
    expect(sequencesOf(log)).toEqual([
      [0, 2],
      [2, 2],
      [4, 2],
    ]);
  });

  test("a failed batch's numbers are used again, after those behind it have failed with it", async () => {
    const { log, results, add } = setUp();
    for (let index = 0; index < 9; index += 1) add(`r${index}`, 400);
    await settle();
    log.batches[0]?.succeed(0);
    log.batches[1]?.fail(ENOSPC());
    await settle();
    for (const value of ["x", "y", "late"]) add(value, 400);
    await settle();
    expect(log.batches).toHaveLength(4); // Nothing goes out before all are back.
    log.batches[2]?.fail(GAP());
    log.batches[3]?.fail(ENOSPC());
    await settle();
    const full = "KAFKA_STORAGE_ERROR";
    expect(results).toEqual([
      "r0@0",
      "r1@1",
      `r2:${full}`,
      `r3:${full}`,
      `r4:${full}`,
      `r5:${full}`,
      `r6:${full}`,
      `r7:${full}`,
    ]);
    expect(sequencesOf(log).slice(4)).toEqual([[2, 2]]);
    log.batches[4]?.succeed(2);
    await settle();
    expect(results.slice(-2)).toEqual(["r8@2", "x@3"]);
  });

  test("if the log took a batch behind the failed one, the numbers go on behind that", async () => {
    const { log, add } = setUp();
    for (let index = 0; index < 5; index += 1) add(`r${index}`, 400);
    await settle();
    log.batches[0]?.fail(ENOSPC());
    log.batches[1]?.succeed(0);
    await settle();
    add("late");
    await settle();
    expect(sequencesOf(log)).toEqual([
      [0, 2],
      [2, 2],
      [4, 1],
    ]);
  });

  test("after a failure appends go on", async () => {
    const { log, results, add } = setUp();
    add("a");
    await settle();
    log.batches[0]?.fail(ENOSPC());
    await settle();
    add("b");
    await settle();
    log.batches[1]?.succeed(0);
    await settle();
    expect(results).toEqual(["a:KAFKA_STORAGE_ERROR", "b@0"]);
    expect(sequencesOf(log)).toEqual([
      [0, 1],
      [0, 1],
    ]);
  });

  test("a batch that the log takes for a duplicate is an error, not an acknowledgement", async () => {
    const { log, results, add } = setUp();
    add("a");
    await settle();
    log.batches[0]?.succeed(0, true);
    await settle();
    expect(results).toEqual(["a:DUPLICATE_SEQUENCE_NUMBER"]);
  });
});

describe("compression", () => {
  test("batches reach the log in order though the pool finishes them in another", async () => {
    const { log, pool, results, add } = setUp({ compression: "gzip", batchBytes: 8000, batchBytesMax: 8000 });
    for (const value of ["a", "b", "c", "d"]) add(value, 6000);
    await settle();
    expect(pool.jobs).toHaveLength(3);
    pool.jobs[2]?.finish();
    pool.jobs[1]?.finish();
    await settle();
    expect(log.batches).toHaveLength(0);
    pool.jobs[0]?.finish();
    await settle();
    expect(log.batches.map(({ values }) => values[0]?.slice(0, 1))).toEqual(["a", "b", "c"]);
    expect(sequencesOf(log)).toEqual([
      [0, 1],
      [1, 1],
      [2, 1],
    ]);
    for (const [at, batch] of log.batches.entries()) {
      expect(codecId(batch.header)).toBe(1);
      expect(batch.header.sizeInBytes).toBeLessThan(300);
      batch.succeed(at);
    }
    await settle();
    expect(results).toEqual(["a@0", "b@1", "c@2"]);
    expect(pool.jobs).toHaveLength(4);
  });

  test("a pool that fails costs the saving, not the batch", async () => {
    const { log, pool, add } = setUp({ compression: "gzip", batchBytes: 8000, batchBytesMax: 8000 });
    add("a", 6000);
    await settle();
    pool.jobs[0]?.fail(new WorkerError("WORKER_FAILED", "gone"));
    await settle();
    expect(log.batches.map(({ header, values }) => [codecId(header), values])).toEqual([[0, ["a......."]]]);
  });

  test("a small batch is compressed here, one that does not shrink is stored as it is", async () => {
    const { log, pool, add } = setUp({ compression: "gzip" });
    add("a", 500);
    await settle();
    log.batches[0]?.succeed(0);
    await settle();
    add("b");
    await settle();
    expect(log.batches.map(({ header }) => codecId(header))).toEqual([1, 0]);
    expect(pool.jobs).toHaveLength(0);
  });
});
