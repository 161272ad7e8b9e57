import { fail, toLeaderEpoch } from "@tidemark/base";
import type { LeaderEpoch, Offset } from "@tidemark/base";
import type { BrokerState, IsrMember, PartitionState, PeerErrorCode } from "@tidemark/wire";
import { nextHighWatermark } from "./high-watermark.ts";
import type { LeaderEffect, LeaderInput, LeaderLogEnds, LeaderStart, ReplicaConfig } from "./leader-input.ts";
import { isIsrOf, maximalIsr, proposedIsr } from "./isr-state.ts";
import type { IsrState } from "./isr-state.ts";
import { NEVER_MS, RemoteReplica } from "./replica-state.ts";
import type { RemoteReplicaView, ReplicaFetch } from "./replica-state.ts";
import { WaitingProduces } from "./waiting-produces.ts";

export type { LeaderEffect, LeaderInput, LeaderLogEnds, LeaderStart, ReplicaConfig } from "./leader-input.ts";

/** Wait before an AlterPartition that may not have reached the controller is sent again; doubles up to the second. */
export const ALTER_PARTITION_RETRY_MS_MIN = 50;
export const ALTER_PARTITION_RETRY_MS_MAX = 1000;

/** The change that the ISR state waits for. Lives as long as that state is a pending one. */
interface Proposal {
  readonly number: number;
  readonly newIsr: readonly IsrMember[];
  /** Attempts that may have reached the controller, or still may. */
  attemptsUncertain: number;
  isInFlight: boolean;
}

/** Whether the controller's state names this broker leader, in an epoch, with an ISR that holds together. */
export function canLead(state: PartitionState, localId: number): boolean {
  return (
    state.leader === localId &&
    state.leaderEpoch >= 0 &&
    new Set(state.replicas).size === state.replicas.length &&
    isIsrOf(state.isr, localId, state.replicas)
  );
}

/**
 * The leader of one partition for one leader epoch, as a value: log, fetches, controller and time come in as inputs,
 * what is to be done leaves as effects. Same inputs, same effects, in the same order.
 *
 * After every step: log start <= HW <= LEO; HW never fell; at most one ISR change is pending; the ISR has the leader.
 *
 * A new epoch is a new instance, also for the same broker. Kafka then keeps the LEOs of the other replicas; but states
 * of the controller may be skipped, another leader may have had them truncated in between, and an old LEO would let HW
 * pass what they hold. They fetch again at once anyway.
 *
 * A step costs O(replicas) and allocates nothing but its effects (`produced`, controller inputs: little more).
 * Source: apache/kafka core/src/main/scala/kafka/cluster/Partition.scala.
 */
export class LeaderState {
  readonly leaderEpoch: LeaderEpoch;
  readonly epochStartOffset: Offset;
  readonly #localId: number;
  readonly #config: ReplicaConfig;

  #partitionEpoch: number;
  /** Broker ids, the controller's order. */
  #assignment: readonly number[];
  /** Everyone in the assignment but this broker, in its order. */
  #remotes: readonly RemoteReplica[] = [];
  #isrState: IsrState;
  #proposal: Proposal | undefined;
  #proposalsMade = 0;

  #logStartOffset: Offset;
  #logEndOffset: Offset;
  #flushedEndOffset: Offset;
  #highWatermark: Offset;
  readonly #waiting = new WaitingProduces();
  /** Of the calculation of HW; kept to allocate none per fetch. */
  readonly #endOffsets: (Offset | undefined)[] = [];

  #brokers: ReadonlyMap<number, BrokerState>;
  #localBrokerEpoch: number;
  /** The latest time any input told. */
  #nowMs: number;
  /** Set when the leadership is over. */
  #endedWith: PeerErrorCode | undefined;

