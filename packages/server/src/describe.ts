import { readdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseUtf8, readFileIfPresent } from "@tidemark/base";
import type { FileSystem, State } from "@tidemark/base";
import { CheckpointError, decodeLeaderEpochCheckpoint, LEADER_EPOCH_CHECKPOINT } from "@tidemark/epoch-cache";
import type { EpochEntry } from "@tidemark/epoch-cache";
import {
  CLEANER_CHECKPOINT,
  decodeMetaProperties,
  decodeOffsetCheckpoint,
  decodeStateInt64,
  decodeTopic,
  isCompacted,
  LOG_START_CHECKPOINT,
  META_PROPERTIES_FILE,
  parseDirectoryName,
  readCleanShutdownMarker,
  REPLICATION_CHECKPOINT,
  stateOffsetPrefix,
  topicKey,
} from "@tidemark/log";
import type { StateOffsetName, TopicConfig } from "@tidemark/log";
import { CONTROLLER_STATE_FILE } from "@tidemark/replica";
import { NodeFileSystem } from "@tidemark/runtime-node";
import type { PartitionState } from "@tidemark/wire";
import { segmentsOf, walkedEndOffset } from "./describe-segments.ts";
import type { SegmentFile } from "./describe-segments.ts";
import { TidemarkError, translated } from "./error.ts";
import { readStateCopy } from "./state-copy.ts";
import { isLocked } from "./verify.ts";

/** How far the files of a replica are compacted. */
export interface CleanedFiles {
  /** Where the last pass ended; the log start when none did. */
  readonly firstDirtyOffset: number;
  /** Of the sealed segments that reach it. */
  readonly dirtyBytes: number;
}

/** One replica, as the files of its broker show it. */
export interface ReplicaFiles {
  /** Of the partition. */
  readonly directory: string;
  /** `node.id` of its `meta.properties`; `undefined` when there is none. */
  readonly brokerId: number | undefined;
  readonly topic: string;
  readonly partition: number;
  /** Where the system does not list locks, one in use looks like one that was not stopped cleanly. */
  readonly status: "in use" | "stopped cleanly" | "not stopped cleanly";
  /** Offset of the first record. */
  readonly logStartOffset: number;
  /** As it was noted last: every 5 s by a running broker, exactly by a clean stop. `undefined` when it never was. */
  readonly highWatermark: number | undefined;
  /** Offset of the next record, by the batches in the last segment. */
  readonly logEndOffset: number;
  /** Of a topic that is compacted, as far as the node's state or a checkpoint file says so. */
  readonly cleaner: CleanedFiles | undefined;
  readonly epochs: readonly EpochEntry[];
  /** What the controller decided last; `undefined` when no directory of a controller was given. */
  readonly controller: PartitionState | undefined;
  /** What could not be read, one line each. */
  readonly problems: readonly string[];
}

/**
 * Reads what the directories of brokers show about their replicas: nothing is asked of any process, nothing locked, nothing written.
 * They may be closed, killed or in use; of one in use, the end of the log and the high watermark may be some moments old.
 *
 * Cost: the headers of each partition's last segment, and a copy of the node's state (about 1 MiB) in the system's temporary directory.
 * @param paths directories of brokers (as given to `Broker.open` or `Tidemark.open`), Kafka log directories, a controller's directory, or one that
 * holds such directories
 * @returns sorted by topic, partition, broker; empty when there are no partitions
 * @throws TidemarkError KAFKA_STORAGE_ERROR when a directory cannot be read, UNKNOWN_DIRECTORY when it is none of those
 */
export function describeDirectories(paths: readonly string[]): Promise<readonly ReplicaFiles[]> {
  return translated(describeAll(paths));
}

/** A directory to be described. */
interface Found {
  readonly nodes: { readonly logDirectory: string; readonly stateDirectory: string | undefined }[];
  readonly controllers: string[];
}

async function describeAll(paths: readonly string[]): Promise<readonly ReplicaFiles[]> {
  const files = new NodeFileSystem();
  const found: Found = { nodes: [], controllers: [] };
  for (const path of paths) await find(files, resolve(path), found);
  const decided = new Map<string, PartitionState>();
  for (const directory of found.controllers) {
    for (const state of await readController(files, directory)) decided.set(`${state.topic}-${state.partition}`, state);
  }
  const nodes = await Promise.all(found.nodes.map((node) => describeNode(files, node, decided)));
  return nodes
    .flat()
    .toSorted(
      (first, second) =>
        compareText(first.topic, second.topic) ||
        first.partition - second.partition ||
        (first.brokerId ?? -1) - (second.brokerId ?? -1),
    );
}

