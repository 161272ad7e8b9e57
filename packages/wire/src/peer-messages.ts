/**
 * What nodes say to each other, as values. How they look as bytes is `frames.ts`; replica and controller code knows only this file.
 *
 * Offsets, epochs and counts are numbers as on the wire: -1 stands for none. They came from a peer: whoever uses an offset parses it
 * (`parseOffset`), never asserts it. Fields carry Kafka's names and meaning wherever Kafka has the same request.
 */

/**
 * Kafka's names of the errors that an answer can carry, "NONE" for none, with Kafka's numbers.
 * Source: apache/kafka clients/src/main/java/org/apache/kafka/common/protocol/Errors.java.
 */
export const PEER_ERROR_NUMBERS = {
  UNKNOWN_SERVER_ERROR: -1,
  NONE: 0,
  OFFSET_OUT_OF_RANGE: 1,
  CORRUPT_MESSAGE: 2,
  UNKNOWN_TOPIC_OR_PARTITION: 3,
  LEADER_NOT_AVAILABLE: 5,
  NOT_LEADER_OR_FOLLOWER: 6,
  REQUEST_TIMED_OUT: 7,
  REPLICA_NOT_AVAILABLE: 9,
  MESSAGE_TOO_LARGE: 10,
  NETWORK_EXCEPTION: 13,
  INVALID_TOPIC_EXCEPTION: 17,
  RECORD_LIST_TOO_LARGE: 18,
  NOT_ENOUGH_REPLICAS: 19,
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: 20,
  INVALID_REQUIRED_ACKS: 21,
  INVALID_TIMESTAMP: 32,
  UNSUPPORTED_VERSION: 35,
  TOPIC_ALREADY_EXISTS: 36,
  INVALID_PARTITIONS: 37,
  INVALID_REPLICATION_FACTOR: 38,
  INVALID_REPLICA_ASSIGNMENT: 39,
  NOT_CONTROLLER: 41,
  INVALID_REQUEST: 42,
  UNSUPPORTED_FOR_MESSAGE_FORMAT: 43,
  OUT_OF_ORDER_SEQUENCE_NUMBER: 45,
  DUPLICATE_SEQUENCE_NUMBER: 46,
  INVALID_PRODUCER_EPOCH: 47,
  INVALID_TXN_STATE: 48,
  TRANSACTION_COORDINATOR_FENCED: 52,
  OPERATION_NOT_ATTEMPTED: 55,
  KAFKA_STORAGE_ERROR: 56,
  UNKNOWN_PRODUCER_ID: 59,
  FENCED_LEADER_EPOCH: 74,
  UNKNOWN_LEADER_EPOCH: 75,
  UNSUPPORTED_COMPRESSION_TYPE: 76,
  STALE_BROKER_EPOCH: 77,
  OFFSET_NOT_AVAILABLE: 78,
  ELIGIBLE_LEADERS_NOT_AVAILABLE: 83,
  ELECTION_NOT_NEEDED: 84,
  INVALID_RECORD: 87,
  THROTTLING_QUOTA_EXCEEDED: 89,
  INVALID_UPDATE_VERSION: 95,
  UNKNOWN_TOPIC_ID: 100,
  DUPLICATE_BROKER_REGISTRATION: 101,
  BROKER_ID_NOT_REGISTERED: 102,
  INCONSISTENT_TOPIC_ID: 103,
  INELIGIBLE_REPLICA: 107,
  NEW_LEADER_ELECTED: 108,
} as const satisfies Readonly<Record<string, number>>;

export type PeerErrorCode = keyof typeof PEER_ERROR_NUMBERS;

export interface PartitionName {
  readonly topic: string;
  readonly partition: number;
}

export interface ProducePartition extends PartitionName {
  /** One record batch. */
  readonly batch: Uint8Array;
}

export interface ProduceRequest {
  readonly kind: "produce";
  /** 0: no wait, 1: the leader's log, -1: the whole ISR. */
  readonly acks: -1 | 0 | 1;
  readonly timeoutMs: number;
  readonly partitions: readonly ProducePartition[];
}

export interface ProducePartitionResponse extends PartitionName {
  readonly error: PeerErrorCode;
  /** -1 with an error. */
  readonly baseOffset: number;
  readonly lastOffset: number;
  /** On NOT_LEADER_OR_FOLLOWER a hint: who leads, as far as this node knows; else -1. */
  readonly leaderId: number;
  readonly leaderEpoch: number;
}

