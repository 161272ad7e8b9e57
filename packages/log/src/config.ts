import { fail } from "@tidemark/base";
import type { CompressionCodec } from "@tidemark/wire";
import type { RetentionLimits } from "./retention.ts";

/** When an append is durable: `always` = before it is answered, `none` = when the operating system or a flush gets to it. */
export type FlushMode = "none" | "always";

/** Whose time a record's timestamp is. */
export type TimestampType = "CreateTime" | "LogAppendTime";

/** Kafka's 2^63 - 1, as far as a number goes: no limit. */
const NO_LIMIT_MS = Number.MAX_SAFE_INTEGER;

/** What batches are stored with: as their producer compressed them, or with one codec whatever that was. */
export type CompressionType = "producer" | CompressionCodec;

/** How old records go: whole segments by age and size, of each key all values but the last, or both. */
export type CleanupPolicy = "delete" | "compact" | "compact,delete";

export interface LogConfig extends RetentionLimits, CompactionConfig {
  /** Kafka: cleanup.policy. A log that is compacted takes no record without a key. */
  readonly cleanupPolicy: CleanupPolicy;
  /** A segment holds at most this many bytes; so does one append. Kafka: segment.bytes. */
  readonly segmentBytes: number;
  /** At most one offset index entry per this many bytes. Kafka: index.interval.bytes. */
  readonly indexIntervalBytes: number;
  /** Largest batch a leader takes, header included. Kafka: max.message.bytes. */
  readonly maxMessageBytes: number;
  readonly flush: FlushMode;
  /**
   * With `always` the recovery point never lags the log end by more than this and one group. Otherwise a flush begins then beside appends,
   * which wait for it when it lags by `FLUSHES_BEHIND_MAX` times as much. So much an open after a crash has to check, beside a walk through
   * the segment of the recovery point.
   */
  readonly flushBytes: number;
  /** The leader compresses a client's batch anew that comes with another codec. Kafka: compression.type. */
  readonly compressionType: CompressionType;
  /** Of the leader and of this node's own producers; `undefined`: the codec's default. Kafka: compression.gzip.level and the like. */
  readonly compressionLevel?: number | undefined;
  /**
   * A segment takes no batch whose timestamp lies more than this after that of its first batch; where that has none, no batch this long
   * after it was begun. Kafka: segment.ms.
   */
  readonly segmentMs: number;
  /** Up to this much is taken off `segmentMs`, drawn for each segment; at most half of it. Kafka: segment.jitter.ms. */
  readonly segmentJitterMs: number;
  /** An index file holds at most this many bytes; a full one makes the segment roll. Kafka: segment.index.bytes. */
  readonly segmentIndexBytes: number;
  /** `LogAppendTime`: the leader writes its own time over that of a batch. Kafka: message.timestamp.type. */
  readonly timestampType: TimestampType;
  /** With `CreateTime` a record may be this much older than the leader's clock says. Kafka: message.timestamp.before.max.ms. */
  readonly timestampBeforeMaxMs: number;
  /** And this much younger: one from far in the future would keep its segment for ever. Kafka: message.timestamp.after.max.ms. */
  readonly timestampAfterMaxMs: number;
  /** Whether a segment whose largest timestamp lies in the future is as old as its file: else it keeps itself and all behind it. */
  readonly ignoresFutureTimestamps: boolean;
  /** How long the files of a deleted segment stay, for those who read them. Kafka: file.delete.delay.ms. */
  readonly fileDeleteDelayMs: number;
}

/** When a log is compacted that is to be, and what of it stays. */
export interface CompactionConfig {
  /** How long a tombstone, or the marker of an emptied transaction, stays after the first pass that met it. Kafka: delete.retention.ms. */
  readonly deleteRetentionMs: number;
  /** A pass begins when more than this part of the bytes is not clean, 0 to 1. Kafka: min.cleanable.dirty.ratio. */
  readonly minCleanableDirtyRatio: number;
  /** Younger records are left alone. Kafka: min.compaction.lag.ms. */
  readonly minCompactionLagMs: number;
  /** Older records are compacted, whatever the ratio, and a segment takes no records for longer. Kafka: max.compaction.lag.ms. */
  readonly maxCompactionLagMs: number;
}

