import { toOffset } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG } from "@tidemark/log";
import type { LogConfig, PartitionLog } from "@tidemark/log";
import { AppointedController, BrokerNode } from "@tidemark/replica";
import type { Partition, ReplicaManager, ReplicaManagerConfig, TruncationReport } from "@tidemark/replica";
import {
  enumerateCrashImages,
  KernelCompletion,
  SimulatedDisk,
  SimulatedEnvironment,
  SimulatedMessageNetwork,
  SimulatedRandom,
  WALL_START_MS,
} from "@tidemark/simulator";
import type { LossRule, SimulatedPeer } from "@tidemark/simulator";
import { decodeRecords, encodeBatch, recordsSection, scanBatch } from "@tidemark/wire";
import type { PartitionState, PeerAddress, PeerRequest, ProducePartitionResponse, ResponseTo } from "@tidemark/wire";
import type { SeenRecord } from "./history.ts";
import { ProcessClock, WatchedKernel } from "./process.ts";

const TOPIC = "orders";
export const NAME = { topic: TOPIC, partition: 0 };
export const CONTROLLER_ID = 100;
export const CLIENT_ID = 0;
const DISK_LATENCY = { minUs: 10, maxUs: 500 };
/** Of the disk operations of each node. */
const SEED_STRIDE = 101;
/** A leader whose clock was put back again and again is not to refuse what clients send. */
const TIMESTAMP_AFTER_MS_MAX = 86_400_000;

export interface ClusterOptions {
  readonly seed: number;
  readonly brokers?: number;
  readonly log?: Partial<LogConfig>;
  readonly manager?: Partial<ReplicaManagerConfig>;
  readonly minInsyncReplicas?: number;
  readonly replicaLagTimeMaxMs?: number;
  readonly sessionTimeoutMs?: number;
  /** Of each disk: one read or write in so many moves fewer bytes than asked; 0: none. */
  readonly shortTransferOneIn?: number;
}

/** What is done to a cluster from outside, for whoever tells its history. */
export type Notice =
  /** Words of a person about what comes. */
  | { readonly type: "told"; readonly text: string }
  | { readonly type: "kill" | "shutDown" | "pause" | "resume" | "start"; readonly brokerId: number }
  | { readonly type: "powerCut"; readonly brokerId: number; readonly loss: Loss }
  | { readonly type: "killController" | "startController" | "pauseController" | "resumeController" }
  /** A producer asks, and is answered. */
  | { readonly type: "produce"; readonly brokerId: number; readonly values: readonly string[]; readonly acks: number }
  | {
      readonly type: "produced";
      readonly brokerId: number;
      readonly values: readonly string[];
      readonly acks: number;
      readonly error: string;
      readonly baseOffset: number;
    }
  /** The history is over; what comes only stops the processes. */
  | { readonly type: "stop" };

/** `all`: everything that was not synced is lost. */
export type Loss = LossRule | "all";

/** What a broker has of the one topic. */
export interface Held {
  readonly broker: BrokerNode | undefined;
  readonly partition: Partition | undefined;
  readonly log: PartitionLog | undefined;
}

/** One broker: its machine, and the process on it, if one runs. */
export class Node {
  readonly brokerId: number;
  environment: SimulatedEnvironment;
  bootId = 1;
  incarnation = 0;
  /** Of the process; `undefined` when none runs. */
  clock: ProcessClock | undefined;
  peer: SimulatedPeer | undefined;
  /** Once it serves. */
  broker: BrokerNode | undefined;
  /**
   * A write or sync of the process has failed: of a segment, with what was written still to be read (`kept`), or not (`lost`); or of a
   * file beside them, which it hears of a little later, and may do without.
   */
  brokenDisk: "kept" | "lost" | "beside" | undefined;
  #known: Held = { broker: undefined, partition: undefined, log: undefined };

  constructor(brokerId: number, environment: SimulatedEnvironment) {
    this.brokerId = brokerId;
    this.environment = environment;
  }

  /** Also while it is opening its logs. */
  get isRunning(): boolean {
    return this.clock !== undefined;
  }

  get manager(): ReplicaManager | undefined {
    return this.broker?.manager;
  }

  get partition(): Partition | undefined {
    return this.held.partition;
  }

  get log(): PartitionLog | undefined {
    return this.held.log;
  }

