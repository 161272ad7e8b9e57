import { SimulatedRandom } from "@tidemark/simulator";
import { PeerError } from "@tidemark/wire";
import type { FetchPartitionResponse } from "@tidemark/wire";
import type { ClientHistory } from "./client-history.ts";
import { NAME, recordsIn } from "./cluster.ts";
import type { Cluster } from "./cluster.ts";
import type { Pace } from "./pace.ts";

const FETCH_BYTES = 1 << 16;
/** Beyond what a fetch is allowed to wait. */
const ANSWER_MS = 500;

/** Polls in a row without an answer at the end: together they take longer than any message. */
const UNANSWERED_MAX = 120;
/** Kafka's fetch.max.wait.ms: a poll waits for records at the leader. */
const WAIT_MS = 500;
const QUIET_WAIT_MS = 2500;
const MIN_BYTES = [1, 1, 1000] as const;
/** Between two tries, and between two questions for the end. */
const PAUSE_MS = 100;
const QUIET_PAUSE_MS = 500;
const ASK_END_MS = 700;
const QUIET_ASK_END_MS = 5000;

/** A consumer of committed records: from the first on, from whoever leads, through all changes of leaders. */
export class Tail {
  readonly #cluster: Cluster;
  readonly #history: ClientHistory;
  readonly #client: string;
  readonly #pace: Pace;
  readonly #random: SimulatedRandom;
  #position = 0;
  #highWatermark = -1;
  #leader = 1;
  #isAssigned = true;
  #isStopped = false;

  constructor(cluster: Cluster, history: ClientHistory, pace: Pace, client: string) {
    this.#pace = pace;
    this.#cluster = cluster;
    this.#history = history;
    this.#client = client;
    this.#random = new SimulatedRandom(cluster.options.seed * 37 + client.length);
  }

  async run(): Promise<void> {
    while (!this.#isStopped) {
      const { isQuiet } = this.#pace;
      const waitMs = isQuiet ? QUIET_WAIT_MS : WAIT_MS;
      const minBytes = MIN_BYTES[this.#random.below("min-bytes", MIN_BYTES.length)] ?? 1;
      if (!(await this.#poll(waitMs, minBytes))) await this.#cluster.wait(isQuiet ? QUIET_PAUSE_MS : PAUSE_MS);
    }
  }

  stop(): void {
    this.#isStopped = true;
  }

  /** Reads from an offset on, up to the end that the leader tells. It is at rest, but what was late before the faults ended may hold its answers up yet. */
  async readToEnd(leader: number, fromOffset: number): Promise<void> {
    let unansweredCount = 0;
    this.#position = fromOffset;
    do {
      // What the network says once more may yet make another one lead.
      this.#leader = this.#cluster.leader() ?? leader;
      unansweredCount = (await this.#poll(0, 0)) ? 0 : unansweredCount + 1;
      if (unansweredCount === UNANSWERED_MAX) throw new Error(`broker ${leader} leads, and refuses to be read`);
    } while (unansweredCount > 0 || this.#position < this.#highWatermark);
  }

  /** @returns whether it was answered */
  async #poll(maxWaitMs: number, minBytes: number): Promise<boolean> {
    const client = this.#client;
    const fromOffset = this.#position;
    const op = this.#history.begin({ type: "poll", client, fromOffset, isAssigned: this.#isAssigned });
    const answer = await fetchCommitted(this.#cluster, this.#leader, {
      fromOffset,
      leaderEpoch: -1,
      maxWaitMs,
      minBytes,
    });
    if (answer === undefined) {
      this.#history.end({ type: "refused", op });
      // Somebody has deleted what comes next: it goes on with what is left, as Kafka's client does when it is told so (auto.offset.reset).
      const startOffset = this.#cluster.node(this.#leader).log?.logStartOffset ?? 0;
      if (fromOffset < startOffset) {
        this.#position = startOffset;
        this.#isAssigned = true;
        return true;
      }
      const ids = [...this.#cluster.nodes.keys()];
      this.#leader = ids[this.#random.below("leader", ids.length)] ?? 1;
      return false;
    }
    this.#isAssigned = false;
    const records = recordsIn(answer.bytes, fromOffset);
    this.#history.end({ type: "polled", op, records });
    this.#position = (records.at(-1)?.offset ?? fromOffset - 1) + 1;
    this.#highWatermark = answer.highWatermark;
    return true;
  }
}

/** Asks now and again where the log ends: of the leader that the controller names, and of no earlier one. */
export class EndAsker {
  readonly #cluster: Cluster;
  readonly #history: ClientHistory;
  readonly #pace: Pace;
  #isStopped = false;

  constructor(cluster: Cluster, history: ClientHistory, pace: Pace) {
    this.#pace = pace;
    this.#cluster = cluster;
    this.#history = history;
  }

  async run(): Promise<void> {
    while (!this.#isStopped) {
      await this.ask();
      const { quietMs } = this.#pace;
      await this.#cluster.wait(quietMs > 0 ? Math.min(quietMs, QUIET_ASK_END_MS) : ASK_END_MS);
    }
  }

  stop(): void {
    this.#isStopped = true;
  }

  async ask(): Promise<void> {
    const { decided } = this.#cluster;
    if (decided === undefined || decided.leader < 0) return;
    const { leader, leaderEpoch } = decided;
    const op = this.#history.begin({ type: "askEnd", client: "end" });
    const answer = await fetchCommitted(this.#cluster, leader, {
      fromOffset: this.#cluster.node(leader).log?.logStartOffset ?? 0,
      leaderEpoch,
      maxWaitMs: 0,
      maxBytes: 0,
    });
    if (answer === undefined) this.#history.end({ type: "refused", op });
    else {
      const { logEndOffset, highWatermark } = answer;
      this.#history.end({ type: "toldEnd", op, logEndOffset, highWatermark });
    }
  }
}

/** What a consumer is answered; `undefined` when it is refused, or nothing comes. */
export async function fetchCommitted(
  cluster: Cluster,
  brokerId: number,
  options: {
    readonly fromOffset: number;
    /** -1: of whatever epoch. */
    readonly leaderEpoch: number;
    readonly maxWaitMs: number;
    /** Default 0: nothing is waited for. */
    readonly minBytes?: number;
    readonly maxBytes?: number;
  },
): Promise<FetchPartitionResponse | undefined> {
  const { fromOffset, leaderEpoch, maxWaitMs, minBytes = 0, maxBytes = FETCH_BYTES } = options;
  const partition = {
    ...NAME,
    currentLeaderEpoch: leaderEpoch,
    fetchOffset: fromOffset,
    flushedEndOffset: -1,
    lastFetchedEpoch: -1,
    logStartOffset: -1,
    maxBytes,
  };
  const request = {
    kind: "fetch",
    replicaId: -1,
    brokerEpoch: -1,
    maxWaitMs,
    minBytes,
    maxBytes,
    partitions: [partition],
  } as const;
  try {
    const { partitions } = await cluster.request(brokerId, request, maxWaitMs + ANSWER_MS);
    return partitions[0]?.error === "NONE" ? partitions[0] : undefined;
  } catch (error) {
    if (!(error instanceof PeerError)) throw error;
    return undefined;
  }
}
