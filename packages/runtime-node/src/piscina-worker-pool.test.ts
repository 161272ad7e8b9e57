import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { encodeUtf8, InvariantError, joinPath } from "@tidemark/base";
import { PiscinaWorkerPool } from "./piscina-worker-pool.ts";
import { runRequest } from "./worker.ts";

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(joinPath(tmpdir(), "tidemark-workers-"));
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

async function workerFile(text: string): Promise<URL> {
  const path = joinPath(directory, "worker.mjs");
  await writeFile(path, text);
  return pathToFileURL(path);
}

function crcJob(pool: PiscinaWorkerPool, payload: Uint8Array = new Uint8Array(100)): Promise<number> {
  return pool.run("crc32c", { payload });
}

describe("threads", () => {
  test("none runs before the first job, never more than asked, none after close", async () => {
    const pool = new PiscinaWorkerPool({ threads: 2 });
    expect(pool.threadCount).toBe(0);
    const jobs = Array.from({ length: 30 }, async () => {
      await crcJob(pool);
      return pool.threadCount;
    });
    const counts = await Promise.all(jobs);
    expect(Math.max(...counts)).toBeLessThanOrEqual(2);
    expect(Math.min(...counts)).toBeGreaterThanOrEqual(1);
    await pool.close();
    expect(pool.threadCount).toBe(0);
  });

  test.each([0, -1, 1.5, Number.NaN])("%s of them are a bug of the caller", (threads) => {
    expect(() => new PiscinaWorkerPool({ threads })).toThrow(InvariantError);
  });

  test("idle threads end, and a later job starts one again", async () => {
    const pool = new PiscinaWorkerPool({ threads: 1, idleMs: 1 });
    await crcJob(pool);
    while (pool.threadCount > 0) await delay(5);
    expect(await pool.run("crc32c", { payload: encodeUtf8("123456789") })).toBe(0xe306_9283);
    await pool.close();
  });

  test("calls past the number of threads wait with their payload untouched", async () => {
    const pool = new PiscinaWorkerPool({ threads: 2 });
    const payloads = Array.from({ length: 6 }, () => new Uint8Array(1000));
    const jobs = payloads.map((payload) => crcJob(pool, payload));
    await Promise.resolve();
    await Promise.resolve();
    expect(payloads.slice(2).map((payload) => payload.length)).toEqual([1000, 1000, 1000, 1000]);
    await Promise.all(jobs);
    expect(payloads.map((payload) => payload.length)).toEqual([0, 0, 0, 0, 0, 0]); // Moved to the threads, not copied.
    await pool.close();
  });

  test("waiting calls run in their order", async () => {
    const pool = new PiscinaWorkerPool({ threads: 1 });
    const order: number[] = [];
    await Promise.all(Array.from({ length: 20 }, (_, index) => crcJob(pool).then(() => order.push(index))));
    expect(order).toEqual(Array.from({ length: 20 }, (_, index) => index));
    await pool.close();
  });
});

describe("the queue", () => {
  const full = { status: "rejected", reason: { name: "WorkerError", code: "QUEUE_FULL" } };
  const done = { status: "fulfilled" };

  test("is bounded in calls: one more is refused at once, its payload untouched, and what waits is done", async () => {
    const pool = new PiscinaWorkerPool({ threads: 1, waitingJobsMax: 2 });
    const payloads = Array.from({ length: 5 }, () => new Uint8Array(10));
    const outcomes = await Promise.allSettled(payloads.map((payload) => crcJob(pool, payload)));
    expect(outcomes).toMatchObject([done, done, done, full, full]);
    expect(payloads.map(({ length }) => length)).toEqual([0, 0, 0, 10, 10]);
    await expect(crcJob(pool)).resolves.toBeTypeOf("number");
    await pool.close();
  });

  test("is bounded in bytes; one large payload alone may wait", async () => {
    const pool = new PiscinaWorkerPool({ threads: 1, waitingBytesMax: 1000 });
    const sizes = [5000, 600, 400, 1, 5000];
    const outcomes = await Promise.allSettled(sizes.map((size) => crcJob(pool, new Uint8Array(size))));
    expect(outcomes).toMatchObject([done, done, done, full, full]);
    const later = await Promise.allSettled([5000, 5000, 1].map((size) => crcJob(pool, new Uint8Array(size))));
    expect(later).toMatchObject([done, done, full]);
    await pool.close();
  });
});

test("a call made while others wait goes behind them", async () => {
  const pool = new PiscinaWorkerPool({ threads: 1 });
  const order: string[] = [];
  const job = (name: string) => crcJob(pool).then(() => order.push(name));
  const late = job("first").then(() => job("late"));
  await Promise.all([late, job("second"), job("third"), job("fourth")]);
  expect(order).toEqual(["first", "second", "third", "fourth", "late"]);
  await pool.close();
});

