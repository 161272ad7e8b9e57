import { toOffset } from "@tidemark/base";
import type { LogConfig } from "@tidemark/log";
import { LogManager } from "@tidemark/log";
import { AppointedController, DEFAULT_REPLICA_MANAGER_CONFIG, ReplicaManager } from "@tidemark/replica";
import type { ReplicaManagerConfig, TruncationReport } from "@tidemark/replica";
import { Kernel, SimulatedEnvironment } from "@tidemark/simulator";
import type { LossRule } from "@tidemark/simulator";
import { PeerError, decodeRecords, encodeBatch, recordsSection, scanBatch } from "@tidemark/wire";
import type { PeerAddress, PeerRequest, PeerTransport, ProducePartitionResponse, ResponseTo } from "@tidemark/wire";
import { MiniNetwork } from "./mini-network.ts";

export const TOPIC = "orders";
export const CONTROLLER_ID = 100;

export interface ClusterOptions {
  readonly seed: number;
  readonly brokers?: number;
  readonly log?: Partial<LogConfig>;
  readonly manager?: Partial<ReplicaManagerConfig>;
  readonly minInsyncReplicas?: number;
  readonly replicaLagTimeMaxMs?: number;
}

/** One broker: its machine, and the process on it, if one runs. */
export class Node {
  readonly brokerId: number;
  environment: SimulatedEnvironment;
  bootId = 1;
  incarnation = 0;
  logs: LogManager | undefined;
  manager: ReplicaManager | undefined;

  constructor(brokerId: number, environment: SimulatedEnvironment) {
    this.brokerId = brokerId;
    this.environment = environment;
  }
}

/** Brokers and a controller on one virtual clock, run by production code; only what surrounds it is simulated. */
export class Cluster {
  readonly kernel: Kernel;
  readonly network: MiniNetwork;
  readonly nodes = new Map<number, Node>();
  readonly truncations: (TruncationReport & { brokerId: number })[] = [];
  readonly failures: { brokerId: number; reason: string }[] = [];
  controller: AppointedController | undefined;
  readonly #options: ClusterOptions;
  readonly #controllerEnvironment: SimulatedEnvironment;
  readonly #client: PeerTransport;

