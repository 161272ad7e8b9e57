import { BufferPool, decodeUtf8, encodeUtf8, toOffset } from "@tidemark/base";
import type { Clock, Offset, Timer } from "@tidemark/base";
import { putStateOffset, readStateOffset } from "@tidemark/log";
import type { LogError, LogManager, TopicConfig } from "@tidemark/log";
import type {
  AnswerRoom,
  BrokerState,
  ClusterStateResponse,
  FetchRequest,
  OffsetsForLeaderEpochRequest,
  OffsetsForLeaderEpochResponse,
  PartitionName,
  PartitionState,
  PeerAddress,
  PeerRequest,
  PeerResponse,
  PeerTransport,
  ProduceRequest,
  ProduceResponse,
  RegisterRequest,
} from "@tidemark/wire";
import { OpenReads, serveFetch } from "./fetch-session.ts";
import { keyOf, LeaderFetcher } from "./leader-fetcher.ts";
import type { ReplicaConfig } from "./leader-state.ts";
import { refusedListOffset } from "./list-offset.ts";
import type { ListOffsetRequest, PartitionListOffsetResult } from "./list-offset.ts";
import { Partition } from "./partition.ts";
import type { AlterPartitionEffect, TruncationReport } from "./partition.ts";
import { refusedEpoch, refusedProduce } from "./refusals.ts";
import { describeReplica } from "./replica-description.ts";
import type { ReplicaDescription } from "./replica-description.ts";
import { WakeSignal } from "./wake-signal.ts";

/** Kafka's defaults, but for the wait between two tries, which is shorter: a broker on the same machine comes back soon. */
export const DEFAULT_REPLICA_MANAGER_CONFIG: ReplicaManagerConfig = {
  replica: { replicaLagTimeMaxMs: 30_000, minInsyncReplicas: 2, countsFlushedEnds: false },
  fetchMaxWaitMs: 500,
  fetchMinBytes: 1,
  fetchMaxBytes: 10 * 1024 ** 2,
  fetchPartitionMaxBytes: 4 * 1024 ** 2,
  fetchBackoffMs: 200,
  requestTimeoutMs: 5000,
  retryBackoffMs: 100,
  clusterStateWaitMs: 2000,
  highWatermarkCheckpointMs: 5000,
  flushIntervalMs: 1000,
};

export interface ReplicaManagerConfig {
  readonly replica: ReplicaConfig;
  readonly fetchMaxWaitMs: number;
  readonly fetchMinBytes: number;
  readonly fetchMaxBytes: number;
  readonly fetchPartitionMaxBytes: number;
  readonly fetchBackoffMs: number;
  readonly requestTimeoutMs: number;
  /** Between two tries to reach the controller. */
  readonly retryBackoffMs: number;
  readonly clusterStateWaitMs: number;
  readonly highWatermarkCheckpointMs: number;
  /** How often what is written is made durable, where appends do not wait for that; `undefined`: when the log sees fit. */
  readonly flushIntervalMs: number | undefined;
}

export interface ReplicaManagerOptions {
  readonly brokerId: number;
  readonly logs: LogManager;
  readonly clock: Clock;
  readonly transport: PeerTransport;
  /** Of the transport and the server of this broker. */
  readonly pool?: BufferPool;
  readonly controller: PeerAddress;
  /** Where others reach this broker. */
  readonly host: string;
  readonly port: number;
  /** UUID of this start of the process. */
  readonly incarnationId: string;
  readonly bootId: string;
  readonly topicConfig: (topic: string) => TopicConfig;
  readonly config: ReplicaManagerConfig;
  readonly onTruncated?: (report: TruncationReport) => void;
  readonly onFailed?: (name: PartitionName, reason: string) => void;
}

/** In `State`: the boot of the kernel in which the disk failed last, a space, and the incarnation that it failed. */
const FAILED_BOOT_KEY = "failed-boot";

/** Another name after each failure: after the second one in a boot the controller must not take the next process for one of the first. */
function bootIdAfter(failed: string, bootId: string): string {
  return failed.startsWith(`${bootId} `) ? `${bootId} after ${failed.slice(bootId.length + 1)}` : bootId;
}

