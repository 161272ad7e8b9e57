import { resolve } from "node:path";
import { BufferPool, joinPath, LEADER_EPOCH_MAX, toLeaderEpoch } from "@tidemark/base";
import type { Environment, LeaderEpoch, State, StatePut } from "@tidemark/base";
import { isCompacted, LogError, LogManager } from "@tidemark/log";
import type { DirtyPart, LogManagerReport, PartitionLog, TopicConfig, Uncleanable } from "@tidemark/log";
import { openEnvironment } from "@tidemark/runtime-node";
import { BufferMemory } from "./buffer-memory.ts";
import { ByteArena } from "./byte-arena.ts";
import { closedError, TidemarkError, toTidemarkError, translated } from "./error.ts";
import {
  BATCH_BYTES_DEFAULT,
  BUFFER_MEMORY_BYTES_DEFAULT,
  checkOptions,
  checkTopicOptions,
  configOf,
  defaultsOf,
  isSameConfig,
} from "./options.ts";
import type { TidemarkOptions, TopicOptions } from "./options.ts";
import { makeDirectoryDurably, openLmdbState } from "./node-directory.ts";
import { StickyPartitioner } from "./partitioner.ts";
import { nextProducerId } from "./producer-id.ts";
import { Topic } from "./topic.ts";
import type { PartitionView, TopicContext } from "./topic.ts";

/** Partitions whose new leader epoch is being written at a time. */
const EPOCHS_WRITING_MAX = 8;

export interface PartitionDescription extends Omit<PartitionView, "flush"> {
  readonly directory: string;
  /** Of a topic that is compacted. */
  readonly cleaner: CleanerDescription | undefined;
}

/** How far a partition is compacted, and what keeps the cleaner from it. */
export interface CleanerDescription extends DirtyPart {
  /** Whether a pass runs. */
  readonly isCleaning: boolean;
  /** Why it is left alone until the log is opened again; `undefined`: it is not. */
  readonly uncleanable: Uncleanable | undefined;
}

export interface NodeDescription {
  readonly directory: string;
  readonly logDirectory: string;
  readonly nodeId: number;
  readonly clusterId: string;
  readonly directoryId: string;
  readonly producerId: number;
  readonly isOnline: boolean;
  /** What the open found in the directory as a whole. */
  readonly opened: LogManagerReport & {
    /** Where a damaged state database was put. */ readonly stateMovedTo: string | undefined;
  };
  readonly topics: readonly {
    readonly name: string;
    readonly topicId: string;
    readonly config: TopicConfig;
    /** Only those whose directory is there. */
    readonly partitions: readonly PartitionDescription[];
  }[];
}

/** A durable log inside this process: topics of numbered partitions, in one directory, with one writer. */
export class Tidemark implements AsyncDisposable {
  readonly directory: string;
  readonly producerId: number;
  readonly #parts: OpenedParts;
  readonly #manager: LogManager;
  readonly #topics = new Map<string, Topic>();
  /** Calls of `topic` and `deleteTopic` run one after another. */
  #changes: Promise<unknown> = Promise.resolve();
  readonly #memory: BufferMemory;
  readonly #arena = new ByteArena();
  readonly #pool = new BufferPool();
  readonly #batchBytes: number;
  readonly #defaults: TopicConfig;
  #callsInFlight = 0;
  #onIdle: (() => void) | undefined;
  #closing: Promise<void> | undefined;

  private constructor(parts: OpenedParts, options: TidemarkOptions) {
    this.directory = parts.directory;
    this.producerId = parts.producerId;
    this.#parts = parts;
    this.#manager = parts.manager;
    this.#memory = new BufferMemory(options.bufferMemoryBytes ?? BUFFER_MEMORY_BYTES_DEFAULT);
    this.#batchBytes = options.batchBytes ?? BATCH_BYTES_DEFAULT;
    this.#defaults = defaultsOf(options);
  }

  /**
   * Opens the log in a directory, recovers it, and becomes the leader of its partitions in a new leader epoch.
   * @throws TidemarkError LOG_DIRECTORY_LOCKED when another process (or another open log in this one) has it;
   *   KAFKA_STORAGE_ERROR, META_PROPERTIES_INVALID, UNKNOWN_DIRECTORY and others of the directory; INVALID_REQUEST.
   *   Nothing stays open or locked then
   */
  static async open(options: TidemarkOptions): Promise<Tidemark> {
    checkOptions(options);
    return translated(openParts(options)).then((parts) => new Tidemark(parts, options));
  }

