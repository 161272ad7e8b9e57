import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { LogError } from "@tidemark/log";
import { encodeBatch } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { batch, leader, stateOf, stored } from "./partition.fixture.ts";
import type { Replica } from "./partition.fixture.ts";

describe("FN fencing", () => {
  test("FN-01 a leader of epoch 5: the same epoch, a lower and a higher one; a replica must name one", async () => {
    const replica = await leader([1, 1]);
    const errors = [];
    for (const currentLeaderEpoch of [5, 4, 6]) errors.push((await replica.fetch({ currentLeaderEpoch })).error);
    expect(errors).toEqual(["NONE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"]);
    // A consumer need not name one. Kafka lets replicas off too; here a replica that does not is no peer of ours.
    expect((await replica.fetch({ currentLeaderEpoch: -1 }, { replicaId: -1 })).error).toBe("NONE");
    expect((await replica.fetch({ currentLeaderEpoch: -1 })).error).toBe("INVALID_REQUEST");
  });

  test("FN-02 FN-04 a follower answers nobody: fenced first, then NOT_LEADER_OR_FOLLOWER", async () => {
    const replica = await leader([1, 1], { leader: 2 });
    const errors = [];
    for (const currentLeaderEpoch of [-1, 5, 4, 6])
      errors.push((await replica.fetch({ currentLeaderEpoch }, { replicaId: -1 })).error);
    expect(errors).toEqual([
      "NOT_LEADER_OR_FOLLOWER",
      "NOT_LEADER_OR_FOLLOWER",
      "FENCED_LEADER_EPOCH",
      "UNKNOWN_LEADER_EPOCH",
    ]);
    expect((await replica.fetch({}, { replicaId: 3 })).error).toBe("NOT_LEADER_OR_FOLLOWER");
  });

  test("FN-05 FD-18 FD-19 a replica that is not assigned: the epoch is looked at first, and nothing is noted of it", async () => {
    const replica = await leader([1, 1]);
    const stranger = { replicaId: 3, brokerEpoch: 103 };
    expect((await replica.fetch({}, stranger)).error).toBe("UNKNOWN_LEADER_EPOCH");
    expect((await replica.fetch({ currentLeaderEpoch: 4 }, stranger)).error).toBe("FENCED_LEADER_EPOCH");
    await replica.partition.applyState(stateOf({ replicas: [1, 2, 3], partitionEpoch: 2 }));
    expect((await replica.fetch({}, stranger)).error).toBe("NONE");
  });

  test("IS-19 a fetch of an earlier incarnation is refused and is no progress", async () => {
    const replica = await leader([1, 1]);
    expect((await replica.fetch({ fetchOffset: 2, lastFetchedEpoch: 1 }, { brokerEpoch: 99 })).error).toBe(
      "NOT_LEADER_OR_FOLLOWER",
    );
    expect(replica.partition.highWatermark).toBe(0);
  });

  test("FN-07 a parked fetch hears of the role change at once", async () => {
    const replica = await leader([1, 1]);
    const parked = new Promise<void>((resolve) => void replica.partition.whenMoved(resolve));
    await replica.partition.applyState(stateOf({ leader: 2, leaderEpoch: 6, partitionEpoch: 2 }));
    await parked;
    expect((await replica.fetch()).error).toBe("FENCED_LEADER_EPOCH");
    expect((await replica.fetch({ currentLeaderEpoch: -1 }, { replicaId: -1 })).error).toBe("NOT_LEADER_OR_FOLLOWER");
  });

  test("FN-07 HW-22 a parked fetch hears at once when the high watermark moves, and not when it stays", async () => {
    const replica = await leader([1, 1]);
    let moves = 0;
    const parks = (): void => void replica.partition.whenMoved(() => (moves += 1));
    parks();
    await replica.fetch({ fetchOffset: 0 });
    expect([replica.partition.highWatermark, moves]).toEqual([0, 0]);
    await replica.fetch({ fetchOffset: 2, lastFetchedEpoch: 1 });
    expect([replica.partition.highWatermark, moves]).toEqual([2, 1]);
  });

  test("FN-08 HW-22 a consumer sees up to the high watermark, a replica up to the log end", async () => {
    const replica = await leader([1, 1, 1]);
    expect((await replica.fetch({}, { replicaId: -1 })).bytes).toHaveLength(0);
    const first = await replica.fetch({ fetchOffset: 2, lastFetchedEpoch: 1 });
    expect([first.highWatermark, first.bytes.length > 0, replica.partition.highWatermark]).toEqual([0, true, 2]);
    expect((await replica.fetch({}, { replicaId: -1 })).bytes.length).toBe(2 * stored(["r0"], 0, 1).length);
    expect((await replica.fetch({ fetchOffset: 3, lastFetchedEpoch: 1 })).highWatermark).toBe(2);
    expect(replica.partition.highWatermark).toBe(3);
  });
});

