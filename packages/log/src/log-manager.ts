import { directoryOf, InvariantError, joinPath, toOffset } from "@tidemark/base";
import type { Environment, FileLock, FileSystem, Offset, State } from "@tidemark/base";
import { NO_BROKER_EPOCH, writeCleanShutdownMarker } from "./clean-shutdown.ts";
import { forgetPartition } from "./directory-checkpoints.ts";
import type { DirectoryCheckpoints } from "./directory-checkpoints.ts";
import { LogError } from "./error.ts";
import { loadDirectory, openPartition } from "./load-directory.ts";
import type { LogManagerOptions, LogManagerReport, ManagerParts } from "./load-directory.ts";
import { isDirectoryFailure, lockDirectory, storageError } from "./log-directory.ts";
import type { LogDirectory } from "./log-directory.ts";
import type { MetaProperties } from "./meta-properties.ts";
import type { OffsetCheckpointEntry } from "./offset-checkpoint.ts";
import {
  checkTopicName,
  deleteDirectoryName,
  partitionDirectoryName,
  writePartitionMetadata,
} from "./partition-directory.ts";
import type { TopicPartition } from "./partition-directory.ts";
import type { PartitionLog } from "./partition-log.ts";
import { readStateOffset } from "./state-values.ts";
import { encodeTopic, topicKey } from "./topic-config.ts";
import type { TopicConfig, TopicDescription, TopicStatus } from "./topic-config.ts";
import { listLogDirectory, removeTree } from "./topic-loading.ts";
import { hasRetention, isCompacted, RETENTION_CHECK_INTERVAL_MS, RETENTION_INITIAL_DELAY_MS } from "./config.ts";
import { DEFAULT_CLEANER_CONFIG, LogCleaner } from "./log-cleaner.ts";
import type { CleanerView } from "./log-cleaner.ts";
import { PeriodicTask } from "./periodic-task.ts";
import type { Schedule } from "./periodic-task.ts";
import { encodeHex, randomUuid } from "./uuid.ts";

const DEFAULT_RETENTION_SCHEDULE: Schedule = {
  initialDelayMs: RETENTION_INITIAL_DELAY_MS,
  intervalMs: RETENTION_CHECK_INTERVAL_MS,
};

/** Partitions of one topic. Each costs an open file and a directory. */
const PARTITIONS_MAX = 10_000;

/** What a node that has peers adds to a clean stop. */
export interface LastWords {
  /** Goes into the marker: the controller tells a clean stop by it. */
  readonly brokerEpoch?: number;
  /**
   * Default: the log end, for a log without other replicas. Where it knows nothing of a log, as of one whose leader was not told yet, what was
   * noted last counts.
   */
  readonly highWatermark?: (topic: string, partition: number) => Offset | undefined;
}

export interface LogManagerCloseResult {
  /** Whether the clean-shutdown marker was written: the next open scans nothing. */
  readonly isClean: boolean;
  /** Why not. */
  readonly reason: string | undefined;
}

/**
 * One log directory: its lock, `meta.properties`, clean-shutdown marker, checkpoint files, topics and partition logs.
 *
 * Source: apache/kafka core/src/main/scala/kafka/log/LogManager.scala
 */
export class LogManager {
  readonly directory: LogDirectory;
  readonly metaProperties: MetaProperties & { readonly directoryId: string };
  readonly state: State;
  readonly report: LogManagerReport;
  readonly #environment: Environment;
  readonly #files: FileSystem;
  readonly #producerIdExpirationMs: number | undefined;
  readonly #lock: FileLock | undefined;
  readonly #checkpoints: DirectoryCheckpoints;
  readonly #topics: Map<string, TopicDescription>;
  readonly #logs: Map<string, PartitionLog>;
  readonly #highWatermark: (topic: string, partition: number) => Offset | undefined;
  readonly #retention: PeriodicTask;
  readonly #cleaner: LogCleaner;
  /** Changes of the set of topics run one after another. */
  #changes: Promise<unknown> = Promise.resolve();
  #closing: Promise<LogManagerCloseResult> | undefined;
  /** Why this run may not end with a marker, whatever `close` sees. */
  #markerBar: string | undefined;

