import { InvariantError, parseOffset, toLeaderEpoch, toOffset } from "@tidemark/base";
import type { BufferPool, Clock, Offset } from "@tidemark/base";
import type { EpochEntry } from "@tidemark/epoch-cache";
import { LogError } from "@tidemark/log";
import type { AppendResult, BatchOrigin, PartitionLog, ReadResult } from "@tidemark/log";
import type {
  AlterPartitionResponse,
  BrokerState,
  FetchPartition,
  OffsetsForLeaderEpochPartition,
  PartitionState,
  PeerErrorCode,
} from "@tidemark/wire";
import { checkCrc, scanBatch } from "@tidemark/wire";
import { FollowerState } from "./follower-state.ts";
import type { FollowerEffect, FollowerInput, FollowerRequest, LogFacts, TruncationCause } from "./follower-state.ts";
import { answerListOffset, DEBUGGING_ID, limitOf, refusedListOffset } from "./list-offset.ts";
import type { ListOffsetRequest, PartitionListOffsetResult } from "./list-offset.ts";
import { canLead, LeaderState } from "./leader-state.ts";
import type { LeaderEffect, LeaderInput, ReplicaConfig } from "./leader-state.ts";
import { peerErrorOf } from "./peer-error-codes.ts";
import { refusedEpoch, refusedFetch, refusedProduce } from "./refusals.ts";
import type { PartitionEpochResult, PartitionFetchResult, PartitionProduceResult } from "./refusals.ts";
import { checkDivergence } from "./truncation.ts";
import { WakeSignal } from "./wake-signal.ts";

/** Appends of one partition that may wait for the ISR at a time; past it `produce` answers THROTTLING_QUOTA_EXCEEDED. */
const PENDING_PRODUCES_MAX = 10_000;

/** A cut that was made, and why. */
export interface TruncationReport {
  readonly topic: string;
  readonly partition: number;
  readonly leaderEpoch: number;
  readonly cause: TruncationCause;
  readonly fromOffset: number;
  readonly toOffset: number;
  /** Before the cut. */
  readonly highWatermark: number;
}

/** A question to the controller. */
export type AlterPartitionEffect = Extract<LeaderEffect, { type: "alterPartition" }>;

/** What a partition needs done outside of it. */
export interface PartitionEvents {
  /** Asks the controller; the answer goes to `alterPartitionAnswered`. */
  readonly alterPartition: (partition: Partition, effect: AlterPartitionEffect) => void;
  /** The follower may have something to ask again. */
  readonly readyToAsk: (partition: Partition) => void;
  readonly truncated: (report: TruncationReport) => void;
  /** The partition stopped here until the controller says something new about it, or for good. */
  readonly failed: (partition: Partition, reason: string) => void;
}

export interface PartitionOptions {
  readonly brokerId: number;
  readonly brokerEpoch: () => number;
  readonly log: PartitionLog;
  readonly clock: Clock;
  /** Gives the memory that fetches are answered from. */
  readonly pool: BufferPool;
  readonly config: ReplicaConfig;
  /** As it was checkpointed; 0 when unknown. */
  readonly highWatermark: number;
  readonly events: PartitionEvents;
  readonly brokers: () => ReadonlyMap<number, BrokerState>;
  readonly fetchBackoffMs: number;
}

type Role =
  | { readonly type: "none" }
  | {
      readonly type: "leader";
      readonly state: LeaderState;
      readonly pending: Map<number, (error: PeerErrorCode) => void>;
    }
  | { readonly type: "follower"; readonly state: FollowerState }
  | { readonly type: "failed"; readonly reason: string };

/** Who fetches: a replica, by its id and broker epoch, or a consumer (-1). */
export interface Fetcher {
  readonly replicaId: number;
  readonly brokerEpoch: number;
}

/**
 * One replica of a partition: its log, and what it is at present, leader or follower.
 *
 * The states decide (`LeaderState`, `FollowerState`), this carries out: it appends, cuts, reads, and wakes who waits. After every
 * `await` it looks again whether its role is still the one it acted for; what belongs to an earlier role is dropped.
 * Source: apache/kafka core/src/main/scala/kafka/cluster/Partition.scala
 */
