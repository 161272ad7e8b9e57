import { decodeUtf8, encodeUtf8, joinPath, readFileIfPresent, writeFileAtomically } from "@tidemark/base";
import type { Clock, FileSystem, Timer } from "@tidemark/base";
import type {
  ClusterStateRequest,
  ClusterStateResponse,
  PartitionName,
  PeerRequest,
  PeerResponse,
} from "@tidemark/wire";
import { refusedProduce } from "../refusals.ts";
import { WakeSignal } from "../wake-signal.ts";
import {
  alterPartition,
  createTopic,
  electUncleanly,
  EMPTY_CONTROLLER_STATE,
  fence,
  register,
  unfence,
} from "./controller-state.ts";
import type { ControllerState, ControllerStep, RegisteredBroker } from "./controller-state.ts";

/** A broker that was not heard of for so long counts as gone. Kafka: broker.session.timeout.ms. */
export const SESSION_TIMEOUT_MS = 9000;

/** How often the controller looks who is silent, within a session. */
const LOOKS_PER_SESSION = 4;

/**
 * A look that comes later than this share of a session was held up: the process stood still (SIGSTOP, a migration of its machine, the
 * garbage collector), and what it did not hear meanwhile says nothing about anybody.
 *
 * Two such shares and the longest time between two signs of life of a broker have to lie within a session: so much silence a pause may
 * add that goes unnoticed.
 */
const LATE_SHARE_MAX = 1 / 4;

/** New sessions a broker gets, one for each pause of the controller, until it is heard of again: pauses keep no dead broker alive. */
const PAUSES_FORGIVEN_MAX = 3;

/** Longest time that a question for the cluster's state is parked, whatever was asked for. */
const CLUSTER_STATE_WAIT_MS_MAX = 30_000;

/** In the controller's directory. */
export const CONTROLLER_STATE_FILE = "controller-state.json";
const STATE_VERSION = 1;

export interface AppointedControllerOptions {
  readonly files: FileSystem;
  readonly clock: Clock;
  /** Where the state is kept; made if absent. */
  readonly directory: string;
  readonly sessionTimeoutMs?: number;
}

/**
 * The controller behind the port until a quorum elects one: a single process, appointed, which alone elects and changes ISRs.
 *
 * Every change is on the disk before anybody is told of it, one after another. What it does not know after a restart, who of the
 * brokers lives, it finds out by their silence. Nothing else rests on that clock: a leader holds no lease, and is overruled by the epoch
 * of the next one, however early or late the controller takes it for gone.
 */
export class AppointedController {
  readonly #options: AppointedControllerOptions;
  readonly #changed = new WakeSignal();
  /** When a broker was heard of last, or its new session began; and how many of those it was given since. */
  readonly #sessions = new Map<number, { readonly sinceMs: number; readonly pausesForgiven: number }>();
  readonly #sessionTimeoutMs: number;
  #state: ControllerState;
  #changes: Promise<unknown> = Promise.resolve();
  #failure: unknown;
  #timer: Timer | undefined;
  #isClosed = false;

  private constructor(options: AppointedControllerOptions, state: ControllerState) {
    this.#options = options;
    this.#state = state;
    this.#sessionTimeoutMs = options.sessionTimeoutMs ?? SESSION_TIMEOUT_MS;
    for (const { brokerId } of state.brokers) this.#heard(brokerId);
    this.#watch();
  }

  /** @throws FileError; Error when the file is not one of ours: a controller that forgot must not guess */
  static async open(options: AppointedControllerOptions): Promise<AppointedController> {
    await options.files.makeDirectory(options.directory);
    const bytes = await readFileIfPresent(options.files, joinPath(options.directory, CONTROLLER_STATE_FILE));
    return new AppointedController(
      options,
      bytes === undefined ? EMPTY_CONTROLLER_STATE : decodeState(bytes, options.directory),
    );
  }

  get state(): ControllerState {
    return this.#state;
  }

