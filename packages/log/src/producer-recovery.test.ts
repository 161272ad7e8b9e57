import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import { PRODUCER_ID_EXPIRATION_CHECK_MS } from "./config.ts";
import { encodeBatchWithCounts } from "./counts.fixture.ts";
import { batchOf, concat, LogFixture, storedBatch } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

/** Ten batches of one record each by producer 7. */
function tenBatches(): Uint8Array[] {
  return Array.from({ length: 10 }, (_, at) => batchOf([`v${at}`], { id: 7, sequence: at }));
}

async function appendAll(log: PartitionLog, batches: readonly Uint8Array[]): Promise<void> {
  for (const batch of batches) await log.append(batch, { origin: "client" });
}

/** What the log answers to each batch, sent again: its offset, or a refusal. */
async function repeatAll(log: PartitionLog, batches: readonly Uint8Array[]): Promise<(number | string)[]> {
  const answers: (number | string)[] = [];
  for (const batch of batches) {
    answers.push(
      await log.append(batch, { origin: "client" }).then(
        ({ baseOffset, duplicate }) => (duplicate ? baseOffset : "appended"),
        (error: { code: string }) => error.code,
      ),
    );
  }
  return answers;
}

const LOST = "OUT_OF_ORDER_SEQUENCE_NUMBER";
const FIVE_KNOWN = [LOST, LOST, LOST, LOST, LOST, 5, 6, 7, 8, 9];

function snapshotNames(names: readonly string[]): number[] {
  return names.filter((name) => name.endsWith(".snapshot")).map((name) => Number.parseInt(name, 10));
}

describe("snapshots", () => {
  test("one is written at each roll and at the close, by the offset below which it knows everything", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    const [first, second, ...rest] = tenBatches();
    await appendAll(log, [first ?? fail(), second ?? fail()]);
    await log.roll();
    await appendAll(log, rest);
    expect(snapshotNames(await fixture.fileNames())).toEqual([2]);
    await log.close();
    expect(snapshotNames(await fixture.fileNames())).toEqual([2, 10]);
    // An end that did not move needs no other.
    const again = await fixture.open({ clean: true });
    await again.close();
    expect(snapshotNames(await fixture.fileNames())).toEqual([2, 10]);
  });

  test("those above a cut go before it, and one is written at the cut", async () => {
    const fixture = new LogFixture({ segmentBytes: 2 * batchOf(["v0"]).length });
    const log = await fixture.open();
    await appendAll(log, tenBatches());
    expect(snapshotNames(await fixture.fileNames())).toEqual([2, 4, 6, 8]);
    await log.truncateTo(toOffset(5));
    expect(snapshotNames(await fixture.fileNames())).toEqual([2, 4, 5]);
    expect(log.nextSequence(7)).toBe(5);
    await log.truncateFullyAndStartAt(toOffset(3));
    expect(snapshotNames(await fixture.fileNames())).toEqual([]);
    expect(log.producers.size).toBe(0);
  });

  test("an open removes those of no segment, above the end and at or below the start, as Kafka does", async () => {
    const fixture = new LogFixture({ segmentBytes: 2 * batchOf(["v0"]).length });
    const log = await fixture.open();
    await appendAll(log, tenBatches());
    await log.close();
    const bytes = await fixture.readFile("00000000000000000010.snapshot");
    for (const offset of ["00", "03", "09", "12"])
      await fixture.writeFile(`000000000000000000${offset}.snapshot`, bytes);
    await fixture.open({ clean: true });
    expect(snapshotNames(await fixture.fileNames())).toEqual([2, 4, 6, 8, 10]);
  });

  const damages: readonly (readonly [string, (bytes: Uint8Array) => Uint8Array])[] = [
    ["empty", () => new Uint8Array(0)],
    ["cut short", (bytes) => bytes.slice(0, -1)],
    ["of a wrong CRC", (bytes) => bytes.map((byte, at) => (at === 30 ? byte ^ 1 : byte))],
    ["of an unknown version", (bytes) => bytes.map((byte, at) => (at === 1 ? 2 : byte))],
    ["followed by other bytes", (bytes) => concat(bytes, new Uint8Array(46))],
  ];
  test.each(damages)(
    "BR-024 a snapshot that is %s is told of, removed, and made up for from the log",
    async (_, damage) => {
      for (const count of [1, 3, 6]) {
        const fixture = new LogFixture({ segmentBytes: 2 * batchOf(["v0"]).length });
        const before = await fixture.open();
        await appendAll(before, [batchOf(["x"], { id: 8 }), ...tenBatches()]);
        const known = new Map(before.producers);
        await before.close();
        const names = (await fixture.fileNames()).filter((name) => name.endsWith(".snapshot"));
        for (const name of names.slice(-count)) await fixture.writeFile(name, damage(await fixture.readFile(name)));
        const log = await fixture.open({ clean: true });
        expect(log.recovery.snapshotsDamaged.map(({ path }) => path.slice(-29))).toEqual(names.slice(-count).reverse());
        expect(log.producers).toEqual(known);
        await log.close();
        expect((await fixture.fileNames()).filter((name) => name.endsWith(".snapshot"))).toContain(names.at(-1));
      }
    },
  );

  test("a crash of the machine that keeps a snapshot and loses batches that it knows of is seen through", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open();
    const batches = tenBatches();
    await appendAll(log, batches.slice(0, 4));
    await log.close();
    const four = await fixture.readFile("00000000000000000000.log");
    const again = await fixture.open({ clean: true });
    await appendAll(again, batches.slice(4));
    await again.close();
    // The segment is as it was before its last batches, the snapshot as it was after them.
    fixture.kill();
    await fixture.writeFile("00000000000000000000.log", four);
    await fixture.environment.state.commit([{ key: "recovery-point/orders-0", value: new Uint8Array(8) }], {
      sync: true,
    });
    const left = await fixture.open();
    expect([left.logEndOffset, left.nextSequence(7)]).toEqual([4, 4]);
    expect(snapshotNames(await fixture.fileNames())).toEqual([4]);
  });
});

