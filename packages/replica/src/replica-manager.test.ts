import { toLeaderEpoch } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG, LogManager } from "@tidemark/log";
import type { FlushMode } from "@tidemark/log";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { encodeBatch, PeerError } from "@tidemark/wire";
import type {
  ClusterStateRequest,
  FetchRequest,
  PartitionState,
  PeerAddress,
  PeerRequest,
  ResponseTo,
} from "@tidemark/wire";
import { expect, test } from "vitest";
import { refusedFetch } from "./refusals.ts";
import { DEFAULT_REPLICA_MANAGER_CONFIG, ReplicaManager } from "./replica-manager.ts";

const CONTROLLER: PeerAddress = { nodeId: 100, host: "controller", port: 1 };
const CONFIG = {
  ...DEFAULT_LOG_CONFIG,
  segmentBytes: 1 << 20,
  maxMessageBytes: 1 << 20,
  flush: "none",
  compression: "none",
} as const;

function stateOf(topic: string, number: number, more: Partial<PartitionState> = {}): PartitionState {
  return {
    number,
    topic,
    partition: 0,
    topicId: topic === "quick" ? "AAAAAAAAAAEAAAAAAAAAAg" : "AAAAAAAAAAEAAAAAAAAAAw",
    replicas: [1, 2],
    isr: [1, 2],
    leader: 1,
    leaderEpoch: 0,
    partitionEpoch: 0,
    ...more,
  };
}

/** Broker 1 among peers whose answers the test makes up. */
class World {
  readonly environment = new SimulatedEnvironment({ seed: 1, mode: "kernel" });
  readonly asked: { readonly to: number; readonly request: PeerRequest }[] = [];
  /** The controller's next answers to clusterState, in order; without one it lets the broker wait. */
  readonly news: ((request: ClusterStateRequest) => Partial<ResponseTo<ClusterStateRequest>>)[] = [];
  brokerEpoch = 10;
  /** That the controller still answers. */
  registrations = 1;
  areFetchesLost = false;
  /** A topic whose making never ends. */
  stuckTopic: string | undefined;
  /** Topics that were made, however long that takes. */
  readonly made: string[] = [];
  makingMs = 0;
  /** What a leader answers to a fetch; without one it is silent, or lost. */
  fetched: (() => ResponseTo<FetchRequest>) | undefined;

  /** @param options `flushes`: of a topic each that is there before */
  async start(
    options: {
      readonly bootId?: string;
      readonly directory?: string;
      readonly countsFlushedEnds?: boolean;
      readonly flushes?: readonly FlushMode[];
    } = {},
  ): Promise<ReplicaManager> {
    const { bootId = "boot", directory = "log", countsFlushedEnds = false, flushes = [] } = options;
    const { environment } = this;
    const logs = await LogManager.open({
      environment,
      openState: async () => environment.state,
      directory,
      nodeId: 1,
      defaults: CONFIG,
    });
    for (const [at, flush] of flushes.entries()) await logs.createTopic(`before-${at}`, 1, { ...CONFIG, flush });
    const createTopic = logs.createTopic.bind(logs);
    logs.createTopic = async (name, ...rest) => {
      if (name === this.stuckTopic) return new Promise(() => undefined);
      this.made.push(name);
      if (this.makingMs > 0) await this.wait(this.makingMs);
      return createTopic(name, ...rest);
    };
    return ReplicaManager.start({
      brokerId: 1,
      logs,
      clock: environment.clock,
      transport: {
        request: (address, request) => this.#answer(address, request),
        close: async () => undefined,
      },
      controller: CONTROLLER,
      host: "h",
      port: 1,
      incarnationId: "start",
      bootId,
      topicConfig: () => CONFIG,
      config: {
        ...DEFAULT_REPLICA_MANAGER_CONFIG,
        replica: { ...DEFAULT_REPLICA_MANAGER_CONFIG.replica, countsFlushedEnds },
      },
    });
  }