/** Memory of the map of keys of one pass: 5 million keys. Kafka: log.cleaner.dedupe.buffer.size. */
export const COMPACTION_MAP_BYTES = 128 * 1024 ** 2;

/** Kafka's defaults, but durable: one node has no replica that could help it. */
export const DEFAULT_LOG_CONFIG: LogConfig = {
  segmentBytes: 1024 ** 3,
  indexIntervalBytes: 4096,
  maxMessageBytes: 1024 ** 2 + 12,
  flush: "always",
  flushBytes: 64 * 1024 ** 2,
  compressionType: "producer",
  segmentMs: 7 * 24 * 3600 * 1000,
  segmentJitterMs: 0,
  segmentIndexBytes: 10 * 1024 ** 2,
  timestampType: "CreateTime",
  timestampBeforeMaxMs: NO_LIMIT_MS,
  timestampAfterMaxMs: 3600 * 1000,
  // Kafka's default is seven days: here nothing goes that nobody asked to go.
  retentionMs: -1,
  retentionBytes: -1,
  cleanupPolicy: "delete",
  deleteRetentionMs: 24 * 60 * 60 * 1000,
  minCleanableDirtyRatio: 0.5,
  minCompactionLagMs: 0,
  maxCompactionLagMs: NO_LIMIT_MS,
  ignoresFutureTimestamps: false,
  fileDeleteDelayMs: 60 * 1000,
};

/** Whether of each key only the last value is kept. */
export function isCompacted({ cleanupPolicy }: Pick<LogConfig, "cleanupPolicy">): boolean {
  return cleanupPolicy !== "delete";
}

/** What age and size take of a log: nothing of one that is only compacted. */
export function retentionOf({ cleanupPolicy, retentionMs, retentionBytes }: LogConfig): RetentionLimits {
  return cleanupPolicy === "compact" ? { retentionMs: -1, retentionBytes: -1 } : { retentionMs, retentionBytes };
}

/** Whether anything ever goes for its age, or for the size of the log. */
export function hasRetention(config: LogConfig): boolean {
  const { retentionMs, retentionBytes } = retentionOf(config);
  return retentionMs >= 0 || retentionBytes >= 0;
}

/**
 * How long a segment takes records: only sealed ones are compacted, and none may wait for longer than the largest lag.
 * Source: apache/kafka storage/.../internals/log/LogConfig.java, maxSegmentMs
 */
export function segmentMsOf(config: LogConfig): number {
  return isCompacted(config) ? Math.min(config.segmentMs, config.maxCompactionLagMs) : config.segmentMs;
}

/** A group of appends is closed to newcomers at this size; a larger single batch makes a group of its own. */
export const GROUP_BYTES_MAX = 1024 ** 2;

/** Appends of one partition that wait for the disk; past it `append` answers QUEUE_FULL. */
export const QUEUED_BYTES_MAX = 64 * 1024 ** 2;

/**
 * Without `always` appends wait for the flush while this many times `flushBytes` lie above the recovery point. With two a disk of over 1 GB/s
 * stood still for a fifth of the time, waiting for the next bytes.
 */
export const FLUSHES_BEHIND_MAX = 4;

/** Sealed segments whose file stays open after a read. */
export const SEALED_FILES_OPEN_MAX = 16;

/** Calls of `waitForEndOffset` that may be pending at a time. */
export const WAITERS_MAX = 100_000;

/** How often a read starts again because a truncation ran while it read. */
export const READ_RETRIES_MAX = 16;

/** Two entries of a time index: one, and that of the end. Kafka allows less, and cannot make an index then. */
const SEGMENT_INDEX_BYTES_MIN = 24;

