import { toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import type { BatchPlace } from "./batch-places.ts";
import { loadLog } from "./load-log.ts";
import { batchOf, DIRECTORY, LogFixture } from "./log.fixture.ts";
import { floorSegment, readLog, readLogNow } from "./log-read.ts";
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
    let readPlaced = 0;
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
      const fresh = await viewOf(fixture, log);
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
        const placed = view.segments[floorSegment(view.segments, fromOffset)]?.placeOf(fromOffset);
        const now = readLogNow(view, options);
        if (now === undefined) continue;
        readNow += 1;
        if (placed !== undefined) readPlaced += 1;
        const { bytes, ...rest } = await readLog(fresh, options);
        expect(Buffer.compare(now.bytes, bytes)).toBe(0);
        expect({ ...now, bytes: undefined }).toEqual({ ...rest, bytes: undefined });
        // Of places that a read at once has met it makes use as well.
        const again = await readLog(view, options);
        expect([Buffer.compare(again.bytes, bytes), again.startOffset]).toEqual([0, rest.startOffset]);
      }
    }
    expect(readNow).toBeGreaterThan(900);
    expect(readPlaced).toBeGreaterThan(300);
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

  test("finds what lies in a log now, where other batches were met before a truncation", async () => {
    const log = await new LogFixture({ flush: "none", indexIntervalBytes: 200 }).open();
    const appendTo = async (end: number, text: string): Promise<void> => {
      for (let at = log.logEndOffset as number; at < end; at += 1)
        await log.append(batchOf([text.repeat(1 + (at % 7))]), LOCAL);
    };
    const wrong = async (): Promise<number[]> => {
      const offsets: number[] = [];
      for (let offset = 0; offset < log.logEndOffset; offset += 1) {
        const { bytes, startOffset } = await log.read({ fromOffset: toOffset(offset), maxBytes: 1 });
        const letter = bytes.at(-2);
        const expected = (offset < 100 ? "a" : "b").charCodeAt(0);
        if (startOffset !== offset || letter !== expected) offsets.push(offset);
      }
      return offsets;
    };
    await appendTo(300, "a");
    expect((await wrong()).length).toBe(200);
    expect((await wrong()).length).toBe(200);
    await log.truncateTo(toOffset(100));
    await appendTo(400, "bbb");
    expect(await wrong()).toEqual([]);
    expect(await wrong()).toEqual([]);
  });

  test("looks again where a batch that was met before is not there any more: its header changed", async () => {
    const fixture = new LogFixture({ flush: "none", indexIntervalBytes: 200 });
    const log = await fixture.open();
    for (let at = 0; at < 100; at += 1) await log.append(batchOf(["x".repeat(100)]), LOCAL);
    const view = await viewOf(fixture, log);
    const place = (): BatchPlace | undefined => view.segments[0]?.placeOf(10);
    const options = { fromOffset: toOffset(10), maxBytes: 1 };
    for (let offset = 0; offset < 20; offset += 1) readLogNow(view, { ...options, fromOffset: toOffset(offset) });
    const { positionBytes } = place() ?? expect.fail("the place is met");
    const name = "00000000000000000000.log";
    const bytes = await fixture.readFile(name);
    // The last byte of its length: what lies behind it belongs to it now.
    await fixture.writeFile(name, Uint8Array.of((bytes[positionBytes + 11] ?? 0) + 10), positionBytes + 11);
    const longer = (place()?.sizeInBytes ?? 0) + 10;
    expect([readLogNow(view, options)?.bytes.length, (await readLog(view, options)).bytes.length]).toEqual([
      longer,
      longer,
    ]);
    // The magic byte.
    await fixture.writeFile(name, Uint8Array.of(9), positionBytes + 16);
    expect(readLogNow(view, options)).toBeUndefined();
    await expect(readLog(view, options)).rejects.toThrow("CORRUPT_MESSAGE");
    await fixture.writeFile(name, bytes);
    expect((await readLog(await viewOf(fixture, log), options)).startOffset).toBe(10);
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
