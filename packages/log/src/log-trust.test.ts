import { toLeaderEpoch, toOffset } from "@tidemark/base";
import type { FileHandle, FileSystem, OpenMode } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import { batchOf, DIRECTORY, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import { PartitionLog } from "./partition-log.ts";

const BATCH_BYTES = batchOf(["x"], { id: 7, sequence: 0 }).length;
const BATCHES_PER_SEGMENT = 10;

/** Bytes read of each file, by its name. */
type BytesRead = Map<string, number>;

/** The same files, which count what is read of them. */
function counting(files: FileSystem, read: BytesRead): FileSystem {
  const wrap = (path: string, file: FileHandle): FileHandle =>
    new Proxy(file, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name, target);
        if (typeof member !== "function") return member;
        return (...args: unknown[]): unknown => {
          if (name === "readAt" || name === "readNow") {
            const key = path.slice(DIRECTORY.length + 1);
            read.set(key, (read.get(key) ?? 0) + (args[0] as Uint8Array).length);
          }
          return (member as (...args: unknown[]) => unknown).apply(target, args);
        };
      },
    });
  return new Proxy(files, {
    get: (target, name) => {
      if (name === "open") return async (path: string, mode: OpenMode) => wrap(path, await target.open(path, mode));
      const member: unknown = Reflect.get(target, name, target);
      return typeof member === "function" ? (member as (...args: unknown[]) => unknown).bind(target) : member;
    },
  });
}

async function openCounting(fixture: LogFixture, clean: boolean): Promise<{ log: PartitionLog; read: BytesRead }> {
  const read: BytesRead = new Map();
  const { files, state, clock, random, workers } = fixture.environment;
  const log = await PartitionLog.open({
    files: counting(files, read),
    state,
    clock,
    random,
    workers,
    directory: DIRECTORY,
    topic: "orders",
    partition: 0,
    config: fixture.config,
    wasCleanShutdown: clean,
    producerIdExpirationMs: Number.MAX_SAFE_INTEGER,
    logDirectory: fixture.logDirectory,
  });
  return { log, read };
}

function bytesOf(read: BytesRead, isCounted: (name: string) => boolean): number {
  return [...read].reduce((sum, [name, bytes]) => sum + (isCounted(name) ? bytes : 0), 0);
}

/** So many segments of ten batches each, and five more batches. By one producer, unless it is none. */
async function filled(
  segments: number,
  options: { flush?: "always" | "none"; producer?: number; epochs?: number } = {},
): Promise<{ fixture: LogFixture; log: PartitionLog; batches: number }> {
  const fixture = new LogFixture({
    segmentBytes: BATCHES_PER_SEGMENT * BATCH_BYTES,
    indexIntervalBytes: 2 * BATCH_BYTES,
    flush: options.flush ?? "always",
  });
  const log = await fixture.open({ epoch: 0 });
  const batches = segments * BATCHES_PER_SEGMENT + 5;
  for (let at = 0; at < batches; at += 1) {
    if (at > 0 && at % 25 === 0) await log.becomeLeader(toLeaderEpoch(at));
    const producer = options.producer === undefined ? {} : { id: options.producer, sequence: at };
    await log.append(batchOf(["x"], producer), { origin: "local" });
  }
  return { fixture, log, batches };
}

const isLog = (name: string): boolean => name.endsWith(".log");
const isIndex = (name: string): boolean => name.endsWith("index");

