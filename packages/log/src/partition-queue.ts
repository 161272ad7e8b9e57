import { fail } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import type { BatchHeader, RecordsSummary } from "@tidemark/wire";
import type { RecordsJudgement } from "./append-checks.ts";
import { GROUP_BYTES_MAX, QUEUED_BYTES_MAX } from "./config.ts";
import { LogError } from "./error.ts";
import type { ProducerAppend } from "./producer-state.ts";

export interface AppendResult {
  readonly baseOffset: Offset;
  readonly lastOffset: Offset;
  /** The batch was in the log already: these are its offsets there, and nothing was written. */
  readonly duplicate: boolean;
  /** ms; where the leader's time was written over the batch's. */
  readonly logAppendTime?: number;
}

/** One batch in a group: where it lies in the group's buffer, and who waits for it. */
export interface GroupEntry {
  /** Of the batch as it lies in the buffer, but for what a leader stamps outside the CRC. */
  header: BatchHeader;
  readonly append: ProducerAppend;
  atBytes: number;
  /** What its records are, as far as somebody looked at them; a promise while that happens elsewhere, which may end in a refusal. */
  judgement: Promise<RecordsJudgement> | RecordsJudgement | undefined;
  readonly resolve: (result: AppendResult) => void;
  readonly reject: (error: unknown) => void;
}

/** Makes another batch of one that waits in the queue. Called once, shortly before its turn; never rejects. */
export type Conversion = () => Promise<ConvertedBatch | LogError>;

export interface ConvertedBatch {
  readonly batch: Uint8Array;
  readonly header: BatchHeader;
  readonly records: RecordsSummary;
}

/** Batches of a group that are converted at a time; those of two groups are, of the one whose turn it is and of the next. */
export const GROUP_CONVERSIONS_MAX = 8;

/**
 * Batches that are written together. They are copied in here when `append` is called, and nowhere else; offsets and leader
 * epoch are stamped into this buffer when the group's turn comes.
 */
export class AppendGroup {
  readonly entries: GroupEntry[] = [];
  buffer: Uint8Array;
  usedBytes = 0;
  /** Nothing more is done for it, and its callers may have heard. */
  isAnswered = false;

  constructor(buffer: Uint8Array) {
    this.buffer = buffer;
  }

  /** Whether a batch may join: always the first, then as long as the group stays within its bound. */
  canTake(batchBytes: number): boolean {
    return this.usedBytes === 0 || this.usedBytes + batchBytes <= GROUP_BYTES_MAX;
  }

  add(batch: Uint8Array, entry: GroupEntry): void {
    const needed = this.usedBytes + batch.length;
    if (needed > this.buffer.length) {
      const larger = new Uint8Array(Math.max(needed, Math.min(this.buffer.length * 2, GROUP_BYTES_MAX)));
      larger.set(this.buffer.subarray(0, this.usedBytes));
      this.buffer = larger;
    }
    this.buffer.set(batch, this.usedBytes);
    entry.atBytes = this.usedBytes;
    this.usedBytes = needed;
    this.entries.push(entry);
  }
}

/** A group of batches that get another codec first. They keep their places among all others meanwhile. */
class ConvertedGroup extends AppendGroup {
  readonly #conversions: Conversion[] = [];
  #results: ReturnType<Conversion>[] | undefined;

  constructor() {
    super(new Uint8Array(0));
  }

  override canTake(batchBytes: number): boolean {
    return super.canTake(batchBytes) && this.entries.length < GROUP_CONVERSIONS_MAX;
  }

  /** @param batch counts for its size only */
  addConversion(batch: Uint8Array, entry: GroupEntry, conversion: Conversion): void {
    this.usedBytes += batch.length;
    this.entries.push(entry);
    this.#conversions.push(conversion);
    this.#results?.push(conversion());
  }

  /** Begins the conversions: as soon as the group before has its turn, so that they run beside its write. */
  prepare(): void {
    this.#results ??= this.#conversions.map((convert) => convert());
  }

  /** Puts the converted batches into the buffer, one behind the other; what cannot be converted is refused in its turn. */
  async complete(): Promise<void> {
    this.prepare();
    const results = await Promise.all(this.#results ?? []);
    const totalBytes = results.reduce((sum, it) => sum + (it instanceof LogError ? 0 : it.batch.length), 0);
    this.buffer = new Uint8Array(totalBytes);
    let atBytes = 0;
    for (const [at, result] of results.entries()) {
      const entry = this.entries[at] ?? fail("a conversion belongs to an entry", { at });
      entry.atBytes = atBytes;
      if (result instanceof LogError) {
        entry.judgement = result;
        continue;
      }
      entry.header = result.header;
      entry.judgement = result.records;
      this.buffer.set(result.batch, atBytes);
      atBytes += result.batch.length;
    }
  }
}

type QueueItem =
  | { readonly type: "group"; readonly group: AppendGroup }
  | { readonly type: "task"; readonly run: () => Promise<void> };

/** Size of a fresh group buffer; where batches are large it has its full size at once. */
const GROUP_BUFFER_BYTES = 64 * 1024;
/** Buffers kept for the next groups. */
const SPARE_BUFFERS_MAX = 2;

/**
 * The one queue of a partition: append groups, role changes, rolls, truncations, flushes and the close, one after the other in
 * the order of the calls.
 *
 * Invariant: an append takes its place when it is called. It joins the last group only if nothing was queued behind that
 * group, and a group that is being committed takes nobody any more.
 */
export class PartitionQueue {
  readonly #commit: (group: AppendGroup) => Promise<void>;
  readonly #items: QueueItem[] = [];
  readonly #spareBuffers: Uint8Array[] = [];
  #queuedBytes = 0;
  #isRunning = false;
  /** The group that was begun last. */
  #group: AppendGroup | undefined;

