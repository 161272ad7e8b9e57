import { encodeUtf8, toLeaderEpoch, toOffset } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import { compressPayload, encodeBatch, recordsSection, scanBatch, withCompressedPayload } from "@tidemark/wire";
import { expect, test } from "vitest";
import type { LogConfig } from "./config.ts";
import { LogFixture } from "./log.fixture.ts";
import type { OffsetSpec } from "./offset-lookup.ts";
import type { PartitionLog } from "./partition-log.ts";

const NOON = 1_700_000_000_000;

/** A batch of records at these times after noon, in seconds; -1: without a time. */
function batchAt(...seconds: number[]): Uint8Array {
  return encodeBatch(
    seconds.map((second) => ({ key: null, value: encodeUtf8("v"), timestamp: second < 0 ? -1 : NOON + second * 1000 })),
    {},
  );
}

function gzipped(batch: Uint8Array): Uint8Array {
  const scan = scanBatch(batch, 0);
  if (scan.type !== "batch") throw new Error("no batch");
  return withCompressedPayload(batch, "gzip", compressPayload(NODE_CODECS, "gzip", recordsSection(batch, scan.header)));
}

async function logOf(
  batches: readonly Uint8Array[],
  config: Partial<LogConfig> = {},
): Promise<[PartitionLog, LogFixture]> {
  const fixture = new LogFixture({ segmentBytes: 200, indexIntervalBytes: 0, ...config });
  const log = await fixture.open({ epoch: 3 });
  for (const batch of batches) await log.append(batch, { origin: "local" });
  return [log, fixture];
}

const at = (seconds: number): OffsetSpec => ({ timestamp: NOON + seconds * 1000 });

async function show(log: PartitionLog, spec: OffsetSpec, limitOffset?: number): Promise<string> {
  const found = await log.listOffset(spec, limitOffset === undefined ? undefined : toOffset(limitOffset));
  if (found === undefined) return "none";
  const time = found.timestamp < 0 ? "-" : `${(found.timestamp - NOON) / 1000}s`;
  return `${found.offset} ${time} e${found.leaderEpoch ?? "-"}`;
}

test("a time gives the first record with that or a later one, exactly, within a batch too", async () => {
  const [log] = await logOf([batchAt(1, 2, 3), gzipped(batchAt(5, 4, 9)), batchAt(7), batchAt(20, 10)]);
  expect(log.segments.length).toBeGreaterThan(1);
  const answers = await Promise.all([0, 2, 3, 4, 5, 6, 9, 10, 20, 21].map((seconds) => show(log, at(seconds))));
  expect(answers).toEqual([
    "0 1s e3",
    "1 2s e3",
    "2 3s e3",
    "3 5s e3",
    "3 5s e3",
    "5 9s e3",
    "5 9s e3",
    "7 20s e3",
    "7 20s e3",
    "none",
  ]);
});

test("earliest, latest and the largest timestamp, each with its leader epoch", async () => {
  const [log] = await logOf([batchAt(1), batchAt(9, 30), batchAt(30)]);
  await log.becomeLeader(toLeaderEpoch(5));
  expect(await show(log, "earliest")).toBe("0 - e3");
  expect(await show(log, "earliest-local")).toBe("0 - e3");
  expect(await show(log, "latest")).toBe("4 - e5");
  expect(await show(log, "max-timestamp")).toBe("2 30s e3");
});

test("an empty log has an end and a start, and no record of any time", async () => {
  const [log] = await logOf([]);
  expect(await show(log, "earliest")).toBe("0 - e3");
  expect(await show(log, "latest")).toBe("0 - e3");
  expect([await show(log, "max-timestamp"), await show(log, at(0))]).toEqual(["none", "none"]);
});

test("what is found at or above the limit is not told, and the latest offset is the limit", async () => {
  const [log] = await logOf([batchAt(1), batchAt(2), batchAt(3)]);
  expect(await show(log, "latest", 2)).toBe("2 - e3");
  expect([await show(log, at(2), 2), await show(log, at(3), 2), await show(log, "max-timestamp", 2)]).toEqual([
    "1 2s e3",
    "none",
    "none",
  ]);
});

test("BR-011: records without a timestamp have no time; the largest timestamp is then the first record's -1", async () => {
  const [log] = await logOf([batchAt(-1, -1), batchAt(-1)], { segmentBytes: 10_000 });
  expect(await show(log, at(0))).toBe("none");
  expect(await show(log, "max-timestamp")).toBe("0 - e3");
});

