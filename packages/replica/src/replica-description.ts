import type { EpochEntry } from "@tidemark/epoch-cache";
import type { Partition } from "./partition.ts";

/** One replica of a partition, as it sees itself. */
export interface ReplicaDescription {
  readonly brokerId: number;
  readonly topic: string;
  readonly partition: number;
  readonly role: "leader" | "follower" | "none" | "failed";
  /** What a follower is doing. */
  readonly phase: string | undefined;
  /** -1: none. */
  readonly leader: number;
  readonly leaderEpoch: number;
  readonly partitionEpoch: number;
  readonly isr: readonly number[];
  readonly replicas: readonly number[];
  readonly logStartOffset: number;
  readonly highWatermark: number;
  readonly flushedEndOffset: number;
  readonly logEndOffset: number;
  readonly epochs: readonly EpochEntry[];
}

export function describeReplica(brokerId: number, partition: Partition): ReplicaDescription {
  const { log, state, leaderState } = partition;
  return {
    brokerId,
    topic: partition.topic,
    partition: partition.partition,
    role: partition.role,
    phase: partition.followerState?.phase,
    leader: state?.leader ?? -1,
    leaderEpoch: partition.leaderEpoch,
    partitionEpoch: leaderState?.partitionEpoch ?? state?.partitionEpoch ?? -1,
    isr: leaderState?.isrState.isr ?? state?.isr ?? [],
    replicas: state?.replicas ?? [],
    logStartOffset: log.logStartOffset,
    highWatermark: partition.highWatermark,
    flushedEndOffset: log.flushedEndOffset,
    logEndOffset: log.logEndOffset,
    epochs: log.epochEntries,
  };
}