describe("BR-041 five batches are remembered", () => {
  test.each(["closed", "killed", "cut and written again", "led by another"] as const)(
    "when the log was %s",
    async (how) => {
      const fixture = new LogFixture({ segmentBytes: 12 * batchOf(["v0"]).length });
      let log = await fixture.open();
      const batches = tenBatches();
      await appendAll(log, batches);
      if (how === "closed") {
        await log.close();
        log = await fixture.open({ clean: true });
      } else if (how === "killed") {
        fixture.kill();
        log = await fixture.open();
      } else if (how === "cut and written again") {
        await log.truncateTo(toOffset(7));
        await appendAll(log, batches.slice(7));
      } else {
        await log.becomeFollower();
        await log.becomeLeader(toLeaderEpoch(5));
      }
      expect(await repeatAll(log, batches)).toEqual(FIVE_KNOWN);
      expect(log.logEndOffset).toBe(10);
    },
  );
});

describe("BR-042 a producer is known until it expires", () => {
  test("by the time of its last batch, which is looked at every ten minutes and at an open", async () => {
    const fixture = new LogFixture();
    const { clock, kernel } = fixture.environment;
    const log = await fixture.open({ producerIdExpirationMs: DAY_MS });
    const timestamp = clock.wallMs() - DAY_MS + 1;
    await log.append(batchOf(["a"], { id: 7, timestamp }), { origin: "client" });
    await expect(
      log.append(batchOf(["b"], { id: 7, sequence: 9, timestamp }), { origin: "client" }),
    ).rejects.toMatchObject({ code: "OUT_OF_ORDER_SEQUENCE_NUMBER" });
    await kernel.runFor(PRODUCER_ID_EXPIRATION_CHECK_MS * 1000);
    const { baseOffset } = await log.append(batchOf(["b"], { id: 7, sequence: 9, timestamp }), { origin: "client" });
    expect([baseOffset, log.nextSequence(7)]).toEqual([1, 10]);
    await log.close();
    // In the snapshot it is; the open leaves it out.
    const again = await fixture.open({ clean: true, producerIdExpirationMs: DAY_MS });
    expect(again.producers.size).toBe(0);
  });

  test("a producer with an open transaction does not expire", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open({ producerIdExpirationMs: 1 });
    await log.append(batchOf(["a"], { id: 7, transactional: true }), { origin: "local" });
    await fixture.environment.kernel.runFor(PRODUCER_ID_EXPIRATION_CHECK_MS * 1000);
    await log.append(batchOf(["b"]), { origin: "local" });
    expect([...log.producers.keys()]).toEqual([7]);
  });

  test("a new epoch begins at 0, and an unknown producer anywhere", async () => {
    const log = await new LogFixture().open();
    await log.append(batchOf(["a"], { id: 7, sequence: 50 }), { origin: "client" });
    await expect(
      log.append(batchOf(["b"], { id: 7, epoch: 1, sequence: 3 }), { origin: "client" }),
    ).rejects.toMatchObject({ code: "OUT_OF_ORDER_SEQUENCE_NUMBER", type: { expectedSequence: 0 } });
    await log.append(batchOf(["b"], { id: 7, epoch: 1, sequence: 0 }), { origin: "client" });
    await expect(
      log.append(batchOf(["c"], { id: 7, epoch: 0, sequence: 51 }), { origin: "client" }),
    ).rejects.toMatchObject({ code: "INVALID_PRODUCER_EPOCH" });
  });

  test("sequences go on with 0 after 2^31 - 1, inside a batch and between two", async () => {
    const log = await new LogFixture().open();
    const last = 2 ** 31 - 1;
    await log.append(batchOf(["a"], { id: 7, sequence: last - 2 }), { origin: "client" });
    await log.append(batchOf(["b", "c", "d"], { id: 7, sequence: last - 1 }), { origin: "client" });
    expect(log.nextSequence(7)).toBe(1);
    await log.append(batchOf(["e"], { id: 8, sequence: last }), { origin: "client" });
    expect(log.nextSequence(8)).toBe(0);
    const { duplicate } = await log.append(batchOf(["b", "c", "d"], { id: 7, sequence: last - 1 }), {
      origin: "client",
    });
    expect(duplicate).toBe(true);
  });
});

