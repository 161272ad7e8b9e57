import { BufferPool, toOffset } from "@tidemark/base";
import type { AnswerRoom, FetchRequest, FetchResponse, PartitionName } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { FETCH_READS_MAX, OpenReads, serveFetch, SLOW_READ_MS } from "./fetch-session.ts";
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
    maxBytes: 1 << 24,
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

function serve(
  replicas: Readonly<Record<string, Replica>>,
  request: FetchRequest,
  reads = new OpenReads(),
  room?: AnswerRoom,
  pool = new BufferPool({ poisons: true }),
): Promise<FetchResponse> {
  const clock = Object.values(replicas)[0]?.environment.clock ?? {
    wallMs: () => 0,
    monotonicMs: () => 0,
    setTimer: () => ({ cancel: () => undefined }),
  };
  return serveFetch(request, {
    clock,
    pool,
    partitionOf: ({ topic }: PartitionName) => replicas[topic]?.partition,
    isClosed: () => false,
    reads,
    room,
  });
}

/** Room of a connection, and what is set aside of it. */
function roomOf(bytes: number): AnswerRoom & { takenBytes: number; takes: number } {
  return {
    takenBytes: 0,
    takes: 0,
    take(wantedBytes) {
      const taken = Math.min(bytes, wantedBytes);
      this.takenBytes += taken;
      this.takes += 1;
      return taken;
    },
    giveBack(takenBytes) {
      this.takenBytes -= takenBytes;
    },
  };
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

  test("the bytes of all are bounded together, in the order of the request: a batch that finds no room is left out", async () => {
    const replicas = { a: await leader([1, 1, 1]), b: await leader([1, 1, 1]) };
    const one = batch(["r0"]).length;
    const sizes = async (maxBytes: number): Promise<number[]> => {
      const { partitions } = await serve(replicas, requestOf(["a", "b"], { maxBytes }));
      return partitions.map(({ bytes }) => bytes.length);
    };
    expect(await sizes(one + 1)).toEqual([one + 1, 0]);
    expect(await sizes(3 * one)).toEqual([3 * one, 0]);
    expect(await sizes(4 * one - 1)).toEqual([3 * one, 0]);
    expect(await sizes(4 * one)).toEqual([3 * one, one]);
    expect(await sizes(5 * one - 1)).toEqual([3 * one, 2 * one - 1]);
  });

  test("the first batch of the first partition that has any comes whole, however large", async () => {
    const replicas = { empty: await leader([]), a: await leader([1, 1]), b: await leader([1, 1]) };
    const { partitions } = await serve(replicas, requestOf(["empty", "a", "b"], { maxBytes: 10 }));
    expect(partitions.map(({ error, bytes }) => `${error} ${bytes.length}`)).toEqual([
      "NONE 0",
      `NONE ${batch(["r0"]).length}`,
      "NONE 0",
    ]);
  });

  test("what would not fit one frame does not come in one: partitions past the bound are looked at, and their progress counts", async () => {
    const replicas: Record<string, Replica> = {};
    for (let index = 0; index < 3 * FETCH_READS_MAX; index += 1) replicas[`t${index}`] = await leader([1, 1]);
    const one = batch(["r0"]).length;
    const request = requestOf(Object.keys(replicas), { fetchOffset: 1, maxBytes: one });
    const asked: number[] = [];
    for (const { partition } of Object.values(replicas)) {
      const fetch = partition.fetch.bind(partition);
      partition.fetch = (limits, ...rest) => {
        asked.push(limits.maxBytes);
        return fetch(limits, ...rest);
      };
    }
    const { partitions } = await serve(replicas, request);
    // Only those beside the first, which were begun with it, were read in vain.
    expect(asked.filter((maxBytes) => maxBytes > 0).length).toBeLessThanOrEqual(FETCH_READS_MAX);
    expect(partitions.map(({ bytes }) => bytes.length)).toEqual(partitions.map((_, index) => (index === 0 ? one : 0)));
    const ends = Object.values(replicas).map(({ partition }) => partition.leaderState?.replicas[0]?.logEndOffset);
    expect(ends).toEqual(ends.map(() => 1));
  });
});

