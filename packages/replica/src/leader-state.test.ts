import { describe, expect, test } from "vitest";
import { isIsrOf, maximalIsr, proposedIsr } from "./isr-state.ts";
import { canLead } from "./leader-state.ts";
import { broker, Leader, partitionState, proposed } from "./leader.fixture.ts";
import { NEVER_MS } from "./replica-state.ts";

// Ids IS-… are the conformance table's; those of the shell and the controller's queue stand elsewhere: docs/conformance.md.

describe("what is known of a replica", () => {
  test("IS-01 IS-02 nothing at first; then its end, and the time when it had what the leader had", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 6 });
    expect(leader.replica(2)).toMatchObject({ logStartOffset: undefined, logEndOffset: undefined, lastCaughtUpMs: 0 });
    leader.fetch(2, 3, { atMs: 500 });
    expect(leader.replica(2)).toMatchObject({ logStartOffset: 0, logEndOffset: 3, lastCaughtUpMs: 0 });
    leader.fetch(2, 6, { atMs: 1000 });
    expect(leader.replica(2)).toMatchObject({ logEndOffset: 6, lastCaughtUpMs: 1000, lastFetchLeaderEndOffset: 6 });
  });

  test("IS-01 one outside the ISR was never caught up, also when the clock starts at 0", () => {
    expect(new Leader({ isr: [1, 2] }).replica(3)?.lastCaughtUpMs).toBe(NEVER_MS);
  });

  test("IS-03 a fetch that reaches the leader's end of the fetch before counts as caught up at that time", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10, lagMs: 10_000 });
    leader.fetch(2, 5, { atMs: 5000 });
    leader.append(15);
    leader.fetch(2, 10, { atMs: 10_001 });
    expect(leader.replica(2)?.lastCaughtUpMs).toBe(5000);
    expect(proposed(leader.tick(10_001))).toBeUndefined();
  });

  test("an append beside the read does not make a replica look behind", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 12 });
    leader.fetch(2, 10, { atMs: 700, leaderEndOffset: 10 });
    expect(leader.replica(2)?.lastCaughtUpMs).toBe(700);
  });

  test("the leader's end of the fetch before never falls, whatever order fetches are told in", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 20 });
    leader.fetch(2, 5, { atMs: 100, leaderEndOffset: 20 });
    leader.fetch(2, 5, { atMs: 200, leaderEndOffset: 10 });
    leader.fetch(2, 12, { atMs: 300, leaderEndOffset: 20 });
    expect(leader.replica(2)).toMatchObject({ lastFetchLeaderEndOffset: 20, lastCaughtUpMs: 0, lastFetchMs: 300 });
  });

  test("IS-28 BR-036 a fetch that was refused leaves everything as it was", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10 });
    leader.fetch(2, 4);
    const before = leader.state.digest();
    // A diverging or failed read is not told at all; these two are refused here as well.
    expect(leader.fetch(2, 9, { brokerEpoch: 101 })).toEqual([]);
    expect(leader.fetch(3, 9)).toEqual([]);
    expect(leader.state.digest()).toBe(before);
  });

  test("IS-32 the replica is deleted while its fetch is read", () => {
    const leader = new Leader({ isr: [1, 2], logEndOffset: 10 });
    leader.metadata({ replicas: [1, 2], isr: [1, 2], partitionEpoch: 2 });
    expect(leader.fetch(3, 10)).toEqual([]);
    expect(leader.replica(3)).toBeUndefined();
  });
});