describe("threads that fail", () => {
  test("a thread that dies fails its own job with WORKER_FAILED; the others run", async () => {
    const workerUrl = await workerFile(
      `export default ({ name }) => { if (name === "compress") process.exit(3); return { type: "done", output: 7 }; };`,
    );
    const pool = new PiscinaWorkerPool({ threads: 1, workerUrl });
    const dying = () => pool.run("compress", { codec: "gzip", payload: new Uint8Array(1), level: undefined });
    const outcomes = await Promise.allSettled([
      crcJob(pool),
      dying(),
      crcJob(pool),
      dying(),
      crcJob(pool),
      crcJob(pool),
    ]);
    const failed = { status: "rejected", reason: { name: "WorkerError", code: "WORKER_FAILED" } };
    const done = { status: "fulfilled", value: 7 };
    expect(outcomes).toMatchObject([done, failed, done, failed, done, done]);
    await pool.close();
  });

  test("a job that throws in its thread fails with WORKER_FAILED and the reason", async () => {
    const workerUrl = await workerFile(`export default () => { throw new TypeError("not a job of mine"); };`);
    const pool = new PiscinaWorkerPool({ threads: 1, workerUrl });
    await expect(crcJob(pool)).rejects.toMatchObject({
      code: "WORKER_FAILED",
      cause: { message: "not a job of mine" },
    });
    await pool.close();
  });

  test("a job that hangs is stopped with its thread: REQUEST_TIMED_OUT, and the others run", async () => {
    const workerUrl = await workerFile(
      `export default ({ name }) => { while (name === "compress"); return { type: "done", output: 7 }; };`,
    );
    const pool = new PiscinaWorkerPool({ threads: 1, workerUrl, jobMsMax: 3000 });
    const hanging = pool.run("compress", { codec: "zstd", payload: new Uint8Array(1), level: undefined });
    const outcomes = await Promise.allSettled([hanging, crcJob(pool), crcJob(pool)]);
    const stopped = { status: "rejected", reason: { name: "WorkerError", code: "REQUEST_TIMED_OUT" } };
    const done = { status: "fulfilled", value: 7 };
    expect(outcomes).toMatchObject([stopped, done, done]);
    await pool.close();
  });

  test("a thread that runs out of memory fails its own job with WORKER_FAILED; the process and the others live", async () => {
    const workerUrl = await workerFile(
      `export default ({ name }) => {
         const kept = [];
         while (name === "compress") kept.push(new Array(1e6).fill(kept.length));
         return { type: "done", output: 7 };
       };`,
    );
    const pool = new PiscinaWorkerPool({ threads: 1, workerUrl, heapMibMax: 64 });
    const greedy = pool.run("compress", { codec: "zstd", payload: new Uint8Array(1), level: undefined });
    const outcomes = await Promise.allSettled([greedy, crcJob(pool)]);
    expect(outcomes).toMatchObject([
      { status: "rejected", reason: { name: "WorkerError", code: "WORKER_FAILED" } },
      { status: "fulfilled", value: 7 },
    ]);
    await pool.close();
  });

  test.each([
    ["is missing", undefined],
    ["does not parse", "export default (;"],
    ["throws when loaded", "throw new Error('at load');"],
  ])("a worker file that %s fails every job, running or waiting, and the pool still closes", async (_, text) => {
    const workerUrl = text === undefined ? pathToFileURL(joinPath(directory, "absent.mjs")) : await workerFile(text);
    const pool = new PiscinaWorkerPool({ threads: 2, workerUrl });
    const outcomes = await Promise.allSettled(Array.from({ length: 7 }, () => crcJob(pool)));
    expect(outcomes).toHaveLength(7);
    for (const outcome of outcomes) {
      expect(outcome).toMatchObject({ status: "rejected", reason: { code: "WORKER_FAILED" } });
      expect(outcome.status === "rejected" && outcome.reason.cause).toBeInstanceOf(Error);
    }
    await pool.close();
  });
});

describe("runRequest, the function a thread runs", () => {
  test("answers with the output", () => {
    expect(runRequest({ name: "crc32c", input: { payload: encodeUtf8("123456789") } })).toEqual({
      type: "done",
      output: 0xe306_9283,
    });
  });

  test("answers with the code and a message that names it once", () => {
    const reply = runRequest({
      name: "decompress",
      input: { codec: "gzip", payload: new Uint8Array(3), outputBytesMax: 10 },
    });
    expect(reply).toMatchObject({ type: "failed", code: "CORRUPT_MESSAGE" });
    expect(reply.type === "failed" && reply.message).not.toContain("CORRUPT_MESSAGE");
  });

  test("answers WORKER_FAILED to what is no job", () => {
    const request = JSON.parse(`{ "name": "unknown", "input": {} }`);
    expect(runRequest(request)).toMatchObject({ type: "failed", code: "WORKER_FAILED" });
  });
});