describe("a fetch over a connection whose peer does not take its answers", () => {
  test("brings no more than there is room for, a batch at least, and holds no room afterwards", async () => {
    const replicas = { a: await leader([1, 1, 1]), b: await leader([1, 1, 1]) };
    const one = batch(["r0"]).length;
    const sizes = async (room: AnswerRoom): Promise<number[]> => {
      const { partitions } = await serve(replicas, requestOf(["a", "b"]), new OpenReads(), room);
      return partitions.map(({ bytes }) => bytes.length);
    };
    for (const [bytes, expected] of [
      [1, [one, 0]],
      [2 * one, [2 * one, 0]],
      [4 * one, [3 * one, one]],
      [1 << 30, [3 * one, 3 * one]],
    ] as const) {
      const room = roomOf(bytes);
      expect(await sizes(room)).toEqual(expected);
      expect(room.takenBytes).toBe(0);
    }
  });

  test("holds none while it is parked, and none of a read that failed", async () => {
    const replica = await leader([1, 1]);
    const room = roomOf(1 << 20);
    await replica.environment.kernel.run(async () => {
      const request = requestOf(["orders"], { fetchOffset: 2, maxWaitMs: 30_000 });
      const waiting = serve({ orders: replica }, request, new OpenReads(), room);
      await new Promise<void>((resolve) => replica.environment.clock.setTimer(50, resolve));
      expect([room.takes > 0, room.takenBytes]).toEqual([true, 0]);
      await replica.partition.produce(batch(["new"]), { acks: 1, timeoutMs: 100, origin: "client" });
      expect((await waiting).partitions[0]?.bytes.length).toBe(batch(["new"]).length);
      expect(room.takenBytes).toBe(0);
    });
    replica.partition.fetch = () => Promise.reject(new Error("a bug"));
    await expect(serve({ orders: replica }, requestOf(["orders"]), new OpenReads(), room)).rejects.toThrow("a bug");
    expect(room.takenBytes).toBe(0);
  });
});

