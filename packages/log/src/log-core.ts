import { InvariantError, toOffset } from "@tidemark/base";
import type { Clock, FileSystem, LeaderEpoch, Offset, Random, State, WorkerPool } from "@tidemark/base";
import type { LeaderEpochFileCache } from "@tidemark/epoch-cache";
import type { LogConfig } from "./config.ts";
import { EndOffsetWaiters } from "./end-offset-waiters.ts";
import { LogError } from "./error.ts";
import type { LoadedLog } from "./load-log.ts";
import { LocalLog } from "./local-log.ts";
import { isDirectoryFailure, storageError } from "./log-directory.ts";
import type { LogDirectory } from "./log-directory.ts";
import { PartitionQueue } from "./partition-queue.ts";
import type { AppendGroup } from "./partition-queue.ts";
import type { ProducerState } from "./producer-state.ts";
import type { DamagedRange } from "./recovery-report.ts";

export interface PartitionLogOptions {
  readonly files: FileSystem;
  readonly state: State;
  readonly clock: Clock;
  readonly random: Random;
  readonly workers: WorkerPool;
  /** The partition's own directory, which exists. */
  readonly directory: string;
  readonly topic: string;
  readonly partition: number;
  readonly config: LogConfig;
  /** Whether the directory's clean-shutdown marker was there. */
  readonly wasCleanShutdown: boolean;
  /** False when another program wrote here: its segments may leave offsets out where we noted nothing. Default true. */
  readonly areGapsRecorded?: boolean;
  /** A producer of whom nothing was heard for so long is forgotten. Kafka: producer.id.expiration.ms. Default one day. */
  readonly producerIdExpirationMs?: number | undefined;
  readonly logDirectory: LogDirectory;
}

/**
 * What the roles of a partition's log have in common: appends (`log-appends.ts`), reads (`log-reads.ts`), truncation, retention and
 * compaction. Everything that changes it runs in the partition's queue.
 */
export class LogCore {
  readonly directory: string;
  readonly config: LogConfig;
  readonly clock: Clock;
  readonly workers: WorkerPool;
  readonly logDirectory: LogDirectory;
  readonly epochs: LeaderEpochFileCache;
  readonly queue: PartitionQueue;
  readonly waiters = new EndOffsetWaiters();
  readonly damaged: readonly DamagedRange[];
  readonly local: LocalLog;
  producers: ProducerState;
  /** Epoch that this log leads in, or `undefined`: not the leader. */
  leaderEpoch: LeaderEpoch | undefined;
  /** What stops this partition alone: a vanished file, or a broken invariant. */
  failure: LogError | InvariantError | undefined;
  /** Counts truncations, so that a read can tell that one ran while it read. */
  truncations = 0;
  truncation: Promise<void> | undefined;
  /** Counts deletions of segments: a read that meets one may find its file gone. */
  deletions = 0;
  /** Counts what makes a compaction under way worthless. */
  cuts = 0;
  closing: Promise<boolean> | undefined;
  isClosed = false;

  /** @param commit as that of the queue */
  constructor(options: PartitionLogOptions, loaded: LoadedLog, commit: (group: AppendGroup) => Promise<void>) {
    this.directory = options.directory;
    this.config = options.config;
    this.clock = options.clock;
    this.workers = options.workers;
    this.logDirectory = options.logDirectory;
    this.epochs = loaded.epochs;
    this.damaged = loaded.damaged;
    this.producers = loaded.producers;
    this.local = new LocalLog(options, loaded, {
      onFailure: (error) => this.noteFailure(error),
      onFlushed: () => this.wakeWaiters(),
      stop: () => this.#stop,
    });
    this.queue = new PartitionQueue(commit);
  }

  /** As `PartitionLog.visibleEndOffset`. */
  get visibleEndOffset(): Offset {
    return this.config.flush === "always" ? this.local.flushedEndOffset : this.local.logEndOffset;
  }

  /** As `PartitionLog.lastStableOffset`. */
  lastStableOffset(highWatermark: Offset = this.visibleEndOffset): Offset {
    const unstable = this.producers.firstUnstableOffset(highWatermark) ?? highWatermark;
    return toOffset(Math.min(Math.max(unstable, this.local.logStartOffset), highWatermark));
  }

  /** As `PartitionLog.refusal`. */
  get refusal(): Error | undefined {
    if (this.isClosed || this.closing !== undefined)
      return new LogError({ code: "LOG_CLOSED", directory: this.directory });
    if (this.failure !== undefined) return this.failure;
    if (this.logDirectory.offlineError !== undefined) return this.logDirectory.offlineError;
    const damage = this.damaged[0];
    if (damage === undefined) return undefined;
    return new LogError({
      code: "KAFKA_STORAGE_ERROR",
      failure: "DAMAGED",
      path: damage.path ?? this.directory,
      operation: "append",
    });
  }

  nowMs(): number {
    return Math.floor(this.clock.wallMs());
  }

  /** Queues a task that changes the log; refused, and its failures noted, as with appends. */
  task<Result>(run: () => Promise<Result>): Promise<Result> {
    const before = this.refusal;
    if (before !== undefined) return Promise.reject(before);
    return this.queue.run(async () => {
      this.checkUsable();
      try {
        const result = await run();
        this.checkUsable();
        return result;
      } catch (error) {
        throw this.noteFailure(error);
      }
    });
  }

  get #stop(): LogError | InvariantError | undefined {
    return this.failure ?? this.logDirectory.offlineError;
  }

  /**
   * To be called after every wait for the disk, before the log end moves or somebody is told: a flush beside it, or another partition's,
   * may have failed meanwhile.
   * @throws LogError, InvariantError the first failure
   */
  checkUsable(): void {
    const stop = this.#stop;
    if (stop !== undefined) throw stop;
  }

  /**
   * In a task, before anything is cut, removed or flushed: waits for the flush beside it. What that could not sync may be clean and gone, so
   * nothing goes on behind a failed one.
   * @throws LogError, InvariantError as `checkUsable`
   */
  async settle(): Promise<void> {
    await this.local.settle();
    this.checkUsable();
  }

  /** Draws the consequence of an error for partition or directory. @returns what the caller is told */
  noteFailure(error: unknown): Error {
    if (error instanceof InvariantError) {
      this.failure ??= error;
      return error;
    }
    const failure = storageError(error, this.directory);
    if (isDirectoryFailure(failure)) this.logDirectory.markOffline(failure);
    else if (failure.type.code === "KAFKA_STORAGE_ERROR" && failure.type.failure === "ENOENT") this.failure ??= failure;
    return failure;
  }

  wakeWaiters(): void {
    this.waiters.moved(this.visibleEndOffset);
  }
}
