import { decodeUtf8, encodeUtf8, toLeaderEpoch, toOffset } from "@tidemark/base";
import { SimulatedDisk } from "@tidemark/simulator";
import { decodeRecords, encodeBatch, recordsSection, stampBatch } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { batchesIn } from "./log.fixture.ts";
import { CONFIG, lead, ManagerFixture } from "./log-manager.fixture.ts";
import type { LogManager } from "./log-manager.ts";
import type { PartitionLog } from "./partition-log.ts";

const SECOND_US = 1_000_000;
const HOUR_MS = 3_600_000;
const BACKOFF_US = 15 * SECOND_US;

function keyed(pair: string): Uint8Array {
  const [key = "", value] = pair.split("=");
  return encodeBatch([{ key: encodeUtf8(key), value: value === undefined ? null : encodeUtf8(value), timestamp: 1 }]);
}

/** Two batches fill a segment. */
const COMPACTED = { ...CONFIG, segmentBytes: 2 * keyed("a=1").length, cleanupPolicy: "compact" } as const;

/** `key=value`, and `key` alone for a tombstone; each a batch. */
async function write(log: PartitionLog, ...pairs: readonly string[]): Promise<void> {
  for (const pair of pairs) await log.append(keyed(pair), { origin: "client" });
}

async function left(log: PartitionLog): Promise<string[]> {
  const records: string[] = [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 << 20 });
    const headers = batchesIn(bytes);
    for (const header of headers) {
      for (const { offset, key, value } of decodeRecords(header, recordsSection(bytes, header)))
        records.push(
          `${offset}:${decodeUtf8(key ?? new Uint8Array())}${value === null ? "" : `=${decodeUtf8(value)}`}`,
        );
      next = header.lastOffset + 1;
    }
    if (headers.length === 0) break;
  }
  return records;
}

async function topicOf(manager: LogManager, topic: string, config: Partial<typeof CONFIG> = {}): Promise<PartitionLog> {
  await manager.createTopic(topic, 1, { ...COMPACTED, ...config });
  return lead(manager, topic);
}

function cleanedEnds(manager: LogManager, ...topics: readonly string[]): (number | undefined)[] {
  return topics.map((topic) => manager.partition(topic, 0)?.cleanerOffset);
}

