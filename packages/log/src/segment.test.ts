import { FileError, toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { DEFAULT_LOG_CONFIG } from "./config.ts";
import type { RollLimits } from "./segment.ts";
import { LogSegment } from "./segment.ts";

const MINUTE = 60_000;
const NOON = 1_700_000_000_000;

const LIMITS: RollLimits = { pendingBytes: 0, pendingFirstTimestamp: undefined, segmentBytesMax: 2 ** 31 - 1 };

const batch = (lastOffset: number, maxTimestamp: number, sizeInBytes = 100) => ({
  lastOffset,
  maxTimestamp,
  sizeInBytes,
});

async function segmentOf({ indexBytesMax = DEFAULT_LOG_CONFIG.segmentIndexBytes, rollMs = Number.MAX_SAFE_INTEGER }) {
  const { files, clock, kernel } = new SimulatedEnvironment({ seed: 1 });
  await files.makeDirectory("data");
  const settings = {
    files,
    clock,
    directory: "data",
    indexBytesMax,
    indexIntervalBytes: 4096,
    drawRollMs: () => rollMs,
  };
  return { segment: await LogSegment.create(settings, toOffset(0)), files, clock, kernel };
}

test("a segment whose offset index is full takes no more batches, whatever room its file has", async () => {
  const { segment } = await segmentOf({ indexBytesMax: 4 * 8 });
  segment.noteBatch(batch(0, -1), 0);
  for (let offset = 1; offset <= 3; offset += 1) segment.noteBatch(batch(offset, -1), 0);
  expect(segment.mustRollBefore(batch(4, -1), LIMITS)).toBe(false);
  segment.noteBatch(batch(4, -1), 0);
  expect(segment.mustRollBefore(batch(5, -1), LIMITS)).toBe(true);
  await segment.close();
});

test("a segment whose time index has room for the entry of its end only takes no more batches", async () => {
  // Three entries of 12 bytes, four of 8.
  const { segment } = await segmentOf({ indexBytesMax: 36 });
  segment.noteBatch(batch(0, NOON), 0);
  segment.noteBatch(batch(1, NOON + 1), 0);
  expect(segment.mustRollBefore(batch(2, NOON + 2), LIMITS)).toBe(false);
  segment.noteBatch(batch(2, NOON + 2), 0);
  expect(segment.mustRollBefore(batch(3, NOON + 3), LIMITS)).toBe(true);
  segment.noteBatch(batch(3, NOON + 3), 0);
  segment.indexes.noteEnd();
  expect(segment.indexes.times.lastEntry).toEqual({ timestamp: NOON + 3, offset: 3 });
  await segment.close();
});

test("a segment is left when a batch is segment.ms later than its first batch, by the time of the records", async () => {
  const { segment } = await segmentOf({ rollMs: MINUTE });
  segment.noteBatch(batch(0, NOON), 4096);
  segment.noteBatch(batch(1, NOON + 30_000), 4096);
  expect(segment.mustRollBefore(batch(2, NOON + MINUTE), LIMITS)).toBe(false);
  expect(segment.mustRollBefore(batch(2, NOON + MINUTE + 1), LIMITS)).toBe(true);
  expect(segment.mustRollBefore(batch(2, NOON - 5 * MINUTE), LIMITS)).toBe(false);
  await segment.close();
});

test("batches that will lie before it count: the first of them is the segment's first", async () => {
  const { segment } = await segmentOf({ rollMs: MINUTE });
  const pending = { ...LIMITS, pendingBytes: 100, pendingFirstTimestamp: NOON };
  expect(segment.mustRollBefore(batch(1, NOON + MINUTE), pending)).toBe(false);
  expect(segment.mustRollBefore(batch(1, NOON + MINUTE + 1), pending)).toBe(true);
  await segment.close();
});

test("BR-011: without a timestamp in the first batch, a segment is left segment.ms after it was begun", async () => {
  const { segment, clock } = await segmentOf({ rollMs: MINUTE });
  for (let offset = 0; offset < 1000; offset += 1) {
    expect(segment.mustRollBefore(batch(offset, offset % 2 === 0 ? -1 : NOON), LIMITS)).toBe(false);
    segment.noteBatch(batch(offset, offset % 2 === 0 ? -1 : NOON), 4096);
  }
  clock.jumpWall(MINUTE);
  expect(segment.mustRollBefore(batch(1000, NOON), LIMITS)).toBe(false);
  clock.jumpWall(1);
  expect(segment.mustRollBefore(batch(1000, -1), LIMITS)).toBe(true);
  await segment.close();
});

test("an empty segment is not left, however old it is", async () => {
  const { segment, clock } = await segmentOf({ rollMs: MINUTE });
  clock.jumpWall(10 * MINUTE);
  expect(segment.mustRollBefore(batch(0, NOON), LIMITS)).toBe(false);
  await segment.close();
});

test("a failed sync is told before the file that it met is closed; who closes the segment waits for that too", async () => {
  const { segment, files } = await segmentOf({});
  await segment.release();
  let letClose = (): void => undefined;
  const mayClose = new Promise<void>((resolve) => {
    letClose = resolve;
  });
  const open = files.open.bind(files);
  files.open = async (path, mode) => {
    const file = await open(path, mode);
    const close = file.close.bind(file);
    return Object.assign(file, {
      sync: () => Promise.reject(new FileError("EIO", "sync", path)),
      close: () => mayClose.then(close),
    });
  };
  segment.isDirty = true;
  await expect(segment.sync()).rejects.toThrow("EIO");
  const closed = segment.close().then(() => "closed");
  expect(await Promise.race([closed, new Promise(setImmediate).then(() => "waits")])).toBe("waits");
  letClose();
  expect(await closed).toBe("closed");
});
