import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { LogError } from "./error.ts";
import type { PartitionLog } from "./partition-log.ts";
import { batchesIn, batchOf, concat, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";

async function failureOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof LogError && error.type.code === "KAFKA_STORAGE_ERROR") return error.type.failure;
    throw error;
  }
  return "none";
}

const FIRST_LOG = "00000000000000000000.log";

async function usedBytes(fixture: LogFixture): Promise<number> {
  let bytes = 0;
  for (const name of await fixture.fileNames()) bytes += (await fixture.readFile(name)).length;
  return bytes;
}

describe("a full disk", () => {
  test("BR-014 what did not fit is cut back, the log stays online, and later appends follow right behind", async () => {
    for (const flush of ["always", "none"] as const) {
      const batch = batchOf(["x".repeat(200)]);
      for (let space = 0; space < 2 * batch.length; space += 7) {
        const fixture = new LogFixture({ flush }, new SimulatedEnvironment({ seed: space }));
        const log = await fixture.open();
        await log.append(batch, { origin: "local" });
        const used = await usedBytes(fixture);
        fixture.disk.limits.capacityBytes = used + space;
        const answers = await Promise.allSettled(
          Array.from({ length: 10 }, () => log.append(batch, { origin: "local" })),
        );
        // The first of a turn is written alone where nobody waits for a sync; the others are one write, which does not fit.
        const hasRoomAlone = flush === "none" && space >= batch.length;
        const first = hasRoomAlone ? "fulfilled" : "rejected";
        expect(answers.map(({ status }) => status)).toEqual([first, ...Array.from({ length: 9 }, () => "rejected")]);
        if (hasRoomAlone) fixture.disk.limits.capacityBytes += batch.length;
        expect(await failureOf(log.append(batch, { origin: "local" }))).toBe(space < batch.length ? "ENOSPC" : "none");
        const end = log.logEndOffset;
        expect((await fixture.readFile(FIRST_LOG)).length).toBe(end * batch.length);
        fixture.disk.limits.capacityBytes = Number.POSITIVE_INFINITY;
        await log.append(batchOf(["after"]), { origin: "local" });
        expect((await recordsOf(log)).at(-1)).toBe(`${end}:after`);
        expect(batchesIn(await fixture.readFile(FIRST_LOG))).toHaveLength(end + 1);
      }
    }
  });

  test("flush none: what did not fit does not come back in the place of other batches, though a flush beside it had synced it", async () => {
    const batch = batchOf(["kept"]);
    const fixture = new LogFixture({ flush: "none", segmentBytes: 5 * batch.length });
    const log = await fixture.open();
    const firstSync = fixture.disk.stall({ operation: "sync", path: /0000\.log$/u });
    for (let at = 0; at < 6; at += 1) await log.append(batch, { origin: "local" });
    // The first of a turn is written alone; of the other two, which are one write, one fits.
    fixture.disk.limits.capacityBytes = (await usedBytes(fixture)) + 2 * batch.length + 1;
    const cutting = fixture.disk.stall({ operation: "truncate", path: /\.log$/u });
    const appends = ["kept", "gone", "gone"].map((value) => log.append(batchOf([value]), { origin: "local" }));
    await new Promise(setImmediate);
    // The flush goes on: it comes to the file while what did not fit is in it.
    fixture.disk.limits.capacityBytes = Number.POSITIVE_INFINITY;
    firstSync.release();
    await new Promise(setImmediate);
    cutting.release();
    const answers = await Promise.allSettled(appends);
    expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected"]);
    await log.append(batchOf(["more"]), { origin: "local" });
    fixture.powerCut();
    const values = await recordsOf(await fixture.open({ epoch: "none" }));
    expect([values.length, values.filter((value) => value.endsWith("gone"))]).toEqual([7, []]);
  });

  test("a producer's refused batch can be sent again with the same sequence", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    const fault = fixture.disk.inject({ operation: "write", path: ".log", code: "ENOSPC", written: "part" });
    const batch = batchOf(["a"], { id: 1, sequence: 0 });
    expect(await failureOf(log.append(batch, { origin: "client" }))).toBe("ENOSPC");
    fault.cancel();
    expect(await log.append(batch, { origin: "client" })).toEqual({ baseOffset: 0, lastOffset: 0, duplicate: false });
  });

  test("no room for the next segment: nothing is lost, and the roll happens when there is room", async () => {
    const fixture = new LogFixture({ segmentBytes: 100 });
    const log = await fixture.open();
    await log.append(batchOf(["a"]), { origin: "local" });
    const fault = fixture.disk.inject({ operation: "open", path: /00001\.(log|index)$/, code: "ENOSPC", count: 2 });
    expect(await failureOf(log.append(batchOf(["b"]), { origin: "local" }))).toBe("ENOSPC");
    expect(await failureOf(log.append(batchOf(["b"]), { origin: "local" }))).toBe("ENOSPC");
    expect(fault.hits).toBe(2);
    await log.append(batchOf(["c"]), { origin: "local" });
    expect(await recordsOf(log)).toEqual(["0:a", "1:c"]);
    expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 1]);
  });

  test("no room for a new epoch's entry: no batch of it is written", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open({ epoch: 1 });
    fixture.disk.inject({ operation: "write", path: "leader-epoch-checkpoint.tmp", code: "ENOSPC" });
    expect(await failureOf(log.becomeLeader(toLeaderEpoch(2)))).toBe("ENOSPC");
    expect(log.epochEntries).toEqual([{ epoch: 1, startOffset: 0 }]);
    await log.append(batchOf(["a"]), { origin: "local" });
    expect(batchesIn(await fixture.readFile(FIRST_LOG))[0]?.partitionLeaderEpoch).toBe(1);
  });

  test.each([
    ["for batches of two new epochs", ".log"],
    ["for the entry of the second one", "leader-epoch-checkpoint.tmp"],
  ])(
    "no room on a follower %s: log and epochs are as before, and the same batches are taken later",
    async (_what, path) => {
      const fixture = new LogFixture();
      const log = await fixture.open({ epoch: "none" });
      await log.appendAsFollower(storedBatch(["a"], 0, 1));
      const next = concat(storedBatch(["b"], 1, 1), storedBatch(["c"], 2, 2), storedBatch(["d"], 3, 4));
      const skip = path === ".log" ? 0 : 1;
      fixture.disk.inject({ operation: "write", path, code: "ENOSPC", written: "part", skip });
      expect(await failureOf(log.appendAsFollower(next))).toBe("ENOSPC");
      expect(log.logEndOffset).toBe(1);
      expect(log.epochEntries).toEqual([{ epoch: 1, startOffset: 0 }]);
      // An answer that ends sooner has nothing of the later epochs.
      await log.appendAsFollower(storedBatch(["b"], 1, 1));
      await log.appendAsFollower(concat(storedBatch(["c"], 2, 2), storedBatch(["d"], 3, 4)));
      expect(await recordsOf(log)).toEqual(["0:a", "1:b", "2:c", "3:d"]);
      const entries = [
        { epoch: 1, startOffset: 0 },
        { epoch: 2, startOffset: 2 },
        { epoch: 4, startOffset: 3 },
      ];
      expect(log.epochEntries).toEqual(entries);
      fixture.kill();
      expect((await fixture.open({ epoch: "none" })).epochEntries).toEqual(entries);
    },
  );

  test("in always mode what was refused does not come back after a power cut", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await log.append(batchOf(["a"]), { origin: "local" });
    fixture.disk.inject({ operation: "write", path: ".log", code: "ENOSPC", written: "part" });
    await failureOf(log.append(batchOf(["refused"]), { origin: "local" }));
    for (const image of fixture.disk.enumerateCrashImages("any-subset")) {
      const environment = new SimulatedEnvironment({ seed: 1 }, SimulatedDisk.fromImage(image));
      const after = new LogFixture({}, environment);
      expect(await recordsOf(await after.open())).toEqual(["0:a"]);
      expect((await after.readFile(FIRST_LOG)).length).toBe(batchOf(["a"]).length);
    }
  });
});

