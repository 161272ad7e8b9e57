import { InvariantError, WorkerError } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { WireError } from "@tidemark/wire";
import { compactSegments } from "./compaction.ts";
import type { CompactionResult } from "./compaction.ts";
import { compactionRange } from "./compaction-range.ts";
import type { CompactionRange } from "./compaction-range.ts";
import { COMPACTION_MAP_BYTES } from "./config.ts";
import { LogError } from "./error.ts";
import type { LogCore } from "./log-core.ts";
import { storageError } from "./log-directory.ts";
import type { LogTruncation } from "./log-truncation.ts";
import type { LogSegment } from "./segment.ts";

export interface CompactOptions {
  /** Up to where the log is clean, as `compact` said last. Default, and where it is none of the log's offsets: the log start. */
  readonly firstDirtyOffset?: Offset | undefined;
  /** Nothing at or above it is compacted. Default: what a consumer may see while there are no other replicas. */
  readonly highWatermark?: Offset | undefined;
  /** Memory for the map of keys; one that is full ends the pass early. Default 128 MiB. */
  readonly mapBytes?: number | undefined;
}

/** Compaction of a partition's log: one pass at a time, beside appends and reads. */
export class LogCompaction {
  readonly #core: LogCore;
  readonly #truncation: LogTruncation;
  #running: Promise<CompactionResult> | undefined;

  constructor(core: LogCore, truncation: LogTruncation) {
    this.#core = core;
    this.#truncation = truncation;
  }

  /** The pass that runs. */
  get running(): Promise<CompactionResult> | undefined {
    return this.#running;
  }

  /** As `PartitionLog.compactionRange`. @throws FileError */
  range(options: CompactOptions = {}): Promise<CompactionRange> {
    return compactionRange({
      segments: this.#core.local.segments,
      logStartOffset: this.#core.local.logStartOffset,
      logEndOffset: this.#core.local.logEndOffset,
      lastStableOffset: this.#core.lastStableOffset(options.highWatermark),
      firstDirtyOffset: options.firstDirtyOffset,
      config: this.#core.config,
      nowMs: this.#core.clock.wallMs(),
    });
  }

  /** As `PartitionLog.compact`. @throws LogError as that does */
  compact(options: CompactOptions = {}): Promise<CompactionResult> {
    this.#running ??= this.#compact(options).finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #compact(options: CompactOptions): Promise<CompactionResult> {
    const { refusal } = this.#core;
    if (refusal !== undefined) throw refusal;
    const cuts = this.#core.cuts;
    const checkAborted = (): void => {
      if (this.#core.refusal !== undefined) throw this.#core.refusal;
      if (this.#core.cuts !== cuts) throw new LogError({ code: "COMPACTION_ABORTED", directory: this.#core.directory });
    };
    const { firstDirtyOffset, firstUncleanableOffset } = await this.range(options);
    const { segments } = this.#core.local;
    const compaction = {
      workers: this.#core.workers,
      settings: this.#core.local.segmentSettings,
      config: this.#core.config,
      segments: segments.filter(({ baseOffset }) => baseOffset < firstUncleanableOffset),
      firstDirtyOffset,
      firstUncleanableOffset,
      deleteRetentionMs: this.#core.config.deleteRetentionMs,
      mapBytes: options.mapBytes ?? COMPACTION_MAP_BYTES,
      abortedTransactions: segments.flatMap(({ transactionIndex }) => transactionIndex.entries),
      producers: () => this.#core.producers.entries,
      checkAborted,
      swap: (sources: readonly LogSegment[], cleaned: LogSegment) =>
        this.#core.task(async () => {
          checkAborted();
          await this.#truncation.exclusively(() => this.#core.local.replaceSegments(sources, cleaned));
        }),
    };
    try {
      return await compactSegments(compaction);
    } catch (error) {
      if (error instanceof InvariantError) throw error;
      if (error instanceof WireError || error instanceof WorkerError)
        throw new LogError(
          {
            code: "CORRUPT_MESSAGE",
            path: this.#core.directory,
            positionBytes: 0,
            fromOffset: undefined,
            toOffset: undefined,
            reason: error.message,
          },
          { cause: error },
        );
      throw storageError(error, this.#core.directory);
    }
  }
}
