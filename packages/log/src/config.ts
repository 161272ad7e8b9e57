import { fail } from "@tidemark/base";

/** When an append is durable: `always` = before it is answered, `none` = when the operating system or a flush gets to it. */
export type FlushMode = "none" | "always";

export interface LogConfig {
  /** A segment holds at most this many bytes; so does one append. Kafka: segment.bytes. */
  readonly segmentBytes: number;
  /** At most one offset index entry per this many bytes. Kafka: index.interval.bytes. */
  readonly indexIntervalBytes: number;
  /** Largest batch a leader takes, header included. Kafka: max.message.bytes. */
  readonly maxMessageBytes: number;
  readonly flush: FlushMode;
  /**
   * A segment takes no batch whose timestamp lies more than this after that of its first batch; where that has none, no batch this long
   * after it was begun. Kafka: segment.ms.
   */
  readonly segmentMs: number;
  /** Up to this much is taken off `segmentMs`, drawn for each segment; at most half of it. Kafka: segment.jitter.ms. */
  readonly segmentJitterMs: number;
  /** An index file holds at most this many bytes; a full one makes the segment roll. Kafka: segment.index.bytes. */
  readonly segmentIndexBytes: number;
}

/** Kafka's defaults, but durable: one node has no replica that could help it. */
export const DEFAULT_LOG_CONFIG: LogConfig = {
  segmentBytes: 1024 ** 3,
  indexIntervalBytes: 4096,
  maxMessageBytes: 1024 ** 2 + 12,
  flush: "always",
  segmentMs: 7 * 24 * 3600 * 1000,
  segmentJitterMs: 0,
  segmentIndexBytes: 10 * 1024 ** 2,
};

/** A group of appends is closed to newcomers at this size; a larger single batch makes a group of its own. */
export const GROUP_BYTES_MAX = 1024 ** 2;

/** Appends of one partition that wait for the disk; past it `append` answers QUEUE_FULL. */
export const QUEUED_BYTES_MAX = 64 * 1024 ** 2;

/** The recovery point never lags the log end by more than this (and one group). */
export const UNFLUSHED_BYTES_MAX = 64 * 1024 ** 2;

/** Sealed segments whose file stays open after a read. */
export const SEALED_FILES_OPEN_MAX = 16;

/** Calls of `waitForEndOffset` that may be pending at a time. */
export const WAITERS_MAX = 100_000;

/** How often a read starts again because a truncation ran while it read. */
export const READ_RETRIES_MAX = 16;

/** Two entries of a time index: one, and that of the end. Kafka allows less, and cannot make an index then. */
const SEGMENT_INDEX_BYTES_MIN = 24;

/** Segment positions are int32 in the offset index. */
export const SEGMENT_BYTES_MAX = 2 ** 31 - 1;

if (!(GROUP_BYTES_MAX <= QUEUED_BYTES_MAX)) fail("a group fits in the queue");

/** @throws InvariantError when a value is out of its range */
export function checkLogConfig(config: LogConfig): void {
  const { segmentBytes, indexIntervalBytes, maxMessageBytes } = config;
  if (!(Number.isInteger(segmentBytes) && segmentBytes >= 61 && segmentBytes <= SEGMENT_BYTES_MAX)) {
    fail("61 <= segmentBytes <= 2^31 - 1", { segmentBytes });
  }
  if (!(Number.isInteger(indexIntervalBytes) && indexIntervalBytes >= 0))
    fail("0 <= indexIntervalBytes", { indexIntervalBytes });
  if (!(Number.isInteger(maxMessageBytes) && maxMessageBytes >= 0)) fail("0 <= maxMessageBytes", { maxMessageBytes });
  checkTimes(config);
}

function checkTimes({ segmentMs, segmentJitterMs, segmentIndexBytes }: LogConfig): void {
  if (!(Number.isSafeInteger(segmentMs) && segmentMs >= 1)) fail("1 <= segmentMs", { segmentMs });
  if (!(Number.isSafeInteger(segmentJitterMs) && segmentJitterMs >= 0))
    fail("0 <= segmentJitterMs", { segmentJitterMs });
  if (!(Number.isInteger(segmentIndexBytes) && segmentIndexBytes >= SEGMENT_INDEX_BYTES_MIN))
    fail("an index has room for an entry and the one of the end", { segmentIndexBytes });
}
