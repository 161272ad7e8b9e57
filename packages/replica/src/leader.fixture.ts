import { toOffset } from "@tidemark/base";
import type { BrokerState, PartitionState, PeerErrorCode } from "@tidemark/wire";
import { maximalIsr } from "./isr-state.ts";
import { LeaderState } from "./leader-state.ts";
import type { LeaderEffect, LeaderInput, ReplicaConfig } from "./leader-state.ts";
import type { RemoteReplicaView } from "./replica-state.ts";

export interface LeaderOptions {
  readonly replicas?: readonly number[];
  readonly isr?: readonly number[];
  readonly leaderEpoch?: number;
  readonly partitionEpoch?: number;
  /** Log start, LEO and what is synced; LEO 0, start 0, all of it synced if not told. */
  readonly logStartOffset?: number;
  readonly logEndOffset?: number;
  readonly flushedEndOffset?: number;
  /** LEO if not told. */
  readonly epochStartOffset?: number;
  readonly highWatermark?: number;
  readonly nowMs?: number;
  readonly lagMs?: number;
  readonly minIsr?: number;
  readonly countsFlushedEnds?: boolean;
  readonly brokers?: readonly BrokerState[];
}

/** Broker N is alive with broker epoch 100 + N unless told otherwise. */
export function broker(brokerId: number, options: Partial<BrokerState> = {}): BrokerState {
  return { brokerId, brokerEpoch: 100 + brokerId, host: "127.0.0.1", port: 9000, isFenced: false, ...options };
}

export function partitionState(options: LeaderOptions): PartitionState {
  const replicas = options.replicas ?? [1, 2, 3];
  return {
    number: 1,
    topic: "orders",
    partition: 0,
    topicId: "topic-id",
    replicas,
    isr: options.isr ?? replicas,
    leader: 1,
    leaderEpoch: options.leaderEpoch ?? 5,
    partitionEpoch: options.partitionEpoch ?? 1,
  };
}

/** Broker 1 leads; each call is one step and gives its effects. */
export class Leader {
  readonly state: LeaderState;
  readonly options: LeaderOptions;
  nowMs: number;
  logStartOffset: number;
  logEndOffset: number;
  flushedEndOffset: number;
  #lastProposal = 0;

  constructor(options: LeaderOptions = {}) {
    this.options = options;
    this.nowMs = options.nowMs ?? 0;
    this.logEndOffset = options.logEndOffset ?? 0;
    this.flushedEndOffset = options.flushedEndOffset ?? this.logEndOffset;
    this.logStartOffset = options.logStartOffset ?? 0;
    const config: ReplicaConfig = {
      replicaLagTimeMaxMs: options.lagMs ?? 30_000,
      minInsyncReplicas: options.minIsr ?? 1,
      countsFlushedEnds: options.countsFlushedEnds ?? false,
    };
    const state = partitionState(options);
    this.state = new LeaderState({
      localId: 1,
      localBrokerEpoch: 101,
      state,
      epochStartOffset: toOffset(options.epochStartOffset ?? this.logEndOffset),
      logStartOffset: toOffset(this.logStartOffset),
      logEndOffset: toOffset(this.logEndOffset),
      flushedEndOffset: toOffset(this.flushedEndOffset),
      highWatermark: options.highWatermark ?? 0,
      nowMs: this.nowMs,
      config,
      brokers: byId(options.brokers ?? state.replicas.map((brokerId) => broker(brokerId))),
    });
  }

  get highWatermark(): number {
    return this.state.highWatermark;
  }

  get isr(): readonly number[] {
    return this.state.isr;
  }

  get maximalIsr(): readonly number[] {
    return maximalIsr(this.state.isrState);
  }

  replica(brokerId: number): RemoteReplicaView | undefined {
    return this.state.replicas.find((replica) => replica.brokerId === brokerId);
  }

  step(input: LeaderInput): LeaderEffect[] {
    const effects: LeaderEffect[] = [];
    this.state.step(input, effects);
    for (const effect of effects) if (effect.type === "alterPartition") this.#lastProposal = effect.proposal;
    return effects;
  }

