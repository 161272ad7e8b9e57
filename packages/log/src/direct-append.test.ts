import { InvariantError, toOffset } from "@tidemark/base";
import type { FileHandle, FileSystem } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { describe, expect, test, vi } from "vitest";
import { GROUP_BYTES_MAX } from "./config.ts";
import { DIRECT_WRITE_BYTES_MAX } from "./direct-io.ts";
import { OWN_WRITE_BYTES_MIN } from "./log-appends.ts";
import { batchOf, DIRECTORY, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import { ProducerState } from "./producer-state.ts";

const FIRST_LOG = "00000000000000000000.log";
const LOCAL = { origin: "local" } as const;

/** Writes of the first segment so far. */
function writesOf(fixture: LogFixture): number {
  return fixture.disk.history.filter((operation) => operation.type === "write" && operation.path.endsWith(FIRST_LOG))
    .length;
}

describe("an append that finds nothing queued", () => {
  test("is written when the call returns, where nobody waits for a sync", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open({ epoch: 4 });
    const wait = log.waitForEndOffset(toOffset(0));
    const answer = log.append(batchOf(["a"]), LOCAL);
    expect(log.logEndOffset).toBe(1);
    expect(await fixture.readFile(FIRST_LOG)).toEqual(storedBatch(["a"], 0, 4));
    await wait.promise;
    expect(await answer).toEqual({ baseOffset: 0, lastOffset: 0, duplicate: false });
  });

  test("stops the partition when its books break behind the write: nothing is appended on top of them", async () => {
    const log = await new LogFixture({ flush: "none" }).open();
    const broken = new InvariantError("the books are kept", {});
    vi.spyOn(ProducerState.prototype, "remember").mockImplementationOnce(() => {
      throw broken;
    });
    await expect(log.append(batchOf(["a"]), LOCAL)).rejects.toBe(broken);
    expect(log.refusal).toBe(broken);
    await expect(log.append(batchOf(["b"]), LOCAL)).rejects.toBe(broken);
  });

  test("is not in sight before its sync in `always` mode", async () => {
    const log = await new LogFixture().open();
    const answer = log.append(batchOf(["a"]), LOCAL);
    expect([log.logEndOffset, log.visibleEndOffset]).toEqual([0, 0]);
    await answer;
    expect([log.flushedEndOffset, log.visibleEndOffset]).toEqual([1, 1]);
  });

  test("leaves the caller's memory alone, which may change when the call returns", async () => {
    const log = await new LogFixture({ flush: "none" }).open({ epoch: 4 });
    for (const values of [["a"], ["b".repeat(100_000)]]) {
      const batch = batchOf(values);
      const before = batch.slice();
      const answer = log.append(batch, LOCAL);
      expect(batch).toEqual(before);
      batch.fill(0);
      await answer;
    }
    expect(await recordsOf(log)).toEqual(["0:a", `1:${"b".repeat(100_000)}`]);
  });

  test("is complete though the disk takes its bytes piece by piece", async () => {
    for (let seed = 0; seed < 20; seed += 1) {
      const fixture = new LogFixture(
        { flush: "none" },
        new SimulatedEnvironment({ seed, disk: { shortTransferOneIn: 2 } }),
      );
      const log = await fixture.open();
      for (const value of ["a", "b", "c", "d"]) await log.append(batchOf([value]), LOCAL);
      expect(await recordsOf(log)).toEqual(["0:a", "1:b", "2:c", "3:d"]);
    }
  });

  test.each(["clean", "kill"] as const)(
    "leaves nothing behind a segment's end where it came in part and then belongs into the next segment: %s",
    async (stop) => {
      const fixture = new LogFixture({ flush: "none", segmentMs: 1000 });
      const log = await fixture.open();
      const first = batchOf(["a"], { timestamp: -1 });
      await log.append(first, LOCAL);
      fixture.disk.limits.shortTransferOneIn = 1;
      const answer = log.append(batchOf(["b"], { timestamp: -1 }), LOCAL);
      fixture.disk.limits.shortTransferOneIn = 0;
      fixture.environment.clock.jumpWall(1001);
      const bytes = fixture.disk.image().files().get(`/${DIRECTORY}/${FIRST_LOG}`)?.length ?? 0;
      expect([bytes > first.length, log.logEndOffset]).toEqual([true, 1]);
      await answer;
      expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 1]);
      expect(await fixture.readFile(FIRST_LOG)).toHaveLength(first.length);
      await log.flush();
      if (stop === "clean") await log.close();
      fixture.kill();
      const again = await fixture.open({ clean: stop === "clean" });
      expect([again.damaged, await recordsOf(again)]).toEqual([[], ["0:a", "1:b"]]);
    },
  );

  test("goes behind what was called before it: tasks, and appends that wait for a judgement", async () => {
    const log = await new LogFixture({ flush: "none" }).open();
    await log.append(batchOf(["a"]), LOCAL);
    const rolled = log.roll();
    const answers = [log.append(batchOf(["b"]), LOCAL), log.append(batchOf(["c"]), LOCAL)];
    expect(log.logEndOffset).toBe(1);
    expect(await rolled).toBe(1);
    expect((await Promise.all(answers)).map(({ baseOffset }) => baseOffset)).toEqual([1, 2]);
    expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 1]);
  });

  test("is written at once again as soon as what was queued is answered", async () => {
    const log = await new LogFixture({ flush: "none" }).open();
    void log.roll();
    await log.append(batchOf(["a"]), LOCAL);
    const answer = log.append(batchOf(["b"]), LOCAL);
    expect(log.logEndOffset).toBe(2);
    expect(await answer).toEqual({ baseOffset: 1, lastOffset: 1, duplicate: false });
    const rolled = log.roll();
    await log.append(batchOf(["c"]), LOCAL);
    // What comes behind is queued again.
    const behind = [log.append(batchOf(["d"]), LOCAL), log.roll(), log.append(batchOf(["e"]), LOCAL)] as const;
    expect(log.logEndOffset).toBe(4);
    expect([await rolled, (await behind[0]).baseOffset, await behind[1], (await behind[2]).baseOffset]).toEqual([
      2, 3, 4, 4,
    ]);
    expect(await recordsOf(log)).toEqual(["0:a", "1:b", "2:c", "3:d", "4:e"]);
  });

  test("is written with the large ones of its turn, up to a megabyte; the rest of them are one write", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open();
    const batch = batchOf(["x".repeat(OWN_WRITE_BYTES_MIN)]);
    const atOnce = Math.floor(DIRECT_WRITE_BYTES_MAX / batch.length);
    const appends = Array.from({ length: atOnce + 20 }, () => log.append(batch, LOCAL));
    expect(log.logEndOffset).toBe(atOnce);
    await Promise.all(appends);
    expect(writesOf(fixture)).toBe(atOnce + 1);
    expect(log.logEndOffset).toBe(atOnce + 20);
    await new Promise((resolve) => setImmediate(resolve));
    const next = log.append(batch, LOCAL);
    expect(log.logEndOffset).toBe(atOnce + 21);
    await next;
  });

  test("does not bring its whole burst with it: the small ones of its turn are one write", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open();
    await Promise.all(Array.from({ length: 100 }, (_, at) => log.append(batchOf([`${at}`]), LOCAL)));
    expect(writesOf(fixture)).toBe(2);
    expect(await recordsOf(log)).toEqual(Array.from({ length: 100 }, (_, at) => `${at}:${at}`));
    await log.append(batchOf(["x"]), LOCAL);
    expect(writesOf(fixture)).toBe(3);
  });
});

