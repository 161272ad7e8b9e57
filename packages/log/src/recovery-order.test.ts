import { toOffset } from "@tidemark/base";
import { encodeLeaderEpochCheckpoint } from "@tidemark/epoch-cache";
import { describe, expect, test } from "vitest";
import { batchOf, concat, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

const RECOVERY_POINT = "recovery-point/orders-0";

async function appendEach(log: PartitionLog, values: readonly string[]): Promise<void> {
  for (const value of values) await log.append(batchOf([value]), { origin: "local" });
}

describe("the recovery point after a crash", () => {
  test.each([
    ["the fresh copy cannot be synced", { operation: "sync", path: ".log.tmp", code: "EIO" }],
    ["the index of a sealed segment cannot be written", { operation: "write", path: ".index.tmp", code: "ENOSPC" }],
    ["the epoch file cannot be written", { operation: "write", path: "leader-epoch-checkpoint.tmp", code: "ENOSPC" }],
  ] as const)("stays where it was when %s: the next open looks as far as this one", async (_name, fault) => {
    const fixture = new LogFixture({ segmentBytes: 200, indexIntervalBytes: 0 });
    await appendEach(await fixture.open({ epoch: 3 }), ["a", "b", "c"]);
    const unknown = new Uint8Array(8);
    await fixture.environment.state.commit([{ key: RECOVERY_POINT, value: unknown }], { sync: true });
    fixture.kill();
    const injected = fixture.disk.inject(fault);
    await expect(fixture.open({ epoch: "none" })).rejects.toMatchObject({ code: "KAFKA_STORAGE_ERROR" });
    expect([injected.hits, fixture.environment.state.get(RECOVERY_POINT)]).toEqual([1, unknown]);
    fixture.kill();
    const log = await fixture.open({ epoch: "none" });
    expect([log.recoveryPoint, log.flushedEndOffset]).toEqual([3, 3]);
    fixture.powerCut();
    expect(await recordsOf(await fixture.open())).toEqual(["0:a", "1:b", "2:c"]);
  });

  test("flush none: what a killed process left is not taken for durable, so that a power cut later is no damage", async () => {
    const fixture = new LogFixture({ flush: "none" });
    await appendEach(await fixture.open({ epoch: 0 }), ["a"]);
    fixture.kill();
    const log = await fixture.open({ epoch: "none" });
    expect([log.logEndOffset, log.flushedEndOffset, log.recoveryPoint]).toEqual([1, 0, 0]);
    fixture.powerCut();
    const again = await fixture.open({ epoch: "none" });
    // The open synced the last segment, for a cut that the killed process may have left in it, and claims nothing from that.
    expect([again.logEndOffset, again.recoveryPoint, again.damaged]).toEqual([1, 0, []]);
  });
});

describe("a clean stop", () => {
  test("is not believed when the log goes on behind the place where it stopped: what is there is checked", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open({ epoch: 0 });
    await appendEach(log, ["a", "b"]);
    expect(await log.close()).toBe(true);
    fixture.kill();
    const name = "00000000000000000000.log";
    const foreign = storedBatch(["c"], 2, 0);
    foreign[foreign.length - 2] = 0; // Its header is right, its CRC is not.
    await fixture.writeFile(name, foreign, (await fixture.readFile(name)).length);
    const again = await fixture.open({ clean: true, epoch: "none" });
    expect([again.logEndOffset, again.recovery.cut?.reason]).toEqual([2, "CRC"]);
  });
});

describe("leader epochs that fall", () => {
  test("are no damage below the recovery point, where another program may have written them", async () => {
    for (const [recoveryPoint, end] of [
      [2, 2],
      [0, 1],
    ]) {
      const fixture = new LogFixture();
      await (await fixture.open({ epoch: "none" })).close();
      fixture.kill();
      await fixture.writeFile("00000000000000000000.log", concat(storedBatch(["a"], 0, 2), storedBatch(["b"], 1, 1)));
      const value = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, recoveryPoint ?? 0);
      await fixture.environment.state.commit([{ key: RECOVERY_POINT, value }], { sync: true });
      const log = await fixture.open({ epoch: "none" });
      expect([recoveryPoint, log.logEndOffset, log.damaged]).toEqual([recoveryPoint, end, []]);
    }
  });
});

describe("what lies behind a cut", () => {
  test("goes newest first, before the cut itself, so that a crash in between leaves no hole", async () => {
    const size = batchOf(["0"]).length;
    const fixture = new LogFixture({ segmentBytes: 2 * size });
    await appendEach(await fixture.open({ epoch: 0 }), ["0", "1", "2", "3", "4", "5", "6"]);
    await fixture.environment.state.commit([{ key: RECOVERY_POINT, value: new Uint8Array(8) }], { sync: true });
    fixture.kill();
    const bytes = await fixture.readFile("00000000000000000000.log");
    bytes[bytes.length - 2] = 0x7f;
    await fixture.writeFile("00000000000000000000.log", bytes);
    const before = fixture.disk.history.length;
    const log = await fixture.open({ epoch: "none" });
    expect(log.logEndOffset).toBe(1);
    const steps = fixture.disk.history
      .slice(before)
      .flatMap((operation) =>
        (operation.type === "unlink" || operation.type === "truncate") && operation.path.endsWith(".log")
          ? [`${operation.type} ${operation.path.slice(-6)}`]
          : [],
      );
    expect(steps).toEqual(["unlink 06.log", "unlink 04.log", "unlink 02.log", "truncate 00.log"]);
  });
});

describe("the epoch file after a crash", () => {
  test("above the recovery point it has no say against the batches: an epoch of which there is none goes", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open({ epoch: 0 });
    await appendEach(log, ["a", "b", "c", "d"]);
    fixture.kill();
    const stale = [
      { epoch: 0, startOffset: 0 },
      { epoch: 5, startOffset: 2 },
    ].map(({ epoch, startOffset }) => ({ epoch, startOffset: toOffset(startOffset) }));
    await fixture.writeFile("leader-epoch-checkpoint", encodeLeaderEpochCheckpoint(stale as never));
    const again = await fixture.open({ epoch: "none" });
    expect(again.epochEntries).toEqual([{ epoch: 0, startOffset: 0 }]);
  });
});

describe("the index after a crash", () => {
  test("is the one that the scan made where it scanned: an empty file, as a crash leaves it, would make reads walk", async () => {
    const fixture = new LogFixture({ indexIntervalBytes: 0 });
    await appendEach(await fixture.open(), ["a", "b", "c", "d"]);
    fixture.kill();
    const log = await fixture.open({ epoch: "none" });
    expect(log.segments.map(({ indexEntries }) => indexEntries)).toEqual([3]);
  });
});

test("a batch of the log's own start keeps its epoch when the file begins below it", async () => {
  const fixture = new LogFixture();
  let log = await fixture.open({ epoch: "none" });
  await log.truncateFullyAndStartAt(toOffset(10));
  await log.appendAsFollower(storedBatch(["a"], 10, 4));
  await log.close();
  fixture.kill();
  const below = [{ epoch: 4, startOffset: toOffset(3) }];
  await fixture.writeFile("leader-epoch-checkpoint", encodeLeaderEpochCheckpoint(below as never));
  log = await fixture.open({ clean: true, epoch: "none" });
  expect(log.epochEntries).toEqual([{ epoch: 4, startOffset: 10 }]);
});
