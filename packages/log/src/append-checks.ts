import { toOffset, WorkerError } from "@tidemark/base";
import type { LeaderEpoch, Offset, WorkerPool } from "@tidemark/base";
import {
  checkCrc,
  codecId,
  compressionCodec,
  IN_POOL_BYTES_MIN,
  INLINE_OUTPUT_BYTES_MAX,
  isLogAppendTime,
  recordsSection,
  scanBatch,
  validateClientHeader,
  validateRecords,
  WireError,
} from "@tidemark/wire";
import type { BatchHeader, RecordsSummary } from "@tidemark/wire";
import { isCompacted } from "./config.ts";
import type { LogConfig } from "./config.ts";
import { LogError } from "./error.ts";

/**
 * Who made a batch: our own encoder, a client (whose records are walked too), or a transaction coordinator (whose batches carry
 * no sequence, and whose control batches end transactions). Header and CRC are checked in any case.
 */
export type BatchOrigin = "local" | "client" | "coordinator";

/** A client's compressed batch may grow to this many times `max.message.bytes` when it is looked into. */
export const DECOMPRESSED_BYTES_FACTOR = 64;

function oldFormat(magic: number, positionBytes: number): LogError {
  return new LogError({ code: "UNSUPPORTED_FOR_MESSAGE_FORMAT", magic, path: undefined, positionBytes });
}

function corrupt(positionBytes: number, reason: string, options?: ErrorOptions): LogError {
  return new LogError(
    {
      code: "CORRUPT_MESSAGE",
      path: undefined,
      positionBytes,
      fromOffset: undefined,
      toOffset: undefined,
      reason,
    },
    options,
  );
}

/**
 * The header of the one batch that a leader is to append.
 * @param nowMs the leader's clock
 * @throws LogError CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT
 * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, analyzeAndValidateRecords
 */
export function checkLeaderBatch(
  batch: Uint8Array,
  origin: BatchOrigin,
  config: LogConfig,
  nowMs: number,
): BatchHeader {
  const magic = batch[16];
  if (magic === 0 || magic === 1) throw oldFormat(magic, 0);
  const scan = scanBatch(batch, 0);
  if (scan.type === "corrupt") {
    // A batch that came as it was made, and was made wrong: its CRC tells it from a damaged one.
    const isWhole = scan.header !== undefined && scan.header.sizeInBytes === batch.length;
    if (isWhole && checkCrc(batch, scan.header)) throw new LogError({ code: "INVALID_RECORD", reason: scan.reason });
    throw corrupt(scan.positionBytes, scan.reason);
  }
  if (scan.type === "incomplete") throw corrupt(0, "incomplete");
  const { header } = scan;
  if (header.sizeInBytes !== batch.length)
    throw new LogError({ code: "INVALID_RECORD", reason: "more than one batch" });
  checkBatchSize(batch, config);
  if (!checkCrc(batch, header)) throw corrupt(0, "CRC");
  if (header.baseOffset !== 0)
    throw new LogError({
      code: "INVALID_RECORD",
      reason: `base offset ${header.baseOffset}, a leader assigns it from 0`,
    });
  if (origin === "client") {
    asLogError(() => validateClientHeader(header));
    if (config.timestampType === "LogAppendTime" && isLogAppendTime(header))
      throw new LogError({ code: "INVALID_TIMESTAMP", reason: "a producer sent a log append time" });
  } else if (config.timestampType === "CreateTime") {
    // Our own encoder's header is right about the latest of its records, and about the first one.
    const { maxTimestamp, baseTimestamp } = header;
    checkTimes(
      { maxTimestamp, minTimestamp: baseTimestamp < 0 ? Number.POSITIVE_INFINITY : baseTimestamp },
      config,
      nowMs,
    );
  }
  return header;
}

/** @throws LogError MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE */
export function checkBatchSize({ length }: Uint8Array, { maxMessageBytes, segmentBytes }: LogConfig): void {
  if (length > maxMessageBytes)
    throw new LogError({ code: "MESSAGE_TOO_LARGE", sizeBytes: length, limitBytes: maxMessageBytes });
  if (length > segmentBytes)
    throw new LogError({ code: "RECORD_LIST_TOO_LARGE", sizeBytes: length, limitBytes: segmentBytes });
}

