import { parseOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";

export const LOG_SUFFIX = ".log";
export const OFFSET_INDEX_SUFFIX = ".index";
export const TIME_INDEX_SUFFIX = ".timeindex";

/** What lies beside a segment under the same base offset. Kafka writes the last two; a changed segment takes them away. */
export const SIDE_FILE_SUFFIXES = [OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, ".txnindex", ".snapshot"] as const;

/** Behind the full name of a file that waits for its removal. */
export const DELETED_SUFFIX = ".deleted";

/** Left behind by a crash: waiting for deletion, or never finished. Removed on open. */
export const LEFTOVER_SUFFIXES = [DELETED_SUFFIX, ".cleaned", ".tmp"] as const;

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
