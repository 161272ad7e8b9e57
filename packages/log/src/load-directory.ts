import type { Environment, FileLock, Offset, State } from "@tidemark/base";
import { NO_BROKER_EPOCH, takeCleanShutdownMarker } from "./clean-shutdown.ts";
import { DirectoryCheckpoints, forgetPartition, knownPartitionNames } from "./directory-checkpoints.ts";
import type { CheckpointReport } from "./directory-checkpoints.ts";
import type { CleanerConfig } from "./log-cleaner.ts";
import { LogDirectory } from "./log-directory.ts";
import { openMetaProperties } from "./meta-properties.ts";
import type { MetaProperties } from "./meta-properties.ts";
import { partitionDirectoryName } from "./partition-directory.ts";
import type { TopicPartition } from "./partition-directory.ts";
import { PartitionLog } from "./partition-log.ts";
import type { Schedule } from "./periodic-task.ts";
import type { TopicConfig, TopicDescription } from "./topic-config.ts";
import { listLogDirectory, loadTopics } from "./topic-loading.ts";

/** Partitions opened at a time; each may be scanning its log. */
const PARTITIONS_LOADING_MAX = 4;

export interface LogManagerOptions {
  readonly environment: Environment;
  /** Called once, when the lock is held. The manager closes what it returns. */
  readonly openState: () => Promise<State>;
  /** Kafka's log directory; made if absent. */
  readonly directory: string;
  /** `undefined` takes what `meta.properties` says; 1 for a new directory. */
  readonly nodeId?: number | undefined;
  /** `undefined` takes what `meta.properties` says; a random one for a new directory. */
  readonly clusterId?: string | undefined;
  /** For topics whose configuration was lost with `State`, or that another program made. */
  readonly defaults: TopicConfig;
  /** A producer of whom a log heard nothing for so long is forgotten. Kafka: producer.id.expiration.ms. Default one day. */
  readonly producerIdExpirationMs?: number | undefined;
  /** `none`: the caller answers for there being one writer. Default `fcntl`. */
  readonly lock?: "fcntl" | "none" | undefined;
  /** Nothing at or above it is deleted. Default: what a consumer may see. */
  readonly highWatermark?: ((topic: string, partition: number) => Offset | undefined) | undefined;
  /** Default: half a minute after the start, then every five minutes. */
  readonly retention?: Schedule | undefined;
  /** Kafka's defaults where it says nothing. */
  readonly cleaner?: Partial<CleanerConfig> | undefined;
}

/** What an open found in the directory as a whole; each log has a recovery report of its own. */
export interface LogManagerReport {
  readonly wasCleanShutdown: boolean;
  /** Broker epoch of the last run, if it ended cleanly and had one; else -1. */
  readonly cleanShutdownBrokerEpoch: number;
  readonly checkpoints: CheckpointReport;
  /** Topics that `State` did not know, taken from their directories with the default configuration. */
  readonly topicsRebuilt: readonly string[];
  /** Topics whose making or removal a crash had interrupted: removed. */
  readonly topicsRemoved: readonly string[];
  /** Directories left alone. */
  readonly ignored: readonly string[];
}

/** What a directory is made of, once it is loaded. */
export interface ManagerParts {
  readonly producerIdExpirationMs: number | undefined;
  readonly environment: Environment;
  readonly lock: FileLock | undefined;
  readonly directory: LogDirectory;
  readonly metaProperties: MetaProperties & { readonly directoryId: string };
  readonly state: State;
  readonly checkpoints: DirectoryCheckpoints;
  readonly topics: Map<string, TopicDescription>;
  readonly logs: Map<string, PartitionLog>;
  readonly report: LogManagerReport;
}

