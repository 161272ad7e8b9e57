import { decodeUtf8, encodeUtf8, toLeaderEpoch, toOffset } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG, LogManager, putStateOffset, repairDirectory } from "@tidemark/log";
import type { PartitionLog, TopicConfig } from "@tidemark/log";
import { enumerateCrashImages, SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import { decodeRecords, encodeBatch, recordsSection, scanBatch, stampBatch } from "@tidemark/wire";
import { demand } from "./recovered-log.ts";
import type { SyncWatch } from "./sync-sites.ts";
import { checkFailure, checkNotRepeated, checkRefuses } from "./synced-run.ts";
import type { Told } from "./synced-run.ts";

const ROOT = "/node";
const DATA = `${ROOT}/data`;
const BATCH_BYTES = batch("0").length;
/** Two batches a segment. */
const CONFIG: TopicConfig = {
  ...DEFAULT_LOG_CONFIG,
  segmentBytes: 2 * BATCH_BYTES,
  indexIntervalBytes: 1,
  compression: "none",
};

/** A history of a whole directory, from one or more processes. */
export interface DirectoryScenario {
  readonly name: string;
  /** What happened before, and a kill after it. */
  prepare?(node: Node): Promise<void>;
  play(node: Node): Promise<void>;
  /** What whoever starts the machine again does first. */
  restart?(node: Node): Promise<void>;
}

/** A machine with one log directory, and what its users were told. */
export class Node {
  disk: SimulatedDisk;
  readonly #watch: SyncWatch | undefined;
  manager: LogManager | undefined;
  /** `orders` is there or not: `undefined` while nobody was told. */
  readonly topics = new Map<string, boolean>();
  /** Of each partition: what was acknowledged, by offset, and the log start. */
  readonly records = new Map<string, Map<number, string>>();
  readonly starts = new Map<string, number>();

  constructor(disk: SimulatedDisk, watch?: SyncWatch) {
    this.disk = disk;
    this.#watch = watch;
    watch?.attach(disk);
  }

  /** Takes over what the users of another one were told. */
  remember(other: Node): void {
    for (const [name, isThere] of other.topics) this.topics.set(name, isThere);
    for (const [name, records] of other.records) this.records.set(name, new Map(records));
    for (const [name, start] of other.starts) this.starts.set(name, start);
  }

  async open(): Promise<LogManager> {
    const environment = new SimulatedEnvironment({ seed: 1 }, this.disk);
    this.manager = await LogManager.open({
      environment,
      openState: () => Promise.resolve(environment.state),
      directory: DATA,
      defaults: CONFIG,
      producerIdExpirationMs: Number.MAX_SAFE_INTEGER,
    });
    this.#refuseStruck("an open");
    return this.manager;
  }

  get current(): LogManager {
    if (this.manager === undefined) throw new Error("the directory is open");
    return this.manager;
  }

  async createTopic(name: string, partitions = 1): Promise<void> {
    this.topics.delete(name);
    await this.current.createTopic(name, partitions, CONFIG);
    this.#refuseStruck("createTopic");
    this.topics.set(name, true);
  }

  async deleteTopic(name: string): Promise<void> {
    this.topics.delete(name);
    for (const key of this.records.keys()) if (key.startsWith(`${name}-`)) this.records.delete(key);
    await this.current.deleteTopic(name);
    this.#refuseStruck("deleteTopic");
    this.topics.set(name, false);
  }

  async append(name: string, values: string, partition = 0): Promise<void> {
    const log = this.log(name, partition);
    if (log.leaderEpoch === undefined) await log.becomeLeader(toLeaderEpoch((log.epochEntries.at(-1)?.epoch ?? 0) + 1));
    for (const value of values) {
      const { baseOffset } = await log.append(batch(value), { origin: "local" });
      this.#refuseStruck("append");
      const key = `${name}-${partition}`;
      this.records.set(key, (this.records.get(key) ?? new Map<number, string>()).set(baseOffset, value));
    }
  }

  async deleteRecords(name: string, offset: number): Promise<void> {
    const key = `${name}-0`;
    this.starts.delete(key);
    const records = [...(this.records.get(key) ?? [])];
    this.records.delete(key);
    await this.current.deleteRecords(name, 0, toOffset(offset));
    this.#refuseStruck("deleteRecords");
    this.starts.set(key, offset);
    this.records.set(key, new Map(records));
  }

  log(name: string, partition = 0): PartitionLog {
    const log = this.manager?.partition(name, partition);
    if (log === undefined) throw new Error(`there is no ${name}-${partition}`);
    return log;
  }

  /** @throws Error when it is not clean */
  async close(): Promise<void> {
    const { isClean, reason } = (await this.manager?.close()) ?? { isClean: true, reason: "" };
    if (!isClean) throw new Error(`the directory did not close completely: ${reason}`);
    this.#refuseStruck("the close");
    this.manager = undefined;
  }

  kill(): void {
    this.#refuseStruck("a kill");
    this.disk = this.disk.crashProcess();
    this.#watch?.attach(this.disk);
    this.manager = undefined;
  }

  /** Batches that were synced long ago rot: those with these numbers in the segment; without numbers its file is gone. */
  async rot(name: string, segment: number, ...batches: readonly number[]): Promise<void> {
    const directory = `${DATA}/${name}-0`;
    const path = `${directory}/${String(segment).padStart(20, "0")}.log`;
    if (batches.length === 0) {
      await this.disk.unlink(path);
      return this.disk.syncDirectory(directory);
    }
    const file = await this.disk.open(path, "write");
    for (const at of batches) await file.writeAt(Uint8Array.of(255), (at + 1) * BATCH_BYTES - 1);
    await file.close();
  }

  async repair(): Promise<void> {
    const environment = new SimulatedEnvironment({ seed: 1 }, this.disk);
    await repairDirectory({
      environment,
      openState: () => Promise.resolve(environment.state),
      directory: DATA,
      acceptsLoss: true,
    });
    this.#refuseStruck("repair");
  }

  /** Of what was told: all of it is there. Goes on from there, and stops cleanly. */
  async check(): Promise<void> {
    const manager = await this.open();
    for (const [name, isThere] of this.topics)
      demand(manager.topics.has(name) === isThere, "S13", () => `topic ${name} is ${isThere ? "gone" : "back"}`);
    for (const [key, records] of this.records) {
      const at = key.lastIndexOf("-");
      const log = this.log(key.slice(0, at), Number(key.slice(at + 1)));
      const start = this.starts.get(key) ?? log.logStartOffset;
      demand(log.logStartOffset === start, "S6", () => `${key} begins at ${log.logStartOffset}, not ${start}`);
      const found = await valuesOf(log);
      for (const [offset, value] of records)
        demand(offset < start || found.get(offset) === value, "S12", () => `${key} has lost ${offset}: ${value}`);
    }
    for (const name of manager.topics.keys()) {
      this.records.delete(`${name}-0`);
      await this.append(name, "z");
    }
    await this.close();
    await this.open();
    await this.close();
  }

  #refuseStruck(what: string): void {
    const struck = this.#watch?.struck;
    demand(struck === undefined, "S14", () => `${what} is answered although a sync of ${struck?.path} has failed`);
  }
}