export interface ProduceResponse {
  readonly kind: "produce";
  readonly partitions: readonly ProducePartitionResponse[];
}

export interface FetchPartition extends PartitionName {
  readonly currentLeaderEpoch: number;
  readonly fetchOffset: number;
  /** End of what the follower has synced; -1 from a consumer. */
  readonly flushedEndOffset: number;
  readonly lastFetchedEpoch: number;
  /** Of the follower; -1 from a consumer. */
  readonly logStartOffset: number;
  readonly maxBytes: number;
}

export interface FetchRequest {
  readonly kind: "fetch";
  /** -1: a consumer. */
  readonly replicaId: number;
  /** Of the replica; -1: unknown. */
  readonly brokerEpoch: number;
  readonly maxWaitMs: number;
  readonly minBytes: number;
  readonly maxBytes: number;
  readonly partitions: readonly FetchPartition[];
}

export interface FetchPartitionResponse extends PartitionName {
  readonly error: PeerErrorCode;
  readonly highWatermark: number;
  readonly logStartOffset: number;
  /** Of the leader. */
  readonly logEndOffset: number;
  /** The largest epoch that the leader has at or below the follower's last fetched one, and where it ends; -1, -1: not diverging. */
  readonly divergingEpoch: number;
  readonly divergingEndOffset: number;
  /** Record batches back to back; the last may be cut. */
  readonly bytes: Uint8Array;
}

export interface FetchResponse {
  readonly kind: "fetch";
  readonly partitions: readonly FetchPartitionResponse[];
}

export interface OffsetsForLeaderEpochPartition extends PartitionName {
  readonly currentLeaderEpoch: number;
  /** The epoch whose end is asked for. */
  readonly leaderEpoch: number;
}

export interface OffsetsForLeaderEpochRequest {
  readonly kind: "offsetsForLeaderEpoch";
  readonly replicaId: number;
  readonly brokerEpoch: number;
  readonly partitions: readonly OffsetsForLeaderEpochPartition[];
}

export interface OffsetsForLeaderEpochPartitionResponse extends PartitionName {
  readonly error: PeerErrorCode;
  /** The largest epoch known at or below the one asked for; -1: none. */
  readonly leaderEpoch: number;
  readonly endOffset: number;
  readonly logStartOffset: number;
  /** Of the leader. */
  readonly logEndOffset: number;
}

export interface OffsetsForLeaderEpochResponse {
  readonly kind: "offsetsForLeaderEpoch";
  readonly partitions: readonly OffsetsForLeaderEpochPartitionResponse[];
}

/** To the controller: a process has started. */
export interface RegisterRequest {
  readonly kind: "register";
  readonly brokerId: number;
  /** UUID of this start of the process. */
  readonly incarnationId: string;
  /** Of the kernel: tells the death of a process from the death of a machine. */
  readonly bootId: string;
  /** The broker epoch that ended with a clean stop; -1: the last stop was none. */
  readonly cleanShutdownBrokerEpoch: number;
  /** Whether all that this process acknowledges, and is counted for, is on its disk: its next one has lost nothing, whatever happens. */
  readonly isTailDurable: boolean;
  readonly host: string;
  readonly port: number;
}

export interface RegisterResponse {
  readonly kind: "register";
  readonly error: PeerErrorCode;
  readonly brokerEpoch: number;
}

export interface IsrMember {
  readonly brokerId: number;
  readonly brokerEpoch: number;
}

/** To the controller: the leader wants another ISR. */
export interface AlterPartitionRequest extends PartitionName {
  readonly kind: "alterPartition";
  readonly brokerId: number;
  readonly brokerEpoch: number;
  readonly leaderEpoch: number;
  readonly partitionEpoch: number;
  readonly newIsr: readonly IsrMember[];
}

export interface AlterPartitionResponse {
  readonly kind: "alterPartition";
  readonly error: PeerErrorCode;
  readonly leaderEpoch: number;
  readonly partitionEpoch: number;
  readonly isr: readonly number[];
}

/** To the controller: what has changed after `afterNumber`. Parked up to `maxWaitMs`; counts as a heartbeat. */
export interface ClusterStateRequest {
  readonly kind: "clusterState";
  readonly brokerId: number;
  readonly brokerEpoch: number;
  readonly afterNumber: number;
  readonly maxWaitMs: number;
}