describe("a disk that fails", () => {
  test("BR-015 a failed sync is never repeated: the directory goes offline, nothing is acknowledged, reads go on", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await log.append(batchOf(["a"]), { origin: "local" });
    const fault = fixture.disk.inject({ operation: "sync", path: ".log", code: "EIO", pages: "new" });
    const answers = await Promise.allSettled(
      ["b", "c"].map((value) => log.append(batchOf([value]), { origin: "local" })),
    );
    expect(answers.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    expect(fault.hits).toBe(1);
    const syncs = fixture.disk.history.filter(({ type }) => type === "sync").length;
    expect(await failureOf(log.append(batchOf(["d"]), { origin: "local" }))).toBe("SYNC_FAILED");
    expect(await failureOf(log.flush())).toBe("SYNC_FAILED");
    expect(await failureOf(log.truncateTo(toOffset(0)))).toBe("SYNC_FAILED");
    expect(fixture.disk.history.filter(({ type }) => type === "sync").length).toBe(syncs);
    expect([fixture.logDirectory.isOnline, log.flushedEndOffset]).toEqual([false, 1]);
    expect(
      (await log.read({ fromOffset: toOffset(0), maxBytes: 1, limitOffset: toOffset(1) })).bytes.length,
    ).toBeGreaterThan(0);
    expect(await log.close()).toBe(false);
  });

  test.each([
    ["write", FIRST_LOG],
    ["sync", FIRST_LOG],
    ["syncDirectory", /orders-0$/],
    ["open", /00001\.log$/],
  ] as const)("EIO on %s takes the directory offline and no later append is acknowledged", async (operation, path) => {
    const fixture = new LogFixture({ segmentBytes: 100 });
    const log = await fixture.open();
    fixture.disk.inject({ operation, path, code: "EIO" });
    const answers: string[] = [];
    for (let at = 0; at < 4; at += 1) answers.push(await failureOf(log.append(batchOf(["a"]), { origin: "local" })));
    expect(fixture.logDirectory.isOnline).toBe(false);
    const firstFailure = answers.findIndex((answer) => answer !== "none");
    expect(firstFailure).toBeGreaterThan(-1);
    expect(answers.slice(firstFailure)).not.toContain("none");
  });

  test.each([
    ["a fetch", (log: PartitionLog) => log.read({ fromOffset: toOffset(0), maxBytes: 1 })],
    ["a fetch without waiting", async (log: PartitionLog) => log.readSoon({ fromOffset: toOffset(0), maxBytes: 1 })],
    ["a look-up of a time", (log: PartitionLog) => log.listOffset({ timestamp: 0 })],
  ] as const)(
    "EIO on %s takes the directory offline: what cannot be read cannot be copied either",
    async (_name, read) => {
      const fixture = new LogFixture({ segmentBytes: 100 });
      const log = await fixture.open();
      for (let at = 0; at < 3; at += 1) await log.append(batchOf(["a"]), { origin: "local" });
      fixture.disk.inject({ operation: "read", path: FIRST_LOG, code: "EIO" });
      expect(await failureOf(read(log))).toBe("IO_ERROR");
      expect(fixture.logDirectory.isOnline).toBe(false);
      expect(await failureOf(log.append(batchOf(["a"]), { origin: "local" }))).toBe("IO_ERROR");
    },
  );

  test("a read that got no file handle is one read that failed", async () => {
    const fixture = new LogFixture({ segmentBytes: 100 });
    let log = await fixture.open();
    for (let at = 0; at < 3; at += 1) await log.append(batchOf(["a"]), { origin: "local" });
    await log.close();
    log = await fixture.open();
    fixture.disk.inject({ operation: "open", path: FIRST_LOG, code: "EMFILE" });
    const read = (): Promise<unknown> => log.read({ fromOffset: toOffset(0), maxBytes: 1 });
    expect(await failureOf(read())).toBe("EMFILE");
    expect(await failureOf(read())).toBe("none");
    expect(await failureOf(log.append(batchOf(["a"]), { origin: "local" }))).toBe("none");
  });

  // The first append goes alone; those behind it are one group, and each but the first of them rolls.
  test.each([
    ["sync", /1\.log$/],
    ["syncDirectory", /orders-0$/],
    ["write", /\.snapshot/],
    ["open", /3\.log$/],
    ["write", /3\.log$/],
  ] as const)(
    "EIO on %s of %s between the batches of one group: none before it is acknowledged unless it is durable, none behind it",
    async (operation, path) => {
      const fixture = new LogFixture({ segmentBytes: 100 });
      const log = await fixture.open();
      await log.append(batchOf(["first"], { id: 1, sequence: 0 }), { origin: "client" });
      const lost = operation === "sync" ? ({ pages: "old" } as const) : {};
      const fault = fixture.disk.inject({ operation, path, code: "EIO", ...lost });
      const values = ["a", "b", "c", "d", "e"];
      const answers = await Promise.all(
        values.map((value, at) => {
          const batch = batchOf([value], { id: 1, sequence: at + 1 });
          return failureOf(log.append(batch, { origin: "client" }));
        }),
      );
      expect([fault.hits, fixture.logDirectory.isOnline]).toEqual([1, false]);
      const failed = answers.findIndex((answer) => answer !== "none");
      expect(answers.slice(failed)).not.toContain("none");
      fixture.powerCut();
      const acknowledged = ["first", ...values.slice(0, failed)].map((value, at) => `${at}:${value}`);
      expect((await recordsOf(await fixture.open())).slice(0, failed + 1)).toEqual(acknowledged);
    },
  );

  test.each(["leader", "follower"] as const)(
    "a flush beside an append fails: the log of the %s ends where it did, and nobody is told of the batch",
    async (role) => {
      const fixture = new LogFixture({ flush: "none" });
      const log = await fixture.open({ epoch: role === "leader" ? 1 : "none" });
      const append = (value: string, offset: number): Promise<unknown> =>
        role === "leader"
          ? log.append(batchOf([value], { id: 1, sequence: offset }), { origin: "client" })
          : log.appendAsFollower(storedBatch([value], offset, 1));
      await append("a", 0);
      const sync = fixture.disk.stall({ operation: "sync", path: /\.log$/u });
      fixture.disk.inject({ operation: "sync", path: /\.log$/u, code: "EIO", pages: "old" });
      await log.flushInBackground();
      // The write takes two calls, and waits at the second one.
      const write = fixture.disk.stall({ operation: "write", path: /\.log$/u });
      fixture.disk.limits.shortTransferOneIn = 1;
      const appending = failureOf(append("b", 1));
      const { producers } = log;
      await new Promise(setImmediate);
      sync.release();
      await new Promise(setImmediate);
      expect(fixture.logDirectory.isOnline).toBe(false);
      write.release();
      expect(await appending).toBe("SYNC_FAILED");
      expect([log.logEndOffset, log.producers]).toEqual([1, producers]);
    },
  );

  test("a flush fails beside a roll, and another one begins behind it: the recovery point stays where it was", async () => {
    const fixture = new LogFixture({ flush: "none", segmentBytes: 150 });
    const log = await fixture.open();
    await log.append(batchOf(["a"]), { origin: "local" });
    await log.flush();
    await log.append(batchOf(["b"]), { origin: "local" });
    const fault = fixture.disk.inject({ operation: "sync", path: /0\.log$/u, code: "EIO", pages: "old" });
    const sync = fixture.disk.stall({ operation: "sync", path: /0\.log$/u });
    await log.flushInBackground();
    const { disk } = fixture;
    const open = disk.open.bind(disk);
    disk.open = async (path, mode) => {
      if (path.endsWith("2.log")) {
        sync.release();
        await new Promise(setImmediate);
      }
      return open(path, mode);
    };
    expect(await failureOf(log.append(batchOf(["c"]), { origin: "local" }))).toBe("SYNC_FAILED");
    await new Promise(setImmediate);
    expect([fault.hits, log.flushedEndOffset, log.recoveryPoint]).toEqual([1, 1, 1]);
    disk.open = open;
    fixture.kill();
    const after = await fixture.open();
    expect([await recordsOf(after), after.damaged]).toEqual([["0:a"], []]);
  });

  test("a partition whose directory is offline does not hold up or harm one in another directory", async () => {
    const environment = new SimulatedEnvironment({ seed: 1 });
    const first = new LogFixture({}, environment);
    const log = await first.open();
    first.disk.inject({ operation: "sync", path: ".log", code: "EIO" });
    expect(await failureOf(log.append(batchOf(["a"]), { origin: "local" }))).toBe("SYNC_FAILED");
    const second = new LogFixture({}, new SimulatedEnvironment({ seed: 2 }));
    expect((await (await second.open()).append(batchOf(["a"]), { origin: "local" })).baseOffset).toBe(0);
  });

  test("a read that fails is a typed error, never a short answer", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await log.append(batchOf(["a"]), { origin: "local" });
    fixture.disk.inject({ operation: "read", path: ".log", code: "EIO" });
    expect(await failureOf(log.read({ fromOffset: toOffset(0), maxBytes: 1000 }))).toBe("IO_ERROR");
    expect(await recordsOf(log)).toEqual(["0:a"]);
    const file = await fixture.disk.open(`data/orders-0/${FIRST_LOG}`, "write");
    await file.truncate(20);
    await expect(log.read({ fromOffset: toOffset(0), maxBytes: 1000 })).rejects.toThrow("CORRUPT_MESSAGE");
  });

  test("a close that cannot flush says so", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open();
    await log.append(batchOf(["a"]), { origin: "local" });
    fixture.disk.inject({ operation: "sync", path: ".log", code: "EIO" });
    expect(await log.close()).toBe(false);
  });

  test("an error while opening closes what was opened and is typed", async () => {
    const fixture = new LogFixture();
    await (await fixture.open()).close();
    fixture.kill();
    fixture.disk.inject({ operation: "open", path: FIRST_LOG, code: "EACCES", count: Number.POSITIVE_INFINITY });
    expect(await failureOf(fixture.open())).toBe("IO_ERROR");
    expect(fixture.disk.openFileCount).toBe(0);
  });
});