  /** Asked between any two events. A broker makes its partition once, and keeps it; topics are not removed here. */
  get held(): Held {
    const { broker } = this;
    if (this.#known.broker !== broker || this.#known.partition === undefined) {
      this.#known = {
        broker,
        partition: broker?.manager.partition(NAME),
        log: broker?.logs.partition(TOPIC, 0),
      };
    }
    return this.#known;
  }
}

/** Brokers and a controller on one virtual clock, run by production code; only what surrounds it is simulated. */
export class Cluster {
  readonly kernel: WatchedKernel;
  readonly network: SimulatedMessageNetwork;
  readonly nodes = new Map<number, Node>();
  readonly truncations: (TruncationReport & { brokerId: number })[] = [];
  readonly failures: { brokerId: number; incarnation: number; reason: string }[] = [];
  readonly options: ClusterOptions;
  /** Called for each notice, before it is carried out. */
  onNotice: ((notice: Notice) => void) | undefined;
  controller: AppointedController | undefined;
  #controllerClock: ProcessClock | undefined;
  #isControllerPaused = false;
  #controllerPeer: SimulatedPeer | undefined;
  #controllerEnvironment: SimulatedEnvironment;
  #decidedIn: readonly PartitionState[] | undefined;
  #decided: PartitionState | undefined;
  readonly #client: SimulatedPeer;