/**
 * How far the times of records may lie from the leader's clock.
 * @throws LogError INVALID_TIMESTAMP
 * Source: apache/kafka storage/.../internals/log/LogValidator.java, validateTimestamp
 */
function checkTimes(
  { maxTimestamp, minTimestamp }: Pick<RecordsSummary, "maxTimestamp" | "minTimestamp">,
  config: LogConfig,
  nowMs: number,
): void {
  const { timestampBeforeMaxMs, timestampAfterMaxMs } = config;
  if (maxTimestamp - nowMs > timestampAfterMaxMs) {
    const reason = `timestamp ${maxTimestamp} is more than ${timestampAfterMaxMs} ms after the leader's time ${nowMs}`;
    throw new LogError({ code: "INVALID_TIMESTAMP", reason });
  }
  if (nowMs - minTimestamp > timestampBeforeMaxMs) {
    const reason = `timestamp ${minTimestamp} is more than ${timestampBeforeMaxMs} ms before the leader's time ${nowMs}`;
    throw new LogError({ code: "INVALID_TIMESTAMP", reason });
  }
}

/** What came of a look at the records of a client's batch. */
export type RecordsJudgement = LogError | RecordsSummary;

/**
 * Walks the records of a client's batch: at once, or in the pool if they are compressed and not small.
 * @param nowMs the leader's clock
 * @returns what the records are, or a promise of that or of the refusal. Must be called with memory that is not changed meanwhile.
 * @throws LogError CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE; from the pool WORKER_FAILED too
 */
export function checkClientRecords(
  batch: Uint8Array,
  header: BatchHeader,
  leader: { readonly config: LogConfig; readonly workers: WorkerPool; readonly nowMs: number },
): Promise<RecordsJudgement> | RecordsSummary {
  const { config, workers, nowMs } = leader;
  const codec = asLogError(() => compressionCodec(header));
  if (codec === "none")
    return judged(
      asLogError(() => validateRecords(header, recordsSection(batch, header))),
      config,
      nowMs,
    );
  const outputBytesMax = config.maxMessageBytes * DECOMPRESSED_BYTES_FACTOR;
  if (batch.length < IN_POOL_BYTES_MIN[codec].decompress) {
    const inlineBytesMax = Math.min(outputBytesMax, INLINE_OUTPUT_BYTES_MAX);
    try {
      return judged(workers.runNow("validate", { payload: batch, outputBytesMax: inlineBytesMax }), config, nowMs);
    } catch (error) {
      const isTooLarge = error instanceof WorkerError && error.code === "MESSAGE_TOO_LARGE";
      if (!isTooLarge || inlineBytesMax === outputBytesMax) throw refusalOf(error, header);
    }
  }
  // The pool takes its input over, and the caller's memory is not ours to give.
  return workers
    .run("validate", { payload: batch.slice(), outputBytesMax })
    .then((records) => judged(records, config, nowMs))
    .catch((error: unknown) => refusalOf(error, header));
}

/** @throws LogError INVALID_TIMESTAMP, INVALID_RECORD */
export function judged(records: RecordsSummary, config: LogConfig, nowMs: number): RecordsSummary {
  if (config.timestampType === "CreateTime") checkTimes(records, config, nowMs);
  if (records.keylessCount > 0 && isCompacted(config)) {
    const reason = `${records.keylessCount} records without a key, in a topic that is compacted`;
    throw new LogError({ code: "INVALID_RECORD", reason });
  }
  return records;
}

/** What the log says of a job that failed, or of what it found. @throws the error itself when it is none of a job's */
export function refusalOf(error: unknown, header: BatchHeader): LogError {
  if (error instanceof LogError) return error;
  if (!(error instanceof WorkerError)) throw error;
  const options = { cause: error };
  switch (error.code) {
    case "CORRUPT_MESSAGE":
      return corrupt(0, error.message, options);
    case "INVALID_TIMESTAMP":
      return new LogError({ code: "INVALID_TIMESTAMP", reason: error.message }, options);
    case "INVALID_RECORD":
    case "MESSAGE_TOO_LARGE":
      return new LogError({ code: "INVALID_RECORD", reason: error.message }, options);
    case "UNSUPPORTED_COMPRESSION_TYPE":
      return new LogError({ code: "UNSUPPORTED_COMPRESSION_TYPE", codecId: codecId(header) }, options);
    case "CLOSED":
    case "QUEUE_FULL":
    case "REQUEST_TIMED_OUT":
    case "WORKER_FAILED":
      return new LogError({ code: "WORKER_FAILED", reason: error.code }, options);
    default:
      return error.code satisfies never;
  }
}

