import { encodeUtf8, toLeaderEpoch, toOffset } from "@tidemark/base";
import { encodeBatch } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import type { LogConfig } from "./config.ts";
import { LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

/** A batch of one record, its time in ms; -1 is none. */
function batchAt(timestamp: number): Uint8Array {
  return encodeBatch([{ key: null, value: encodeUtf8("v"), timestamp }], {});
}

const BATCH_BYTES = batchAt(0).length;

/** A log with one batch a segment, whose records are so old in ms when it begins. */
async function logOf(ages: readonly number[], config: Partial<LogConfig> = {}): Promise<[PartitionLog, LogFixture]> {
  const fixture = new LogFixture({
    segmentBytes: BATCH_BYTES,
    timestampAfterMaxMs: Number.MAX_SAFE_INTEGER,
    ...config,
  });
  const log = await fixture.open({ epoch: 0 });
  const now = fixture.environment.clock.wallMs();
  for (const age of ages) await log.append(batchAt(age === -1 ? -1 : now - age), { origin: "local" });
  return [log, fixture];
}

const bases = (log: PartitionLog): number[] => log.segments.map(({ baseOffset }) => baseOffset);

const reasons = async (log: PartitionLog, highWatermark?: number): Promise<string[]> => {
  const { deleted } = await log.deleteOldSegments(highWatermark === undefined ? undefined : toOffset(highWatermark));
  return deleted.map(({ baseOffset, reason }) => `${baseOffset} ${reason}`);
};

describe("which segments go", () => {
  test("without limits none does", async () => {
    const [log] = await logOf([900 * DAY, 800 * DAY, 1]);
    expect(await reasons(log)).toEqual([]);
    expect(bases(log)).toEqual([0, 1, 2]);
  });

  test("by time: more than retention.ms old, from the oldest on, up to the first that is not", async () => {
    const [log] = await logOf([2 * HOUR, HOUR + 1, HOUR, 5 * HOUR, 1], { retentionMs: HOUR });
    expect(await reasons(log)).toEqual(["0 time", "1 time"]);
    expect([bases(log), log.logStartOffset]).toEqual([[2, 3, 4], 2]);
  });

  test("by size: as many as leave at least retention.bytes", async () => {
    for (const [retentionBytes, kept] of [
      [3 * BATCH_BYTES, [2, 3, 4]],
      [3 * BATCH_BYTES + 1, [1, 2, 3, 4]],
      [5 * BATCH_BYTES, [0, 1, 2, 3, 4]],
      [BATCH_BYTES, [4]],
    ] as const) {
      const [log] = await logOf([5, 4, 3, 2, 1], { retentionBytes });
      await log.deleteOldSegments();
      expect([retentionBytes, ...bases(log)]).toEqual([retentionBytes, ...kept]);
    }
  });

  test("size before time, each on what is left", async () => {
    const limits = { retentionMs: HOUR, retentionBytes: 4 * BATCH_BYTES };
    const [log] = await logOf([2 * HOUR, 2 * HOUR, 2 * HOUR, 1, 1], limits);
    expect(await reasons(log)).toEqual(["0 size", "1 time", "2 time"]);
  });

  test("BR-008: when all are due a new segment is begun, and the end of the log stays where it was", async () => {
    const [log] = await logOf([3 * HOUR, 2 * HOUR, 2 * HOUR], { retentionMs: HOUR });
    const waiting = log.waitForEndOffset(toOffset(3));
    expect(await reasons(log)).toEqual(["0 time", "1 time", "2 time"]);
    expect([bases(log), log.logStartOffset, log.logEndOffset]).toEqual([[3], 3, 3]);
    expect((await log.read({ fromOffset: toOffset(3), maxBytes: 1 })).bytes).toHaveLength(0);
    await log.append(batchAt(-1), { origin: "local" });
    await waiting.promise;
    expect(await recordsOf(log)).toEqual(["3:v"]);
  });

  test("an empty active segment stays, and is not begun anew", async () => {
    const [log] = await logOf([3 * HOUR, 2 * HOUR], { retentionMs: HOUR });
    await log.roll();
    await log.deleteOldSegments();
    expect(bases(log)).toEqual([2]);
    expect(await reasons(log)).toEqual([]);
  });

  test("LG-10: at every high watermark, nothing at or above it goes", async () => {
    const [log] = await logOf(
      [9, 8, 7, 6, 5].map((age) => age * HOUR),
      { retentionMs: HOUR },
    );
    for (let highWatermark = 0; highWatermark <= 5; highWatermark += 1) {
      await log.deleteOldSegments(toOffset(highWatermark));
      expect(log.logStartOffset).toBeLessThanOrEqual(highWatermark);
      expect(bases(log)[0]).toBe(highWatermark);
    }
  });

  test("BR-011: a segment without timestamps is as old as its file", async () => {
    const [log, { environment }] = await logOf([-1, -1, -1], { retentionMs: 1000 });
    await log.roll();
    environment.clock.jumpWall(999);
    expect(await reasons(log)).toEqual([]);
    environment.clock.jumpWall(2);
    expect(await reasons(log)).toEqual(["0 time", "1 time", "2 time"]);
  });

  test("BR-010: a timestamp in the future keeps its segment and all behind it, which is counted", async () => {
    const [log, { environment }] = await logOf([-50 * 365 * DAY, 1, 1], { retentionMs: 7 * DAY });
    environment.clock.jumpWall(14 * DAY);
    expect(await log.deleteOldSegments()).toEqual({ deleted: [], futureSegments: 1 });
  });

  test("BR-010: where such timestamps are ignored the segments go in order, by the age of the file", async () => {
    const [log, { environment }] = await logOf([-50 * 365 * DAY, 1, 1], {
      retentionMs: 7 * DAY,
      ignoresFutureTimestamps: true,
    });
    environment.clock.jumpWall(14 * DAY);
    expect(await reasons(log)).toEqual(["0 time", "1 time", "2 time"]);
  });

  test.each([12, 24, 10 * 1024])(
    "BR-016: %i zeros behind a time index delete nothing: it is rebuilt",
    async (zeros) => {
      const [log, fixture] = await logOf([HOUR, HOUR, HOUR], { retentionMs: 7 * DAY });
      await log.close();
      const name = "00000000000000000000.timeindex";
      const good = await fixture.readFile(name);
      await fixture.writeFile(name, new Uint8Array(zeros), good.length);
      const reopened = await fixture.open({ clean: true, epoch: 0 });
      expect(await reasons(reopened)).toEqual([]);
      await reopened.close();
      expect(await fixture.readFile(name)).toEqual(good);
    },
  );
});

describe("leader epochs", () => {
  const follower = async (...epochs: number[]): Promise<PartitionLog> => {
    const fixture = new LogFixture({ segmentBytes: 5 * storedBatch(["v"], 0, 0).length, retentionBytes: 0 });
    const log = await fixture.open({ epoch: "none" });
    for (const [offset, epoch] of epochs.entries())
      await log.appendAsFollower(storedBatch(["v"], offset, epoch), { leaderEpoch: toLeaderEpoch(epoch) });
    return log;
  };
  const show = (log: PartitionLog): string =>
    log.epochEntries.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");

  test("LG-05: entries of what was deleted go", async () => {
    const log = await follower(...Array.from({ length: 15 }, (_, offset) => Math.floor(offset / 5)));
    expect(show(log)).toBe("0@0 1@5 2@10");
    await log.deleteOldSegments(toOffset(9));
    expect(show(log)).toBe("1@5 2@10");
  });

  test("LG-06: an epoch that goes on begins at the log start", async () => {
    const log = await follower(0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2);
    expect(show(log)).toBe("0@0 1@7 2@10");
    await log.deleteOldSegments(toOffset(9));
    expect(show(log)).toBe("0@5 1@7 2@10");
  });
});

describe("delete-records", () => {
  test("records below the offset are gone, and the log begins there, also inside a segment", async () => {
    const [log] = await logOf([5, 4, 3, 2, 1], { segmentBytes: 2 * BATCH_BYTES });
    expect(bases(log)).toEqual([0, 2, 4]);
    expect(await log.deleteRecords(toOffset(3))).toBe(3);
    expect([bases(log), await recordsOf(log)]).toEqual([
      [2, 4],
      ["3:v", "4:v"],
    ]);
    await expect(log.read({ fromOffset: toOffset(2), maxBytes: 1 })).rejects.toMatchObject({
      code: "OFFSET_OUT_OF_RANGE",
    });
    expect(await log.listOffset("earliest")).toMatchObject({ offset: 3, leaderEpoch: 0 });
    expect(await log.listOffset({ timestamp: 0 })).toMatchObject({ offset: 3 });
  });

  test("deleted batches have no leader epochs any more, though their bytes lie before those of lower ones", async () => {
    for (const clean of [true, false]) {
      const fixture = new LogFixture();
      const log = await fixture.open({ epoch: "none" });
      await log.appendAsFollower(storedBatch(["deleted"], 0, 9));
      await log.appendAsFollower(storedBatch(["cut"], 1, 9));
      await log.deleteRecords(toOffset(1));
      await log.truncateTo(toOffset(1));
      await log.appendAsFollower(storedBatch(["v"], 1, 2));
      await log.close();
      fixture.kill();
      if (!clean)
        await fixture.environment.state.commit([{ key: "recovery-point/orders-0", value: undefined }], { sync: true });
      const recovered = await fixture.open({ clean, epoch: "none" });
      expect([recovered.recovery.cut, recovered.recovery.epochsRebuilt]).toEqual([undefined, false]);
      expect([recovered.epochEntries, await recordsOf(recovered)]).toEqual([[{ epoch: 2, startOffset: 1 }], ["1:v"]]);
    }
  });

  test("the start never goes back", async () => {
    const [log] = await logOf([3, 2, 1]);
    await log.deleteRecords(toOffset(2));
    expect(await log.deleteRecords(toOffset(1))).toBe(2);
  });

  test("LG-09: above the high watermark it is OFFSET_OUT_OF_RANGE, and nothing changes", async () => {
    const [log] = await logOf([3, 2, 1]);
    await expect(log.deleteRecords(toOffset(2), toOffset(1))).rejects.toMatchObject({ code: "OFFSET_OUT_OF_RANGE" });
    await expect(log.deleteRecords(toOffset(4))).rejects.toMatchObject({ code: "OFFSET_OUT_OF_RANGE" });
    expect([log.logStartOffset, bases(log)]).toEqual([0, [0, 1, 2]]);
  });

  test("up to the log end all records go, and appends go on behind", async () => {
    const [log] = await logOf([3, 2, 1]);
    expect(await log.deleteRecords(toOffset(3))).toBe(3);
    await log.append(batchAt(-1), { origin: "local" });
    expect(await recordsOf(log)).toEqual(["3:v"]);
  });

  test.each(["always", "none"] as const)(
    "M51: flush %s: what was deleted does not come back, whatever stops the machine, and no offset is given twice",
    async (flush) => {
      const [log, fixture] = await logOf([5, 4, 3, 2, 1], { flush, segmentBytes: 2 * BATCH_BYTES });
      await log.deleteRecords(toOffset(3));
      fixture.powerCut();
      const reopened = await fixture.open({ epoch: 1 });
      expect([reopened.logStartOffset, reopened.logEndOffset >= 3]).toEqual([3, true]);
      await reopened.append(batchAt(-1), { origin: "local" });
      expect((await recordsOf(reopened))[0]).toBe("3:v");
    },
  );
});

describe("the files of deleted segments", () => {
  const NAMES = ["00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex"];
  const deletedFiles = async (fixture: LogFixture): Promise<string[]> =>
    (await fixture.fileNames()).filter((name) => name.endsWith(".deleted"));

  test("are renamed at once and removed after file.delete.delay.ms", async () => {
    const [log, fixture] = await logOf([2 * HOUR, 1], { retentionMs: HOUR, fileDeleteDelayMs: 60_000 });
    await log.deleteOldSegments();
    expect(await deletedFiles(fixture)).toEqual(NAMES.map((name) => `${name}.deleted`));
    await fixture.environment.kernel.runFor(59_999_000);
    expect(await deletedFiles(fixture)).toHaveLength(3);
    await fixture.environment.kernel.runFor(2_000);
    expect(await deletedFiles(fixture)).toEqual([]);
  });

  test("are removed by a close, and after a crash by the next open", async () => {
    for (const isClosed of [true, false]) {
      const [log, fixture] = await logOf([2 * HOUR, 1], { retentionMs: HOUR });
      await log.deleteOldSegments();
      if (isClosed) await log.close();
      else fixture.kill();
      expect(await deletedFiles(fixture)).toHaveLength(isClosed ? 0 : 3);
      const reopened = await fixture.open({ clean: isClosed, epoch: 0 });
      expect(await deletedFiles(fixture)).toEqual([]);
      expect([bases(reopened), reopened.logStartOffset, reopened.damaged]).toEqual([[1], 1, []]);
    }
  });

  test("a segment that a crash took out of the middle of a deletion is no damage", async () => {
    const [log, fixture] = await logOf([5, 4, 3, 2, 1]);
    await log.deleteRecords(toOffset(0));
    await fixture.environment.state.commit(
      [{ key: "log-start/orders-0", value: new Uint8Array([0, 0, 0, 0, 0, 0, 0, 3]) }],
      {
        sync: true,
      },
    );
    await fixture.disk.unlink("data/orders-0/00000000000000000001.log");
    fixture.kill();
    const reopened = await fixture.open({ epoch: 0 });
    expect([reopened.damaged, bases(reopened), reopened.logStartOffset]).toEqual([[], [3, 4], 3]);
  });

  test("BR-009: who is reading a segment while it goes reads on, or is told that the offset is gone", async () => {
    const [log] = await logOf([5 * HOUR, 4 * HOUR, 1], { retentionMs: HOUR, fileDeleteDelayMs: 0 });
    const reads = [0, 1, 2].map((offset) =>
      log.read({ fromOffset: toOffset(offset), maxBytes: 1000 }).then(
        ({ startOffset }) => startOffset,
        (error: unknown) => error,
      ),
    );
    const deletion = log.deleteOldSegments();
    for (const [offset, read] of reads.entries()) {
      const outcome = await read;
      if (typeof outcome === "number") expect(outcome).toBe(offset);
      else expect(outcome).toMatchObject({ code: "OFFSET_OUT_OF_RANGE" });
    }
    await deletion;
  });
});
