export type { BatchOrigin } from "./append-checks.ts";
export {
  DEFAULT_LOG_CONFIG,
  GROUP_BYTES_MAX,
  QUEUED_BYTES_MAX,
  SEGMENT_BYTES_MAX,
  UNFLUSHED_BYTES_MAX,
} from "./config.ts";
export type { FlushMode, LogConfig } from "./config.ts";
export type { EndOffsetWait } from "./end-offset-waiters.ts";
export { LogError } from "./error.ts";
export type { LogErrorCode, LogErrorType, StorageFailure } from "./error.ts";
export { LOG_SUFFIX, OFFSET_INDEX_SUFFIX, parseSegmentFileName, segmentFileName } from "./file-names.ts";
export { LogDirectory } from "./log-directory.ts";
export type { ReadOptions, ReadResult } from "./log-read.ts";
export { OffsetIndex, OFFSET_INDEX_ENTRY_BYTES } from "./offset-index.ts";
export type { OffsetIndexEntry } from "./offset-index.ts";
export { PartitionLog } from "./partition-log.ts";
export type { PartitionLogOptions, SegmentDescription } from "./partition-log.ts";
export type { AppendResult } from "./partition-queue.ts";
export type { DamagedRange, RecoveryReport } from "./recovery-report.ts";
