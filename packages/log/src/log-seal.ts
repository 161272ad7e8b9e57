import type { Offset } from "@tidemark/base";
import { LeaderEpochCache } from "@tidemark/epoch-cache";
import type { EpochEntry } from "@tidemark/epoch-cache";
import { crc32c } from "@tidemark/wire";

/**
 * What a node's state vouches for of a partition's files, so that the next open need not read them.
 *
 * ```text
 * segment-seal/orders-3 -> | end base offset i64 | print u32 | active bytes i64 | stop print u32 |
 * ```
 *
 * Names, sizes and what must go together are in the prints; a segment's bytes are not. It is written in one commit with what makes it true:
 * a recovery point that was raised over what it covers, or a log start. Losing it, or not finding the files as it says, costs a longer look.
 */
export interface LogSeal {
  /** Segments below are covered: synced, with their indexes. The segment of this base offset is the first that is not. */
  readonly endBaseOffset: number;
  readonly print: number;
  /** After a clean stop: of that segment too, which is the last one. */
  readonly stop: { readonly activeBytes: number; readonly print: number } | undefined;
}

/** What of a segment goes into a print. */
export interface SealedSegment {
  readonly baseOffset: Offset;
  readonly sizeBytes: number;
  readonly transactionIndex: { readonly count: number };
}

const SEAL_BYTES = 24;
const NO_BYTES = -1n;
const SEGMENT_BYTES = 20;
const EPOCH_BYTES = 12;

/**
 * A CRC over names, sizes, the number of aborted transactions, and the leader epochs that begin below `endOffset`. Epochs count from the log
 * start on, which their file may or may not have been cut to.
 */
export function printOf(
  segments: readonly SealedSegment[],
  epochs: readonly EpochEntry[],
  range: { readonly logStartOffset: number; readonly endOffset: number },
): number {
  const cache = new LeaderEpochCache(epochs);
  cache.truncateFromStart(range.logStartOffset);
  cache.truncateFromEnd(range.endOffset);
  const { entries } = cache;
  const view = new DataView(new ArrayBuffer(segments.length * SEGMENT_BYTES + entries.length * EPOCH_BYTES));
  let at = 0;
  for (const { baseOffset, sizeBytes, transactionIndex } of segments) {
    view.setFloat64(at, baseOffset);
    view.setFloat64(at + 8, sizeBytes);
    view.setUint32(at + 16, transactionIndex.count);
    at += SEGMENT_BYTES;
  }
  for (const { epoch, startOffset } of entries) {
    view.setInt32(at, epoch);
    view.setFloat64(at + 4, startOffset);
    at += EPOCH_BYTES;
  }
  return crc32c(new Uint8Array(view.buffer));
}

export function encodeSeal({ endBaseOffset, print, stop }: LogSeal): Uint8Array {
  const view = new DataView(new ArrayBuffer(SEAL_BYTES));
  view.setBigInt64(0, BigInt(endBaseOffset));
  view.setUint32(8, print);
  view.setBigInt64(12, stop === undefined ? NO_BYTES : BigInt(stop.activeBytes));
  view.setUint32(20, stop?.print ?? 0);
  return new Uint8Array(view.buffer);
}

/** `undefined` for what is none. */
export function decodeSeal(bytes: Uint8Array | undefined): LogSeal | undefined {
  if (bytes?.length !== SEAL_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const activeBytes = view.getBigInt64(12);
  return {
    endBaseOffset: Number(view.getBigInt64(0)),
    print: view.getUint32(8),
    stop: activeBytes < 0n ? undefined : { activeBytes: Number(activeBytes), print: view.getUint32(20) },
  };
}