describe("the cleaner", () => {
  test("looks every 15 seconds, and compacts what is due: more than half of the sealed bytes, or past the largest lag", async () => {
    const fixture = new ManagerFixture();
    const { kernel } = fixture.environment;
    const manager = await fixture.open();
    const log = await topicOf(manager, "t");
    await write(log, "a=1", "a=2", "a=3", "b=1", "c=1");
    await kernel.runFor(BACKOFF_US - SECOND_US);
    expect(log.cleanerOffset).toBeUndefined();
    await kernel.runFor(2 * SECOND_US);
    expect([log.cleanerOffset, await left(log)]).toEqual([4, ["2:a=3", "3:b=1", "4:c=1"]]);
    // Two clean batches, two dirty ones: not more than half.
    await write(log, "d=1", "e=1");
    expect(log.dirtyPart).toEqual({
      firstDirtyOffset: 4,
      cleanBytes: COMPACTED.segmentBytes,
      dirtyBytes: COMPACTED.segmentBytes,
    });
    await kernel.runFor(BACKOFF_US);
    expect(log.cleanerOffset).toBe(4);
    // Their time is 1970.
    await manager.configureTopic("t", { ...COMPACTED, maxCompactionLagMs: HOUR_MS });
    await kernel.runFor(BACKOFF_US);
    expect(cleanedEnds(manager, "t")).toEqual([6]);
  });

  test("takes the log with the largest part of dirty bytes first, and as many at a time as it may", async () => {
    for (const passesMax of [1, 2]) {
      const fixture = new ManagerFixture();
      const manager = await fixture.open({ cleaner: { passesMax } });
      const logs: PartitionLog[] = [];
      for (const topic of ["half", "all", "most"])
        logs.push(await topicOf(manager, topic, { minCleanableDirtyRatio: 0.1 }));
      const [half, , most] = logs as [PartitionLog, PartitionLog, PartitionLog];
      for (const log of logs) await write(log, "a=1", "b=1", "c=1");
      for (const log of [half, most]) await log.compact();
      await write(half, "d=1", "e=1");
      await write(most, "d=1", "e=1", "f=1", "g=1");
      const began: string[] = [];
      let cleaningMax = 0;
      for (const log of logs) {
        const compact = log.compact.bind(log);
        log.compact = (options) => {
          began.push(log.topic);
          cleaningMax = Math.max(cleaningMax, logs.filter((other) => manager.cleanerView(other).isCleaning).length);
          return compact(options);
        };
      }
      await fixture.environment.kernel.runFor(BACKOFF_US + SECOND_US);
      expect(began).toEqual(["all", "most", "half"]);
      expect(cleaningMax).toBe(passesMax);
      expect(cleanedEnds(manager, "half", "all", "most")).toEqual([4, 2, 6]);
    }
  });

  test("no timer runs while no log is to be compacted, and none after the close", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("t", 1, CONFIG);
    expect(fixture.environment.kernel.pendingCount).toBe(0);
    await manager.configureTopic("t", COMPACTED);
    expect(fixture.environment.kernel.pendingCount).toBe(1);
    await manager.close();
    expect(fixture.environment.kernel.pendingCount).toBe(0);
  });

  test("compacts nothing at or above the high watermark", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open({ highWatermark: () => toOffset(3) });
    const log = await topicOf(manager, "t");
    await write(log, "a=1", "a=2", "a=3", "a=4", "a=5");
    await fixture.environment.kernel.runFor(BACKOFF_US + SECOND_US);
    expect([log.cleanerOffset, await left(log)]).toEqual([2, ["1:a=2", "2:a=3", "3:a=4", "4:a=5"]]);
  });

  test("a follower compacts its own log", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("t", 1, COMPACTED);
    const log = manager.partition("t", 0);
    for (const [offset, pair] of ["a=1", "a=2", "a=3"].entries()) {
      const batch = keyed(pair);
      stampBatch(batch, 0, offset, toLeaderEpoch(3));
      await log?.appendAsFollower(batch);
    }
    await fixture.environment.kernel.runFor(BACKOFF_US + SECOND_US);
    expect(log && (await left(log))).toEqual(["1:a=2", "2:a=3"]);
  });

  test("goes on while a full map makes it stop early", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open({ cleaner: { mapBytes: 24 * 16 } });
    const log = await topicOf(manager, "t", { segmentBytes: 40 * keyed("k10=10").length, minCleanableDirtyRatio: 0 });
    for (let number = 10; number < 50; number += 1) await write(log, `k${10 + (number % 20)}=${number}`);
    await log.roll();
    await fixture.environment.kernel.runFor(BACKOFF_US + SECOND_US);
    expect([log.cleanerOffset, (await left(log)).length]).toEqual([40, 20]);
  });

  test("deletes old segments of a log that is also to be deleted from, and what delete-records left of the others", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open({ retention: { initialDelayMs: 1, intervalMs: 1 } });
    const limits = { retentionBytes: 0, minCleanableDirtyRatio: 1 };
    const both = await topicOf(manager, "both", { cleanupPolicy: "compact,delete", ...limits });
    const only = await topicOf(manager, "only", limits);
    for (const log of [both, only]) await write(log, "a=1", "a=2", "a=3");
    await fixture.environment.kernel.runFor(BACKOFF_US - SECOND_US);
    expect([both.logStartOffset, only.logStartOffset]).toEqual([0, 0]);
    await fixture.environment.kernel.runFor(2 * SECOND_US);
    expect([both.logStartOffset, only.logStartOffset]).toEqual([3, 0]);
  });
});

