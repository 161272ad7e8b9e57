import { describe, expect, test } from "vitest";
import { append, CONFIG, DATA, lead } from "./log-manager.fixture.ts";
import type { ManagerFixture } from "./log-manager.fixture.ts";
import {
  BATCH_BYTES,
  cut,
  exploreRepair,
  filled,
  lostIn,
  offsetsOf,
  overwrite,
  PER_SEGMENT,
  RECORDS,
  remove,
  repair,
  segmentPath,
  without,
} from "./repair.fixture.ts";
import { repairDirectory } from "./repair.ts";
import { verifyDirectory } from "./verify.ts";

const damages: readonly (readonly [string, (fixture: ManagerFixture) => Promise<void>, readonly number[]])[] = [
  ["a header in the middle of a segment", (f) => overwrite(f, segmentPath(0), BATCH_BYTES + 8, [0x7f]), [1]],
  ["a payload that rotted", (f) => overwrite(f, segmentPath(1), 2 * BATCH_BYTES - 2, [0xff]), [5]],
  ["the begin of the log", (f) => overwrite(f, segmentPath(0), 8, [0x7f]), [0]],
  ["the end of a segment", (f) => cut(f, segmentPath(1), 3 * BATCH_BYTES + 5), [7]],
  ["all of a segment", (f) => overwrite(f, segmentPath(1), 0, Array(PER_SEGMENT * BATCH_BYTES).fill(0)), [4, 5, 6, 7]],
  ["all of the first segment", (f) => cut(f, segmentPath(0), 0), [0, 1, 2, 3]],
  ["the first segment", (f) => remove(f, segmentPath(0)), [0, 1, 2, 3]],
  ["a segment that is gone", (f) => remove(f, segmentPath(1)), [4, 5, 6, 7]],
  ["the end of the log", (f) => cut(f, segmentPath(3), BATCH_BYTES + 1), [13]],
  [
    "all segments",
    async (f) => {
      for (let segment = 0; segment < 4; segment += 1) await remove(f, segmentPath(segment));
    },
    Array.from({ length: RECORDS }, (_, offset) => offset),
  ],
  ["the last segment", (f) => remove(f, segmentPath(3)), [12, 13]],
  ["all of the last segment", (f) => overwrite(f, segmentPath(3), 0, Array(2 * BATCH_BYTES).fill(1)), [12, 13]],
  [
    "places in three segments",
    async (f) => {
      await overwrite(f, segmentPath(0), 3 * BATCH_BYTES + 8, [0x7f]);
      await overwrite(f, segmentPath(2), 8, [0x7f]);
      await overwrite(f, segmentPath(3), 2 * BATCH_BYTES - 1, [0xff]);
    },
    [3, 8, 13],
  ],
];

