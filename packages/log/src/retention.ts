import type { Offset } from "@tidemark/base";

/** Why a segment goes: it lies below the log start, the log is too large, or its records are too old. */
export type RetentionReason = "log-start" | "size" | "time";

export interface RetentionLimits {
  /** A segment goes when its largest timestamp is more than this in the past; -1: none does for its age. Kafka: retention.ms. */
  readonly retentionMs: number;
  /** Segments go as long as the log keeps at least this many bytes; -1: none does for the log's size. Kafka: retention.bytes. */
  readonly retentionBytes: number;
}

/** What of a segment decides about it. */
export interface RetainedSegment {
  readonly baseOffset: Offset;
  readonly sizeBytes: number;
  /** As `LogSegment.largestTimestamp`. */
  readonly largestTimestamp: number;
}

export interface RetentionView {
  /** Ascending; the last one is active. */
  readonly segments: readonly RetainedSegment[];
  readonly logStartOffset: Offset;
  readonly logEndOffset: Offset;
  /** Nothing at or above it goes, whatever its age: it may yet have to be sent. */
  readonly highWatermark: Offset;
  readonly nowMs: number;
}

/**
 * Why each of the segments that are to be deleted goes, from the oldest on: those in front of the first one that stays.
 *
 * A rule may only take a front part, so one segment that stays keeps all behind it. The active segment goes too, when it has records and
 * all of them are committed; an empty one stays.
 * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, deleteOldSegments
 */
export function segmentsToDelete(view: RetentionView, limits: RetentionLimits): RetentionReason[] {
  const { segments, logStartOffset, nowMs } = view;
  const reasons: RetentionReason[] = [];
  const take = (reason: RetentionReason, isDue: (segment: RetainedSegment, at: number) => boolean): void => {
    for (let at = reasons.length; ; at += 1) {
      const segment = segments[at];
      if (segment === undefined || !isDeletable(view, at) || !isDue(segment, at)) return;
      reasons.push(reason);
    }
  };
  take("log-start", (_segment, at) => (segments[at + 1]?.baseOffset ?? Number.POSITIVE_INFINITY) <= logStartOffset);
  const { retentionMs, retentionBytes } = limits;
  if (retentionBytes >= 0) {
    const keptBytes = segments.slice(reasons.length).reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    let spareBytes = keptBytes - retentionBytes;
    take("size", ({ sizeBytes }) => {
      if (spareBytes < sizeBytes) return false;
      spareBytes -= sizeBytes;
      return true;
    });
  }
  if (retentionMs >= 0) take("time", ({ largestTimestamp }) => nowMs - largestTimestamp > retentionMs);
  return reasons;
}

function isDeletable({ segments, logEndOffset, highWatermark }: RetentionView, at: number): boolean {
  const next = segments[at + 1];
  if (next === undefined && segments[at]?.sizeBytes === 0) return false;
  return highWatermark >= (next?.baseOffset ?? logEndOffset);
}
