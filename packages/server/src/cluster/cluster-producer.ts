import { BufferPool } from "@tidemark/base";
import type { Clock } from "@tidemark/base";
import { BATCHES_REMEMBERED } from "@tidemark/log";
import type { ControllerState } from "@tidemark/replica";
import { encodeBatch, incrementSequence, PeerError } from "@tidemark/wire";
import type {
  PartitionName,
  PeerAddress,
  PeerErrorCode,
  PeerTransport,
  ProducePartitionResponse,
  RecordInput,
} from "@tidemark/wire";
import { TidemarkError } from "../error.ts";

/** Batches of one partition that may be under way. No more than the log remembers of a producer, or a repeated one could not be told. */
export const BATCHES_IN_FLIGHT_MAX = BATCHES_REMEMBERED;

/** What is wrong with the batch is told by its own name. */
const FAULTS_OF_BATCHES = [
  "INVALID_RECORD",
  "INVALID_TIMESTAMP",
  "MESSAGE_TOO_LARGE",
  "RECORD_LIST_TOO_LARGE",
  "UNSUPPORTED_COMPRESSION_TYPE",
] as const;

/** Answers after which the same batch is sent again, to whoever leads then. Idempotence makes that harmless. */
const RETRIABLE: ReadonlySet<PeerErrorCode> = new Set([
  "NOT_LEADER_OR_FOLLOWER",
  "UNKNOWN_TOPIC_OR_PARTITION",
  "REQUEST_TIMED_OUT",
  "NOT_ENOUGH_REPLICAS",
  "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
  "KAFKA_STORAGE_ERROR",
  "OUT_OF_ORDER_SEQUENCE_NUMBER",
  "THROTTLING_QUOTA_EXCEEDED",
  "FENCED_LEADER_EPOCH",
  "UNKNOWN_LEADER_EPOCH",
]);

export interface ClusterProducerOptions extends PartitionName {
  readonly transport: PeerTransport;
  readonly clock: Clock;
  readonly controller: PeerAddress;
  /** Unique in the cluster. */
  readonly producerId: number;
  readonly acks: -1 | 1;
  /** How long the leader may wait for the ISR before it answers REQUEST_TIMED_OUT. */
  readonly requestTimeoutMs: number;
  /** After this a batch counts as failed, and the producer with it. Kafka: delivery.timeout.ms. */
  readonly deliveryTimeoutMs: number;
  readonly retryBackoffMs: number;
}

export interface ProducedBatch {
  readonly baseOffset: number;
  readonly lastOffset: number;
  /** Times that it was sent. */
  readonly attempts: number;
}

/**
 * An idempotent producer for one partition of a cluster: batches keep their order and are in the log once, whoever leads.
 *
 * Up to five batches are under way. One that fails is sent again with its sequence, and those behind it after it; the log answers a
 * batch that it has with the offsets it has there.
 */
export class ClusterProducer {
  readonly #options: ClusterProducerOptions;
  readonly #pool = new BufferPool();
  #nextSequence = 0;
  #inFlight = 0;
  /** Batches that failed once and are not acknowledged yet. */
  #repeating = 0;
  readonly #waiting: (() => void)[] = [];
  /** Settles when the batch before the next one is acknowledged; rejects when it has failed. */
  #before: Promise<unknown> = Promise.resolve();
  #leader: PeerAddress | undefined;
  #finding: Promise<void> | undefined;
  #failure: TidemarkError | undefined;

  constructor(options: ClusterProducerOptions) {
    this.#options = options;
  }

  /** The broker that batches go to at present. */
  get leaderId(): number | undefined {
    return this.#leader?.nodeId;
  }

