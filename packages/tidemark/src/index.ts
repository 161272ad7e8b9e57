export { BATCH_BYTES_DEFAULT, BUFFER_MEMORY_BYTES_DEFAULT, Tidemark, TidemarkError, Topic } from "@tidemark/server";
export type {
  AppendedRecord,
  AppendOptions,
  Bytes,
  FetchedRecord,
  FetchOptions,
  NodeDescription,
  PartitionDescription,
  PartitionView,
  RecordToAppend,
  TidemarkErrorCode,
  TidemarkErrorKind,
  TidemarkOptions,
  TidemarkParts,
  TopicOptions,
} from "@tidemark/server";
