import { fail, toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { retentionOf } from "./config.ts";
import { LogError } from "./error.ts";
import type { LogCore } from "./log-core.ts";
import { segmentsToDelete } from "./retention.ts";
import type { RetainedSegment, RetentionReason } from "./retention.ts";

/** What retention did. */
export interface RetentionReport {
  readonly deleted: readonly {
    readonly baseOffset: Offset;
    readonly sizeBytes: number;
    readonly reason: RetentionReason;
  }[];
  /** Segments with a timestamp in the future: unless the topic ignores it, they keep themselves and all behind them. */
  readonly futureSegments: number;
}

/** What goes from the begin of a partition's log: by a caller's word, or by the topic's limits. Tasks of its queue. */
export class LogRetention {
  readonly #core: LogCore;

  constructor(core: LogCore) {
    this.#core = core;
  }

  /** As `PartitionLog.deleteRecords`. @throws LogError as that does */
  deleteRecords(offset: Offset, highWatermark?: Offset): Promise<Offset> {
    return this.#core.task(async () => {
      const { logStartOffset, logEndOffset } = this.#core.local;
      const limit = Math.min(highWatermark ?? this.#core.visibleEndOffset, logEndOffset);
      if (offset > limit)
        throw new LogError({
          code: "OFFSET_OUT_OF_RANGE",
          fetchOffset: offset,
          logStartOffset,
          logEndOffset: toOffset(Math.max(limit, logStartOffset)),
        });
      await this.#raiseLogStart(offset);
      const { segments } = this.#core.local;
      await this.#deleteOldest(
        segments.filter((_segment, at) => (segments[at + 1]?.baseOffset ?? Infinity) <= offset).length,
      );
      return this.#core.local.logStartOffset;
    });
  }

  /** As `PartitionLog.deleteOldSegments`. @throws LogError as that does */
  deleteOldSegments(highWatermark?: Offset): Promise<RetentionReport> {
    return this.#core.task(async () => {
      const nowMs = this.#core.nowMs();
      const { ages, futureSegments, reasons } = await this.#judge(nowMs, highWatermark);
      const deleted = reasons.map((reason, at) => {
        const { baseOffset, sizeBytes } = ages[at] ?? fail("a segment is judged", { at });
        return { baseOffset, sizeBytes, reason };
      });
      if (reasons.length > 0) {
        if (reasons.length === ages.length)
          await this.#core.local.roll(this.#core.local.logEndOffset, this.#core.producers);
        const first = this.#core.local.segments[reasons.length] ?? fail("a log keeps a segment", { deleted });
        await this.#raiseLogStart(first.baseOffset);
        await this.#deleteOldest(reasons.length);
      }
      return { deleted, futureSegments };
    });
  }

  /** Which segments go. None for its age on the word of an index: the headers of its batches are read before. */
  async #judge(
    nowMs: number,
    highWatermark: Offset | undefined,
  ): Promise<{ ages: readonly RetainedSegment[]; futureSegments: number; reasons: readonly RetentionReason[] }> {
    for (;;) {
      const { segments, logStartOffset, logEndOffset } = this.#core.local;
      const { ages, futureSegments } = await this.#segmentAges(nowMs);
      const view = {
        segments: ages,
        logStartOffset,
        logEndOffset,
        highWatermark: highWatermark ?? this.#core.visibleEndOffset,
        nowMs,
      };
      const reasons = segmentsToDelete(view, retentionOf(this.#core.config));
      const doubtful = segments.find((segment, at) => reasons[at] === "time" && !segment.indexes.areProven);
      if (doubtful === undefined) return { ages, futureSegments, reasons };
      await doubtful.proveTimestamps();
    }
  }

  async #segmentAges(nowMs: number): Promise<{ ages: RetainedSegment[]; futureSegments: number }> {
    const ages: RetainedSegment[] = [];
    let futureSegments = 0;
    for (const segment of this.#core.local.segments) {
      let largestTimestamp = await segment.largestTimestamp();
      if (largestTimestamp > nowMs) {
        futureSegments += 1;
        if (this.#core.config.ignoresFutureTimestamps) largestTimestamp = await segment.modifiedMs();
      }
      ages.push({ baseOffset: segment.baseOffset, sizeBytes: segment.sizeBytes, largestTimestamp });
    }
    return { ages, futureSegments };
  }

  /** The start first, durably: what is deleted then may be gone in any order. */
  async #raiseLogStart(offset: Offset): Promise<void> {
    await this.#core.settle();
    await this.#core.local.raiseLogStart(offset);
    this.#core.epochs.truncateFromStart(this.#core.local.logStartOffset);
    await this.#core.epochs.flush();
    this.#core.wakeWaiters();
  }

  async #deleteOldest(count: number): Promise<void> {
    if (count === 0) return;
    this.#core.deletions += 1;
    this.#core.cuts += 1;
    await this.#core.local.deleteOldest(count);
  }
}