  private constructor(options: LogManagerOptions, parts: ManagerParts) {
    this.directory = parts.directory;
    this.metaProperties = parts.metaProperties;
    this.state = parts.state;
    this.report = parts.report;
    this.#environment = parts.environment;
    this.#files = parts.environment.files;
    this.#producerIdExpirationMs = parts.producerIdExpirationMs;
    this.#lock = parts.lock;
    this.#checkpoints = parts.checkpoints;
    this.#topics = parts.topics;
    this.#logs = parts.logs;
    this.#highWatermark = options.highWatermark ?? (() => undefined);
    const { clock } = parts.environment;
    this.#retention = new PeriodicTask(clock, options.retention ?? DEFAULT_RETENTION_SCHEDULE, {
      isNeeded: () => this.#retained().length > 0,
      look: () => this.#deleteOldSegments(),
    });
    const cleanerConfig = { ...DEFAULT_CLEANER_CONFIG, ...options.cleaner };
    this.#cleaner = new LogCleaner(clock, cleanerConfig, {
      logs: () => this.#logs.values(),
      highWatermarkOf: (log) => this.#highWatermark(log.topic, log.partition),
    });
    this.#updateTasks();
  }

  /**
   * Locks and loads the directory; recovers every log in it.
   * @throws LogError LOG_DIRECTORY_LOCKED, LOG_DIRECTORY_LOCK_UNSUPPORTED; META_PROPERTIES_INVALID, INCONSISTENT_CLUSTER_ID,
   *   INCONSISTENT_NODE_ID; UNKNOWN_DIRECTORY, PARTITION_METADATA_INVALID, INCONSISTENT_TOPIC_ID; KAFKA_STORAGE_ERROR.
   *   Nothing stays open or locked then, and the next open recovers as after a crash
   */
  static async open(options: LogManagerOptions): Promise<LogManager> {
    const { directory } = options;
    const { files } = options.environment;
    try {
      await files.makeDirectory(directory);
      await files.syncDirectory(directoryOf(directory));
      const lock = options.lock === "none" ? undefined : await lockDirectory(files, directory);
      try {
        return new LogManager(options, await loadDirectory(options, lock));
      } catch (error) {
        await lock?.release();
        throw error;
      }
    } catch (error) {
      throw storageError(error, directory);
    }
  }

  get topics(): ReadonlyMap<string, TopicDescription> {
    return this.#topics;
  }

  /** The log, or `undefined` when there is no such partition or its directory is gone. */
  partition(topic: string, partition: number): PartitionLog | undefined {
    return this.#logs.get(partitionDirectoryName({ topic, partition }));
  }

  /**
   * Makes a topic with its partitions. All or nothing: what a crash leaves of it, the next open removes.
   * @param topicId as a controller gave it; default a random one
   * @throws LogError INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, TOPIC_ALREADY_EXISTS, KAFKA_STORAGE_ERROR, LOG_CLOSED
   */
  createTopic(name: string, partitions: number, config: TopicConfig, topicId?: string): Promise<TopicDescription> {
    return this.#change(() => this.#createTopic(name, partitions, config, topicId));
  }

  /**
   * Gives a topic another configuration and opens its logs anew with it. Nobody may be using them.
   * @throws LogError UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, LOG_CLOSED
   */
  configureTopic(name: string, config: TopicConfig): Promise<TopicDescription> {
    return this.#change(async () => {
      const topic = { ...this.#existing(name), config };
      await this.#saveTopic(topic, "ready");
      this.#topics.set(name, topic);
      for (let partition = 0; partition < topic.partitions; partition += 1) {
        const log = this.partition(name, partition);
        if (log === undefined) continue;
        const { directory } = log;
        const isClean = await log.close();
        const producerIdExpirationMs = this.#producerIdExpirationMs;
        const reopened = { topic: name, partition, directory, config, producerIdExpirationMs };
        this.#logs.set(
          partitionDirectoryName(log),
          await openPartition(this.#environment, this.state, this.directory, reopened, isClean),
        );
      }
      this.#updateTasks();
      return topic;
    });
  }

  /**
   * Removes a topic and its data.
   * @throws LogError UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, LOG_CLOSED
   */
  deleteTopic(name: string): Promise<void> {
    return this.#change(async () => {
      const topic = this.#topics.get(name);
      if (topic === undefined)
        throw new LogError({ code: "UNKNOWN_TOPIC_OR_PARTITION", topic: name, partition: undefined });
      await this.#saveTopic(topic, "incomplete");
      this.#topics.delete(name);
      for (let partition = 0; partition < topic.partitions; partition += 1) {
        await this.#deletePartition({ topic: name, partition });
      }
      await this.state.commit([{ key: topicKey(name), value: undefined }], { sync: true });
    });
  }

  /**
   * Deletes the records of a partition below `offset`. Durable when it resolves, in the checkpoint file too: the start of a log inside a
   * segment is known from nothing else, should the state be lost.
   * @returns the log start offset
   * @throws LogError OFFSET_OUT_OF_RANGE above the high watermark; UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, LOG_CLOSED
   */
  deleteRecords(topic: string, partition: number, offset: Offset): Promise<Offset> {
    return this.#change(async () => {
      const log = this.partition(topic, partition);
      if (log === undefined) throw new LogError({ code: "UNKNOWN_TOPIC_OR_PARTITION", topic, partition });
      const before = log.logStartOffset;
      const start = await log.deleteRecords(offset, this.#highWatermark(topic, partition));
      if (start === before) return start;
      try {
        await this.#checkpoints.writeLogStarts(logStartsOf([...this.#logs.values()]));
      } catch (error) {
        throw storageError(error, this.directory.path);
      }
      return start;
    });
  }

  /** What the cleaner does with a log of this directory, and what keeps it from it. */
  cleanerView(log: PartitionLog): CleanerView {
    return this.#cleaner.view(log);
  }

  #updateTasks(): void {
    this.#retention.update();
    this.#cleaner.update();
  }

  /** Logs from which something may go for its age or size. From those that are compacted too the cleaner takes it. */
  #retained(): readonly PartitionLog[] {
    return [...this.#logs.values()].filter(({ config }) => hasRetention(config) && !isCompacted(config));
  }

  /** What retention takes of every log. One that cannot, or whose invariant broke, refuses from then on: it needs no messenger. */
  async #deleteOldSegments(): Promise<void> {
    for (const log of this.#retained())
      await log.deleteOldSegments(this.#highWatermark(log.topic, log.partition)).catch(() => undefined);
  }

  /**
   * Flushes and closes every log. If all went well, writes the checkpoint files and, last of all, the marker. Idempotent.
   * Never rejects for what the disk says: the result tells, and so does `directory.offlineError`.
   */
  close(last: LastWords = {}): Promise<LogManagerCloseResult> {
    this.#closing ??= this.#close(last);
    return this.#closing;
  }

  async #close(last: LastWords): Promise<LogManagerCloseResult> {
    await this.#changes;
    await Promise.all([this.#retention.stop(), this.#cleaner.stop()]);
    const logs = [...this.#logs.values()];
    const areComplete = await Promise.all(logs.map((log) => log.close()));
    const incomplete = logs.find((_log, index) => areComplete[index] !== true);
    let reason = this.#reasonAgainstMarker(logs);
    if (incomplete !== undefined) reason ??= `${partitionDirectoryName(incomplete)} could not be flushed`;
    try {
      if (reason === undefined) await this.#writeCheckpoints(logs, last);
      // Before the marker, which vouches for it too.
      await this.state.close();
      const brokerEpoch = last.brokerEpoch ?? NO_BROKER_EPOCH;
      if (reason === undefined) await writeCleanShutdownMarker(this.#files, this.directory.path, brokerEpoch);
    } catch (error) {
      if (error instanceof InvariantError) throw error;
      reason ??= `the checkpoint files, the state or the marker could not be written: ${String(error)}`;
    } finally {
      await this.#lock?.release();
    }
    return { isClean: reason === undefined, reason };
  }

  #reasonAgainstMarker(logs: readonly PartitionLog[]): string | undefined {
    if (this.#markerBar !== undefined) return this.#markerBar;
    if (!this.directory.isOnline) return "the log directory is offline";
    const damaged = logs.find((log) => log.damaged.length > 0);
    if (damaged !== undefined) return `${partitionDirectoryName(damaged)} is damaged`;
    const partitionCount = [...this.#topics.values()].reduce((sum, topic) => sum + topic.partitions, 0);
    return logs.length === partitionCount ? undefined : "the directory of a partition is gone";
  }

  async #writeCheckpoints(logs: readonly PartitionLog[], last: LastWords): Promise<void> {
    const entries = logs.map((log) => ({ log, topic: log.topic, partition: log.partition }));
    const recoveryPoints: OffsetCheckpointEntry[] = entries.map(({ log, topic, partition }) => ({
      topic,
      partition,
      offset: log.recoveryPoint,
    }));
    const highWatermarks: OffsetCheckpointEntry[] = entries.map(({ log, topic, partition }) => ({
      topic,
      partition,
      offset: this.#lastHighWatermark(log, last),
    }));
    const cleanerOffsets = entries.flatMap(({ log: { cleanerOffset: offset }, topic, partition }) =>
      offset === undefined ? [] : [{ topic, partition, offset }],
    );
    await this.#checkpoints.writeAll({ recoveryPoints, logStarts: logStartsOf(logs), highWatermarks, cleanerOffsets });
  }

  #lastHighWatermark({ topic, partition, logEndOffset }: PartitionLog, last: LastWords): Offset {
    if (last.highWatermark === undefined) return logEndOffset;
    const known =
      last.highWatermark(topic, partition) ?? readStateOffset(this.state, "high-watermark", topic, partition);
    return toOffset(Math.min(known ?? 0, logEndOffset));
  }

  async #createTopic(
    name: string,
    partitions: number,
    config: TopicConfig,
    topicId = randomUuid(this.#environment.random, "topic-id"),
  ): Promise<TopicDescription> {
    checkTopicName(name);
    if (!(Number.isInteger(partitions) && partitions >= 1 && partitions <= PARTITIONS_MAX)) {
      throw new LogError({ code: "INVALID_PARTITIONS", partitions, reason: `not in 1..${PARTITIONS_MAX}` });
    }
    this.#refuseCollision(name);
    const topic = { name, topicId, partitions, config };
    await this.#saveTopic(topic, "incomplete");
    const opened: PartitionLog[] = [];
    try {
      for (let partition = 0; partition < partitions; partition += 1) {
        opened.push(await this.#createPartition({ topic: name, partition }, topic.topicId, config));
      }
      await this.#saveTopic(topic, "ready");
    } catch (error) {
      try {
        // Before anything is undone: behind a failed sync nothing is.
        throw this.#noteFailure(error);
      } finally {
        // Behind a broken invariant too, which is thrown as it is.
        await this.#abandonTopic(name, opened);
      }
    }
    for (const log of opened) this.#logs.set(partitionDirectoryName(log), log);
    this.#topics.set(name, topic);
    this.#updateTasks();
    return topic;
  }

  /** Kafka's metric names turn `.` into `_`, so it refuses a name that differs from another in nothing else. */
  #refuseCollision(name: string): void {
    if (this.#topics.has(name)) throw new LogError({ code: "TOPIC_ALREADY_EXISTS", topic: name });
    const collidesWith = [...this.#topics.keys()].find(
      (other) => other.replaceAll(".", "_") === name.replaceAll(".", "_"),
    );
    if (collidesWith === undefined) return;
    const reason = `it collides with "${collidesWith}": names may not differ in "." and "_" only`;
    throw new LogError({ code: "INVALID_TOPIC_EXCEPTION", topic: name, reason });
  }

  /**
   * A crash between any two of these leaves a directory of an incomplete topic. Its id is on the disk before the first
   * append, as Kafka wants it.
   */
  async #createPartition(name: TopicPartition, topicId: string, config: TopicConfig): Promise<PartitionLog> {
    const directory = joinPath(this.directory.path, partitionDirectoryName(name));
    try {
      await this.#files.makeDirectory(directory);
      await writePartitionMetadata(this.#files, directory, topicId);
      await this.#files.syncDirectory(this.directory.path);
      const opened = { ...name, directory, config, producerIdExpirationMs: this.#producerIdExpirationMs };
      return await openPartition(this.#environment, this.state, this.directory, opened, true);
    } catch (error) {
      throw storageError(error, directory);
    }
  }

  /** Undoes what was made; what cannot be undone now, and all of it behind a failed sync, the next open removes. */
  async #abandonTopic(name: string, opened: readonly PartitionLog[]): Promise<void> {
    try {
      for (const log of opened) await log.close();
      if (!this.directory.isOnline) return;
      const { partitions } = await listLogDirectory(this.#files, this.directory.path);
      for (const { directory, topic } of partitions) if (topic === name) await removeTree(this.#files, directory);
      await this.#files.syncDirectory(this.directory.path);
      const puts = opened.flatMap((log) => forgetPartition(this.state, partitionDirectoryName(log)));
      await this.state.commit([...puts, { key: topicKey(name), value: undefined }], { sync: true });
    } catch (error) {
      // The first error is the one to tell. The topic stays "incomplete" in State.
      this.#noteFailure(error);
    }
  }

  /**
   * Renames, then forgets, then removes. After the rename is durable nobody takes the directory for the partition; before,
   * `State` still knows the topic as incomplete.
   */
  async #deletePartition(name: TopicPartition): Promise<void> {
    const partitionName = partitionDirectoryName(name);
    const directory = joinPath(this.directory.path, partitionName);
    const uniqueId = encodeHex(this.#environment.random.bytes("delete-directory", 16));
    const doomed = joinPath(this.directory.path, deleteDirectoryName(name, uniqueId));
    try {
      const log = this.#logs.get(partitionName);
      this.#logs.delete(partitionName);
      await log?.close();
      if (this.directory.offlineError !== undefined) throw this.directory.offlineError;
      if (log !== undefined) {
        await this.#files.rename(directory, doomed);
        await this.#files.syncDirectory(this.directory.path);
      }
      await this.state.commit(forgetPartition(this.state, partitionName), { sync: true });
      if (log === undefined) return;
      await removeTree(this.#files, doomed);
      await this.#files.syncDirectory(this.directory.path);
    } catch (error) {
      throw storageError(error, directory);
    }
  }

  #existing(name: string): TopicDescription {
    const topic = this.#topics.get(name);
    if (topic !== undefined) return topic;
    throw new LogError({ code: "UNKNOWN_TOPIC_OR_PARTITION", topic: name, partition: undefined });
  }

  #saveTopic(topic: TopicDescription, status: TopicStatus): Promise<void> {
    return this.state.commit([{ key: topicKey(topic.name), value: encodeTopic(topic, status) }], { sync: true });
  }

  #change<Result>(run: () => Promise<Result>): Promise<Result> {
    const result = this.#changes.then(async () => {
      if (this.#closing !== undefined) throw new LogError({ code: "LOG_CLOSED", directory: this.directory.path });
      if (this.directory.offlineError !== undefined) throw this.directory.offlineError;
      try {
        return await run();
      } catch (error) {
        throw this.#noteFailure(error);
      }
    });
    this.#changes = result.catch(() => undefined);
    return result;
  }

  /** Draws the consequence of an error for the directory. @returns what the caller is told */
  #noteFailure(error: unknown): LogError {
    const failure = storageError(error, this.directory.path);
    // A directory half removed or half made is not what a clean stop leaves.
    if (failure.code === "KAFKA_STORAGE_ERROR") this.#markerBar ??= failure.message;
    if (isDirectoryFailure(failure)) this.directory.markOffline(failure);
    return failure;
  }
}

/** Kafka lists a start only where the segments do not say it. */
function logStartsOf(logs: readonly PartitionLog[]): OffsetCheckpointEntry[] {
  return logs
    .filter((log) => log.logStartOffset > (log.segments[0]?.baseOffset ?? toOffset(0)))
    .map(({ topic, partition, logStartOffset }) => ({ topic, partition, offset: logStartOffset }));
}