test("BR-039 while a new leader's high watermark lags a consumer above it gets nothing, above the log end an error", async () => {
  const replica = await leader([1, 1, 1]);
  const consume = (fetchOffset: number): Promise<{ error: string; bytes: Uint8Array }> =>
    replica.fetch({ fetchOffset, lastFetchedEpoch: -1 }, { replicaId: -1 });
  expect(replica.partition.highWatermark).toBe(0);
  for (const offset of [0, 1, 2, 3])
    expect(await consume(offset)).toMatchObject({ error: "NONE", bytes: new Uint8Array(0) });
  expect((await consume(4)).error).toBe("OFFSET_OUT_OF_RANGE");
  await replica.fetch({ fetchOffset: 3, lastFetchedEpoch: 1 });
  expect(replica.partition.highWatermark).toBe(3);
  expect((await consume(2)).bytes.length).toBeGreaterThan(0);
});

describe("FD divergence on the leader", () => {
  test("FD-02 FD-20 IS-28 a diverging fetch brings the epoch's end, no records, and is no progress", async () => {
    const replica = await leader([1, 1, 4, 4]);
    const before = replica.partition.leaderState?.digest();
    const answer = await replica.fetch({ fetchOffset: 3, lastFetchedEpoch: 1 });
    expect(answer).toMatchObject({
      error: "NONE",
      divergingEpoch: 1,
      divergingEndOffset: 2,
      highWatermark: 0,
      logStartOffset: 0,
      logEndOffset: 4,
    });
    expect(answer.bytes).toHaveLength(0);
    expect(replica.partition.leaderState?.digest()).toBe(before);
  });

  test("FD-17 the epoch fence comes before everything else", async () => {
    const replica = await leader([1, 1, 4, 4]);
    const diverging = { fetchOffset: 3, lastFetchedEpoch: 1 };
    expect((await replica.fetch({ ...diverging, currentLeaderEpoch: 4 })).error).toBe("FENCED_LEADER_EPOCH");
    expect((await replica.fetch({ ...diverging, currentLeaderEpoch: 6 })).error).toBe("UNKNOWN_LEADER_EPOCH");
  });

  test("FD-22 a consumer that names its last epoch is told of a divergence too", async () => {
    const replica = await leader([1, 1, 4, 4]);
    expect(await replica.fetch({ fetchOffset: 3, lastFetchedEpoch: 1 }, { replicaId: -1 })).toMatchObject({
      error: "NONE",
      divergingEpoch: 1,
      divergingEndOffset: 2,
    });
  });

  test("FD-10 FD-24 an error carries no offsets", async () => {
    const replica = await leader([1, 1]);
    expect(await replica.fetch({ fetchOffset: 9 })).toMatchObject({
      error: "OFFSET_OUT_OF_RANGE",
      highWatermark: -1,
      logStartOffset: -1,
      logEndOffset: -1,
    });
  });
});

