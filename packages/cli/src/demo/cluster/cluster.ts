import { join } from "node:path";

import type { EpochEntry } from "@tidemark/epoch-cache";
import { randomUuid } from "@tidemark/log";
import type { ReplicaDescription, TruncationReport } from "@tidemark/replica";
import { SystemRandom } from "@tidemark/runtime-node";
import { ControllerNode, describeDirectories } from "@tidemark/server";
import type { PartitionState } from "@tidemark/wire";

import { CommandError } from "../../errors.ts";
import type { BrokerCommand, BrokerTask } from "./broker-messages.ts";
import { type BrokerEnding, BrokerProcess } from "./broker-process.ts";

export const BROKER_IDS = [1, 2, 3] as const;
export const MIN_INSYNC_REPLICAS = 2;
export const FLUSH_INTERVAL_MS = 1000;

/** Short, so that holding followers back takes effect soon: a fetch that waits at the leader is still answered. */
const FETCH_MAX_WAIT_MS = 100;

/** A broker that was not heard of for so long is fenced. Kafka's default is 9 s; the demo is not that patient. */
const SESSION_TIMEOUT_MS = 3000;
/** A broker that stays fenced for so long although its process lives (somebody stopped it) is killed and started again. */
const FENCED_MS_MAX = 5000;
const OPENING_MS_MAX = 30_000;
const WATCH_INTERVAL_MS = 250;

/** Deaths that nobody planned, over the whole run. */
const UNPLANNED_DEATHS_MAX = 50;
/** Of one broker, one after another before its log was open. */
const FAILED_STARTS_MAX = 5;
/** Of all brokers, each time from all in sync. */
const CLOSE_ATTEMPTS_MAX = 5;

const POLL_MS = 20;
const ANSWER_TIMEOUT_MS = 2000;
const CLOSE_TIMEOUT_MS = 20_000;

export interface ClusterOptions {
  readonly directory: string;
  readonly topic: string;
  readonly segmentBytes: number;
  readonly maxMessageBytes: number;
  /** Ends every wait; its reason is thrown. */
  readonly signal: AbortSignal;
  /** Something happened that the user should see. */
  readonly say: (label: string, text: string) => void;
  readonly onTruncated: (brokerId: number, report: TruncationReport) => void;
  /** A replica stopped because of its disk or a broken invariant. */
  readonly onReplicaFailed: (brokerId: number, reason: string) => void;
}

/** One replica at some moment: as it says itself, or as the files of a dead broker show it. */
export interface ReplicaRow {
  readonly brokerId: number;
  readonly role: string;
  readonly leaderEpoch: number | undefined;
  readonly logStartOffset: number;
  readonly highWatermark: number | undefined;
  readonly logEndOffset: number;
  readonly isr: readonly number[] | undefined;
  readonly epochs: readonly EpochEntry[];
}

/** A broker over all its processes. */
interface Slot {
  readonly brokerId: number;
  process: BrokerProcess | undefined;
  /** Resolves when the process is gone and the controller has been told. */
  gone: Promise<void>;
  /** It is to be down: what ends is not started again. */
  isMeantToEnd: boolean;
  failedStarts: number;
  /** Since when the controller takes it for dead although its process lives. */
  fencedSinceMs: number | undefined;
  lastEnding: BrokerEnding | undefined;
  /** Why its replica stopped, which its process was killed for. */
  replicaFailure: string | undefined;
}

/**
 * Three brokers as processes, and the controller in this one: starts them, tells the controller of every death at once, and starts
 * again whom nobody meant to die.
 */
export class Cluster {
  readonly #options: ClusterOptions;
  readonly #node: ControllerNode;
  readonly #slots: readonly Slot[];
  readonly #clusterId = randomUuid(new SystemRandom(), "cluster-id");
  /** Aborted when the run cannot go on: by the user, or by a broker that does not come up. */
  readonly #stop = new AbortController();
  readonly #watch: NodeJS.Timeout;
  readonly #onAbort: () => void;
  #unplannedDeaths = 0;