  /** @param commit writes a group, notes that it is answered, and answers each of its entries; must not throw */
  constructor(commit: (group: AppendGroup) => Promise<void>) {
    this.#commit = commit;
  }

  /** Bytes of batches that wait or are being written. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** Nothing waits, and nothing runs: as an answer's receiver sees it too, who comes before the queue has looked whether that was all. */
  get isIdle(): boolean {
    return !this.#isRunning || (this.#items.length === 0 && this.#group?.isAnswered === true);
  }

  /** Queues a batch that is converted when its turn comes near. @throws LogError QUEUE_FULL, as a rejection */
  appendConverted(
    batch: Uint8Array,
    header: BatchHeader,
    append: ProducerAppend,
    conversion: Conversion,
  ): Promise<AppendResult> {
    const full = this.#refusalOf(batch);
    if (full !== undefined) return Promise.reject(full);
    return new Promise((resolve, reject) => {
      const last = this.#items.at(-1);
      let group = last?.type === "group" && last.group instanceof ConvertedGroup ? last.group : undefined;
      if (group?.canTake(batch.length) !== true) {
        group = new ConvertedGroup();
        this.#items.push({ type: "group", group });
      }
      group.addConversion(batch, { header, append, atBytes: 0, judgement: undefined, resolve, reject }, conversion);
      this.#queuedBytes += batch.length;
      this.#prepareNext();
      this.#start();
    });
  }

  #refusalOf(batch: Uint8Array): LogError | undefined {
    if (this.#queuedBytes === 0 || this.#queuedBytes + batch.length <= QUEUED_BYTES_MAX) return undefined;
    return new LogError({ code: "QUEUE_FULL", queuedBytes: this.#queuedBytes, limitBytes: QUEUED_BYTES_MAX });
  }

  #prepareNext(): void {
    const [next] = this.#items;
    if (next?.type === "group" && next.group instanceof ConvertedGroup) next.group.prepare();
  }

  /** Copies the batch and queues it. @throws LogError QUEUE_FULL, as a rejection */
  append(
    batch: Uint8Array,
    header: BatchHeader,
    append: ProducerAppend,
    judgement: Promise<RecordsJudgement> | RecordsSummary | undefined,
  ): Promise<AppendResult> {
    const full = this.#refusalOf(batch);
    if (full !== undefined) return Promise.reject(full);
    return new Promise((resolve, reject) => {
      const last = this.#items.at(-1);
      const isJoinable = last?.type === "group" && !(last.group instanceof ConvertedGroup);
      let group = isJoinable && last.group.canTake(batch.length) ? last.group : undefined;
      if (group === undefined) {
        const firstBytes = batch.length > GROUP_BUFFER_BYTES / 2 ? GROUP_BYTES_MAX : GROUP_BUFFER_BYTES;
        group = new AppendGroup(this.#spareBuffers.pop() ?? new Uint8Array(firstBytes));
        this.#items.push({ type: "group", group });
      }
      group.add(batch, { header, append, atBytes: 0, judgement, resolve, reject });
      this.#queuedBytes += batch.length;
      this.#start();
    });
  }

  /** Runs `task` when everything before it is done, alone. */
  run<Result>(task: () => Promise<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#items.push({ type: "task", run: () => task().then(resolve, reject) });
      this.#start();
    });
  }

  #start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#drain().catch((error: unknown) => fail("the partition queue does not fail", { error: String(error) }));
  }

  async #drain(): Promise<void> {
    // Callers of the same turn join the first group before it is closed.
    await Promise.resolve();
    for (let item = this.#items.shift(); item !== undefined; item = this.#items.shift()) {
      this.#prepareNext();
      this.#group = item.type === "group" ? item.group : undefined;
      if (item.type === "task") await item.run();
      else await this.#commitGroup(item.group);
    }
    this.#group = undefined;
    this.#isRunning = false;
  }

  async #commitGroup(group: AppendGroup): Promise<void> {
    const bytes = group.usedBytes;
    if (group instanceof ConvertedGroup) {
      await group.complete();
      await this.#commit(group);
      this.#queuedBytes -= bytes;
      return;
    }
    await this.#commit(group);
    this.#queuedBytes -= bytes;
    const isReusable = group.buffer.length <= GROUP_BYTES_MAX && this.#spareBuffers.length < SPARE_BUFFERS_MAX;
    if (isReusable) this.#spareBuffers.push(group.buffer);
  }
}
