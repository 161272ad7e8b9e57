import type { Clock, Offset } from "@tidemark/base";
import type { CompactionRange } from "./compaction-range.ts";
import type { CompactionResult } from "./compaction.ts";
import { COMPACTION_MAP_BYTES, hasRetention, isCompacted } from "./config.ts";
import { LogError } from "./error.ts";
import type { LogErrorCode } from "./error.ts";
import type { PartitionLog } from "./partition-log.ts";
import { PeriodicTask } from "./periodic-task.ts";

export interface CleanerConfig {
  /** Between two looks at what is to be compacted. Kafka: log.cleaner.backoff.ms. */
  readonly backoffMs: number;
  /** Logs that are compacted at a time. Kafka: log.cleaner.threads. */
  readonly passesMax: number;
  /** Memory for maps of keys, of all passes together. Kafka: log.cleaner.dedupe.buffer.size. */
  readonly mapBytes: number;
}

/** Kafka's. */
export const DEFAULT_CLEANER_CONFIG: CleanerConfig = {
  backoffMs: 15_000,
  passesMax: 1,
  mapBytes: COMPACTION_MAP_BYTES,
};

/** A log that is not compacted any more until it is opened anew: the last pass could not read it. */
export interface Uncleanable {
  readonly code: LogErrorCode;
  /** One line. */
  readonly reason: string;
}

/** What the cleaner knows of one log. */
export interface CleanerView {
  readonly isCleaning: boolean;
  readonly uncleanable: Uncleanable | undefined;
  /** Of this run of the process; `undefined` before the first pass. */
  readonly lastPass: CompactionResult | undefined;
}

interface Dirty {
  readonly log: PartitionLog;
  readonly range: CompactionRange;
}

/**
 * Compacts the logs of a directory that are to be compacted: every so often, as long as one is due, the one with the largest part of
 * dirty bytes first. Of those that are also to be deleted from it takes the oldest segments, so that nobody does it beside a pass.
 *
 * A log whose batches cannot be read is left alone from then on, and says why. What may pass, as a full disk, is tried again at the next look.
 * Source: apache/kafka storage/.../internals/log/LogCleaner.java, LogCleanerManager.java
 */
export class LogCleaner {
  readonly #config: CleanerConfig;
  readonly #logs: () => Iterable<PartitionLog>;
  readonly #highWatermarkOf: (log: PartitionLog) => Offset | undefined;
  readonly #task: PeriodicTask;
  readonly #inProgress = new Set<PartitionLog>();
  readonly #uncleanable = new WeakMap<PartitionLog, Uncleanable>();
  readonly #lastPasses = new WeakMap<PartitionLog, CompactionResult>();
  /** Settles when no pass is being chosen. */
  #choices: Promise<unknown> = Promise.resolve();
  #isStopped = false;

  /** @param logs all of the directory, as they are when it is called */
  constructor(
    clock: Clock,
    config: CleanerConfig,
    directory: {
      readonly logs: () => Iterable<PartitionLog>;
      readonly highWatermarkOf: (log: PartitionLog) => Offset | undefined;
    },
  ) {
    this.#config = config;
    this.#logs = directory.logs;
    this.#highWatermarkOf = directory.highWatermarkOf;
    const schedule = { initialDelayMs: config.backoffMs, intervalMs: config.backoffMs };
    this.#task = new PeriodicTask(clock, schedule, {
      isNeeded: () => [...this.#logs()].some((log) => isCompacted(log.config)),
      look: () => this.#look(),
    });
  }

  /** The set of logs or what they are set to may have changed. */
  update(): void {
    this.#task.update();
  }

  view(log: PartitionLog): CleanerView {
    return {
      isCleaning: this.#inProgress.has(log),
      uncleanable: this.#uncleanable.get(log),
      lastPass: this.#lastPasses.get(log),
    };
  }

  /** Ends the passes that run; none begins any more when this resolves. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const log of this.#inProgress) void log.abortCompaction();
    await this.#task.stop();
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    await this.#deleteOldSegments();
    /** Of this look: what came to nothing once is not tried again at once. */
    const tried = new Set<PartitionLog>();
    const passes = Array.from({ length: this.#config.passesMax }, () => this.#cleanWhatIsDue(tried));
    await Promise.all(passes);
  }

  async #deleteOldSegments(): Promise<void> {
    for (const log of this.#logs()) {
      if (this.#isStopped) return;
      const { config, segments, logStartOffset } = log;
      const isBelowStart = (segments[1]?.baseOffset ?? Number.POSITIVE_INFINITY) <= logStartOffset;
      if (!isCompacted(config) || !(hasRetention(config) || isBelowStart)) continue;
      // One that cannot, or whose invariant broke, refuses from then on: it needs no messenger.
      await log.deleteOldSegments(this.#highWatermarkOf(log)).catch(() => undefined);
    }
  }

  async #cleanWhatIsDue(tried: Set<PartitionLog>): Promise<void> {
    for (;;) {
      // One after the other, or two would choose the same.
      const choice = this.#choices.then(() => this.#begin(tried));
      this.#choices = choice;
      const begun = await choice;
      if (begun === undefined) return;
      try {
        if (this.#isStopped) return;
        if (!(await this.#clean(begun))) tried.add(begun.log);
      } finally {
        this.#inProgress.delete(begun.log);
      }
    }
  }

  async #begin(tried: ReadonlySet<PartitionLog>): Promise<Dirty | undefined> {
    const filthiest = await this.#filthiest(tried);
    if (filthiest === undefined || this.#isStopped) return undefined;
    this.#inProgress.add(filthiest.log);
    return filthiest;
  }

  /** Of the logs that are due the one with the largest dirty ratio; `undefined` when none is. */
  async #filthiest(tried: ReadonlySet<PartitionLog>): Promise<Dirty | undefined> {
    let filthiest: Dirty | undefined;
    for (const log of this.#logs()) {
      if (this.#isStopped) return undefined;
      const isLeftAlone = tried.has(log) || this.#inProgress.has(log) || this.#uncleanable.has(log);
      if (!isCompacted(log.config) || isLeftAlone) continue;
      const range = await log
        .compactionRange({ highWatermark: this.#highWatermarkOf(log) })
        .catch((error: unknown) => this.#failed(log, error));
      if (range?.isDue !== true) continue;
      if (filthiest === undefined || range.dirtyRatio > filthiest.range.dirtyRatio) filthiest = { log, range };
    }
    return filthiest;
  }

  /** @returns whether the log has become cleaner: then it may be due again */
  async #clean({ log, range }: Dirty): Promise<boolean> {
    const mapBytes = Math.floor(this.#config.mapBytes / this.#config.passesMax);
    try {
      const result = await log.compact({ highWatermark: this.#highWatermarkOf(log), mapBytes });
      this.#lastPasses.set(log, result);
      return result.cleanedEndOffset > range.firstDirtyOffset;
    } catch (error) {
      this.#failed(log, error);
      return false;
    }
  }

  /** A log that was cut, closed or removed under the pass has another one later. So has one on a disk that is full. */
  #failed(log: PartitionLog, error: unknown): undefined {
    const isOfOneLog = error instanceof LogError && !error.retriable && error.code !== "LOG_CLOSED";
    if (isOfOneLog) this.#uncleanable.set(log, { code: error.code, reason: error.message });
  }
}