  constructor(options: ClusterOptions) {
    this.options = options;
    const { seed, brokers = 3 } = options;
    this.kernel = new WatchedKernel({ seed });
    this.network = new SimulatedMessageNetwork({ kernel: this.kernel, random: new SimulatedRandom(seed) });
    this.#controllerEnvironment = this.#environment(CONTROLLER_ID);
    this.#client = this.network.join(addressOf(CLIENT_ID));
    for (let brokerId = 1; brokerId <= brokers; brokerId += 1)
      this.nodes.set(brokerId, new Node(brokerId, this.#environment(brokerId)));
  }

  /** Runs `body` in virtual time, then stops everything. */
  async run<Result>(body: () => Promise<Result>): Promise<Result> {
    return this.kernel.run(async () => {
      await this.startController();
      try {
        return await body();
      } finally {
        await this.stop();
      }
    });
  }

  /** Starts all brokers, makes the topic, and waits for its leader. */
  async startAll(): Promise<void> {
    await Promise.all([...this.nodes.keys()].map((brokerId) => this.start(brokerId)));
    const assignments = [[...this.nodes.keys()]];
    await this.until(
      "all brokers are registered",
      () => this.controller?.state.brokers.length === assignments[0]?.length,
    );
    await this.controller?.createTopic({ name: TOPIC, topicId: "AAAAAAAAAAEAAAAAAAAAAg", assignments });
    await this.until("a leader serves", () => this.leader() !== undefined);
  }

  // ---- the controller ------------------------------------------------------------------------------------------------

  async startController(): Promise<void> {
    this.onNotice?.({ type: "startController" });
    const { files, clock: inner } = this.#controllerEnvironment;
    const clock = new ProcessClock(inner);
    this.#controllerClock = clock;
    const { sessionTimeoutMs } = this.options;
    const controller = await AppointedController.open({
      files,
      clock,
      directory: "controller",
      ...(sessionTimeoutMs === undefined ? {} : { sessionTimeoutMs }),
    });
    if (this.#controllerClock !== clock) return;
    this.controller = controller;
    const peer = this.network.join(addressOf(CONTROLLER_ID));
    peer.serve((request) => controller.handle(request));
    this.#controllerPeer = peer;
  }

  killController(): void {
    this.onNotice?.({ type: "killController" });
    this.#controllerClock?.die();
    this.#controllerClock = undefined;
    this.#controllerPeer?.crashProcess();
    this.#unclog(CONTROLLER_ID);
    this.#isControllerPaused = false;
    this.controller = undefined;
    this.#controllerEnvironment = this.#controllerEnvironment.crashProcess();
  }

  /** SIGSTOP to the controller's process. */
  pauseController(): void {
    this.onNotice?.({ type: "pauseController" });
    this.#isControllerPaused = true;
    this.#controllerClock?.pause();
    this.#clog(CONTROLLER_ID);
  }

  /** SIGCONT. As in libuv's loop, timers that are overdue fire before anything is read that arrived meanwhile. */
  async resumeController(): Promise<void> {
    if (!this.#isControllerPaused) return;
    this.#isControllerPaused = false;
    this.onNotice?.({ type: "resumeController" });
    this.#controllerClock?.resume();
    await this.wait(1);
    this.#unclog(CONTROLLER_ID);
  }

  /** What the controller decided last about the partition. */
  get decided(): PartitionState | undefined {
    const partitions = this.controller?.state.partitions;
    if (partitions === undefined) return undefined;
    // Asked between any two events. A state is never changed, only replaced.
    if (this.#decidedIn !== partitions) {
      this.#decidedIn = partitions;
      this.#decided = partitions.find(({ topic }) => topic === TOPIC);
    }
    return this.#decided;
  }

  // ---- brokers -------------------------------------------------------------------------------------------------------

  /** Starts the process of a broker on what its disk holds. */
  async start(brokerId: number): Promise<void> {
    const node = this.node(brokerId);
    if (node.isRunning) return;
    this.onNotice?.({ type: "start", brokerId });
    node.incarnation += 1;
    const { environment } = node;
    const clock = new ProcessClock(environment.clock);
    node.clock = clock;
    const topicConfig = {
      ...DEFAULT_LOG_CONFIG,
      segmentBytes: 1024 ** 2,
      maxMessageBytes: 1024 ** 2,
      flush: "none" as const,
      compression: "none" as const,
      timestampAfterMaxMs: TIMESTAMP_AFTER_MS_MAX,
      ...this.options.log,
    };
    const { random, files, workers } = environment;
    const { minInsyncReplicas = 2, replicaLagTimeMaxMs = 10_000, manager = {} } = this.options;
    const peer = this.network.join(addressOf(brokerId));
    // Of a process that dies while it opens its logs too.
    node.peer = peer;
    const broker = await BrokerNode.open({
      brokerId,
      environment: { clock, random, files, workers },
      openState: async () => environment.state,
      directory: "log",
      transport: peer,
      controller: addressOf(CONTROLLER_ID),
      listen: (handler) => {
        // The process died while its logs were being opened.
        if (node.clock !== clock) return new Promise(() => undefined);
        peer.serve(handler);
        return Promise.resolve(addressOf(brokerId));
      },
      incarnationId: `${brokerId}-${node.incarnation}`,
      bootId: `${brokerId}-${node.bootId}`,
      topicConfig,
      config: { replica: { replicaLagTimeMaxMs, minInsyncReplicas, countsFlushedEnds: false }, ...manager },
      onTruncated: (report) => this.truncations.push({ ...report, brokerId }),
      onFailed: (_name, reason) => {
        const { incarnation, brokenDisk } = node;
        if (node.clock === clock && brokenDisk === undefined) this.failures.push({ brokerId, incarnation, reason });
      },
    });
    if (node.clock !== clock) return;
    node.broker = broker;
  }

  /** The process dies: its page cache survives. The controller hears of it at once, unless it is not told. */
  async kill(brokerId: number, options: { isTold?: boolean } = {}): Promise<void> {
    const node = this.node(brokerId);
    if (node.isRunning) this.onNotice?.({ type: "kill", brokerId });
    node.peer?.crashProcess();
    this.#drop(node);
    node.environment = node.environment.crashProcess();
    if (options.isTold ?? true) await this.controller?.brokerDied(brokerId);
  }

  /** The machine dies: what was not synced is lost by the rule. */
  async powerCut(brokerId: number, loss: Loss, options: { isTold?: boolean } = {}): Promise<void> {
    const node = this.node(brokerId);
    this.onNotice?.({ type: "powerCut", brokerId, loss });
    node.peer?.crashMachine();
    this.#drop(node);
    node.bootId += 1;
    node.environment = loss === "all" ? this.#losingAll(node) : node.environment.crashMachine(loss);
    if (options.isTold ?? true) await this.controller?.brokerDied(brokerId);
  }

  /** Stops a process as an operator does. */
  async shutDown(brokerId: number): Promise<void> {
    const node = this.node(brokerId);
    const { broker, clock } = node;
    this.onNotice?.({ type: "shutDown", brokerId });
    // It goes on serving until its process ends, which is the next step.
    await broker?.close(() => Promise.resolve());
    if (node.clock !== clock) return;
    await this.kill(brokerId);
  }

  /** SIGSTOP: its timers wait, and so do messages from and to it. */
  pause(brokerId: number): void {
    this.onNotice?.({ type: "pause", brokerId });
    this.node(brokerId).clock?.pause();
    this.#clog(brokerId);
  }

  /** SIGCONT. */
  resume(brokerId: number): void {
    if (this.node(brokerId).clock?.isPaused === true) this.onNotice?.({ type: "resume", brokerId });
    this.#unclog(brokerId);
    this.node(brokerId).clock?.resume();
  }

  async stop(): Promise<void> {
    this.onNotice?.({ type: "stop" });
    for (const node of this.nodes.values()) {
      await node.broker?.close(() => Promise.resolve());
      node.peer?.crashProcess();
      this.#drop(node);
    }
    await this.controller?.close();
    this.#controllerClock?.die();
  }

  /** Says what a history is about here, to whoever records it. */
  tell(text: string): void {
    this.onNotice?.({ type: "told", text });
  }

  // ---- looking and asking --------------------------------------------------------------------------------------------

  node(brokerId: number): Node {
    const node = this.nodes.get(brokerId);
    if (node === undefined) throw new Error(`no broker ${brokerId}`);
    return node;
  }

  /** The partition on a broker that runs. */
  partition(brokerId: number): Partition {
    const { partition } = this.node(brokerId);
    if (partition === undefined) throw new Error(`broker ${brokerId} has no replica at present`);
    return partition;
  }

  /** The broker that leads and knows it, if the controller thinks so too. */
  leader(): number | undefined {
    const state = this.decided;
    if (state === undefined || state.leader < 0) return undefined;
    const partition = this.nodes.get(state.leader)?.partition;
    return partition?.role === "leader" && partition.leaderEpoch === state.leaderEpoch ? state.leader : undefined;
  }

  /** Waits until this broker leads. */
  async leads(brokerId: number): Promise<void> {
    await this.until(`broker ${brokerId} leads`, () => this.leader() === brokerId);
  }

  /** Sends one batch of text values to a broker. */
  async produce(
    brokerId: number,
    values: readonly string[],
    options: { acks?: -1 | 0 | 1; timeoutMs?: number; producer?: { id: number; sequence: number } } = {},
  ): Promise<Omit<ProducePartitionResponse, "topic" | "partition">> {
    const { acks = -1, timeoutMs = 5000, producer } = options;
    this.onNotice?.({ type: "produce", brokerId, values, acks });
    const answer = await this.send(brokerId, textBatch(values, producer), { acks, timeoutMs });
    this.onNotice?.({ ...answer, type: "produced", brokerId, values, acks });
    return answer;
  }

  /** Sends a batch as it is. @throws PeerError when no answer came */
  async send(
    brokerId: number,
    batch: Uint8Array,
    options: { acks: -1 | 0 | 1; timeoutMs: number },
  ): Promise<Omit<ProducePartitionResponse, "topic" | "partition">> {
    const { acks, timeoutMs } = options;
    const request = { kind: "produce", acks, timeoutMs, partitions: [{ ...NAME, batch }] } as const;
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
    return this.#client.request(addressOf(brokerId), request, { timeoutMs });
  }

  /** `offset:value` of every record in a broker's log. */
  async records(brokerId: number): Promise<string[]> {
    const { log } = this.node(brokerId);
    return log === undefined ? [] : recordsOf(log);
  }

  epochs(brokerId: number): string {
    return (this.node(brokerId).log?.epochEntries ?? [])
      .map(({ epoch, startOffset }) => `${epoch}@${startOffset}`)
      .join(" ");
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.kernel.schedule(ms * 1000, "test.wait", resolve));
  }

  /** Waits for a condition, in virtual time. @throws Error when it does not come in time */
  async until(what: string, condition: () => boolean, timeoutMs = 120_000): Promise<void> {
    const deadlineUs = this.kernel.nowUs + timeoutMs * 1000;
    for (let stepMs = 5; this.kernel.nowUs < deadlineUs; stepMs = Math.min(stepMs + 1, 50)) {
      if (condition()) return;
      await this.wait(stepMs);
    }
    throw new Error(`never: ${what}\n${this.describe()}`);
  }

  /** Everything about everybody, for messages. */
  describe(): string {
    const views = [...this.nodes.values()].map(
      ({ brokerId, manager, isRunning }) =>
        `${brokerId}: ${JSON.stringify(manager?.describe() ?? (isRunning ? "opening" : "down"))}`,
    );
    return `${views.join("\n")}\n${JSON.stringify(this.controller?.state ?? "no controller")}\n${JSON.stringify(this.failures)}`;
  }

  /** Waits until all live brokers hold the same log, committed to its end, and the ISR is whole. */
  async converged(timeoutMs?: number): Promise<void> {
    const agree = (): boolean => {
      if (this.leader() === undefined) return false;
      const running = [...this.nodes.values()].filter(({ isRunning }) => isRunning);
      const end = running[0]?.log?.logEndOffset;
      return (
        this.decided?.isr.length === running.length &&
        running.every(({ log, partition }) => log?.logEndOffset === end && partition?.highWatermark === end)
      );
    };
    await this.until("the replicas agree", agree, timeoutMs);
  }

  #clog(nodeId: number): void {
    for (const other of this.network.nodes) {
      if (other === nodeId) continue;
      this.network.clog(other, nodeId);
      this.network.clog(nodeId, other);
    }
  }

  #unclog(nodeId: number): void {
    for (const other of this.network.nodes) {
      if (other === nodeId) continue;
      this.network.unclog(other, nodeId);
      this.network.unclog(nodeId, other);
    }
  }

  #drop(node: Node): void {
    node.clock?.die();
    node.clock = undefined;
    node.brokenDisk = undefined;
    node.peer = undefined;
    node.broker = undefined;
  }