  async #answer<R extends PeerRequest>(address: PeerAddress, request: R): Promise<ResponseTo<R>> {
    this.asked.push({ to: address.nodeId, request });
    await this.wait(1);
    const fetched = request.kind === "fetch" ? this.fetched?.() : undefined;
    if (fetched !== undefined) return fetched as ResponseTo<R>;
    if (request.kind === "fetch" && this.areFetchesLost) throw new PeerError("DISCONNECTED", "lost");
    if (request.kind === "register" && this.registrations > 0) {
      this.registrations -= 1;
      this.brokerEpoch += 1;
      return { kind: "register", error: "NONE", brokerEpoch: this.brokerEpoch } as ResponseTo<R>;
    }
    const next = request.kind === "clusterState" ? this.news.shift() : undefined;
    if (request.kind !== "clusterState" || next === undefined) return new Promise(() => undefined);
    const brokers = [1, 2, 3].map((brokerId) => ({
      brokerId,
      brokerEpoch: brokerId === 1 ? this.brokerEpoch : brokerId,
      host: `node-${brokerId}`,
      port: 1,
      isFenced: false,
    }));
    return {
      kind: "clusterState",
      error: "NONE",
      number: 1,
      brokers,
      partitions: [],
      ...next(request),
    } as ResponseTo<R>;
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.environment.clock.setTimer(ms, resolve));
  }

  fetches(): { readonly to: number; readonly brokerEpoch: number; readonly leaderEpoch: number }[] {
    return this.asked
      .filter((asked): asked is { to: number; request: FetchRequest } => asked.request.kind === "fetch")
      .map(({ to, request }) => ({
        to,
        brokerEpoch: request.brokerEpoch,
        leaderEpoch: request.partitions[0]?.currentLeaderEpoch ?? -1,
      }));
  }
}

test("a partition that takes for ever to open holds up no other, nor the controller's sign of life", async () => {
  const world = new World();
  world.stuckTopic = "stuck";
  world.news.push(
    () => ({ number: 7, partitions: [stateOf("stuck", 6), stateOf("quick", 7)] }),
    () => ({ number: 8, partitions: [stateOf("quick", 8, { partitionEpoch: 1, isr: [1] })] }),
  );
  await world.environment.kernel.run(async () => {
    const manager = await world.start();
    await world.wait(200);
    const quick = manager.partition({ topic: "quick", partition: 0 });
    expect([quick?.role, quick?.leaderState?.partitionEpoch]).toEqual(["leader", 1]);
    const afters = world.asked.flatMap(({ request }) => (request.kind === "clusterState" ? [request.afterNumber] : []));
    expect(afters).toEqual([-1, 7, 8]);
    // Not all of what was said is done.
    expect(manager.stateNumber).toBe(-1);
    await manager.close();
  });
});

test("again and again replicas that lag are looked for, and what was written is synced", async () => {
  const world = new World();
  const { replica, flushIntervalMs = 0 } = DEFAULT_REPLICA_MANAGER_CONFIG;
  const halfLagMs = replica.replicaLagTimeMaxMs / 2;
  world.news.push(() => ({ number: 1, partitions: [stateOf("quick", 1)] }));
  await world.environment.kernel.run(async () => {
    const manager = await world.start();
    await world.wait(200);
    const partition = manager.partition({ topic: "quick", partition: 0 });
    for (let round = 1; round <= 2; round += 1) {
      const batch = encodeBatch([{ key: null, value: new Uint8Array(1), timestamp: world.environment.clock.wallMs() }]);
      await partition?.produce(batch, { acks: 1, timeoutMs: 1000, origin: "client" });
      expect([partition?.log.flushedEndOffset, partition?.log.logEndOffset]).toEqual([round - 1, round]);
      await world.wait(flushIntervalMs + 200);
      expect(partition?.log.flushedEndOffset).toBe(round);
    }
    // Broker 2 has never fetched.
    const proposals = (): unknown[] =>
      world.asked.flatMap(({ request }) =>
        request.kind === "alterPartition" ? [{ topic: request.topic, newIsr: request.newIsr }] : [],
      );
    await world.wait(2 * halfLagMs);
    expect(proposals()).toEqual([]);
    await world.wait(halfLagMs);
    expect(proposals()).toMatchObject([{ topic: "quick", newIsr: [{ brokerId: 1 }] }]);
    await manager.close();
  });
});

test("a broker that the controller does not know any more fetches with its old broker epoch: none at all would not be fenced", async () => {
  const world = new World();
  world.areFetchesLost = true;
  world.news.push(
    () => ({ number: 1, partitions: [stateOf("quick", 1, { leader: 2 })] }),
    () => ({ error: "STALE_BROKER_EPOCH", number: -1 }),
  );
  await world.environment.kernel.run(async () => {
    const manager = await world.start();
    await world.wait(2000);
    // It asks to be registered anew, without an answer.
    expect(world.asked.filter(({ request }) => request.kind === "register").length).toBeGreaterThan(1);
    const fetches = world.fetches();
    expect(fetches.length).toBeGreaterThan(5);
    expect(new Set(fetches.map(({ brokerEpoch }) => brokerEpoch))).toEqual(new Set([11]));
    await manager.close();
  });
});

