import { toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { DEFAULT_LOG_CONFIG, FLUSHES_BEHIND_MAX, SEALED_FILES_OPEN_MAX } from "./config.ts";
import type { LogConfig } from "./config.ts";
import { LogError } from "./error.ts";
import { batchOf, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

const BATCH_BYTES = batchOf(["x"]).length;

/** Two batches begin a flush, eight lie above the recovery point when others have to wait for it. */
const SMALL: Partial<LogConfig> = { flush: "none", flushBytes: 2 * BATCH_BYTES };
/** One batch a segment. */
const ONE_EACH: Partial<LogConfig> = { flush: "none", segmentBytes: BATCH_BYTES, indexIntervalBytes: 1 };

const roles = ["leader", "follower"] as const;

function appendAs(role: (typeof roles)[number], log: PartitionLog, offset: number): Promise<unknown> {
  return role === "leader"
    ? log.append(batchOf(["x"]), { origin: "local" })
    : log.appendAsFollower(storedBatch(["x"], offset, 1));
}

async function outcomeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof LogError && error.type.code === "KAFKA_STORAGE_ERROR") return error.type.failure;
    throw error;
  }
  return "done";
}

/** When all that can go on has gone on. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
}

async function isOver(promise: Promise<unknown>): Promise<boolean> {
  let over = false;
  const note = (): void => {
    over = true;
  };
  promise.then(note, note);
  await settled();
  return over;
}

describe("the recovery point", () => {
  test("by default it lags by 64 MiB at most before a flush begins that moves it, or it is moved, in either mode", async () => {
    for (const flush of ["always", "none"] as const) {
      const fixture = new LogFixture(
        { flush, maxMessageBytes: 9_000_000 },
        new SimulatedEnvironment({ seed: 1, disk: { keepsHistory: false } }),
      );
      const log = await fixture.open({ epoch: "none" });
      const batch = storedBatch(["x".repeat(8_000_000)], 0, 0);
      let writtenBytes = 0;
      for (let at = 0; writtenBytes < DEFAULT_LOG_CONFIG.flushBytes; at += 1) {
        expect(log.recoveryPoint).toBe(0);
        await log.appendAsFollower(storedBatch(["x".repeat(8_000_000)], at, 0));
        writtenBytes += batch.length;
      }
      await new Promise(setImmediate);
      expect([writtenBytes < 80_000_000, log.recoveryPoint]).toEqual([true, log.logEndOffset]);
    }
  });

  test("flush none: it rises with what was synced, not with what was written", async () => {
    const fixture = new LogFixture(SMALL);
    const log = await fixture.open();
    for (let at = 0; at < 9; at += 1) {
      await appendAs("leader", log, at);
      expect(log.recoveryPoint).toBeLessThanOrEqual(log.flushedEndOffset);
    }
    await new Promise(setImmediate);
    expect(log.recoveryPoint).toBeGreaterThan(0);
    fixture.powerCut();
    const again = await fixture.open({ epoch: "none" });
    expect([again.damaged, again.logEndOffset >= log.recoveryPoint]).toEqual([[], true]);
  });

  test("rises inside of a flush over many segments, each `flushBytes`", async () => {
    const fixture = new LogFixture({ ...ONE_EACH, flushBytes: 3 * BATCH_BYTES });
    const log = await fixture.open();
    // The flush of the first roll waits here, and knows nothing of the segments behind it.
    const first = fixture.disk.stall({ operation: "sync", path: /0000\.log$/u });
    for (let at = 0; at < 6; at += 1) await appendAs("leader", log, at);
    first.release();
    await settled();
    expect(log.recoveryPoint).toBe(1);
    const stalls = [1, 2, 3, 4, 5].map((base) =>
      fixture.disk.stall({ operation: "sync", path: new RegExp(`0${base}\\.log$`, "u") }),
    );
    await log.flushInBackground();
    const points: number[] = [];
    for (const stall of stalls) {
      points.push(log.recoveryPoint);
      stall.release();
      await settled();
    }
    expect([...points, log.recoveryPoint]).toEqual([1, 1, 1, 1, 4, 6]);
  });

  test("has the names of what lies below it on the disk when it rises inside of a flush", async () => {
    const fixture = new LogFixture({ ...ONE_EACH, flushBytes: 2 * BATCH_BYTES });
    const log = await fixture.open();
    const first = fixture.disk.stall({ operation: "sync", path: /0000\.log$/u });
    for (let at = 0; at < 3; at += 1) await appendAs("leader", log, at);
    const last = fixture.disk.stall({ operation: "sync", path: /0006\.log$/u });
    const appending = [3, 4, 5, 6].map((at) => appendAs("leader", log, at));
    first.release();
    await Promise.all(appending);
    await log.flushInBackground();
    await settled();
    expect(log.recoveryPoint).toBeGreaterThan(2);
    // Where the state was written out too.
    await fixture.environment.state.commit([], { sync: true });
    const { recoveryPoint } = log;
    fixture.powerCut();
    last.release();
    const again = await fixture.open({ epoch: "none" });
    expect([again.recovery.recoveryPoint, again.damaged]).toEqual([recoveryPoint, []]);
    expect(await recordsOf(again)).toHaveLength(again.logEndOffset);
  });
});

describe("back-pressure", () => {
  test.each(roles)(
    "what a %s appends waits while `FLUSHES_BEHIND_MAX` times `flushBytes` lie above the recovery point, and no longer",
    async (role) => {
      const fixture = new LogFixture(SMALL);
      const log = await fixture.open({ epoch: role === "leader" ? 1 : "none" });
      const sync = fixture.disk.stall({ operation: "sync", path: /\.log$/u });
      for (let at = 0; at < 2 * FLUSHES_BEHIND_MAX; at += 1) await appendAs(role, log, at);
      const waiting = [8, 9, 10].map((at) => appendAs(role, log, at));
      expect([await isOver(Promise.race(waiting)), log.logEndOffset, log.recoveryPoint]).toEqual([false, 8, 0]);
      sync.release();
      await Promise.all(waiting);
      await settled();
      expect([log.logEndOffset, log.recoveryPoint]).toEqual([11, 11]);
      expect(await recordsOf(log)).toHaveLength(11);
    },
  );

  test("an append that waits goes on as soon as the flush has done enough", async () => {
    const fixture = new LogFixture({ ...ONE_EACH, flushBytes: 3 * BATCH_BYTES });
    const log = await fixture.open();
    const first = fixture.disk.stall({ operation: "sync", path: /0000\.log$/u });
    for (let at = 0; at < 3 * FLUSHES_BEHIND_MAX; at += 1) await appendAs("leader", log, at);
    const waiting = [12, 13].map((at) => appendAs("leader", log, at));
    expect(await isOver(Promise.race(waiting))).toBe(false);
    const last = fixture.disk.stall({ operation: "sync", path: /0008\.log$/u });
    first.release();
    await Promise.all(waiting);
    await settled();
    expect([log.logEndOffset, log.recoveryPoint]).toEqual([14, 7]);
    last.release();
  });

  test("behind an unclean open what was recovered counts too", async () => {
    const fixture = new LogFixture({ ...SMALL, flushBytes: 3 * BATCH_BYTES });
    let log = await fixture.open();
    for (let at = 0; at < 2; at += 1) await appendAs("leader", log, at);
    fixture.kill();
    log = await fixture.open();
    expect(log.recoveryPoint).toBe(0);
    await appendAs("leader", log, 2);
    await settled();
    expect(log.recoveryPoint).toBe(3);
  });

  test("a close and a truncation that come behind an append that waits are done when it is", async () => {
    for (const end of ["close", "truncate"] as const) {
      const fixture = new LogFixture(SMALL);
      const log = await fixture.open();
      const sync = fixture.disk.stall({ operation: "sync", path: /\.log$/u });
      for (let at = 0; at < 8; at += 1) await appendAs("leader", log, at);
      const waiting = appendAs("leader", log, 8);
      const ending = end === "close" ? log.close() : log.truncateTo(toOffset(1));
      expect(await isOver(ending)).toBe(false);
      sync.release();
      await waiting;
      expect([end, await ending, log.logEndOffset]).toEqual(end === "close" ? [end, true, 9] : [end, undefined, 1]);
    }
  });

  test.each(roles)(
    "a flush that fails fails what a %s appends behind it: nothing is written, and no sync repeated",
    async (role) => {
      const fixture = new LogFixture(SMALL);
      const log = await fixture.open({ epoch: role === "leader" ? 1 : "none" });
      const sync = fixture.disk.stall({ operation: "sync", path: /\.log$/u });
      const fault = fixture.disk.inject({ operation: "sync", path: /\.log$/u, code: "EIO", pages: "old" });
      for (let at = 0; at < 8; at += 1) await appendAs(role, log, at);
      const waiting = outcomeOf(appendAs(role, log, 8));
      const next = outcomeOf(appendAs(role, log, 9));
      sync.release();
      expect([await waiting, await next]).toEqual(["SYNC_FAILED", "SYNC_FAILED"]);
      expect([fault.hits, log.logEndOffset, log.recoveryPoint, fixture.logDirectory.isOnline]).toEqual([
        1,
        8,
        0,
        false,
      ]);
    },
  );

  test("an index whose sync fails stops the directory at once, though a file that is synced beside it takes longer", async () => {
    const fixture = new LogFixture({ ...ONE_EACH, flushBytes: 100 * BATCH_BYTES });
    const log = await fixture.open();
    const data = fixture.disk.stall({ operation: "sync", path: /0001\.log$/u });
    fixture.disk.inject({ operation: "sync", path: /0000\.timeindex$/u, code: "EIO" });
    await appendAs("leader", log, 0);
    await outcomeOf(appendAs("leader", log, 1));
    await settled();
    expect([fixture.logDirectory.isOnline, await outcomeOf(appendAs("leader", log, 3))]).toEqual([
      false,
      "SYNC_FAILED",
    ]);
    const closing = log.close();
    expect(await isOver(closing)).toBe(false);
    data.release();
    expect(await closing).toBe(false);
  });

  test("a flush that finds no room for an index fails the append, which may be tried again, and ends when there is some", async () => {
    const fixture = new LogFixture({ ...ONE_EACH, flushBytes: 2 * BATCH_BYTES });
    const log = await fixture.open();
    const count = Number.POSITIVE_INFINITY;
    const full = fixture.disk.inject({
      operation: "write",
      path: /index$/u,
      code: "ENOSPC",
      written: "nothing",
      count,
    });
    for (let at = 0; at < 8; at += 1) await appendAs("leader", log, at);
    expect(await outcomeOf(appendAs("leader", log, 8))).toBe("ENOSPC");
    expect(await outcomeOf(appendAs("leader", log, 8))).toBe("ENOSPC");
    expect([log.logEndOffset, fixture.logDirectory.isOnline]).toEqual([8, true]);
    full.cancel();
    expect(await outcomeOf(appendAs("leader", log, 8))).toBe("done");
  });
});

test.each([
  ["segment", /0001\.log$/u],
  ["snapshot", /\.snapshot$/u],
])(
  "a %s file that cannot be opened for its sync is synced by the next flush: there was none that failed",
  async (_kind, path) => {
    const fixture = new LogFixture({ ...ONE_EACH, flushBytes: 100 * BATCH_BYTES });
    const log = await fixture.open();
    const first = fixture.disk.stall({ operation: "sync", path: /0000\.log$/u });
    // More than stay open.
    const count = SEALED_FILES_OPEN_MAX + 4;
    for (let at = 0; at < count; at += 1)
      await log.append(batchOf(["x"], { id: 1, sequence: at }), { origin: "client" });
    const fault = fixture.disk.inject({ operation: "open", path, code: "EMFILE", count: Number.POSITIVE_INFINITY });
    first.release();
    await settled();
    expect([await outcomeOf(log.flush()), fixture.logDirectory.isOnline, fault.hits > 0]).toEqual([
      "EMFILE",
      true,
      true,
    ]);
    fault.cancel();
    expect([await outcomeOf(log.flush()), log.recoveryPoint]).toEqual(["done", count]);
    fixture.powerCut();
    const again = await fixture.open({ epoch: "none" });
    expect([again.logEndOffset, again.nextSequence(1), again.recovery.snapshotsDamaged]).toEqual([count, count, []]);
  },
);

test.each(["none", "always"] as const)(
  "flush %s: indexes that a killed process had written, and not synced, are synced before the state vouches for their segment",
  async (flush) => {
    // Two batches fill a segment, and the recovery point has come to its end while it was the active one.
    const fixture = new LogFixture({ flush, segmentBytes: 2 * BATCH_BYTES, indexIntervalBytes: 1 });
    let log = await fixture.open();
    for (let at = 0; at < 2; at += 1) await appendAs("leader", log, at);
    await log.flush();
    expect(log.recoveryPoint).toBe(2);
    fixture.disk.stall({ operation: "sync", path: /index$/u });
    void appendAs("leader", log, 2).catch(() => undefined);
    await settled();
    fixture.kill();
    log = await fixture.open();
    for (let at = 0; at < 3; at += 1) await appendAs("leader", log, at);
    await log.flush();
    await fixture.environment.state.commit([], { sync: true });
    fixture.powerCut();
    const names = ["00000000000000000000.index", "00000000000000000000.timeindex"];
    for (const name of names) expect([name, (await fixture.readFile(name)).length > 0]).toEqual([name, true]);
  },
);