describe("leaving", () => {
  test("IS-04 IS-05 at the leader's end it stays, however long silent; one more record and it is out", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10 });
    leader.fetch(2, 10);
    expect(leader.tick(30_001)).toEqual([]);
    leader.append(11);
    expect(proposed(leader.tick(30_001))).toBe("1@101");
    expect(leader.state.isrState).toEqual({ type: "pendingShrink", isr: [1, 2], removing: [2] });
  });

  test("IS-06 a stuck one is in at the lag limit and out above it", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10, lagMs: 100 });
    leader.fetch(2, 9);
    expect(leader.tick(100)).toEqual([]);
    expect(proposed(leader.tick(101))).toBe("1@101");
  });

  test("IS-07 one that never fetched has the lag limit from the beginning of the leadership", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10, lagMs: 100, nowMs: 50 });
    expect(leader.tick(150)).toEqual([]);
    expect(proposed(leader.tick(151))).toBe("1@101");
  });

  test("IS-08 a slow one, never at the leader's end, leaves; back at the end it would not", () => {
    const slow = (): Leader => {
      const leader = new Leader({ replicas: [1, 2], logEndOffset: 10, lagMs: 100 });
      leader.fetch(2, 8, { atMs: 0 });
      leader.fetch(2, 9, { atMs: 75 });
      expect(leader.tick(75)).toEqual([]);
      return leader;
    };
    expect(proposed(slow().tick(150))).toBe("1@101");
    const recovered = slow();
    recovered.fetch(2, 10, { atMs: 150 });
    expect(recovered.tick(150)).toEqual([]);
  });

  test("all that are out of sync leave in one change; the leader never does", () => {
    const leader = new Leader({ replicas: [1, 2, 3, 4], logEndOffset: 10, lagMs: 100 });
    leader.fetch(3, 10);
    leader.append(11);
    leader.fetch(3, 11, { atMs: 101 });
    expect(proposed(leader.tick(101))).toBe("1@101 3@103");
  });

  test("IS-21 nothing is proposed while a change is pending", () => {
    const leader = new Leader({ isr: [1, 2], logEndOffset: 10, epochStartOffset: 0, lagMs: 100 });
    expect(proposed(leader.fetch(3, 10))).toBe("1@101 2@-1 3@103");
    leader.append(20);
    expect(leader.tick(1000)).toEqual([]);
    expect(proposed(leader.fetch(2, 20))).toBeUndefined();
  });

  test("IS-22 metadata ends a pending shrink; the next one is refused unsent and can be made again", () => {
    const leader = new Leader({ logEndOffset: 10, lagMs: 100 });
    leader.fetch(2, 10);
    expect(proposed(leader.tick(101))).toBe("1@101 2@102");
    const first = leader.state.pendingProposal ?? 0;
    leader.metadata({ isr: [1, 2, 3], partitionEpoch: 2 });
    expect(leader.state.isrState.type).toBe("committed");
    expect(proposed(leader.tick(102))).toBe("1@101 2@102");
    leader.answer("OPERATION_NOT_ATTEMPTED");
    expect(leader.state.isrState.type).toBe("committed");
    expect(leader.answer("NONE", { proposal: first, isr: [1, 2], partitionEpoch: 3 })).toEqual([]);
    expect(leader.state.partitionEpoch).toBe(2);
    const [effect] = leader.tick(103);
    expect(effect).toMatchObject({ type: "alterPartition", proposal: first + 2, partitionEpoch: 2 });
  });
});

