import { toOffset } from "@tidemark/base";
import { enumerateCrashImages, SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import type { DiskImage } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { LOG_SUFFIX, parseSegmentFileName, segmentFileName } from "./file-names.ts";
import { finishSwaps } from "./finish-swaps.ts";
import { removeLeftovers } from "./load-log.ts";
import { concat, DIRECTORY, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import { LogState } from "./log-state.ts";
import type { PartitionLog } from "./partition-log.ts";
import type { SegmentSettings } from "./segment.ts";
import { splitOverflowing } from "./split-overflow.ts";

const NAMES = ["a", "b", "c", "d", "e"];
/** Offsets are left out, as after a compaction. */
const OFFSETS = [0, 1, 5, 6, 9];
const RECORDS = NAMES.map((name, at) => `${OFFSETS[at]}:${name}`);
const BATCH_BYTES = storedBatch(["a"], 0, 0).length;
const FIRST_LOG = segmentFileName(toOffset(0), LOG_SUFFIX);

/** One segment of five batches, of another program's. @param behind them */
async function directory(behind: Uint8Array = new Uint8Array(0)): Promise<LogFixture> {
  const fixture = new LogFixture();
  await (await fixture.open({ epoch: "none" })).close();
  fixture.kill();
  const batches = OFFSETS.map((offset, at) => storedBatch([NAMES[at] ?? ""], offset, 0));
  await fixture.writeFile(FIRST_LOG, concat(...batches, behind));
  return fixture;
}

/** The part of an open that cuts segments up, with files of so many bytes at most; then an open. */
async function splitAndOpen(
  fixture: LogFixture,
  fileBytesMax: number,
): Promise<{ split: string[]; log: PartitionLog }> {
  const { files, clock, state } = fixture.environment;
  const settings: SegmentSettings = {
    files,
    clock,
    directory: DIRECTORY,
    indexBytesMax: 1 << 20,
    indexIntervalBytes: 0,
    drawRollMs: () => Number.MAX_SAFE_INTEGER,
    fileBytesMax,
  };
  const logState = new LogState(state, "orders", 0);
  await finishSwaps(settings, logState);
  const { names } = await removeLeftovers(files, DIRECTORY, toOffset(0));
  const baseOffsets = names.flatMap((name) => parseSegmentFileName(name, LOG_SUFFIX) ?? []).sort((a, b) => a - b);
  const split = await splitOverflowing(settings, logState, baseOffsets);
  return { split, log: await fixture.open({ epoch: "none", areGapsRecorded: false }) };
}

const layoutOf = (log: PartitionLog): string =>
  log.segments.map(({ baseOffset, sizeBytes }) => `${baseOffset}:${sizeBytes / BATCH_BYTES}`).join(" ");

describe("a segment of another program's with more bytes than an index can tell of", () => {
  test.each([
    ["of two batches", 2 * BATCH_BYTES, "0:2 5:2 9:1"],
    ["a byte short of three", 3 * BATCH_BYTES - 1, "0:2 5:2 9:1"],
    ["of three", 3 * BATCH_BYTES, "0:3 6:2"],
    ["of one", BATCH_BYTES, "0:1 1:1 5:1 6:1 9:1"],
    ["a byte short of all", 5 * BATCH_BYTES - 1, "0:4 9:1"],
  ])("is cut up at the last border that fits, for files %s", async (_name, fileBytesMax, layout) => {
    const fixture = await directory();
    const { split, log } = await splitAndOpen(fixture, fileBytesMax);
    expect([split, layoutOf(log), log.damaged, await recordsOf(log)]).toEqual([[FIRST_LOG], layout, [], RECORDS]);
    await log.close();
    fixture.kill();
    const again = await splitAndOpen(fixture, fileBytesMax);
    expect([again.split, layoutOf(again.log), await recordsOf(again.log)]).toEqual([[], layout, RECORDS]);
  });

  test("one that just fits stays, and so does a batch that is longer than a file may be", async () => {
    for (const fileBytesMax of [5 * BATCH_BYTES, 6 * BATCH_BYTES])
      expect((await splitAndOpen(await directory(), fileBytesMax)).split).toEqual([]);
    const { log } = await splitAndOpen(await directory(), BATCH_BYTES - 1);
    expect([layoutOf(log), await recordsOf(log)]).toEqual(["0:1 1:1 5:1 6:1 9:1", RECORDS]);
  });

  test("one before others is cut up by what it holds, though their offsets leave no room for too many", async () => {
    const fixture = await directory();
    await fixture.writeFile(segmentFileName(toOffset(10), LOG_SUFFIX), storedBatch(["f"], 10, 0));
    const { split, log } = await splitAndOpen(fixture, 3 * BATCH_BYTES);
    expect([split, layoutOf(log), await recordsOf(log)]).toEqual([[FIRST_LOG], "0:3 6:2 10:1", [...RECORDS, "10:f"]]);
  });

  test("keeps what is no batch in its last part, to be judged as in any segment", async () => {
    const { log } = await splitAndOpen(await directory(new Uint8Array(70)), 2 * BATCH_BYTES);
    expect([layoutOf(log), log.recovery.cut, await recordsOf(log)]).toMatchObject([
      "0:2 5:2 9:1",
      { offset: 10, bytesCut: 70 },
      RECORDS,
    ]);
  });

  test("a crash at any moment, and any loss of what was not synced, leaves the one layout or the other, and every record", async () => {
    const fixture = await directory();
    const from = fixture.disk.operationCount;
    await splitAndOpen(fixture, 2 * BATCH_BYTES);
    const images = new Map<string, DiskImage>();
    for (const point of [...fixture.disk.crashPoints()].filter(({ number }) => number >= from))
      for (const rule of ["ordered-prefix", "per-file-prefix", "any-subset", "missing-directory-entry"] as const)
        for (const image of enumerateCrashImages(point, rule, { outcomesMax: 12 })) images.set(image.digest, image);
    const layouts = new Set<string>();
    for (const image of images.values()) {
      const environment = new SimulatedEnvironment({ seed: 1 }, SimulatedDisk.fromImage(image));
      const names = await environment.files.list(DIRECTORY);
      layouts.add(names.filter((name) => /^[0-9]+[.]log/u.test(name)).join(" "));
      const { log } = await splitAndOpen(new LogFixture({}, environment), 2 * BATCH_BYTES);
      expect([layoutOf(log), log.damaged, await recordsOf(log)]).toEqual(["0:2 5:2 9:1", [], RECORDS]);
    }
    // The segment, some of its parts, some of them renamed, and all of them in place.
    expect([images.size > 60, layouts.size > 6]).toEqual([true, true]);
  });
});