/** @throws LogError for a WireError */
export function asLogError<Result>(check: () => Result): Result {
  try {
    return check();
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    if (error.code === "UNSUPPORTED_COMPRESSION_TYPE") {
      throw new LogError({ code: error.code, codecId: Number(error.facts["codecId"]) }, { cause: error });
    }
    const code = error.code === "INVALID_TIMESTAMP" ? "INVALID_TIMESTAMP" : "INVALID_RECORD";
    throw new LogError({ code, reason: error.message }, { cause: error });
  }
}

/** The whole batches that a follower takes out of a fetch answer. */
export interface FollowerBatches {
  readonly headers: readonly BatchHeader[];
  /** They lie in `[0, sizeBytes)`. */
  readonly sizeBytes: number;
  readonly firstBaseOffset: Offset;
  readonly lastOffset: Offset;
}

/**
 * What a follower appends of `bytes`: the whole batches in front, up to the first one above its own leader epoch.
 *
 * Stricter than Kafka in two things, both of which our recovery would cut: batches may not overlap, and the leader epoch may
 * not fall.
 * @returns nothing when no whole batch is there to be appended
 * @throws LogError CORRUPT_MESSAGE, INVALID_RECORD, OFFSETS_OUT_OF_ORDER, RECORD_LIST_TOO_LARGE, UNEXPECTED_APPEND_OFFSET,
 * UNSUPPORTED_FOR_MESSAGE_FORMAT; then nothing of `bytes` may be appended
 * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, appendAsFollower
 */
export function checkFollowerBatches(
  bytes: Uint8Array,
  log: { logEndOffset: Offset; latestEpoch: number; config: LogConfig; leaderEpoch: LeaderEpoch | undefined },
): FollowerBatches | undefined {
  const headers: BatchHeader[] = [];
  let at = 0;
  let lastOffset = -1;
  let latestEpoch = log.latestEpoch;
  while (at < bytes.length) {
    const magic = bytes[at + 16];
    if (magic === 0 || magic === 1) throw oldFormat(magic, at);
    const scan = scanBatch(bytes, at);
    if (scan.type === "incomplete") break;
    if (scan.type === "corrupt") throw corrupt(scan.positionBytes, scan.reason);
    const { header } = scan;
    if (log.leaderEpoch !== undefined && header.partitionLeaderEpoch > log.leaderEpoch) break;
    if (!checkCrc(bytes, header)) throw corrupt(at, "CRC");
    if (header.partitionLeaderEpoch < 0)
      throw new LogError({ code: "INVALID_RECORD", reason: "a replicated batch carries its leader epoch" });
    if (header.partitionLeaderEpoch < latestEpoch)
      throw new LogError({
        code: "INVALID_RECORD",
        reason: `leader epoch ${header.partitionLeaderEpoch} after ${latestEpoch}`,
      });
    if (header.baseOffset <= lastOffset)
      throw new LogError({
        code: "OFFSETS_OUT_OF_ORDER",
        baseOffset: header.baseOffset,
        previousLastOffset: lastOffset,
      });
    if (headers.length === 0 && header.baseOffset < log.logEndOffset) {
      throw new LogError({
        code: "UNEXPECTED_APPEND_OFFSET",
        baseOffset: header.baseOffset,
        logEndOffset: log.logEndOffset,
      });
    }
    headers.push(header);
    lastOffset = header.lastOffset;
    latestEpoch = header.partitionLeaderEpoch;
    at += header.sizeInBytes;
  }
  const first = headers[0];
  if (first === undefined) return undefined;
  if (at > log.config.segmentBytes)
    throw new LogError({ code: "RECORD_LIST_TOO_LARGE", sizeBytes: at, limitBytes: log.config.segmentBytes });
  return { headers, sizeBytes: at, firstBaseOffset: toOffset(first.baseOffset), lastOffset: toOffset(lastOffset) };
}
