import { SimulatedRandom } from "@tidemark/simulator";
import { PeerError } from "@tidemark/wire";
import type { Checker } from "./checker.ts";
import type { ClientHistory } from "./client-history.ts";
import { recordsIn, textBatch } from "./cluster.ts";
import type { Cluster } from "./cluster.ts";
import type { SendOutcome, Tries } from "./history.ts";
import type { Pace } from "./pace.ts";
import { fetchCommitted } from "./tail.ts";

export interface ProducerOptions {
  readonly id: number;
  readonly acks: -1 | 1;
  readonly recordsMax: number;
  readonly valueBytesMax: number;
  readonly timeoutMs: number;
  readonly pauseMsMax: number;
  /** Without a producer id a batch may be stored as often as it is sent. */
  readonly isNameless: boolean;
  /** A batch is given up after so many tries; 0: never. */
  readonly triesMax: number;
  /**
   * Batches under way at a time, at most 5: of so many the log remembers where it put them. More than one only with a name, acks by all
   * and no end of tries, for then it is the log that keeps their order.
   */
  readonly inFlightMax: number;
}

/** Between two batches, where there is next to no load. */
const QUIET_PAUSE_MS_MIN = 1000;
const QUIET_PAUSE_MS_MAX = 20_000;

/** Answers that mean that nothing was appended: they come before anything is. Others may also come after. */
const REFUSALS: ReadonlySet<string> = new Set([
  "NOT_ENOUGH_REPLICAS",
  "OUT_OF_ORDER_SEQUENCE_NUMBER",
  "UNKNOWN_TOPIC_OR_PARTITION",
  "UNREACHABLE",
  "QUEUE_FULL",
]);

/**
 * Answers that only a leader gives, which may well be the one: it is asked again. After some of them another one is asked, as Kafka's
 * client asks for newer metadata: a leader that is overruled and cut off gives them for ever.
 */
const STAYS: ReadonlySet<string> = new Set([
  "NOT_ENOUGH_REPLICAS",
  "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
  "THROTTLING_QUOTA_EXCEEDED",
  "QUEUE_FULL",
]);
const STALE_ONE_IN = 10;

/** The tries of one batch so far. */
interface Sending {
  readonly values: readonly string[];
  /** Its own, where others are under way beside it; else the producer's. */
  readonly sequence: number | undefined;
  /** Tries that may have been carried out, or may still be. */
  uncertain: number;
  /** Since the first of them the producer has begun anew. */
  isRenamed: boolean;
  /** It may be in the log, below records that were deleted: nobody can tell any more. */
  isForgotten: boolean;
}

/** What an idempotent producer was told. */
export interface Acknowledged {
  readonly baseOffset: number;
  readonly batch: Uint8Array;
  readonly values: readonly string[];
}

/**
 * Sends each batch to whoever leads, again and again, until it is acknowledged or given up, and only then the next. It is idempotent
 * unless it is nameless. With acks 1 records may be lost, and the sequence with them: it goes on as a new producer then, and so it does
 * when it gives up what may be in the log.
 */
export class Producer {
  readonly acknowledged: Acknowledged[] = [];
  readonly #cluster: Cluster;
  readonly #checker: Checker;
  readonly #history: ClientHistory;
  readonly options: ProducerOptions;
  readonly #pace: Pace;
  readonly #random: SimulatedRandom;
  #producerId: number;
  #sequence = 0;
  #written = 0;
  #leader = 1;
  #isStopped = false;
  sends = 0;

  constructor(cluster: Cluster, checker: Checker, history: ClientHistory, pace: Pace, options: ProducerOptions) {
    this.#pace = pace;
    this.#cluster = cluster;
    this.#checker = checker;
    this.#history = history;
    this.options = options;
    this.#random = new SimulatedRandom(cluster.options.seed * 31 + options.id);
    this.#producerId = options.id * 1000;
  }

  /** Returns when it was stopped and its last batches are acknowledged, or given up. */
  async run(): Promise<void> {
    const { pauseMsMax, inFlightMax } = this.options;
    // By the number of the batch, the oldest first.
    const underWay = new Map<number, Promise<void>>();
    for (let number = 0; !this.#isStopped; number += 1) {
      // A log that does not know a producer takes any sequence as its first: only behind an acknowledged batch is there an order.
      const countMax = this.acknowledged.length === 0 ? 1 : inFlightMax;
      const sent = this.#sendNext(countMax > 1).then(() => void underWay.delete(number));
      // One that broke a rule stays, and is heard of when it is waited for.
      sent.catch(() => undefined);
      underWay.set(number, sent);
      // Not as many as are without an answer, but as many as the oldest of them is behind: later it would not be known any more.
      for (let [oldest] = underWay; oldest !== undefined && number - oldest[0] + 1 >= countMax; [oldest] = underWay)
        await oldest[1];
      await this.#pause(pauseMsMax);
    }
    await Promise.all(underWay.values());
  }