  /** The log now ends here; it is synced as far, unless told. */
  append(logEndOffset: number, flushedEndOffset = logEndOffset): LeaderEffect[] {
    this.logEndOffset = logEndOffset;
    this.flushedEndOffset = flushedEndOffset;
    return this.#logMoved();
  }

  moveStart(logStartOffset: number): LeaderEffect[] {
    this.logStartOffset = logStartOffset;
    return this.#logMoved();
  }

  fetch(
    replicaId: number,
    fetchOffset: number,
    options: {
      readonly atMs?: number;
      readonly brokerEpoch?: number;
      readonly flushedEndOffset?: number;
      readonly leaderEndOffset?: number;
    } = {},
  ): LeaderEffect[] {
    this.nowMs = options.atMs ?? this.nowMs;
    return this.step({
      type: "fetched",
      replicaId,
      brokerEpoch: options.brokerEpoch ?? 100 + replicaId,
      fetchOffset: toOffset(fetchOffset),
      flushedEndOffset: options.flushedEndOffset ?? fetchOffset,
      logStartOffset: 0,
      leaderEndOffset: toOffset(options.leaderEndOffset ?? this.logEndOffset),
      nowMs: this.nowMs,
    });
  }

  tick(nowMs: number): LeaderEffect[] {
    this.nowMs = nowMs;
    return this.step({ type: "tick", nowMs });
  }

  produce(id: number, lastOffset: number): LeaderEffect[] {
    return this.step({ type: "produced", id, lastOffset: toOffset(lastOffset) });
  }

  /** The controller's answer to the latest proposal. */
  answer(
    error: PeerErrorCode,
    fields: {
      readonly isr?: readonly number[];
      readonly partitionEpoch?: number;
      readonly leaderEpoch?: number;
      readonly proposal?: number;
    } = {},
  ): LeaderEffect[] {
    return this.step({
      type: "alterPartitionAnswer",
      proposal: fields.proposal ?? this.#lastProposal,
      error,
      leaderEpoch: fields.leaderEpoch ?? (error === "NONE" ? this.state.leaderEpoch : -1),
      partitionEpoch: fields.partitionEpoch ?? (error === "NONE" ? this.state.partitionEpoch + 1 : -1),
      isr: fields.isr ?? [],
    });
  }

  /** The controller's stream tells of another state. */
  metadata(options: LeaderOptions): LeaderEffect[] {
    const { replicas = this.state.assignment, leaderEpoch = this.state.leaderEpoch } = options;
    const state = partitionState({ ...options, replicas, leaderEpoch });
    return this.step({ type: "partitionState", state, nowMs: this.nowMs });
  }

  brokers(...brokers: readonly BrokerState[]): LeaderEffect[] {
    return this.step({ type: "brokers", brokers: byId(brokers) });
  }

  #logMoved(): LeaderEffect[] {
    return this.step({
      type: "logMoved",
      logStartOffset: toOffset(this.logStartOffset),
      logEndOffset: toOffset(this.logEndOffset),
      flushedEndOffset: toOffset(this.flushedEndOffset),
    });
  }
}

export function byId(brokers: readonly BrokerState[]): ReadonlyMap<number, BrokerState> {
  return new Map(brokers.map((state) => [state.brokerId, state]));
}

/** What the step asks the controller for: the new ISR, as `id@brokerEpoch`. */
export function proposed(effects: readonly LeaderEffect[]): string | undefined {
  const proposals = effects.filter((effect) => effect.type === "alterPartition");
  if (proposals.length > 1) throw new Error("A step proposes once.");
  return proposals[0]?.newIsr.map(({ brokerId, brokerEpoch }) => `${brokerId}@${brokerEpoch}`).join(" ");
}

/** Completions of the step as `id:error`. */
export function completed(effects: readonly LeaderEffect[]): string[] {
  return effects.flatMap((effect) => (effect.type === "completeProduce" ? [`${effect.id}:${effect.error}`] : []));
}