export class Partition {
  readonly topic: string;
  readonly partition: number;
  readonly log: PartitionLog;
  readonly #options: PartitionOptions;
  readonly #moved = new WakeSignal();
  #role: Role = { type: "none" };
  #state: PartitionState | undefined;
  /** While there is no role that has one of its own. */
  #highWatermark: Offset;
  #nextPendingId = 1;
  /** Role changes run one after another. */
  #transition: Promise<void> = Promise.resolve();
  /** Of the disk that its log lies on. */
  #storageFailure: LogError | undefined;

  constructor(options: PartitionOptions) {
    this.#options = options;
    this.log = options.log;
    this.topic = options.log.topic;
    this.partition = options.log.partition;
    this.#highWatermark = this.#clamped(options.highWatermark);
  }

  /** What the controller said last. */
  get state(): PartitionState | undefined {
    return this.#state;
  }

  get role(): Role["type"] {
    return this.#role.type;
  }

  get leaderState(): LeaderState | undefined {
    return this.#role.type === "leader" ? this.#role.state : undefined;
  }

  get followerState(): FollowerState | undefined {
    return this.#role.type === "follower" ? this.#role.state : undefined;
  }

  /** Every offset below is committed, as far as this replica knows. */
  get highWatermark(): Offset {
    if (this.#role.type === "leader") return this.#role.state.highWatermark;
    return this.#role.type === "follower" ? this.#role.state.highWatermark : this.#highWatermark;
  }

  get leaderEpoch(): number {
    return this.#state?.leaderEpoch ?? -1;
  }

  // ---- roles ---------------------------------------------------------------------------------------------------------

  /**
   * Takes a state that the controller decided; older ones than known are ignored. Resolves when the role is taken.
   * Source: Partition.scala, makeLeader and makeFollower
   */
  applyState(state: PartitionState): Promise<void> {
    this.#transition = this.#transition.then(() => this.#apply(state)).catch((error: unknown) => this.#fail(error));
    return this.#transition;
  }

  async #apply(state: PartitionState): Promise<void> {
    const known = this.#state;
    if (known !== undefined && (state.partitionEpoch < known.partitionEpoch || state.leaderEpoch < known.leaderEpoch))
      return;
    const isNewEpoch = known === undefined || state.leaderEpoch > known.leaderEpoch;
    // A state that does not hold together is nobody's order to lead.
    const isLeader = canLead(state, this.#options.brokerId);
    this.#state = state;
    if (!isNewEpoch && this.#role.type !== "none") {
      if (this.#role.type === "leader") this.#lead({ type: "partitionState", state, nowMs: this.#nowMs });
      return;
    }
    this.#leaveRole();
    if (isLeader) await this.#becomeLeader(state);
    else if (state.leader >= 0 && state.leader !== this.#options.brokerId) await this.#becomeFollower(state);
    else await this.log.becomeFollower();
    this.#moved.wake();
  }

  /** From here on nothing of the old role counts. */
  #leaveRole(error: PeerErrorCode = "NOT_LEADER_OR_FOLLOWER"): void {
    const role = this.#role;
    this.#highWatermark = this.highWatermark;
    this.#role = { type: "none" };
    if (role.type === "leader") for (const [, answer] of role.pending) answer(error);
    this.#moved.wake();
  }

  /**
   * The disk of its log has failed. Nothing is acknowledged or served from here on, also not what was appended before and waits for the
   * followers: a copy of it is counted here that may be gone.
   * Source: apache/kafka core/src/main/scala/kafka/server/ReplicaManager.scala, handleLogDirFailure
   */
  storageFailed(error: LogError): void {
    this.#storageFailure = error;
    if (this.#role.type === "leader" || this.#role.type === "follower") this.#fail(error);
  }

  /** To be called after waiting for the log, before a role is taken. @throws LogError */
  #checkStorage(): void {
    if (this.#storageFailure !== undefined) throw this.#storageFailure;
  }

  async #becomeLeader(state: PartitionState): Promise<void> {
    // Waits for what is being written, then enters (epoch, log end).
    await this.log.becomeLeader(toLeaderEpoch(state.leaderEpoch));
    const { log, clock, config, brokerId, brokerEpoch, brokers } = this.#options;
    const leader = new LeaderState({
      localId: brokerId,
      localBrokerEpoch: brokerEpoch(),
      state,
      epochStartOffset: log.logEndOffset,
      logStartOffset: log.logStartOffset,
      logEndOffset: log.logEndOffset,
      flushedEndOffset: log.flushedEndOffset,
      highWatermark: this.#clamped(this.#highWatermark),
      nowMs: clock.monotonicMs(),
      config,
      brokers: brokers(),
    });
    this.#checkStorage();
    this.#role = { type: "leader", state: leader, pending: new Map() };
    // An ISR of one commits what it has.
    this.#logMoved();
  }

  async #becomeFollower(state: PartitionState): Promise<void> {
    // Waits for what is being written: the log's end is what it is from here on.
    await this.log.becomeFollower();
    const follower = new FollowerState({
      leaderId: state.leader,
      leaderEpoch: state.leaderEpoch,
      log: this.#facts,
      highWatermark: this.#clamped(this.#highWatermark),
      backOffMs: this.#options.fetchBackoffMs,
    });
    this.#checkStorage();
    this.#role = { type: "follower", state: follower };
    this.#options.events.readyToAsk(this);
  }

  // ---- serving as leader ---------------------------------------------------------------------------------------------

  /**
   * Appends a batch and answers as `acks` says.
   * Errors: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, INVALID_REQUIRED_ACKS (nothing appended); NOT_ENOUGH_REPLICAS_AFTER_APPEND,
   * REQUEST_TIMED_OUT (it is in the log, and may stay); those of the log.
   */
  async produce(
    batch: Uint8Array,
    options: { readonly acks: number; readonly timeoutMs: number; readonly origin: BatchOrigin },
  ): Promise<PartitionProduceResult> {
    const role = this.#role;
    if (role.type !== "leader")
      return this.#refused(role.type === "failed" ? "KAFKA_STORAGE_ERROR" : "NOT_LEADER_OR_FOLLOWER");
    const verdict = role.state.judgeProduce(options.acks);
    if (verdict !== "NONE") return this.#refused(verdict);
    if (role.pending.size >= PENDING_PRODUCES_MAX) return this.#refused("THROTTLING_QUOTA_EXCEEDED");
    let appended: AppendResult;
    try {
      appended = await this.log.append(batch, { origin: options.origin });
    } catch (error) {
      return this.#refused(peerErrorOf(error));
    }
    if (this.#role !== role) return this.#refused("NOT_LEADER_OR_FOLLOWER");
    this.#logMoved();
    const result = { baseOffset: appended.baseOffset, lastOffset: appended.lastOffset };
    const error = options.acks === -1 ? await this.#committed(role, appended.lastOffset, options.timeoutMs) : "NONE";
    return error === "NONE"
      ? { error, ...result, leaderId: -1, leaderEpoch: -1 }
      : { ...this.#refused(error), ...result };
  }

  /** Waits until the high watermark has passed the offset. */
  #committed(role: Extract<Role, { type: "leader" }>, lastOffset: Offset, timeoutMs: number): Promise<PeerErrorCode> {
    const id = this.#nextPendingId;
    this.#nextPendingId += 1;
    return new Promise((resolve) => {
      const timer = this.#options.clock.setTimer(timeoutMs, () => {
        if (!role.pending.delete(id)) return;
        if (this.#role === role) this.#lead({ type: "abandon", id });
        resolve("REQUEST_TIMED_OUT");
      });
      role.pending.set(id, (error) => {
        role.pending.delete(id);
        timer.cancel();
        resolve(error);
      });
      this.#lead({ type: "produced", id, lastOffset });
    });
  }

  /**
   * One look at the log for a fetch. Order as in Kafka: epoch fence, leadership, replica, divergence, range, read; only a read that
   * went well counts as progress of the replica, and once a request.
   * @param request `maxBytes` is met but for the first batch, which comes whole; with 0 nothing is read
   * @param countsProgress false when the request was counted before, and waited
   * @returns bytes in memory of the pool, the caller's to give back; at once where the log can be read at once
   */
  fetch(
    request: FetchPartition,
    fetcher: Fetcher,
    countsProgress: boolean,
  ): PartitionFetchResult | Promise<PartitionFetchResult> {
    const role = this.#role;
    const refusal = this.#fence(request.currentLeaderEpoch, fetcher);
    if (refusal !== undefined || role.type !== "leader") return refusedFetch(refusal ?? "NOT_LEADER_OR_FOLLOWER");
    const { log } = this;
    const { pool } = this.#options;
    const seen = {
      highWatermark: role.state.highWatermark,
      logStartOffset: log.logStartOffset,
      logEndOffset: log.logEndOffset,
    };
    const check = checkDivergence(request, { epochEnd: (epoch) => this.#epochEnd(epoch), ...seen });
    if (check.type === "outOfRange") return refusedFetch("OFFSET_OUT_OF_RANGE");
    if (check.type === "diverging")
      return { ...refusedFetch("NONE"), ...seen, divergingEpoch: check.epoch, divergingEndOffset: check.endOffset };
    const isReplica = fetcher.replicaId >= 0;
    const fetchOffset = toOffset(request.fetchOffset);
    const options = {
      fromOffset: fetchOffset,
      maxBytes: request.maxBytes,
      limitOffset: isReplica ? seen.logEndOffset : seen.highWatermark,
      minOneBatch: request.maxBytes > 0,
      pool,
    };
    const answer = ({ bytes }: ReadResult): PartitionFetchResult => {
      if (this.#role !== role) {
        pool.giveBack(bytes);
        return refusedFetch("NOT_LEADER_OR_FOLLOWER");
      }
      if (isReplica && countsProgress) {
        this.#lead({
          type: "fetched",
          replicaId: fetcher.replicaId,
          brokerEpoch: fetcher.brokerEpoch,
          fetchOffset,
          flushedEndOffset: parseOffset(request.flushedEndOffset) ?? -1,
          logStartOffset: parseOffset(request.logStartOffset) ?? -1,
          leaderEndOffset: seen.logEndOffset,
          nowMs: this.#nowMs,
        });
      }
      const { highWatermark, logStartOffset, logEndOffset } = seen;
      const error = "NONE";
      return {
        error,
        highWatermark,
        logStartOffset,
        logEndOffset,
        divergingEpoch: -1,
        divergingEndOffset: -1,
        bytes,
      };
    };
    const refuse = (error: unknown): PartitionFetchResult => refusedFetch(peerErrorOf(error));
    let read: ReadResult | Promise<ReadResult>;
    try {
      read = log.readSoon(options);
    } catch (error) {
      return refuse(error);
    }
    return read instanceof Promise ? read.then(answer, refuse) : answer(read);
  }

  /**
   * Calls back once when a fetch may find more than before: the log or the high watermark moved, or the role changed.
   * @returns takes it back
   */
  whenMoved(moved: () => void): () => void {
    return this.#moved.add(moved);
  }

  /** The answer to OffsetsForLeaderEpoch. */
  offsetsForLeaderEpoch(request: OffsetsForLeaderEpochPartition): PartitionEpochResult {
    const refusal = this.#fence(request.currentLeaderEpoch, undefined);
    if (refusal !== undefined) return refusedEpoch(refusal);
    const { epoch, endOffset } = this.#epochEnd(request.leaderEpoch);
    const { logStartOffset, logEndOffset } = this.log;
    return { error: "NONE", leaderEpoch: epoch, endOffset, logStartOffset, logEndOffset };
  }

  /**
   * The answer to ListOffsets. A consumer is told of committed records, or of those before the first open transaction; a replica of all.
   * Errors: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER; OFFSET_NOT_AVAILABLE, after a change of leader, until the high
   * watermark has come as far as the log did then; those of the log. Never rejects but for a bug.
   */
  async listOffset(request: ListOffsetRequest): Promise<PartitionListOffsetResult> {
    const role = this.#role;
    const { spec, replicaId, currentLeaderEpoch } = request;
    const isForAnyReplica = replicaId === DEBUGGING_ID && role.type === "follower";
    const refusal = isForAnyReplica ? this.#fenceEpoch(currentLeaderEpoch) : this.#fence(currentLeaderEpoch, undefined);
    if (refusal !== undefined) return refusedListOffset(refusal);
    const { highWatermark, leaderEpoch, log } = this;
    const view = {
      leaderEpoch,
      highWatermark,
      lastStableOffset: log.lastStableOffset(highWatermark),
      logEndOffset: log.logEndOffset,
      epochStartOffset: role.type === "leader" ? role.state.epochStartOffset : undefined,
    };
    try {
      const found = await log.listOffset(spec, limitOf(request, view));
      return this.#role === role ? answerListOffset(request, found, view) : refusedListOffset("NOT_LEADER_OR_FOLLOWER");
    } catch (error) {
      return refusedListOffset(peerErrorOf(error));
    }
  }

  #fenceEpoch(currentLeaderEpoch: number): PeerErrorCode | undefined {
    if (this.#role.type === "failed") return "KAFKA_STORAGE_ERROR";
    if (currentLeaderEpoch !== -1 && currentLeaderEpoch < this.leaderEpoch) return "FENCED_LEADER_EPOCH";
    if (currentLeaderEpoch > this.leaderEpoch) return "UNKNOWN_LEADER_EPOCH";
    return undefined;
  }

  /** Epoch before leadership before replica: who is behind is told so first. */
  #fence(currentLeaderEpoch: number, fetcher: Fetcher | undefined): PeerErrorCode | undefined {
    const role = this.#role;
    const refusal = this.#fenceEpoch(currentLeaderEpoch);
    if (refusal !== undefined) return refusal;
    if (role.type !== "leader") return "NOT_LEADER_OR_FOLLOWER";
    if (fetcher === undefined || fetcher.replicaId < 0) return undefined;
    // It may be a replica of a state that this leader has not heard of yet.
    if (currentLeaderEpoch !== -1 && !role.state.assignment.includes(fetcher.replicaId)) return "UNKNOWN_LEADER_EPOCH";
    const verdict = role.state.judgeFetch({
      replicaId: fetcher.replicaId,
      brokerEpoch: fetcher.brokerEpoch,
      hasLeaderEpoch: currentLeaderEpoch !== -1,
    });
    return verdict === "NONE" ? undefined : verdict;
  }