describe("a partition whose disk is slow or fails", () => {
  /** Its records are read through the thread pool, not directly. */
  async function large(): Promise<Replica> {
    const replica = await leader([]);
    await replica.partition.produce(batch(["x".repeat(600_000)]), { acks: 1, timeoutMs: 100, origin: "client" });
    return replica;
  }

  function stall(replica: Replica): { release(): void } {
    return replica.environment.files.stall({ operation: "read", path: /\.log$/u });
  }

  const told = ({ partitions }: FetchResponse): string[] =>
    partitions.map(({ topic, error, bytes }) => `${topic} ${error}${bytes.length > 0 ? " with records" : ""}`);

  test("that fails is answered so, and the others beside it have their records", async () => {
    const replicas = { a: await large(), bad: await large(), c: await large() };
    replicas.bad.environment.files.inject({ operation: "read", path: /\.log$/u, code: "EIO", count: 9 });
    expect(told(await serve(replicas, requestOf(["a", "bad", "c"])))).toEqual([
      "a NONE with records",
      "bad KAFKA_STORAGE_ERROR",
      "c NONE with records",
    ]);
  });

  test("that hangs is waited for a moment and left out, wherever it stands in the request", async () => {
    for (const names of [
      ["stuck", "a", "b"],
      ["a", "stuck", "b"],
      ["a", "b", "stuck"],
    ]) {
      const replicas: Record<string, Replica> = { a: await large(), b: await large(), stuck: await large() };
      const { environment } = replicas["a"] as Replica;
      stall(replicas["stuck"] as Replica);
      await environment.kernel.run(async () => {
        const answer = await serve(replicas, requestOf(names, { maxWaitMs: 10_000 }));
        expect(told(answer)).toEqual(
          names.map((name) => (name === "stuck" ? "stuck REQUEST_TIMED_OUT" : `${name} NONE with records`)),
        );
        expect(environment.clock.monotonicMs()).toBeLessThan(2 * SLOW_READ_MS);
      });
    }
  });

  test("more that hang than are read at a time keep no other from being read", async () => {
    const replicas: Record<string, Replica> = { a: await large(), b: await large() };
    const stuck = Array.from({ length: FETCH_READS_MAX + 1 }, (_, index) => `stuck${index}`);
    for (const name of stuck) {
      const replica = await large();
      stall(replica);
      replicas[name] = replica;
    }
    const { environment } = replicas["a"] as Replica;
    await environment.kernel.run(async () => {
      const answer = await serve(replicas, requestOf(["a", ...stuck, "b"], { maxWaitMs: 10_000 }));
      expect(told(answer)).toEqual([
        "a NONE with records",
        ...stuck.map((name) => `${name} REQUEST_TIMED_OUT`),
        "b NONE with records",
      ]);
    });
  });

  test("that is slow is waited for while the others have nothing to tell, and answered when it is there", async () => {
    const replicas = { idle: await leader([]), slow: await large() };
    const { kernel, clock } = replicas.idle.environment;
    const stalled = stall(replicas.slow);
    await kernel.run(async () => {
      clock.setTimer(700, () => stalled.release());
      const answer = await serve(replicas, requestOf(["idle", "slow"], { maxWaitMs: 10_000 }));
      expect(told(answer)).toEqual(["idle NONE", "slow NONE with records"]);
      expect(clock.monotonicMs()).toBeCloseTo(700, 0);
    });
  });

  test("that is slow, while nobody has anything to tell: the answer comes at the time that was asked for", async () => {
    const replicas = { idle: await leader([]), stuck: await large() };
    const { kernel, clock } = replicas.idle.environment;
    stall(replicas.stuck);
    await kernel.run(async () => {
      const answer = await serve(replicas, requestOf(["idle", "stuck"], { maxWaitMs: 1000 }));
      expect(told(answer)).toEqual(["idle NONE", "stuck REQUEST_TIMED_OUT"]);
      expect(clock.monotonicMs()).toBeCloseTo(1000, 0);
    });
  });

  test("is not read again for the same follower while its read is out, in a request of its own neither", async () => {
    const replicas = { a: await large(), stuck: await large() };
    const { kernel } = replicas.a.environment;
    const stalled = stall(replicas.stuck);
    const reads = new OpenReads();
    let begun = 0;
    const { log } = replicas.stuck;
    const read = log.readSoon.bind(log);
    log.readSoon = (options) => {
      begun += 1;
      return read(options);
    };
    await kernel.run(async () => {
      await serve(replicas, requestOf(["a", "stuck"]), reads);
      for (let turn = 0; turn < 5; turn += 1) {
        expect(told(await serve(replicas, requestOf(["stuck"], { maxWaitMs: 10_000 }), reads))).toEqual([
          "stuck REQUEST_TIMED_OUT",
        ]);
        expect(told(await serve(replicas, requestOf(["stuck", "a"]), reads))).toEqual([
          "stuck REQUEST_TIMED_OUT",
          "a NONE with records",
        ]);
      }
      expect(begun).toBe(1);
      stalled.release();
      await new Promise<void>((resolve) => replicas.a.environment.clock.setTimer(1, resolve));
      expect(told(await serve(replicas, requestOf(["stuck"]), reads))).toEqual(["stuck NONE with records"]);
    });
  });

  test("that hangs for consumers is asked again by a bounded number of them", async () => {
    const replicas = { a: await large(), stuck: await large() };
    const { kernel } = replicas.a.environment;
    stall(replicas.stuck);
    const reads = new OpenReads();
    let begun = 0;
    const { log, partition } = replicas.stuck;
    // Followers have it all: consumers may read it.
    await partition.fetch(
      { ...(requestOf(["stuck"]).partitions[0] as FetchRequest["partitions"][0]), fetchOffset: 1, lastFetchedEpoch: 5 },
      { replicaId: 2, brokerEpoch: 102 },
      true,
    );
    const read = log.readSoon.bind(log);
    log.readSoon = (options) => {
      begun += 1;
      return read(options);
    };
    const asked = requestOf(["a", "stuck"], { replicaId: -1, brokerEpoch: -1, minBytes: 0 });
    await kernel.run(async () => {
      for (let turn = 0; turn < 30; turn += 1)
        expect(told(await serve(replicas, asked, reads))[1]).toBe("stuck REQUEST_TIMED_OUT");
    });
    expect(begun).toBe(16);
  });

  test("a leadership that ends while another partition is waited for: what was read for it is not told", async () => {
    const replicas = { deposed: await large(), slow: await large() };
    const { kernel, clock } = replicas.deposed.environment;
    stall(replicas.slow);
    await kernel.run(async () => {
      const waiting = serve(replicas, requestOf(["deposed", "slow"], { maxWaitMs: 10_000 }));
      clock.setTimer(SLOW_READ_MS / 2, () => {
        void replicas.deposed.partition.applyState(stateOf({ leader: 2, leaderEpoch: 6, partitionEpoch: 2 }));
      });
      expect(told(await waiting)).toEqual(["deposed NOT_LEADER_OR_FOLLOWER", "slow REQUEST_TIMED_OUT"]);
    });
  });
});

test("reads that are slow for one follower keep neither another one nor another partition from being read", async () => {
  const [a, b] = [await leader([1]), await leader([1])];
  const reads = new OpenReads();
  const read = { partition: a.partition, replicaId: 2, startedMs: 0 };
  reads.begin(read);
  const stuck = (nowMs: number): boolean[] => [
    reads.isStuck(a.partition, 2, nowMs),
    reads.isStuck(a.partition, 3, nowMs),
    reads.isStuck(b.partition, 2, nowMs),
  ];
  expect(stuck(SLOW_READ_MS - 1)).toEqual([false, false, false]);
  expect(stuck(SLOW_READ_MS)).toEqual([true, false, false]);
  reads.end(read);
  expect(stuck(SLOW_READ_MS)).toEqual([false, false, false]);
});

