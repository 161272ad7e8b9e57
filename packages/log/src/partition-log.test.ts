import { BufferPool, toLeaderEpoch, toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { stampBatch } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { LogError } from "./error.ts";
import { batchesIn, batchOf, concat, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";

async function refusalOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof LogError)
      return error.type.code === "KAFKA_STORAGE_ERROR" ? `${error.code} ${error.type.failure}` : error.code;
    throw error;
  }
  return "no refusal";
}

describe("append and read", () => {
  test("a new log begins and ends at 0 with one empty segment and its index", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    expect([log.logStartOffset, log.logEndOffset, log.flushedEndOffset]).toEqual([0, 0, 0]);
    expect(await fixture.fileNames()).toEqual([
      "00000000000000000000.index",
      "00000000000000000000.log",
      "00000000000000000000.timeindex",
      "leader-epoch-checkpoint",
    ]);
  });

  test("offsets are assigned in the order of the calls, also of calls that do not wait for each other", async () => {
    const log = await new LogFixture().open();
    const answers = await Promise.all(
      ["a", "b", "c"].map((value) => log.append(batchOf([value, value]), { origin: "local" })),
    );
    expect(answers.map(({ baseOffset, lastOffset }) => [baseOffset, lastOffset])).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
    ]);
    expect(await recordsOf(log)).toEqual(["0:a", "1:a", "2:b", "3:b", "4:c", "5:c"]);
  });

  test("calls of one turn share one write and one sync", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await log.append(batchOf(["first"]), { origin: "local" });
    const before = fixture.disk.history.length;
    await Promise.all(Array.from({ length: 50 }, (_, at) => log.append(batchOf([`r${at}`]), { origin: "local" })));
    const operations = fixture.disk.history.slice(before).map(({ type }) => type);
    expect(operations).toEqual(["write", "sync"]);
  });

  test("the caller's memory is neither kept nor written", async () => {
    const log = await new LogFixture().open();
    const batch = batchOf(["kept"]);
    const copy = batch.slice();
    const appended = log.append(batch, { origin: "local" });
    expect(batch).toEqual(copy);
    batch.fill(0xee);
    await appended;
    expect(await recordsOf(log)).toEqual(["0:kept"]);
  });

  test("LG-01 every batch carries the leader's epoch", async () => {
    const log = await new LogFixture().open({ epoch: 72 });
    for (let at = 0; at < 50; at += 1) await log.append(batchOf(["x"]), { origin: "local" });
    const { bytes } = await log.read({ fromOffset: toOffset(0), maxBytes: 1 << 20 });
    expect(batchesIn(bytes).map((header) => header.partitionLeaderEpoch)).toEqual(Array.from({ length: 50 }, () => 72));
  });

  test("a segment rolls when the next batch would make it larger than segmentBytes, and may be exactly that large", async () => {
    const size = batchOf(["x"]).length;
    const fixture = new LogFixture({ segmentBytes: 3 * size });
    const log = await fixture.open();
    await Promise.all(Array.from({ length: 7 }, () => log.append(batchOf(["x"]), { origin: "local" })));
    expect(log.segments.map(({ baseOffset, sizeBytes }) => [baseOffset, sizeBytes])).toEqual([
      [0, 3 * size],
      [3, 3 * size],
      [6, size],
    ]);
    expect(await recordsOf(log)).toHaveLength(7);
  });

  test("an index entry is made for the batch that follows more than indexIntervalBytes, never for the first", async () => {
    const size = batchOf(["x"]).length;
    const entriesAt = async (indexIntervalBytes: number): Promise<number> => {
      const log = await new LogFixture({ indexIntervalBytes }).open();
      for (let at = 0; at < 6; at += 1) await log.append(batchOf(["x"]), { origin: "local" });
      return log.segments[0]?.indexEntries ?? -1;
    };
    expect([await entriesAt(size + 1), await entriesAt(size), await entriesAt(size - 1)]).toEqual([2, 2, 5]);
  });

  test("a read begins with the batch that holds the offset and may end inside one, but holds the first whole", async () => {
    const log = await new LogFixture({ indexIntervalBytes: 0 }).open();
    for (const values of [["a", "b"], ["c", "d"], ["e"]]) await log.append(batchOf(values), { origin: "local" });
    const size = batchOf(["c", "d"]).length;
    const read = await log.read({ fromOffset: toOffset(3), maxBytes: 10 });
    expect([read.startOffset, read.bytes.length]).toEqual([2, size]);
    expect((await log.read({ fromOffset: toOffset(3), maxBytes: size + 7 })).bytes).toHaveLength(size + 7);
    expect((await log.read({ fromOffset: toOffset(3), maxBytes: 10, minOneBatch: false })).bytes).toHaveLength(10);
    expect((await log.read({ fromOffset: toOffset(5), maxBytes: 100 })).bytes).toHaveLength(0);
  });

  test("a batch larger than the read asked for comes whole in memory that nobody else gets; what was too small for it goes back", async () => {
    const fixture = new LogFixture({ maxMessageBytes: 1 << 20, segmentBytes: 150_000 });
    const written = await fixture.open();
    for (let at = 0; at < 2; at += 1) await written.append(batchOf(["x".repeat(100_000)]), { origin: "local" });
    await written.close();
    // Of a segment that nobody has read yet.
    const log = await fixture.open({ clean: true });
    const pool = new BufferPool({ poisons: true });
    const options = { fromOffset: toOffset(0), maxBytes: 20_000 };
    const { bytes } = await log.read({ ...options, pool });
    expect(pool.keptBytes).toBe(32_768);
    expect([20_000, 100_000].map((size) => pool.take(size).fill(0).buffer === bytes.buffer)).toEqual([false, false]);
    expect(Buffer.compare(bytes, (await log.read(options)).bytes)).toBe(0);
  });

  test("a limit inside a batch hides the whole batch", async () => {
    const log = await new LogFixture().open();
    for (const values of [
      ["a", "b", "c"],
      ["d", "e", "f"],
    ])
      await log.append(batchOf(values), { origin: "local" });
    const lastRead = async (limit: number, from = 0): Promise<number | undefined> =>
      batchesIn(
        (await log.read({ fromOffset: toOffset(from), maxBytes: 1 << 20, limitOffset: toOffset(limit) })).bytes,
      ).at(-1)?.lastOffset;
    expect([await lastRead(2), await lastRead(3), await lastRead(5), await lastRead(6), await lastRead(5, 3)]).toEqual([
      undefined,
      2,
      2,
      5,
      undefined,
    ]);
  });

  test("an append that comes while a read runs is not in it, wherever the limit is", async () => {
    for (let seed = 1; seed <= 40; seed += 1) {
      const environment = new SimulatedEnvironment({ seed, mode: "kernel" });
      await environment.kernel.run(async () => {
        const log = await new LogFixture({ flush: "none" }, environment).open();
        // A slow disk: the file's calls go through the pool.
        environment.files.limits.directCallUs = 100_000;
        await log.append(batchOf(["a", "b"]), { origin: "local" });
        const limitOffset = log.logEndOffset;
        const reads = [0, 1].map((from) => log.read({ fromOffset: toOffset(from), maxBytes: 1 << 20, limitOffset }));
        const appended = log.append(batchOf(["c"]), { origin: "local" });
        expect(log.logEndOffset).toBe(limitOffset);
        await appended;
        for (const { bytes } of await Promise.all(reads)) expect(batchesIn(bytes).at(-1)?.lastOffset).toBe(1);
        await log.close();
      });
    }
  });

  test("reads outside the log are OFFSET_OUT_OF_RANGE", async () => {
    const log = await new LogFixture().open();
    await log.append(batchOf(["a"]), { origin: "local" });
    expect(await refusalOf(log.read({ fromOffset: toOffset(2), maxBytes: 100 }))).toBe("OFFSET_OUT_OF_RANGE");
    await log.truncateFullyAndStartAt(toOffset(10));
    expect(await refusalOf(log.read({ fromOffset: toOffset(9), maxBytes: 100 }))).toBe("OFFSET_OUT_OF_RANGE");
  });

  test("reads over many segments find every offset", async () => {
    const size = batchOf(["x"]).length;
    const log = await new LogFixture({ segmentBytes: 4 * size, indexIntervalBytes: size }).open();
    await Promise.all(
      Array.from({ length: 100 }, (_, at) => log.append(batchOf([String(at % 10)]), { origin: "local" })),
    );
    for (let offset = 0; offset < 100; offset += 1) {
      expect((await log.read({ fromOffset: toOffset(offset), maxBytes: 1 })).startOffset).toBe(offset);
    }
  });

  test("what a leader may not append is refused by Kafka's name, and nothing is written", async () => {
    const fixture = new LogFixture({ maxMessageBytes: 200, segmentBytes: 190 });
    const log = await fixture.open();
    const append = (batch: Uint8Array, origin: "local" | "client" = "client"): Promise<string> =>
      refusalOf(log.append(batch, { origin }));
    const flipped = batchOf(["abc"]);
    flipped[flipped.length - 2] = 0;
    const stamped = batchOf(["a"]);
    stampBatch(stamped, 0, 5, 0);
    const legacy = batchOf(["a"]);
    legacy[16] = 1;
    expect(await append(flipped)).toBe("CORRUPT_MESSAGE");
    expect(await append(batchOf(["a"]).subarray(0, 60))).toBe("CORRUPT_MESSAGE");
    expect(await append(concat(batchOf(["a"]), batchOf(["b"])))).toBe("INVALID_RECORD");
    expect(await append(stamped)).toBe("INVALID_RECORD");
    expect(await append(legacy)).toBe("UNSUPPORTED_FOR_MESSAGE_FORMAT");
    expect(await append(batchOf(["x".repeat(150)]))).toBe("MESSAGE_TOO_LARGE");
    expect(await append(batchOf(["x".repeat(125)]))).toBe("RECORD_LIST_TOO_LARGE");
    expect([log.logEndOffset, log.segments[0]?.sizeBytes]).toEqual([0, 0]);
    await log.becomeFollower();
    expect(await append(batchOf(["a"]), "local")).toBe("NOT_LEADER_OR_FOLLOWER");
  });

  test("append after close is LOG_CLOSED, and close answers what was appended before it", async () => {
    const log = await new LogFixture().open();
    const appended = log.append(batchOf(["a"]), { origin: "local" });
    expect(await log.close()).toBe(true);
    expect((await appended).baseOffset).toBe(0);
    expect(await refusalOf(log.append(batchOf(["b"]), { origin: "local" }))).toBe("LOG_CLOSED");
    expect(await log.close()).toBe(true);
  });

  test("waitForEndOffset resolves when the end has passed the offset", async () => {
    const log = await new LogFixture().open();
    let isAwake = false;
    const wait = log.waitForEndOffset(toOffset(1));
    const woken = wait.promise.then(() => (isAwake = true));
    await log.append(batchOf(["a"]), { origin: "local" });
    await Promise.resolve();
    expect(isAwake).toBe(false);
    await log.append(batchOf(["b"]), { origin: "local" });
    await woken;
    expect(isAwake).toBe(true);
  });
});

