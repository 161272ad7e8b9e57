import type { Offset } from "@tidemark/base";
import type { ListedOffset, OffsetSpec } from "@tidemark/log";
import type { PeerErrorCode } from "@tidemark/wire";

/** As `replicaId`: a consumer, and whoever looks at any replica, leader or not. */
export const CONSUMER_ID = -1;
export const DEBUGGING_ID = -2;

/** What is asked of one partition. */
export interface ListOffsetRequest {
  readonly spec: OffsetSpec;
  /** Epoch of the leader that the asker knows; -1: it knows none. */
  readonly currentLeaderEpoch: number;
  /** Of the broker that asks, or `CONSUMER_ID` or `DEBUGGING_ID`. */
  readonly replicaId: number;
  /** Of a consumer. Default `read_uncommitted`. */
  readonly isolation?: "read_uncommitted" | "read_committed";
}

export interface PartitionListOffsetResult {
  readonly error: PeerErrorCode;
  /** -1: there is no such record. */
  readonly offset: number;
  /** ms; -1 when the offset is not that of a record, or of one without a timestamp. */
  readonly timestamp: number;
  /** -1 when not known. */
  readonly leaderEpoch: number;
}

export function refusedListOffset(error: PeerErrorCode): PartitionListOffsetResult {
  return { error, offset: -1, timestamp: -1, leaderEpoch: -1 };
}

/** What a replica knows when it is asked. */
export interface ListOffsetView {
  readonly leaderEpoch: number;
  readonly highWatermark: Offset;
  readonly lastStableOffset: Offset;
  readonly logEndOffset: Offset;
  /** Where its leadership began; `undefined`: it leads nothing. */
  readonly epochStartOffset: Offset | undefined;
}

/** Where what the asker may be told of ends. */
export function limitOf({ replicaId, isolation }: ListOffsetRequest, view: ListOffsetView): Offset {
  if (replicaId !== CONSUMER_ID) return view.logEndOffset;
  return isolation === "read_committed" ? view.lastStableOffset : view.highWatermark;
}

/**
 * The answer, from what the log has below the limit.
 *
 * A new leader's high watermark may lie below what the last one told its clients. Until it has reached the offset at which this leadership
 * began, a consumer is not told where the log ends, nor that there is no later record: it would see the log go back. It is to ask again.
 * Source: apache/kafka core/src/main/scala/kafka/cluster/Partition.scala, fetchOffsetForTimestamp (KIP-207)
 */
export function answerListOffset(
  { spec, replicaId }: ListOffsetRequest,
  found: ListedOffset | undefined,
  view: ListOffsetView,
): PartitionListOffsetResult {
  const { epochStartOffset, highWatermark, leaderEpoch } = view;
  const isCatchingUp = replicaId === CONSUMER_ID && epochStartOffset !== undefined && highWatermark < epochStartOffset;
  if (isCatchingUp && (spec === "latest" || found === undefined)) return refusedListOffset("OFFSET_NOT_AVAILABLE");
  if (found === undefined) return refusedListOffset("NONE");
  const { offset, timestamp } = found;
  return { error: "NONE", offset, timestamp, leaderEpoch: spec === "latest" ? leaderEpoch : (found.leaderEpoch ?? -1) };
}
