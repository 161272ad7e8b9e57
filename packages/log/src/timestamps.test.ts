import { encodeUtf8, toOffset } from "@tidemark/base";
import { encodeBatch, isLogAppendTime, scanBatch, stampMaxTimestamp } from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import type { BatchOrigin } from "./append-checks.ts";
import { batchesIn, batchOf, LogFixture } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

const HOUR = 3_600_000;

/** Written at once, and by way of the queue. */
const FLUSH_MODES = ["none", "always"] as const;

function batchWith(...timestamps: number[]): Uint8Array {
  return encodeBatch(
    timestamps.map((timestamp) => ({ key: null, value: encodeUtf8("v"), timestamp })),
    {},
  );
}

/** With another max timestamp or type in its header, as a client may send it; the CRC fits. */
function claiming(batch: Uint8Array, claim: { maxTimestamp?: number; isLogAppendTime?: boolean }): Uint8Array {
  const scan = scanBatch(batch, 0);
  if (scan.type !== "batch") throw new Error("no batch");
  const { header } = scan;
  const copy = batch.slice();
  stampMaxTimestamp(
    copy,
    // Whatever it is, it is rewritten.
    { ...header, maxTimestamp: Number.NaN },
    claim.isLogAppendTime === true ? "LogAppendTime" : "CreateTime",
    claim.maxTimestamp ?? header.maxTimestamp,
  );
  return copy;
}

async function headers(log: PartitionLog): Promise<BatchHeader[]> {
  const { bytes } = await log.read({ fromOffset: toOffset(0), maxBytes: 1 << 20 });
  return batchesIn(bytes);
}

describe("CreateTime", () => {
  test.each<BatchOrigin>(["local", "client"])(
    "BR-010: a record of origin %s two hours ahead is INVALID_TIMESTAMP when one hour is allowed, and nothing is written",
    async (origin) => {
      const fixture = new LogFixture();
      const log = await fixture.open();
      const now = fixture.environment.clock.wallMs();
      await log.append(batchWith(now + HOUR), { origin });
      await expect(log.append(batchWith(now, now + HOUR + 1), { origin })).rejects.toMatchObject({
        code: "INVALID_TIMESTAMP",
      });
      expect(log.logEndOffset).toBe(1);
    },
  );

  test("a client's record too far in the past is refused, one without a timestamp is not", async () => {
    const fixture = new LogFixture({ timestampBeforeMaxMs: HOUR });
    const log = await fixture.open();
    const now = fixture.environment.clock.wallMs();
    await log.append(batchWith(-1, now - HOUR), { origin: "client" });
    const late = log.append(batchWith(now, now - HOUR - 1), { origin: "client" });
    await expect(late).rejects.toMatchObject({ code: "INVALID_TIMESTAMP" });
  });

  test.each(FLUSH_MODES)(
    "trap 8: what the header claims is put right by what the records say, with the CRC (flush %s)",
    async (flush) => {
      const fixture = new LogFixture({ flush });
      const log = await fixture.open();
      const now = fixture.environment.clock.wallMs();
      await log.append(claiming(batchWith(now - 5, now - 9), { maxTimestamp: now - 100 }), { origin: "client" });
      // Nothing is queued when the second one comes.
      await new Promise((resolve) => setImmediate(resolve));
      await log.append(claiming(batchWith(now - 5), { maxTimestamp: now - 7, isLogAppendTime: true }), {
        origin: "client",
      });
      const [first, second] = await headers(log);
      expect(first?.maxTimestamp).toBe(now - 5);
      // Read with bit 3, its records have the time that it claims; the bit goes, that time stays.
      expect([second?.maxTimestamp, second && isLogAppendTime(second)]).toEqual([now - 7, false]);
      expect(await log.listOffset("max-timestamp")).toMatchObject({ timestamp: now - 5, offset: 0 });
    },
  );
});

