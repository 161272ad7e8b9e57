import { toOffset } from "@tidemark/base";
import type { BrokerState, IsrMember, PartitionState, PeerErrorCode } from "@tidemark/wire";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { maximalIsr } from "./isr-state.ts";
import { LeaderState } from "./leader-state.ts";
import type { LeaderEffect, LeaderInput, LeaderStart, ReplicaConfig } from "./leader-state.ts";
import { broker, byId, partitionState } from "./leader.fixture.ts";

const LAG_MS = 100;
const RUNS = 150;

/** A step as numbers: what they mean depends on where the history has come to. */
const draws = fc.record({
  kind: fc.nat(999),
  replica: fc.integer({ min: 2, max: 4 }),
  a: fc.nat(99),
  b: fc.nat(99),
});
type Draws = typeof draws extends fc.Arbitrary<infer T> ? T : never;
const config: fc.Arbitrary<ReplicaConfig> = fc.record({
  replicaLagTimeMaxMs: fc.constant(LAG_MS),
  minInsyncReplicas: fc.integer({ min: 1, max: 4 }),
  countsFlushedEnds: fc.boolean(),
});

const ERRORS: readonly PeerErrorCode[] = [
  "INELIGIBLE_REPLICA",
  "OPERATION_NOT_ATTEMPTED",
  "INVALID_UPDATE_VERSION",
  "NETWORK_EXCEPTION",
  "FENCED_LEADER_EPOCH",
  "NOT_CONTROLLER",
];

interface LogEnds {
  logStartOffset: number;
  logEndOffset: number;
  flushedEndOffset: number;
}

function startOf(config: ReplicaConfig, isr: readonly number[], ends: LogEnds): LeaderStart {
  return {
    localId: 1,
    localBrokerEpoch: 101,
    state: partitionState({ replicas: [1, 2, 3], isr, partitionEpoch: 1 }),
    epochStartOffset: toOffset(ends.logEndOffset),
    logStartOffset: toOffset(ends.logStartOffset),
    logEndOffset: toOffset(ends.logEndOffset),
    flushedEndOffset: toOffset(ends.flushedEndOffset),
    highWatermark: 0,
    nowMs: 0,
    config,
    brokers: byId([broker(1), broker(2), broker(3)]),
  };
}

/** max(current, min over what counts), said anew from what the leader shows of itself. */
function expectedHighWatermark(leader: LeaderState, current: number, world: World): number {
  const { config, nowMs, brokers } = world;
  if (leader.isr.length < Math.min(config.minInsyncReplicas, leader.assignment.length)) return current;
  const maximal = maximalIsr(leader.isrState);
  const counted: (number | undefined)[] = [
    config.countsFlushedEnds ? world.ends.flushedEndOffset : world.ends.logEndOffset,
  ];
  for (const replica of leader.replicas) {
    const state = brokers.get(replica.brokerId);
    const isCaughtUp = replica.logEndOffset === world.ends.logEndOffset || nowMs - replica.lastCaughtUpMs <= LAG_MS;
    const isRegistered = replica.brokerEpoch === -1 || replica.brokerEpoch === state?.brokerEpoch;
    const isJoining = isCaughtUp && isRegistered && state !== undefined && !state.isFenced;
    if (!maximal.includes(replica.brokerId) && !isJoining) continue;
    counted.push(config.countsFlushedEnds ? replica.flushedEndOffset : replica.logEndOffset);
  }
  const known = counted.filter((end) => end !== undefined);
  return known.length < counted.length ? current : Math.max(current, Math.min(...known));
}

interface World {
  readonly config: ReplicaConfig;
  ends: LogEnds;
  nowMs: number;
  brokers: ReadonlyMap<number, BrokerState>;
  nextId: number;
  /** Ids that wait, with their last offset. */
  waiting: Map<number, number>;
  lastProposal: number;
}

