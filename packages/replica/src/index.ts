export { BrokerNode } from "./broker-node.ts";
export type { BrokerNodeOptions } from "./broker-node.ts";
export { FETCH_BACKOFF_MS, FollowerState } from "./follower-state.ts";
export type {
  FollowerEffect,
  FollowerInput,
  FollowerPhase,
  FollowerRequest,
  FollowerStart,
  LogFacts,
  TruncationCause,
} from "./follower-state.ts";
export { checkDivergence, truncationPoint } from "./truncation.ts";
export type { DivergenceCheck, EpochAnswer, TruncationPoint } from "./truncation.ts";
export { nextHighWatermark } from "./high-watermark.ts";
export { maximalIsr } from "./isr-state.ts";
export type { IsrState } from "./isr-state.ts";
export { ALTER_PARTITION_RETRY_MS_MAX, ALTER_PARTITION_RETRY_MS_MIN, canLead, LeaderState } from "./leader-state.ts";
export type { LeaderEffect, LeaderInput, LeaderLogEnds, LeaderStart, ReplicaConfig } from "./leader-state.ts";
export { NEVER_MS } from "./replica-state.ts";
export type { RemoteReplicaView, ReplicaFetch } from "./replica-state.ts";
export { AppointedController, CONTROLLER_STATE_FILE, SESSION_TIMEOUT_MS } from "./controller/appointed-controller.ts";
export type { AppointedControllerOptions } from "./controller/appointed-controller.ts";
export type { ControllerState, RegisteredBroker } from "./controller/controller-state.ts";
export { CONSUMER_ID, DEBUGGING_ID } from "./list-offset.ts";
export type { ListOffsetRequest, PartitionListOffsetResult } from "./list-offset.ts";
export { Partition } from "./partition.ts";
export type { Fetcher, PartitionEvents, PartitionOptions, TruncationReport } from "./partition.ts";
export { DEFAULT_REPLICA_MANAGER_CONFIG, ReplicaManager } from "./replica-manager.ts";
export type { ReplicaManagerConfig, ReplicaManagerOptions } from "./replica-manager.ts";
export type { ReplicaDescription } from "./replica-description.ts";
export {
  CONNECT_TIMEOUT_MS,
  PEER_REQUESTS_IN_FLIGHT_MAX,
  PEER_UNSENT_BYTES_MAX,
  RECONNECT_BACKOFF_MS_MAX,
  RECONNECT_BACKOFF_MS_MIN,
} from "./peer-connection.ts";
export {
  PeerServer,
  SERVER_CONNECTIONS_MAX,
  SERVER_HELD_BYTES_MAX,
  SERVER_REQUESTS_IN_FLIGHT_MAX,
  SERVER_UNSENT_BYTES_MAX,
} from "./peer-server.ts";
export type { PeerServerOptions } from "./peer-server.ts";
export { StreamPeerTransport } from "./peer-transport.ts";
export type { StreamPeerTransportOptions } from "./peer-transport.ts";