  constructor(options: ClusterOptions) {
    this.#options = options;
    this.kernel = new Kernel({ seed: options.seed });
    this.network = new MiniNetwork(this.kernel, options.seed);
    this.#controllerEnvironment = this.#environment(CONTROLLER_ID);
    this.#client = this.network.transport(0, this.#controllerEnvironment.clock);
    for (let brokerId = 1; brokerId <= (options.brokers ?? 3); brokerId += 1)
      this.nodes.set(brokerId, new Node(brokerId, this.#environment(brokerId)));
  }

  /** Runs `body` in virtual time, then stops everything. */
  run<Result>(body: () => Promise<Result>): Promise<Result> {
    return this.kernel.run(async () => {
      try {
        return await body();
      } finally {
        await this.stop();
      }
    });
  }

  async startAll(): Promise<void> {
    const { files, clock } = this.#controllerEnvironment;
    this.controller = await AppointedController.open({ files, clock, directory: "controller" });
    const { controller } = this;
    this.network.attach(CONTROLLER_ID, (request) => controller.handle(request));
    for (const brokerId of this.nodes.keys()) await this.start(brokerId);
    await controller.createTopic({
      name: TOPIC,
      topicId: "AAAAAAAAAAEAAAAAAAAAAg",
      assignments: [[...this.nodes.keys()]],
    });
    await this.until("a leader serves", () => this.leader() !== undefined);
  }

  /** Starts the process of a broker on what its disk holds. */
  async start(brokerId: number): Promise<void> {
    const node = this.node(brokerId);
    node.incarnation += 1;
    const { environment } = node;
    const topicConfig = {
      segmentBytes: 1024 ** 2,
      indexIntervalBytes: 4096,
      maxMessageBytes: 1024 ** 2,
      flush: "none" as const,
      compression: "none" as const,
      ...this.#options.log,
    };
    const logs = await LogManager.open({
      environment,
      openState: async () => environment.state,
      directory: "log",
      nodeId: brokerId,
      defaults: topicConfig,
    });
    if (node.environment !== environment) return;
    node.logs = logs;
    const { minInsyncReplicas = 2, replicaLagTimeMaxMs = 10_000 } = this.#options;
    const config: ReplicaManagerConfig = {
      ...DEFAULT_REPLICA_MANAGER_CONFIG,
      replica: { replicaLagTimeMaxMs, minInsyncReplicas, countsFlushedEnds: topicConfig.flush === "always" },
      ...this.#options.manager,
    };
    const manager = ReplicaManager.start({
      brokerId,
      logs,
      clock: environment.clock,
      transport: this.network.transport(brokerId, environment.clock),
      controller: { nodeId: CONTROLLER_ID, host: "controller", port: 1 },
      host: `broker-${brokerId}`,
      port: 1,
      incarnationId: `${brokerId}-${node.incarnation}`,
      bootId: `${brokerId}-${node.bootId}`,
      topicConfig: () => topicConfig,
      config,
      onTruncated: (report) => this.truncations.push({ ...report, brokerId }),
      onFailed: (_name, reason) => this.failures.push({ brokerId, reason }),
    });
    node.manager = manager;
    this.network.attach(brokerId, (request) => manager.handle(request));
  }

  /** The process dies: its page cache survives. The controller hears of it at once. */
  async kill(brokerId: number): Promise<void> {
    const node = this.node(brokerId);
    this.#drop(node);
    node.environment = node.environment.crashProcess();
    await this.controller?.brokerDied(brokerId);
  }

  /** The machine dies: what was not synced is lost by the rule. */
  async powerCut(
    brokerId: number,
    rule: LossRule = "ordered-prefix",
    options: { isTold?: boolean } = {},
  ): Promise<void> {
    const node = this.node(brokerId);
    this.#drop(node);
    node.bootId += 1;
    node.environment = node.environment.crashMachine(rule);
    if (options.isTold ?? true) await this.controller?.brokerDied(brokerId);
  }

  /** Stops a process as an operator does. */
  async shutDown(brokerId: number): Promise<void> {
    const node = this.node(brokerId);
    const { manager, logs } = node;
    await manager?.close();
    this.network.detach(brokerId);
    await logs?.close({
      brokerEpoch: manager?.brokerEpoch ?? -1,
      highWatermark: (topic, partition) => manager?.partition({ topic, partition })?.highWatermark,
    });
    this.#drop(node);
    node.environment = node.environment.crashProcess();
    await this.controller?.brokerDied(brokerId);
  }

  async stop(): Promise<void> {
    for (const node of this.nodes.values()) {
      await node.manager?.close();
      await node.logs?.close();
      this.#drop(node);
    }
    await this.controller?.close();
  }

  node(brokerId: number): Node {
    const node = this.nodes.get(brokerId);
    if (node === undefined) throw new Error(`no broker ${brokerId}`);
    return node;
  }

  manager(brokerId: number): ReplicaManager {
    const { manager } = this.node(brokerId);
    if (manager === undefined) throw new Error(`broker ${brokerId} does not run`);
    return manager;
  }

  /** The broker that leads and knows it, if the controller thinks so too. */
  leader(): number | undefined {
    const state = this.controller?.state.partitions.find(({ topic }) => topic === TOPIC);
    if (state === undefined || state.leader < 0) return undefined;
    const partition = this.nodes.get(state.leader)?.manager?.partition({ topic: TOPIC, partition: 0 });
    return partition?.role === "leader" && partition.leaderEpoch === state.leaderEpoch ? state.leader : undefined;
  }

  /** Sends one batch of text values to a broker. */
  async produce(
    brokerId: number,
    values: readonly string[],
    options: { acks?: -1 | 0 | 1; timeoutMs?: number; producer?: { id: number; sequence: number } } = {},
  ): Promise<Omit<ProducePartitionResponse, "topic" | "partition">> {
    const { acks = -1, timeoutMs = 5000, producer } = options;
    const ids =
      producer === undefined ? {} : { producerId: producer.id, producerEpoch: 0, baseSequence: producer.sequence };
    const batch = encodeBatch(
      values.map((value) => ({ key: null, value: new TextEncoder().encode(value), timestamp: 1 })),
      ids,
    );
    const request = { kind: "produce", acks, timeoutMs, partitions: [{ topic: TOPIC, partition: 0, batch }] } as const;
    const response = await this.request(brokerId, request, timeoutMs + 1000);
    const [answer] = response.partitions;
    if (answer === undefined) throw new Error("a produce answers each partition");
    return answer;
  }

  request<Request extends PeerRequest>(
    brokerId: number,
    request: Request,
    timeoutMs: number,
  ): Promise<ResponseTo<Request>> {
    const address: PeerAddress = { nodeId: brokerId, host: "", port: 0 };
    return this.#client.request(address, request, { timeoutMs });
  }

  /** `offset:value` of every record in a broker's log. */
  async records(brokerId: number): Promise<string[]> {
    const log = this.node(brokerId).logs?.partition(TOPIC, 0);
    if (log === undefined) return [];
    const records: string[] = [];
    for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
      const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 << 20 });
      const before = next;
      for (let at = 0; at < bytes.length;) {
        const scan = scanBatch(bytes, at);
        if (scan.type !== "batch") break;
        for (const record of decodeRecords(scan.header, recordsSection(bytes, scan.header))) {
          if (record.offset >= before)
            records.push(`${record.offset}:${new TextDecoder().decode(record.value ?? new Uint8Array(0))}`);
        }
        next = scan.header.lastOffset + 1;
        at += scan.header.sizeInBytes;
      }
      if (next === before) break;
    }
    return records;
  }

  epochs(brokerId: number): string {
    const log = this.node(brokerId).logs?.partition(TOPIC, 0);
    return (log?.epochEntries ?? []).map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.kernel.schedule(ms * 1000, "test.wait", resolve));
  }

  /** Waits for a condition, in virtual time. @throws Error after 120 virtual seconds */
  async until(what: string, condition: () => boolean): Promise<void> {
    for (let turn = 0; turn < 24_000; turn += 1) {
      if (condition()) return;
      await this.wait(5);
    }
    const views = [...this.nodes.values()].map(
      ({ brokerId, manager }) => `${brokerId}: ${JSON.stringify(manager?.describe() ?? "down")}`,
    );
    throw new Error(
      `never: ${what}\n${views.join("\n")}\n${JSON.stringify(this.controller?.state)}\n${JSON.stringify(this.failures)}`,
    );
  }

  /** Waits until all live brokers hold the same log and the ISR is whole. */
  async converged(): Promise<void> {
    await this.until("the replicas agree", () => {
      const leader = this.leader();
      if (leader === undefined) return false;
      const running = [...this.nodes.values()].filter(({ manager }) => manager !== undefined);
      const views = running.map(({ manager }) => manager?.partition({ topic: TOPIC, partition: 0 }));
      const isr = this.controller?.state.partitions[0]?.isr ?? [];
      const end = views[0]?.log.logEndOffset;
      return (
        isr.length === running.length &&
        views.every((view) => view?.log.logEndOffset === end && view.highWatermark === end)
      );
    });
  }

  #drop(node: Node): void {
    this.network.detach(node.brokerId);
    node.manager = undefined;
    node.logs = undefined;
  }

  #environment(brokerId: number): SimulatedEnvironment {
    return new SimulatedEnvironment({
      seed: this.#options.seed * 101 + brokerId,
      kernel: this.kernel,
      mode: "kernel",
      latency: { minUs: 10, maxUs: 500 },
      disk: { keepsHistory: false },
    });
  }
}

export { PeerError };