export interface PartitionState extends PartitionName {
  /** Place in the controller's ordered stream. */
  readonly number: number;
  readonly topicId: string;
  readonly replicas: readonly number[];
  readonly isr: readonly number[];
  /** -1: none. */
  readonly leader: number;
  readonly leaderEpoch: number;
  readonly partitionEpoch: number;
}

export interface BrokerState {
  readonly brokerId: number;
  readonly brokerEpoch: number;
  readonly host: string;
  readonly port: number;
  readonly isFenced: boolean;
}

export interface ClusterStateResponse {
  readonly kind: "clusterState";
  readonly error: PeerErrorCode;
  /** Everything up to here is included. */
  readonly number: number;
  /** All brokers. */
  readonly brokers: readonly BrokerState[];
  /** Those whose number is above `afterNumber`. */
  readonly partitions: readonly PartitionState[];
}

/** To any node: how it sees itself and the cluster. */
export interface DescribeRequest {
  readonly kind: "describe";
}

export interface DescribeResponse {
  readonly kind: "describe";
  readonly error: PeerErrorCode;
  readonly json: string;
}

export type PeerRequest =
  | ProduceRequest
  | FetchRequest
  | OffsetsForLeaderEpochRequest
  | RegisterRequest
  | AlterPartitionRequest
  | ClusterStateRequest
  | DescribeRequest;

export type PeerResponse =
  | ProduceResponse
  | FetchResponse
  | OffsetsForLeaderEpochResponse
  | RegisterResponse
  | AlterPartitionResponse
  | ClusterStateResponse
  | DescribeResponse;

export type PeerKind = PeerRequest["kind"];

/** The answer to a request of type `R`. */
export type ResponseTo<R extends PeerRequest> = Extract<PeerResponse, { readonly kind: R["kind"] }>;

/**
 * - `UNREACHABLE`: no connection could be made; the request was not sent;
 * - `QUEUE_FULL`: too many requests wait already; not sent;
 * - `CLOSED`: the transport was closed by its owner; a request in flight may have taken effect;
 * - `DISCONNECTED`: the connection went while the request was in flight; it may have taken effect;
 * - `TIMED_OUT`: no answer in time; it may have taken effect, now or later;
 * - `PROTOCOL`: the peer sent what is no frame or no answer to what was asked; the connection is closed.
 */
export type PeerErrorType = "UNREACHABLE" | "QUEUE_FULL" | "CLOSED" | "DISCONNECTED" | "TIMED_OUT" | "PROTOCOL";

/** No answer from a peer: an event of operation, not a bug. Every code but PROTOCOL and CLOSED is worth another try. */
export class PeerError extends Error {
  override readonly name = "PeerError";
  readonly code: PeerErrorType;

  constructor(code: PeerErrorType, message: string, options?: ErrorOptions) {
    super(`${code}: ${message}`, options);
    this.code = code;
  }
}

export interface PeerAddress {
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
}

/** Message-level transport; replica and controller code knows only this. */
export interface PeerTransport {
  /**
   * Sends a request and gives its answer. Requests to one address may be answered in any order.
   *
   * Batches are handed over: their memory is not changed afterwards, whatever becomes of the request, for it may still wait to be sent. Those of
   * the answer are the caller's.
   * @param options `timeoutMs`: from the call, waiting for a connection or for room included
   * @throws PeerError
   */
  request<R extends PeerRequest>(
    address: PeerAddress,
    request: R,
    options: { readonly timeoutMs: number },
  ): Promise<ResponseTo<R>>;
  /** Requests in flight reject with CLOSED, later ones too. Idempotent. */
  close(): Promise<void>;
}

/**
 * Answers the requests of peers. Never rejects: errors are part of the answer. May take long (a parked fetch); requests of one peer overlap.
 * The answer has the request's `kind`. The bytes in a request are the handler's to keep.
 */
export type PeerHandler = (
  request: PeerRequest,
  from: { readonly remote: string; readonly room?: AnswerRoom },
) => Promise<PeerResponse>;

/** What a connection holds of answers: being read for its requests, and not taken by the peer yet. */
export interface AnswerRoom {
  /** Sets room aside for an answer of `wantedBytes`. @returns how much; never 0, so that every answer may bring something */
  take(wantedBytes: number): number;
  /** Ends that: nothing was found, or the answer is on its way to the connection. */
  giveBack(takenBytes: number): void;
}