  /**
   * Opens a topic, or makes it. Options that are not given are as they were, or the defaults. Options that differ from those
   * of an existing topic change it if this is the first call for it since `open`.
   * @throws TidemarkError INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS (also when the topic has another number of them),
   *   INVALID_CONFIG, KAFKA_STORAGE_ERROR, CLOSED
   */
  topic(name: string, options: TopicOptions = {}): Promise<Topic> {
    if (typeof name !== "string") {
      return Promise.reject(new TidemarkError("INVALID_TOPIC_EXCEPTION", `a topic has a name, not ${String(name)}`));
    }
    return this.#change(name, async () => {
      checkTopicOptions(name, options);
      const known = this.#topics.get(name);
      let description = this.#manager.topics.get(name);
      if (description === undefined) {
        const config = configOf(name, this.#defaults, options);
        description = await this.#manager.createTopic(name, options.partitions ?? 1, config);
        await this.#lead(description.name, description.partitions);
      }
      if (options.partitions !== undefined && options.partitions !== description.partitions) {
        const message = `topic "${name}" has ${description.partitions} partitions, not ${options.partitions}`;
        throw new TidemarkError("INVALID_PARTITIONS", message, { topic: name });
      }
      const config = configOf(name, description.config, options);
      if (!isSameConfig(config, description.config)) {
        if (known !== undefined) {
          const message = `topic "${name}" is open with ${JSON.stringify(description.config)}; other options take a reopen`;
          throw new TidemarkError("INVALID_CONFIG", message, { topic: name });
        }
        description = await this.#manager.configureTopic(name, config);
        await this.#lead(name, description.partitions);
      }
      if (known !== undefined) return known;
      const topic = new Topic(description, this.#contextOf(description.partitions));
      this.#topics.set(name, topic);
      return topic;
    });
  }