describe("short reads and writes", () => {
  test("BR-056 all transfers may be short: nothing changes", async () => {
    const environment = new SimulatedEnvironment({ seed: 3, disk: { shortTransferOneIn: 2 } });
    const fixture = new LogFixture({ segmentBytes: 2000, indexIntervalBytes: 300 }, environment);
    const log = await fixture.open();
    const values = Array.from({ length: 60 }, (_, at) => `${at}`.repeat(at));
    for (const value of values) await log.append(batchOf([value]), { origin: "local" });
    expect(await recordsOf(log)).toEqual(values.map((value, offset) => `${offset}:${value}`));
    fixture.kill();
    expect(await recordsOf(await fixture.open())).toEqual(values.map((value, offset) => `${offset}:${value}`));
  });
});

describe("bounds", () => {
  test("BR-013 files that stay open are few, however many segments are read", async () => {
    const fixture = new LogFixture({ segmentBytes: 80 });
    const log = await fixture.open();
    for (let at = 0; at < 100; at += 1) await log.append(batchOf(["a"]), { origin: "local" });
    expect(await recordsOf(log)).toHaveLength(100);
    expect(fixture.disk.openFileCount).toBeLessThan(20);
    await log.close();
    expect(fixture.disk.openFileCount).toBe(0);
  });

  test("BR-013 so are they after a flush of many segments, an unclean open, many reads at once, and reads that fail", async () => {
    const fixture = new LogFixture({ segmentBytes: 80, flush: "none" });
    const log = await fixture.open();
    for (let at = 0; at < 100; at += 1) await log.append(batchOf(["a"]), { origin: "local" });
    await log.flush();
    expect(fixture.disk.openFileCount).toBeLessThan(20);

    fixture.kill();
    fixture.disk.limits.handlesMax = 20;
    const opened = await fixture.open();
    expect(opened.segments).toHaveLength(100);
    expect(fixture.disk.openFileCount).toBeLessThan(20);

    fixture.disk.limits.handlesMax = Number.POSITIVE_INFINITY;
    const reads = Array.from({ length: 100 }, (_, at) => opened.read({ fromOffset: toOffset(at), maxBytes: 1000 }));
    await Promise.all(reads);
    expect(fixture.disk.openFileCount).toBeLessThan(20);

    fixture.disk.inject({ operation: "read", path: ".log", code: "EIO", count: 60 });
    const failing = Array.from({ length: 60 }, (_, at) => opened.read({ fromOffset: toOffset(at), maxBytes: 1000 }));
    const outcomes = await Promise.allSettled(failing);
    expect(outcomes.some(({ status }) => status === "rejected")).toBe(true);
    expect(fixture.disk.openFileCount).toBeLessThan(20);
  });
});
