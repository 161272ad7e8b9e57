export type { BatchOrigin } from "./append-checks.ts";
export {
  DEFAULT_LOG_CONFIG,
  GROUP_BYTES_MAX,
  isCompacted,
  QUEUED_BYTES_MAX,
  SEGMENT_BYTES_MAX,
  FLUSHES_BEHIND_MAX,
} from "./config.ts";
export type { DirtyPart } from "./compaction-range.ts";
export type { CleanupPolicy, CompressionType, FlushMode, LogConfig, TimestampType } from "./config.ts";
export type { EndOffsetWait } from "./end-offset-waiters.ts";
export { LogError } from "./error.ts";
export type { LogErrorCode, LogErrorType, StorageFailure } from "./error.ts";
export {
  LOG_SUFFIX,
  OFFSET_INDEX_SUFFIX,
  parseSegmentFileName,
  PRODUCER_SNAPSHOT_SUFFIX,
  segmentFileName,
  TRANSACTION_INDEX_SUFFIX,
} from "./file-names.ts";
export { LogDirectory } from "./log-directory.ts";
export type { ReadOptions, ReadResult } from "./log-read.ts";
export type { ListedOffset, OffsetSpec } from "./offset-lookup.ts";
export { OffsetIndex, OFFSET_INDEX_ENTRY_BYTES } from "./offset-index.ts";
export type { OffsetIndexEntry } from "./offset-index.ts";
export { PartitionLog } from "./partition-log.ts";
export type { SegmentDescription } from "./partition-log.ts";
export type { PartitionLogOptions } from "./log-core.ts";
export type { RetentionReport } from "./log-retention.ts";
export type { AppendResult } from "./partition-queue.ts";
export type { RetentionReason } from "./retention.ts";
export { decodeProducerSnapshot } from "./producer-snapshot.ts";
export { BATCHES_REMEMBERED } from "./producer-state.ts";
export type { DamagedRange, RecoveryReport } from "./recovery-report.ts";
export { CLEAN_SHUTDOWN_FILE, readCleanShutdownMarker } from "./clean-shutdown.ts";
export type { CleanShutdownMarker } from "./clean-shutdown.ts";
export { PRODUCER_ID_KEY } from "./directory-checkpoints.ts";
export type { CheckpointReport } from "./directory-checkpoints.ts";
export type { CleanerConfig, Uncleanable } from "./log-cleaner.ts";
export { LogManager } from "./log-manager.ts";
export type { LogManagerCloseResult } from "./log-manager.ts";
export type { LogManagerOptions, LogManagerReport } from "./load-directory.ts";
export { decodeMetaProperties, META_PROPERTIES_FILE } from "./meta-properties.ts";
export type { MetaProperties } from "./meta-properties.ts";
export {
  CLEANER_CHECKPOINT,
  decodeOffsetCheckpoint,
  LOG_START_CHECKPOINT,
  RECOVERY_POINT_CHECKPOINT,
  REPLICATION_CHECKPOINT,
} from "./offset-checkpoint.ts";
export type { OffsetCheckpointEntry } from "./offset-checkpoint.ts";
export {
  checkTopicName,
  decodePartitionMetadata,
  parseDirectoryName,
  PARTITION_METADATA_FILE,
} from "./partition-directory.ts";
export type { DirectoryName, TopicPartition } from "./partition-directory.ts";
export {
  decodeStateInt64,
  encodeStateInt64,
  putStateOffset,
  readStateOffset,
  stateOffsetPrefix,
} from "./state-values.ts";
export type { StateOffsetName } from "./state-values.ts";
export { TIME_INDEX_ENTRY_BYTES, TimeIndex } from "./time-index.ts";
export { COMPRESSION_TYPES, decodeTopic, topicKey } from "./topic-config.ts";
export type { TopicConfig, TopicDescription } from "./topic-config.ts";
export { VERIFY_FINDINGS_MAX } from "./verify-report.ts";
export type {
  PartitionVerification,
  SegmentVerification,
  VerifyFinding,
  VerifyKind,
  VerifyReport,
  VerifySeverity,
} from "./verify-report.ts";
export { TransactionIndex } from "./transaction-index.ts";
export { repairDirectory } from "./repair.ts";
export type { DamagedPartition, RepairOptions, RepairReport } from "./repair.ts";
export { verifyDirectory } from "./verify.ts";
export type { VerifyOptions } from "./verify.ts";
export { randomUuid } from "./uuid.ts";