function batch(value: string): Uint8Array {
  return encodeBatch([{ key: null, value: encodeUtf8(value), timestamp: 1_700_000_000_000 }]);
}

async function valuesOf(log: PartitionLog): Promise<Map<number, string>> {
  const values = new Map<number, string>();
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 });
    const scan = scanBatch(bytes, 0);
    if (scan.type !== "batch") throw new Error(`there is no batch at ${next}`);
    for (const { offset, value } of decodeRecords(scan.header, recordsSection(bytes, scan.header)))
      values.set(offset, value === null ? "" : decodeUtf8(value));
    next = scan.header.lastOffset + 1;
  }
  return values;
}

/** As `playSynced`, of a directory. */
export async function playDirectory(scenario: DirectoryScenario, watch: SyncWatch): Promise<Told | undefined> {
  const before = new Node(await emptyMachine());
  await scenario.prepare?.(before);
  const node = new Node(before.disk.crashProcess(), watch);
  node.remember(before);
  let failure: unknown;
  try {
    await scenario.play(node);
    await node.close();
  } catch (error) {
    failure = error;
  }
  if (watch.struck === undefined) {
    if (failure !== undefined) throw failure;
    return undefined;
  }
  await new Promise(setImmediate);
  const isClose = failure instanceof Error && failure.message.includes("did not close completely");
  if (!isClose) checkFailure(failure, "the call that waited");
  const told = isClose ? "the close" : node.manager === undefined ? "an open" : "a call";
  if (told === "a call") await checkManagerRefuses(node);
  checkNotRepeated(watch);
  const point = node.disk.crashPoint();
  const disks = [SimulatedDisk.afterProcessCrash(point)];
  for (const image of enumerateCrashImages(point, "ordered-prefix", { outcomesMax: 2, seed: 1 }))
    disks.push(SimulatedDisk.fromImage(image));
  for (const disk of disks) {
    const next = new Node(disk);
    next.remember(node);
    await scenario.restart?.(next);
    await next.check();
  }
  return told;
}