async function find(files: FileSystem, path: string, found: Found): Promise<void> {
  await files.list(path); // Says what is wrong with a path that is missing or no directory.
  if (await takeDirectory(path, found)) return;
  const entries = await readdir(path, { withFileTypes: true });
  let isAny = false;
  for (const { name } of entries
    .filter((entry) => entry.isDirectory())
    .toSorted((a, b) => compareText(a.name, b.name))) {
    isAny = (await takeDirectory(join(path, name), found)) || isAny;
  }
  if (!isAny) {
    const message = `${path}: holds no log: no meta.properties here, in log, or in the directory of a broker`;
    throw new TidemarkError("UNKNOWN_DIRECTORY", message, { path });
  }
}

/** @returns false when the directory is neither a broker's nor a log's nor a controller's */
async function takeDirectory(path: string, found: Found): Promise<boolean> {
  if (await isFile(join(path, "log", META_PROPERTIES_FILE))) {
    found.nodes.push({ logDirectory: join(path, "log"), stateDirectory: join(path, "state") });
  } else if (await isFile(join(path, META_PROPERTIES_FILE))) {
    found.nodes.push({ logDirectory: path, stateDirectory: undefined });
  } else if (await isFile(join(path, CONTROLLER_STATE_FILE))) {
    found.controllers.push(path);
  } else return false;
  return true;
}