  /** The controller's answer to an `alterPartition` event. */
  alterPartitionAnswered(
    asked: Pick<AlterPartitionEffect, "leaderEpoch" | "proposal">,
    answer: Pick<AlterPartitionResponse, "error" | "leaderEpoch" | "partitionEpoch" | "isr">,
  ): void {
    // Proposals are numbered within a leadership: one of an earlier leadership may have the number of one that is out now.
    if (this.leaderState?.leaderEpoch !== asked.leaderEpoch) return;
    this.#lead({ type: "alterPartitionAnswer", proposal: asked.proposal, ...answer });
  }

  brokersChanged(): void {
    this.#lead({ type: "brokers", brokers: this.#options.brokers() });
  }

  /** To be called every half `replicaLagTimeMaxMs`. */
  tick(): void {
    this.#lead({ type: "tick", nowMs: this.#nowMs });
  }

  // ---- following -----------------------------------------------------------------------------------------------------

  /** What to ask the leader now, if anything; it counts as sent. */
  takeRequest(
    nowMs: number,
  ): { readonly leaderId: number; readonly leaderEpoch: number; readonly request: FollowerRequest } | undefined {
    const role = this.#role;
    if (role.type !== "follower") return undefined;
    const request = role.state.nextRequest(nowMs);
    if (request === undefined) return undefined;
    role.state.step({ type: "sent", request }, []);
    return { leaderId: role.state.leaderId, leaderEpoch: role.state.leaderEpoch, request };
  }

