import { toOffset } from "@tidemark/base";
import { enumerateCrashImages, SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import type { DiskImage } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { segmentFileName } from "./file-names.ts";
import { batchOf, concat, DIRECTORY, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import { append, CONFIG, lead, ManagerFixture } from "./log-manager.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

// Cases from the field that are no other file's: their ids are those of the list in docs/conformance.md.

const BATCH_BYTES = batchOf(["x"]).length;
const VALUES = ["a", "b", "c", "d"];

describe("BR-006 a segment whose offsets lie too far apart for an index", () => {
  const FAR = 3_000_000_000;
  const NAMES = ["a", "b", "far", "later", "farther", "last"];
  const OFFSETS = [0, 1, FAR, FAR + 5, 2 * FAR, 2 * FAR + 1];
  const RECORDS = OFFSETS.map((offset, at) => `${offset}:${NAMES[at]}`);

  /** The directory as another program, or ours, may have left it. */
  async function directory(recoveryPoint: number): Promise<LogFixture> {
    const fixture = new LogFixture();
    await (await fixture.open({ epoch: "none" })).close();
    fixture.kill();
    const batches = OFFSETS.map((offset, at) => storedBatch([NAMES[at] ?? ""], offset, 0));
    await fixture.writeFile(segmentFileName(toOffset(0), ".log"), concat(...batches));
    const point = { key: "recovery-point/orders-0", value: int64(recoveryPoint) };
    await fixture.environment.state.commit([point], { sync: true });
    return fixture;
  }

  const layoutOf = (log: PartitionLog): number[] => log.segments.map(({ baseOffset }) => baseOffset);

  test.each([0, 2 * FAR + 2])("is cut up where another program wrote it, recovery point %i", async (recoveryPoint) => {
    const fixture = await directory(recoveryPoint);
    for (const [opens, areGapsRecorded] of [false, true, true].entries()) {
      const log = await fixture.open({ epoch: "none", areGapsRecorded, clean: opens === 2 });
      expect(layoutOf(log)).toEqual([0, FAR, 2 * FAR]);
      expect([log.damaged, log.recovery.cut, await recordsOf(log)]).toEqual([[], undefined, RECORDS]);
      expect(log.recovery.segmentsSplit).toEqual(opens === 0 ? [segmentFileName(toOffset(0), ".log")] : []);
      await log.close();
      fixture.kill();
    }
  });

  test("a crash at any moment, and any loss of what was not synced, leaves the one layout or the other, and every record", async () => {
    const fixture = await directory(2 * FAR + 2);
    const from = fixture.disk.operationCount;
    await fixture.open({ epoch: "none", areGapsRecorded: false });
    const images = new Map<string, DiskImage>();
    for (const point of [...fixture.disk.crashPoints()].filter(({ number }) => number >= from))
      for (const rule of ["ordered-prefix", "per-file-prefix", "any-subset", "missing-directory-entry"] as const)
        for (const image of enumerateCrashImages(point, rule, { outcomesMax: 12 })) images.set(image.digest, image);
    expect(images.size).toBeGreaterThan(60);
    const layouts = new Set<string>();
    for (const image of images.values()) {
      const environment = new SimulatedEnvironment({ seed: 1 }, SimulatedDisk.fromImage(image));
      const names = await environment.files.list(DIRECTORY);
      layouts.add(names.filter((name) => /^[0-9]+[.]log/u.test(name)).join(" "));
      const after = new LogFixture({}, environment);
      const log = await after.open({ epoch: "none", areGapsRecorded: false });
      expect([layoutOf(log), log.damaged, await recordsOf(log)]).toEqual([[0, FAR, 2 * FAR], [], RECORDS]);
    }
    // The segment, its parts, some of them renamed, and all of them in place.
    expect(layouts.size).toBeGreaterThan(6);
  });

  test("keeps what is no batch in its last part, to be judged as in any segment", async () => {
    const fixture = await directory(0);
    const path = segmentFileName(toOffset(0), ".log");
    const bytes = await fixture.readFile(path);
    await fixture.writeFile(path, bytes.subarray(0, bytes.length - 1));
    const log = await fixture.open({ epoch: "none", areGapsRecorded: false });
    expect([layoutOf(log), log.damaged, log.recovery.cut?.offset]).toEqual([[0, FAR, 2 * FAR], [], 2 * FAR + 1]);
    expect(await recordsOf(log)).toEqual(RECORDS.slice(0, -1));
  });

  test("is none of ours: no CRC covers an offset, and it ends there, or is damaged where that was durable", async () => {
    const cut = await (await directory(0)).open({ epoch: "none" });
    expect([cut.logEndOffset, cut.damaged, await recordsOf(cut)]).toEqual([2, [], RECORDS.slice(0, 2)]);
    const damaged = await (await directory(2 * FAR + 2)).open({ epoch: "none" });
    expect(damaged.damaged[0]).toMatchObject({ fromOffset: 2 });
    expect(damaged.refusal).toMatchObject({ code: "KAFKA_STORAGE_ERROR" });
  });
});

test("BR-017 an index whose last entry is that of the segment's first offset is no damage", async () => {
  for (const base of [0, 1]) {
    const fixture = new LogFixture({ segmentBytes: BATCH_BYTES });
    const before = await fixture.open();
    for (const value of ["x", "y"]) await before.append(batchOf([value]), { origin: "local" });
    await before.close();
    fixture.kill();
    // Relative offset 0 at byte 0: ours cannot tell it from the room that Kafka leaves in the active segment's index.
    await fixture.writeFile(segmentFileName(toOffset(base), ".index"), new Uint8Array(8));
    const log = await fixture.open({ clean: true });
    expect([log.damaged, log.recovery.cut, await recordsOf(log)]).toEqual([[], undefined, ["0:x", "1:y"]]);
  }
});

test("BR-023 a segment that a broker was about to swap in, all of it below the log start", async () => {
  const fixture = new LogFixture({ segmentBytes: 2 * BATCH_BYTES });
  const before = await fixture.open();
  for (let sequence = 0; sequence < 6; sequence += 1)
    await before.append(batchOf(["x"], { id: 7, sequence }), { origin: "client" });
  await before.close();
  fixture.kill();
  const [log, swap] = [".log", ".log.swap"].map((suffix) => `${DIRECTORY}/${segmentFileName(toOffset(0), suffix)}`);
  await fixture.disk.rename(log ?? "", swap ?? "");
  await fixture.environment.state.commit([{ key: "log-start/orders-0", value: int64(3) }], { sync: true });
  for (const clean of [true, false]) {
    const opened = await fixture.open({ clean, areGapsRecorded: false });
    expect([opened.logStartOffset, opened.damaged, await recordsOf(opened)]).toEqual([3, [], ["3:x", "4:x", "5:x"]]);
    expect(opened.nextSequence(7)).toBe(6);
    fixture.kill();
  }
});

test.each(["always", "none"] as const)(
  "BR-025 flush %s: a segment that was begun and flushed is there after a power cut, with what its epoch file says",
  async (flush) => {
    const fixture = new LogFixture({ segmentBytes: BATCH_BYTES, flush });
    const before = await fixture.open({ epoch: 3 });
    for (const value of ["a", "b", "c"]) await before.append(batchOf([value]), { origin: "local" });
    await before.flush();
    fixture.powerCut();
    const log = await fixture.open({ epoch: "none" });
    expect([log.damaged, await recordsOf(log)]).toEqual([[], ["0:a", "1:b", "2:c"]]);
    expect([log.epochEntries, log.recovery.epochsRebuilt]).toEqual([[{ epoch: 3, startOffset: 0 }], false]);
  },
);

test("BR-059 a topic that goes while its log rolls, flushes and compacts harms no other, and no rejection is left over", async () => {
  for (let delay = 0; delay < 12; delay += 1) {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    for (const name of ["doomed", "kept"])
      await manager.createTopic(name, 1, { ...CONFIG, segmentBytes: 4 * BATCH_BYTES, flush: "none" });
    const [doomed, kept] = [await lead(manager, "doomed"), await lead(manager, "kept")];
    await append(doomed, ...VALUES, ...VALUES);
    const background = [
      append(doomed, ...VALUES, ...VALUES),
      doomed.roll(),
      doomed.flushInBackground(),
      doomed.compact(),
      doomed.deleteOldSegments(),
      append(kept, ...VALUES),
    ];
    const outcomes = Promise.allSettled(background);
    for (let turn = 0; turn < delay; turn += 1) await Promise.resolve();
    await manager.deleteTopic("doomed");
    expect((await outcomes).at(-1)).toMatchObject({ status: "fulfilled" });
    expect([manager.directory.offlineError, manager.partition("doomed", 0)]).toEqual([undefined, undefined]);
    expect(await recordsOf(kept)).toEqual(["0:a", "1:b", "2:c", "3:d"]);
    expect(await manager.close()).toEqual({ isClean: true, reason: undefined });
  }
});

test("BR-059 a segment that somebody removed by hand is its partition's loss, not the disk's", async () => {
  const fixture = new ManagerFixture();
  const manager = await fixture.open();
  for (const name of ["robbed", "kept"]) await manager.createTopic(name, 1, { ...CONFIG, segmentBytes: 80 });
  const [robbed, kept] = [await lead(manager, "robbed"), await lead(manager, "kept")];
  for (let number = 0; number < 40; number += 1) await append(robbed, "a");
  await fixture.files.unlink(`data/robbed-0/${segmentFileName(toOffset(0), ".log")}`);
  await expect(robbed.read({ fromOffset: toOffset(0), maxBytes: 100 })).rejects.toMatchObject({
    type: { code: "KAFKA_STORAGE_ERROR", failure: "ENOENT" },
  });
  await append(kept, "a");
  expect([manager.directory.isOnline, await recordsOf(kept)]).toEqual([true, ["0:a"]]);
});

function int64(value: number): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, BigInt(value));
  return bytes;
}