async function describeNode(
  files: FileSystem,
  node: Found["nodes"][number],
  decided: ReadonlyMap<string, PartitionState>,
): Promise<readonly ReplicaFiles[]> {
  const { logDirectory } = node;
  const problems: string[] = [];
  const attempt = async <Result>(read: () => Promise<Result>): Promise<Result | undefined> => {
    try {
      return await read();
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  };
  const brokerId = await attempt(() => readNodeId(files, logDirectory));
  const isClean = (await readCleanShutdownMarker(files, logDirectory)) !== undefined;
  const isInUse = (await isLocked(join(logDirectory, ".lock"))) === true;
  const status = isInUse ? "in use" : isClean ? "stopped cleanly" : "not stopped cleanly";
  const offsets = await attempt(() => readNoted(files, node, isClean));
  const replicas: ReplicaFiles[] = [];
  for (const entry of await readdir(logDirectory, { withFileTypes: true })) {
    const name = parseDirectoryName(entry.name);
    if (!entry.isDirectory() || name.type !== "partition") continue;
    const { topic, partition } = name;
    const key = `${topic}-${partition}`;
    const directory = join(logDirectory, entry.name);
    const ownProblems: string[] = [];
    const segments = await segmentsOf(directory);
    const epochs = await readEpochs(files, join(directory, LEADER_EPOCH_CHECKPOINT), ownProblems);
    const logEndOffset = await walkedEndOffset(segments, ownProblems);
    replicas.push({
      directory,
      brokerId,
      topic,
      partition,
      status,
      logStartOffset: Math.max(segments[0]?.baseOffset ?? 0, offsets?.logStart.get(key) ?? 0),
      highWatermark: offsets?.highWatermark.get(key),
      logEndOffset,
      cleaner: offsets && (await cleanedOf(segments, { topic, key, noted: offsets })),
      epochs,
      controller: decided.get(key),
      problems: [...problems, ...ownProblems],
    });
  }
  return replicas;
}

interface Noted {
  readonly logStart: ReadonlyMap<string, number>;
  readonly highWatermark: ReadonlyMap<string, number>;
  readonly cleanerOffset: ReadonlyMap<string, number>;
  /** Topics that are set to be compacted. */
  readonly compacted: ReadonlySet<string>;
}

/** `undefined` for a log that is not compacted. */
async function cleanedOf(
  segments: readonly SegmentFile[],
  { topic, key, noted }: { readonly topic: string; readonly key: string; readonly noted: Noted },
): Promise<CleanedFiles | undefined> {
  const cleanerOffset = noted.cleanerOffset.get(key);
  if (cleanerOffset === undefined && !noted.compacted.has(topic)) return undefined;
  const logStartOffset = Math.max(segments[0]?.baseOffset ?? 0, noted.logStart.get(key) ?? 0);
  const firstDirtyOffset = Math.max(cleanerOffset ?? 0, logStartOffset);
  // The last one is active: it is never compacted.
  const dirty = segments.slice(0, -1).filter((_, at) => (segments[at + 1]?.baseOffset ?? 0) > firstDirtyOffset);
  let dirtyBytes = 0;
  // One that a pass has just replaced counts for nothing.
  for (const { path } of dirty)
    dirtyBytes += await stat(path).then(
      ({ size }) => size,
      () => 0,
    );
  return { firstDirtyOffset, dirtyBytes };
}

/** After a clean stop the text files say it, which Kafka may have written too; else a broker of ours keeps it in its state. */
async function readNoted(files: FileSystem, node: Found["nodes"][number], isClean: boolean): Promise<Noted> {
  const { logDirectory, stateDirectory } = node;
  const fromFiles = {
    logStart: await readCheckpoint(files, join(logDirectory, LOG_START_CHECKPOINT)),
    highWatermark: await readCheckpoint(files, join(logDirectory, REPLICATION_CHECKPOINT)),
    cleanerOffset: await readCheckpoint(files, join(logDirectory, CLEANER_CHECKPOINT)),
  };
  if (stateDirectory === undefined) return { ...fromFiles, compacted: new Set() };
  const fromState = await readStateCopy(stateDirectory, (state) => ({
    logStart: offsetsIn(state, "log-start"),
    highWatermark: offsetsIn(state, "high-watermark"),
    cleanerOffset: offsetsIn(state, "cleaner-offset"),
    compacted: compactedTopicsIn(state),
  }));
  if (fromState === undefined) return { ...fromFiles, compacted: new Set() };
  return isClean ? { ...fromState, ...fromFiles } : fromState;
}

function compactedTopicsIn(state: State): ReadonlySet<string> {
  const prefix = topicKey("");
  const names = state.keys(prefix).map((key) => key.slice(prefix.length));
  const configOf = (name: string): TopicConfig | undefined =>
    decodeTopic(name, state.get(topicKey(name)) ?? new Uint8Array(0))?.topic.config;
  return new Set(
    names.filter((name) => {
      const config = configOf(name);
      return config !== undefined && isCompacted(config);
    }),
  );
}

async function readCheckpoint(files: FileSystem, path: string): Promise<ReadonlyMap<string, number>> {
  const bytes = await readFileIfPresent(files, path);
  const entries = bytes === undefined || bytes.length === 0 ? [] : decodeOffsetCheckpoint(bytes, path);
  return new Map(entries.map(({ topic, partition, offset }) => [`${topic}-${partition}`, offset]));
}

function offsetsIn(state: State, name: StateOffsetName): ReadonlyMap<string, number> {
  const prefix = stateOffsetPrefix(name);
  const offsets = new Map<string, number>();
  for (const key of state.keys(prefix)) {
    const offset = decodeStateInt64(state.get(key));
    if (offset !== undefined) offsets.set(key.slice(prefix.length), offset);
  }
  return offsets;
}

async function readNodeId(files: FileSystem, logDirectory: string): Promise<number | undefined> {
  const path = join(logDirectory, META_PROPERTIES_FILE);
  const bytes = await readFileIfPresent(files, path);
  return bytes === undefined ? undefined : decodeMetaProperties(bytes, path).nodeId;
}

async function readEpochs(files: FileSystem, path: string, problems: string[]): Promise<readonly EpochEntry[]> {
  const bytes = await readFileIfPresent(files, path);
  if (bytes === undefined || bytes.length === 0) return [];
  try {
    return decodeLeaderEpochCheckpoint(bytes, path);
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    problems.push(error.message);
    return [];
  }
}

async function readController(files: FileSystem, directory: string): Promise<readonly PartitionState[]> {
  const path = join(directory, CONTROLLER_STATE_FILE);
  const bytes = await readFileIfPresent(files, path);
  const partitions = partitionsIn(bytes === undefined ? undefined : parseUtf8(bytes));
  if (partitions === undefined)
    throw new TidemarkError("UNKNOWN_DIRECTORY", `${path}: not a controller's state`, { path });
  return partitions;
}

/** Only what is needed here is looked at. */
function partitionsIn(text: string | undefined): readonly PartitionState[] | undefined {
  try {
    const content = JSON.parse(text ?? "") as { state?: { partitions?: unknown } } | null;
    const partitions: unknown = content?.state?.partitions;
    return Array.isArray(partitions) && partitions.every(isPartitionState) ? partitions : undefined;
  } catch {
    return undefined;
  }
}

function isPartitionState(value: unknown): value is PartitionState {
  if (typeof value !== "object" || value === null) return false;
  const { topic, partition, leader, leaderEpoch, isr } = value as Partial<Record<keyof PartitionState, unknown>>;
  const numbers: readonly unknown[] = [partition, leader, leaderEpoch];
  return typeof topic === "string" && numbers.every((number) => typeof number === "number") && Array.isArray(isr);
}

async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );
}

function compareText(first: string, second: string): number {
  return first < second ? -1 : first > second ? 1 : 0;
}