  /**
   * HW may move at once, when the ISR is the leader alone: read `highWatermark`.
   * @throws InvariantError unless `canLead(start.state, start.localId)`
   */
  constructor(start: LeaderStart) {
    const { state, localId, logStartOffset, logEndOffset, flushedEndOffset } = start;
    if (!canLead(state, localId)) fail("the controller's state names this leader and its ISR", { localId, state });
    this.leaderEpoch = toLeaderEpoch(state.leaderEpoch);
    this.epochStartOffset = start.epochStartOffset;
    this.#localId = localId;
    this.#config = start.config;
    this.#partitionEpoch = state.partitionEpoch;
    this.#logStartOffset = logStartOffset;
    this.#logEndOffset = logEndOffset;
    this.#flushedEndOffset = flushedEndOffset;
    this.#highWatermark = Math.min(Math.max(start.highWatermark, logStartOffset), logEndOffset) as Offset;
    this.#brokers = start.brokers;
    this.#localBrokerEpoch = start.localBrokerEpoch;
    this.#nowMs = start.nowMs;
    this.#assignment = state.replicas;
    this.#isrState = { type: "committed", isr: state.isr };
    this.#takeAssignment(state);
    this.#takeBrokers(start.brokers);
    this.#setIsrState(this.#isrState);
    this.#advanceHighWatermark();
    this.#check();
  }

  get highWatermark(): Offset {
    return this.#highWatermark;
  }

  get partitionEpoch(): number {
    return this.#partitionEpoch;
  }

  get isrState(): IsrState {
    return this.#isrState;
  }

  /** The committed ISR. */
  get isr(): readonly number[] {
    return this.#isrState.isr;
  }

  get assignment(): readonly number[] {
    return this.#assignment;
  }

  /** Snapshots of the other replicas, in the order of the assignment. For descriptions: allocates. */
  get replicas(): readonly RemoteReplicaView[] {
    return this.#remotes.map((remote) => remote.view());
  }

  /** The proposal whose outcome is open; a retry of any other need not be sent. */
  get pendingProposal(): number | undefined {
    return this.#proposal?.number;
  }

  get waitingProduceCount(): number {
    return this.#waiting.count;
  }

