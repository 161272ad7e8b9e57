import { toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { loadLog } from "./load-log.ts";
import { batchOf, DIRECTORY, LogFixture } from "./log.fixture.ts";
import { readLog, readLogNow } from "./log-read.ts";
import type { LogView, ReadOptions } from "./log-read.ts";
import type { PartitionLog } from "./partition-log.ts";

const LOCAL = { origin: "local" } as const;

/** The log's view, of a second load of the same files; sealed segments are open as after a first read. */
async function viewOf(fixture: LogFixture, log: PartitionLog): Promise<LogView> {
  await log.close();
  const { files, state, clock, random } = fixture.environment;
  const loaded = await loadLog({
    files,
    state,
    clock,
    random,
    directory: DIRECTORY,
    topic: "orders",
    partition: 0,
    config: fixture.config,
    wasCleanShutdown: true,
    producerIdExpirationMs: Number.MAX_SAFE_INTEGER,
  });
  for (const segment of loaded.segments) await segment.openForAppend();
  return loaded;
}

describe("a read at once", () => {
  test("is the slice that a read in the pool gives, for random logs, places and limits, or it says that it cannot", async () => {
    let readNow = 0;
    for (let seed = 0; seed < 30; seed += 1) {
      const environment = new SimulatedEnvironment({ seed });
      const { random } = environment;
      const below = (bound: number): number => random.below("test", bound);
      const fixture = new LogFixture(
        { flush: "none", segmentBytes: 20_000 + below(20_000), indexIntervalBytes: 1 + below(5000) },
        environment,
      );
      const log = await fixture.open();
      for (let batch = below(60) + 1; batch > 0; batch -= 1) {
        const values = Array.from({ length: 1 + below(20) }, () => "x".repeat(below(3) === 0 ? below(900) : below(20)));
        await log.append(batchOf(values, { transactional: false }), LOCAL);
      }
      const view = await viewOf(fixture, log);
      const end = view.logEndOffset;
      for (let read = 0; read < 60; read += 1) {
        const fromOffset = toOffset(below(end + 1));
        const options: ReadOptions = {
          fromOffset,
          maxBytes: below(2) === 0 ? 1 + below(300) : 1 + below(30_000),
          ...(below(2) === 0 ? {} : { limitOffset: toOffset(below(end + 1)) }),
          ...(below(3) === 0 ? { minOneBatch: false } : {}),
          ...(below(3) === 0 ? { isolation: "read_committed" } : {}),
        };
        const now = readLogNow(view, options);
        if (now === undefined) continue;
        readNow += 1;
        const { bytes, ...rest } = await readLog(view, options);
        expect(Buffer.compare(now.bytes, bytes)).toBe(0);
        expect({ ...now, bytes: undefined }).toEqual({ ...rest, bytes: undefined });
      }
    }
    expect(readNow).toBeGreaterThan(900);
  });

  test("cannot be had of a file that is not open, or around damage; outside of the log it is refused", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open();
    await log.append(batchOf(["a"]), LOCAL);
    const view = await viewOf(fixture, log);
    const options = { fromOffset: toOffset(0), maxBytes: 100 };
    expect(readLogNow(view, options)?.bytes.length).toBeGreaterThan(0);
    const damaged = {
      path: "f",
      fromBytes: 0,
      toBytes: 1,
      fromOffset: toOffset(5),
      toOffset: toOffset(6),
      reason: "CRC",
    };
    expect(readLogNow({ ...view, damaged: [damaged] }, options)).toBeUndefined();
    expect(() => readLogNow(view, { ...options, fromOffset: toOffset(2) })).toThrow("OFFSET_OUT_OF_RANGE");
    for (const segment of view.segments) await segment.close();
    expect(readLogNow(view, options)).toBeUndefined();
  });

  test("sees nothing of a truncation that is under way", async () => {
    const environment = new SimulatedEnvironment({ seed: 1, mode: "kernel" });
    await environment.kernel.run(async () => {
      const log = await new LogFixture({ flush: "none" }, environment).open();
      for (const value of ["a", "b", "c"]) await log.append(batchOf([value]), LOCAL);
      const whole = batchOf(["a"]).length;
      const seen: (number | "cut")[] = [];
      const cut = log.truncateTo(toOffset(1)).then(() => seen.push("cut"));
      const reads: Promise<unknown>[] = [];
      while (!seen.includes("cut")) {
        const read = log.read({ fromOffset: toOffset(0), maxBytes: 1000 });
        reads.push(read.then(({ bytes }) => seen.push(bytes.length / whole)));
        await new Promise<void>((resolve) => environment.clock.setTimer(0.05, resolve));
      }
      await Promise.all([cut, ...reads]);
      const cutAt = seen.indexOf("cut");
      expect(cutAt).toBeGreaterThan(0);
      expect(new Set(seen.slice(0, cutAt))).toEqual(new Set([3]));
      expect(new Set(seen.slice(cutAt + 1))).toEqual(new Set([1]));
      await log.close();
    });
  });
});