describe("joining", () => {
  test("IS-09 IS-10 at the high watermark it is proposed; it is in when the controller says so", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1], logEndOffset: 10, epochStartOffset: 0 });
    expect(leader.fetch(2, 3)).toEqual([]);
    const [effect] = leader.fetch(2, 10);
    expect(effect).toEqual({
      type: "alterPartition",
      proposal: 1,
      newIsr: [
        { brokerId: 1, brokerEpoch: 101 },
        { brokerId: 2, brokerEpoch: 102 },
      ],
      leaderEpoch: 5,
      partitionEpoch: 1,
      retryAfterMs: 0,
    });
    expect(leader.isr).toEqual([1]);
    expect(leader.maximalIsr).toEqual([1, 2]);
    expect(leader.answer("NONE", { isr: [1, 2], partitionEpoch: 2 })).toEqual([{ type: "isrChanged", isr: [1, 2] }]);
    expect(leader.isr).toEqual([1, 2]);
    expect(leader.state.partitionEpoch).toBe(2);
    expect(leader.state.pendingProposal).toBeUndefined();
  });

  test("IS-11 IS-12 BR-037 above the high watermark but below the start of the epoch it does not join", () => {
    const leader = new Leader({ isr: [1, 2], logEndOffset: 5, highWatermark: 1, epochStartOffset: 5 });
    leader.append(7);
    for (const fetchOffset of [0, 1, 4]) expect(proposed(leader.fetch(3, fetchOffset))).toBeUndefined();
    expect(proposed(leader.fetch(3, 5))).toBe("1@101 2@-1 3@103");
  });

  test("below the high watermark it does not join, though in the epoch", () => {
    const leader = new Leader({ isr: [1, 2], logEndOffset: 10, epochStartOffset: 0, highWatermark: 8 });
    expect(proposed(leader.fetch(3, 7))).toBeUndefined();
    expect(proposed(leader.fetch(3, 8))).toBe("1@101 2@-1 3@103");
  });

  test("IS-16 one that is fenced in metadata does not; unfenced, its next fetch proposes it", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1], brokers: [broker(1), broker(2, { isFenced: true })] });
    expect(leader.fetch(2, 0)).toEqual([]);
    expect(leader.brokers(broker(1), broker(2))).toEqual([]);
    expect(proposed(leader.fetch(2, 0))).toBe("1@101 2@102");
  });

  test("IS-16 nor does one that the controller does not know as alive", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1], brokers: [broker(1)] });
    expect(leader.fetch(2, 0)).toEqual([]);
  });

  test("IS-17 a fetch of the process before the registered one does not make it eligible, the next one does", () => {
    const leader = new Leader({
      replicas: [1, 2],
      isr: [1],
      logEndOffset: 10,
      brokers: [broker(1), broker(2, { brokerEpoch: 100 })],
    });
    leader.fetch(2, 9, { brokerEpoch: 100 });
    leader.brokers(broker(1), broker(2, { brokerEpoch: 101 }));
    expect(leader.replica(2)?.brokerEpoch).toBe(100);
    expect(leader.append(12)).toEqual([{ type: "highWatermark", offset: 12 }]);
    expect(proposed(leader.fetch(2, 12, { brokerEpoch: 101 }))).toBe("1@101 2@101");
  });

  test("IS-17 a fetch of a process younger than the one metadata knows waits for the metadata", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1], brokers: [broker(1), broker(2, { brokerEpoch: 100 })] });
    expect(leader.fetch(2, 0, { brokerEpoch: 101 })).toEqual([]);
    leader.brokers(broker(1), broker(2, { brokerEpoch: 101 }));
    expect(proposed(leader.fetch(2, 0, { brokerEpoch: 101 }))).toBe("1@101 2@101");
  });

  test("IS-18 members are stamped with the epoch of their last fetch, the leader with its own, others with -1", () => {
    const leader = new Leader({ isr: [1, 3], logEndOffset: 0 });
    expect(proposed(leader.fetch(2, 0))).toBe("1@101 3@-1 2@102");
  });

  test("the leader's own stamp is the latest epoch it has heard of", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1] });
    leader.brokers(broker(1, { brokerEpoch: 300 }), broker(2));
    leader.brokers(broker(1, { brokerEpoch: 200 }), broker(2));
    expect(proposed(leader.fetch(2, 0))).toBe("1@300 2@102");
  });

  test("IS-20 a fetch that does not tell its broker epoch is accepted, and may join", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1] });
    expect(leader.state.judgeFetch({ replicaId: 2, brokerEpoch: -1, hasLeaderEpoch: true })).toBe("NONE");
    expect(proposed(leader.fetch(2, 0, { brokerEpoch: -1 }))).toBe("1@101 2@-1");
  });
});

describe("who may fetch", () => {
  const judge = (leader: Leader, replicaId: number, brokerEpoch: number, hasLeaderEpoch = true) =>
    leader.state.judgeFetch({ replicaId, brokerEpoch, hasLeaderEpoch });

  test("consumers and replicas of the partition; no other broker, and not the leader itself", () => {
    const leader = new Leader({ replicas: [1, 2] });
    expect(judge(leader, -1, -1, false)).toBe("NONE");
    expect(judge(leader, 2, 102)).toBe("NONE");
    expect(judge(leader, 3, 103)).toBe("NOT_LEADER_OR_FOLLOWER");
    expect(judge(leader, 1, 101)).toBe("NOT_LEADER_OR_FOLLOWER");
  });

  test("a replica that does not say which leader epoch it follows is refused", () => {
    expect(judge(new Leader(), 2, 102, false)).toBe("INVALID_REQUEST");
  });

  test("IS-19 not a process that a registration has replaced", () => {
    const leader = new Leader({ replicas: [1, 2], brokers: [broker(1), broker(2, { brokerEpoch: 101 })] });
    expect(judge(leader, 2, 100)).toBe("NOT_LEADER_OR_FOLLOWER");
    expect(judge(leader, 2, 101)).toBe("NONE");
    expect(judge(leader, 2, 102)).toBe("NONE");
  });

  test("IS-19 nor one whose successor has fetched already, before the controller tells of it", () => {
    const leader = new Leader({
      replicas: [1, 2],
      logEndOffset: 10,
      brokers: [broker(1), broker(2, { brokerEpoch: 100 })],
    });
    leader.fetch(2, 5, { brokerEpoch: 101 });
    expect(judge(leader, 2, 100)).toBe("NOT_LEADER_OR_FOLLOWER");
    // A late fetch of the process that had more, and may have lost it.
    leader.fetch(2, 9, { brokerEpoch: 100 });
    expect(leader.highWatermark).toBe(5);
  });

  test("without metadata about the broker nobody is fenced", () => {
    expect(judge(new Leader({ replicas: [1, 2], brokers: [] }), 2, 1)).toBe("NONE");
  });
});