  /** Waits until another batch may be sent. */
  async ready(): Promise<void> {
    while (this.#inFlight >= BATCHES_IN_FLIGHT_MAX) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    // Once, if there is none: batches that find no leader go one after another.
    if (this.#leader === undefined) await this.#lookForLeader(undefined);
  }

  /**
   * Sends records as one batch. Call `ready` first. Takes its place at once.
   * @throws TidemarkError REQUEST_TIMED_OUT after `deliveryTimeoutMs`, or what the log refused it for; every later call fails too then, since
   * the sequence would have a hole
   */
  send(records: readonly RecordInput[]): Promise<ProducedBatch> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    const { producerId } = this.#options;
    const pool = this.#pool;
    const batch = encodeBatch(records, { producerId, producerEpoch: 0, baseSequence: this.#nextSequence, pool });
    this.#nextSequence = incrementSequence(this.#nextSequence, records.length);
    this.#inFlight += 1;
    const sent = this.#deliver(batch, this.#before).finally(() => {
      this.#inFlight -= 1;
      this.#waiting.shift()?.();
    });
    this.#before = sent;
    sent.catch((error: unknown) => {
      if (error instanceof TidemarkError) this.#failure ??= error;
    });
    return sent;
  }

  async #deliver(batch: Uint8Array, before: Promise<unknown>): Promise<ProducedBatch> {
    const { clock, deliveryTimeoutMs, topic, partition } = this.#options;
    const deadlineMs = clock.monotonicMs() + deliveryTimeoutMs;
    let isBehindAll = this.#repeating > 0 || this.#leader === undefined;
    // While one is sent again those behind it could only be refused: they wait for it. Else they go side by side.
    if (isBehindAll) await before;
    for (let attempts = 1; ; attempts += 1) {
      const leader = this.#leader;
      const answer = leader === undefined ? undefined : await this.#attempt(leader, batch);
      if (answer?.error === "NONE") {
        if (attempts > 1) this.#repeating -= 1;
        // The answer says that all of it was sent. An attempt without an answer may still be looked at by its connection.
        else this.#pool.giveBack(batch);
        return { baseOffset: answer.baseOffset, lastOffset: answer.lastOffset, attempts };
      }
      if (attempts === 1) this.#repeating += 1;
      const error = answer?.error ?? "NOT_LEADER_OR_FOLLOWER";
      if (!RETRIABLE.has(error))
        throw new TidemarkError(
          FAULTS_OF_BATCHES.find((code) => code === error) ?? "KAFKA_STORAGE_ERROR",
          `${topic}-${partition} refuses a batch: ${error}`,
          { topic, partition },
        );
      const wasEarly = !isBehindAll && error === "OUT_OF_ORDER_SEQUENCE_NUMBER";
      await before;
      isBehindAll = true;
      if (clock.monotonicMs() > deadlineMs)
        throw new TidemarkError(
          "REQUEST_TIMED_OUT",
          `${topic}-${partition} took no batch for ${deliveryTimeoutMs} ms: ${error}`,
          { topic, partition },
        );
      // The one before it had failed, and is in the log now: nothing else is wrong.
      if (!wasEarly) await this.#lookForLeader(leader);
    }
  }

  async #attempt(leader: PeerAddress, batch: Uint8Array): Promise<ProducePartitionResponse | undefined> {
    const { transport, topic, partition, acks, requestTimeoutMs } = this.#options;
    const request = {
      kind: "produce",
      acks,
      timeoutMs: requestTimeoutMs,
      partitions: [{ topic, partition, batch }],
    } as const;
    try {
      const response = await transport.request(leader, request, { timeoutMs: 2 * requestTimeoutMs });
      return response.partitions[0];
    } catch (error) {
      if (error instanceof PeerError) return undefined; // It may be in the log or not: the next attempt finds out.
      throw error;
    }
  }

  /** Asks the controller who leads, after a while, unless somebody found another leader meanwhile. */
  async #lookForLeader(failed: PeerAddress | undefined): Promise<void> {
    const { clock, retryBackoffMs } = this.#options;
    if (failed !== undefined) await new Promise<void>((resolve) => clock.setTimer(retryBackoffMs, resolve));
    if (this.#leader !== failed) return;
    this.#finding ??= this.#askController().finally(() => {
      this.#finding = undefined;
    });
    await this.#finding;
  }

  async #askController(): Promise<void> {
    const { transport, controller, clock, retryBackoffMs, topic, partition, requestTimeoutMs } = this.#options;
    try {
      const { error, json } = await transport.request(
        controller,
        { kind: "describe" },
        { timeoutMs: requestTimeoutMs },
      );
      const state = error === "NONE" ? (JSON.parse(json) as ControllerState) : undefined;
      const leaderId =
        state?.partitions.find((other) => other.topic === topic && other.partition === partition)?.leader ?? -1;
      const broker = state?.brokers.find(({ brokerId }) => brokerId === leaderId);
      this.#leader = broker === undefined ? undefined : { nodeId: leaderId, host: broker.host, port: broker.port };
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
    }
    if (this.#leader === undefined) await new Promise<void>((resolve) => clock.setTimer(retryBackoffMs, resolve));
  }
}