/** The next input: mostly sensible, the controller's part as senseless as a peer can be. */
function inputOf({ kind, replica, a, b }: Draws, leader: LeaderState, world: World): LeaderInput {
  const { ends } = world;
  if (kind < 200) {
    ends.logEndOffset += a % 5;
    ends.flushedEndOffset = Math.max(ends.flushedEndOffset, ends.logEndOffset - (b % 4));
    if (a > 90) ends.logStartOffset = Math.max(ends.logStartOffset, ends.logEndOffset - (b % 9));
    return {
      type: "logMoved",
      logStartOffset: toOffset(ends.logStartOffset),
      logEndOffset: toOffset(ends.logEndOffset),
      flushedEndOffset: toOffset(ends.flushedEndOffset),
    };
  }
  if (kind < 550) {
    world.nowMs += a % 8;
    const fetchOffset = Math.max(0, ends.logEndOffset - (b % 10 < 5 ? 0 : b % 7));
    const brokerEpoch =
      a % 20 === 0 ? -1 : (world.brokers.get(replica)?.brokerEpoch ?? 100 + replica) + (a === 33 ? -1 : 0);
    const flushedEndOffset = b === 99 ? -1 : fetchOffset - (b % 3) + (b === 98 ? 9 : 0);
    return {
      type: "fetched",
      replicaId: replica,
      brokerEpoch,
      fetchOffset: toOffset(fetchOffset),
      flushedEndOffset,
      logStartOffset: 0,
      leaderEndOffset: toOffset(ends.logEndOffset),
      nowMs: world.nowMs,
    };
  }
  if (kind < 650) {
    const lastOffset = Math.max(0, ends.logEndOffset - 1 - (a % 4));
    world.nextId += 1;
    world.waiting.set(world.nextId, lastOffset);
    return { type: "produced", id: world.nextId, lastOffset: toOffset(lastOffset) };
  }
  if (kind < 680) {
    const id = world.nextId - (a % 6);
    world.waiting.delete(id);
    return { type: "abandon", id };
  }
  const isr = [[1], [1, 2], [1, 3], [1, 2, 3], [2, 3], [1, 4], [2, 1]][b % 7] ?? [1];
  if (kind < 820) {
    const error = a % 10 < 5 ? "NONE" : (ERRORS[a % ERRORS.length] ?? "NONE");
    const partitionEpoch = leader.partitionEpoch + ((b >> 3) % 4) - 1;
    return {
      type: "alterPartitionAnswer",
      proposal: world.lastProposal - (a === 77 ? 1 : 0),
      error,
      leaderEpoch: a === 55 ? 4 : 5,
      partitionEpoch,
      isr,
    };
  }
  if (kind < 880) {
    const replicas = a % 9 === 0 ? [3, 1, 4, 2] : [1, 2, 3];
    const partitionEpoch = leader.partitionEpoch + (a % 3) - 1;
    return { type: "partitionState", state: partitionState({ replicas, isr, partitionEpoch }), nowMs: world.nowMs };
  }
  if (kind < 930) {
    const known = [...world.brokers.values()].filter(({ brokerId }) => brokerId !== replica);
    const brokerEpoch = 100 + replica + (a % 10 === 0 ? b : 0);
    if (a % 4 !== 3) known.push(broker(replica, { isFenced: a % 4 === 0, brokerEpoch }));
    world.brokers = byId(known);
    return { type: "brokers", brokers: world.brokers };
  }
  world.nowMs += a * 2;
  return { type: "tick", nowMs: world.nowMs };
}

/** What must hold after every step, whatever the controller and the replicas say. */
function checkStep(
  leader: LeaderState,
  effects: readonly LeaderEffect[],
  before: { highWatermark: number },
  world: World,
): void {
  const { ends } = world;
  const { highWatermark, isr } = leader;
  expect(highWatermark).toBe(expectedHighWatermark(leader, Math.max(before.highWatermark, ends.logStartOffset), world));
  expect(highWatermark).toBeGreaterThanOrEqual(before.highWatermark);
  expect(highWatermark).toBeGreaterThanOrEqual(ends.logStartOffset);
  expect(highWatermark).toBeLessThanOrEqual(ends.logEndOffset);
  expect(isr).toContain(1);
  expect(new Set(isr).size).toBe(isr.length);
  const moves = effects.filter((effect) => effect.type === "highWatermark");
  expect(moves.map(({ offset }) => Number(offset))).toEqual(
    highWatermark === before.highWatermark ? [] : [highWatermark],
  );

  const requests = effects.filter((effect) => effect.type === "alterPartition");
  expect(requests.length).toBeLessThanOrEqual(1);
  for (const request of requests) {
    expect(request.proposal).toBe(leader.pendingProposal);
    expect(request.proposal).toBeGreaterThanOrEqual(world.lastProposal);
    expect(request.newIsr.map(({ brokerId }) => brokerId)).toContain(1);
    world.lastProposal = request.proposal;
  }
  expect(leader.pendingProposal === undefined).toBe(leader.isrState.type === "committed");
  checkCompletions(leader, effects, world);
}

function checkCompletions(leader: LeaderState, effects: readonly LeaderEffect[], world: World): void {
  const isEnough = maximalIsr(leader.isrState).length >= leader.effectiveMinIsr;
  for (const effect of effects) {
    if (effect.type !== "completeProduce") continue;
    const lastOffset = world.waiting.get(effect.id) ?? Number.NaN;
    expect(world.waiting.delete(effect.id), `produce ${effect.id} waited`).toBe(true);
    expect(lastOffset).toBeLessThan(leader.highWatermark);
    expect(effect.error).toBe(isEnough ? "NONE" : "NOT_ENOUGH_REPLICAS_AFTER_APPEND");
  }
  for (const lastOffset of world.waiting.values()) expect(lastOffset).toBeGreaterThanOrEqual(leader.highWatermark);
  expect(leader.waitingProduceCount).toBe(world.waiting.size);
}