test("BR-043 a follower, and a recovery, take what the leader took: an unknown producer's later sequence, a lower epoch", async () => {
  const fixture = new LogFixture();
  let log = await fixture.open({ epoch: "none" });
  let offset = 0;
  const sent: [number, number][] = [
    [2, 50],
    [3, 0],
    [2, 51],
  ];
  for (const [epoch, sequence] of sent) {
    const batch = storedBatch(["a"], offset, 0, undefined, { id: 7, epoch, sequence });
    await log.appendAsFollower(batch);
    offset += 1;
  }
  expect([log.nextSequence(7), log.producers.get(7)?.producerEpoch]).toEqual([52, 2]);
  fixture.kill();
  for (const name of await fixture.fileNames())
    if (name.endsWith(".snapshot")) await fixture.disk.unlink(`data/orders-0/${name}`);
  log = await fixture.open({ epoch: "none" });
  expect([log.logEndOffset, log.nextSequence(7), log.producers.get(7)?.producerEpoch]).toEqual([3, 52, 2]);
});

test("BR-044 counts that do not add up are a client's fault while the CRC is right, and damage when it is not", async () => {
  const log = await new LogFixture().open();
  for (const counts of [
    { lastOffsetDelta: -1, recordsCount: 0 },
    { lastOffsetDelta: 0, recordsCount: 0 },
    { lastOffsetDelta: 0, recordsCount: -1 },
    { lastOffsetDelta: 2, recordsCount: 1 },
  ]) {
    const batch = encodeBatchWithCounts(counts);
    await expect(log.append(batch, { origin: "client" })).rejects.toMatchObject({ code: "INVALID_RECORD" });
    batch[40] = (batch[40] ?? 0) ^ 1;
    await expect(log.append(batch, { origin: "client" })).rejects.toMatchObject({ code: "CORRUPT_MESSAGE" });
  }
  expect(log.logEndOffset).toBe(0);
});

function fail(): never {
  throw new Error("there are ten batches");
}