describe("a direct write that fails", () => {
  test("for good takes the directory offline: nothing is answered after it", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open();
    const fault = fixture.disk.inject({ operation: "write", path: ".log", code: "EIO", written: "part", count: 1 });
    const answers = await Promise.allSettled([log.append(batchOf(["a"]), LOCAL), log.append(batchOf(["b"]), LOCAL)]);
    expect(answers.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    expect([fault.hits, fixture.logDirectory.isOnline, log.logEndOffset]).toEqual([1, false, 0]);
  });

  test("for want of space leaves nothing: what was called meanwhile is written where it should have been", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open();
    const first = batchOf(["a"], { id: 7, sequence: 0 });
    fixture.disk.inject({ operation: "write", path: ".log", code: "ENOSPC", written: "part", count: 1 });
    const refused = log.append(first, LOCAL);
    const second = log.append(batchOf(["b"]), LOCAL);
    await expect(refused).rejects.toMatchObject({ type: { failure: "ENOSPC" } });
    expect((await second).baseOffset).toBe(0);
    expect(log.nextSequence(7)).toBeUndefined();
    expect((await log.append(first, LOCAL)).duplicate).toBe(false);
    expect(await fixture.readFile(FIRST_LOG)).toHaveLength(batchOf(["b"]).length + first.length);
    expect(await recordsOf(log)).toEqual(["0:b", "1:a"]);
  });
});