test(`${RUNS} histories of any inputs: the high watermark, the ISR and every produce are what the rules say, twice alike`, () => {
  const isrs = fc.constantFrom([1], [1, 2], [1, 2, 3]);
  fc.assert(
    fc.property(config, isrs, fc.array(draws, { minLength: 30, maxLength: 120 }), (config, isr, steps) => {
      const ends = { logStartOffset: 0, logEndOffset: 4, flushedEndOffset: 4 };
      const brokers = startOf(config, isr, ends).brokers;
      const world: World = { config, ends, nowMs: 0, brokers, nextId: 0, waiting: new Map(), lastProposal: 0 };
      const leader = new LeaderState(startOf(config, isr, ends));
      const twin = new LeaderState(startOf(config, isr, ends));
      for (const step of steps) {
        const before = { highWatermark: leader.highWatermark };
        const input = inputOf(step, leader, world);
        const [effects, twinEffects]: [LeaderEffect[], LeaderEffect[]] = [[], []];
        leader.step(input, effects);
        twin.step(input, twinEffects);
        checkStep(leader, effects, before, world);
        expect(twinEffects).toEqual(effects);
        expect(twin.digest()).toBe(leader.digest());
      }
      const effects: LeaderEffect[] = [];
      leader.abandonAll("NOT_LEADER_OR_FOLLOWER", effects);
      const ended = effects.map((effect) => (effect.type === "completeProduce" ? effect.id : -1));
      expect(ended.sort((left, right) => left - right)).toEqual([...world.waiting.keys()]);
    }),
    { numRuns: RUNS },
  );
});

interface Attempt {
  readonly proposal: number;
  readonly partitionEpoch: number;
  readonly newIsr: readonly IsrMember[];
}

/** The controller's side of section 2.5, and a network that loses, doubles, delays and reorders what goes there and back. */
class Controller {
  state: PartitionState;
  brokers: Map<number, BrokerState>;
  #nextBrokerEpoch = 1000;
  /** On the way here; every one may arrive again later. */
  readonly attempts: Attempt[] = [];
  readonly states: PartitionState[] = [];

  constructor(state: PartitionState, brokers: ReadonlyMap<number, BrokerState>) {
    this.state = state;
    this.brokers = new Map(brokers);
  }

  handle(attempt: Attempt): { error: PeerErrorCode; partitionEpoch: number; isr: readonly number[] } {
    const { partitionEpoch } = this.state;
    if (attempt.partitionEpoch > partitionEpoch) throw new Error("The leader is ahead of the controller.");
    if (attempt.partitionEpoch < partitionEpoch)
      return { error: "INVALID_UPDATE_VERSION", partitionEpoch: -1, isr: [] };
    const isEligible = attempt.newIsr.every(({ brokerId, brokerEpoch }) => {
      const state = this.brokers.get(brokerId);
      return state !== undefined && !state.isFenced && (brokerEpoch === -1 || brokerEpoch === state.brokerEpoch);
    });
    if (!isEligible) return { error: "INELIGIBLE_REPLICA", partitionEpoch: -1, isr: [] };
    this.#change(attempt.newIsr.map(({ brokerId }) => brokerId));
    return { error: "NONE", partitionEpoch: this.state.partitionEpoch, isr: this.state.isr };
  }

  /** Fenced brokers leave the ISR; one that comes back registers anew, so that a stamp once refused stays refused. */
  setFenced(brokerId: number, isFenced: boolean): void {
    const known = this.brokers.get(brokerId);
    if (known === undefined || known.isFenced === isFenced) return;
    this.#nextBrokerEpoch += 1;
    const brokerEpoch = isFenced ? known.brokerEpoch : this.#nextBrokerEpoch;
    this.brokers.set(brokerId, { ...known, isFenced, brokerEpoch });
    if (isFenced && this.state.isr.includes(brokerId)) this.#change(this.state.isr.filter((id) => id !== brokerId));
  }

  #change(isr: readonly number[]): void {
    this.state = { ...this.state, isr, partitionEpoch: this.state.partitionEpoch + 1, number: this.state.number + 1 };
    this.states.push(this.state);
  }
}

