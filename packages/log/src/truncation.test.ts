import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { SimulatedCrash } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { batchOf, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import { OffsetIndex } from "./offset-index.ts";
import type { PartitionLog } from "./partition-log.ts";

function epochsOf(log: PartitionLog): string {
  return log.epochEntries.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
}

async function logWithEpochs(fixture: LogFixture): Promise<PartitionLog> {
  const log = await fixture.open({ epoch: "none" });
  for (const [epoch, count] of [
    [0, 10],
    [1, 6],
    [2, 4],
  ] as const) {
    await log.becomeLeader(toLeaderEpoch(epoch));
    for (let at = 0; at < count; at += 1) await log.append(batchOf([`${epoch}.${at}`]), { origin: "local" });
  }
  return log;
}

const SIZE = batchOf(["0.0"]).length;

describe("truncateTo", () => {
  test("LG-03 the epoch cache follows the cut", async () => {
    const log = await logWithEpochs(new LogFixture({ segmentBytes: 4 * SIZE }));
    const seen: string[] = [];
    for (const offset of [20, 11, 10, 0]) {
      await log.truncateTo(toOffset(offset));
      seen.push(`${log.logEndOffset}: ${epochsOf(log)}`);
    }
    expect(seen).toEqual(["20: 0@0 1@10 2@16", "11: 0@0 1@10", "10: 0@0", "0: "]);
  });

  test("LG-04 BR-027 at the log end only epochs without batches go", async () => {
    const log = await new LogFixture().open({ epoch: "none" });
    await log.truncateFullyAndStartAt(toOffset(27));
    await log.appendAsFollower(storedBatch(["a"], 27, 19));
    await log.appendAsFollower(storedBatch(["b"], 28, 19));
    for (const [epoch, offset] of [
      [20, 29],
      [24, 30],
    ] as const) {
      await log.becomeLeader(toLeaderEpoch(epoch));
      await log.truncateTo(toOffset(offset));
      expect([epochsOf(log), log.logEndOffset]).toEqual(["19@27", 29]);
    }
  });

  test.each([
    ["inside a segment", 9, [0, 4, 8]],
    ["at a segment border: the segment stays, empty", 8, [0, 4, 8]],
    ["into the first segment", 1, [0]],
    ["to the start", 0, [0]],
  ])("%s", async (_name, offset, bases) => {
    for (const stop of ["none", "kill", "power cut", "clean"] as const) {
      const fixture = new LogFixture({ segmentBytes: 4 * SIZE, indexIntervalBytes: SIZE });
      let log = await logWithEpochs(fixture);
      const before = await recordsOf(log);
      await log.truncateTo(toOffset(offset));
      if (stop === "clean") await log.close();
      if (stop === "power cut") fixture.powerCut();
      if (stop === "kill" || stop === "clean") fixture.kill();
      if (stop !== "none") log = await fixture.open({ clean: stop === "clean", epoch: "none" });
      expect([stop, log.logEndOffset]).toEqual([stop, offset]);
      expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual(bases);
      expect(await recordsOf(log)).toEqual(before.slice(0, offset));
      expect(log.damaged).toEqual([]);
      await log.becomeLeader(toLeaderEpoch(7));
      await log.append(batchOf(["new"]), { origin: "local" });
      expect((await recordsOf(log)).at(-1)).toBe(`${offset}:new`);
    }
  });

  test("LG-17 LG-19 a cut inside a batch takes the whole batch, the log ends at the offset; after a restart it ends with the batch before", async () => {
    const fixture = new LogFixture();
    let log = await fixture.open();
    await log.append(batchOf(["a", "b", "c", "d", "e"]), { origin: "local" });
    await log.append(batchOf(["f", "g", "h", "i", "j"]), { origin: "local" });
    await log.truncateTo(toOffset(9));
    expect([log.logEndOffset, log.flushedEndOffset, log.recoveryPoint]).toEqual([9, 9, 0]);
    fixture.kill();
    log = await fixture.open({ epoch: "none" });
    expect([log.logEndOffset, log.damaged]).toEqual([5, []]);
  });

  test("a clean stop behind such a cut is believed when a segment begins there", async () => {
    const fixture = new LogFixture();
    let log = await fixture.open();
    await log.append(batchOf(["a", "b", "c", "d", "e"]), { origin: "local" });
    await log.append(batchOf(["f", "g", "h", "i", "j"]), { origin: "local" });
    await log.truncateTo(toOffset(9));
    await log.roll();
    expect(await log.close()).toBe(true);
    fixture.kill();
    log = await fixture.open({ clean: true, epoch: "none" });
    expect([log.logEndOffset, log.damaged, log.recovery.segmentsScanned]).toEqual([9, [], 0]);
  });

  test.each([15, 17, 13])(
    "a cut to %i that leaves nothing but deleted records: the log begins at its start after a restart",
    async (offset) => {
      for (const stop of ["kill", "power cut", "clean"] as const) {
        const fixture = new LogFixture();
        let log = await fixture.open({ epoch: "none" });
        await log.truncateFullyAndStartAt(toOffset(10));
        await log.appendAsFollower(storedBatch(["a"], 10, 3));
        await log.appendAsFollower(storedBatch("b c d e f g h i j k".split(" "), 11, 3));
        await log.deleteRecords(toOffset(15));
        await log.truncateTo(toOffset(offset));
        const start = Math.min(offset, 15);
        expect([log.logStartOffset, log.logEndOffset]).toEqual([start, offset]);
        if (stop === "clean") expect(await log.close()).toBe(true);
        if (stop === "power cut") fixture.powerCut();
        else fixture.kill();
        log = await fixture.open({ clean: stop === "clean", epoch: "none" });
        expect([stop, log.logStartOffset, log.logEndOffset, log.damaged]).toEqual([stop, start, start, []]);
        await log.appendAsFollower(storedBatch(["l"], start, 4));
        expect(await recordsOf(log)).toEqual([`${start}:l`]);
      }
    },
  );

  test("LG-08 below the first segment everything goes", async () => {
    const log = await new LogFixture().open();
    await log.truncateFullyAndStartAt(toOffset(50));
    await log.append(batchOf(["a"]), { origin: "local" });
    await log.truncateTo(toOffset(30));
    expect([log.logStartOffset, log.logEndOffset, log.segments.map(({ baseOffset }) => baseOffset)]).toEqual([
      30,
      30,
      [30],
    ]);
  });

  test("the lowered recovery point is durable before a byte goes", async () => {
    const fixture = new LogFixture({ segmentBytes: 4 * SIZE });
    const log = await logWithEpochs(fixture);
    const before = fixture.disk.history.length;
    await log.truncateTo(toOffset(9));
    const operations = fixture.disk.history.slice(before);
    expect(operations[0]).toMatchObject({ type: "commit", sync: true });
    expect(operations.findIndex(({ type }) => type === "unlink")).toBeGreaterThan(0);
    expect(log.recoveryPoint).toBe(9);
  });

  test("segments go newest first, so that a crash in between leaves no hole", async () => {
    const fixture = new LogFixture({ segmentBytes: 4 * SIZE });
    const log = await logWithEpochs(fixture);
    const before = fixture.disk.history.length;
    await log.truncateTo(toOffset(2));
    const removed = fixture.disk.history
      .slice(before)
      .flatMap((operation) =>
        operation.type === "unlink" && operation.path.endsWith(".log") ? [operation.path.slice(-8)] : [],
      );
    expect(removed).toEqual(["0016.log", "0012.log", "0008.log", "0004.log"]);
  });
});

describe("the index file after a cut", () => {
  test.each(["none", "always"] as const)(
    "flush %s: a segment that is cut and then sealed keeps no entry behind the cut, so that a clean open trusts it",
    async (flush) => {
      for (let offset = 1; offset < 12; offset += 1) {
        const fixture = new LogFixture({ flush, segmentBytes: 100 * SIZE, indexIntervalBytes: 0 });
        let log = await logWithEpochs(fixture);
        await log.close();
        fixture.kill();
        log = await fixture.open({ clean: true, epoch: "none" });
        await log.truncateTo(toOffset(offset));
        await log.roll();
        await log.becomeLeader(toLeaderEpoch(7));
        await log.append(batchOf(["new"]), { origin: "local" });
        await log.close();
        fixture.kill();
        const index = OffsetIndex.decode(toOffset(0), await fixture.readFile("00000000000000000000.index"));
        expect(index?.lastEntry?.offset ?? -1).toBeLessThan(offset);
        log = await fixture.open({ clean: true, epoch: "none" });
        expect([offset, log.recovery.indexesRebuilt, log.logEndOffset]).toEqual([offset, 0, offset + 1]);
      }
    },
  );
});

describe("truncateFullyAndStartAt", () => {
  test("LG-07 start, end and epochs", async () => {
    for (const stop of ["none", "kill", "power cut"] as const) {
      const fixture = new LogFixture({ segmentBytes: 4 * SIZE });
      let log = await logWithEpochs(fixture);
      await log.truncateFullyAndStartAt(toOffset(1000));
      if (stop === "kill") fixture.kill();
      if (stop === "power cut") fixture.powerCut();
      if (stop !== "none") log = await fixture.open({ epoch: "none" });
      expect([log.logStartOffset, log.logEndOffset, log.flushedEndOffset, epochsOf(log), log.damaged]).toEqual([
        1000,
        1000,
        1000,
        "",
        [],
      ]);
    }
  });

  test("a power cut at any moment leaves the old log, a front part of it, or the new one", async () => {
    const whole = Array.from({ length: 20 }, (_, at) => at);
    let seen = 0;
    for (let operations = 0; ; operations += 1) {
      const fixture = new LogFixture({ segmentBytes: 4 * SIZE });
      const log = await logWithEpochs(fixture);
      fixture.disk.crashAfter(operations);
      const done = log.truncateFullyAndStartAt(toOffset(1000)).then(
        () => "done",
        (error: Error) => (error.cause instanceof SimulatedCrash ? "crashed" : Promise.reject(error)),
      );
      const outcome = await Promise.race([
        done,
        new Promise<string>((resolve) => setTimeout(() => resolve("crashed"), 1)),
      ]);
      if (outcome === "done") break;
      fixture.powerCut();
      const again = await fixture.open({ epoch: "none" });
      expect(again.damaged).toEqual([]);
      if (again.logStartOffset === 0)
        expect((await recordsOf(again)).map((record) => Number.parseInt(record, 10))).toEqual(
          whole.slice(0, again.logEndOffset),
        );
      else expect([again.logStartOffset, again.logEndOffset]).toEqual([1000, 1000]);
      const { logStartOffset, logEndOffset } = again;
      const isClosed = operations % 2 === 0;
      if (isClosed) await again.close();
      fixture.kill();
      for (const clean of [isClosed, false]) {
        const later = await fixture.open({ clean, epoch: "none" });
        expect([later.damaged, later.logStartOffset, later.logEndOffset]).toEqual([[], logStartOffset, logEndOffset]);
        fixture.kill();
      }
      seen += 1;
    }
    expect(seen).toBeGreaterThan(10);
  });
});

describe("BR-009 reads that overlap a truncation", () => {
  test("answer records, nothing, or OFFSET_OUT_OF_RANGE, never bytes that were cut", async () => {
    const fixture = new LogFixture({ segmentBytes: 4 * SIZE });
    for (let delay = 0; delay < 30; delay += 1) {
      const log = await logWithEpochs(new LogFixture({ segmentBytes: 4 * SIZE }));
      const truncation = log.truncateTo(toOffset(9));
      for (let turn = 0; turn < delay; turn += 1) await Promise.resolve();
      const outcome = await log.read({ fromOffset: toOffset(8), maxBytes: 10_000 }).then(
        ({ bytes }) => bytes.length,
        (error: { code: string }) => error.code,
      );
      await truncation;
      expect([SIZE, 4 * SIZE]).toContain(outcome);
      expect(
        await log.read({ fromOffset: toOffset(15), maxBytes: 10 }).catch((error: { code: string }) => error.code),
      ).toBe("OFFSET_OUT_OF_RANGE");
    }
    expect(fixture.disk.openFileCount).toBe(0);
  });
});
