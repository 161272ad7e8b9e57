import { SimulatedRandom } from "@tidemark/simulator";
import { PeerError } from "@tidemark/wire";
import type { Checker } from "./checker.ts";
import { NAME, textBatch } from "./cluster.ts";
import type { Cluster } from "./cluster.ts";

export interface ProducerOptions {
  readonly id: number;
  readonly acks: -1 | 1;
  readonly recordsMax: number;
  readonly valueBytesMax: number;
  readonly timeoutMs: number;
  readonly pauseMsMax: number;
}

/** What an idempotent producer was told. */
export interface Acknowledged {
  readonly baseOffset: number;
  readonly batch: Uint8Array;
  readonly values: readonly string[];
}

/**
 * An idempotent producer: sends each batch to whoever leads, again and again with the same sequence, until it is acknowledged, and
 * only then the next. With acks 1 records may be lost, and the sequence with them: it goes on as a new producer then.
 */
export class Producer {
  readonly acknowledged: Acknowledged[] = [];
  readonly #cluster: Cluster;
  readonly #checker: Checker;
  readonly #options: ProducerOptions;
  readonly #random: SimulatedRandom;
  #producerId: number;
  #sequence = 0;
  #written = 0;
  #leader = 1;
  #isStopped = false;
  sends = 0;

  constructor(cluster: Cluster, checker: Checker, options: ProducerOptions) {
    this.#cluster = cluster;
    this.#checker = checker;
    this.#options = options;
    this.#random = new SimulatedRandom(cluster.options.seed * 31 + options.id);
    this.#producerId = options.id * 1000;
  }

  /** Returns when it was stopped and its last batch is acknowledged. */
  async run(): Promise<void> {
    while (!this.#isStopped) {
      await this.#sendNext();
      await this.#cluster.wait(this.#below("pause", this.#options.pauseMsMax + 1));
    }
  }

  stop(): void {
    this.#isStopped = true;
  }

  async #sendNext(): Promise<void> {
    const count = 1 + this.#below("records", this.#options.recordsMax);
    const values = Array.from({ length: count }, (_, at) => {
      const filler = "x".repeat(this.#below("bytes", this.#options.valueBytesMax));
      return `${this.#options.id}:${this.#written + at}:${filler}`;
    });
    for (let isFirst = true; ; isFirst = false) {
      // It goes on after a stop: without an answer nobody knows whether the batch is in the log.
      if (!isFirst) await this.#cluster.wait(10 + this.#below("back-off", 90));
      const batch = textBatch(values, { id: this.#producerId, sequence: this.#sequence });
      const baseOffset = await this.#attempt(batch);
      if (baseOffset === undefined) continue;
      this.#sequence += count;
      this.#written += count;
      if (this.#options.acks === -1) {
        this.#checker.acknowledged(batch, baseOffset);
        this.acknowledged.push({ baseOffset, batch, values });
      }
      return;
    }
  }

  /** @returns the base offset when it was acknowledged */
  async #attempt(batch: Uint8Array): Promise<number | undefined> {
    const { acks, timeoutMs } = this.#options;
    this.sends += 1;
    try {
      const answer = await this.#cluster.send(this.#leader, batch, { acks, timeoutMs });
      if (answer.error === "NONE") return answer.baseOffset;
      if (answer.error === "OUT_OF_ORDER_SEQUENCE_NUMBER" && acks === 1) {
        this.#producerId += 1;
        this.#sequence = 0;
      } else if (answer.leaderId >= 1) this.#leader = answer.leaderId;
      else if (answer.error === "NOT_LEADER_OR_FOLLOWER" || answer.error === "UNKNOWN_TOPIC_OR_PARTITION") this.#next();
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      this.#next();
    }
    return undefined;
  }

  #next(): void {
    const ids = [...this.#cluster.nodes.keys()];
    this.#leader = ids[this.#below("leader", ids.length)] ?? 1;
  }

  #below(site: string, bound: number): number {
    return this.#random.below(site, Math.max(bound, 1));
  }
}

/** Reads from all brokers, in turn, what consumers may see. */
export class Consumer {
  readonly #cluster: Cluster;
  readonly #checker: Checker;
  readonly #positions = new Map<number, number>();
  #isStopped = false;
  reads = 0;

  constructor(cluster: Cluster, checker: Checker) {
    this.#cluster = cluster;
    this.#checker = checker;
  }

  async run(pauseMs: number): Promise<void> {
    while (!this.#isStopped) {
      for (const brokerId of this.#cluster.nodes.keys()) await this.#read(brokerId);
      await this.#cluster.wait(pauseMs);
    }
  }

  stop(): void {
    this.#isStopped = true;
  }

  async #read(brokerId: number): Promise<void> {
    const fetchOffset = this.#positions.get(brokerId) ?? 0;
    const partition = { ...NAME, currentLeaderEpoch: -1, fetchOffset, flushedEndOffset: -1, lastFetchedEpoch: -1 };
    try {
      const { partitions } = await this.#cluster.request(
        brokerId,
        {
          kind: "fetch",
          replicaId: -1,
          brokerEpoch: -1,
          maxWaitMs: 0,
          minBytes: 0,
          maxBytes: 1 << 16,
          partitions: [{ ...partition, logStartOffset: -1, maxBytes: 1 << 16 }],
        },
        500,
      );
      const answer = partitions[0];
      if (answer?.error !== "NONE") return;
      this.reads += 1;
      this.#checker.consumed(answer.bytes);
      this.#positions.set(brokerId, Math.max(0, answer.highWatermark));
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
    }
  }
}
