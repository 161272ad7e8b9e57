import type { AlterPartitionRequest, PartitionState } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import {
  alterPartition,
  createTopic,
  electUncleanly,
  EMPTY_CONTROLLER_STATE,
  fence,
  register,
  unfence,
} from "./controller-state.ts";
import type { ControllerState } from "./controller-state.ts";

function start(
  state: ControllerState,
  brokerId: number,
  more: { incarnationId?: string; bootId?: string; cleanEpoch?: number; isTailDurable?: boolean } = {},
): ControllerState {
  return register(state, {
    kind: "register",
    brokerId,
    incarnationId: more.incarnationId ?? `start-${brokerId}`,
    bootId: more.bootId ?? "boot-1",
    cleanShutdownBrokerEpoch: more.cleanEpoch ?? -1,
    isTailDurable: more.isTailDurable ?? false,
    host: "127.0.0.1",
    port: 9000 + brokerId,
  }).state;
}

/** Three brokers, one topic of one partition on all of them, led by 1 in epoch 0. */
function cluster(): ControllerState {
  const brokers = [1, 2, 3].reduce((state, brokerId) => start(state, brokerId), EMPTY_CONTROLLER_STATE);
  return createTopic(brokers, { name: "orders", topicId: "id", assignments: [[1, 2, 3]] });
}

function only(state: ControllerState): PartitionState {
  const [partition] = state.partitions;
  if (partition === undefined) throw new Error("there is a partition");
  return partition;
}

function view(state: ControllerState): string {
  const { leader, leaderEpoch, partitionEpoch, isr } = only(state);
  return `leader ${leader} epoch ${leaderEpoch}.${partitionEpoch} isr ${isr.join(",")}`;
}

function epochOf(state: ControllerState, brokerId: number): number {
  return state.brokers.find((broker) => broker.brokerId === brokerId)?.brokerEpoch ?? -1;
}

function alter(
  state: ControllerState,
  isr: readonly number[],
  more: Partial<AlterPartitionRequest> = {},
): AlterPartitionRequest {
  const { leader, leaderEpoch, partitionEpoch } = only(state);
  const newIsr = isr.map((brokerId) => ({ brokerId, brokerEpoch: epochOf(state, brokerId) }));
  return {
    kind: "alterPartition",
    brokerId: leader,
    brokerEpoch: epochOf(state, leader),
    topic: "orders",
    partition: 0,
    leaderEpoch,
    partitionEpoch,
    newIsr,
    ...more,
  };
}

describe("elections", () => {
  test("a new topic is led by the first replica, in epoch 0, with all replicas in the ISR", () => {
    expect(view(cluster())).toBe("leader 1 epoch 0.0 isr 1,2,3");
  });

  test("a topic made before its brokers waits for the first of them", () => {
    const waiting = createTopic(EMPTY_CONTROLLER_STATE, { name: "orders", topicId: "id", assignments: [[1, 2, 3]] });
    expect(view(waiting)).toBe("leader -1 epoch -1.-1 isr 1,2,3");
    expect(view(start(waiting, 2))).toBe("leader 2 epoch 0.0 isr 1,2,3");
  });

  test("a fenced leader leaves the ISR, and the next member in order leads in the next epoch", () => {
    expect(view(fence(cluster(), 1))).toBe("leader 2 epoch 1.1 isr 2,3");
  });

  test("a fenced follower leaves the ISR, the leader epoch stays", () => {
    expect(view(fence(cluster(), 3))).toBe("leader 1 epoch 0.1 isr 1,2");
  });

  test("the last ISR member stays in it, and nobody leads until it is back", () => {
    const alone = fence(fence(cluster(), 1), 2);
    expect(view(alone)).toBe("leader 3 epoch 2.2 isr 3");
    const leaderless = fence(alone, 3);
    expect(view(leaderless)).toBe("leader -1 epoch 3.3 isr 3");
    expect(view(unfence(leaderless, 1))).toBe("leader -1 epoch 3.4 isr 3");
    expect(view(unfence(leaderless, 3))).toBe("leader 3 epoch 4.5 isr 3");
  });

  test("a replica outside the ISR is never elected, unless by explicit choice", () => {
    let state = fence(fence(fence(cluster(), 1), 2), 3);
    state = unfence(unfence(state, 1), 2);
    expect(only(state).leader).toBe(-1);
    state = electUncleanly(state, { topic: "orders", partition: 0 }, 2);
    expect(view(state)).toBe("leader 2 epoch 4.6 isr 2");
    expect(electUncleanly(state, { topic: "orders", partition: 0 }, 3)).toBe(state);
    expect(electUncleanly(state, { topic: "orders", partition: 0 }, 9)).toBe(state);
  });

  test("fencing twice, or somebody unknown, changes nothing", () => {
    const state = fence(cluster(), 1);
    expect(fence(state, 1)).toBe(state);
    expect(fence(state, 7)).toBe(state);
    expect(unfence(state, 2)).toBe(state);
  });
});

