import type { LeaderEpoch, Offset } from "@tidemark/base";
import type { BrokerState, IsrMember, PartitionState, PeerErrorCode } from "@tidemark/wire";
import type { ReplicaFetch } from "./replica-state.ts";

export interface ReplicaConfig {
  /** How long a replica may be behind before it leaves the ISR (inclusive). Kafka: replica.lag.time.max.ms, 30000. */
  readonly replicaLagTimeMaxMs: number;
  /** At least 1; more than there are replicas counts as all of them. */
  readonly minInsyncReplicas: number;
  /** Whether HW counts what is synced (`flush: always`) rather than log end offsets. */
  readonly countsFlushedEnds: boolean;
}

/** Where the leader's own log stands. All three only grow while it leads. */
export interface LeaderLogEnds {
  readonly logStartOffset: Offset;
  readonly logEndOffset: Offset;
  /** At most logEndOffset. */
  readonly flushedEndOffset: Offset;
}

export interface LeaderStart extends LeaderLogEnds {
  readonly localId: number;
  /** -1 = none yet. */
  readonly localBrokerEpoch: number;
  /** The state that makes this broker leader; `canLead` holds for it. */
  readonly state: PartitionState;
  /** LEO when the epoch was assigned. */
  readonly epochStartOffset: Offset;
  /** A hint, from a checkpoint or from following: it is brought into [logStartOffset, logEndOffset]. */
  readonly highWatermark: number;
  readonly nowMs: number;
  readonly config: ReplicaConfig;
  /** A snapshot: never changed afterwards. */
  readonly brokers: ReadonlyMap<number, BrokerState>;
}

export type LeaderInput =
  /** After a local append, sync or move of the log start. */
  | ({ readonly type: "logMoved" } & LeaderLogEnds)
  /** A replica's fetch was read: judged, not diverging, not out of range. Once per request, also if it is parked then. */
  | ({ readonly type: "fetched"; readonly replicaId: number } & ReplicaFetch)
  /** An append with acks -1 (or a duplicate of an earlier one) waits for HW to pass its last offset. */
  | { readonly type: "produced"; readonly id: number; readonly lastOffset: Offset }
  /** Its time is over or its caller gone: no completeProduce will come. Unknown ids are ignored. */
  | { readonly type: "abandon"; readonly id: number }
  /** Exactly one for each alterPartition effect. NETWORK_EXCEPTION when no answer came. */
  | {
      readonly type: "alterPartitionAnswer";
      readonly proposal: number;
      readonly error: PeerErrorCode;
      readonly leaderEpoch: number;
      readonly partitionEpoch: number;
      readonly isr: readonly number[];
    }
  /** From the controller's stream. Only a newer partition epoch of the same leader epoch has an effect. */
  | { readonly type: "partitionState"; readonly state: PartitionState; readonly nowMs: number }
  /** From the controller's stream, all brokers: a snapshot, never changed afterwards. */
  | { readonly type: "brokers"; readonly brokers: ReadonlyMap<number, BrokerState> }
  /** At least every half of replicaLagTimeMaxMs. */
  | { readonly type: "tick"; readonly nowMs: number };

/** Effects of one step come in the order of this list. */
export type LeaderEffect =
  /** The committed ISR is another one. */
  | { readonly type: "isrChanged"; readonly isr: readonly number[] }
  /** Ask the controller, after `retryAfterMs`. A retry keeps the number of its proposal. */
  | {
      readonly type: "alterPartition";
      readonly proposal: number;
      readonly newIsr: readonly IsrMember[];
      readonly leaderEpoch: LeaderEpoch;
      readonly partitionEpoch: number;
      readonly retryAfterMs: number;
    }
  | { readonly type: "highWatermark"; readonly offset: Offset }
  /** Exactly once for each `produced` that was not abandoned; NONE only when HW passed the last offset. */
  | { readonly type: "completeProduce"; readonly id: number; readonly error: PeerErrorCode };