describe("OL OffsetsForLeaderEpoch", () => {
  test("OL-01 OL-03 a follower: fenced first, then NOT_LEADER_OR_FOLLOWER", async () => {
    const replica = await leader([1], { leader: 2 });
    expect([-1, 5, 4, 6].map((current) => replica.epochEnd(1, current))).toEqual([
      "NOT_LEADER_OR_FOLLOWER",
      "NOT_LEADER_OR_FOLLOWER",
      "FENCED_LEADER_EPOCH",
      "UNKNOWN_LEADER_EPOCH",
    ]);
  });

  test("OL-02 a leader of epoch 5", async () => {
    const replica = await leader([1]);
    expect([-1, 5, 4, 6].map((current) => replica.epochEnd(1, current))).toEqual([
      "(1,1)",
      "(1,1)",
      "FENCED_LEADER_EPOCH",
      "UNKNOWN_LEADER_EPOCH",
    ]);
  });

  test("OL-05 OL-06 OL-09 the largest epoch at or below the one asked about, and its end", async () => {
    const replica = await leader([0, 0, 0, 4, 4, 4], { leaderEpoch: 4 });
    expect([4, 3, 5, 0, 1].map((epoch) => replica.epochEnd(epoch))).toEqual([
      "(4,6)",
      "(0,3)",
      "(-1,-1)",
      "(0,3)",
      "(0,3)",
    ]);
  });

  test("OL-07 the epoch in which it leads is known before any record of it", async () => {
    const replica = await leader([0, 0, 5, 5], { leaderEpoch: 8 });
    expect(replica.epochEnd(8)).toBe("(8,4)");
  });

  test("OL-10 no epoch, and one below all", async () => {
    const replica = await leader([1, 1], { leaderEpoch: 5 });
    expect([replica.epochEnd(-1), replica.epochEnd(0), replica.epochEnd(1, -2)]).toEqual([
      "(-1,-1)",
      "(0,0)",
      "FENCED_LEADER_EPOCH",
    ]);
  });

  test("a transaction that no coordinator vouches for is refused with INVALID_TXN_STATE, and nothing is appended", async () => {
    const replica = await leader([]);
    const records = [{ key: null, value: new Uint8Array(1), timestamp: 0 }];
    const sent = encodeBatch(records, { producerId: 7, producerEpoch: 0, baseSequence: 0, transactional: true });
    const answer = await replica.partition.produce(sent, { acks: 1, timeoutMs: 100, origin: "client" });
    expect([answer.error, answer.baseOffset, replica.partition.log.logEndOffset]).toEqual(["INVALID_TXN_STATE", -1, 0]);
  });

  test("OL-08 a failed replica answers KAFKA_STORAGE_ERROR, to fetches and produces too", async () => {
    const replica = await leader([1]);
    replica.environment.files.inject({
      operation: ["write", "sync"],
      path: /orders-0/,
      code: "EIO",
      count: Number.POSITIVE_INFINITY,
    });
    expect((await replica.partition.produce(batch(["x"]), { acks: 1, timeoutMs: 100, origin: "client" })).error).toBe(
      "KAFKA_STORAGE_ERROR",
    );
    await replica.partition.applyState(stateOf({ leaderEpoch: 6, partitionEpoch: 2 }));
    expect([
      replica.partition.role,
      replica.epochEnd(1),
      (await replica.fetch({ currentLeaderEpoch: 6 })).error,
    ]).toEqual(["failed", "KAFKA_STORAGE_ERROR", "KAFKA_STORAGE_ERROR"]);
    expect(replica.failures).toHaveLength(1);
  });
});

describe("MI produces on the shell", () => {
  test("acks 1 answers after the append, acks -1 when the ISR has it, and nothing is appended for other acks", async () => {
    const replica = await leader([1]);
    const options = { timeoutMs: 1000, origin: "client" } as const;
    expect(await replica.partition.produce(batch(["a"]), { acks: 1, ...options })).toMatchObject({
      error: "NONE",
      baseOffset: 1,
    });
    let isAnswered = false;
    const waiting = replica.partition
      .produce(batch(["b"]), { acks: -1, ...options })
      .finally(() => (isAnswered = true));
    await new Promise((resolve) => setTimeout(resolve, 1)); // The append is done, and waits for the ISR.
    await replica.fetch({ fetchOffset: 2, lastFetchedEpoch: 5 });
    expect([replica.log.logEndOffset, isAnswered]).toEqual([3, false]);
    await replica.fetch({ fetchOffset: 3, lastFetchedEpoch: 5 });
    expect(await waiting).toMatchObject({ error: "NONE", baseOffset: 2, lastOffset: 2 });
    expect((await replica.partition.produce(batch(["c"]), { acks: 2, ...options })).error).toBe(
      "INVALID_REQUIRED_ACKS",
    );
    expect(replica.log.logEndOffset).toBe(3);
  });

  test("MI-06 a produce that the ISR does not take in time is REQUEST_TIMED_OUT, with its offsets, and stays in the log", async () => {
    const replica = await leader([1]);
    await replica.environment.kernel.run(async () => {
      const answer = await replica.partition.produce(batch(["a"]), { acks: -1, timeoutMs: 50, origin: "client" });
      expect(answer).toMatchObject({ error: "REQUEST_TIMED_OUT", baseOffset: 1 });
    });
    expect(replica.log.logEndOffset).toBe(2);
  });

  test("MI-07 what waits when the leadership ends is answered NOT_LEADER_OR_FOLLOWER, with who leads", async () => {
    const replica = await leader([1]);
    const waiting = replica.partition.produce(batch(["a"]), { acks: -1, timeoutMs: 1000, origin: "client" });
    await new Promise((resolve) => setTimeout(resolve, 1));
    await replica.partition.applyState(stateOf({ leader: 2, leaderEpoch: 6, partitionEpoch: 2 }));
    expect(await waiting).toMatchObject({ error: "NOT_LEADER_OR_FOLLOWER", leaderId: 2, leaderEpoch: 6 });
  });
});