  /** Answers a broker; never rejects. */
  handle(request: PeerRequest): Promise<PeerResponse> {
    return request.kind === "clusterState" ? this.#clusterState(request) : this.#answer(request);
  }

  async #answer(request: Exclude<PeerRequest, ClusterStateRequest>): Promise<PeerResponse> {
    switch (request.kind) {
      case "register": {
        const answer = await this.#change((state) => register(state, request));
        if (answer === undefined) return { kind: "register", error: "NOT_CONTROLLER", brokerEpoch: -1 };
        this.#heard(request.brokerId);
        return answer;
      }
      case "alterPartition": {
        const answer = await this.#change((state) => alterPartition(state, request));
        return (
          answer ?? { kind: "alterPartition", error: "NOT_CONTROLLER", leaderEpoch: -1, partitionEpoch: -1, isr: [] }
        );
      }
      case "describe":
        return { kind: "describe", error: "NONE", json: JSON.stringify(this.#state) };
      case "produce":
        return {
          kind: "produce",
          partitions: request.partitions.map(({ topic, partition }) => ({
            topic,
            partition,
            ...refusedProduce("NOT_LEADER_OR_FOLLOWER"),
          })),
        };
      case "fetch":
        return { kind: "fetch", partitions: [] };
      case "offsetsForLeaderEpoch":
        return { kind: "offsetsForLeaderEpoch", partitions: [] };
      default:
        return request satisfies never;
    }
  }

  /**
   * Makes a topic; its first leaders are elected as soon as a replica is registered.
   * @throws Error when the topic exists or the change could not be written
   */
  async createTopic(topic: {
    readonly name: string;
    readonly topicId: string;
    readonly assignments: readonly (readonly number[])[];
  }): Promise<void> {
    const isNew = await this.#change((state) => {
      if (state.partitions.some((partition) => partition.topic === topic.name)) return { state, answer: false };
      return { state: createTopic(state, topic), answer: true };
    });
    if (isNew !== true)
      throw new Error(isNew === false ? `topic "${topic.name}" exists` : "the controller has failed", {
        cause: this.#failure,
      });
  }

  /** The owner knows that a broker's process ended: it is fenced at once, and others are elected. */
  async brokerDied(brokerId: number): Promise<void> {
    await this.#change((state) => ({ state: fence(state, brokerId), answer: undefined }));
  }

  /** Gives a partition that waits for a lost ISR a leader by explicit choice: records that it lacks are lost. */
  async electUncleanly(name: PartitionName, brokerId: number): Promise<void> {
    await this.#change((state) => ({ state: electUncleanly(state, name, brokerId), answer: undefined }));
  }

  /** Resolves when the state has changed since the call. */
  whenChanged(): { readonly promise: Promise<void>; cancel(): void } {
    return this.#changed.wait();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#changed.wake();
    await this.#changes;
  }

  /** What is new since the number that the broker has; waits for something new. Counts as a sign of life. */
  async #clusterState(request: ClusterStateRequest): Promise<ClusterStateResponse> {
    const { clock } = this.#options;
    const deadlineMs = clock.monotonicMs() + Math.min(request.maxWaitMs, CLUSTER_STATE_WAIT_MS_MAX);
    // It lived when it asked. While its question waits it may die; looking at the question again says nothing of it.
    const asked = this.#brokerOf(request);
    if (asked !== undefined) this.#heard(request.brokerId);
    if (asked?.isFenced === true)
      await this.#change((state) => ({ state: unfence(state, request.brokerId), answer: undefined }));
    for (;;) {
      if (this.#brokerOf(request) === undefined)
        return { kind: "clusterState", error: "STALE_BROKER_EPOCH", number: -1, brokers: [], partitions: [] };
      const { number, brokers, partitions } = this.#state;
      const remainingMs = deadlineMs - clock.monotonicMs();
      if (number > request.afterNumber || remainingMs <= 0 || this.#isClosed) {
        return {
          kind: "clusterState",
          error: "NONE",
          number,
          brokers: brokers.map(({ brokerId, brokerEpoch, host, port, isFenced }) => ({
            brokerId,
            brokerEpoch,
            host,
            port,
            isFenced,
          })),
          partitions: partitions.filter((partition) => partition.number > request.afterNumber),
        };
      }
      const change = this.#changed.wait();
      const timer = clock.setTimer(remainingMs, () => change.cancel());
      await change.promise;
      timer.cancel();
    }
  }

  /** The broker as it is registered, if it is still the process that asks. */
  #brokerOf({ brokerId, brokerEpoch }: ClusterStateRequest): RegisteredBroker | undefined {
    return this.#state.brokers.find((broker) => broker.brokerId === brokerId && broker.brokerEpoch === brokerEpoch);
  }

  /**
   * Changes run one after another; each is on the disk before it counts. One that cannot be written ends this controller: it
   * would tell of what it may not remember.
   * @returns `undefined` when the controller has failed
   */
  #change<Answer>(step: (state: ControllerState) => ControllerStep<Answer>): Promise<Answer | undefined> {
    const run = this.#changes.then(async () => {
      if (this.#failure !== undefined || this.#isClosed) return undefined;
      const { state, answer } = step(this.#state);
      if (state !== this.#state) {
        await writeFileAtomically(
          this.#options.files,
          joinPath(this.#options.directory, CONTROLLER_STATE_FILE),
          encodeState(state),
        );
        this.#state = state;
        this.#changed.wake();
      }
      return answer;
    });
    this.#changes = run.catch((error: unknown) => {
      this.#failure = error;
    });
    return run.catch(() => undefined);
  }

  #heard(brokerId: number): void {
    this.#sessions.set(brokerId, { sinceMs: this.#options.clock.monotonicMs(), pausesForgiven: 0 });
  }

  /**
   * Fences brokers that are silent, unless it was the controller that did not listen: then each has a whole new session to be heard of.
   * Who died meanwhile is fenced a session later; elections wait for nothing worse.
   */
  #watch(): void {
    const { clock } = this.#options;
    const waitMs = this.#sessionTimeoutMs / LOOKS_PER_SESSION;
    const dueMs = clock.monotonicMs() + waitMs;
    this.#timer = clock.setTimer(waitMs, () => {
      const nowMs = clock.monotonicMs();
      if (nowMs - dueMs > this.#sessionTimeoutMs * LATE_SHARE_MAX) this.#forgivePause(nowMs);
      const silentSinceMs = nowMs - this.#sessionTimeoutMs;
      for (const { brokerId, isFenced } of this.#state.brokers) {
        const { sinceMs } = this.#sessions.get(brokerId) ?? { sinceMs: 0 };
        if (!isFenced && sinceMs < silentSinceMs) void this.brokerDied(brokerId);
      }
      if (!this.#isClosed) this.#watch();
    });
  }

  #forgivePause(nowMs: number): void {
    for (const [brokerId, { pausesForgiven }] of this.#sessions) {
      if (pausesForgiven < PAUSES_FORGIVEN_MAX)
        this.#sessions.set(brokerId, { sinceMs: nowMs, pausesForgiven: pausesForgiven + 1 });
    }
  }
}

function encodeState(state: ControllerState): Uint8Array {
  return encodeUtf8(`${JSON.stringify({ version: STATE_VERSION, state }, undefined, 1)}\n`);
}

function decodeState(bytes: Uint8Array, directory: string): ControllerState {
  const content = JSON.parse(decodeUtf8(bytes)) as { version?: unknown; state?: ControllerState };
  if (content.version !== STATE_VERSION || content.state === undefined)
    throw new Error(
      `${joinPath(directory, CONTROLLER_STATE_FILE)} is not a controller's state of version ${STATE_VERSION}`,
    );
  return content.state;
}