/** Between two looks at what may be deleted. Kafka: log.retention.check.interval.ms. */
export const RETENTION_CHECK_INTERVAL_MS = 5 * 60 * 1000;

/** Before the first one: a node that starts has other things to do. Kafka: log.initial.task.delay.ms. */
export const RETENTION_INITIAL_DELAY_MS = 30 * 1000;
/** Kafka: producer.id.expiration.ms and producer.id.expiration.check.interval.ms. */
export const PRODUCER_ID_EXPIRATION_MS_DEFAULT = 24 * 60 * 60 * 1000;
export const PRODUCER_ID_EXPIRATION_CHECK_MS = 10 * 60 * 1000;

/** Segment positions are int32 in the offset index. */
export const SEGMENT_BYTES_MAX = 2 ** 31 - 1;

if (!(GROUP_BYTES_MAX <= QUEUED_BYTES_MAX)) fail("a group fits in the queue");

/** @throws InvariantError when a value is out of its range */
export function checkLogConfig(config: LogConfig): void {
  const { segmentBytes, indexIntervalBytes, maxMessageBytes, flushBytes } = config;
  if (!(Number.isInteger(segmentBytes) && segmentBytes >= 61 && segmentBytes <= SEGMENT_BYTES_MAX)) {
    fail("61 <= segmentBytes <= 2^31 - 1", { segmentBytes });
  }
  if (!(Number.isInteger(indexIntervalBytes) && indexIntervalBytes >= 0))
    fail("0 <= indexIntervalBytes", { indexIntervalBytes });
  if (!(Number.isInteger(maxMessageBytes) && maxMessageBytes >= 0)) fail("0 <= maxMessageBytes", { maxMessageBytes });
  if (!(Number.isSafeInteger(flushBytes) && flushBytes >= 1)) fail("1 <= flushBytes", { flushBytes });
  checkTimes(config);
  checkCompaction(config);
}

function checkCompaction(config: LogConfig): void {
  const { deleteRetentionMs, minCleanableDirtyRatio, minCompactionLagMs, maxCompactionLagMs } = config;
  if (!(deleteRetentionMs >= 0)) fail("0 <= deleteRetentionMs", { deleteRetentionMs });
  if (!(minCleanableDirtyRatio >= 0 && minCleanableDirtyRatio <= 1))
    fail("0 <= minCleanableDirtyRatio <= 1", { minCleanableDirtyRatio });
  if (!(minCompactionLagMs >= 0 && maxCompactionLagMs >= 1 && minCompactionLagMs <= maxCompactionLagMs))
    fail("0 <= minCompactionLagMs <= maxCompactionLagMs", { minCompactionLagMs, maxCompactionLagMs });
}

function checkTimes(config: LogConfig): void {
  const { segmentMs, segmentJitterMs, segmentIndexBytes, timestampBeforeMaxMs, timestampAfterMaxMs } = config;
  if (!(Number.isSafeInteger(segmentMs) && segmentMs >= 1)) fail("1 <= segmentMs", { segmentMs });
  if (!(Number.isSafeInteger(segmentJitterMs) && segmentJitterMs >= 0))
    fail("0 <= segmentJitterMs", { segmentJitterMs });
  if (!(Number.isInteger(segmentIndexBytes) && segmentIndexBytes >= SEGMENT_INDEX_BYTES_MIN))
    fail("an index has room for an entry and the one of the end", { segmentIndexBytes });
  if (!(timestampBeforeMaxMs >= 0 && timestampAfterMaxMs >= 0))
    fail("0 <= limits of timestamps", { timestampBeforeMaxMs, timestampAfterMaxMs });
  const { retentionMs, retentionBytes, fileDeleteDelayMs } = config;
  if (!(retentionMs >= -1 && retentionBytes >= -1)) fail("-1 <= retention", { retentionMs, retentionBytes });
  if (!(fileDeleteDelayMs >= 0)) fail("0 <= fileDeleteDelayMs", { fileDeleteDelayMs });
}