  /** An answer, or its absence. Never rejects. @returns `undefined` when it is done with it at once */
  answered(input: FollowerInput): Promise<void> | undefined {
    const role = this.#role;
    if (role.type !== "follower") return undefined;
    const goOn = (): void => {
      if (this.#role === role) this.#options.events.readyToAsk(this);
    };
    const failed = (error: unknown): void => {
      if (this.#role === role) this.#fail(error);
      goOn();
    };
    let following: Promise<void> | undefined;
    try {
      following = this.#follow(role, input);
    } catch (error) {
      failed(error);
      return undefined;
    }
    if (following !== undefined) return following.then(goOn, failed);
    goOn();
    return undefined;
  }

  #follow(role: Extract<Role, { type: "follower" }>, input: FollowerInput): Promise<void> | undefined {
    const effects: FollowerEffect[] = [];
    role.state.step(input, effects);
    return this.#carryOut(role, effects, 0);
  }

  /** One effect after another, from the `first` on. */
  #carryOut(
    role: Extract<Role, { type: "follower" }>,
    effects: readonly FollowerEffect[],
    first: number,
  ): Promise<void> | undefined {
    for (let at = first; at < effects.length; at += 1) {
      const effect = effects[at] as FollowerEffect;
      const next = at + 1;
      switch (effect.type) {
        case "append":
          return this.#appendAsFollower(role, effect.bytes).then(() => this.#carryOut(role, effects, next));
        case "truncate":
        case "truncateFully":
          return this.#truncate(role, effect).then(() => this.#carryOut(role, effects, next));
        case "highWatermark":
          this.#moved.wake();
          break;
        case "raiseLogStart":
          return this.#raiseLogStart(role, effect.offset).then(() => this.#carryOut(role, effects, next));
        case "backOff":
          break; // `nextRequest` knows; the fetcher asks again in time.
        case "fenced":
          this.#options.events.failed(this, effect.reason);
          break;
        default:
          effect satisfies never;
      }
    }
    return undefined;
  }