describe("the cleaner offset", () => {
  /** A topic of which all sealed segments are clean: up to offset 4 of 5. */
  async function cleaned(): Promise<{ fixture: ManagerFixture; manager: LogManager; log: PartitionLog }> {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const log = await topicOf(manager, "t");
    await write(log, "a=1", "a=2", "a=3", "b=1", "c=1");
    await fixture.environment.kernel.runFor(BACKOFF_US + SECOND_US);
    expect(log.cleanerOffset).toBe(4);
    return { fixture, manager, log };
  }

  test("stands in Kafka's file after a clean stop, and is taken from the state at the next open", async () => {
    const { fixture, manager } = await cleaned();
    await manager.close();
    expect(await fixture.read("cleaner-offset-checkpoint")).toBe("0\n1\nt 0 4\n");
    const reopened = await fixture.open();
    expect([reopened.report.checkpoints.source, ...cleanedEnds(reopened, "t")]).toEqual(["state", 4]);
    // Nobody who finds the directory after a crash may take a log for clean that was cut meanwhile.
    expect(await fixture.read("cleaner-offset-checkpoint")).toBe("0\n0\n");
  });

  test("survives a kill, and is forgotten with the state: all is dirty then", async () => {
    const { fixture } = await cleaned();
    fixture.kill();
    expect(cleanedEnds(await fixture.open(), "t")).toEqual([4]);
    fixture.kill();
    await fixture.loseState();
    const reopened = await fixture.open();
    expect(cleanedEnds(reopened, "t")).toEqual([undefined]);
    expect(reopened.partition("t", 0)?.dirtyPart).toMatchObject({ firstDirtyOffset: 0, cleanBytes: 0 });
  });

  test("is Kafka's where a broker ran in the directory meanwhile", async () => {
    const { fixture, manager } = await cleaned();
    await manager.close();
    await fixture.write("cleaner-offset-checkpoint", "0\n1\nt 0 2\n");
    const reopened = await fixture.open();
    expect([reopened.report.checkpoints.source, ...cleanedEnds(reopened, "t")]).toEqual(["files", 2]);
  });

  test("a directory of a version that kept none is not taken for another program's", async () => {
    const { fixture, manager } = await cleaned();
    await manager.close();
    const { state } = fixture;
    const key = "log-directory/checkpoint-prints";
    const lines = decodeUtf8(state.get(key) ?? new Uint8Array()).split("\n");
    const value = encodeUtf8(lines.filter((line) => !line.startsWith("cleaner-")).join("\n"));
    await state.commit([{ key, value }], { sync: true });
    expect((await fixture.open()).report.checkpoints.source).toBe("state");
  });

  test("falls with a truncation, durably, before anything else comes there", async () => {
    const { fixture, manager, log } = await cleaned();
    const before = fixture.files.operationCount;
    await log.truncateTo(toOffset(3));
    await write(log, "a=4");
    expect(cleanedEnds(manager, "t")).toEqual([3]);
    let isAppended = false;
    for (const point of [...fixture.files.crashPoints()].filter(({ number }) => number >= before)) {
      const after = new ManagerFixture(SimulatedDisk.afterProcessCrash(point));
      const log2 = (await after.open()).partition("t", 0);
      if (log2 === undefined) throw new Error("the topic is there");
      if (!(await left(log2)).includes("3:a=4")) continue;
      isAppended = true;
      expect(log2.cleanerOffset).toBe(3);
    }
    expect(isAppended).toBe(true);
    await log.truncateFullyAndStartAt(toOffset(7));
    expect(log.dirtyPart).toEqual({ firstDirtyOffset: 7, cleanBytes: 0, dirtyBytes: 0 });
  });

  test("above the end of what an open finds is lowered to it: what comes there is dirty", async () => {
    const { fixture, manager } = await cleaned();
    await manager.close();
    await fixture.write("cleaner-offset-checkpoint", "0\n1\nt 0 9\n");
    const reopened = await fixture.open();
    const log = await lead(reopened, "t");
    expect(log.cleanerOffset).toBe(5);
    await write(log, "a=4", "a=5", "a=6", "a=7", "a=8", "a=9");
    await fixture.environment.kernel.runFor(BACKOFF_US + SECOND_US);
    expect(await left(log)).toEqual(["3:b=1", "4:c=1", "9:a=8", "10:a=9"]);
  });

  test("counts as nothing below the log start", async () => {
    const { log } = await cleaned();
    await log.deleteRecords(toOffset(5));
    expect(log.dirtyPart.firstDirtyOffset).toBe(5);
  });

  test("goes with the topic: a new one of its name is dirty", async () => {
    const { manager } = await cleaned();
    await manager.deleteTopic("t");
    expect((await topicOf(manager, "t")).cleanerOffset).toBeUndefined();
  });
});