describe("LogAppendTime", () => {
  test.each(FLUSH_MODES)(
    "trap 5: the leader's time is written over the batch's, the producer's times are not looked at (flush %s)",
    async (flush) => {
      const fixture = new LogFixture({ timestampType: "LogAppendTime", flush });
      const log = await fixture.open();
      const now = fixture.environment.clock.wallMs();
      const { logAppendTime } = await log.append(batchWith(now + 100 * HOUR), { origin: "client" });
      await log.append(batchOf(["a"]), { origin: "local" });
      expect(logAppendTime).toBe(now);
      for (const header of await headers(log)) {
        expect([header.maxTimestamp, isLogAppendTime(header)]).toEqual([now, true]);
      }
    },
  );

  test("trap 7: a producer's batch that says so itself is INVALID_TIMESTAMP", async () => {
    const fixture = new LogFixture({ timestampType: "LogAppendTime" });
    const log = await fixture.open();
    const batch = claiming(batchWith(1), { isLogAppendTime: true });
    await expect(log.append(batch, { origin: "client" })).rejects.toMatchObject({ code: "INVALID_TIMESTAMP" });
  });
});

describe("rolls by time", () => {
  test("segment.ms 1000: a batch of T + 1000 stays, T + 1001 begins a segment, an older one never does", async () => {
    const fixture = new LogFixture({ segmentMs: 1000 });
    const log = await fixture.open();
    const T = fixture.environment.clock.wallMs() - HOUR;
    for (const timestamp of [T, T + 1000, T - 5000]) await log.append(batchWith(timestamp), { origin: "local" });
    expect(log.segments).toHaveLength(1);
    await log.append(batchWith(T + 1001), { origin: "local" });
    expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 3]);
  });

  test("batches of one group are judged one by one", async () => {
    const fixture = new LogFixture({ segmentMs: 1000 });
    const log = await fixture.open();
    const T = fixture.environment.clock.wallMs() - HOUR;
    const times = [T, T + 1000, T + 1001, T + 2001, T + 2002];
    await Promise.all(times.map((timestamp) => log.append(batchWith(timestamp), { origin: "local" })));
    expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 2, 4]);
  });

  test("what a segment's first batch says of time is known again after an open", async () => {
    const fixture = new LogFixture({ segmentMs: 1000 });
    let log = await fixture.open();
    const T = fixture.environment.clock.wallMs() - HOUR;
    await log.append(batchWith(T), { origin: "local" });
    for (const isClean of [true, false]) {
      if (isClean) await log.close();
      fixture.kill();
      log = await fixture.open({ clean: isClean });
    }
    await log.append(batchWith(T + 1001), { origin: "local" });
    expect(log.segments).toHaveLength(2);
  });

  test("BR-007: an empty active segment that is idle past segment.ms stays, also after reopening", async () => {
    const size = batchOf(["0"]).length;
    const fixture = new LogFixture({ segmentMs: 1000, segmentBytes: 2 * size });
    let log = await fixture.open();
    for (let count = 0; count < 4; count += 1) await log.append(batchOf(["a"]), { origin: "local" });
    await log.roll();
    await log.append(batchOf(["gone"]), { origin: "local" });
    await log.truncateTo(toOffset(4));
    fixture.environment.clock.jumpWall(HOUR);
    await log.close();
    fixture.environment.clock.jumpWall(HOUR);
    log = await fixture.open({ clean: true });
    await log.append(batchOf(["b"]), { origin: "local" });
    expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 2, 4]);
  });

  test("BR-012: jitter larger than segment.ms does not make a segment of each record", async () => {
    const fixture = new LogFixture({ segmentMs: 1000, segmentJitterMs: 5000, flush: "none" });
    const log = await fixture.open();
    const T = fixture.environment.clock.wallMs() - HOUR;
    for (let count = 0; count < 10_000; count += 1) await log.append(batchWith(T + count), { origin: "local" });
    expect(log.segments.length).toBeGreaterThan(10);
    expect(log.segments.length).toBeLessThan(21);
  });
});