  async #appendAsFollower(role: Extract<Role, { type: "follower" }>, bytes: Uint8Array): Promise<void> {
    const options = { leaderEpoch: toLeaderEpoch(role.state.leaderEpoch) };
    try {
      const beginOffset = this.#beginBefore(bytes);
      if (beginOffset !== undefined) {
        await this.log.truncateFullyAndStartAt(beginOffset);
        if (this.#role !== role) return;
        await this.#follow(role, { type: "logMoved", log: this.#facts });
        if (this.#role !== role) return;
      }
      await this.log.appendAsFollower(bytes, options);
    } catch (error) {
      // A full disk passes, and has left nothing of the batches behind.
      if (!(error instanceof LogError) || (error.code === "KAFKA_STORAGE_ERROR" && !error.retriable)) throw error;
      if (this.#role !== role) return;
      await this.#follow(role, { type: "appendRefused", reason: error.code, nowMs: this.#nowMs });
      return;
    }
    if (this.#role !== role) return;
    await this.#follow(role, { type: "appended", log: this.#facts, nowMs: this.#nowMs });
    this.#moved.wake();
  }

  /**
   * Where an empty log has to begin for a batch that holds its start, and offsets below it: those were deleted on the leader from the
   * middle of that batch on.
   * Source: apache/kafka core/src/main/scala/kafka/cluster/Partition.scala, appendRecordsToFollowerOrFutureReplica
   */
  #beginBefore(bytes: Uint8Array): Offset | undefined {
    const { logStartOffset, logEndOffset } = this.log;
    if (logStartOffset !== logEndOffset) return undefined;
    const scan = scanBatch(bytes, 0);
    // Nothing is thrown away for bytes that the log would refuse.
    if (scan.type !== "batch" || !checkCrc(bytes, scan.header)) return undefined;
    const { baseOffset, lastOffset } = scan.header;
    return baseOffset < logEndOffset && lastOffset >= logEndOffset ? toOffset(baseOffset) : undefined;
  }

  async #raiseLogStart(role: Extract<Role, { type: "follower" }>, offset: Offset): Promise<void> {
    try {
      await this.log.deleteRecords(offset, role.state.highWatermark);
    } catch (error) {
      // The next answer asks for it again.
      if (!(error instanceof LogError && error.retriable)) throw error;
    }
    if (this.#role !== role) return;
    await this.#follow(role, { type: "logMoved", log: this.#facts });
  }

  async #truncate(
    role: Extract<Role, { type: "follower" }>,
    effect: Extract<FollowerEffect, { type: "truncate" | "truncateFully" }>,
  ): Promise<void> {
    const fromOffset = this.log.logEndOffset;
    const { highWatermark } = role.state;
    if (effect.type === "truncate") await this.log.truncateTo(effect.offset);
    else await this.log.truncateFullyAndStartAt(effect.offset);
    const { topic, partition } = this;
    const { leaderEpoch } = role.state;
    this.#options.events.truncated({
      topic,
      partition,
      leaderEpoch,
      cause: effect.cause,
      fromOffset,
      toOffset: effect.offset,
      highWatermark,
    });
    if (this.#role !== role) return;
    await this.#follow(role, { type: "truncated", log: this.#facts, nowMs: this.#nowMs });
  }

