import type { FetchRequest, FetchResponse, PartitionName } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { serveFetch } from "./fetch-session.ts";
import { batch, leader, stateOf } from "./partition.fixture.ts";
import type { Replica } from "./partition.fixture.ts";

function requestOf(
  replicas: readonly string[],
  more: Partial<FetchRequest> & { fetchOffset?: number } = {},
): FetchRequest {
  const { fetchOffset = 0, ...rest } = more;
  return {
    kind: "fetch",
    replicaId: 2,
    brokerEpoch: 102,
    maxWaitMs: 0,
    minBytes: 1,
    maxBytes: 1 << 20,
    partitions: replicas.map((topic) => ({
      topic,
      partition: 0,
      currentLeaderEpoch: 5,
      fetchOffset,
      flushedEndOffset: fetchOffset,
      lastFetchedEpoch: fetchOffset === 0 ? -1 : 1,
      logStartOffset: 0,
      maxBytes: 1 << 20,
    })),
    ...rest,
  };
}

function serve(replicas: Readonly<Record<string, Replica>>, request: FetchRequest): Promise<FetchResponse> {
  const clock = Object.values(replicas)[0]?.environment.clock ?? {
    wallMs: () => 0,
    monotonicMs: () => 0,
    setTimer: () => ({ cancel: () => undefined }),
  };
  return serveFetch(request, {
    clock,
    partitionOf: ({ topic }: PartitionName) => replicas[topic]?.partition,
    isClosed: () => false,
  });
}

describe("a fetch of several partitions", () => {
  test("FN-11 OL-04 each is answered for itself: one that is not here, one that another leads, one with records", async () => {
    const replicas = { mine: await leader([1, 1]), theirs: await leader([1], { leader: 2 }) };
    const { partitions } = await serve(replicas, requestOf(["mine", "theirs", "nobodys"], { maxWaitMs: 10_000 }));
    expect(partitions.map(({ topic, error }) => `${topic} ${error}`)).toEqual([
      "mine NONE",
      "theirs NOT_LEADER_OR_FOLLOWER",
      "nobodys UNKNOWN_TOPIC_OR_PARTITION",
    ]);
    expect(partitions[0]?.bytes.length).toBeGreaterThan(0);
  });

  test("the bytes of all are bounded together, but the first batch of a partition with room comes whole", async () => {
    const replicas = { a: await leader([1, 1, 1]), b: await leader([1, 1, 1]) };
    const one = batch(["r0"]).length;
    const { partitions } = await serve(replicas, requestOf(["a", "b"], { maxBytes: one + 1 }));
    expect(partitions.map(({ bytes }) => bytes.length)).toEqual([one + 1, one]);
  });
});

describe("a fetch that waits", () => {
  test("HW-23 is answered at its time when too little came, with the high watermark that moved meanwhile", async () => {
    const replica = await leader([1, 1]);
    await replica.environment.kernel.run(async () => {
      const startMs = replica.environment.clock.monotonicMs();
      const answer = await serve(
        { orders: replica },
        requestOf(["orders"], { fetchOffset: 2, minBytes: 1000, maxWaitMs: 1000 }),
      );
      expect(replica.environment.clock.monotonicMs() - startMs).toBeCloseTo(1000, 0);
      expect(answer.partitions[0]).toMatchObject({ error: "NONE", highWatermark: 2 });
    });
  });

  test("is answered as soon as records come", async () => {
    const replica = await leader([1, 1]);
    await replica.environment.kernel.run(async () => {
      const waiting = serve({ orders: replica }, requestOf(["orders"], { fetchOffset: 2, maxWaitMs: 30_000 }));
      await new Promise<void>((resolve) => replica.environment.clock.setTimer(50, resolve));
      await replica.partition.produce(batch(["new"]), { acks: 1, timeoutMs: 100, origin: "client" });
      expect((await waiting).partitions[0]?.bytes.length).toBe(batch(["new"]).length);
      expect(replica.environment.clock.monotonicMs()).toBeLessThan(100);
    });
  });

  test("FN-07 hears of the end of the leadership at once", async () => {
    const replica = await leader([1, 1]);
    await replica.environment.kernel.run(async () => {
      const waiting = serve({ orders: replica }, requestOf(["orders"], { fetchOffset: 2, maxWaitMs: 30_000 }));
      await new Promise<void>((resolve) => replica.environment.clock.setTimer(50, resolve));
      await replica.partition.applyState(stateOf({ leader: 2, leaderEpoch: 6, partitionEpoch: 2 }));
      expect((await waiting).partitions[0]?.error).toBe("FENCED_LEADER_EPOCH");
      expect(replica.environment.clock.monotonicMs()).toBeLessThan(100);
    });
  });
});
