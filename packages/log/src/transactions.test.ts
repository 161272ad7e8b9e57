import { toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { crc32c, encodeEndTransactionMarker, stampBatch } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { batchesIn, batchOf, concat, DIRECTORY, LogFixture, storedBatch } from "./log.fixture.ts";
import type { AppendResult } from "./partition-queue.ts";
import type { PartitionLog } from "./partition-log.ts";

/** Markers carry the time of the simulated clock, which is years after that of the batches: no segment is to end for that. */
function logFixture(): LogFixture {
  return new LogFixture({ segmentMs: Number.MAX_SAFE_INTEGER });
}

const TXN = { epoch: 0, transactional: true } as const;

/** A producer's next batch in a transaction, which the coordinator knows of. */
class Transactions {
  readonly #sequences = new Map<number, number>();
  readonly log: PartitionLog;

  constructor(log: PartitionLog) {
    this.log = log;
  }

  async write(id: number, ...values: string[]): Promise<Offset> {
    const sequence = this.#sequences.get(id) ?? 0;
    this.#sequences.set(id, sequence + values.length);
    const batch = batchOf(values, { id, sequence, ...TXN });
    return (await this.log.append(batch, { origin: "client", isTransactionVerified: true })).baseOffset;
  }

  end(
    type: "abort" | "commit",
    id: number,
    fields: { epoch?: number; coordinatorEpoch?: number; transactionVersion?: 0 | 1 | 2 } = {},
  ): Promise<AppendResult> {
    const { epoch = 0, coordinatorEpoch = 0, transactionVersion = 0 } = fields;
    return this.log.endTransaction({
      type,
      producerId: id,
      producerEpoch: epoch,
      coordinatorEpoch,
      transactionVersion,
    });
  }
}

async function codeOf(append: Promise<unknown>): Promise<string> {
  return append.then(
    () => "appended",
    (error: { code: string }) => error.code,
  );
}

/** What a reader of committed records gets of the log, as the protocol tells it to do. */
async function committedRecords(log: PartitionLog): Promise<number[]> {
  const offsets: number[] = [];
  const aborting = new Map<number, number>();
  for (let next = log.logStartOffset as number; ;) {
    const read = await log.read({ fromOffset: toOffset(next), maxBytes: 1, isolation: "read_committed" });
    const headers = batchesIn(read.bytes);
    if (headers.length === 0) return offsets;
    for (const { producerId, firstOffset } of read.abortedTransactions ?? [])
      if (firstOffset >= next || !aborting.has(producerId)) aborting.set(producerId, firstOffset);
    for (const header of headers) {
      const isControl = (header.attributes & 0x20) !== 0;
      const isAborted = header.baseOffset >= (aborting.get(header.producerId) ?? Number.POSITIVE_INFINITY);
      if (isControl) aborting.delete(header.producerId);
      else if (!isAborted || (header.attributes & 0x10) === 0)
        for (let offset = header.baseOffset; offset <= header.lastOffset; offset += 1) offsets.push(offset);
      next = header.lastOffset + 1;
    }
  }
}

describe("the last stable offset", () => {
  test("is where the oldest open transaction begins, and the high watermark without one", async () => {
    const log = await logFixture().open();
    const txn = new Transactions(log);
    await log.append(batchOf(["plain"]), { origin: "client" });
    expect(log.lastStableOffset()).toBe(1);
    await txn.write(7, "a");
    await txn.write(8, "b", "c");
    expect(log.lastStableOffset()).toBe(1);
    await txn.end("commit", 7);
    expect(log.lastStableOffset()).toBe(2);
    await txn.end("abort", 8);
    expect([log.lastStableOffset(), log.logEndOffset]).toEqual([6, 6]);
  });

  test("stays before a transaction until the high watermark has passed its marker", async () => {
    const log = await logFixture().open();
    const txn = new Transactions(log);
    await txn.write(7, "a");
    const { baseOffset: marker } = await txn.end("commit", 7);
    expect([log.lastStableOffset(marker), log.lastStableOffset(toOffset(marker + 1))]).toEqual([0, 2]);
  });

  test("is never below the log start, nor above the high watermark", async () => {
    const log = await logFixture().open();
    const txn = new Transactions(log);
    await log.append(batchOf(["plain"]), { origin: "client" });
    await txn.write(7, "a");
    expect(log.lastStableOffset(toOffset(0))).toBe(0);
    expect(log.lastStableOffset(toOffset(1))).toBe(1);
  });
});

describe("what a leader refuses", () => {
  test("a client's first batch of a transaction that nobody asked the coordinator about", async () => {
    const log = await logFixture().open();
    const first = batchOf(["a"], { id: 7, ...TXN });
    expect(await codeOf(log.append(first, { origin: "client" }))).toBe("INVALID_TXN_STATE");
    expect(log.logEndOffset).toBe(0);
    await log.append(first, { origin: "client", isTransactionVerified: true });
    // The transaction is open here: its later batches, and repetitions, need no question.
    await log.append(batchOf(["b"], { id: 7, sequence: 1, ...TXN }), { origin: "client" });
    expect((await log.append(first, { origin: "client" })).duplicate).toBe(true);
    expect(log.logEndOffset).toBe(2);
  });

  test("a batch outside the producer's open transaction", async () => {
    const log = await logFixture().open();
    await new Transactions(log).write(7, "a");
    const plain = batchOf(["b"], { id: 7, sequence: 1 });
    expect(await codeOf(log.append(plain, { origin: "client" }))).toBe("INVALID_TXN_STATE");
  });

  test("a marker of an older producer epoch, or of an older coordinator", async () => {
    const log = await logFixture().open();
    const txn = new Transactions(log);
    await log.append(batchOf(["a"], { id: 7, epoch: 3, transactional: true }), { origin: "local" });
    expect(await codeOf(txn.end("commit", 7, { epoch: 2 }))).toBe("INVALID_PRODUCER_EPOCH");
    await txn.end("commit", 7, { epoch: 3, coordinatorEpoch: 5 });
    expect(await codeOf(txn.end("commit", 7, { epoch: 3, coordinatorEpoch: 4 }))).toBe(
      "TRANSACTION_COORDINATOR_FENCED",
    );
    // One without an open transaction is appended all the same.
    expect(await codeOf(txn.end("commit", 7, { epoch: 3, coordinatorEpoch: 5 }))).toBe("appended");
  });

  test("a version 2 marker that does not raise the producer epoch of an open transaction", async () => {
    const log = await logFixture().open();
    const txn = new Transactions(log);
    await txn.write(7, "a");
    expect(await codeOf(txn.end("commit", 7, { transactionVersion: 2 }))).toBe("INVALID_PRODUCER_EPOCH");
    await txn.end("commit", 7, { epoch: 1, transactionVersion: 2 });
    expect(await codeOf(txn.end("commit", 7, { epoch: 1, transactionVersion: 2 }))).toBe("appended");
    // The epoch is known from a marker only: the next batch begins at 0.
    const batch = (sequence: number): Uint8Array => batchOf(["b"], { id: 7, epoch: 1, sequence });
    expect(await codeOf(log.append(batch(1), { origin: "client" }))).toBe("OUT_OF_ORDER_SEQUENCE_NUMBER");
    expect(await codeOf(log.append(batch(0), { origin: "client" }))).toBe("appended");
  });

  test("a control batch that no coordinator sent", async () => {
    const log = await logFixture().open();
    const marker = { type: "commit", producerId: 7, producerEpoch: 0, coordinatorEpoch: 0, timestamp: 0 } as const;
    for (const origin of ["client", "local"] as const)
      expect(await codeOf(log.append(encodeEndTransactionMarker(marker), { origin }))).toBe("INVALID_RECORD");
  });

  test("a write that fails takes an opened, and an ended, transaction back", async () => {
    const fixture = logFixture();
    const log = await fixture.open();
    const txn = new Transactions(log);
    const full = { operation: "write", path: ".log", code: "ENOSPC" } as const;
    fixture.disk.inject(full);
    expect(await codeOf(txn.write(8, "x"))).toBe("KAFKA_STORAGE_ERROR");
    expect([log.lastStableOffset(), log.producers.size]).toEqual([0, 0]);
    await txn.write(7, "a");
    await log.append(batchOf(["plain"]), { origin: "client" });
    fixture.disk.inject(full);
    expect(await codeOf(txn.end("abort", 7))).toBe("KAFKA_STORAGE_ERROR");
    expect([log.lastStableOffset(), log.logEndOffset]).toEqual([0, 2]);
    await txn.end("abort", 7);
    expect(log.lastStableOffset()).toBe(3);
    expect(
      (await log.read({ fromOffset: toOffset(0), maxBytes: 9999, isolation: "read_committed" })).abortedTransactions,
    ).toEqual([{ producerId: 7, firstOffset: 0, lastOffset: 2, lastStableOffset: 3 }]);
  });
});

/** Three producers, two segments: 7 commits, 8 aborts over the border, 9 stays open. */
async function mixedLog(fixture: LogFixture): Promise<PartitionLog> {
  const log = await fixture.open();
  const txn = new Transactions(log);
  await txn.write(7, "a"); // 0
  await txn.write(8, "b", "c"); // 1, 2
  await txn.end("commit", 7); // 3
  await log.append(batchOf(["plain"]), { origin: "client" }); // 4
  await log.roll();
  await txn.write(8, "d"); // 5
  await txn.end("abort", 8); // 6
  await txn.write(7, "e"); // 7
  await txn.end("abort", 7); // 8
  await txn.write(7, "f"); // 9
  await txn.end("commit", 7); // 10
  await txn.write(9, "g"); // 11
  await log.append(batchOf(["plain"]), { origin: "client" }); // 12
  return log;
}

const COMMITTED = [0, 4, 9];
const ABORTED = [
  { producerId: 8, firstOffset: 1, lastOffset: 6, lastStableOffset: 7 },
  { producerId: 7, firstOffset: 7, lastOffset: 8, lastStableOffset: 9 },
];

describe("a reader of committed records", () => {
  test("sees what was committed, below the last stable offset, across segments", async () => {
    const log = await mixedLog(logFixture());
    expect(log.lastStableOffset()).toBe(11);
    expect(await committedRecords(log)).toEqual(COMMITTED);
    const all = await log.read({ fromOffset: toOffset(0), maxBytes: 9999 });
    expect(all.abortedTransactions).toBeUndefined();
  });

  test("is told of aborts whose markers lie in a later segment", async () => {
    const log = await mixedLog(logFixture());
    const read = await log.read({ fromOffset: toOffset(0), maxBytes: 9999, isolation: "read_committed" });
    expect(read.abortedTransactions).toEqual([ABORTED[0]]);
    const later = await log.read({ fromOffset: toOffset(7), maxBytes: 9999, isolation: "read_committed" });
    expect(later.abortedTransactions).toEqual([ABORTED[1]]);
  });

  test("sees nothing of a transaction whose marker the high watermark has not passed", async () => {
    const log = await mixedLog(logFixture());
    const read = await log.read({
      fromOffset: toOffset(0),
      maxBytes: 9999,
      isolation: "read_committed",
      limitOffset: toOffset(3),
    });
    expect(read.bytes.length).toBe(0);
  });
});

describe("transactions are known again", () => {
  const stops = ["closed", "killed", "without power"] as const;
  test.each(stops)("after the process was %s", async (how) => {
    const fixture = logFixture();
    const before = await mixedLog(fixture);
    const producers = new Map(before.producers);
    if (how === "closed") await before.close();
    else if (how === "killed") fixture.kill();
    else fixture.powerCut();
    const log = await fixture.open({ clean: how === "closed" });
    expect(log.lastStableOffset()).toBe(11);
    expect(log.producers).toEqual(producers);
    expect(await committedRecords(log)).toEqual(COMMITTED);
    const index = await fixture.readFile("00000000000000000005.txnindex");
    expect(index.length).toBe(2 * 34);
    await log.close();
    expect(await fixture.fileNames()).not.toContain("00000000000000000000.txnindex");
  });

  test("on a follower that got the bytes", async () => {
    const leader = await mixedLog(logFixture());
    const fixture = logFixture();
    const follower = await fixture.open({ epoch: "none" });
    for (const fromOffset of [0, 5]) {
      const { bytes } = await leader.read({ fromOffset: toOffset(fromOffset), maxBytes: 9999 });
      await follower.appendAsFollower(bytes);
    }
    expect(follower.lastStableOffset()).toBe(11);
    expect(follower.producers).toEqual(leader.producers);
    expect(await committedRecords(follower)).toEqual(COMMITTED);
  });

  test.each([13, 11, 9, 8, 7, 6, 5, 3, 1, 0])("after a truncation to %i: as if nothing above had been", async (end) => {
    const whole = await mixedLog(logFixture());
    const fixture = logFixture();
    const fresh = await fixture.open({ epoch: "none" });
    for (const fromOffset of [0, 5]) {
      const { bytes } = await whole.read({
        fromOffset: toOffset(fromOffset),
        maxBytes: 9999,
        limitOffset: toOffset(end),
        minOneBatch: true,
      });
      if (fromOffset < end) await fresh.appendAsFollower(bytes);
    }
    await whole.truncateTo(toOffset(end));
    for (const log of [whole, fresh]) await log.truncateTo(toOffset(end));
    expect(whole.lastStableOffset()).toBe(fresh.lastStableOffset());
    expect(whole.producers).toEqual(fresh.producers);
    expect(await committedRecords(whole)).toEqual(await committedRecords(fresh));
  });

  test("BR-019 without a transaction index, and with one of another log, an open tells the same aborts", async () => {
    for (const damage of [undefined, new Uint8Array(40), new Uint8Array(0)]) {
      const fixture = logFixture();
      const before = await mixedLog(fixture);
      await before.roll();
      await before.append(batchOf(["plain"]), { origin: "client" });
      await before.close();
      const name = "00000000000000000005.txnindex";
      const right = await fixture.readFile(name);
      if (damage === undefined) await fixture.disk.unlink(`${DIRECTORY}/${name}`);
      else await fixture.writeFile(name, damage);
      const log = await fixture.open({ clean: true });
      expect(log.recovery.transactionIndexProblems).toHaveLength(1);
      expect(await committedRecords(log)).toEqual(COMMITTED);
      expect(await fixture.readFile(name)).toEqual(right);
    }
  });

  test("an emptied control batch makes its producer known, and nothing of it", async () => {
    const fixture = logFixture();
    const log = await fixture.open({ epoch: "none" });
    const marker = { type: "commit", producerId: 7, producerEpoch: 0, coordinatorEpoch: 0, timestamp: 0 } as const;
    const empty = encodeEndTransactionMarker(marker).slice(0, 61);
    new DataView(empty.buffer).setInt32(8, 49);
    new DataView(empty.buffer).setInt32(57, 0);
    stampBatch(empty, 0, 0, 0);
    await log.appendAsFollower(concat(withCrc(empty), storedBatch(["a"], 1, 0)));
    expect(log.producers.get(7)).toMatchObject({ producerEpoch: -1, lastTimestamp: -1, batches: [] });
    expect(log.lastStableOffset()).toBe(2);
  });
});

function withCrc(batch: Uint8Array): Uint8Array {
  new DataView(batch.buffer).setUint32(17, crc32c(batch.subarray(21)));
  return batch;
}
