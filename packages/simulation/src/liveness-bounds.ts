import { DEFAULT_REPLICA_MANAGER_CONFIG } from "@tidemark/replica";
import type { ClusterOptions } from "./cluster.ts";

/** Production code looks for silent brokers so often a session, and for lagging followers so often a lag time. */
const LOOKS_PER_SESSION = 4;
const LOOKS_PER_LAG = 2;
/** Of an AlterPartition. */
const ALTER_PARTITION_RETRY_MS = 1000;
/** For a broker, or the controller, to open its files; logs are short here. */
const OPEN_MS = 2000;
const SESSION_TIMEOUT_MS_DEFAULT = 9000;
/**
 * Brokers that a producer picks at random until one is of the core, which knows the leader: two of five at least. Within so many it
 * finds one but for 1 in 4 million. It may be sent once more astray each time, by one who does not know better.
 */
const PICKS_MAX = 30;
const STRAY_HOPS = 2;
/** Of a client, with the time that it waits for an answer beyond what it asks for, and a back-off. */
const CLIENT_TIMEOUT_MS_MAX = 2200 + 1000 + 100;
/** A frozen broker that asks, and hears nothing, may be taken in and put out once. */
const ISR_CHANGES_MAX = 2;
/** Of a broker: its own timers, waits in production code, and messages under way. */
const EVENTS_PER_NODE_MAX = 40;
/** Of a broker: sealed segments kept open, the one being written, the lock, and what is being written beside them. */
const OPEN_FILES_PER_NODE_MAX = 16 + 4;
/** A question to the controller, fetches from a leader, and what is asked of others that do not answer. */
const REQUESTS_PER_NODE_MAX = 8;

/** In virtual milliseconds, and counts. */
export interface LivenessBounds {
  /** Until a leader is known: who is silent is found out, another is named, and all have heard of it; and once more in case that goes wrong. */
  readonly leaderMs: number;
  /** Until replicas that can fetch are in sync, and all that they have is committed: who cannot is put out of the ISR first. */
  readonly settleMs: number;
  readonly deliveryMs: number;
  readonly isrChangesMax: number;
  readonly messagesMax: (durationMs: number) => number;
  readonly eventsMax: number;
  readonly openFilesMax: number;
  readonly requestsMax: number;
}

export function livenessBounds(options: ClusterOptions): LivenessBounds {
  const config = { ...DEFAULT_REPLICA_MANAGER_CONFIG, ...options.manager };
  const { requestTimeoutMs, clusterStateWaitMs, retryBackoffMs, fetchMaxWaitMs, fetchBackoffMs } = config;
  const { sessionTimeoutMs = SESSION_TIMEOUT_MS_DEFAULT, replicaLagTimeMaxMs = 10_000, brokers = 3 } = options;
  // A question asked before may have been lost: only when it is given up another is asked.
  const hearMs = clusterStateWaitMs + requestTimeoutMs + retryBackoffMs;
  const fetchMs = fetchMaxWaitMs + requestTimeoutMs + fetchBackoffMs;
  const fencedMs = sessionTimeoutMs * (1 + 1 / LOOKS_PER_SESSION);
  const lagsMs = replicaLagTimeMaxMs * (1 + 1 / LOOKS_PER_LAG);
  const perSecond = [fetchMaxWaitMs, fetchBackoffMs, clusterStateWaitMs, retryBackoffMs].map(
    (periodMs) => 1000 / periodMs,
  );
  const requestsPerSecond = perSecond.reduce((sum, rate) => sum + rate, 0);
  return {
    leaderMs: OPEN_MS + 2 * (fencedMs + hearMs),
    // Asks for epochs, cuts, fetches to the end, and says so with one more fetch.
    settleMs: lagsMs + 4 * fetchMs + 2 * (hearMs + ALTER_PARTITION_RETRY_MS),
    deliveryMs: PICKS_MAX * STRAY_HOPS * CLIENT_TIMEOUT_MS_MAX,
    isrChangesMax: ISR_CHANGES_MAX,
    // A request and its answer.
    messagesMax: (durationMs) => (2 * brokers * requestsPerSecond * durationMs) / 1000,
    eventsMax: EVENTS_PER_NODE_MAX * (brokers + 1),
    openFilesMax: OPEN_FILES_PER_NODE_MAX * brokers,
    requestsMax: REQUESTS_PER_NODE_MAX * brokers,
  };
}