/** Everything between lock and use. The names are read first: a directory that is refused keeps its marker. */
export async function loadDirectory(options: LogManagerOptions, lock: FileLock | undefined): Promise<ManagerParts> {
  const { environment, directory: path } = options;
  const { files } = environment;
  const listing = await listLogDirectory(files, path);
  const wanted = { nodeId: options.nodeId, clusterId: options.clusterId };
  const metaProperties = await openMetaProperties(files, environment.random, path, wanted);
  const marker = await takeCleanShutdownMarker(files, path);
  const state = await options.openState();
  const logs = new Map<string, PartitionLog>();
  try {
    const opened = await DirectoryCheckpoints.open(files, state, path, metaProperties.directoryId);
    const { checkpoints, report, isTakingOver } = opened;
    const loaded = await loadTopics(environment, state, listing, { defaults: options.defaults, source: report.source });
    const known = new Set(loaded.partitions.map(partitionDirectoryName));
    const stale = [...knownPartitionNames(state)].filter((name) => !known.has(name) && !loaded.missing.has(name));
    await state.commit(
      stale.flatMap((name) => forgetPartition(state, name)),
      { sync: true },
    );
    const directory = new LogDirectory(path);
    const wasCleanShutdown = marker !== undefined;
    // The marker does not speak for directories that somebody put here while nothing ran.
    const strangers = new Set(report.source === "state" ? loaded.rebuilt : []);
    await forEachConcurrently(loaded.partitions, PARTITIONS_LOADING_MAX, async (partition) => {
      const isStranger = strangers.has(partition.topic);
      const isOurs = !isTakingOver && !isStranger;
      const log = await openPartition(
        environment,
        state,
        directory,
        { ...partition, producerIdExpirationMs: options.producerIdExpirationMs },
        wasCleanShutdown && !isStranger,
        isOurs,
      );
      logs.set(partitionDirectoryName(partition), log);
    });
    await checkpoints.finishTakeover();
    const managerReport: LogManagerReport = {
      wasCleanShutdown,
      cleanShutdownBrokerEpoch: marker?.brokerEpoch ?? NO_BROKER_EPOCH,
      checkpoints: report,
      topicsRebuilt: loaded.rebuilt,
      topicsRemoved: loaded.removed,
      ignored: listing.ignored,
    };
    return {
      environment,
      producerIdExpirationMs: options.producerIdExpirationMs,
      lock,
      directory,
      metaProperties,
      state,
      checkpoints,
      topics: loaded.topics,
      logs,
      report: managerReport,
    };
  } catch (error) {
    // No marker: these logs were not all loaded.
    await Promise.allSettled([...logs.values()].map((log) => log.close()));
    await state.close();
    throw error;
  }
}

/** Opens the log of a partition whose directory is there. @param areGapsRecorded as `PartitionLogOptions` @throws LogError KAFKA_STORAGE_ERROR */
export function openPartition(
  environment: Environment,
  state: State,
  logDirectory: LogDirectory,
  {
    topic,
    partition,
    directory,
    config,
    producerIdExpirationMs,
  }: TopicPartition & {
    readonly directory: string;
    readonly config: TopicConfig;
    readonly producerIdExpirationMs: number | undefined;
  },
  wasCleanShutdown: boolean,
  areGapsRecorded = true,
): Promise<PartitionLog> {
  const { files, clock, random, workers } = environment;
  return PartitionLog.open({
    files,
    state,
    clock,
    random,
    workers,
    directory,
    topic,
    partition,
    config,
    wasCleanShutdown,
    areGapsRecorded,
    producerIdExpirationMs,
    logDirectory,
  });
}

/** Runs `work` for every item, `limit` at a time, in order. After a failure it starts no more and waits for those that run. */
async function forEachConcurrently<Item>(
  items: readonly Item[],
  limit: number,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  let next = 0;
  let failed = false;
  const runners = Array.from({ length: Math.min(limit, items.length) }, async () => {
    for (;;) {
      const item = items[next];
      if (item === undefined || failed) return;
      next += 1;
      try {
        await work(item);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  });
  const results = await Promise.allSettled(runners);
  for (const result of results) if (result.status === "rejected") throw result.reason;
}
