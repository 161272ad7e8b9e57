import { decodeUtf8, toOffset } from "@tidemark/base";
import { SimulatedCrash } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { batchesIn, batchOf, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

const SIZE = storedBatch(["0"], 0, 0).length;

/** Offsets 0 to 19 in epochs that begin at `epochStarts`; segments of four. */
async function followerLog(fixture: LogFixture, epochStarts: readonly number[] = [0, 10, 16]): Promise<PartitionLog> {
  const log = await fixture.open({ epoch: "none" });
  for (let offset = 0; offset < 20; offset += 1) {
    const epoch = epochStarts.findLastIndex((startOffset) => startOffset <= offset);
    await log.appendAsFollower(storedBatch([String(offset % 10)], offset, epoch));
  }
  return log;
}

describe("truncateTo, followed by the leader's batches", () => {
  test.each([
    ["in a new epoch", [0, 10, 16], 1],
    ["in the same epoch, whose file stays as it is", [0], 0],
  ])("segments that were removed do not come back behind what was appended %s", async (_name, epochStarts, epoch) => {
    const fixture = new LogFixture({ segmentBytes: 4 * SIZE });
    const log = await followerLog(fixture, epochStarts);
    await log.truncateTo(toOffset(9));
    // Just up to where the next segment began that was removed, in epochs that are no higher than its own.
    for (const offset of [9, 10, 11]) await log.appendAsFollower(storedBatch(["n"], offset, epoch));
    fixture.powerCut();
    const again = await fixture.open({ epoch: "none" });
    expect([again.logEndOffset, again.damaged]).toEqual([12, []]);
    expect((await recordsOf(again)).slice(8)).toEqual(["8:8", "9:n", "10:n", "11:n"]);
  });

  test("the epochs that were cut leave the file with the cut, though no new epoch begins", async () => {
    for (const stop of ["kill", "power cut"] as const) {
      const fixture = new LogFixture({ segmentBytes: 4 * SIZE });
      const log = await followerLog(fixture);
      await log.truncateTo(toOffset(9));
      expect(decodeUtf8(await fixture.readFile("leader-epoch-checkpoint"))).toBe("0\n1\n0 0\n");
      for (let offset = 9; offset < 20; offset += 1) await log.appendAsFollower(storedBatch(["n"], offset, 0));
      expect(log.recoveryPoint).toBeGreaterThan(10);
      if (stop === "kill") fixture.kill();
      else fixture.powerCut();
      const again = await fixture.open({ epoch: "none" });
      expect([again.logEndOffset, again.epochEntries]).toEqual([20, [{ epoch: 0, startOffset: 0 }]]);
    }
  });
});

describe("truncateFullyAndStartAt", () => {
  test("a process that dies at any moment leaves the old log, a front part of it, or the new one, and no damage", async () => {
    let seen = 0;
    for (let operations = 0; ; operations += 1) {
      const fixture = new LogFixture({ segmentBytes: 4 * SIZE });
      const log = await followerLog(fixture);
      fixture.disk.crashAfter(operations);
      const done = log.truncateFullyAndStartAt(toOffset(1000)).then(
        () => "done",
        (error: Error) => (error.cause instanceof SimulatedCrash ? "crashed" : Promise.reject(error)),
      );
      const crashed = new Promise<string>((resolve) => setTimeout(() => resolve("crashed"), 1));
      if ((await Promise.race([done, crashed])) === "done") break;
      fixture.kill();
      const again = await fixture.open({ epoch: "none" });
      expect([operations, again.damaged]).toEqual([operations, []]);
      if (again.logStartOffset !== 0) expect([again.logStartOffset, again.logEndOffset]).toEqual([1000, 1000]);
      seen += 1;
    }
    expect(seen).toBeGreaterThan(10);
  });

  test("the recovery point is lowered first, and the epochs are gone before the new start is durable", async () => {
    const fixture = new LogFixture({ segmentBytes: 4 * SIZE });
    const log = await followerLog(fixture);
    const before = fixture.disk.history.length;
    await log.truncateFullyAndStartAt(toOffset(1000));
    const operations = fixture.disk.history.slice(before);
    const commits = operations.flatMap((operation, at) => (operation.type === "commit" ? [at] : []));
    const epochsWritten = operations.findIndex(({ type }) => type === "rename");
    expect(operations[0]).toMatchObject({ type: "commit", sync: true });
    expect(epochsWritten).toBeGreaterThan(0);
    expect(commits.at(-1)).toBeGreaterThan(epochsWritten);
    expect(operations[commits.at(-1) ?? -1]).toMatchObject({ sync: true });
  });

  test("producers go with their batches: what one appended before is no repetition", async () => {
    const log = await new LogFixture().open();
    const batch = batchOf(["a"], { id: 1, sequence: 0 });
    await log.append(batch, { origin: "client" });
    await log.truncateFullyAndStartAt(toOffset(1000));
    expect(log.nextSequence(1)).toBeUndefined();
    expect(await log.append(batch, { origin: "client" })).toEqual({
      baseOffset: 1000,
      lastOffset: 1000,
      duplicate: false,
    });
  });
});

describe("BR-009 a read that a truncation overtakes", () => {
  test("begins again: it never answers from the middle of what was written in place of the cut", async () => {
    const SLICE_BYTES = 600_000;
    const large = "x".repeat(400_000); // Its bytes come through the pool, so that others run in between.
    const fixture = new LogFixture();
    const { disk } = fixture;
    let onSliceRead: (() => void) | undefined;
    let changesDone: Promise<unknown> = Promise.resolve();
    const open = disk.open.bind(disk);
    disk.open = async (path, mode) => {
      const file = await open(path, mode);
      const readAt = file.readAt.bind(file);
      file.readAt = async (target, positionBytes) => {
        if (target.length === SLICE_BYTES) {
          onSliceRead?.();
          await changesDone;
        }
        return readAt(target, positionBytes);
      };
      return file;
    };
    const log = await fixture.open();
    for (let at = 0; at < 4; at += 1) await log.append(batchOf([large]), { origin: "local" });
    const sliceRead = new Promise<void>((resolve) => {
      onSliceRead = () => {
        onSliceRead = undefined;
        // Its place is known already; now other batches come to lie there.
        changesDone = Promise.all([
          log.truncateTo(toOffset(1)),
          log.append(batchOf(["y".repeat(500_000)]), { origin: "local" }),
          log.append(batchOf(["z".repeat(1_000_000)]), { origin: "local" }),
        ]);
        resolve();
      };
    });
    const read = log.read({ fromOffset: toOffset(2), maxBytes: SLICE_BYTES });
    await sliceRead;
    const headers = batchesIn((await read).bytes);
    expect(headers.map(({ baseOffset }) => baseOffset)).toEqual([2]);
    expect(headers[0]?.sizeInBytes).toBeGreaterThan(1_000_000);
  });
});