describe("role changes", () => {
  test("an append that was called before a role change is written in the old epoch, before the new one begins", async () => {
    const log = await new LogFixture().open({ epoch: 1 });
    const first = log.append(batchOf(["a"]), { origin: "local" });
    const change = log.becomeLeader(toLeaderEpoch(2));
    const second = log.append(batchOf(["b"]), { origin: "local" });
    await Promise.all([first, change, second]);
    expect(log.epochEntries).toEqual([
      { epoch: 1, startOffset: 0 },
      { epoch: 2, startOffset: 1 },
    ]);
    const { bytes } = await log.read({ fromOffset: toOffset(0), maxBytes: 1000 });
    expect(batchesIn(bytes).map((header) => header.partitionLeaderEpoch)).toEqual([1, 2]);
  });

  test("an epoch below one that the log has seen is FENCED_LEADER_EPOCH", async () => {
    const log = await new LogFixture().open({ epoch: 5 });
    expect(await refusalOf(log.becomeLeader(toLeaderEpoch(4)))).toBe("FENCED_LEADER_EPOCH");
    expect(log.leaderEpoch).toBe(5);
  });

  test("the epoch's entry is on the disk before its first batch is written", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open({ epoch: 3 });
    await log.append(batchOf(["a"]), { origin: "local" });
    const firstWriteToLog = fixture.disk.history.findIndex(
      (operation) => operation.type === "write" && operation.path.endsWith(".log"),
    );
    const checkpointInPlace = fixture.disk.history.findIndex(
      (operation) => operation.type === "syncDirectory" && operation.path === "data/orders-0",
    );
    expect(checkpointInPlace).toBeGreaterThan(-1);
    expect(firstWriteToLog).toBeGreaterThan(checkpointInPlace);
  });
});

