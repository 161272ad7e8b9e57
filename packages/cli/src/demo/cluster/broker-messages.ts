import type { ReplicaDescription, TruncationReport } from "@tidemark/replica";
import type { PeerAddress } from "@tidemark/wire";

/** Name of the hidden command that a broker's process runs. */
export const BROKER_COMMAND = "demo-broker";

/** What the parent hands to a broker's process, as one JSON argument. */
export interface BrokerTask {
  readonly brokerId: number;
  readonly directory: string;
  readonly clusterId: string;
  readonly controller: PeerAddress;
  readonly segmentBytes: number;
  readonly maxMessageBytes: number;
  readonly minInsyncReplicas: number;
  /** How often what was written is made durable. */
  readonly flushIntervalMs: number;
  readonly fetchMaxWaitMs: number;
}

export type BrokerCommand =
  /** Ask leaders for nothing more, until `resume`. */
  | "hold"
  | "resume"
  | "describe"
  /** Close cleanly and exit. */
  | "shutDown";

/** Commands are carried out in their order, one by one. */
export interface BrokerRequest {
  readonly id: number;
  readonly command: BrokerCommand;
}

export type BrokerMessage =
  /** The log is open and recovered, the port is listened at. */
  | { readonly type: "opened"; readonly openMs: number }
  | { readonly type: "answer"; readonly id: number; readonly replicas: readonly ReplicaDescription[] }
  | { readonly type: "truncated"; readonly report: TruncationReport }
  /** A replica stopped. */
  | { readonly type: "replicaFailed"; readonly reason: string }
  /** Last message before a clean exit. */
  | { readonly type: "closed"; readonly isClean: boolean }
  /** The process cannot go on: `line` says why, for people. It exits after this. */
  | { readonly type: "failed"; readonly line: string };