  /** min.insync.replicas, or all replicas when there are fewer. */
  get effectiveMinIsr(): number {
    return Math.min(this.#config.minInsyncReplicas, this.#assignment.length);
  }

  get isUnderMinIsr(): boolean {
    return this.isr.length < this.effectiveMinIsr;
  }

  get isAtMinIsr(): boolean {
    return this.isr.length === this.effectiveMinIsr;
  }

  /** What to answer a produce before anything is appended. acks 0 and 1 are not held to min ISR. */
  judgeProduce(acks: number): PeerErrorCode {
    if (this.#endedWith !== undefined) return this.#endedWith;
    if (acks !== -1 && acks !== 0 && acks !== 1) return "INVALID_REQUIRED_ACKS";
    return acks === -1 && this.isUnderMinIsr ? "NOT_ENOUGH_REPLICAS" : "NONE";
  }

  /**
   * What to answer a fetch before anything is read: a consumer (a negative id) passes; a broker only as a replica of
   * this partition, not from a process that was replaced since, and with the leader epoch it follows. Without that a
   * replica of an earlier leadership could not be told from one of this, and its LEO would be taken for ours.
   */
  judgeFetch(fetch: {
    readonly replicaId: number;
    readonly brokerEpoch: number;
    readonly hasLeaderEpoch: boolean;
  }): PeerErrorCode {
    if (this.#endedWith !== undefined) return this.#endedWith;
    if (fetch.replicaId < 0) return "NONE";
    if (!fetch.hasLeaderEpoch) return "INVALID_REQUEST";
    const remote = this.#remoteOf(fetch.replicaId);
    return remote === undefined || remote.isFenced(fetch.brokerEpoch) ? "NOT_LEADER_OR_FOLLOWER" : "NONE";
  }

  /**
   * @param effects what is to be done is appended here
   * @throws InvariantError for what only a bug of this process can tell it: a log that shrank, an id that waits already
   */
  step(input: LeaderInput, effects: LeaderEffect[]): void {
    if (this.#endedWith !== undefined) {
      if (input.type === "produced") effects.push({ type: "completeProduce", id: input.id, error: this.#endedWith });
      return;
    }
    const highWatermarkBefore = this.#highWatermark;
    switch (input.type) {
      case "logMoved":
        this.#moveLog(input);
        break;
      case "fetched":
        this.#passTime(input.nowMs);
        this.#takeFetch(input, effects);
        break;
      case "produced":
        this.#waiting.add(input.id, input.lastOffset);
        break;
      case "abandon":
        this.#waiting.remove(input.id);
        break;
      case "alterPartitionAnswer":
        this.#takeAnswer(input, effects);
        break;
      case "partitionState":
        this.#passTime(input.nowMs);
        this.#takeState(input.state, effects);
        break;
      case "brokers":
        this.#takeBrokers(input.brokers);
        break;
      case "tick":
        this.#passTime(input.nowMs);
        this.#maybeShrinkIsr(effects);
        break;
      default:
        fail("every input type is handled", { input: input satisfies never });
    }
    this.#advanceHighWatermark();
    if (this.#highWatermark !== highWatermarkBefore) {
      effects.push({ type: "highWatermark", offset: this.#highWatermark });
    }
    this.#completeReached(effects);
    this.#check();
  }

  /**
   * The leadership is over: every waiting produce is completed with the error, and so is every one that still comes;
   * other inputs have no effect any more.
   */
  abandonAll(error: PeerErrorCode, effects: LeaderEffect[]): void {
    this.#endedWith ??= error;
    for (let id = this.#waiting.takeAny(); id !== undefined; id = this.#waiting.takeAny()) {
      effects.push({ type: "completeProduce", id, error });
    }
  }

  /** The whole state, as a string that is equal for equal states. */
  digest(): string {
    const brokers = [...this.#brokers.values()].sort((left, right) => left.brokerId - right.brokerId);
    return JSON.stringify({
      localId: this.#localId,
      localBrokerEpoch: this.#localBrokerEpoch,
      config: this.#config,
      leaderEpoch: this.leaderEpoch,
      partitionEpoch: this.#partitionEpoch,
      epochStartOffset: this.epochStartOffset,
      log: [this.#logStartOffset, this.#flushedEndOffset, this.#logEndOffset],
      highWatermark: this.#highWatermark,
      isrState: this.#isrState,
      proposal: this.#proposal ?? null,
      proposalsMade: this.#proposalsMade,
      assignment: this.#assignment,
      replicas: this.#remotes.map((remote) => remote.digest()),
      brokers: brokers.map(({ brokerId, brokerEpoch, isFenced }) => [brokerId, brokerEpoch, isFenced]),
      waiting: this.#waiting.entries(),
      nowMs: this.#nowMs,
      endedWith: this.#endedWith ?? null,
    });
  }

  #moveLog(ends: LeaderLogEnds): void {
    const { logStartOffset, logEndOffset, flushedEndOffset } = ends;
    if (logEndOffset < this.#logEndOffset)
      fail("a leader's log never shrinks", { logEndOffset, was: this.#logEndOffset });
    if (logStartOffset < this.#logStartOffset)
      fail("log start never falls", { logStartOffset, was: this.#logStartOffset });
    if (flushedEndOffset > logEndOffset) fail("flushed end <= log end offset", { flushedEndOffset, logEndOffset });
    this.#logStartOffset = logStartOffset;
    this.#logEndOffset = logEndOffset;
    this.#flushedEndOffset = flushedEndOffset;
    if (this.#highWatermark < logStartOffset) this.#highWatermark = logStartOffset;
  }

  #takeFetch(fetch: { readonly replicaId: number } & ReplicaFetch, effects: LeaderEffect[]): void {
    const remote = this.#remoteOf(fetch.replicaId);
    // The replica may have left, or been replaced by a younger process, while the read was under way.
    if (remote === undefined || remote.isFenced(fetch.brokerEpoch)) return;
    remote.recordFetch(fetch);
    if (this.#mayJoin(remote)) {
      this.#propose({ type: "pendingExpand", isr: this.isr, adding: remote.brokerId }, effects);
    }
  }

  /**
   * Reaching HW is not enough to join: between a new leader's HW, which lags, and the start of its epoch lie records
   * that may be committed. When HW counts flushed ends, what joins must have reached both with its flushed end.
   */
  #mayJoin(remote: RemoteReplica): boolean {
    if (this.#proposal !== undefined || remote.isInIsr || !remote.isEligible) return false;
    const endOffset = this.#countedEnd(remote);
    return endOffset !== undefined && endOffset >= this.#highWatermark && endOffset >= this.epochStartOffset;
  }

  #maybeShrinkIsr(effects: LeaderEffect[]): void {
    if (this.#proposal !== undefined) return;
    const removing: number[] = [];
    for (const remote of this.#remotes) {
      if (remote.isInIsr && !this.#isCaughtUp(remote)) removing.push(remote.brokerId);
    }
    if (removing.length > 0) this.#propose({ type: "pendingShrink", isr: this.isr, removing }, effects);
  }

  #propose(state: IsrState, effects: LeaderEffect[]): void {
    this.#setIsrState(state);
    this.#proposalsMade += 1;
    const newIsr = proposedIsr(state).map((brokerId) => ({ brokerId, brokerEpoch: this.#brokerEpochOf(brokerId) }));
    this.#proposal = { number: this.#proposalsMade, newIsr, attemptsUncertain: 0, isInFlight: false };
    this.#send(this.#proposal, 0, effects);
  }

  #send(proposal: Proposal, retryAfterMs: number, effects: LeaderEffect[]): void {
    proposal.isInFlight = true;
    effects.push({
      type: "alterPartition",
      proposal: proposal.number,
      newIsr: proposal.newIsr,
      leaderEpoch: this.leaderEpoch,
      partitionEpoch: this.#partitionEpoch,
      retryAfterMs,
    });
  }

  /**
   * The stamp lets the controller refuse a member that was replaced. -1 for a member that has not fetched: should it
   * die, the controller raises the partition epoch, which refuses the proposal as well.
   */
  #brokerEpochOf(brokerId: number): number {
    return brokerId === this.#localId ? this.#localBrokerEpoch : (this.#remoteOf(brokerId)?.brokerEpoch ?? -1);
  }

  #takeAnswer(answer: LeaderInput & { readonly type: "alterPartitionAnswer" }, effects: LeaderEffect[]): void {
    const proposal = this.#proposal;
    // Another state has taken the place of the one that asked.
    if (proposal === undefined || proposal.number !== answer.proposal || !proposal.isInFlight) return;
    proposal.isInFlight = false;
    switch (answer.error) {
      case "NONE": {
        const { leaderEpoch, partitionEpoch, isr } = answer;
        // An answer of another time, or one without sense, decides nothing: the state stays pending.
        if (leaderEpoch !== this.leaderEpoch || partitionEpoch < this.#partitionEpoch) return;
        if (!isIsrOf(isr, this.#localId, this.#assignment)) return;
        this.#partitionEpoch = partitionEpoch;
        this.#commitIsr(isr, effects);
        return;
      }
      case "INELIGIBLE_REPLICA":
        // Not applied. The controller must see to it that no late or doubled copy of the request ever is: what it refused
        // once under a partition epoch it refuses for good. Else it could add a member that HW here no longer waits for.
        this.#commitIsr(this.isr, effects);
        return;
      case "UNKNOWN_TOPIC_OR_PARTITION":
      case "UNKNOWN_TOPIC_ID":
      case "FENCED_LEADER_EPOCH":
      case "INVALID_UPDATE_VERSION":
      case "INVALID_REQUEST":
      case "NEW_LEADER_ELECTED":
        // An earlier attempt may have been applied. The controller is ahead of us: its next state will tell.
        return;
      case "OPERATION_NOT_ATTEMPTED":
        // Not sent; but that says nothing of the attempts before it.
        if (proposal.attemptsUncertain === 0) this.#commitIsr(this.isr, effects);
        else this.#retry(proposal, effects);
        return;
      default:
        proposal.attemptsUncertain += 1;
        this.#retry(proposal, effects);
    }
  }

  #retry(proposal: Proposal, effects: LeaderEffect[]): void {
    const doublings = Math.min(proposal.attemptsUncertain - 1, 10);
    const retryAfterMs = Math.min(ALTER_PARTITION_RETRY_MS_MIN * 2 ** doublings, ALTER_PARTITION_RETRY_MS_MAX);
    this.#send(proposal, retryAfterMs, effects);
  }

  /**
   * A newer partition epoch ends whatever is pending: the proposal carries an older one, so it has been applied already
   * and is part of this state, or never will be. An equal partition epoch is the state we know. It may arrive after a
   * proposal was made on top of it, and must not make us forget what the controller may be about to add (Kafka does).
   */
  #takeState(state: PartitionState, effects: LeaderEffect[]): void {
    if (state.leaderEpoch !== this.leaderEpoch || state.partitionEpoch <= this.#partitionEpoch) return;
    if (!canLead(state, this.#localId)) return; // Without sense; nothing of it can be used.
    this.#partitionEpoch = state.partitionEpoch;
    this.#takeAssignment(state);
    this.#commitIsr(state.isr, effects);
  }

  /** Replicas that stay keep what is known of them: the leadership is the same. */
  #takeAssignment(state: PartitionState): void {
    const known = this.#remotes;
    this.#assignment = state.replicas;
    this.#remotes = state.replicas
      .filter((brokerId) => brokerId !== this.#localId)
      .map((brokerId) => {
        const lastCaughtUpMs = state.isr.includes(brokerId) ? this.#nowMs : NEVER_MS;
        return known.find((remote) => remote.brokerId === brokerId) ?? new RemoteReplica(brokerId, lastCaughtUpMs);
      });
    for (const remote of this.#remotes) remote.broker = this.#brokers.get(remote.brokerId);
  }

  #takeBrokers(brokers: ReadonlyMap<number, BrokerState>): void {
    this.#brokers = brokers;
    for (const remote of this.#remotes) remote.broker = brokers.get(remote.brokerId);
    // Broker epochs only grow; the controller's view may be older than our own registration.
    this.#localBrokerEpoch = Math.max(this.#localBrokerEpoch, brokers.get(this.#localId)?.brokerEpoch ?? -1);
  }

  #commitIsr(isr: readonly number[], effects: LeaderEffect[]): void {
    const before = this.isr;
    this.#proposal = undefined;
    this.#setIsrState({ type: "committed", isr });
    const isSame = isr.length === before.length && isr.every((brokerId) => before.includes(brokerId));
    if (!isSame) effects.push({ type: "isrChanged", isr });
  }

  #setIsrState(state: IsrState): void {
    this.#isrState = state;
    const maximal = maximalIsr(state);
    for (const remote of this.#remotes) {
      remote.isInIsr = state.isr.includes(remote.brokerId);
      remote.isInMaximalIsr = maximal.includes(remote.brokerId);
    }
  }

  /**
   * Kafka looks again only after an append, a fetch or a change of the ISR; here every step may move HW, so that it
   * does not wait for the next fetch once a replica about to join is fenced or silent for too long.
   */
  #advanceHighWatermark(): void {
    if (this.isUnderMinIsr) return;
    const endOffsets = this.#endOffsets;
    endOffsets.length = 0;
    endOffsets.push(this.#config.countsFlushedEnds ? this.#flushedEndOffset : this.#logEndOffset);
    for (const remote of this.#remotes) {
      // With an ISR of one, HW would run ahead of a replica that is about to join, and it could chase HW for ever. One
      // that may not join anyway stays caught up for a while after its last fetch, and must not hold HW back.
      if (remote.isInMaximalIsr || (remote.isEligible && this.#isCaughtUp(remote))) {
        endOffsets.push(this.#countedEnd(remote));
      }
    }
    this.#highWatermark = nextHighWatermark(this.#highWatermark, endOffsets);
  }

  /** What was acknowledged is in the maximal ISR: fewer than min ISR is not what the producer asked for. */
  #completeReached(effects: LeaderEffect[]): void {
    let id = this.#waiting.takeReached(this.#highWatermark);
    if (id === undefined) return;
    const isEnough = maximalIsr(this.#isrState).length >= this.effectiveMinIsr;
    const error = isEnough ? "NONE" : "NOT_ENOUGH_REPLICAS_AFTER_APPEND";
    for (; id !== undefined; id = this.#waiting.takeReached(this.#highWatermark)) {
      effects.push({ type: "completeProduce", id, error });
    }
  }

  #countedEnd(remote: RemoteReplica): Offset | undefined {
    return this.#config.countsFlushedEnds ? remote.flushedEndOffset : remote.logEndOffset;
  }

  #isCaughtUp(remote: RemoteReplica): boolean {
    return remote.isCaughtUp(this.#logEndOffset, this.#nowMs - this.#config.replicaLagTimeMaxMs);
  }

  #remoteOf(brokerId: number): RemoteReplica | undefined {
    for (const remote of this.#remotes) if (remote.brokerId === brokerId) return remote;
    return undefined;
  }

  #passTime(nowMs: number): void {
    if (nowMs > this.#nowMs) this.#nowMs = nowMs;
  }

  #check(): void {
    const [start, highWatermark, end] = [this.#logStartOffset, this.#highWatermark, this.#logEndOffset];
    if (!(start <= highWatermark)) fail("log start <= high watermark", { start, highWatermark });
    if (!(highWatermark <= end)) fail("high watermark <= log end offset", { highWatermark, end });
    if ((this.#proposal === undefined) !== (this.#isrState.type === "committed")) {
      fail("a pending ISR has its proposal", { isrState: this.#isrState, proposal: this.#proposal });
    }
  }
}