test("trap 35: only the first segment that reaches the time is searched; without timestamps its file's age counts", async () => {
  // One batch fills a segment. The first file is written now, long after noon.
  const [log] = await logOf([batchAt(-1), batchAt(5)], { segmentBytes: batchAt(1).length });
  expect(log.segments).toHaveLength(2);
  expect(await show(log, at(1))).toBe("none");
});

test("with LogAppendTime all records of a batch have the time at which it was appended", async () => {
  const fixture = new LogFixture({ timestampType: "LogAppendTime" });
  const log = await fixture.open({ epoch: 0 });
  const { clock } = fixture.environment;
  const first = clock.wallMs();
  const appended = await log.append(batchAt(1, 99), { origin: "client" });
  clock.jumpWall(5000);
  await log.append(batchAt(0), { origin: "local" });
  expect(appended.logAppendTime).toBe(first);
  expect(await log.listOffset({ timestamp: first })).toEqual({ offset: 0, timestamp: first, leaderEpoch: 0 });
  expect(await log.listOffset({ timestamp: first + 1 })).toMatchObject({ offset: 2, timestamp: first + 5000 });
  expect(await log.listOffset("max-timestamp")).toMatchObject({ offset: 2, timestamp: first + 5000 });
});

test("a batch that rotted is CORRUPT_MESSAGE, not another record", async () => {
  const [log, fixture] = await logOf([batchAt(1), batchAt(2)], { segmentBytes: 10_000 });
  await fixture.writeFile("00000000000000000000.log", new Uint8Array([255]), batchAt(1).length - 1);
  await expect(log.listOffset(at(1))).rejects.toMatchObject({ code: "CORRUPT_MESSAGE" });
});

test("the answers are the same after a clean stop, a kill and a power cut", async () => {
  const batches = [batchAt(3, 1), batchAt(2, 8), batchAt(-1), batchAt(8, 9), batchAt(4)];
  const specs = ["earliest", "latest", "max-timestamp", ...[0, 3, 4, 8, 9, 10].map(at)] as const;
  for (const stop of ["clean", "kill", "power cut"]) {
    const [log, fixture] = await logOf(batches);
    const before = await Promise.all(specs.map((spec) => show(log, spec)));
    if (stop === "clean") await log.close();
    if (stop === "power cut") fixture.powerCut();
    else fixture.kill();
    const reopened = await fixture.open({ clean: stop === "clean", epoch: 3 });
    expect(await Promise.all(specs.map((spec) => show(reopened, spec))), stop).toEqual(before);
  }
});

test("BR-018: without any of the index files, or with any of them empty, the answers are the same", async () => {
  const batches = [batchAt(3, 1), batchAt(2, 8), batchAt(5), batchAt(8, 9), batchAt(4)];
  const specs = ["max-timestamp", ...[0, 3, 4, 8, 9, 10].map(at)] as const;
  const [first] = await logOf(batches);
  const expected = await Promise.all(specs.map((spec) => show(first, spec)));
  const suffixes = [".index", ".timeindex"];
  for (let subset = 1; subset < 4; subset += 1) {
    for (const isRemoved of [true, false]) {
      const [log, fixture] = await logOf(batches);
      await log.close();
      const names = (await fixture.fileNames()).filter((name) =>
        suffixes.some((suffix, bit) => (subset & (1 << bit)) !== 0 && name.endsWith(suffix)),
      );
      // An offset index without entries is right, only slow: a segment that was opened anew before each batch has such a one.
      const rewritten = names.filter((name) => isRemoved || name.endsWith(".timeindex"));
      const sizes = await Promise.all(rewritten.map(async (name) => (await fixture.readFile(name)).length));
      for (const name of names) {
        if (isRemoved) await fixture.disk.unlink(`data/orders-0/${name}`);
        else await fixture.writeFile(name, new Uint8Array(0));
      }
      const reopened = await fixture.open({ clean: true, epoch: 3 });
      expect(await Promise.all(specs.map((spec) => show(reopened, spec)))).toEqual(expected);
      await reopened.close();
      const rebuilt = await Promise.all(rewritten.map(async (name) => (await fixture.readFile(name)).length));
      expect(rebuilt, names.join()).toEqual(sizes);
    }
  }
});