/** Answers what a follower asks first. */
async function answerEpoch({ partition }: Replica, leaderEpoch: number, endOffset: number): Promise<void> {
  const asked = partition.takeRequest(0);
  if (asked === undefined) throw new Error("a follower asks");
  const ends = { error: "NONE", leaderEpoch, endOffset, logStartOffset: 0, logEndOffset: endOffset } as const;
  await partition.answered({ type: "epochAnswer", request: asked.request, ...ends, nowMs: 0 });
}

/** Answers the next fetch, by default with no records. */
async function answerFetch(
  { partition }: Replica,
  ends: { readonly highWatermark: number; readonly logStartOffset: number },
  bytes: Uint8Array = new Uint8Array(0),
): Promise<void> {
  const asked = partition.takeRequest(0);
  if (asked === undefined) throw new Error("a follower fetches");
  const more = { logEndOffset: 4, divergingEpoch: -1, divergingEndOffset: -1, bytes };
  await partition.answered({
    type: "fetchAnswer",
    request: asked.request,
    error: "NONE",
    ...ends,
    ...more,
    nowMs: 0,
  });
}

describe("following", () => {
  test("a cut is made, told with its cause, and the next fetch goes on from there", async () => {
    const replica = await leader([1, 1, 2, 2], { leader: 2, leaderEpoch: 3 }, 2);
    const asked = replica.partition.takeRequest(0);
    expect(asked).toMatchObject({ leaderId: 2, leaderEpoch: 3, request: { type: "epoch", leaderEpoch: 2 } });
    if (asked === undefined) throw new Error("a follower asks");
    await replica.partition.answered({
      type: "epochAnswer",
      request: asked.request,
      error: "NONE",
      leaderEpoch: 1,
      endOffset: 2,
      logStartOffset: 0,
      logEndOffset: 2,
      nowMs: 0,
    });
    expect(replica.log.logEndOffset).toBe(2);
    expect(replica.truncations).toEqual([
      {
        topic: "orders",
        partition: 0,
        leaderEpoch: 3,
        cause: "epochAnswer",
        fromOffset: 4,
        toOffset: 2,
        highWatermark: 2,
      },
    ]);
    expect(replica.partition.takeRequest(0)?.request).toMatchObject({
      type: "fetch",
      fetchOffset: 2,
      lastFetchedEpoch: 1,
    });
  });

  test("the leader's log start is taken: segments below go, and a restart begins there", async () => {
    const replica = await leader([1, 1, 1, 1], { leader: 2, leaderEpoch: 3 });
    await answerEpoch(replica, 1, 4);
    await answerFetch(replica, { highWatermark: 3, logStartOffset: 2 });
    expect([replica.log.logStartOffset, replica.partition.highWatermark, replica.log.logEndOffset]).toEqual([2, 3, 4]);
    expect(replica.partition.takeRequest(0)?.request).toMatchObject({ fetchOffset: 4, logStartOffset: 2 });
    expect([replica.failures, replica.truncations]).toEqual([[], []]);
  });

  test("LG-15 OR-07 an empty log whose start lies inside the leader's first batch begins anew where that does; then the leader's start is taken", async () => {
    const replica = await leader([], { leader: 2, leaderEpoch: 3 });
    await replica.log.truncateFullyAndStartAt(toOffset(5));
    const offsets = (): readonly number[] => [
      replica.log.logStartOffset,
      replica.partition.highWatermark,
      replica.log.logEndOffset,
    ];
    await answerFetch(replica, { highWatermark: 9, logStartOffset: 5 }, stored(["a", "b", "c"], 4, 1));
    expect([offsets(), replica.log.epochEntries]).toEqual([[5, 7, 7], [{ epoch: 1, startOffset: 5 }]]);
    await answerFetch(replica, { highWatermark: 9, logStartOffset: 5 }, stored(["d", "e"], 7, 1));
    expect([offsets(), replica.failures]).toEqual([[5, 9, 9], []]);
  });

  test("nothing is appended when the role ends while an empty log is made to begin anew", async () => {
    const replica = await leader([], { leader: 2, leaderEpoch: 3 });
    const { log, partition } = replica;
    await log.truncateFullyAndStartAt(toOffset(5));
    const truncate = log.truncateFullyAndStartAt.bind(log);
    let changed: Promise<void> | undefined;
    log.truncateFullyAndStartAt = async (offset) => {
      await truncate(offset);
      // Just behind the look at the role that follows.
      queueMicrotask(() => {
        changed = partition.applyState(stateOf({ leader: 1, leaderEpoch: 4, partitionEpoch: 9 }));
      });
    };
    let appends = 0;
    log.appendAsFollower = () => {
      appends += 1;
      return Promise.reject(new Error("no follower any more"));
    };
    await answerFetch(replica, { highWatermark: 9, logStartOffset: 5 }, stored(["a", "b", "c"], 4, 1));
    await changed;
    expect([appends, partition.role, replica.failures]).toEqual([0, "leader", []]);
  });

  test("LG-14 bytes that the log would refuse, or that do not reach its start, do not make an empty log begin anew", async () => {
    const damaged = stored(["a", "b", "c"], 4, 1);
    damaged[damaged.length - 1] = 0xff;
    for (const bytes of [damaged, stored(["a"], 3, 1), stored(["a", "b", "c"], 4, 1).subarray(0, 70)]) {
      const replica = await leader([], { leader: 2, leaderEpoch: 3 });
      await replica.log.truncateFullyAndStartAt(toOffset(5));
      await answerFetch(replica, { highWatermark: 9, logStartOffset: 5 }, bytes);
      expect([replica.log.logStartOffset, replica.log.logEndOffset, replica.failures]).toEqual([5, 5, []]);
    }
    const full = await leader([1, 1], { leader: 2, leaderEpoch: 3 });
    await answerEpoch(full, 1, 2);
    await answerFetch(full, { highWatermark: 2, logStartOffset: 0 }, stored(["a", "b", "c"], 1, 1));
    expect([full.log.logEndOffset, full.failures]).toEqual([2, []]);
  });

  test("no room to note the leader's log start: it stays, and is taken with a later answer", async () => {
    const replica = await leader([1, 1, 1, 1], { leader: 2, leaderEpoch: 3 });
    await answerEpoch(replica, 1, 4);
    replica.log.deleteRecords = () =>
      Promise.reject(
        new LogError({ code: "KAFKA_STORAGE_ERROR", failure: "ENOSPC", path: "log/orders-0", operation: "state" }),
      );
    await answerFetch(replica, { highWatermark: 3, logStartOffset: 2 });
    expect([replica.failures, replica.log.logStartOffset]).toEqual([[], 0]);
    Reflect.deleteProperty(replica.log, "deleteRecords");
    await answerFetch(replica, { highWatermark: 3, logStartOffset: 2 });
    expect([replica.failures, replica.log.logStartOffset]).toEqual([[], 2]);
  });

  test.each(["nothing", "part"] as const)(
    "a follower without room on its disk (%s of the bytes was written) keeps what it has, and asks again after the back-off",
    async (written) => {
      const replica = await leader([1], { leader: 2, leaderEpoch: 3 });
      const epoch = replica.partition.takeRequest(0);
      if (epoch === undefined) throw new Error("a follower asks");
      const ends = { error: "NONE", logStartOffset: 0, logEndOffset: 9, nowMs: 0 } as const;
      await replica.partition.answered({
        type: "epochAnswer",
        request: epoch.request,
        ...ends,
        leaderEpoch: 1,
        endOffset: 9,
      });
      const answerFetch = async (nowMs: number): Promise<void> => {
        const fetch = replica.partition.takeRequest(nowMs);
        if (fetch === undefined) throw new Error("a follower fetches");
        expect(fetch.request).toMatchObject({ type: "fetch", fetchOffset: 1 });
        await replica.partition.answered({
          type: "fetchAnswer",
          request: fetch.request,
          ...ends,
          highWatermark: 2,
          divergingEpoch: -1,
          divergingEndOffset: -1,
          bytes: stored(["a"], 1, 1),
        });
      };
      replica.environment.files.inject({ operation: "write", path: ".log", code: "ENOSPC", written });
      await answerFetch(0);
      expect(replica.log.logEndOffset).toBe(1);
      expect(replica.partition.highWatermark).toBe(0);
      expect(replica.failures).toEqual([]);
      expect(replica.partition.takeRequest(999)).toBeUndefined();
      await answerFetch(1000);
      expect(replica.log.logEndOffset).toBe(2);
      expect(replica.partition.highWatermark).toBe(2);
    },
  );

  test("a follower whose disk fails otherwise stops for good", async () => {
    const replica = await leader([], { leader: 2, leaderEpoch: 3 });
    const fetch = replica.partition.takeRequest(0);
    if (fetch === undefined) throw new Error("a follower fetches");
    replica.environment.files.inject({ operation: "write", path: ".log", code: "EIO" });
    await replica.partition.answered({
      type: "fetchAnswer",
      request: fetch.request,
      error: "NONE",
      highWatermark: 1,
      logStartOffset: 0,
      logEndOffset: 1,
      divergingEpoch: -1,
      divergingEndOffset: -1,
      bytes: stored(["a"], 0, 1),
      nowMs: 0,
    });
    expect(replica.partition.role).toBe("failed");
    expect(replica.failures).toHaveLength(1);
  });

  test("LG-22 of an answer only what the own leader epoch vouches for is appended", async () => {
    const replica = await leader([1], { leader: 2, leaderEpoch: 3 });
    const epoch = replica.partition.takeRequest(0);
    if (epoch === undefined) throw new Error("a follower asks");
    await replica.partition.answered({
      type: "epochAnswer",
      request: epoch.request,
      error: "NONE",
      leaderEpoch: 1,
      endOffset: 9,
      logStartOffset: 0,
      logEndOffset: 9,
      nowMs: 0,
    });
    const fetch = replica.partition.takeRequest(0);
    if (fetch === undefined) throw new Error("a follower fetches");
    const bytes = new Uint8Array([...stored(["a"], 1, 3), ...stored(["b"], 2, 4)]);
    await replica.partition.answered({
      type: "fetchAnswer",
      request: fetch.request,
      error: "NONE",
      highWatermark: 9,
      logStartOffset: 0,
      logEndOffset: 9,
      divergingEpoch: -1,
      divergingEndOffset: -1,
      bytes,
      nowMs: 0,
    });
    expect([replica.log.logEndOffset, replica.partition.highWatermark]).toEqual([2, 2]);
  });

  test("IS-26 a state older than known changes nothing", async () => {
    const replica = await leader([1], { partitionEpoch: 4 });
    await replica.partition.applyState(stateOf({ leader: 2, partitionEpoch: 3 }));
    await replica.partition.applyState(stateOf({ leader: 2, leaderEpoch: 4, partitionEpoch: 9 }));
    expect([replica.partition.role, replica.partition.leaderEpoch]).toEqual(["leader", 5]);
  });

  test("an answer to a proposal of an earlier leadership says nothing of the one that is out now", async () => {
    const replica = await leader([], { isr: [1] });
    await replica.fetch();
    await replica.partition.applyState(stateOf({ isr: [1], leaderEpoch: 6, partitionEpoch: 2 }));
    await replica.fetch({ currentLeaderEpoch: 6 });
    const [earlier, now] = replica.proposals;
    if (earlier === undefined || now === undefined) throw new Error("each leadership has made a proposal");
    expect([earlier.proposal, now.proposal]).toEqual([1, 1]);
    const nothing = { leaderEpoch: -1, partitionEpoch: -1, isr: [] };
    replica.partition.alterPartitionAnswered(earlier, { error: "INELIGIBLE_REPLICA", ...nothing });
    expect(replica.partition.leaderState?.isrState).toEqual({ type: "pendingExpand", isr: [1], adding: 2 });
    replica.partition.alterPartitionAnswered(now, { error: "NONE", leaderEpoch: 6, partitionEpoch: 3, isr: [1, 2] });
    expect(replica.partition.leaderState?.isrState).toEqual({ type: "committed", isr: [1, 2] });
  });

  test("HW-09 HW-10 HW-11 the checkpointed high watermark is brought into the log's range, and a new leader keeps it", async () => {
    for (const [checkpoint, expected] of [
      [4, 4],
      [9, 6],
      [0, 0],
    ] as const) {
      const replica = await leader([1, 1, 1, 1, 1, 1], {}, checkpoint);
      expect(replica.partition.highWatermark).toBe(expected);
    }
  });

  test("a leader's epoch is entered at its log end, and the log leads in it", async () => {
    const replica = await leader([1, 1]);
    expect(replica.log.leaderEpoch).toBe(toLeaderEpoch(5));
    expect(replica.log.epochEntries.at(-1)).toEqual({ epoch: 5, startOffset: 2 });
  });
});