describe("registration", () => {
  test("every start gets a higher broker epoch; the same start said again gets the same", () => {
    const state = cluster();
    expect([1, 2, 3].map((brokerId) => epochOf(state, brokerId))).toEqual([1, 2, 3]);
    expect(start(state, 2)).toBe(state);
    expect(epochOf(start(state, 2, { incarnationId: "second" }), 2)).toBe(4);
  });

  test("a leader whose process only died is led anew by another member, and is out of the ISR until it has caught up", () => {
    expect(view(start(cluster(), 1, { incarnationId: "second" }))).toBe("leader 2 epoch 1.1 isr 2,3");
  });

  test("the last member leads again after the death of its process, or a clean stop, in a new epoch", () => {
    const alone = fence(fence(fence(cluster(), 1), 2), 3);
    expect(view(start(alone, 3, { incarnationId: "second" }))).toBe("leader 3 epoch 4.4 isr 3");
    expect(view(start(alone, 3, { incarnationId: "second", bootId: "boot-2", cleanEpoch: epochOf(alone, 3) }))).toBe(
      "leader 3 epoch 4.4 isr 3",
    );
  });

  test("the last member that may have lost its tail is found out: the partition waits for an explicit choice", () => {
    const alone = fence(fence(fence(cluster(), 1), 2), 3);
    const back = start(alone, 3, { incarnationId: "second", bootId: "boot-2" });
    expect(view(back)).toBe("leader -1 epoch 3.4 isr ");
    expect(view(electUncleanly(back, { topic: "orders", partition: 0 }, 3))).toBe("leader 3 epoch 4.5 isr 3");
  });

  test.each([
    { before: true, now: true, view: "leader 3 epoch 4.4 isr 3" },
    { before: false, now: true, view: "leader -1 epoch 3.4 isr " },
    { before: true, now: false, view: "leader -1 epoch 3.4 isr " },
  ])(
    "the last member may lead again if it has all on its disk: its process before said $before, its next one $now",
    ({ before, now, view: expected }) => {
      const started = [1, 2, 3].reduce(
        (state, brokerId) => start(state, brokerId, { isTailDurable: before }),
        EMPTY_CONTROLLER_STATE,
      );
      const made = createTopic(started, { name: "orders", topicId: "id", assignments: [[1, 2, 3]] });
      const alone = fence(fence(fence(made, 1), 2), 3);
      const next = { incarnationId: "second", bootId: "boot-2", isTailDurable: now };
      expect(view(start(alone, 3, next))).toBe(expected);
    },
  );

  test("a machine that comes back before it was missed is taken out of the ISR before anybody is elected", () => {
    // 1 leads; its machine loses power and is back at once, faster than its session ended.
    expect(view(start(cluster(), 1, { incarnationId: "second", bootId: "boot-2" }))).toBe("leader 2 epoch 1.1 isr 2,3");
    // All three lose power: the first one back does not lead over what the others may hold.
    let state = cluster();
    for (const brokerId of [1, 2, 3]) state = start(state, brokerId, { incarnationId: "second", bootId: "boot-2" });
    expect(only(state).isr).toEqual([]);
    expect(only(state).leader).toBe(-1);
  });

  test("a stale clean epoch does not count as a clean stop", () => {
    const alone = fence(fence(fence(cluster(), 1), 2), 3);
    expect(only(start(alone, 3, { incarnationId: "second", bootId: "boot-2", cleanEpoch: 1 })).leader).toBe(-1);
  });
});

