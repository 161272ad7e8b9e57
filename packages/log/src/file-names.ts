import { parseOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";

export const LOG_SUFFIX = ".log";
export const OFFSET_INDEX_SUFFIX = ".index";
export const TIME_INDEX_SUFFIX = ".timeindex";
export const TRANSACTION_INDEX_SUFFIX = ".txnindex";
export const PRODUCER_SNAPSHOT_SUFFIX = ".snapshot";

/** What lies beside a segment under the same base offset, and goes with it. A snapshot speaks of what lies below that offset. */
export const SIDE_FILE_SUFFIXES = [
  OFFSET_INDEX_SUFFIX,
  TIME_INDEX_SUFFIX,
  TRANSACTION_INDEX_SUFFIX,
  PRODUCER_SNAPSHOT_SUFFIX,
] as const;

/** Behind the full name of a file that waits for its removal. */
export const DELETED_SUFFIX = ".deleted";
/** Behind the full name of a file: written by a compaction, complete and about to take its place. */
export const CLEANED_SUFFIX = ".cleaned";
export const SWAP_SUFFIX = ".swap";

/** Left behind by a crash: waiting for deletion, or never finished. Removed on open. */
export const LEFTOVER_SUFFIXES = [DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp"] as const;

/** `00000000000000000042.log` for offset 42. */
export function segmentFileName(baseOffset: Offset, suffix: string): string {
  return String(baseOffset).padStart(20, "0") + suffix;
}

/** The base offset that a segment file's name carries, or `undefined` when it is no such name. */
export function parseSegmentFileName(name: string, suffix: string): Offset | undefined {
  if (!name.endsWith(suffix)) return undefined;
  const digits = name.slice(0, -suffix.length);
  return /^\d{20}$/.test(digits) ? parseOffset(Number(digits)) : undefined;
}