describe("the controller's answer", () => {
  /** ISR {1}, broker 2 proposed at partition epoch 4. */
  function expanding(): Leader {
    const leader = new Leader({ replicas: [1, 2], isr: [1], partitionEpoch: 4, logEndOffset: 10 });
    leader.fetch(2, 10);
    expect(leader.state.isrState).toEqual({ type: "pendingExpand", isr: [1], adding: 2 });
    return leader;
  }

  test.each([
    "INVALID_REQUEST",
    "INVALID_UPDATE_VERSION",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "NEW_LEADER_ELECTED",
    "FENCED_LEADER_EPOCH",
  ] as const)("IS-13 %s: it stays pending, without another try, until metadata tells", (error) => {
    const leader = expanding();
    expect(leader.answer(error)).toEqual([]);
    expect([leader.isr, leader.maximalIsr]).toEqual([[1], [1, 2]]);
    expect(leader.tick(100_000)).toEqual([]);
    expect(leader.fetch(2, 10)).toEqual([]);
    expect(leader.metadata({ isr: [1, 2], partitionEpoch: 5 })).toEqual([{ type: "isrChanged", isr: [1, 2] }]);
    expect(leader.state.isrState).toEqual({ type: "committed", isr: [1, 2] });
  });

  test.each(["INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED"] as const)(
    "IS-14 IS-31 %s: surely not applied, so back to the committed ISR; the next fetch proposes again",
    (error) => {
      const leader = expanding();
      expect(leader.answer(error)).toEqual([]);
      expect(leader.state.isrState).toEqual({ type: "committed", isr: [1] });
      expect(proposed(leader.fetch(2, 10))).toBe("1@101 2@102");
    },
  );

  test.each([
    "UNKNOWN_SERVER_ERROR",
    "NETWORK_EXCEPTION",
    "NOT_CONTROLLER",
    "STALE_BROKER_EPOCH",
    "REQUEST_TIMED_OUT",
  ] as const)("IS-15 IS-29 IS-30 %s: the same proposal again", (error) => {
    const leader = expanding();
    const state = leader.state.isrState;
    const [again] = leader.answer(error);
    expect(again).toMatchObject({ type: "alterPartition", proposal: 1, partitionEpoch: 4, retryAfterMs: 50 });
    expect(leader.state.isrState).toEqual(state);
    leader.answer("NONE", { isr: [1, 2] });
    expect(leader.isr).toEqual([1, 2]);
  });

  test("IS-15 a retry keeps its stamps, and waits longer each time, up to a second", () => {
    const leader = expanding();
    leader.fetch(2, 10, { brokerEpoch: 500 });
    const waits = Array.from({ length: 8 }, () => {
      const effects = leader.answer("NETWORK_EXCEPTION");
      expect(proposed(effects)).toBe("1@101 2@102");
      return effects.map((effect) => (effect.type === "alterPartition" ? effect.retryAfterMs : -1));
    });
    expect(waits.flat()).toEqual([50, 100, 200, 400, 800, 1000, 1000, 1000]);
  });

  test("a retry that was not sent decides nothing about the attempt before it", () => {
    const leader = expanding();
    leader.answer("NETWORK_EXCEPTION");
    expect(proposed(leader.answer("OPERATION_NOT_ATTEMPTED"))).toBe("1@101 2@102");
    expect(leader.maximalIsr).toEqual([1, 2]);
  });

  test("only an answer that is waited for counts", () => {
    const leader = expanding();
    leader.answer("INVALID_UPDATE_VERSION");
    expect(leader.answer("NETWORK_EXCEPTION")).toEqual([]);
    expect(leader.answer("INELIGIBLE_REPLICA")).toEqual([]);
    expect(leader.maximalIsr).toEqual([1, 2]);
  });

  test("IS-23 success with a lower partition epoch is ignored, it stays pending", () => {
    const leader = expanding();
    expect(leader.answer("NONE", { isr: [1, 2], partitionEpoch: 3 })).toEqual([]);
    expect([leader.isr, leader.maximalIsr, leader.state.partitionEpoch]).toEqual([[1], [1, 2], 4]);
  });

  test.each([4, 6])(
    "IS-24 success of leader epoch %i is ignored by the leader of epoch 5, it stays pending",
    (leaderEpoch) => {
      const leader = expanding();
      expect(leader.answer("NONE", { isr: [1, 2], leaderEpoch })).toEqual([]);
      expect([leader.isr, leader.maximalIsr]).toEqual([[1], [1, 2]]);
    },
  );

  test("IS-34 success with the known partition epoch is the ISR that holds", () => {
    const leader = expanding();
    leader.answer("NONE", { isr: [1], partitionEpoch: 4 });
    expect(leader.state.isrState).toEqual({ type: "committed", isr: [1] });
    expect(leader.state.partitionEpoch).toBe(4);
  });

  test.each([{ isr: [2] }, { isr: [1, 2, 2] }, { isr: [1, 9] }, { isr: [] }])(
    "success with an ISR that makes no sense ($isr) is ignored, it stays pending",
    ({ isr }) => {
      const leader = expanding();
      expect(leader.answer("NONE", { isr })).toEqual([]);
      expect(leader.maximalIsr).toEqual([1, 2]);
    },
  );

  test("an answer for another proposal is ignored", () => {
    const leader = expanding();
    const before = leader.state.digest();
    expect(leader.answer("NONE", { proposal: 7, isr: [1, 2] })).toEqual([]);
    expect(leader.answer("INELIGIBLE_REPLICA", { proposal: 0 })).toEqual([]);
    expect(leader.state.digest()).toBe(before);
  });
});