/** All that is above the directory is there, durably. */
async function emptyMachine(): Promise<SimulatedDisk> {
  const disk = new SimulatedDisk({ keepsHistory: false });
  await disk.makeDirectory(ROOT);
  await disk.syncDirectory("/");
  return SimulatedDisk.fromImage(disk.image());
}

async function checkManagerRefuses(node: Node): Promise<void> {
  const { manager } = node;
  if (manager === undefined) return;
  demand(!manager.directory.isOnline, "S14", () => "the directory is online behind a failed sync");
  const [topic] = manager.topics.keys();
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    createTopic: () => manager.createTopic("late", 1, CONFIG),
    ...(topic === undefined
      ? {}
      : {
          deleteRecords: () => manager.deleteRecords(topic, 0, toOffset(1)),
          deleteTopic: () => manager.deleteTopic(topic),
        }),
  };
  for (const [name, call] of Object.entries(calls)) {
    const [outcome] = await Promise.allSettled([call()]);
    demand(outcome.status === "rejected", "S14", () => `${name} is answered behind a failed sync`);
    checkFailure(outcome.reason, name);
  }
  for (const name of manager.topics.keys()) {
    const log = manager.partition(name, 0);
    if (log !== undefined) await checkRefuses(log);
  }
  const { isClean } = await manager.close();
  demand(!isClean, "S14", () => "the directory says that it closed completely behind a failed sync");
}

export const DIRECTORY_SCENARIOS: readonly DirectoryScenario[] = [
  {
    name: "a directory is made, topics come and go",
    async play(node) {
      await node.open();
      await node.createTopic("orders", 2);
      await node.append("orders", "abcde");
      await node.append("orders", "fg", 1);
      await node.createTopic("gone");
      await node.append("gone", "h");
      await node.deleteRecords("orders", 3);
      await node.deleteTopic("gone");
      await node.close();
      await node.open();
      await node.append("orders", "i");
    },
  },
  {
    name: "a topic whose removal a kill met, one that could not be made, and a cleaner offset behind a log's end",
    async prepare(node) {
      await node.open();
      await node.createTopic("orders");
      await node.append("orders", "abc");
      await node.createTopic("gone");
      await node.append("gone", "d");
      node.disk.inject({ operation: "unlink", code: "EIO" });
      await node.deleteTopic("gone").catch(() => undefined);
      await node.current.state.commit([putStateOffset("cleaner-offset", "orders", 0, toOffset(9))], { sync: true });
    },
    async play(node) {
      await node.open();
      node.disk.inject({ operation: "open", path: /late-1/u, code: "ENOSPC" });
      await node.current.createTopic("late", 2, CONFIG).catch((error: unknown) => {
        if (!String(error).includes("ENOSPC")) throw error;
      });
      await node.append("orders", "d");
      node.kill();
      await node.open();
      await node.append("orders", "e");
    },
  },
  {
    name: "another program wrote here",
    async prepare(node) {
      await node.open();
      await node.createTopic("orders");
      await node.append("orders", "abcde");
      await node.deleteRecords("orders", 1);
      await node.close();
      const environment = new SimulatedEnvironment({ seed: 1 }, node.disk);
      const { state } = environment;
      await state.commit(
        state.keys("").map((key) => ({ key, value: undefined })),
        { sync: true },
      );
      await foreignSegment(node.disk, `${DATA}/orders-0`);
    },
    async play(node) {
      await node.open();
      await node.append("orders", "f");
    },
  },
  {
    name: "a repair",
    async prepare(node) {
      await node.open();
      await node.createTopic("orders");
      await node.append("orders", "abcdefg");
      await node.close();
      await node.rot("orders", 2, 1);
      await node.rot("orders", 4, 0, 1);
      await node.rot("orders", 6);
      node.records.delete("orders-0");
    },
    async play(node) {
      await node.repair();
      await node.open();
      await node.append("orders", "h");
    },
    restart: (node) => node.repair(),
  },
];

/** Offsets of one segment that lie too far apart for its index. */
async function foreignSegment(disk: SimulatedDisk, directory: string): Promise<void> {
  const file = await disk.open(`${directory}/00000000000000000004.log`, "write");
  const bytes = batch("y");
  stampBatch(bytes, 0, 2 ** 31 + 10, 1);
  await file.writeAt(bytes, await file.size());
  await file.sync();
  await file.close();
}