describe("with a controller behind a bad network", () => {
  /** One history; the leader's view of the ISR is held to the controller's after each step. */
  function run(config: ReplicaConfig, steps: readonly Draws[]): { changes: number } {
    const ends = { logStartOffset: 0, logEndOffset: 4, flushedEndOffset: 4 };
    const start = startOf(config, [1, 2, 3], ends);
    const controller = new Controller(start.state, start.brokers);
    const leader = new LeaderState(start);
    /** What each replica really has, synced; only ever more of it in this history. */
    const held = new Map([
      [2, 0],
      [3, 0],
    ]);
    const answers: (LeaderInput & { type: "alterPartitionAnswer" })[] = [];
    /** One answer is owed for each request. */
    const owed: Attempt[] = [];
    let nowMs = 0;
    const step = (input: LeaderInput): void => {
      const effects: LeaderEffect[] = [];
      leader.step(input, effects);
      for (const effect of effects) {
        if (effect.type !== "alterPartition") continue;
        owed.push(effect);
        controller.attempts.push(effect);
      }
    };
    const answer = (attempt: Attempt, error: PeerErrorCode, partitionEpoch: number, isr: readonly number[]): void => {
      if (!owed.includes(attempt)) return;
      owed.splice(owed.indexOf(attempt), 1);
      const leaderEpoch = error === "NONE" ? 5 : -1;
      answers.push({
        type: "alterPartitionAnswer",
        proposal: attempt.proposal,
        error,
        leaderEpoch,
        partitionEpoch,
        isr,
      });
    };
    const pick = <T>(items: readonly T[], draw: number): T | undefined => items[draw % Math.max(items.length, 1)];
    for (const { kind, replica, a, b } of steps) {
      const brokerId = 2 + (replica % 2);
      nowMs += a % 10;
      if (kind < 150) {
        ends.logEndOffset += 1 + (a % 3);
        ends.flushedEndOffset = ends.logEndOffset;
        step({
          type: "logMoved",
          logStartOffset: toOffset(0),
          logEndOffset: toOffset(ends.logEndOffset),
          flushedEndOffset: toOffset(ends.flushedEndOffset),
        });
      } else if (kind < 450) {
        const has = Math.min(ends.logEndOffset, Math.max(held.get(brokerId) ?? 0, ends.logEndOffset - (b % 4)));
        held.set(brokerId, has);
        step({
          type: "fetched",
          replicaId: brokerId,
          brokerEpoch: controller.brokers.get(brokerId)?.brokerEpoch ?? -1,
          fetchOffset: toOffset(has),
          flushedEndOffset: has,
          logStartOffset: 0,
          leaderEndOffset: toOffset(ends.logEndOffset),
          nowMs,
        });
      } else if (kind < 600) {
        const attempt = pick(controller.attempts, b);
        if (attempt !== undefined) {
          const { error, partitionEpoch, isr } = controller.handle(attempt);
          if (a % 3 !== 0) answer(attempt, error, partitionEpoch, isr);
        }
      } else if (kind < 650) {
        const attempt = pick(owed, b);
        if (attempt !== undefined) answer(attempt, a % 4 === 0 ? "NOT_CONTROLLER" : "NETWORK_EXCEPTION", -1, []);
      } else if (kind < 750) {
        const next = pick(answers, b);
        if (next !== undefined) step(answers.splice(answers.indexOf(next), 1)[0] ?? next);
      } else if (kind < 850) {
        const state = pick(controller.states, b);
        if (state !== undefined) step({ type: "partitionState", state, nowMs });
      } else if (kind < 900) {
        step({ type: "brokers", brokers: new Map(controller.brokers) });
      } else if (kind < 950) {
        controller.setFenced(brokerId, a % 2 === 0);
      } else {
        nowMs += b * 3;
        step({ type: "tick", nowMs });
      }
      const maximal = maximalIsr(leader.isrState);
      expect(maximal, "INV-19 the maximal ISR has the controller's in it").toEqual(
        expect.arrayContaining([...controller.state.isr]),
      );
      for (const id of controller.state.isr) {
        const end = id === 1 ? ends.logEndOffset : (held.get(id) ?? 0);
        expect(leader.highWatermark, `INV-12 broker ${id} of the ISR has all below HW`).toBeLessThanOrEqual(end);
      }
    }
    return { changes: controller.states.length };
  }

  test("INV-12 INV-19 nobody is in the controller's ISR whom the leader does not count, and all of it has what is below HW", () => {
    let changes = 0;
    fc.assert(
      fc.property(config, fc.array(draws, { minLength: 60, maxLength: 200 }), (config, steps) => {
        changes += run(config, steps).changes;
      }),
      { numRuns: RUNS },
    );
    // Otherwise the histories prove nothing.
    expect(changes).toBeGreaterThan(RUNS);
  });
});