describe("follower appends", () => {
  test("LG-02 a follower takes the epochs of its leader's batches", async () => {
    const log = await new LogFixture().open({ epoch: "none" });
    await log.appendAsFollower(concat(storedBatch(["a"], 0, 42), storedBatch(["b"], 1, 42)));
    expect(log.epochEntries).toEqual([{ epoch: 42, startOffset: 0 }]);
    expect(log.leaderEpoch).toBeUndefined();
  });

  test("LG-11 LG-13 a batch below the log end is refused, a gap is taken", async () => {
    const log = await new LogFixture().open({ epoch: "none" });
    await log.appendAsFollower(
      storedBatch(
        Array.from({ length: 10 }, () => "a"),
        0,
        1,
      ),
    );
    expect(await refusalOf(log.appendAsFollower(storedBatch(["b"], 9, 1)))).toBe("UNEXPECTED_APPEND_OFFSET");
    await log.appendAsFollower(storedBatch(["c"], 14, 1));
    expect(log.logEndOffset).toBe(15);
    expect((await log.read({ fromOffset: toOffset(11), maxBytes: 1 })).startOffset).toBe(14);
  });

  test("LG-12 LG-18 BR-004 batches that go backwards or overlap are refused whole", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open({ epoch: "none" });
    await log.appendAsFollower(
      storedBatch(
        Array.from({ length: 20 }, () => "a"),
        0,
        1,
      ),
    );
    const sizeBefore = log.segments[0]?.sizeBytes;
    const overlapping = concat(
      storedBatch(["a", "b", "c", "d", "e"], 20, 1),
      storedBatch(["a", "b", "c", "d", "e", "f", "g"], 22, 1),
    );
    expect(await refusalOf(log.appendAsFollower(overlapping))).toBe("OFFSETS_OUT_OF_ORDER");
    expect(await refusalOf(log.appendAsFollower(concat(storedBatch(["a"], 22, 1), storedBatch(["a"], 21, 1))))).toBe(
      "OFFSETS_OUT_OF_ORDER",
    );
    expect([log.logEndOffset, log.segments[0]?.sizeBytes]).toEqual([20, sizeBefore]);
    await log.appendAsFollower(storedBatch(["a", "b", "c", "d", "e", "f"], 25, 1));
    expect(log.logEndOffset).toBe(31);
  });

  test("LG-16 a follower takes a batch above max.message.bytes", async () => {
    const log = await new LogFixture({ maxMessageBytes: 100 }).open({ epoch: "none" });
    await log.appendAsFollower(storedBatch(["x".repeat(500)], 0, 1));
    expect(log.logEndOffset).toBe(1);
  });

  test("LG-21 whole batches in front of a cut one are appended; a complete bad one refuses all", async () => {
    const good = storedBatch(["a"], 0, 1);
    const next = storedBatch(["b"], 1, 1);
    const bad = next.slice();
    bad[bad.length - 1] = 0xff;
    const zeros = next.slice();
    zeros.fill(0, 8, 12);
    const log = await new LogFixture().open({ epoch: "none" });
    for (const tail of [bad, zeros]) {
      expect(await refusalOf(log.appendAsFollower(concat(good, tail)))).toBe("CORRUPT_MESSAGE");
      expect([log.logEndOffset, log.epochEntries.length]).toEqual([0, 0]);
    }
    await log.appendAsFollower(concat(good, next.subarray(0, next.length - 3)));
    expect(log.logEndOffset).toBe(1);
    await log.appendAsFollower(concat(next, good.subarray(0, 10)));
    expect(log.logEndOffset).toBe(2);
  });

  test("LG-22 batches from the first one above the replica's own epoch on are left out", async () => {
    const epochsAfter = async (leaderEpoch: number, epochs: readonly number[]): Promise<[number, number[]]> => {
      const log = await new LogFixture().open({ epoch: "none" });
      const bytes = concat(...epochs.map((epoch, offset) => storedBatch(["a"], offset, epoch)));
      await log.appendAsFollower(bytes, { leaderEpoch: toLeaderEpoch(leaderEpoch) });
      return [log.logEndOffset, log.epochEntries.map(({ epoch }) => epoch)];
    };
    expect(await epochsAfter(2, [1, 2, 5, 2])).toEqual([2, [1, 2]]);
    expect(await epochsAfter(2, [5])).toEqual([0, []]);
  });

  test("LG-20 an append that fits no segment is refused before its epoch is entered (Kafka enters it first)", async () => {
    const log = await new LogFixture({ segmentBytes: 2048 }).open({ epoch: "none" });
    await log.appendAsFollower(storedBatch(["a"], 0, 1));
    expect(await refusalOf(log.appendAsFollower(storedBatch(["x".repeat(3000)], 1, 9)))).toBe("RECORD_LIST_TOO_LARGE");
    expect(log.epochEntries).toEqual([{ epoch: 1, startOffset: 0 }]);
  });

  test("LG-23 LG-24 a batch without an epoch, or with a falling one, is refused: recovery would cut it", async () => {
    const log = await new LogFixture().open({ epoch: "none" });
    await log.appendAsFollower(storedBatch(["a"], 0, 5));
    expect(await refusalOf(log.appendAsFollower(storedBatch(["b"], 1, -1)))).toBe("INVALID_RECORD");
    expect(await refusalOf(log.appendAsFollower(storedBatch(["b"], 1, 3)))).toBe("INVALID_RECORD");
    expect([log.logEndOffset, log.epochEntries]).toEqual([1, [{ epoch: 5, startOffset: 0 }]]);
  });

  test("BR-005 a batch whose offset does not fit the index begins a segment at its own base offset", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open({ epoch: "none" });
    await log.appendAsFollower(storedBatch(["a"], 0, 1));
    await log.appendAsFollower(storedBatch(["b"], 2147483647, 1));
    expect(log.segments).toHaveLength(1);
    await log.appendAsFollower(storedBatch(["c"], 2147483648, 1));
    expect(await fixture.fileNames()).toContain("00000000002147483648.log");
    expect((await log.read({ fromOffset: toOffset(1), maxBytes: 1 })).startOffset).toBe(2147483647);
  });
});