describe("what an open reads", () => {
  test.each([
    ["without producers", undefined],
    ["with a producer", 7],
  ])("after a clean stop is the same of 5 segments and of 50 (%s)", async (_, producer) => {
    const bytes: number[] = [];
    for (const segments of [5, 50]) {
      const { fixture, log, batches } = await filled(segments, producer === undefined ? {} : { producer });
      const epochs = log.epochEntries;
      expect(await log.close()).toBe(true);
      fixture.kill();
      const opened = await openCounting(fixture, true);
      expect(opened.log.recovery).toMatchObject({
        segmentsTrusted: segments + 1,
        segmentsScanned: 0,
        indexesRebuilt: 0,
        epochsRebuilt: false,
      });
      expect([opened.log.logEndOffset, opened.log.epochEntries]).toEqual([batches, epochs]);
      bytes.push(bytesOf(opened.read, isIndex));
      const lastLog = `${String(segments * BATCHES_PER_SEGMENT).padStart(20, "0")}.log`;
      // Only a producer is a reason to look at more than the end of the last segment: at what its snapshot leaves out.
      if (producer === undefined) expect([...opened.read.keys()].filter(isLog)).toEqual([lastLog]);
      expect(await recordsOf(opened.log)).toHaveLength(batches);
    }
    expect(bytes[0]).toBeGreaterThan(0);
    expect(bytes[1]).toBe(bytes[0]);
  });

  test("of the producers in front of a snapshot is bounded", async () => {
    const fixture = new LogFixture({ segmentBytes: 1 << 20, indexIntervalBytes: 4096 });
    const log = await fixture.open({ epoch: 0 });
    const value = "v".repeat(64 * 1024);
    for (let at = 0; at < 80; at += 1) await log.append(batchOf([value], { id: 7, sequence: at }), { origin: "local" });
    await log.close();
    fixture.kill();
    const opened = await openCounting(fixture, true);
    expect(opened.log.producers.get(7)?.batches).toHaveLength(5);
    // 5 MiB are there.
    expect(bytesOf(opened.read, isLog)).toBeLessThan(2 << 20);
  });

  test.each(["always", "none"] as const)(
    "after a kill is what lies past the recovery point, and its whole segment (flush %s)",
    async (flush) => {
      for (const segments of [5, 50]) {
        const { fixture, log, batches } = await filled(segments, { flush, producer: 7 });
        if (flush === "none") {
          await log.flush();
          for (let at = 0; at < 12; at += 1)
            await log.append(batchOf(["x"], { id: 7, sequence: batches + at }), { origin: "local" });
          await log.roll();
        }
        const end = log.logEndOffset;
        const { recoveryPoint } = log;
        const epochs = log.epochEntries;
        const producers = new Map(log.producers);
        fixture.kill();
        const { log: again, read } = await openCounting(fixture, false);
        const scannedFrom = again.segments.findLast(({ baseOffset }) => baseOffset <= recoveryPoint)?.baseOffset ?? 0;
        const isTrusted = (name: string): boolean => Number(name.slice(0, 20)) < scannedFrom;
        expect(again.recovery.segmentsTrusted).toBe(
          again.segments.findIndex(({ baseOffset }) => baseOffset === scannedFrom),
        );
        expect(again.recovery.segmentsTrusted).toBeGreaterThanOrEqual(segments);
        expect([again.logEndOffset, again.epochEntries, again.producers]).toEqual([end, epochs, producers]);
        expect([...read.keys()].filter((name) => isIndex(name) && isTrusted(name))).toEqual([]);
        // Headers of the batches that the snapshot leaves out, and no more than the bound; here a whole log is less.
        expect(bytesOf(read, (name) => isLog(name) && !isTrusted(name))).toBeGreaterThan(0);
        expect(await recordsOf(again)).toHaveLength(end);
      }
    },
  );

  test("after a kill, without producers, is nothing of a segment below the recovery point", async () => {
    const { fixture, log } = await filled(20);
    const { recoveryPoint } = log;
    fixture.kill();
    const { read } = await openCounting(fixture, false);
    expect([...read.keys()].filter((name) => isLog(name) && Number(name.slice(0, 20)) < recoveryPoint)).toEqual([]);
  });
});

