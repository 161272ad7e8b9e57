import { toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import type { CompactionConfig } from "./config.ts";
import { floorSegment } from "./log-read.ts";
import type { LogSegment } from "./segment.ts";

/** Which part of a log a compaction would work on, and whether it is worth it. */
export interface CompactionRange {
  readonly firstDirtyOffset: Offset;
  /** Base offset of a segment: from there on nothing is cleaned now. */
  readonly firstUncleanableOffset: Offset;
  /** Bytes of the segments below the first dirty offset, and of those that would be cleaned. */
  readonly cleanBytes: number;
  readonly dirtyBytes: number;
  /** dirty / (clean + dirty); 0 for an empty log. */
  readonly dirtyRatio: number;
  /** Whether a pass is due: by the ratio, or because the dirty part is old. */
  readonly isDue: boolean;
}

/** @throws FileError @throws LogError CORRUPT_MESSAGE Source: apache/kafka storage/.../internals/log/LogCleanerManager.java */
export async function compactionRange(log: {
  readonly segments: readonly LogSegment[];
  readonly logStartOffset: Offset;
  readonly logEndOffset: Offset;
  readonly lastStableOffset: Offset;
  /** As the last pass left it. */
  readonly firstDirtyOffset: Offset | undefined;
  readonly config: CompactionConfig;
  readonly nowMs: number;
}): Promise<CompactionRange> {
  const { segments, config, nowMs } = log;
  const isKnown =
    log.firstDirtyOffset !== undefined &&
    log.firstDirtyOffset >= log.logStartOffset &&
    log.firstDirtyOffset <= log.logEndOffset;
  const firstDirtyOffset = isKnown && log.firstDirtyOffset !== undefined ? log.firstDirtyOffset : log.logStartOffset;
  const sealed = segments.slice(0, -1);
  const dirty = sealed.slice(floorSegment(segments, firstDirtyOffset));
  const limit = Math.min(
    log.lastStableOffset,
    segments.at(-1)?.baseOffset ?? 0,
    (await firstYoungSegment(dirty, nowMs - config.minCompactionLagMs, config.minCompactionLagMs)) ??
      Number.POSITIVE_INFINITY,
  );
  const aligned = segments[floorSegment(segments, Math.max(limit, firstDirtyOffset))]?.baseOffset;
  const firstUncleanableOffset = toOffset(Math.max(aligned ?? 0, segments[0]?.baseOffset ?? 0));
  const bytesOf = (some: readonly LogSegment[]): number => some.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const cleanBytes = bytesOf(
    segments.filter((_segment, at) => (segments[at + 1]?.baseOffset ?? Infinity) <= firstDirtyOffset),
  );
  const dirtyBytes = bytesOf(dirty.filter(({ baseOffset }) => baseOffset < firstUncleanableOffset));
  const dirtyRatio = dirtyBytes === 0 ? 0 : dirtyBytes / (cleanBytes + dirtyBytes);
  const isOld = dirtyBytes > 0 && firstTimestamp(dirty) < nowMs - config.maxCompactionLagMs;
  const isDue = dirtyRatio > config.minCleanableDirtyRatio || isOld;
  return { firstDirtyOffset, firstUncleanableOffset, cleanBytes, dirtyBytes, dirtyRatio, isDue };
}

/** Base offset of the first segment with a record later than `afterMs`. */
async function firstYoungSegment(
  segments: readonly LogSegment[],
  afterMs: number,
  lagMs: number,
): Promise<number | undefined> {
  if (lagMs === 0) return undefined;
  for (const segment of segments) if ((await segment.largestTimestamp()) > afterMs) return segment.baseOffset;
  return undefined;
}

/** The earliest time of the first batches of these segments; infinite when there is none. */
function firstTimestamp(segments: readonly LogSegment[]): number {
  return Math.min(...segments.map(({ indexes }) => indexes.firstTimestamp ?? Number.POSITIVE_INFINITY));
}