describe("idempotent producers", () => {
  const producer = (sequence: number, epoch = 0): { id: number; epoch: number; sequence: number } => ({
    id: 7,
    epoch,
    sequence,
  });

  test("a repeated batch answers its first offsets and is not stored again", async () => {
    const log = await new LogFixture().open();
    await log.append(batchOf(["a", "b"], producer(0)), { origin: "client" });
    await log.append(batchOf(["c"], producer(2)), { origin: "client" });
    const again = await log.append(batchOf(["a", "b"], producer(0)), { origin: "client" });
    expect(again).toEqual({ baseOffset: 0, lastOffset: 1, duplicate: true });
    expect(await recordsOf(log)).toEqual(["0:a", "1:b", "2:c"]);
  });

  test("a repeat within one group is answered when the group is", async () => {
    const log = await new LogFixture().open();
    const answers = await Promise.all([
      log.append(batchOf(["a"], producer(0)), { origin: "client" }),
      log.append(batchOf(["a"], producer(0)), { origin: "client" }),
      log.append(batchOf(["b"], producer(1)), { origin: "client" }),
    ]);
    expect(answers.map(({ baseOffset, duplicate }) => [baseOffset, duplicate])).toEqual([
      [0, false],
      [0, true],
      [1, false],
    ]);
    expect(await recordsOf(log)).toEqual(["0:a", "1:b"]);
  });

  test("BR-041 five batches are remembered: the sixth back is out of order", async () => {
    const log = await new LogFixture().open();
    for (let sequence = 0; sequence < 6; sequence += 1)
      await log.append(batchOf(["x"], producer(sequence)), { origin: "client" });
    expect((await log.append(batchOf(["x"], producer(1)), { origin: "client" })).baseOffset).toBe(1);
    expect(await refusalOf(log.append(batchOf(["x"], producer(0)), { origin: "client" }))).toBe(
      "OUT_OF_ORDER_SEQUENCE_NUMBER",
    );
  });

  test("a gap is out of order, a new epoch begins at 0, an old epoch is refused", async () => {
    const log = await new LogFixture().open();
    await log.append(batchOf(["a"], producer(0)), { origin: "client" });
    expect(await refusalOf(log.append(batchOf(["c"], producer(2)), { origin: "client" }))).toBe(
      "OUT_OF_ORDER_SEQUENCE_NUMBER",
    );
    expect(await refusalOf(log.append(batchOf(["c"], producer(1, 1)), { origin: "client" }))).toBe(
      "OUT_OF_ORDER_SEQUENCE_NUMBER",
    );
    await log.append(batchOf(["b"], producer(0, 1)), { origin: "client" });
    expect(await refusalOf(log.append(batchOf(["c"], producer(1, 0)), { origin: "client" }))).toBe(
      "INVALID_PRODUCER_EPOCH",
    );
    expect(log.logEndOffset).toBe(2);
  });

  test("the sequence after 2147483647 is 0", async () => {
    const log = await new LogFixture().open();
    await log.append(batchOf(["a", "b"], producer(2147483646)), { origin: "client" });
    await log.append(batchOf(["c"], producer(0)), { origin: "client" });
    expect(log.logEndOffset).toBe(3);
  });

  test("producers are known again after a clean and an unclean open, and after a truncation", async () => {
    for (const stop of ["clean", "kill"] as const) {
      const fixture = new LogFixture();
      let log = await fixture.open();
      for (let sequence = 0; sequence < 3; sequence += 1)
        await log.append(batchOf(["x"], producer(sequence)), { origin: "client" });
      if (stop === "clean") await log.close();
      fixture.kill();
      log = await fixture.open({ clean: stop === "clean" });
      expect((await log.append(batchOf(["x"], producer(1)), { origin: "client" })).baseOffset).toBe(1);
      expect(await refusalOf(log.append(batchOf(["x"], producer(4)), { origin: "client" }))).toBe(
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
      );
      await log.truncateTo(toOffset(2));
      expect(log.nextSequence(7)).toBe(2);
      expect((await log.append(batchOf(["x"], producer(2)), { origin: "client" })).baseOffset).toBe(2);
    }
  });
});