describe("a leadership ends while an append waits for its turn", () => {
  const endsWith = async (next: Parameters<typeof stateOf>[0]): Promise<Replica> => {
    const replica = await leader([1]);
    const busy = replica.log.roll();
    const appending = replica.partition.produce(batch(["a"]), { acks: 1, timeoutMs: 1000, origin: "client" });
    await replica.partition.applyState(stateOf({ leaderEpoch: 6, partitionEpoch: 2, ...next }));
    // It came first: what follows begins behind it.
    expect(replica.log.logEndOffset).toBe(2);
    await Promise.all([busy, appending]);
    return replica;
  };

  test("who follows then asks from where the log ends behind that append", async () => {
    const replica = await endsWith({ leader: 2 });
    expect(replica.partition.followerState?.digest()).toMatch(/ 0\.\.\d+\.\.2 hw /u);
  });

  test("where nobody leads, nobody appends", async () => {
    const replica = await endsWith({ leader: -1 });
    expect([replica.partition.role, replica.log.leaderEpoch]).toEqual(["none", undefined]);
    await expect(replica.log.append(batch(["b"]), { origin: "client" })).rejects.toMatchObject({
      type: { code: "NOT_LEADER_OR_FOLLOWER" },
    });
  });
});

/** While the disk works the controller speaks: what was begun in the old role may not count in the new one. */
describe.each([
  ["follows another leader", { leader: 2, leaderEpoch: 6, partitionEpoch: 2 }],
  ["leads again, in a new epoch", { leader: 1, leaderEpoch: 6, partitionEpoch: 2 }],
])("the broker meanwhile %s", (_name, next) => {
  test.each([0, 1, -1])(
    "an append for acks %d is NOT_LEADER_OR_FOLLOWER, with who leads now, at once",
    async (acks) => {
      const replica = await leader([1]);
      // The append waits for its turn: where nothing is before it, it would be written when the call returns.
      const busy = replica.log.roll();
      const appending = replica.partition.produce(batch(["a"]), { acks, timeoutMs: 1000, origin: "client" });
      await replica.partition.applyState(stateOf(next));
      // No timer runs here: an answer that waited for one would never come.
      expect(await appending).toMatchObject({
        error: "NOT_LEADER_OR_FOLLOWER",
        baseOffset: -1,
        leaderId: next.leader,
        leaderEpoch: 6,
      });
      await busy;
      expect([replica.log.logEndOffset, replica.failures]).toEqual([2, []]);
    },
  );

  test("a read answers nothing of the old leadership, and is no progress in the new one", async () => {
    const replica = await leader([1, 1]);
    const before = replica.partition.highWatermark;
    // The disk answers after the controller has spoken.
    const { log } = replica;
    const read = log.readSoon.bind(log);
    let answerReads: () => void = () => undefined;
    const answered = new Promise<void>((resolve) => {
      answerReads = resolve;
    });
    log.readSoon = (options) => answered.then(() => read(options));
    const reading = replica.fetch({ fetchOffset: 2, lastFetchedEpoch: 1 });
    const behind = replica.fetch({ fetchOffset: 1, lastFetchedEpoch: 1 });
    await replica.partition.applyState(stateOf(next));
    answerReads();
    for (const answer of await Promise.all([reading, behind])) {
      expect(answer).toMatchObject({ error: "NOT_LEADER_OR_FOLLOWER", highWatermark: -1, logEndOffset: -1 });
      expect(answer.bytes).toHaveLength(0);
    }
    expect([replica.partition.highWatermark, replica.failures]).toEqual([before, []]);
  });
});

test("a state with an older partition epoch is no news, though its leader epoch is the known one", async () => {
  const replica = await leader([1], { partitionEpoch: 3, isr: [1] });
  await replica.partition.applyState(stateOf({ partitionEpoch: 2, isr: [1, 2] }));
  expect(replica.partition.state).toMatchObject({ partitionEpoch: 3, isr: [1] });
});
