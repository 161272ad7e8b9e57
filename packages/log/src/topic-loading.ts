import { FileError, isDirectory, joinPath } from "@tidemark/base";
import type { Environment, FileSystem, State, StatePut } from "@tidemark/base";
import { forgetPartition } from "./directory-checkpoints.ts";
import { LogError } from "./error.ts";
import {
  parseDirectoryName,
  partitionDirectoryName,
  readPartitionMetadata,
  writePartitionMetadata,
} from "./partition-directory.ts";
import type { TopicPartition } from "./partition-directory.ts";
import { decodeTopic, encodeTopic, TOPIC_KEYS, topicKey } from "./topic-config.ts";
import type { TopicConfig, TopicDescription } from "./topic-config.ts";
import { randomUuid } from "./uuid.ts";

export interface PartitionDirectory extends TopicPartition {
  readonly directory: string;
}

export interface LogDirectoryListing {
  readonly partitions: readonly PartitionDirectory[];
  /** Directories that wait for removal. */
  readonly doomed: readonly string[];
  /** Names of directories that are not ours to touch. */
  readonly ignored: readonly string[];
}

/**
 * Directories inside a log directory by what their names say; plain files are passed over. Ascending by name.
 * @throws LogError UNKNOWN_DIRECTORY for a name that Kafka would refuse to start with, or two names for one partition
 * @throws FileError
 */
export async function listLogDirectory(files: FileSystem, directory: string): Promise<LogDirectoryListing> {
  const partitions = new Map<string, PartitionDirectory>();
  const doomed: string[] = [];
  const ignored: string[] = [];
  for (const name of [...(await files.list(directory))].sort()) {
    const path = joinPath(directory, name);
    if (!(await isDirectory(files, path))) continue;
    const parsed = parseDirectoryName(name);
    if (parsed.type === "unknown") throw new LogError({ code: "UNKNOWN_DIRECTORY", path, reason: parsed.reason });
    if (parsed.type === "delete") doomed.push(path);
    if (parsed.type === "ignored") ignored.push(name);
    if (parsed.type !== "partition") continue;
    const { topic, partition } = parsed;
    const key = partitionDirectoryName(parsed);
    const other = partitions.get(key);
    if (other !== undefined) {
      throw new LogError({ code: "UNKNOWN_DIRECTORY", path, reason: `${other.directory} is the same partition` });
    }
    partitions.set(key, { topic, partition, directory: path });
  }
  return { partitions: [...partitions.values()], doomed, ignored };
}

export interface LoadedTopics {
  readonly topics: Map<string, TopicDescription>;
  /** Every partition that has a directory, with its topic's configuration. */
  readonly partitions: readonly (PartitionDirectory & { readonly config: TopicConfig })[];
  /** Names of partitions that should have a directory and have none. */
  readonly missing: ReadonlySet<string>;
  readonly rebuilt: readonly string[];
  readonly removed: readonly string[];
}

export interface LoadTopicsOptions {
  readonly defaults: TopicConfig;
  /** `files`: another program ran here, or `State` is new; then the directories decide which topics there are. */
  readonly source: "files" | "state";
}

/**
 * Brings together the topics that `State` knows and the directories that are there: finishes interrupted removals, rebuilds
 * topics that `State` does not know, gives a topic id to every directory that has none.
 * @throws LogError PARTITION_METADATA_INVALID, INCONSISTENT_TOPIC_ID
 * @throws FileError
 */
export async function loadTopics(
  environment: Environment,
  state: State,
  listing: LogDirectoryListing,
  { defaults, source }: LoadTopicsOptions,
): Promise<LoadedTopics> {
  const { files } = environment;
  const byTopic = groupByTopic(listing.partitions);
  const topics = new Map<string, TopicDescription>();
  const doomed = [...listing.doomed];
  const puts: StatePut[] = [];
  const removed: string[] = [];
  const rebuilt: string[] = [];
  for (const { name, topic, status } of readTopics(state)) {
    const directories = byTopic.get(name);
    const isKnown = topic !== undefined && status === "ready";
    if (isKnown && (directories !== undefined || source === "state")) topics.set(name, topic);
    else if (directories === undefined || (topic !== undefined && source === "state")) {
      // Never told to anybody as there, or told as gone; or another program removed it.
      removed.push(name);
      doomed.push(...(directories ?? []).map(({ directory }) => directory));
      puts.push(
        ...(directories ?? []).flatMap((directory) => forgetPartition(state, partitionDirectoryName(directory))),
      );
      puts.push({ key: topicKey(name), value: undefined });
      byTopic.delete(name);
    }
  }
  await removeDoomed(files, doomed);
  for (const [name, directories] of byTopic) {
    const known = topics.get(name);
    const topic = await settleTopic(environment, { name, directories, known, defaults, source });
    if (known === undefined) rebuilt.push(name);
    topics.set(name, topic);
    if (topic !== known) puts.push({ key: topicKey(name), value: encodeTopic(topic, "ready") });
  }
  if (puts.length > 0) await state.commit(puts, { sync: true });
  const partitions = [...byTopic.values()].flat().map((directory) => ({
    ...directory,
    config: topics.get(directory.topic)?.config ?? defaults,
  }));
  return { topics, partitions, missing: missingPartitions(topics, byTopic), rebuilt, removed };
}