describe("a slow look that ended", () => {
  /** Its looks take so long, by the clock of another. */
  function delay(replica: Replica, delaysMs: readonly number[], { environment }: Replica, pool?: BufferPool): void {
    const { partition } = replica;
    const fetch = partition.fetch.bind(partition);
    const left = [...delaysMs];
    partition.fetch = async (...args) => {
      const result = await fetch(...args);
      const delayMs = left.shift() ?? 0;
      if (delayMs > 0) await new Promise<void>((resolve) => environment.clock.setTimer(delayMs, resolve));
      if (pool === undefined) return result;
      const bytes = pool.take(result.bytes.length);
      bytes.set(result.bytes);
      return { ...result, bytes };
    };
  }

  test("with nothing is looked at again: what comes later is told", async () => {
    const replicas = { idle: await leader([1, 1]), slow: await leader([1, 1]) };
    const { kernel, clock } = replicas.idle.environment;
    delay(replicas.slow, [3 * SLOW_READ_MS], replicas.idle);
    await kernel.run(async () => {
      const waiting = serve(replicas, requestOf(["idle", "slow"], { fetchOffset: 2, maxWaitMs: 10_000 }));
      await new Promise<void>((resolve) => clock.setTimer(5 * SLOW_READ_MS, resolve));
      await replicas.slow.partition.produce(batch(["new"]), { acks: 1, timeoutMs: 100, origin: "client" });
      expect((await waiting).partitions.map(({ bytes }) => bytes.length)).toEqual([0, batch(["new"]).length]);
      expect(clock.monotonicMs()).toBeLessThan(6 * SLOW_READ_MS);
    });
  });

  test("while others were still looked at keeps its memory until the answer is made", async () => {
    const pool = new BufferPool({ poisons: true });
    const value = "x".repeat(100_000);
    const replicas: Record<string, Replica> = {};
    for (let index = 0; index < FETCH_READS_MAX + 1; index += 1) replicas[`t${index}`] = await leader([]);
    const all = Object.values(replicas);
    const first = all[0] as Replica;
    await first.partition.produce(batch([value]), { acks: 1, timeoutMs: 100, origin: "client" });
    // The last one begins when those beside the first have ended, and ends after it.
    for (const replica of all)
      delay(replica, [replica === first ? 1.5 * SLOW_READ_MS : 0.9 * SLOW_READ_MS], first, pool);
    await first.environment.kernel.run(async () => {
      const request = requestOf(Object.keys(replicas), { minBytes: 1 << 30, maxWaitMs: 1000 });
      const { partitions } = await serve(replicas, request, new OpenReads(), undefined, pool);
      const held = await first.log.read({ fromOffset: toOffset(0), maxBytes: 1 });
      expect(Buffer.compare(partitions[0]?.bytes ?? new Uint8Array(0), held.bytes)).toBe(0);
    });
  });
});

describe("a fetch that waits", () => {
  test("waits thirty seconds at most, whatever was asked for, and leaves nobody waiting behind", async () => {
    const replica = await leader([1, 1]);
    let waiting = 0;
    const whenMoved = replica.partition.whenMoved.bind(replica.partition);
    replica.partition.whenMoved = (moved) => {
      const remove = whenMoved(moved);
      waiting += 1;
      return () => {
        remove();
        waiting -= 1;
      };
    };
    await replica.environment.kernel.run(async () => {
      await serve({ orders: replica }, requestOf(["orders"], { fetchOffset: 2, maxWaitMs: 2 ** 31 - 1 }));
      expect(replica.environment.clock.monotonicMs()).toBeCloseTo(30_000, 0);
      await serve({ orders: replica }, requestOf(["orders"], { fetchOffset: 1 }));
    });
    expect(waiting).toBe(0);
  });

  test("does not miss what comes during its look", async () => {
    const replica = await leader([1, 1]);
    const read = replica.log.readSoon.bind(replica.log);
    let looks = 0;
    replica.log.readSoon = async (options) => {
      const result = await read(options);
      looks += 1;
      if (looks === 1) await replica.partition.produce(batch(["new"]), { acks: 1, timeoutMs: 100, origin: "client" });
      return result;
    };
    await replica.environment.kernel.run(async () => {
      const { partitions } = await serve(
        { orders: replica },
        requestOf(["orders"], { fetchOffset: 2, maxWaitMs: 30_000 }),
      );
      expect(partitions[0]?.bytes.length).toBe(batch(["new"]).length);
      expect(replica.environment.clock.monotonicMs()).toBeLessThan(100);
      // As of before the read: what was appended beside it does not make the replica look behind.
      expect(replica.partition.leaderState?.replicas[0]?.lastFetchLeaderEndOffset).toBe(2);
    });
  });

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
      // That it is looked at again says nothing of the replica: it may have died while it waited.
      expect(replica.partition.leaderState?.replicas[0]?.lastFetchMs).toBeLessThan(50);
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