describe("the controller's stream", () => {
  test("IS-25 a newer partition epoch of the same leader epoch leaves what is known of the replicas as it was", () => {
    const leader = new Leader({ logEndOffset: 10, epochStartOffset: 4 });
    leader.fetch(2, 7, { atMs: 300 });
    const before = leader.replica(2);
    expect(leader.metadata({ isr: [1, 2], partitionEpoch: 2 })).toEqual([
      { type: "isrChanged", isr: [1, 2] },
      { type: "highWatermark", offset: 7 },
    ]);
    expect(leader.replica(2)).toEqual(before);
    expect([leader.state.partitionEpoch, leader.state.epochStartOffset]).toEqual([2, 4]);
  });

  test.each([
    { why: "an older partition epoch", state: { isr: [1], partitionEpoch: 3 } },
    { why: "the known partition epoch", state: { isr: [1], partitionEpoch: 4 } },
    { why: "an older leader epoch", state: { isr: [1], partitionEpoch: 9, leaderEpoch: 4 } },
    { why: "a newer leader epoch, which is another instance", state: { isr: [1], partitionEpoch: 9, leaderEpoch: 6 } },
    { why: "no sense: an ISR without the leader", state: { isr: [2], partitionEpoch: 9 } },
    { why: "no sense: an ISR beside the assignment", state: { isr: [1, 4], partitionEpoch: 9 } },
  ])("IS-26 a state of $why is ignored", ({ state }) => {
    const leader = new Leader({ partitionEpoch: 4, logEndOffset: 10 });
    const before = leader.state.digest();
    expect(leader.metadata(state)).toEqual([]);
    expect(leader.state.digest()).toBe(before);
  });

  test("IS-33 an equal partition epoch keeps what is pending, and the answer that comes later counts", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1], partitionEpoch: 4, logEndOffset: 10 });
    leader.fetch(2, 10);
    expect(leader.metadata({ isr: [1], partitionEpoch: 4 })).toEqual([]);
    expect([leader.isr, leader.maximalIsr]).toEqual([[1], [1, 2]]);
    leader.append(20);
    leader.brokers(broker(1), broker(2, { isFenced: true }));
    expect(leader.highWatermark).toBe(10);
    leader.answer("NONE", { isr: [1, 2], partitionEpoch: 5 });
    expect([leader.isr, leader.state.partitionEpoch]).toEqual([[1, 2], 5]);
  });

  test("a newer state takes the place of a proposal, whose answer then says nothing", () => {
    const leader = new Leader({ partitionEpoch: 4, isr: [1, 2], logEndOffset: 10, epochStartOffset: 0 });
    leader.fetch(3, 10);
    leader.metadata({ isr: [1], partitionEpoch: 5 });
    expect(leader.state.isrState).toEqual({ type: "committed", isr: [1] });
    expect(leader.answer("NONE", { isr: [1, 2, 3], partitionEpoch: 5 })).toEqual([]);
    expect(leader.answer("NETWORK_EXCEPTION")).toEqual([]);
    expect(leader.isr).toEqual([1]);
  });

  test("replicas come and go with the assignment", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10, nowMs: 40 });
    leader.fetch(2, 10);
    leader.brokers(broker(1), broker(3), broker(4));
    leader.metadata({ replicas: [4, 3, 1], isr: [4, 1], partitionEpoch: 2 });
    expect(leader.state.replicas).toMatchObject([
      { brokerId: 4, logEndOffset: undefined, isInIsr: true, lastCaughtUpMs: 40 },
      { brokerId: 3, logEndOffset: undefined, isInIsr: false, lastCaughtUpMs: NEVER_MS },
    ]);
    leader.append(11);
    expect(leader.highWatermark).toBe(10);
    expect(proposed(leader.fetch(3, 11))).toBe("4@-1 1@101 3@103");
    leader.fetch(4, 11);
    expect(leader.highWatermark).toBe(11);
  });

  test("IS-35 the same leader in a new epoch starts without what replicas told before, and waits for their fetches", () => {
    const before = new Leader({ isr: [1, 2], logEndOffset: 10, nowMs: 5 });
    before.fetch(2, 7);
    before.fetch(3, 6);
    const after = new Leader({
      isr: [1, 2],
      leaderEpoch: 6,
      logEndOffset: 10,
      highWatermark: before.highWatermark,
      nowMs: 60_000,
    });
    expect(after.replica(2)).toMatchObject({ logEndOffset: undefined, brokerEpoch: undefined, lastCaughtUpMs: 60_000 });
    expect(after.replica(3)).toMatchObject({ logEndOffset: undefined, lastCaughtUpMs: NEVER_MS });
    expect(after.state.epochStartOffset).toBe(10);
    expect(after.highWatermark).toBe(7);
    after.fetch(2, 10);
    expect(after.highWatermark).toBe(10);
  });
});