/** Counts what is written to log files, by the two ways. */
function counted(files: FileSystem): { files: FileSystem; count: { direct: number; pool: number } } {
  const count = { direct: 0, pool: 0 };
  const wrap = (file: FileHandle): FileHandle => ({
    path: file.path,
    readAt: (target, at) => file.readAt(target, at),
    readNow: (target, at) => file.readNow(target, at),
    writeAt: (source, at) => ((count.pool += 1), file.writeAt(source, at)),
    writeNow: (source, at) => ((count.direct += 1), file.writeNow(source, at)),
    truncate: (sizeBytes) => file.truncate(sizeBytes),
    sync: () => file.sync(),
    size: () => file.size(),
    modifiedMs: () => file.modifiedMs(),
    close: () => file.close(),
  });
  const counting = new Proxy(files, {
    get: (target, name) => {
      if (name === "open")
        return async (path: string, mode: Parameters<FileSystem["open"]>[1]) => {
          const file = await target.open(path, mode);
          return path.endsWith(".log") ? wrap(file) : file;
        };
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
  return { files: counting, count };
}

describe("the event-loop policy under a partition", () => {
  test("on a slow disk holds the loop for at most a tenth of the time; on a quick one nearly all writes are direct", async () => {
    for (const [directCallUs, isSlow] of [
      [4_000, true],
      [2, false],
    ] as const) {
      const environment = new SimulatedEnvironment({ seed: 5, mode: "kernel", disk: { directCallUs } });
      const { files, count } = counted(environment.files);
      await environment.kernel.run(async () => {
        const fixture = new LogFixture({ flush: "none" }, environment);
        const log = await fixture.open({ files });
        const startMs = environment.clock.monotonicMs();
        const batch = batchOf(["x".repeat(100)]);
        while (environment.clock.monotonicMs() - startMs < 400) await log.append(batch, LOCAL);
        const elapsedMs = environment.clock.monotonicMs() - startMs;
        const heldMs = (count.direct * directCallUs) / 1000;
        if (isSlow) {
          expect(count.pool).toBeGreaterThan(100);
          expect(heldMs).toBeGreaterThan(0);
          expect(heldMs).toBeLessThanOrEqual(elapsedMs / 10 + directCallUs / 1000);
        } else {
          // The loop turns all the same: now and then one goes through the pool.
          expect(count.pool).toBeGreaterThan(10);
          expect(count.pool / count.direct).toBeLessThan(0.01);
        }
        expect(log.logEndOffset).toBe(count.direct + count.pool);
        await log.close();
      });
    }
  });

  test("a batch that is larger than any direct write goes through the pool", async () => {
    const { files, count } = counted(new SimulatedEnvironment({ seed: 1 }).files);
    const fixture = new LogFixture({ flush: "none", maxMessageBytes: 4 * GROUP_BYTES_MAX });
    const log = await fixture.open({ files });
    await log.append(batchOf(["x".repeat(GROUP_BYTES_MAX)]), LOCAL);
    expect(count).toEqual({ direct: 0, pool: 1 });
  });
});