describe("a log that cannot be compacted", () => {
  async function damage(fixture: ManagerFixture): Promise<void> {
    const path = "data/t-0/00000000000000000000.log";
    const file = await fixture.files.open(path, "create");
    await file.writeAt(Uint8Array.of(0xff), 65);
    await file.sync();
    await file.close();
  }

  test("is left alone from then on, and says why; the others have their turn", async () => {
    const fixture = new ManagerFixture();
    const { kernel } = fixture.environment;
    const manager = await fixture.open();
    const logs = [await topicOf(manager, "t"), await topicOf(manager, "u")] as const;
    for (const log of logs) await write(log, "a=1", "a=2", "a=3");
    await damage(fixture);
    await kernel.runFor(BACKOFF_US + SECOND_US);
    expect(manager.cleanerView(logs[0])).toMatchObject({ isCleaning: false, uncleanable: { code: "CORRUPT_MESSAGE" } });
    expect(manager.cleanerView(logs[1])).toMatchObject({
      uncleanable: undefined,
      lastPass: { cleanedEndOffset: 2, keys: 1 },
    });
    expect(cleanedEnds(manager, "t", "u")).toEqual([undefined, 2]);
    let passes = 0;
    logs[0].compact = () => {
      passes += 1;
      return Promise.reject(new Error("not again"));
    };
    await kernel.runFor(2 * BACKOFF_US);
    expect(passes).toBe(0);
    // Appends go on.
    await write(logs[0], "a=4");
  });

  test("for want of space is tried again at the next look", async () => {
    const fixture = new ManagerFixture();
    const { kernel } = fixture.environment;
    const manager = await fixture.open();
    const log = await topicOf(manager, "t");
    await write(log, "a=1", "a=2", "a=3");
    fixture.files.inject({ operation: "write", path: ".cleaned", code: "ENOSPC" });
    await kernel.runFor(BACKOFF_US + SECOND_US);
    expect([log.cleanerOffset, manager.cleanerView(log).uncleanable]).toEqual([undefined, undefined]);
    await kernel.runFor(BACKOFF_US);
    expect(log.cleanerOffset).toBe(2);
  });

  test("whose disk fails in a sync takes the directory offline: nothing is acknowledged any more", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const log = await topicOf(manager, "t");
    await write(log, "a=1", "a=2", "a=3");
    fixture.files.inject({ operation: "sync", path: ".cleaned", code: "EIO" });
    await fixture.environment.kernel.runFor(BACKOFF_US + SECOND_US);
    expect(manager.directory.isOnline).toBe(false);
    await expect(write(log, "a=4")).rejects.toMatchObject({ code: "KAFKA_STORAGE_ERROR" });
    expect((await manager.close()).isClean).toBe(false);
  });
});

describe("a pass under way", () => {
  /** The cleaner has begun with the log, and waits for the disk until it is released. */
  async function begun() {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const log = await topicOf(manager, "t");
    for (let number = 0; number < 40; number += 1) await write(log, `a=${number % 10}`);
    const stall = fixture.files.stall({ operation: "sync", path: /cleaned/u });
    await fixture.environment.kernel.runFor(BACKOFF_US + SECOND_US);
    expect(manager.cleanerView(log).isCleaning).toBe(true);
    return { fixture, manager, log, release: () => stall.release() };
  }

  test.each([
    ["the close", (manager: LogManager) => manager.close()],
    ["a delete", (manager: LogManager) => manager.deleteTopic("t")],
    ["another configuration", (manager: LogManager) => manager.configureTopic("t", COMPACTED)],
    ["a truncation", (manager: LogManager) => manager.partition("t", 0)?.truncateTo(toOffset(3))],
  ] as const)("is ended by %s, and leaves nothing behind", async (_what, end) => {
    const { fixture, manager, log, release } = await begun();
    const pass = log.compact().catch((error: { code: string }) => error.code);
    const ended = end(manager);
    release();
    await ended;
    expect(["COMPACTION_ABORTED", "LOG_CLOSED"]).toContain(await pass);
    await fixture.environment.kernel.runFor(SECOND_US);
    expect(manager.cleanerView(log)).toMatchObject({ isCleaning: false, uncleanable: undefined });
    expect((await manager.close()).isClean).toBe(true);
    if (!(await fixture.names()).includes("t-0")) return;
    const names = await fixture.files.list("data/t-0");
    expect([...names].filter((name) => /cleaned|swap/u.test(name))).toEqual([]);
  });

  test("the next look begins it anew after a truncation", async () => {
    const { fixture, manager, log, release } = await begun();
    const cut = log.truncateTo(toOffset(31));
    release();
    await cut;
    await fixture.environment.kernel.runFor(BACKOFF_US + SECOND_US);
    expect(manager.cleanerView(log).uncleanable).toBeUndefined();
    expect([log.cleanerOffset, await left(log)]).toEqual([30, ["29:a=9", "30:a=0"]]);
  });

  test("none begins on what a truncation under way is about to take", async () => {
    const { fixture, manager, log, release } = await begun();
    const aborted = log.abortCompaction();
    release();
    await aborted;
    const cut = log.truncateTo(toOffset(3));
    const passes = [];
    for (let turn = 0; turn < 200; turn += 1) {
      passes.push(log.compact().catch((error: { code: string }) => error.code));
      await Promise.resolve();
    }
    await cut;
    for (const result of await Promise.all(passes))
      if (typeof result === "string") expect(result).toBe("COMPACTION_ABORTED");
    await fixture.environment.kernel.runFor(SECOND_US);
    expect(manager.partition("t", 0)?.refusal).toBeUndefined();
    expect((await left(log)).at(-1)).toBe("2:a=2");
  });
});