describe("repair", () => {
  test("finds nothing to do in a sound directory, and changes nothing", async () => {
    for (const acceptsLoss of [false, true]) {
      const fixture = await filled();
      const before = fixture.files.image().digest;
      expect(await repair(fixture, acceptsLoss)).toEqual({
        directory: DATA,
        partitions: [],
        partitionsRead: 1,
        isRepaired: true,
      });
      expect(fixture.files.image().digest).toBe(before);
    }
  });

  test.each(damages)("D16: %s: lists what is lost, and changes nothing", async (_, damage, gone) => {
    const fixture = await filled();
    await damage(fixture);
    const before = fixture.files.image().digest;
    const report = await repair(fixture, false);
    expect(report.isRepaired).toBe(false);
    const listed = report.partitions.flatMap(({ lost }) =>
      lost.flatMap((range) =>
        Array.from({ length: range.toOffset - range.fromOffset }, (_none, at) => range.fromOffset + at),
      ),
    );
    expect(listed).toEqual(gone);
    expect(fixture.files.image().digest).toBe(before);
  });

  test.each(damages)(
    "D16: %s: given up, the log takes appends, keeps all else, and gives no offset twice",
    async (_, damage, gone) => {
      for (const wasOpened of [false, true]) {
        const fixture = await filled();
        await damage(fixture);
        if (wasOpened) {
          // What an operator sees first; its end is not clean.
          const manager = await fixture.open();
          await manager.close();
        }
        expect((await repair(fixture, true)).isRepaired).toBe(true);
        expect((await repair(fixture, false)).partitions).toEqual([]);
        for (let opens = 0; opens < 2; opens += 1) {
          const manager = await fixture.open();
          const log = await lead(manager, "orders");
          expect([log.damaged, log.logEndOffset]).toEqual([[], RECORDS + opens]);
          expect((await offsetsOf(log)).slice(0, RECORDS - gone.length)).toEqual(without(...gone));
          await append(log, "new");
          expect((await offsetsOf(log)).at(-1)).toBe(RECORDS + opens);
          expect(await manager.close()).toEqual({ isClean: true, reason: undefined });
        }
        const { errors } = await verifyDirectory({
          files: fixture.files,
          workers: fixture.environment.workers,
          directory: DATA,
          state: fixture.state,
        });
        expect(errors).toEqual([]);
      }
    },
  );

  test("a crash at any moment, and any loss of what was not synced, leaves what the next repair goes on with", async () => {
    const { images, unrepaired } = await exploreRepair();
    expect(images).toBeGreaterThan(30);
    expect(unrepaired).toBeGreaterThan(3);
  });

  test("refuses what is in use, and what is no log directory", async () => {
    const fixture = await filled();
    const manager = await fixture.open();
    for (const acceptsLoss of [false, true])
      await expect(repair(fixture, acceptsLoss)).rejects.toMatchObject({ code: "LOG_DIRECTORY_LOCKED" });
    await manager.close();
    const state = (): Promise<never> => Promise.reject(new Error("never asked"));
    const { environment } = fixture;
    for (const [directory, code] of [
      [`${DATA}/orders-0`, "UNKNOWN_DIRECTORY"],
      ["nowhere", "KAFKA_STORAGE_ERROR"],
    ] as const)
      await expect(
        repairDirectory({ environment, openState: state, directory, acceptsLoss: true }),
      ).rejects.toMatchObject({ code });
    await fixture.write("meta.properties", "rubbish");
    await expect(repair(fixture, true)).rejects.toMatchObject({ code: "META_PROPERTIES_INVALID" });
  });

  test("leaves a torn end above the recovery point to the next open, which cuts it", async () => {
    const fixture = await filled();
    const manager = await fixture.open();
    await append(await lead(manager, "orders"), "v14");
    fixture.kill();
    await cut(fixture, segmentPath(3), 3 * BATCH_BYTES - 1);
    expect((await repair(fixture, true)).partitions).toEqual([]);
    const opened = await fixture.open();
    const log = opened.partition("orders", 0);
    expect([log?.logEndOffset, log?.recovery.cut?.bytesCut]).toEqual([RECORDS, BATCH_BYTES - 1]);
  });

  test("takes the recovery points of the files where another program wrote since", async () => {
    const fixture = await filled();
    await overwrite(fixture, segmentPath(0), BATCH_BYTES + 8, [0x7f]);
    await fixture.write("recovery-point-offset-checkpoint", "0\n1\norders 0 13\n");
    expect(lostIn(await repair(fixture, true))).toEqual(["1..1"]);
    const manager = await fixture.open();
    expect(manager.report.checkpoints.source).toBe("state");
    expect(await offsetsOf(await lead(manager, "orders"))).toEqual(without(1));
  });

  test("leaves what another program left out of other logs to be believed by the next open", async () => {
    const fixture = await filled();
    const manager = await fixture.open();
    await manager.createTopic("sparse", 1, { ...CONFIG, segmentBytes: PER_SEGMENT * BATCH_BYTES });
    const sparse = await lead(manager, "sparse");
    for (let record = 0; record < RECORDS; record += 1) await append(sparse, `v${String(record).padStart(2, "0")}`);
    await manager.close();
    await fixture.files.unlink(segmentPath(1).replace("orders-0", "sparse-0"));
    await overwrite(fixture, segmentPath(0), BATCH_BYTES + 8, [0x7f]);
    await fixture.write("recovery-point-offset-checkpoint", `0\n2\nsparse 0 ${RECORDS}\norders 0 ${RECORDS}\n`);
    expect(lostIn(await repair(fixture, true))).toEqual(["1..1"]);
    expect(lostIn(await repair(fixture, false))).toEqual([]);
    for (let opens = 0; opens < 2; opens += 1) {
      const opened = await fixture.open();
      const log = opened.partition("sparse", 0);
      expect([log?.damaged, log?.logEndOffset, log && (await offsetsOf(log))]).toEqual([
        [],
        RECORDS,
        without(4, 5, 6, 7),
      ]);
      await opened.close();
    }
  });
});