/**
 * All replicas of one broker: follows the controller's stream of states, fetches from leaders, serves peers and clients.
 *
 * Source: apache/kafka core/src/main/scala/kafka/server/ReplicaManager.scala
 */
export class ReplicaManager {
  readonly #options: ReplicaManagerOptions;
  readonly #pool: BufferPool;
  readonly #partitions = new Map<string, Partition>();
  readonly #fetchers = new Map<number, LeaderFetcher>();
  /** As they are in `State`, durable or not. */
  readonly #notedHighWatermarks = new Map<Partition, Offset>();
  readonly #openReads = new OpenReads();
  #brokers: ReadonlyMap<number, BrokerState> = new Map();
  #brokerEpoch = -1;
  /** The controller knows this process by its broker epoch. When not, the last one stays: it is fenced where none at all would not be. */
  #isRegistered = false;
  /** All that the controller said up to this number has been heard. */
  #heardNumber = -1;
  #stateNumber = -1;
  /** What each partition was told to do and has not done yet, the last of it. */
  readonly #applying = new Map<string, Promise<void>>();
  #isClosed = false;
  #isPaused = false;
  readonly #timers = new Set<Timer>();
  #following: Promise<void> = Promise.resolve();
  /** The disk has failed: this process appends nothing any more, and what it wrote before may be gone when it is read again. */
  #hasStorageFailed = false;
  /** What waits for the controller is to look again at what it waits for. */
  readonly #interrupted = new WakeSignal();

  /** The boot that this process tells of: another one once the disk has failed in it, for all later processes too. */
  readonly #bootId: string;

  private constructor(options: ReplicaManagerOptions) {
    this.#options = options;
    const { bootId, logs } = options;
    const failed = logs.state.get(FAILED_BOOT_KEY);
    this.#bootId = failed === undefined ? bootId : bootIdAfter(decodeUtf8(failed), bootId);
    this.#pool = options.pool ?? new BufferPool();
  }

  /** Registers with the controller, as soon as it can be reached, and does what it says from then on. Returns at once. */
  static start(options: ReplicaManagerOptions): ReplicaManager {
    const manager = new ReplicaManager(options);
    manager.#following = manager.#followController();
    options.logs.directory.onOffline((error) => manager.#storageFailed(error));
    manager.#every(options.config.highWatermarkCheckpointMs, () => manager.#checkpointHighWatermarks());
    manager.#every(options.config.replica.replicaLagTimeMaxMs / 2, () => {
      for (const partition of manager.#partitions.values()) partition.tick();
    });
    if (options.config.flushIntervalMs !== undefined)
      manager.#every(options.config.flushIntervalMs, () => manager.#flushAll());
    return manager;
  }

  get brokerId(): number {
    return this.#options.brokerId;
  }

  /** -1 until the controller has registered this broker. */
  get brokerEpoch(): number {
    return this.#brokerEpoch;
  }

  /** All that the controller said up to this number is done. */
  get stateNumber(): number {
    return this.#stateNumber;
  }

  partition(name: PartitionName): Partition | undefined {
    return this.#partitions.get(keyOf(name));
  }

  /** As `Partition.listOffset`; UNKNOWN_TOPIC_OR_PARTITION where this broker has no replica. */
  async listOffset(name: PartitionName, request: ListOffsetRequest): Promise<PartitionListOffsetResult> {
    return this.partition(name)?.listOffset(request) ?? refusedListOffset("UNKNOWN_TOPIC_OR_PARTITION");
  }