  /** Takes no part any more: waiting produces and fetches are answered. The log stays open. */
  async close(): Promise<void> {
    await this.#transition;
    this.#leaveRole();
  }

  // ---- inside --------------------------------------------------------------------------------------------------------

  /** Tells the leader's state where the log is now. */
  #logMoved(): void {
    const { logStartOffset, logEndOffset, flushedEndOffset } = this.log;
    this.#lead({ type: "logMoved", logStartOffset, logEndOffset, flushedEndOffset });
    this.#moved.wake();
  }

  #lead(input: LeaderInput): void {
    const role = this.#role;
    if (role.type !== "leader") return;
    const effects: LeaderEffect[] = [];
    try {
      role.state.step(input, effects);
    } catch (error) {
      this.#fail(error);
      return;
    }
    for (const effect of effects) {
      switch (effect.type) {
        case "highWatermark":
          this.#moved.wake();
          break;
        case "completeProduce":
          role.pending.get(effect.id)?.(effect.error);
          break;
        case "alterPartition":
          this.#options.events.alterPartition(this, effect);
          break;
        case "isrChanged":
          break;
        default:
          effect satisfies never;
      }
    }
  }

  /** The replica stops: its disk, or a broken invariant. Others go on. */
  #fail(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    this.#leaveRole(error instanceof LogError ? "KAFKA_STORAGE_ERROR" : "NOT_LEADER_OR_FOLLOWER");
    this.#role = { type: "failed", reason };
    this.#options.events.failed(this, reason);
    if (!(error instanceof LogError || error instanceof InvariantError)) throw error;
  }

  /** With who leads, where that is not this replica. */
  #refused(error: PeerErrorCode): PartitionProduceResult {
    const refused = refusedProduce(error);
    if (error !== "NOT_LEADER_OR_FOLLOWER" || this.#state === undefined) return refused;
    return { ...refused, leaderId: this.#state.leader, leaderEpoch: this.leaderEpoch };
  }

  #epochEnd(epoch: number): { epoch: number; endOffset: number } {
    return this.log.endOffsetForEpoch(epoch);
  }

  #clamped(highWatermark: number): Offset {
    const { logStartOffset, logEndOffset } = this.log;
    return toOffset(Math.min(Math.max(highWatermark, logStartOffset), logEndOffset));
  }

  get #facts(): LogFacts {
    const { logStartOffset, logEndOffset, flushedEndOffset } = this.log;
    const epochs: readonly EpochEntry[] = this.log.epochEntries;
    return { logStartOffset, logEndOffset, flushedEndOffset, epochs };
  }

  get #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }
}