test("a partition that failed under one leader asks only the next one", async () => {
  const world = new World();
  world.news.push(() => ({ number: 1, partitions: [stateOf("quick", 1, { leader: 2 })] }));
  await world.environment.kernel.run(async () => {
    const manager = await world.start();
    await world.wait(100);
    const quick = manager.partition({ topic: "quick", partition: 0 });
    // Broker 1 is to lead in an epoch that its log is already past.
    await quick?.log.becomeLeader(toLeaderEpoch(5));
    await quick?.applyState(stateOf("quick", 2, { leaderEpoch: 1, partitionEpoch: 1 }));
    expect(quick?.role).toBe("failed");
    await quick?.applyState(stateOf("quick", 3, { leader: 3, isr: [3], leaderEpoch: 6, partitionEpoch: 2 }));
    const before = world.asked.length;
    manager.resumeFetching();
    await world.wait(100);
    expect(world.asked.slice(before).filter(({ to }) => to === 2)).toEqual([]);
    await manager.close();
  });
});

test("a paused broker owes nobody a question once those that were out are over, and asks no more until it resumes", async () => {
  const world = new World();
  world.areFetchesLost = true; // After 1 ms each.
  world.news.push(() => ({ number: 1, partitions: [stateOf("quick", 1, { leader: 2 })] }));
  await world.environment.kernel.run(async () => {
    const manager = await world.start();
    while (!manager.isAsking) await world.wait(0.25);
    manager.pauseFetching();
    expect(manager.isAsking).toBe(true);
    await world.wait(2);
    expect(manager.isAsking).toBe(false);
    const before = world.fetches().length;
    await world.wait(2000);
    expect([manager.isAsking, world.fetches().length]).toEqual([false, before]);
    manager.resumeFetching();
    await world.wait(300);
    expect(world.fetches().length).toBeGreaterThan(before);
    await manager.close();
  });
});

test("a failed disk: what waits for the followers is answered at once, and nothing is served or acknowledged any more", async () => {
  const world = new World();
  world.registrations = 2;
  const led = stateOf("led", 1, { isr: [1, 2] });
  world.news.push(() => ({ number: 1, partitions: [led] }));
  await world.environment.kernel.run(async () => {
    const manager = await world.start();
    await world.wait(300);
    const batch = encodeBatch([{ key: null, value: null, timestamp: 1 }], {});
    const produce = async (acks: -1 | 1): Promise<string | undefined> => {
      const partitions = [{ topic: "led", partition: 0, batch }];
      const answer = await manager.handle({ kind: "produce", acks, timeoutMs: 60_000, partitions });
      return answer.kind === "produce" ? answer.partitions[0]?.error : undefined;
    };
    const waiting = produce(-1);
    await world.wait(100);
    const partition = manager.partition(led);
    expect(partition?.leaderState?.waitingProduceCount).toBe(1);
    world.environment.files.inject({ operation: "sync", path: /\.log$/u, code: "EIO" });
    await partition?.log.flushInBackground();
    await world.wait(1);
    const askedMs = world.environment.clock.monotonicMs();
    expect(await waiting).toBe("KAFKA_STORAGE_ERROR");
    // The follower fetches what it lacks, and then all of it is on two machines, of which one has lost it.
    const partitions = [
      {
        topic: "led",
        partition: 0,
        currentLeaderEpoch: 0,
        fetchOffset: 1,
        lastFetchedEpoch: 0,
        logStartOffset: 0,
        flushedEndOffset: 0,
        maxBytes: 1000,
      },
    ];
    const fetched = await manager.handle({
      kind: "fetch",
      replicaId: 2,
      brokerEpoch: 2,
      maxWaitMs: 0,
      minBytes: 0,
      maxBytes: 1000,
      partitions,
    });
    expect(fetched).toMatchObject({ partitions: [{ error: "KAFKA_STORAGE_ERROR" }] });
    expect([await produce(1), partition?.role, partition?.highWatermark]).toEqual(["KAFKA_STORAGE_ERROR", "failed", 0]);
    expect(world.environment.clock.monotonicMs()).toBe(askedMs);
    await manager.close();
  });
});