describe("what is not trusted", () => {
  const changes: readonly (readonly [string, (fixture: LogFixture) => Promise<void>])[] = [
    ["a segment that is longer", (fixture) => fixture.writeFile(log(1), new Uint8Array(1), 10 * BATCH_BYTES)],
    [
      "a segment that is shorter",
      async (fixture) => fixture.writeFile(log(1), (await fixture.readFile(log(1))).slice(0, -1)),
    ],
    ["a segment that is gone", (fixture) => fixture.disk.unlink(`${DIRECTORY}/${log(1)}`)],
    ["a segment too many", (fixture) => fixture.writeFile("00000000000000000015.log", new Uint8Array(0))],
    [
      "an epoch file that says something else",
      (fixture) => fixture.writeFile("leader-epoch-checkpoint", new TextEncoder().encode("0\n2\n0 0\n25 24\n")),
    ],
    [
      "an epoch file that lacks one",
      (fixture) => fixture.writeFile("leader-epoch-checkpoint", new TextEncoder().encode("0\n1\n0 0\n")),
    ],
    [
      "a transaction index that was not there",
      (fixture) => fixture.writeFile("00000000000000000010.txnindex", new Uint8Array(34)),
    ],
    [
      "a seal that is none",
      (fixture) =>
        fixture.environment.state.commit([{ key: "segment-seal/orders-0", value: new Uint8Array(3) }], { sync: true }),
    ],
  ];

  test.each(changes)("%s: all headers are looked at", async (_, change) => {
    for (const clean of [true, false]) {
      const { fixture, log: before } = await filled(4);
      await before.close();
      fixture.kill();
      await change(fixture);
      const { log: opened } = await openCounting(fixture, clean);
      expect(opened.recovery.segmentsTrusted).toBe(0);
      expect(opened.logEndOffset).toBe(45);
    }
  });

  test("what another program may have written", async () => {
    const { fixture, log: before } = await filled(4);
    await before.close();
    fixture.kill();
    const opened = await fixture.open({ clean: true, epoch: "none", areGapsRecorded: false });
    expect(opened.recovery.segmentsTrusted).toBe(0);
  });

  test("a last segment that is not as the stop left it: the others are", async () => {
    const { fixture, log: before } = await filled(4);
    await before.close();
    fixture.kill();
    await fixture.writeFile(log(4), new Uint8Array(7), 5 * BATCH_BYTES);
    const { log: opened } = await openCounting(fixture, true);
    expect([opened.recovery.segmentsTrusted, opened.recovery.cut?.bytesCut, opened.logEndOffset]).toEqual([4, 7, 45]);
  });

  test("a truncation into a segment that was vouched for: what stays is looked at again, what lies below is not", async () => {
    const { fixture, log: before } = await filled(6);
    await before.truncateTo(toOffset(34));
    for (let at = 34; at < 70; at += 1) await before.append(batchOf(["y"]), { origin: "local" });
    fixture.kill();
    const { log: opened } = await openCounting(fixture, false);
    expect(opened.recovery.segmentsTrusted).toBeGreaterThanOrEqual(3);
    expect((await recordsOf(opened)).slice(33, 36)).toEqual(["33:x", "34:y", "35:y"]);
  });

  test("borders that leave offsets out stay known behind segments that nobody reads", async () => {
    const fixture = new LogFixture({ segmentBytes: 2 * BATCH_BYTES });
    const before = await fixture.open({ epoch: "none" });
    for (const offset of [0, 1, 100, 101, 200, 201]) await before.appendAsFollower(storedBatch(["a"], offset, 1));
    fixture.kill();
    const { log: opened } = await openCounting(fixture, false);
    expect(opened.recovery.segmentsTrusted).toBeGreaterThan(0);
    expect([opened.damaged, await recordsOf(opened)]).toEqual([[], ["0:a", "1:a", "100:a", "101:a", "200:a", "201:a"]]);
  });

  test("deleted segments are missed by nobody", async () => {
    const { fixture, log: before } = await filled(6);
    await before.deleteRecords(toOffset(27));
    fixture.kill();
    const { log: opened } = await openCounting(fixture, false);
    expect([opened.logStartOffset, opened.recovery.segmentsTrusted, opened.epochEntries]).toEqual([
      27,
      4,
      [
        { epoch: 25, startOffset: 27 },
        { epoch: 50, startOffset: 50 },
      ],
    ]);
  });
});

function log(segment: number): string {
  return `${String(segment * BATCHES_PER_SEGMENT).padStart(20, "0")}.log`;
}

test("an epoch that begins below a log start which is above its batches stays, after a crash before the epoch file was cut", async () => {
  const fixture = new LogFixture({ segmentBytes: 2 * BATCH_BYTES });
  const before = await fixture.open({ epoch: 3 });
  for (const value of ["a", "b"]) await before.append(batchOf([value]), { origin: "local" });
  await before.becomeLeader(toLeaderEpoch(4));
  await before.append(batchOf(["c"]), { origin: "local" });
  const epochs = await fixture.readFile("leader-epoch-checkpoint");
  await before.deleteRecords(toOffset(3));
  fixture.kill();
  await fixture.writeFile("leader-epoch-checkpoint", epochs);
  const opened = await fixture.open({ epoch: "none" });
  expect([opened.logStartOffset, opened.epochEntries]).toEqual([3, [{ epoch: 4, startOffset: 3 }]]);
});