  /** Names of the topics, ascending. */
  topics(): readonly string[] {
    this.#checkOpen();
    return [...this.#manager.topics.keys()].sort();
  }

  /** Removes a topic and its data. Appends and fetches under way fail. @throws TidemarkError UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, CLOSED */
  deleteTopic(name: string): Promise<void> {
    return this.#change(name, async () => {
      const topic = this.#topics.get(name);
      if (this.#manager.topics.has(name)) {
        topic?.markDeleted();
        this.#topics.delete(name);
      }
      await this.#manager.deleteTopic(name);
    });
  }

  /** Segments, epochs, offsets and recovery reports of everything in the directory, now. @throws TidemarkError CLOSED */
  describe(): NodeDescription {
    this.#checkOpen();
    const { metaProperties, directory, report, topics } = this.#manager;
    const described = [...topics.values()].map(({ name, topicId, config, partitions }) => ({
      name,
      topicId,
      config,
      partitions: Array.from({ length: partitions }, (_, partition) => this.#manager.partition(name, partition))
        .filter((log) => log !== undefined)
        .map((log) => ({ ...describePartition(log), cleaner: this.#describeCleaner(log) })),
    }));
    return {
      directory: this.directory,
      logDirectory: directory.path,
      nodeId: metaProperties.nodeId,
      clusterId: metaProperties.clusterId,
      directoryId: metaProperties.directoryId,
      producerId: this.producerId,
      isOnline: directory.isOnline,
      opened: { ...report, stateMovedTo: this.#parts.stateMovedTo },
      topics: described.sort((a, b) => (a.name < b.name ? -1 : 1)),
    };
  }

  #describeCleaner(log: PartitionLog): CleanerDescription | undefined {
    if (!isCompacted(log.config)) return undefined;
    const { isCleaning, uncleanable } = this.#manager.cleanerView(log);
    return { ...log.dirtyPart, isCleaning, uncleanable };
  }

  /**
   * Waits for calls under way, flushes and closes everything. Idempotent. Iterations of `fetch` that wait for records end with CLOSED.
   * @throws TidemarkError KAFKA_STORAGE_ERROR when the flush of this close failed: with `flush: "none"` records may then be lost
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await this.#changes;
    if (this.#callsInFlight > 0) {
      await new Promise<void>((idle) => {
        this.#onIdle = idle;
      });
    }
    const { directory } = this.#manager;
    const wasOnline = directory.isOnline;
    try {
      await translated(this.#manager.close());
    } finally {
      await this.#parts.closeEnvironment();
    }
    if (wasOnline && directory.offlineError !== undefined) throw toTidemarkError(directory.offlineError);
  }

  async #lead(name: string, partitions: number): Promise<void> {
    const logs = Array.from({ length: partitions }, (_, partition) => this.#manager.partition(name, partition));
    await leadInNewEpoch(
      this.#manager.state,
      logs.filter((log) => log !== undefined),
    );
  }

  #contextOf(partitions: number): TopicContext {
    const { environment } = this.#parts;
    return {
      manager: this.#manager,
      clock: environment.clock,
      workers: environment.workers,
      memory: this.#memory,
      arena: this.#arena,
      pool: this.#pool,
      partitioner: new StickyPartitioner(environment.random, partitions, this.#batchBytes),
      producerId: this.producerId,
      batchBytes: this.#batchBytes,
      refusal: () => (this.#closing === undefined ? undefined : closedError(this.directory)),
      begin: () => this.#beginCall(),
    };
  }

  #beginCall(): () => void {
    this.#callsInFlight += 1;
    return this.#endCall;
  }

  readonly #endCall = (): void => {
    this.#callsInFlight -= 1;
    if (this.#callsInFlight === 0) this.#onIdle?.();
  };

  #change<Result>(topic: string, run: () => Promise<Result>): Promise<Result> {
    if (this.#closing !== undefined) return Promise.reject(closedError(this.directory));
    const result = this.#changes.then(run);
    this.#changes = result.catch(() => undefined);
    return translated(result, { topic });
  }

  #checkOpen(): void {
    if (this.#closing !== undefined) throw closedError(this.directory);
  }
}

interface OpenedParts {
  readonly directory: string;
  readonly environment: Environment;
  readonly manager: LogManager;
  readonly producerId: number;
  readonly stateMovedTo: string | undefined;
  readonly closeEnvironment: () => Promise<void>;
}

async function openParts(options: TidemarkOptions): Promise<OpenedParts> {
  const directory = options.parts === undefined ? resolve(options.directory) : options.directory;
  const ownEnvironment = options.parts === undefined ? openEnvironment() : undefined;
  const environment = ownEnvironment ?? options.parts?.environment ?? openEnvironment();
  const { files, random } = environment;
  const stateDirectory = joinPath(directory, "state");
  let stateMovedTo: string | undefined;
  const openState = async (): Promise<State> => {
    if (options.parts !== undefined) return options.parts.openState(stateDirectory);
    const opened = await openLmdbState(files, stateDirectory);
    stateMovedTo = opened.movedTo;
    return opened.state;
  };
  let manager: LogManager | undefined;
  try {
    await makeDirectoryDurably(files, directory);
    manager = await LogManager.open({
      environment,
      openState,
      directory: joinPath(directory, "log"),
      nodeId: options.nodeId,
      clusterId: options.clusterId,
      defaults: defaultsOf(options),
      lock: options.lock,
      cleaner: options.cleanerBackoffMs === undefined ? {} : { backoffMs: options.cleanerBackoffMs },
    });
    const producerId = await nextProducerId(manager.state, random);
    await leadInNewEpoch(manager.state, logsOf(manager));
    const closeEnvironment = async () => ownEnvironment?.close();
    return { directory, environment, manager, producerId, stateMovedTo, closeEnvironment };
  } catch (error) {
    await manager?.close();
    await ownEnvironment?.close();
    throw error;
  }
}

function logsOf(manager: LogManager): PartitionLog[] {
  const logs: PartitionLog[] = [];
  for (const { name, partitions } of manager.topics.values()) {
    for (let partition = 0; partition < partitions; partition += 1) {
      const log = manager.partition(name, partition);
      if (log !== undefined) logs.push(log);
    }
  }
  return logs;
}

/**
 * Makes each log lead in an epoch above every one that it or `State` has seen. `State` is written first: an epoch of which no
 * batch was written may be missing from the log after a crash.
 */
async function leadInNewEpoch(state: State, logs: readonly PartitionLog[]): Promise<void> {
  const puts: StatePut[] = [];
  const epochs = logs.map((log) => {
    const key = `leader-epoch/${log.topic}-${log.partition}`;
    const epoch = nextLeaderEpoch(log, state.get(key));
    const value = new Uint8Array(4);
    new DataView(value.buffer).setInt32(0, epoch);
    puts.push({ key, value });
    return { log, epoch };
  });
  if (puts.length > 0) await state.commit(puts, { sync: true });
  for (let from = 0; from < epochs.length; from += EPOCHS_WRITING_MAX) {
    await Promise.all(
      epochs
        .slice(from, from + EPOCHS_WRITING_MAX)
        .map(({ log, epoch }) => log.becomeLeader(epoch).catch(ignoreDamage)),
    );
  }
}

/** A damaged partition is served read-only: every append answers with the damage. */
function ignoreDamage(error: unknown): void {
  const isDamage =
    error instanceof LogError && error.type.code === "KAFKA_STORAGE_ERROR" && error.type.failure === "DAMAGED";
  if (!isDamage) throw error;
}

function nextLeaderEpoch(log: PartitionLog, stored: Uint8Array | undefined): LeaderEpoch {
  const storedEpoch = stored?.length === 4 ? new DataView(stored.buffer, stored.byteOffset, 4).getInt32(0) : -1;
  const seen = Math.max(storedEpoch, log.epochEntries.at(-1)?.epoch ?? -1);
  if (seen < LEADER_EPOCH_MAX) return toLeaderEpoch(seen + 1);
  const message = `${log.topic}-${log.partition}: leader epoch ${seen} is the last there is`;
  throw new TidemarkError("FENCED_LEADER_EPOCH", message, { topic: log.topic, partition: log.partition });
}

function describePartition(log: PartitionLog): Omit<PartitionDescription, "cleaner"> {
  const { partition, directory, logStartOffset, logEndOffset, flushedEndOffset, recoveryPoint } = log;
  const { leaderEpoch, epochEntries, segments, recovery, damaged } = log;
  return {
    partition,
    directory,
    logStartOffset,
    logEndOffset,
    flushedEndOffset,
    recoveryPoint,
    leaderEpoch,
    epochEntries,
    segments,
    recovery,
    damaged,
  };
}