  #losingAll(node: Node): SimulatedEnvironment {
    const { random, files } = node.environment;
    const [image] = enumerateCrashImages(files.crashPoint(), "ordered-prefix");
    if (image === undefined) throw new Error("there is always an outcome");
    node.environment.crashProcess();
    const completion = new KernelCompletion(this.kernel, random, DISK_LATENCY);
    const disk = SimulatedDisk.fromImage(image, { ...this.#diskOptions, random, completion });
    return this.#environment(node.brokerId, disk, random);
  }

  get #diskOptions(): { keepsHistory: boolean; shortTransferOneIn: number } {
    return { keepsHistory: false, shortTransferOneIn: this.options.shortTransferOneIn ?? 0 };
  }

  #environment(nodeId: number, disk?: SimulatedDisk, random?: SimulatedRandom): SimulatedEnvironment {
    return new SimulatedEnvironment(
      {
        seed: this.options.seed * SEED_STRIDE + nodeId,
        kernel: this.kernel,
        mode: "kernel",
        latency: DISK_LATENCY,
        disk: this.#diskOptions,
      },
      disk,
      random,
    );
  }
}

function addressOf(nodeId: number): PeerAddress {
  return { nodeId, host: `node-${nodeId}`, port: 9092 };
}

/** One batch of text values without compression. */
export function textBatch(values: readonly string[], producer?: { id: number; sequence: number }): Uint8Array {
  const ids =
    producer === undefined ? {} : { producerId: producer.id, producerEpoch: 0, baseSequence: producer.sequence };
  return encodeBatch(
    values.map((value) => ({ key: null, value: new TextEncoder().encode(value), timestamp: timeOf(values) })),
    ids,
  );
}