describe("alterPartition, first match wins", () => {
  test.each([
    ["STALE_BROKER_EPOCH", { brokerEpoch: 99 }],
    ["STALE_BROKER_EPOCH", { brokerEpoch: 0 }],
    ["STALE_BROKER_EPOCH", { brokerId: 9, brokerEpoch: 1 }],
    ["UNKNOWN_TOPIC_OR_PARTITION", { partition: 7 }],
    ["NOT_CONTROLLER", { leaderEpoch: 5 }],
    ["NOT_CONTROLLER", { partitionEpoch: 5 }],
    ["FENCED_LEADER_EPOCH", { leaderEpoch: 0 }],
    ["INVALID_UPDATE_VERSION", { partitionEpoch: 0 }],
  ] as const)("%s for %j", (error, more) => {
    const state = fence(cluster(), 1);
    const { answer, state: after } = alterPartition(state, alter(state, [2, 3], more));
    expect([answer.error, after === state]).toEqual([error, true]);
  });

  test("INVALID_REQUEST: not from the leader, not a subset of the replicas, doubled, or without the leader", () => {
    const state = cluster();
    const ask = (isr: readonly number[], more: Partial<AlterPartitionRequest> = {}): string =>
      alterPartition(state, alter(state, isr, more)).answer.error;
    expect(ask([1, 2], { brokerId: 2, brokerEpoch: epochOf(state, 2) })).toBe("INVALID_REQUEST");
    expect([ask([1, 9]), ask([1, 1]), ask([2, 3])]).toEqual(["INVALID_REQUEST", "INVALID_REQUEST", "INVALID_REQUEST"]);
  });

  test("INELIGIBLE_REPLICA: fenced, of another incarnation, or unknown", () => {
    const fenced = fence(cluster(), 3);
    expect(alterPartition(fenced, alter(fenced, [1, 2, 3])).answer.error).toBe("INELIGIBLE_REPLICA");
    const restarted = start(cluster(), 3, { incarnationId: "second" });
    const stale = alter(restarted, [1, 2, 3], {
      newIsr: [1, 2, 3].map((brokerId) => ({ brokerId, brokerEpoch: brokerId })),
    });
    expect(alterPartition(restarted, stale).answer.error).toBe("INELIGIBLE_REPLICA");
    const unstamped = alter(restarted, [], { newIsr: [1, 2, 3].map((brokerId) => ({ brokerId, brokerEpoch: -1 })) });
    expect(alterPartition(restarted, unstamped).answer.error).toBe("NONE");
  });

  test("a change that was refused because a member was fenced is refused when it comes again after the member is back", () => {
    const shrunk = fence(cluster(), 3);
    const late = alter(shrunk, [1, 2, 3]);
    expect(alterPartition(shrunk, late).answer.error).toBe("INELIGIBLE_REPLICA");
    const back = unfence(shrunk, 3);
    expect(alterPartition(back, late).answer.error).toBe("INVALID_UPDATE_VERSION");
    expect(alterPartition(back, alter(back, [1, 2, 3])).answer.error).toBe("NONE");
  });

  test("shrink and expand grow the partition epoch, not the leader epoch; the same ISR changes nothing", () => {
    const state = cluster();
    const shrunk = alterPartition(state, alter(state, [1, 2]));
    expect(shrunk.answer).toEqual({
      kind: "alterPartition",
      error: "NONE",
      leaderEpoch: 0,
      partitionEpoch: 1,
      isr: [1, 2],
    });
    const expanded = alterPartition(shrunk.state, alter(shrunk.state, [3, 1, 2]));
    expect(view(expanded.state)).toBe("leader 1 epoch 0.2 isr 1,2,3");
    const same = alterPartition(expanded.state, alter(expanded.state, [2, 1, 3]));
    expect([same.state === expanded.state, same.answer.partitionEpoch]).toEqual([true, 2]);
  });

  test("each change has a number of its own, so that a broker can ask for what it missed", () => {
    const state = cluster();
    const after = fence(state, 1);
    expect(after.number).toBeGreaterThan(state.number);
    expect(only(after).number).toBeGreaterThan(state.number);
    expect(only(after).number).toBeLessThanOrEqual(after.number);
  });
});
