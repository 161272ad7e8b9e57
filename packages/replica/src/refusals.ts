import type {
  FetchPartitionResponse,
  OffsetsForLeaderEpochPartitionResponse,
  PeerErrorCode,
  ProducePartitionResponse,
} from "@tidemark/wire";

/** What is said of one partition, without its name. */
export type PartitionProduceResult = Omit<ProducePartitionResponse, "topic" | "partition">;
export type PartitionFetchResult = Omit<FetchPartitionResponse, "topic" | "partition">;
export type PartitionEpochResult = Omit<OffsetsForLeaderEpochPartitionResponse, "topic" | "partition">;

const NO_BYTES = new Uint8Array(0);

/** Nothing was appended, and who leads is not known. */
export function refusedProduce(error: PeerErrorCode): PartitionProduceResult {
  return { error, baseOffset: -1, lastOffset: -1, leaderId: -1, leaderEpoch: -1 };
}

/** Nothing is said of the log. */
export function refusedFetch(error: PeerErrorCode): PartitionFetchResult {
  return {
    error,
    highWatermark: -1,
    logStartOffset: -1,
    logEndOffset: -1,
    divergingEpoch: -1,
    divergingEndOffset: -1,
    bytes: NO_BYTES,
  };
}

export function refusedEpoch(error: PeerErrorCode): PartitionEpochResult {
  return { error, leaderEpoch: -1, endOffset: -1, logStartOffset: -1, logEndOffset: -1 };
}