/** Some second of the simulated world's first hour, in no order: clients' clocks differ. A log forgets a producer after a day. */
function timeOf(values: readonly string[]): number {
  let digest = 0;
  for (const character of values[0]?.slice(0, 16) ?? "") digest = (digest * 31 + character.charCodeAt(0)) % 3600;
  return WALL_START_MS + digest * 1000;
}

/** `offset:value` of every record in a log. */
export async function recordsOf(log: PartitionLog): Promise<string[]> {
  const records: SeenRecord[] = [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 << 20 });
    const more = recordsIn(bytes, next);
    if (more.length === 0) break;
    records.push(...more);
    next = (records.at(-1)?.offset ?? next) + 1;
  }
  return records.map(({ offset, value }) => `${offset}:${value}`);
}

/** The records of whole batches, from the offset on: a fetch brings the batch that holds it. */
export function recordsIn(bytes: Uint8Array, fromOffset: number): SeenRecord[] {
  const records: SeenRecord[] = [];
  for (let at = 0; at < bytes.length;) {
    const scan = scanBatch(bytes, at);
    if (scan.type !== "batch") break;
    for (const { offset, value } of decodeRecords(scan.header, recordsSection(bytes, scan.header))) {
      if (offset >= fromOffset) records.push({ offset, value: new TextDecoder().decode(value ?? new Uint8Array(0)) });
    }
    at += scan.header.sizeInBytes;
  }
  return records;
}
