import { toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import type { CompactionConfig } from "./config.ts";
import { floorSegment } from "./log-read.ts";
import type { LogSegment } from "./segment.ts";

/** What of a log is clean, and what is not. */
export interface DirtyPart {
  /** Below it no key has an older value than its last one below it. */
  readonly firstDirtyOffset: Offset;
  /** Of the segments below it. */
  readonly cleanBytes: number;
  /** Of the sealed segments that reach it: what could be compacted, were there nothing that keeps from it. */
  readonly dirtyBytes: number;
}

/** Which part of a log a compaction would work on, and whether it is worth it. */
export interface CompactionRange extends DirtyPart {
  /** Base offset of a segment: from there on nothing is cleaned now. */
  readonly firstUncleanableOffset: Offset;
  /** Of the segments that would be cleaned: neither too young, nor with a transaction that is open, nor above the high watermark. */
  readonly dirtyBytes: number;
  /** dirty / (clean + dirty); 0 for an empty log. */
  readonly dirtyRatio: number;
  /** Whether a pass is due: by the ratio, or because the dirty part is old. */
  readonly isDue: boolean;
}

/** What decides where the clean part of a log ends. */
export interface CleanedLog {
  /** The last one is active, which is never cleaned. */
  readonly segments: readonly LogSegment[];
  readonly logStartOffset: Offset;
  readonly logEndOffset: Offset;
  /** As the last pass left it. None of the log's offsets any more: all is dirty. */
  readonly cleanerOffset: Offset | undefined;
}

/** Source: apache/kafka storage/.../internals/log/LogCleanerManager.java, cleanableOffsets */
function firstDirtyOffsetOf({ cleanerOffset, logStartOffset, logEndOffset }: CleanedLog): Offset {
  const isKnown = cleanerOffset !== undefined && cleanerOffset >= logStartOffset && cleanerOffset <= logEndOffset;
  return isKnown ? cleanerOffset : logStartOffset;
}

export function dirtyPart(log: CleanedLog): DirtyPart {
  const { segments } = log;
  const firstDirtyOffset = firstDirtyOffsetOf(log);
  const dirty = segments.slice(floorSegment(segments, firstDirtyOffset), -1);
  return { firstDirtyOffset, cleanBytes: cleanBytesOf(segments, firstDirtyOffset), dirtyBytes: bytesOf(dirty) };
}

/** @throws FileError @throws LogError CORRUPT_MESSAGE Source: apache/kafka storage/.../internals/log/LogCleanerManager.java */
export async function compactionRange(
  log: CleanedLog & {
    readonly lastStableOffset: Offset;
    readonly config: CompactionConfig;
    readonly nowMs: number;
  },
): Promise<CompactionRange> {
  const { segments, config, nowMs } = log;
  const firstDirtyOffset = firstDirtyOffsetOf(log);
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
  const cleanBytes = cleanBytesOf(segments, firstDirtyOffset);
  const dirtyBytes = bytesOf(dirty.filter(({ baseOffset }) => baseOffset < firstUncleanableOffset));
  const dirtyRatio = dirtyBytes === 0 ? 0 : dirtyBytes / (cleanBytes + dirtyBytes);
  const isOld = dirtyBytes > 0 && (await firstTimestamp(dirty)) < nowMs - config.maxCompactionLagMs;
  const isDue = dirtyRatio > config.minCleanableDirtyRatio || isOld;
  return { firstDirtyOffset, firstUncleanableOffset, cleanBytes, dirtyBytes, dirtyRatio, isDue };
}

function cleanBytesOf(segments: readonly LogSegment[], firstDirtyOffset: Offset): number {
  return bytesOf(segments.filter((_segment, at) => (segments[at + 1]?.baseOffset ?? Infinity) <= firstDirtyOffset));
}

function bytesOf(segments: readonly LogSegment[]): number {
  return segments.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
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
async function firstTimestamp(segments: readonly LogSegment[]): Promise<number> {
  let earliest = Number.POSITIVE_INFINITY;
  for (const segment of segments) earliest = Math.min(earliest, (await segment.firstTimestamp()) ?? earliest);
  return earliest;
}
