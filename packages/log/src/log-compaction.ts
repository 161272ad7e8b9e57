import { FileError } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { compactSegments, discardCleaned } from "./compaction.ts";
import type { CompactionResult } from "./compaction.ts";
import { compactionRange, dirtyPart } from "./compaction-range.ts";
import type { CleanedLog, CompactionRange, DirtyPart } from "./compaction-range.ts";
import { COMPACTION_MAP_BYTES } from "./config.ts";
import { LogError } from "./error.ts";
import type { LogCore } from "./log-core.ts";
import { storageError } from "./log-directory.ts";
import type { LogTruncation } from "./log-truncation.ts";
import { OffsetMap } from "./offset-map.ts";
import type { LogSegment } from "./segment.ts";

export interface CompactOptions {
  /** Up to where the log is clean. Where it is none of the log's offsets: the log start. Default: as the last pass left it. */
  readonly firstDirtyOffset?: Offset | undefined;
  /** Nothing at or above it is compacted. Default: what a consumer may see while there are no other replicas. */
  readonly highWatermark?: Offset | undefined;
  /** Memory for the map of keys; one that is full ends the pass early. Default 128 MiB. */
  readonly mapBytes?: number | undefined;
}

const READ_OPERATIONS: readonly FileError["operation"][] = ["open", "read", "size"];

/** Compaction of a partition's log: one pass at a time, beside appends and reads. */
export class LogCompaction {
  readonly #core: LogCore;
  readonly #truncation: LogTruncation;
  #running: Promise<CompactionResult> | undefined;
  /** Counts the calls of `abort`. */
  #aborts = 0;

  constructor(core: LogCore, truncation: LogTruncation) {
    this.#core = core;
    this.#truncation = truncation;
  }

  /** The pass that runs. */
  get running(): Promise<CompactionResult> | undefined {
    return this.#running;
  }

  get dirtyPart(): DirtyPart {
    return dirtyPart(this.#core.local);
  }

  /** As `PartitionLog.compactionRange`. @throws FileError */
  range(options: CompactOptions = {}): Promise<CompactionRange> {
    const { segments, logStartOffset, logEndOffset, cleanerOffset }: CleanedLog = this.#core.local;
    return compactionRange({
      segments,
      logStartOffset,
      logEndOffset,
      lastStableOffset: this.#core.lastStableOffset(options.highWatermark),
      cleanerOffset: options.firstDirtyOffset ?? cleanerOffset,
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

  /** As `PartitionLog.abortCompaction`. */
  async abort(): Promise<void> {
    const running = this.#running;
    if (running === undefined) return;
    this.#aborts += 1;
    await running.catch(() => undefined);
  }

  async #compact(options: CompactOptions): Promise<CompactionResult> {
    const aborts = this.#aborts;
    // What a cut under way takes is no source.
    while (this.#core.truncation !== undefined) await this.#core.truncation;
    const cuts = this.#core.cuts;
    const checkAborted = (): void => {
      if (this.#core.refusal !== undefined) throw this.#core.refusal;
      if (this.#core.cuts !== cuts || this.#aborts !== aborts)
        throw new LogError({ code: "COMPACTION_ABORTED", directory: this.#core.directory });
    };
    checkAborted();
    const { firstDirtyOffset, firstUncleanableOffset } = await this.range(options);
    checkAborted();
    const { segments } = this.#core.local;
    const compaction = {
      workers: this.#core.workers,
      settings: this.#core.local.segmentSettings,
      config: this.#core.config,
      segments: segments.filter(({ baseOffset }) => baseOffset < firstUncleanableOffset),
      firstDirtyOffset,
      firstUncleanableOffset,
      deleteRetentionMs: this.#core.config.deleteRetentionMs,
      mapBytes: Math.min(
        options.mapBytes ?? COMPACTION_MAP_BYTES,
        OffsetMap.bytesFor(firstUncleanableOffset - firstDirtyOffset),
      ),
      abortedTransactions: segments.flatMap(({ transactionIndex }) => transactionIndex.entries),
      producers: () => this.#core.producers.entries,
      checkAborted,
      swap: (sources: readonly LogSegment[], cleaned: LogSegment) => this.#swap(sources, cleaned, checkAborted),
    };
    try {
      const result = await compactSegments(compaction);
      await this.#core.task(async () => {
        checkAborted();
        await this.#core.local.raiseCleanerOffset(result.cleanedEndOffset);
      });
      return result;
    } catch (error) {
      // The files of a log that was cut or closed go under its reader.
      checkAborted();
      // Of a disk that cannot be read only this pass suffers. One that does not write or sync fails as in an append.
      if (error instanceof FileError && READ_OPERATIONS.includes(error.operation))
        throw storageError(error, this.#core.directory);
      throw this.#core.noteFailure(error);
    }
  }

  async #swap(sources: readonly LogSegment[], cleaned: LogSegment, checkAborted: () => void): Promise<void> {
    let hasBegun = false;
    try {
      await this.#core.task(async () => {
        checkAborted();
        hasBegun = true;
        await this.#truncation.exclusively(() => this.#core.local.replaceSegments(sources, cleaned));
      });
    } catch (error) {
      // Half way, the next open needs what there is.
      if (!hasBegun) await discardCleaned(cleaned);
      throw error;
    }
  }
}
