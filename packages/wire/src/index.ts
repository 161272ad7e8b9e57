export { BatchBuilder } from "./batch-builder.ts";
export { deleteHorizonMs, emptyBatch, rawRecords, rebuildBatch } from "./batch-rebuild.ts";
export type { RawRecord } from "./batch-rebuild.ts";
export { compressionLevels, compressPayload, decompressPayload } from "./codec.ts";
export {
  compressBatch,
  decompressBatch,
  decompressBatchNow,
  IN_POOL_BYTES_MIN,
  INLINE_OUTPUT_BYTES_MAX,
} from "./compression.ts";
export { encodeEndTransactionMarker, END_TRANSACTION_MARKER_BYTES, endTransactionMarkerOf } from "./control-record.ts";
export type { EndTransactionMarker } from "./control-record.ts";
export { CRC_NATIVE_BYTES_MIN, crc32c } from "./crc32c.ts";
export { WireError } from "./error.ts";
export type { WireErrorCode, WireFacts } from "./error.ts";
export {
  encodeFrame,
  FRAME_BYTES_MAX,
  FRAME_ELEMENTS_MAX,
  FRAME_HEADER_BYTES_MAX,
  FrameDecoder,
  giveBackBatches,
} from "./frames.ts";
export type { Frame } from "./frames.ts";
export { runWorkerJob } from "./jobs.ts";
export { legacyMagic, legacyMessageBytes } from "./legacy-message.ts";
export { murmur2, toPositive } from "./murmur2.ts";
export { PEER_ERROR_NUMBERS, PeerError } from "./peer-messages.ts";
export type {
  AlterPartitionRequest,
  AlterPartitionResponse,
  BrokerState,
  ClusterStateRequest,
  ClusterStateResponse,
  DescribeRequest,
  DescribeResponse,
  FetchPartition,
  FetchPartitionResponse,
  FetchRequest,
  FetchResponse,
  IsrMember,
  OffsetsForLeaderEpochPartition,
  OffsetsForLeaderEpochPartitionResponse,
  OffsetsForLeaderEpochRequest,
  OffsetsForLeaderEpochResponse,
  PartitionName,
  PartitionState,
  PeerAddress,
  PeerErrorCode,
  PeerErrorType,
  AnswerRoom,
  PeerHandler,
  PeerKind,
  PeerRequest,
  PeerResponse,
  PeerTransport,
  ProducePartition,
  ProducePartitionResponse,
  ProduceRequest,
  ProduceResponse,
  RegisterRequest,
  RegisterResponse,
  ResponseTo,
} from "./peer-messages.ts";
export {
  checkCrc,
  codecId,
  COMPRESSION_CODECS,
  compressionCodec,
  isControlBatch,
  isLogAppendTime,
  isTransactional,
  LOG_OVERHEAD,
  MAGIC_V2,
  readBatchHeader,
  RECORD_BATCH_OVERHEAD,
  recordsSection,
  scanBatch,
  stampBatch,
  stampMaxTimestamp,
  withCompressedPayload,
} from "./record-batch.ts";
export type { BatchHeader, BatchScan, CompressionCodec } from "./record-batch.ts";
export { decodeRecords, validateClientHeader, validateRecords } from "./record-decode.ts";
export type { RecordsSummary } from "./record-decode.ts";
export { encodeBatch, encodeBatchInto, encodedRecordBytes } from "./record.ts";
export type { BatchOptions, DecodedRecord, RecordHeader, RecordInput } from "./record.ts";
export { decrementSequence, incrementSequence } from "./sequence.ts";
export {
  unsignedVarintBytes,
  varintBytes,
  VarintReader,
  varlongBytes,
  writeUnsignedVarint,
  writeVarint,
  writeVarlong,
} from "./varint.ts";
export type { VarintFault } from "./varint.ts";
