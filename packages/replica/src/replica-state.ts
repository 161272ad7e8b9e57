import type { Offset } from "@tidemark/base";
import type { BrokerState } from "@tidemark/wire";

/**
 * A time before every other. Kafka writes 0 and relies on clocks far from it; a clock that starts at 0 would make a
 * replica that never fetched look caught up.
 */
export const NEVER_MS = Number.NEGATIVE_INFINITY;

/** What a valid fetch tells of the replica that sent it. */
export interface ReplicaFetch {
  /** Of the replica's process; -1 = not told. */
  readonly brokerEpoch: number;
  /** The replica's LEO, as far as the leader knows. */
  readonly fetchOffset: Offset;
  /** What the replica says is safe on its disk; -1 = not told. */
  readonly flushedEndOffset: number;
  /** -1 = not told. */
  readonly logStartOffset: number;
  /** The leader's LEO before the read, so that an append beside it does not make the replica look behind. */
  readonly leaderEndOffset: Offset;
  readonly nowMs: number;
}

/** A snapshot of a remote replica, for descriptions and tests. */
export interface RemoteReplicaView {
  readonly brokerId: number;
  readonly logStartOffset: number | undefined;
  readonly logEndOffset: Offset | undefined;
  readonly flushedEndOffset: Offset | undefined;
  readonly lastFetchLeaderEndOffset: number;
  readonly lastFetchMs: number;
  readonly lastCaughtUpMs: number;
  readonly brokerEpoch: number | undefined;
  readonly isInIsr: boolean;
  readonly isInMaximalIsr: boolean;
}

/**
 * What a leader knows of one other replica, within one leadership. Starts with everything unknown: what a replica told
 * an earlier leader, or the same leader in an earlier epoch, says nothing about the log it has now.
 * Source: apache/kafka server/src/main/java/org/apache/kafka/server/replica/Replica.java.
 */
export class RemoteReplica {
  readonly brokerId: number;
  /** Membership, kept by the leader with every change of its ISR state. */
  isInIsr = false;
  isInMaximalIsr = false;
  /** The broker as the controller last described it; undefined = not known, hence not alive. */
  broker: BrokerState | undefined;

  #logStartOffset: number | undefined;
  /** Fetch offset of the last valid fetch. May go down: a replica that truncated fetches lower. */
  #logEndOffset: Offset | undefined;
  /** Invariant: at most #logEndOffset. */
  #flushedEndOffset: Offset | undefined;
  /** The highest leader LEO of the fetches so far; -1 before the first. */
  #lastFetchLeaderEndOffset = -1;
  #lastFetchMs = NEVER_MS;
  /** The largest time x such that the replica's LEO reached the leader's LEO of time x. */
  #lastCaughtUpMs: number;
  #brokerEpoch: number | undefined;

  /** @param lastCaughtUpMs the beginning of the leadership for members of the ISR, NEVER_MS for others */
  constructor(brokerId: number, lastCaughtUpMs: number) {
    this.brokerId = brokerId;
    this.#lastCaughtUpMs = lastCaughtUpMs;
  }

  get logEndOffset(): Offset | undefined {
    return this.#logEndOffset;
  }

  get flushedEndOffset(): Offset | undefined {
    return this.#flushedEndOffset;
  }

  /** Broker epoch of the last fetch: undefined before the first, -1 if that one did not tell. */
  get brokerEpoch(): number | undefined {
    return this.#brokerEpoch;
  }

  /**
   * Whether a fetch comes from a process of this broker that was replaced since: by a registration the controller told
   * of, or by one that has fetched already. What such a process held may be gone.
   */
  isFenced(brokerEpoch: number): boolean {
    if (brokerEpoch === -1) return false;
    return brokerEpoch < (this.broker?.brokerEpoch ?? -1) || brokerEpoch < (this.#brokerEpoch ?? -1);
  }

  /** Takes over what a valid fetch tells: not one that was refused, out of range or diverging. Allocates nothing. */
  recordFetch(fetch: ReplicaFetch): void {
    const { fetchOffset, leaderEndOffset, flushedEndOffset, nowMs } = fetch;
    if (fetchOffset >= leaderEndOffset) {
      this.#lastCaughtUpMs = Math.max(this.#lastCaughtUpMs, nowMs);
    } else if (fetchOffset >= this.#lastFetchLeaderEndOffset) {
      // It reached where the leader stood at its previous fetch. Under a steady stream of small appends no replica
      // would ever be seen at the leader's end itself.
      this.#lastCaughtUpMs = Math.max(this.#lastCaughtUpMs, this.#lastFetchMs);
    }
    this.#lastFetchLeaderEndOffset = Math.max(this.#lastFetchLeaderEndOffset, leaderEndOffset);
    this.#lastFetchMs = nowMs;
    this.#logEndOffset = fetchOffset;
    this.#flushedEndOffset = flushedEndOffset < 0 ? undefined : (Math.min(flushedEndOffset, fetchOffset) as Offset);
    this.#logStartOffset = fetch.logStartOffset < 0 ? undefined : fetch.logStartOffset;
    this.#brokerEpoch = fetch.brokerEpoch;
  }

  /** At the leader's end, however long silent, or there at or after `sinceMs`. */
  isCaughtUp(leaderEndOffset: Offset, sinceMs: number): boolean {
    return this.#logEndOffset === leaderEndOffset || this.#lastCaughtUpMs >= sinceMs;
  }

  /** Whether the controller would let it join: alive, not fenced, and the process that fetched is the registered one. */
  get isEligible(): boolean {
    const { broker } = this;
    if (broker === undefined || broker.isFenced) return false;
    return this.#brokerEpoch === -1 || this.#brokerEpoch === broker.brokerEpoch;
  }

  view(): RemoteReplicaView {
    return {
      brokerId: this.brokerId,
      logStartOffset: this.#logStartOffset,
      logEndOffset: this.#logEndOffset,
      flushedEndOffset: this.#flushedEndOffset,
      lastFetchLeaderEndOffset: this.#lastFetchLeaderEndOffset,
      lastFetchMs: this.#lastFetchMs,
      lastCaughtUpMs: this.#lastCaughtUpMs,
      brokerEpoch: this.#brokerEpoch,
      isInIsr: this.isInIsr,
      isInMaximalIsr: this.isInMaximalIsr,
    };
  }

  /** Everything known, for LeaderState.digest; its broker is part of the leader's own. */
  digest(): readonly (number | boolean | null)[] {
    return [
      this.brokerId,
      this.#logStartOffset ?? null,
      this.#logEndOffset ?? null,
      this.#flushedEndOffset ?? null,
      this.#lastFetchLeaderEndOffset,
      this.#lastFetchMs, // NEVER_MS becomes null.
      this.#lastCaughtUpMs,
      this.#brokerEpoch ?? null,
      this.isInIsr,
      this.isInMaximalIsr,
    ];
  }
}