  async #pause(pauseMsMax: number): Promise<void> {
    const { quietMs } = this.#pace;
    const pauseMs = quietMs > 0 ? QUIET_PAUSE_MS_MIN + this.#below("quiet", QUIET_PAUSE_MS_MAX) : undefined;
    await this.#cluster.wait(Math.min(pauseMs ?? this.#below("pause", pauseMsMax + 1), quietMs || Infinity));
  }

  stop(): void {
    this.#isStopped = true;
  }

  /** @param isPiped the next batch comes behind this one whatever becomes of it: this one is tried until it is in the log */
  async #sendNext(isPiped: boolean): Promise<void> {
    const { id, acks, recordsMax, valueBytesMax, triesMax } = this.options;
    const count = 1 + this.#below("records", recordsMax);
    const values = Array.from({ length: count }, (_, at) => {
      const filler = "x".repeat(this.#below("bytes", valueBytesMax));
      return `${id}:${this.#written + at}:${filler}`;
    });
    this.#written += count;
    const op = this.#history.begin({ type: "send", client: `producer ${id}`, acks, values });
    const sending: Sending = {
      values,
      uncertain: 0,
      isRenamed: false,
      isForgotten: false,
      sequence: isPiped ? this.#sequence : undefined,
    };
    if (isPiped) this.#sequence += count;
    for (let tries = 1; ; tries += 1) {
      // It goes on after a stop: without an answer nobody knows whether the batch is in the log.
      if (tries > 1) await this.#cluster.wait(10 + this.#below("back-off", 90));
      const baseOffset = await this.#attempt(sending);
      if (baseOffset === undefined && tries !== triesMax && !sending.isForgotten) continue;
      const outcome: SendOutcome =
        baseOffset !== undefined ? { type: "ok", baseOffset } : { type: sending.uncertain > 0 ? "unknown" : "fail" };
      this.#history.end({ type: "sent", op, tries: this.#triesOf(sending, outcome), outcome });
      if (isPiped) return;
      if (outcome.type === "ok") this.#sequence += count;
      else if (outcome.type === "unknown") this.#rename(sending);
      return;
    }
  }

  /** A nameless batch is stored once more whenever the network says it once more. */
  #triesOf({ uncertain, isRenamed }: Sending, outcome: SendOutcome): Tries {
    const { isNameless } = this.options;
    const isOne = uncertain <= (outcome.type === "ok" ? 0 : 1);
    if (isOne && !(isNameless && this.#history.mayReplay)) return "once";
    return isNameless || isRenamed ? "repeated" : "idempotent";
  }

  /** @returns the base offset when it was acknowledged */
  async #attempt(sending: Sending): Promise<number | undefined> {
    const { acks, timeoutMs, isNameless } = this.options;
    const { values, sequence = this.#sequence } = sending;
    this.sends += 1;
    const batch = textBatch(values, isNameless ? undefined : { id: this.#producerId, sequence });
    try {
      const answer = await this.#cluster.send(this.#leader, batch, { acks, timeoutMs });
      if (answer.error === "NONE") {
        this.#acknowledge({ baseOffset: answer.baseOffset, batch, values });
        return answer.baseOffset;
      }
      this.#failed(sending, answer.error);
      if (answer.error === "OUT_OF_ORDER_SEQUENCE_NUMBER" && this.#mayBeDeleted(sending)) sending.isForgotten = true;
      else if (answer.error === "OUT_OF_ORDER_SEQUENCE_NUMBER" && acks === 1) this.#rename(sending);
      // A leader that is overruled, and does not know it, names itself, or misses the batches that its successor has.
      else if (answer.error === "REQUEST_TIMED_OUT" || answer.error === "OUT_OF_ORDER_SEQUENCE_NUMBER") this.#next();
      else if (answer.leaderId >= 1) this.#leader = answer.leaderId;
      else if (!STAYS.has(answer.error) || this.#below("stale", STALE_ONE_IN) === 0) this.#next();
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      this.#failed(sending, error.code);
      this.#next();
    }
    return undefined;
  }

  #acknowledge(acknowledged: Acknowledged): void {
    if (this.options.acks !== -1) return;
    this.#checker.acknowledged(acknowledged.batch, acknowledged.baseOffset);
    this.acknowledged.push(acknowledged);
  }

  #failed(sending: Sending, code: string): void {
    if (this.#history.mayReplay || !REFUSALS.has(code)) sending.uncertain += 1;
  }

  /**
   * A log that is opened anew knows no batches of a producer but those that it still has, and the last: of one that was deleted, and not
   * acknowledged yet, the true leader says that it is out of order. Kafka's client gives up then, too.
   */
  #mayBeDeleted({ uncertain }: Sending): boolean {
    const { decided } = this.#cluster;
    if (uncertain === 0 || decided?.leader !== this.#leader) return false;
    return (this.#cluster.node(this.#leader).log?.logStartOffset ?? 0) > 0;
  }

  #rename(sending: Sending): void {
    this.#producerId += 1;
    this.#sequence = 0;
    if (sending.uncertain > 0) sending.isRenamed = true;
  }

  #next(): void {
    const ids = [...this.#cluster.nodes.keys()];
    this.#leader = ids[this.#below("leader", ids.length)] ?? 1;
  }

  #below(site: string, bound: number): number {
    return this.#random.below(site, Math.max(bound, 1));
  }
}

/** Between two rounds of all brokers. */
const READ_PAUSE_MS = 400;
const QUIET_READ_PAUSE_MS = 10_000;
const SEEK_ONE_IN = 3;

/** What a consumer asks for at a time: less than a batch, some batches, all there is. */
const READ_BYTES = [100, 1000, 1 << 16] as const;

/** Reads from all brokers, in turn, what consumers may see. */
export class Consumer {
  readonly #cluster: Cluster;
  readonly #checker: Checker;
  readonly #history: ClientHistory;
  readonly #random: SimulatedRandom;
  readonly #pace: Pace;
  readonly #positions = new Map<number, number>();
  #isStopped = false;
  reads = 0;

  constructor(cluster: Cluster, checker: Checker, history: ClientHistory, pace: Pace) {
    this.#pace = pace;
    this.#cluster = cluster;
    this.#checker = checker;
    this.#history = history;
    this.#random = new SimulatedRandom(cluster.options.seed * 31);
  }

  async run(): Promise<void> {
    while (!this.#isStopped) {
      for (const brokerId of this.#cluster.nodes.keys()) await this.#read(brokerId);
      const { quietMs } = this.#pace;
      await this.#cluster.wait(quietMs > 0 ? Math.min(quietMs, QUIET_READ_PAUSE_MS) : READ_PAUSE_MS);
    }
  }

  stop(): void {
    this.#isStopped = true;
  }

  /** Now and then once more from anywhere in what was read before: old segments, and the middle of batches. */
  async #read(brokerId: number): Promise<void> {
    // Records below may have been deleted since.
    const startOffset = this.#cluster.node(brokerId).log?.logStartOffset ?? 0;
    const position = Math.max(this.#positions.get(brokerId) ?? 0, startOffset);
    if (position > 0 && this.#random.below("seek", SEEK_ONE_IN) === 0)
      await this.#readFrom(brokerId, this.#random.below("seek.offset", position));
    const endOffset = await this.#readFrom(brokerId, position);
    if (endOffset !== undefined) this.#positions.set(brokerId, endOffset);
  }

  /** @returns where to go on, if it was answered */
  async #readFrom(brokerId: number, fromOffset: number): Promise<number | undefined> {
    const maxBytes = READ_BYTES[this.#random.below("bytes", READ_BYTES.length)] ?? 1 << 16;
    const op = this.#history.begin({ type: "poll", client: "consumer", fromOffset, isAssigned: true });
    const answer = await fetchCommitted(this.#cluster, brokerId, {
      fromOffset,
      leaderEpoch: -1,
      maxWaitMs: 0,
      maxBytes,
    });
    if (answer === undefined) {
      this.#history.end({ type: "refused", op });
      return undefined;
    }
    this.reads += 1;
    const endOffset = this.#checker.consumed(answer.bytes, fromOffset, answer.highWatermark);
    this.#history.end({ type: "polled", op, records: recordsIn(answer.bytes, fromOffset) });
    return endOffset;
  }
}