  /** Every replica here, as it is now. */
  describe(): readonly ReplicaDescription[] {
    return [...this.#partitions.values()].map((partition) => describeReplica(this.brokerId, partition));
  }

  /** Followers of this broker ask nothing more until `resumeFetching`: for experiments, and to take a broker out gently. */
  pauseFetching(): void {
    this.#isPaused = true;
    for (const fetcher of this.#fetchers.values()) fetcher.pause();
  }

  resumeFetching(): void {
    this.#isPaused = false;
    for (const fetcher of this.#fetchers.values()) fetcher.resume();
  }

  /** Whether some leader still owes an answer: after `pauseFetching` what it is asked for already may come, while this is true. */
  get isAsking(): boolean {
    return [...this.#fetchers.values()].some((fetcher) => fetcher.isAsking);
  }

  /** Answers a peer or client; never rejects. A fetch may take as long as its `maxWaitMs`. */
  handle(request: PeerRequest, from: { readonly room?: AnswerRoom } = {}): Promise<PeerResponse> {
    switch (request.kind) {
      case "produce":
        return this.#produce(request);
      case "fetch":
        return serveFetch(request, {
          clock: this.#options.clock,
          pool: this.#pool,
          partitionOf: (name) => this.partition(name),
          isClosed: () => this.#isClosed,
          reads: this.#openReads,
          room: from.room,
        });
      case "offsetsForLeaderEpoch":
      case "describe":
      case "register":
      case "alterPartition":
      case "clusterState":
        return Promise.resolve(this.#answerNow(request));
      default:
        return request satisfies never;
    }
  }

  #answerNow(request: Exclude<PeerRequest, ProduceRequest | FetchRequest>): PeerResponse {
    switch (request.kind) {
      case "offsetsForLeaderEpoch":
        return this.#offsetsForLeaderEpoch(request);
      case "describe":
        return { kind: "describe", error: "NONE", json: JSON.stringify(this.describe()) };
      case "register":
        return { kind: "register", error: "NOT_CONTROLLER", brokerEpoch: -1 };
      case "alterPartition":
        return { kind: "alterPartition", error: "NOT_CONTROLLER", leaderEpoch: -1, partitionEpoch: -1, isr: [] };
      case "clusterState":
        return { kind: "clusterState", error: "NOT_CONTROLLER", number: -1, brokers: [], partitions: [] };
      default:
        return request satisfies never;
    }
  }

  /** Stops fetching and following, and notes the high watermarks. The logs stay open: they are the caller's. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const timer of this.#timers) timer.cancel();
    for (const fetcher of this.#fetchers.values()) fetcher.close();
    this.#interrupted.wake();
    await this.#following;
    for (const partition of this.#partitions.values()) await partition.close();
    const partitions = [...this.#partitions.values()];
    if (partitions.length > 0) await this.#noteHighWatermarks(partitions, true).catch(() => undefined);
  }

  // ---- requests ------------------------------------------------------------------------------------------------------

  async #produce(request: ProduceRequest): Promise<ProduceResponse> {
    const { acks, timeoutMs } = request;
    const partitions = await Promise.all(
      request.partitions.map(async ({ topic, partition, batch }) => {
        const result = await this.partition({ topic, partition })?.produce(batch, {
          acks,
          timeoutMs,
          origin: "client",
        });
        return { topic, partition, ...(result ?? refusedProduce("UNKNOWN_TOPIC_OR_PARTITION")) };
      }),
    );
    return { kind: "produce", partitions };
  }

  #offsetsForLeaderEpoch(request: OffsetsForLeaderEpochRequest): OffsetsForLeaderEpochResponse {
    const partitions = request.partitions.map((asked) => {
      const { topic, partition } = asked;
      const answer = this.partition(asked)?.offsetsForLeaderEpoch(asked);
      return { topic, partition, ...(answer ?? refusedEpoch("UNKNOWN_TOPIC_OR_PARTITION")) };
    });
    return { kind: "offsetsForLeaderEpoch", partitions };
  }

  // ---- the controller ------------------------------------------------------------------------------------------------

  /** Registers, then takes every state in order; registers anew when the controller does not know this incarnation any more. */
  async #followController(): Promise<void> {
    while (!this.#isClosed) {
      try {
        if (!this.#isRegistered) await this.#register();
        if (this.#isRegistered) await this.#takeClusterState();
        else await this.#pause();
      } catch {
        // The controller cannot be reached; what is led and followed goes on meanwhile.
        await this.#pause();
      }
    }
  }

  async #register(): Promise<void> {
    const { brokerId, host, port, controller, transport, config } = this.#options;
    const identity = this.#identity;
    const request = { kind: "register", brokerId, ...identity, host, port } as const;
    const answer = transport.request(controller, request, { timeoutMs: config.requestTimeoutMs });
    const response = await this.#unlessInterrupted(answer);
    if (response?.error !== "NONE" || this.#isClosed || identity.bootId !== this.#identity.bootId) return;
    this.#brokerEpoch = response.brokerEpoch;
    this.#isRegistered = true;
  }

  /**
   * A failed disk is to the controller what a lost machine is: under the name of another boot this broker leaves all ISRs, as the last
   * member too, and leads nothing. So does its next process, whose boot is again another than the one that is registered.
   */
  get #identity(): Pick<RegisterRequest, "incarnationId" | "bootId" | "cleanShutdownBrokerEpoch" | "isTailDurable"> {
    const { incarnationId, logs, config } = this.#options;
    if (this.#hasStorageFailed)
      return {
        incarnationId: `${incarnationId} failed`,
        bootId: `${incarnationId} failed`,
        cleanShutdownBrokerEpoch: -1,
        isTailDurable: false,
      };
    const { cleanShutdownBrokerEpoch } = logs.report;
    // A topic keeps the flush mode that it was made with, and it is the one of the logs that is true.
    const isTailDurable =
      config.replica.countsFlushedEnds && [...logs.topics.values()].every((topic) => topic.config.flush === "always");
    return { incarnationId, bootId: this.#bootId, cleanShutdownBrokerEpoch, isTailDurable };
  }

  /**
   * It follows nobody any more either: at the end of a log that cannot be written it would be taken for in sync. Later followerships do
   * not begin, since the log refuses them.
   */
  #storageFailed(error: LogError): void {
    this.#hasStorageFailed = true;
    this.#isRegistered = false;
    for (const partition of this.#partitions.values()) partition.storageFailed(error);
    for (const fetcher of this.#fetchers.values()) fetcher.close();
    this.#interrupted.wake();
    void this.#noteFailedBoot();
  }

  /**
   * The controller may not hear of the failure before this process is gone. The next one, on the same boot of the kernel, would pass for
   * one whose page cache still has all that was written. It says otherwise if it finds this note; without `State` it cannot.
   */
  async #noteFailedBoot(): Promise<void> {
    const { bootId, incarnationId, logs } = this.#options;
    const value = encodeUtf8(`${bootId} ${incarnationId}`);
    await logs.state.commit([{ key: FAILED_BOOT_KEY, value }], { sync: true }).catch(() => undefined);
  }

  async #takeClusterState(): Promise<void> {
    const { brokerId, controller, transport, config } = this.#options;
    const maxWaitMs = config.clusterStateWaitMs;
    const request = {
      kind: "clusterState",
      brokerId,
      brokerEpoch: this.#brokerEpoch,
      afterNumber: this.#heardNumber,
      maxWaitMs,
    } as const;
    const answer = transport.request(controller, request, { timeoutMs: maxWaitMs + config.requestTimeoutMs });
    const response = await this.#unlessInterrupted(answer);
    if (response === undefined || this.#isClosed) return;
    if (response.error === "STALE_BROKER_EPOCH") {
      this.#isRegistered = false;
      return;
    }
    if (response.error !== "NONE") return this.#pause();
    this.#apply(response);
  }

  /**
   * Begins what the controller says and does not wait for it: a partition with much to recover would hold up all others, and the next
   * question to the controller, by which it knows that this broker lives.
   */
  #apply(response: ClusterStateResponse): void {
    // Every change has a number: the wait was over, and there is nothing new.
    if (response.number === this.#heardNumber && response.partitions.length === 0) return;
    this.#brokers = new Map(response.brokers.map((broker) => [broker.brokerId, broker]));
    for (const partition of this.#partitions.values()) partition.brokersChanged();
    const states = response.partitions
      .toSorted((first, second) => first.number - second.number)
      .filter(({ replicas }) => replicas.includes(this.brokerId));
    for (const state of states) this.#applying.set(keyOf(state), this.#applyInTurn(state, states));
    this.#heardNumber = Math.max(this.#heardNumber, response.number);
    void this.#noteDone(response.number);
    for (const fetcher of this.#fetchers.values()) fetcher.pump();
  }

  async #noteDone(number: number): Promise<void> {
    await Promise.all(this.#applying.values());
    this.#stateNumber = Math.max(this.#stateNumber, number);
  }

  /** Never rejects: what goes wrong is the partition's own. */
  async #applyInTurn(state: PartitionState, all: readonly PartitionState[]): Promise<void> {
    await this.#applying.get(keyOf(state));
    if (this.#isClosed) return;
    try {
      const partition = this.partition(state) ?? (await this.#open(state, all));
      if (this.#isClosed) return;
      const leaderBefore = partition.followerState?.leaderId;
      await partition.applyState(state);
      const leaderNow = partition.followerState?.leaderId;
      if (leaderBefore !== undefined && leaderBefore !== leaderNow) this.#fetchers.get(leaderBefore)?.remove(partition);
      if (leaderNow !== undefined && !this.#isClosed) this.#fetcher(leaderNow).add(partition);
    } catch (error) {
      this.#options.onFailed?.(state, error instanceof Error ? error.message : String(error));
    }
  }

  /** The topic is made here when the controller first names it. */
  async #open(state: PartitionState, all: readonly PartitionState[]): Promise<Partition> {
    const { logs, clock, config } = this.#options;
    const { topic } = state;
    if (!logs.topics.has(topic)) {
      const partitions =
        Math.max(...all.filter((other) => other.topic === topic).map(({ partition }) => partition)) + 1;
      await logs
        .createTopic(topic, partitions, this.#options.topicConfig(topic), state.topicId)
        .catch((error: unknown) => {
          // Another partition of the same topic was first.
          if (!logs.topics.has(topic)) throw error;
        });
    }
    const log = logs.partition(topic, state.partition);
    if (log === undefined) throw new Error(`the directory of ${keyOf(state)} is gone`);
    const partition = new Partition({
      brokerId: this.brokerId,
      brokerEpoch: () => this.#brokerEpoch,
      log,
      clock,
      pool: this.#pool,
      config: config.replica,
      highWatermark: readStateOffset(logs.state, "high-watermark", log.topic, log.partition) ?? 0,
      fetchBackoffMs: config.fetchBackoffMs,
      brokers: () => this.#brokers,
      events: {
        alterPartition: (of, effect) => void this.#alterPartition(of, effect),
        readyToAsk: (of) => {
          const leaderId = of.followerState?.leaderId;
          if (leaderId !== undefined) this.#fetchers.get(leaderId)?.pump();
        },
        truncated: (report) => this.#options.onTruncated?.(report),
        failed: (of, reason) => this.#options.onFailed?.({ topic: of.topic, partition: of.partition }, reason),
      },
    });
    this.#partitions.set(keyOf(state), partition);
    return partition;
  }

  /** Asks the controller for another ISR. No answer is an answer too: it is not known whether the change was made. */
  async #alterPartition(partition: Partition, effect: AlterPartitionEffect): Promise<void> {
    const { brokerId, controller, transport, config, clock } = this.#options;
    const { topic, partition: number } = partition;
    const { newIsr, leaderEpoch, partitionEpoch } = effect;
    if (effect.retryAfterMs > 0) await new Promise<void>((resolve) => clock.setTimer(effect.retryAfterMs, resolve));
    if (this.#isClosed) return;
    const request = {
      kind: "alterPartition",
      brokerId,
      brokerEpoch: this.#brokerEpoch,
      topic,
      partition: number,
      leaderEpoch,
      partitionEpoch,
      newIsr,
    } as const;
    try {
      const answer = await transport.request(controller, request, { timeoutMs: config.requestTimeoutMs });
      partition.alterPartitionAnswered(effect, answer);
    } catch {
      partition.alterPartitionAnswered(effect, {
        error: "NETWORK_EXCEPTION",
        leaderEpoch: -1,
        partitionEpoch: -1,
        isr: [],
      });
    }
  }

  #fetcher(leaderId: number): LeaderFetcher {
    const known = this.#fetchers.get(leaderId);
    if (known !== undefined) return known;
    const { brokerId, transport, clock, config } = this.#options;
    const fetcher = new LeaderFetcher({
      brokerId,
      leaderId,
      brokerEpoch: () => this.#brokerEpoch,
      address: () => {
        const broker = this.#brokers.get(leaderId);
        return broker === undefined ? undefined : { nodeId: leaderId, host: broker.host, port: broker.port };
      },
      transport,
      clock,
      pool: this.#pool,
      maxWaitMs: config.fetchMaxWaitMs,
      minBytes: config.fetchMinBytes,
      maxBytes: config.fetchMaxBytes,
      partitionMaxBytes: config.fetchPartitionMaxBytes,
      requestTimeoutMs: config.requestTimeoutMs,
    });
    if (this.#isPaused) fetcher.pause();
    this.#fetchers.set(leaderId, fetcher);
    return fetcher;
  }

  // ---- time ----------------------------------------------------------------------------------------------------------

  /** Notes those that have moved since they were noted last. @returns `undefined` when none has */
  #checkpointHighWatermarks(): Promise<void> | undefined {
    const noted = this.#notedHighWatermarks;
    const moved = [...this.#partitions.values()].filter(
      (partition) => noted.get(partition) !== partition.highWatermark,
    );
    return moved.length === 0 ? undefined : this.#noteHighWatermarks(moved, false);
  }

  async #noteHighWatermarks(partitions: readonly Partition[], sync: boolean): Promise<void> {
    const offsets = partitions.map(({ highWatermark }) => highWatermark);
    const puts = partitions.map(({ topic, partition }, at) =>
      putStateOffset("high-watermark", topic, partition, offsets[at] ?? toOffset(0)),
    );
    await this.#options.logs.state.commit(puts, { sync });
    for (const [at, partition] of partitions.entries())
      this.#notedHighWatermarks.set(partition, offsets[at] ?? toOffset(0));
  }

  #flushAll(): Promise<unknown> | undefined {
    const unflushed = [...this.#partitions.values()].filter(({ log }) => log.flushedEndOffset < log.logEndOffset);
    if (unflushed.length === 0) return undefined;
    return Promise.allSettled(unflushed.map(({ log }) => log.flushInBackground()));
  }

  /** Runs `task` again and again until the close; one that fails is tried again at the next turn. */
  #every(periodMs: number, task: () => Promise<unknown> | undefined | void): void {
    if (this.#isClosed) return;
    const again = (): void => this.#every(periodMs, task);
    const timer = this.#options.clock.setTimer(periodMs, () => {
      this.#timers.delete(timer);
      const done = attempt(task);
      if (done === undefined) again();
      else void done.then(again, again);
    });
    this.#timers.add(timer);
  }

  async #pause(): Promise<void> {
    const { clock, config } = this.#options;
    let timer: Timer | undefined;
    await this.#unlessInterrupted(
      new Promise<void>((resolve) => {
        timer = clock.setTimer(config.retryBackoffMs, resolve);
      }),
    );
    timer?.cancel();
  }

  /** The outcome, or `undefined` as soon as this manager closes, or its disk fails; what comes later is dropped. */
  #unlessInterrupted<Result>(outcome: Promise<Result>): Promise<Result | undefined> {
    return new Promise((resolve, reject) => {
      const remove = this.#interrupted.add(() => resolve(undefined));
      const settle = (how: () => void): void => {
        remove();
        how();
      };
      outcome.then(
        (result) => settle(() => resolve(result)),
        (error: unknown) => settle(() => reject(error instanceof Error ? error : new Error(String(error)))),
      );
    });
  }
}

/** What a task that can fail at once returns, or a rejection. */
function attempt(task: () => Promise<unknown> | undefined | void): Promise<unknown> | undefined | void {
  try {
    return task();
  } catch (error) {
    return Promise.reject(error instanceof Error ? error : new Error(String(error)));
  }
}
