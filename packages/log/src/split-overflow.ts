import { joinPath, toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { SEGMENT_BYTES_MAX } from "./config.ts";
import { CLEANED_SUFFIX, LOG_SUFFIX, segmentFileName, SWAP_SUFFIX } from "./file-names.ts";
import { finishSwaps } from "./finish-swaps.ts";
import type { LogState } from "./log-state.ts";
import { RELATIVE_OFFSET_MAX } from "./offset-index.ts";
import { LogSegment } from "./segment.ts";
import type { SegmentSettings } from "./segment.ts";
import { copyRanges } from "./segment-copy.ts";

/** Nobody vouches for files that change. */
const NO_SEAL = { endBaseOffset: 0, print: 0, stop: undefined };

/** A part of a segment that becomes one itself: from this byte up to the next part. */
interface Piece {
  readonly baseOffset: Offset;
  readonly fromBytes: number;
  /** Where its batches end. */
  endOffset: number;
}

/**
 * Cuts segments up, at the borders of batches, whose offsets lie further apart than an index can say, or whose bytes do: old versions of other
 * programs wrote them. Not to be asked of a log of ours, which has none: there such an offset, which no CRC covers, is rot.
 *
 * Each part begins with its first batch's offset, but for the first one, which keeps the segment's. They are copied, and put in the place of the
 * segment as a compaction does it: a crash at any moment leaves the segment, or parts with which `finishSwaps` goes on. What is no batch
 * is left to who opens the log then.
 * @param baseOffsets of all segments, ascending
 * @returns names of the segments that were cut up
 * @throws FileError
 * Cost: the headers of the last segment, and of each that may be one of them; all bytes of those that are.
 * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, splitOverflowedSegment
 */
export async function splitOverflowing(
  settings: SegmentSettings,
  state: LogState,
  baseOffsets: readonly Offset[],
): Promise<string[]> {
  const split: string[] = [];
  for (const [at, baseOffset] of baseOffsets.entries()) {
    const nextBaseOffset = baseOffsets[at + 1];
    const segment = new LogSegment(settings, baseOffset);
    const sizeBytes = await segment.use((file) => file.size());
    const mayReachTooFar = (nextBaseOffset ?? Number.POSITIVE_INFINITY) - 1 - baseOffset > RELATIVE_OFFSET_MAX;
    const { fileBytesMax = SEGMENT_BYTES_MAX } = settings;
    if (!mayReachTooFar && sizeBytes <= fileBytesMax) continue;
    const pieces = await piecesOf(segment, sizeBytes, fileBytesMax);
    if (pieces.length === 1) continue;
    await replace(settings, state, segment, { pieces, sizeBytes, nextBaseOffset });
    split.push(segmentFileName(baseOffset, LOG_SUFFIX));
  }
  return split;
}

async function piecesOf(segment: LogSegment, sizeBytes: number, fileBytesMax: number): Promise<readonly Piece[]> {
  let piece: Piece = { baseOffset: segment.baseOffset, fromBytes: 0, endOffset: segment.baseOffset };
  const pieces = [piece];
  segment.sizeBytes = sizeBytes;
  await segment.walk(0, undefined, ({ baseOffset, lastOffset, sizeInBytes }, positionBytes) => {
    if (baseOffset < piece.endOffset) return "does not follow the batch before it";
    const reachesTooFar =
      lastOffset - piece.baseOffset > RELATIVE_OFFSET_MAX ||
      positionBytes + sizeInBytes - piece.fromBytes > fileBytesMax;
    // One batch is as long as it is.
    if (reachesTooFar && baseOffset > piece.baseOffset) {
      piece = { baseOffset: toOffset(baseOffset), fromBytes: positionBytes, endOffset: baseOffset };
      pieces.push(piece);
    }
    piece.endOffset = lastOffset + 1;
    return undefined;
  });
  return pieces;
}

async function replace(
  settings: SegmentSettings,
  state: LogState,
  segment: LogSegment,
  {
    pieces,
    sizeBytes,
    nextBaseOffset,
  }: { readonly pieces: readonly Piece[]; readonly sizeBytes: number; readonly nextBaseOffset: Offset | undefined },
): Promise<void> {
  const { files, directory } = settings;
  const pathOf = ({ baseOffset }: Piece): string => joinPath(directory, segmentFileName(baseOffset, LOG_SUFFIX));
  for (const [at, piece] of pieces.entries()) {
    const toBytes = pieces[at + 1]?.fromBytes ?? sizeBytes;
    await copyRanges(files, segment, [{ fromBytes: piece.fromBytes, toBytes }], pathOf(piece) + CLEANED_SUFFIX);
  }
  await files.syncDirectory(directory);
  for (const [at, { baseOffset, endOffset }] of pieces.entries()) {
    const endBaseOffset = pieces[at + 1]?.baseOffset ?? nextBaseOffset ?? toOffset(endOffset);
    await state.announceSwap({ baseOffset, endBaseOffset, endOffset: toOffset(endOffset) }, NO_SEAL);
  }
  // The last one first, each durably: as long as a `.cleaned` is left, all `.swap` lie above it, and an open drops them.
  for (const piece of [...pieces].reverse()) {
    await files.rename(pathOf(piece) + CLEANED_SUFFIX, pathOf(piece) + SWAP_SUFFIX);
    await files.syncDirectory(directory);
  }
  await finishSwaps(settings, state);
}