interface SettleOptions {
  readonly name: string;
  readonly directories: readonly PartitionDirectory[];
  readonly known: TopicDescription | undefined;
  readonly defaults: TopicConfig;
  readonly source: "files" | "state";
}

/** The topic as its directories say, after each of them has the topic's id. */
async function settleTopic(environment: Environment, options: SettleOptions): Promise<TopicDescription> {
  const { name, directories, known, defaults, source } = options;
  const { files, random } = environment;
  const found = new Map<string, string | undefined>();
  for (const { directory } of directories) found.set(directory, await readPartitionMetadata(files, directory));
  const firstFound = [...found.values()].find((id) => id !== undefined);
  // Another program may have removed a topic and made one of the same name.
  const isSame =
    known !== undefined && (source === "state" || firstFound === undefined || firstFound === known.topicId);
  const topicId = (isSame ? known.topicId : firstFound) ?? randomUuid(random, "topic-id");
  for (const [directory, id] of found) {
    if (id === undefined) await writePartitionMetadata(files, directory, topicId);
    else if (id !== topicId) {
      throw new LogError({ code: "INCONSISTENT_TOPIC_ID", path: directory, found: id, expected: topicId });
    }
  }
  const partitions = Math.max(...directories.map(({ partition }) => partition + 1), isSame ? known.partitions : 0);
  if (isSame && partitions === known.partitions) return known;
  return { name, topicId, partitions, config: isSame ? known.config : defaults };
}

function missingPartitions(
  topics: ReadonlyMap<string, TopicDescription>,
  byTopic: ReadonlyMap<string, readonly PartitionDirectory[]>,
): Set<string> {
  const missing = new Set<string>();
  for (const { name, partitions } of topics.values()) {
    const present = new Set((byTopic.get(name) ?? []).map(({ partition }) => partition));
    for (let partition = 0; partition < partitions; partition += 1) {
      if (!present.has(partition)) missing.add(partitionDirectoryName({ topic: name, partition }));
    }
  }
  return missing;
}

function* readTopics(state: State): Generator<{
  readonly name: string;
  readonly topic: TopicDescription | undefined;
  readonly status: "incomplete" | "ready";
}> {
  for (const key of state.keys(TOPIC_KEYS)) {
    const name = key.slice(TOPIC_KEYS.length);
    const bytes = state.get(key);
    const decoded = bytes === undefined ? undefined : decodeTopic(name, bytes);
    yield { name, topic: decoded?.topic, status: decoded?.status ?? "ready" };
  }
}

function groupByTopic(partitions: readonly PartitionDirectory[]): Map<string, PartitionDirectory[]> {
  const groups = new Map<string, PartitionDirectory[]>();
  for (const directory of partitions) {
    const group = groups.get(directory.topic);
    if (group === undefined) groups.set(directory.topic, [directory]);
    else group.push(directory);
  }
  return groups;
}

async function removeDoomed(files: FileSystem, doomed: readonly string[]): Promise<void> {
  const parents = new Set<string>();
  for (const path of doomed) {
    await removeTree(files, path);
    parents.add(path.slice(0, path.lastIndexOf("/")));
  }
  for (const parent of parents) await files.syncDirectory(parent);
}

/** Removes a directory and what is in it; one that is gone is no error. The caller syncs the parent. @throws FileError */
export async function removeTree(files: FileSystem, directory: string): Promise<void> {
  try {
    for (const name of await files.list(directory)) {
      const path = joinPath(directory, name);
      if (await isDirectory(files, path)) await removeTree(files, path);
      else await files.unlink(path);
    }
    await files.removeDirectory(directory);
  } catch (error) {
    if (!(error instanceof FileError && error.code === "ENOENT")) throw error;
  }
}
