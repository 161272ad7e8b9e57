import { toLeaderEpoch, toOffset, WorkerError } from "@tidemark/base";
import type { LeaderEpoch, Offset, WorkerErrorCode, WorkerPool } from "@tidemark/base";
import { checkCrc, codecId, decompressBatch, decodeRecords, readBatchHeader, WireError } from "@tidemark/wire";
import type { BatchHeader, DecodedRecord } from "@tidemark/wire";
import { LogError } from "./error.ts";
import type { FoundBatch, LogSegment } from "./segment.ts";
import { NO_TIMESTAMP } from "./time-index.ts";

/**
 * Which offset of a log is asked for:
 * - `earliest`: where it begins; `earliest-local`: the same, as nothing lies anywhere else;
 * - `latest`: where what may be read ends;
 * - `max-timestamp`: the first record with the largest timestamp;
 * - a time in ms, at least 0: the first record with that or a later timestamp.
 */
export type OffsetSpec = "earliest" | "earliest-local" | "latest" | "max-timestamp" | { readonly timestamp: number };

export interface ListedOffset {
  readonly offset: Offset;
  /** Of the record, ms; -1 when the offset is not that of a record, or of one without a timestamp. */
  readonly timestamp: number;
  /** `undefined` when none is known. */
  readonly leaderEpoch: LeaderEpoch | undefined;
}

/** What a lookup sees: one moment of the log. */
export interface LookupView {
  readonly segments: readonly LogSegment[];
  readonly logStartOffset: Offset;
  readonly workers: WorkerPool;
  /** A compressed batch that unpacks to more is refused. */
  readonly decompressedBytesMax: number;
}

/**
 * The first record at or above the log start with a timestamp >= `timestamp`, or `undefined`.
 *
 * As in Kafka only the first segment is looked at whose largest timestamp reaches that far: where its record lies below a raised start, the
 * answer is none, although later segments may have one. A segment without timestamps counts by its file's age.
 * Cost: headers of one index interval, and one batch decoded.
 * @throws LogError CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE @throws FileError
 * Source: apache/kafka storage/.../internals/log/{UnifiedLog,LogSegment}.java, fetchOffsetByTimestamp, findOffsetByTimestamp
 */
export async function findOffsetByTimestamp(view: LookupView, timestamp: number): Promise<ListedOffset | undefined> {
  const { logStartOffset } = view;
  for (const segment of view.segments) {
    if ((await segment.largestTimestamp()) < timestamp) continue;
    await segment.loadIndexes();
    const fromOffset = Math.max(segment.indexes.times.lookup(timestamp)?.offset ?? segment.baseOffset, logStartOffset);
    return firstRecord(view, segment, {
      fromOffset,
      isBatch: ({ maxTimestamp }) => maxTimestamp >= timestamp,
      isRecord: (record) => record.timestamp >= timestamp && record.offset >= logStartOffset,
    });
  }
  return undefined;
}

/**
 * The first record with the largest timestamp of the log, or `undefined` in an empty one. Where no record has a timestamp it is the first.
 * @throws as `findOffsetByTimestamp`
 */
export async function findMaxTimestamp(view: LookupView): Promise<ListedOffset | undefined> {
  let found: LogSegment | undefined;
  for (const segment of view.segments) {
    if (segment.sizeBytes === 0) continue;
    const { maxTimestamp } = await segment.timestamps();
    if (found === undefined || maxTimestamp > found.indexes.maxTimestamp) found = segment;
  }
  if (found === undefined) return undefined;
  const { maxTimestamp, maxTimestampOffset } = await found.timestamps();
  return firstRecord(view, found, {
    fromOffset: maxTimestampOffset,
    isBatch: (header) => header.maxTimestamp === maxTimestamp,
    isRecord: (record) => record.timestamp === maxTimestamp,
  });
}

/** Of the pool, not of the batch. */
const POOL_FAILURES: ReadonlySet<WorkerErrorCode> = new Set([
  "CLOSED",
  "QUEUE_FULL",
  "REQUEST_TIMED_OUT",
  "WORKER_FAILED",
]);

interface RecordSearch {
  /** Where to begin, by the index. */
  readonly fromOffset: number;
  /** Asked of headers: only the records of such a batch are looked at. */
  readonly isBatch: (header: BatchHeader) => boolean;
  readonly isRecord: (record: DecodedRecord) => boolean;
}

async function firstRecord(
  view: LookupView,
  segment: LogSegment,
  search: RecordSearch,
): Promise<ListedOffset | undefined> {
  let batch = await segment.findBatchOf(search.fromOffset, search.isBatch);
  while (batch !== undefined) {
    for (const record of await recordsOf(view, segment, batch)) {
      if (!search.isRecord(record)) continue;
      const { partitionLeaderEpoch: epoch } = batch.header;
      return {
        offset: toOffset(record.offset),
        timestamp: Math.max(record.timestamp, NO_TIMESTAMP),
        leaderEpoch: epoch < 0 ? undefined : toLeaderEpoch(epoch),
      };
    }
    batch = await segment.findBatch(batch.positionBytes + batch.header.sizeInBytes, search.isBatch);
  }
  return undefined;
}

async function recordsOf(
  { workers, decompressedBytesMax }: LookupView,
  segment: LogSegment,
  { header: { sizeInBytes, lastOffset }, positionBytes }: FoundBatch,
): Promise<Iterable<DecodedRecord>> {
  const bytes = await segment.readBytes(positionBytes, sizeInBytes);
  const scan = readBatchHeader(bytes, 0);
  const corrupt = (reason: string, cause?: unknown): LogError =>
    new LogError(
      {
        code: "CORRUPT_MESSAGE",
        path: segment.path,
        positionBytes,
        fromOffset: undefined,
        toOffset: undefined,
        reason,
      },
      { cause },
    );
  if (scan.type !== "batch" || scan.header.lastOffset !== lastOffset) throw corrupt("the file changed");
  if (!checkCrc(bytes, scan.header)) throw corrupt("CRC");
  try {
    const payload = await decompressBatch(workers, bytes, scan.header, decompressedBytesMax);
    return [...decodeRecords(scan.header, payload)];
  } catch (error) {
    if (!(error instanceof WireError || error instanceof WorkerError)) throw error;
    if (error.code === "UNSUPPORTED_COMPRESSION_TYPE")
      throw new LogError({ code: "UNSUPPORTED_COMPRESSION_TYPE", codecId: codecId(scan.header) }, { cause: error });
    if (error instanceof WorkerError && POOL_FAILURES.has(error.code))
      throw new LogError({ code: "WORKER_FAILED", reason: error.code }, { cause: error });
    throw corrupt(error.message, error);
  }
}