describe("the parts", () => {
  test("maximal and proposed ISR of each state", () => {
    expect(maximalIsr({ type: "committed", isr: [1, 2] })).toEqual([1, 2]);
    expect(maximalIsr({ type: "pendingExpand", isr: [1], adding: 2 })).toEqual([1, 2]);
    expect(maximalIsr({ type: "pendingShrink", isr: [1, 2], removing: [2] })).toEqual([1, 2]);
    expect(proposedIsr({ type: "committed", isr: [1, 2] })).toEqual([1, 2]);
    expect(proposedIsr({ type: "pendingExpand", isr: [1], adding: 2 })).toEqual([1, 2]);
    expect(proposedIsr({ type: "pendingShrink", isr: [3, 1, 2], removing: [2] })).toEqual([3, 1]);
  });

  test.each([
    { state: {}, expected: true },
    { state: { leader: 2 }, expected: false },
    { state: { leader: -1 }, expected: false },
    { state: { leaderEpoch: -1 }, expected: false },
    { state: { replicas: [1, 2, 2] }, expected: false },
    { state: { isr: [2, 3] }, expected: false },
    { state: { isr: [1, 1] }, expected: false },
    { state: { isr: [1, 7] }, expected: false },
  ])("whether $state lets broker 1 lead: $expected", ({ state, expected }) => {
    expect(canLead({ ...partitionState({}), ...state }, 1)).toBe(expected);
  });

  test("an ISR without sense is not led", () => {
    expect(isIsrOf([2], 1, [1, 2])).toBe(false);
    expect(() => new Leader({ isr: [2] })).toThrow("names this leader");
  });

  test("time that runs backwards in an input does not run backwards here", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10, lagMs: 100 });
    leader.fetch(2, 9);
    expect(proposed(leader.tick(101))).toBe("1@101");
    leader.answer("OPERATION_NOT_ATTEMPTED");
    expect(proposed(leader.tick(50))).toBe("1@101");
  });
});