test("a failed disk: the broker is registered at once as one of another boot, with no clean stop, and follows nobody any more", async () => {
  const world = new World();
  world.areFetchesLost = true;
  world.registrations = 2;
  world.news.push(() => ({ number: 2, partitions: [stateOf("quick", 1, { leader: 2 }), stateOf("led", 2)] }));
  await world.environment.kernel.run(async () => {
    const manager = await world.start();
    await world.wait(300);
    expect(world.fetches().length).toBeGreaterThan(0);
    const record = encodeBatch([{ key: null, value: null, timestamp: 1 }], {});
    await manager.handle({
      kind: "produce",
      acks: 1,
      timeoutMs: 100,
      partitions: [{ topic: "led", partition: 0, batch: record }],
    });
    world.environment.files.inject({ operation: "sync", path: /\.log$/u, code: "EIO" });
    // What it hears of later is not followed either.
    const led = stateOf("led", 3, { leader: 3, isr: [3], leaderEpoch: 1, partitionEpoch: 1 });
    world.news.push(() => ({ number: 3, partitions: [led] }));
    await manager.partition({ topic: "led", partition: 0 })?.log.flushInBackground();
    const before = world.fetches().length;
    await world.wait(5000);
    expect(world.fetches().length).toBe(before);
    const registrations = world.asked.flatMap(({ request }) => (request.kind === "register" ? [request] : []));
    expect(registrations).toMatchObject([
      { incarnationId: "start", bootId: "boot" },
      { incarnationId: "start failed", bootId: "start failed", cleanShutdownBrokerEpoch: -1, isTailDurable: false },
    ]);
    expect([manager.brokerEpoch, manager.partition(led)?.leaderEpoch]).toEqual([12, 1]);
    await manager.close();
    // The controller may have heard nothing of it: the next process of this boot of the kernel says so itself.
    const bootIdOf = async (bootId: string): Promise<string | undefined> => {
      world.asked.length = 0;
      const next = await world.start({ bootId, directory: `log-of-${bootId}` });
      await world.wait(10);
      await next.close();
      const [registration] = world.asked.flatMap(({ request }) => (request.kind === "register" ? [request] : []));
      return registration?.bootId;
    };
    expect(await bootIdOf("boot")).toBe("boot after start");
    expect(await bootIdOf("boo")).toBe("boo");
    expect(await bootIdOf("another")).toBe("another");
  });
});

test("states that come while a partition is still being opened wait for it: it is opened once, and told them in order", async () => {
  const world = new World();
  world.makingMs = 50;
  world.news.push(
    () => ({ number: 1, partitions: [stateOf("quick", 1)] }),
    () => ({ number: 2, partitions: [stateOf("quick", 2, { partitionEpoch: 1, isr: [1] })] }),
  );
  await world.environment.kernel.run(async () => {
    const manager = await world.start();
    await world.wait(200);
    const quick = manager.partition({ topic: "quick", partition: 0 });
    expect([quick?.role, quick?.leaderState?.partitionEpoch, world.made]).toEqual(["leader", 1, ["quick"]]);
    await manager.close();
  });
});

test("a partition that an answer leaves out hears nothing of what it says about another", async () => {
  const world = new World();
  const fenced = { topic: "quick", partition: 0, ...refusedFetch("FENCED_LEADER_EPOCH") };
  world.fetched = () => ({ kind: "fetch", partitions: [fenced] });
  world.news.push(() => ({ number: 1, partitions: [stateOf("other", 1, { leader: 2 })] }));
  await world.environment.kernel.run(async () => {
    const manager = await world.start();
    await world.wait(1000);
    // It waits, and asks again.
    expect(world.fetches().length).toBeGreaterThan(2);
    expect(manager.partition({ topic: "other", partition: 0 })?.followerState?.phase).toBe("fetching");
    await manager.close();
  });
});

test.each([
  { countsFlushedEnds: true, flush: "always", isTailDurable: true },
  { countsFlushedEnds: true, flush: "none", isTailDurable: false },
  { countsFlushedEnds: false, flush: "always", isTailDurable: false },
] as const)(
  "all that it is counted for is on its disk: HW of flushed ends $countsFlushedEnds, one of its topics with flush $flush",
  async ({ countsFlushedEnds, flush, isTailDurable }) => {
    const world = new World();
    await world.environment.kernel.run(async () => {
      const manager = await world.start({ countsFlushedEnds, flushes: ["always", flush] });
      await world.wait(10);
      expect(world.asked[0]?.request).toMatchObject({ kind: "register", isTailDurable });
      await manager.close();
    });
  },
);