  private constructor(options: ClusterOptions, node: ControllerNode) {
    this.#options = options;
    this.#node = node;
    this.#slots = BROKER_IDS.map((brokerId) => ({
      brokerId,
      process: undefined,
      gone: Promise.resolve(),
      isMeantToEnd: false,
      failedStarts: 0,
      fencedSinceMs: undefined,
      lastEnding: undefined,
      replicaFailure: undefined,
    }));
    this.#onAbort = () => this.#stop.abort(options.signal.reason);
    options.signal.addEventListener("abort", this.#onAbort, { once: true });
    if (options.signal.aborted) this.#onAbort();
    this.#watch = setInterval(() => this.#lookAfterStopped(), WATCH_INTERVAL_MS);
  }

  /** Starts everything and makes the topic. On failure nothing is left running. */
  static async start(options: ClusterOptions): Promise<Cluster> {
    const node = await ControllerNode.open({
      directory: join(options.directory, "controller"),
      sessionTimeoutMs: SESSION_TIMEOUT_MS,
    });
    const cluster = new Cluster(options, node);
    try {
      for (const { brokerId } of cluster.#slots) cluster.start(brokerId);
      await cluster.waitUntil(() => cluster.#areAllAlive(), "the brokers to register");
      await node.controller.createTopic({
        name: options.topic,
        topicId: randomUuid(new SystemRandom(), "topic-id"),
        assignments: [[...BROKER_IDS]],
      });
      await cluster.waitUntilWhole();
      await cluster.#untilAllHaveTheTopic();
      return cluster;
    } catch (error) {
      await cluster.destroy();
      throw error;
    }
  }

  /** The brokers hear of a new topic, make it and take their roles a little later. */
  async #untilAllHaveTheTopic(): Promise<void> {
    const deadlineMs = performance.now() + OPENING_MS_MAX;
    for (;;) {
      const replicas = await Promise.all(BROKER_IDS.map((brokerId) => this.ask(brokerId)));
      if (replicas.every((replica) => replica?.role === "leader" || replica?.role === "follower")) return;
      if (performance.now() > deadlineMs) throw new CommandError("the brokers do not make the topic");
      await this.sleep(POLL_MS);
    }
  }

  get controllerAddress(): ControllerNode["address"] {
    return this.#node.address;
  }

  /** How many brokers died although nobody planned it. */
  get unplannedDeaths(): number {
    return this.#unplannedDeaths;
  }

  /** What the controller decided last. */
  get partition(): PartitionState {
    const state = this.#node.controller.state.partitions.find(({ topic }) => topic === this.#options.topic);
    if (state === undefined) throw new CommandError(`the controller does not know the topic ${this.#options.topic}`);
    return state;
  }

  directoryOf(brokerId: number): string {
    return join(this.#options.directory, `broker-${brokerId}`);
  }

  partitionDirectoryOf(brokerId: number): string {
    return join(this.directoryOf(brokerId), "log", `${this.#options.topic}-0`);
  }

  /** All brokers run, all are in sync, one leads. */
  get isWhole(): boolean {
    if (!this.#areAllAlive()) return false;
    const { leader, isr } = this.partition;
    return leader >= 0 && isr.length === BROKER_IDS.length;
  }

  waitUntilWhole(): Promise<void> {
    return this.waitUntil(() => this.isWhole, "all replicas to be in sync");
  }

  /** @throws CommandError when it does not come about in time; the reason when the run is stopped */
  async waitUntil(isSo: () => boolean, what: string, timeoutMs = 60_000): Promise<void> {
    const deadlineMs = performance.now() + timeoutMs;
    for (;;) {
      this.#stop.signal.throwIfAborted();
      if (isSo()) return;
      if (performance.now() > deadlineMs) {
        throw new CommandError(`waited ${timeoutMs / 1000} s in vain for ${what}; this run cannot be judged`);
      }
      const change = this.#node.controller.whenChanged();
      await Promise.race([change.promise, this.sleep(WATCH_INTERVAL_MS)]);
      change.cancel();
    }
  }

  /** The outcome, unless the run is stopped before. */
  async orStop<Result>(outcome: Promise<Result>): Promise<Result> {
    const { signal } = this.#stop;
    let stop: () => void = () => undefined;
    const stopped = new Promise<void>((resolve) => {
      stop = resolve;
      signal.addEventListener("abort", stop, { once: true });
    });
    try {
      const result = await Promise.race([outcome, stopped.then(() => undefined)]);
      signal.throwIfAborted();
      return result as Result;
    } finally {
      signal.removeEventListener("abort", stop);
      outcome.catch(() => undefined);
    }
  }

  async sleep(durationMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    try {
      await this.orStop(
        new Promise<void>((resolve) => {
          timer = setTimeout(resolve, durationMs);
        }),
      );
    } finally {
      clearTimeout(timer);
    }
  }

  // ---- brokers -------------------------------------------------------------------------------------------------------

  start(brokerId: number): void {
    const slot = this.#slot(brokerId);
    slot.isMeantToEnd = false;
    slot.fencedSinceMs = undefined;
    const { onTruncated, onReplicaFailed } = this.#options;
    const broker = new BrokerProcess(this.#task(brokerId), {
      onOpened: () => {
        slot.failedStarts = 0;
      },
      onTruncated: (report) => onTruncated(brokerId, report),
      onReplicaFailed: (reason) => {
        if (reason === "FENCED_LEADER_EPOCH") return; // It only hears of a new leader later than others.
        onReplicaFailed(brokerId, reason);
        slot.replicaFailure = reason;
        broker.kill(); // Started again it has another try.
      },
    });
    slot.process = broker;
    slot.gone = broker.ended.then(
      (ending) => this.#onEnded(slot, broker, ending),
      (error: unknown) => this.#stop.abort(error),
    );
  }

  /** SIGKILL, on purpose. Resolves when the process is gone and the controller has elected others. */
  async kill(brokerId: number): Promise<void> {
    const slot = this.#slot(brokerId);
    slot.isMeantToEnd = true;
    slot.process?.kill();
    await this.orStop(slot.gone);
  }

  /** @returns whether all answered in time */
  async hold(brokerIds: readonly number[]): Promise<boolean> {
    const answers = await Promise.all(brokerIds.map((brokerId) => this.#command(brokerId, "hold")));
    return answers.every((answer) => answer !== undefined);
  }

  /** Whoever was told to hold and has not done it yet will do this right after. */
  resume(): void {
    for (const { brokerId } of this.#slots) void this.#command(brokerId, "resume");
  }

  /** As the broker says itself; `undefined` when it does not run or answer. */
  async ask(brokerId: number): Promise<ReplicaDescription | undefined> {
    const replicas = await this.#command(brokerId, "describe");
    return replicas?.find(({ topic }) => topic === this.#options.topic);
  }

  /** Every replica now. */
  describe(): Promise<readonly ReplicaRow[]> {
    return Promise.all(
      this.#slots.map(async ({ brokerId, process: broker }) => {
        const replica = await this.ask(brokerId);
        return replica ?? this.#fromFiles(brokerId, broker === undefined ? "down" : "no answer");
      }),
    );
  }

  /**
   * Closes all brokers cleanly. When one dies or does not answer meanwhile, all come up again, and it is tried once more.
   * @param whenWhole called when all replicas are in sync, before each try
   */
  async shutDown(whenWhole: () => Promise<void>): Promise<void> {
    for (let attempt = 1; attempt <= CLOSE_ATTEMPTS_MAX; attempt += 1) {
      for (const slot of this.#slots) if (slot.process === undefined) this.start(slot.brokerId);
      await this.waitUntilWhole();
      await whenWhole();
      if (await this.#closeAll()) return;
      this.#options.say("again", "a broker ended before it had closed its log; all start again");
    }
    throw new CommandError("the brokers could not be closed cleanly; this run cannot be judged");
  }

  async #closeAll(): Promise<boolean> {
    for (const slot of this.#slots) {
      slot.isMeantToEnd = true;
      slot.lastEnding = undefined;
      void slot.process?.request("shutDown", CLOSE_TIMEOUT_MS);
    }
    try {
      await this.waitUntil(() => this.#areAllDown(), "the brokers to close", CLOSE_TIMEOUT_MS);
    } catch (error) {
      this.#stop.signal.throwIfAborted();
      for (const slot of this.#slots) slot.process?.kill();
      await this.waitUntil(() => this.#areAllDown(), "the brokers to die");
      if (!(error instanceof CommandError)) throw error;
    }
    return this.#slots.every(({ lastEnding }) => lastEnding?.isClean === true);
  }

  /** Kills what still runs and closes the controller. Idempotent. */
  async destroy(): Promise<void> {
    clearInterval(this.#watch);
    this.#options.signal.removeEventListener("abort", this.#onAbort);
    const gone = this.#slots.map((slot) => {
      slot.isMeantToEnd = true;
      slot.process?.kill();
      return slot.gone;
    });
    await Promise.all(gone);
    await this.#node.close();
  }

  async #command(brokerId: number, command: BrokerCommand): Promise<readonly ReplicaDescription[] | undefined> {
    return this.#slot(brokerId).process?.request(command, ANSWER_TIMEOUT_MS);
  }

  // ---- inside --------------------------------------------------------------------------------------------------------

  #slot(brokerId: number): Slot {
    const slot = this.#slots.find((candidate) => candidate.brokerId === brokerId);
    if (slot === undefined) throw new CommandError(`there is no broker ${brokerId}`);
    return slot;
  }

  #task(brokerId: number): BrokerTask {
    const { segmentBytes, maxMessageBytes } = this.#options;
    return {
      brokerId,
      directory: this.directoryOf(brokerId),
      clusterId: this.#clusterId,
      controller: this.#node.address,
      segmentBytes,
      maxMessageBytes,
      minInsyncReplicas: MIN_INSYNC_REPLICAS,
      flushIntervalMs: FLUSH_INTERVAL_MS,
      fetchMaxWaitMs: FETCH_MAX_WAIT_MS,
    };
  }

  async #onEnded(slot: Slot, broker: BrokerProcess, ending: BrokerEnding): Promise<void> {
    if (slot.process !== broker) return;
    const { brokerId } = slot;
    // Not after a clean stop of all: whoever still runs would be elected for nothing.
    if (ending.isClean !== true) await this.#node.controller.brokerDied(brokerId);
    slot.process = undefined;
    slot.lastEnding = ending;
    if (slot.isMeantToEnd || this.#stop.signal.aborted) return;
    this.#unplannedDeaths += 1;
    slot.failedStarts += ending.wasOpen ? 0 : 1;
    const because =
      slot.replicaFailure ?? ending.failure ?? (ending.said === "" ? ending.how : `${ending.how}: ${ending.said}`);
    slot.replicaFailure = undefined;
    if (slot.failedStarts >= FAILED_STARTS_MAX || this.#unplannedDeaths > UNPLANNED_DEATHS_MAX) {
      const often = slot.failedStarts >= FAILED_STARTS_MAX ? "does not come up" : "died once too often";
      this.#stop.abort(new CommandError(`broker ${brokerId} ${often} (${because}); this run cannot be judged`));
      return;
    }
    this.#options.say("died", `broker ${brokerId}, which nobody had planned (${because}); it is started again`);
    this.start(brokerId);
  }

  /** A process that was stopped (SIGSTOP) is not dead, and yet no broker. */
  #lookAfterStopped(): void {
    const nowMs = performance.now();
    for (const slot of this.#slots) {
      const { process: broker, brokerId } = slot;
      if (broker === undefined) continue;
      if (this.#isAlive(brokerId)) {
        slot.fencedSinceMs = undefined;
        continue;
      }
      slot.fencedSinceMs ??= nowMs;
      const isStuck = broker.isOpen
        ? nowMs - slot.fencedSinceMs > FENCED_MS_MAX
        : nowMs - broker.startedMs > OPENING_MS_MAX;
      if (isStuck) broker.kill();
    }
  }

  #isAlive(brokerId: number): boolean {
    const { brokers } = this.#node.controller.state;
    return brokers.some((broker) => broker.brokerId === brokerId && !broker.isFenced);
  }

  #areAllAlive(): boolean {
    return this.#slots.every(({ brokerId, process: broker }) => broker?.isOpen === true && this.#isAlive(brokerId));
  }

  #areAllDown(): boolean {
    return this.#slots.every(({ process: broker }) => broker === undefined);
  }

  async #fromFiles(brokerId: number, role: string): Promise<ReplicaRow> {
    const found = await describeDirectories([this.directoryOf(brokerId)]).catch(() => []);
    const replica = found.find(({ topic }) => topic === this.#options.topic);
    return {
      brokerId,
      role,
      leaderEpoch: undefined,
      logStartOffset: replica?.logStartOffset ?? 0,
      highWatermark: replica?.highWatermark,
      logEndOffset: replica?.logEndOffset ?? 0,
      isr: undefined,
      epochs: replica?.epochs ?? [],
    };
  }
}
