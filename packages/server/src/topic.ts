import { toOffset } from "@tidemark/base";
import type { BufferPool, Clock, WorkerPool } from "@tidemark/base";
import type { ListedOffset, LogManager, OffsetSpec, PartitionLog, TopicConfig, TopicDescription } from "@tidemark/log";
import type { RecordInput } from "@tidemark/wire";
import { onAbort } from "./abort.ts";
import { AppendCall } from "./append-call.ts";
import type { AppendedRecord } from "./append-call.ts";
import type { BufferMemory } from "./buffer-memory.ts";
import type { ByteArena } from "./byte-arena.ts";
import { TidemarkError, toTidemarkError, translated } from "./error.ts";
import { RecordIterator } from "./fetch.ts";
import type { FetchedRecord, FetchOptions } from "./fetch.ts";
import { appendCodecOf } from "./options.ts";
import { PartitionAccumulator, singleBatchBytes } from "./partition-accumulator.ts";
import { partitionForKey } from "./partitioner.ts";
import type { StickyPartitioner } from "./partitioner.ts";
import { RecordAppender } from "./record-appender.ts";
import type { AppenderOptions } from "./record-appender.ts";
import { copyRecordInput, recordRulesOf, toRecordInput } from "./record-input.ts";
import type { RecordRules, RecordToAppend } from "./record-input.ts";

export interface AppendOptions {
  /**
   * On abort the append rejects with `signal.reason`. While it waits for room it is then not appended; once it was handed to
   * the log it may still take effect.
   */
  readonly signal?: AbortSignal;
  /** For every record of this call. Default: by key, or a sticky one for records without a key. */
  readonly partition?: number;
}

/** What a node tells about one of its partitions, now. */
export type PartitionView = Pick<
  PartitionLog,
  | "partition"
  | "logStartOffset"
  | "logEndOffset"
  | "flushedEndOffset"
  | "recoveryPoint"
  | "leaderEpoch"
  | "epochEntries"
  | "segments"
  | "recovery"
  | "damaged"
  | "flush"
>;

/** What a topic needs of the log it belongs to. */
export interface TopicContext {
  readonly manager: LogManager;
  readonly clock: Clock;
  readonly workers: WorkerPool;
  readonly memory: BufferMemory;
  readonly arena: ByteArena;
  readonly pool: BufferPool;
  readonly partitioner: StickyPartitioner;
  readonly producerId: number;
  readonly batchBytes: number;
  /** Why nothing may be done any more, if so. */
  readonly refusal: () => TidemarkError | undefined;
  /** Counts a call that `close` waits for; the result is called when it is over. */
  readonly begin: () => () => void;
}

/** A topic: named, numbered partitions, each an ordered log of records. From `Tidemark.topic`. */
export class Topic {
  readonly name: string;
  /** Kafka's uuid spelling. */
  readonly topicId: string;
  /** Partitions are numbered `[0, partitions)`. */
  readonly partitions: number;
  readonly config: TopicConfig;
  readonly #context: TopicContext;
  readonly #accumulators = new Map<number, PartitionAccumulator>();
  /** No batch of this topic is larger. */
  readonly #batchBytesMax: number;
  readonly #rules: RecordRules;
  #isDeleted = false;

  constructor(description: TopicDescription, context: TopicContext) {
    this.name = description.name;
    this.topicId = description.topicId;
    this.partitions = description.partitions;
    this.config = description.config;
    this.#context = context;
    this.#rules = recordRulesOf(this.config);
    this.#batchBytesMax = Math.min(this.config.maxMessageBytes, this.config.segmentBytes);
  }

  /**
   * Appends a record, or several in one call. Resolves when they are durable as `flush` of the topic says: with `always`, the
   * default, on the disk.
   *
   * Appends that are not awaited one by one share batches and syncs. Past `bufferMemoryBytes` of unacknowledged records an append
   * waits. Records of one call for one partition stay in order and next to each other, in as few batches as `maxMessageBytes` allows;
   * if the call fails, some of its batches may have been appended.
   * @returns one result, or one for each record of an array
   * @throws TidemarkError MESSAGE_TOO_LARGE, INVALID_REQUEST, INVALID_TIMESTAMP, INVALID_RECORD (all before anything is appended),
   *   UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR (kind `retry` when the disk is full: nothing was appended), CLOSED
   */
  append(record: RecordToAppend, options?: AppendOptions): Promise<AppendedRecord>;
  append(records: readonly RecordToAppend[], options?: AppendOptions): Promise<AppendedRecord[]>;
  append(
    records: RecordToAppend | readonly RecordToAppend[],
    options: AppendOptions = {},
  ): Promise<AppendedRecord | AppendedRecord[]> {
    try {
      this.#checkOpen();
      checkSignal(options.signal);
      options.signal?.throwIfAborted();
      if (Array.isArray(records)) return this.#appendMany(records as readonly RecordToAppend[], options);
      return this.#appendOne(records as RecordToAppend, options);
    } catch (error) {
      return Promise.reject(toTidemarkError(error, { topic: this.name, partition: options.partition }));
    }
  }

  /**
   * For many records to one partition: see `RecordAppender`. Beside `bufferMemoryBytes` it keeps up to `2 * APPENDER_BATCHES_MAX` batches
   * of `batchBytes`.
   * @throws TidemarkError UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, CLOSED
   */
  appender(options: AppenderOptions): RecordAppender {
    this.#checkOpen();
    if (typeof options !== "object" || options === null)
      throw new TidemarkError("INVALID_REQUEST", "appender takes options");
    const { clock, arena, begin } = this.#context;
    return new RecordAppender(
      {
        topic: this.name,
        accumulator: this.#accumulator(options.partition),
        clock,
        arena,
        batchBytesMax: this.#batchBytesMax,
        rules: this.#rules,
        checkOpen: () => this.#checkOpen(),
        begin,
      },
      options,
    );
  }

  /**
   * Records of a partition in order. New ones are waited for, until `signal`, `to`, `break` or the log's end with `follow: false`.
   *
   * Iterating throws: TidemarkError OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, CLOSED; `signal.reason`.
   * @throws TidemarkError INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, CLOSED
   */
  fetch(options: FetchOptions): AsyncIterableIterator<FetchedRecord> {
    this.#checkOpen();
    if (typeof options !== "object" || options === null)
      throw new TidemarkError("INVALID_REQUEST", "fetch takes options");
    checkSignal(options.signal);
    const { partition, from = "earliest", to, maxBytes } = options;
    const log = this.#log(partition);
    if (maxBytes !== undefined && !(Number.isSafeInteger(maxBytes) && maxBytes > 0)) {
      throw new TidemarkError("INVALID_REQUEST", `maxBytes ${maxBytes} is not a positive integer`);
    }
    if (to !== undefined && !(Number.isSafeInteger(to) && to >= 0)) {
      throw new TidemarkError("INVALID_REQUEST", `to ${to} is not an offset`);
    }
    const fromOffset = from === "earliest" ? log.logStartOffset : from === "latest" ? log.visibleEndOffset : from;
    if (!(Number.isSafeInteger(fromOffset) && fromOffset >= log.logStartOffset && fromOffset <= log.logEndOffset)) {
      const message = `${this.name}-${partition}: offset ${fromOffset} is not in ${log.logStartOffset}..${log.logEndOffset}`;
      throw new TidemarkError("OFFSET_OUT_OF_RANGE", message, { topic: this.name, partition, offset: fromOffset });
    }
    const source = {
      topic: this.name,
      partition,
      log,
      workers: this.#context.workers,
      refusal: () => this.#refusal(),
    };
    return new RecordIterator(source, toOffset(fromOffset), options);
  }

  /**
   * Where the records of a partition begin and end, as an open interval: `[earliest, latest)`.
   * @throws TidemarkError UNKNOWN_TOPIC_OR_PARTITION, CLOSED
   */
  offsets(partition: number): { readonly earliest: number; readonly latest: number } {
    this.#checkOpen();
    const log = this.#log(partition);
    return { earliest: log.logStartOffset, latest: log.visibleEndOffset };
  }

  /**
   * The offset of the first record with a timestamp at or above `timestamp`, of the record with the largest one, or where the records begin
   * or end. A lookup by time finds the exact record, and decodes one batch.
   * @returns `undefined` when there is no such record
   * @throws TidemarkError INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, CLOSED
   */
  async listOffset(partition: number, spec: OffsetSpec): Promise<ListedOffset | undefined> {
    this.#checkOpen();
    const log = this.#log(partition);
    if (!isOffsetSpec(spec))
      throw new TidemarkError(
        "INVALID_REQUEST",
        `${JSON.stringify(spec)} is no name of an offset and no { timestamp }`,
      );
    return translated(log.listOffset(spec, log.visibleEndOffset), { topic: this.name, partition });
  }

  /**
   * Deletes the records of a partition below `before`, durably: no fetch finds them any more. Their bytes go with the last record of a
   * segment.
   * @returns where the records begin now
   * @throws TidemarkError OFFSET_OUT_OF_RANGE above the end, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, CLOSED
   */
  async deleteRecords(partition: number, before: number): Promise<number> {
    this.#checkOpen();
    this.#log(partition);
    if (!(Number.isSafeInteger(before) && before >= 0))
      throw new TidemarkError("INVALID_REQUEST", `before ${before} is not an offset`);
    const deletion = this.#context.manager.deleteRecords(this.name, partition, toOffset(before));
    return translated(deletion, { topic: this.name, partition });
  }

  /** The partition's offsets, epochs, segments and recovery report. @throws TidemarkError UNKNOWN_TOPIC_OR_PARTITION, CLOSED */
  partition(partition: number): PartitionView {
    this.#checkOpen();
    return this.#log(partition);
  }

  /** For `Tidemark.deleteTopic`: every later call answers UNKNOWN_TOPIC_OR_PARTITION. */
  markDeleted(): void {
    this.#isDeleted = true;
  }

  #appendOne(record: RecordToAppend, { signal, partition: wanted }: AppendOptions): Promise<AppendedRecord> {
    const { clock, arena, memory, begin } = this.#context;
    const input = toRecordInput(record, Math.floor(clock.wallMs()), arena.borrowing, this.#rules);
    const bytes = this.#checkedBytes(input);
    const partition = wanted ?? this.#partitionFor(input, bytes);
    const accumulator = this.#accumulator(partition);
    const { timestamp } = input;
    if (signal === undefined && memory.tryAcquire(bytes)) {
      // The usual case of `#buffered`, with nothing to wait for and nobody to abort it.
      const call = new AppendCall({ memory, bytes, end: begin(), topic: this.name, partition, timestamp });
      const answer = call.answer();
      accumulator.add(input, call);
      return answer;
    }
    const copy = copyRecordInput(input, arena);
    return this.#buffered(bytes, signal, (resolve, reject) => {
      const onAppended = (offset: number, logAppendTime = timestamp): void =>
        resolve({ partition, offset, timestamp: logAppendTime });
      accumulator.add(copy, { count: 1, onAppended, onFailed: reject });
    });
  }

  #appendMany(
    records: readonly RecordToAppend[],
    { signal, partition: wanted }: AppendOptions,
  ): Promise<AppendedRecord[]> {
    if (records.length === 0) return Promise.resolve([]);
    const { clock, arena } = this.#context;
    const nowMs = Math.floor(clock.wallMs());
    const inputs = records.map((record) => toRecordInput(record, nowMs, arena, this.#rules));
    const sizes = inputs.map((input) => this.#checkedBytes(input));
    const totalBytes = sizes.reduce((sum, bytes) => sum + bytes, 0);
    const groups = this.#groupByPartition(inputs, sizes, wanted);
    const accumulators = [...groups.keys()].map((partition) => this.#accumulator(partition));
    return this.#buffered(totalBytes, signal, (resolve, reject) => {
      const results: AppendedRecord[] = Array.from({ length: records.length });
      let missing = records.length;
      for (const [at, [partition, { indexes, members }]] of [...groups].entries()) {
        const onAppended = (firstIndex: number, count: number, baseOffset: number, logAppendTime?: number) => {
          for (let delta = 0; delta < count; delta += 1) {
            const index = indexes[firstIndex + delta] ?? 0;
            const { timestamp } = members[firstIndex + delta] ?? { timestamp: -1 };
            results[index] = { partition, offset: baseOffset + delta, timestamp: logAppendTime ?? timestamp };
          }
          missing -= count;
          if (missing === 0) resolve(results);
        };
        accumulators[at]?.addMany(members, onAppended, reject);
      }
    });
  }

  /**
   * Runs `start` when there is room for `bytes`, and gives the room back when it is through, even if the caller has
   * left by then.
   */
  #buffered<Result>(
    bytes: number,
    signal: AbortSignal | undefined,
    start: (resolve: (result: Result) => void, reject: (error: unknown) => void) => void,
  ): Promise<Result> {
    const { memory, begin } = this.#context;
    const end = begin();
    return new Promise<Result>((resolve, reject) => {
      let isAdmitted = false;
      let isOver = false;
      const over = (): void => {
        if (isOver) return; // Several batches of one call may fail.
        isOver = true;
        stopListening?.();
        memory.release(bytes);
        end();
      };
      const giveUp = memory.acquire(bytes, () => {
        isAdmitted = true;
        start(
          (result) => {
            over();
            resolve(result);
          },
          (error) => {
            over();
            reject(toTidemarkError(error, { topic: this.name }));
          },
        );
      });
      const stopListening =
        signal &&
        onAbort(signal, () => {
          giveUp?.();
          if (!isAdmitted) end();
          reject(signal.reason);
        });
    });
  }

  #groupByPartition(
    inputs: readonly RecordInput[],
    sizes: readonly number[],
    wanted: number | undefined,
  ): Map<number, { readonly indexes: number[]; readonly members: RecordInput[] }> {
    const groups = new Map<number, { readonly indexes: number[]; readonly members: RecordInput[] }>();
    // Records without a key stay together: one sticky partition for all of this call's.
    const keylessBytes = inputs.reduce(
      (sum, input, index) => (input.key === null ? sum + (sizes[index] ?? 0) : sum),
      0,
    );
    const keyless = wanted ?? (keylessBytes > 0 ? this.#context.partitioner.next(keylessBytes) : 0);
    for (const [index, input] of inputs.entries()) {
      const partition = wanted ?? (input.key === null ? keyless : partitionForKey(input.key, this.partitions));
      let group = groups.get(partition);
      if (group === undefined) {
        group = { indexes: [], members: [] };
        groups.set(partition, group);
      }
      group.indexes.push(index);
      group.members.push(input);
    }
    return groups;
  }

  #partitionFor({ key }: RecordInput, bytes: number): number {
    return key === null ? this.#context.partitioner.next(bytes) : partitionForKey(key, this.partitions);
  }

  /** Size of the record in a batch of its own. @throws TidemarkError MESSAGE_TOO_LARGE */
  #checkedBytes(input: RecordInput): number {
    const bytes = singleBatchBytes(input);
    if (bytes <= this.#batchBytesMax) return bytes;
    const message = `${this.name}: a record of ${bytes} bytes in a batch of its own; at most ${this.#batchBytesMax} are allowed`;
    throw new TidemarkError("MESSAGE_TOO_LARGE", message, { topic: this.name });
  }

  #accumulator(partition: number): PartitionAccumulator {
    let accumulator = this.#accumulators.get(partition);
    if (accumulator === undefined) {
      const { workers, pool, producerId, batchBytes } = this.#context;
      const log = this.#log(partition);
      const { compressionLevel } = this.config;
      const batchBytesMax = this.#batchBytesMax;
      accumulator = new PartitionAccumulator({
        topic: this.name,
        partition,
        log,
        workers,
        pool,
        producerId,
        compression: appendCodecOf(this.config),
        compressionLevel,
        batchBytes,
        batchBytesMax,
      });
      this.#accumulators.set(partition, accumulator);
    }
    return accumulator;
  }

  #log(partition: number): PartitionLog {
    if (!Number.isInteger(partition)) {
      throw new TidemarkError("INVALID_REQUEST", `partition ${JSON.stringify(partition)} is not a number`, {
        topic: this.name,
      });
    }
    const facts = { topic: this.name, partition };
    const log = this.#context.manager.partition(this.name, partition);
    if (log !== undefined) return log;
    if (Number.isInteger(partition) && partition >= 0 && partition < this.partitions) {
      const message = `${this.name}-${partition}: its directory is missing from ${this.#context.manager.directory.path}`;
      throw new TidemarkError("KAFKA_STORAGE_ERROR", message, { ...facts, kind: "restore-data" });
    }
    const message = `topic "${this.name}" has partitions 0..${this.partitions - 1}, not ${partition}`;
    throw new TidemarkError("UNKNOWN_TOPIC_OR_PARTITION", message, facts);
  }

  #checkOpen(): void {
    const refusal = this.#refusal();
    if (refusal !== undefined) throw refusal;
  }

  #refusal(): TidemarkError | undefined {
    const refusal = this.#context.refusal();
    if (refusal !== undefined || !this.#isDeleted) return refusal;
    return new TidemarkError("UNKNOWN_TOPIC_OR_PARTITION", `topic "${this.name}" was deleted`, { topic: this.name });
  }
}

function isOffsetSpec(spec: unknown): spec is OffsetSpec {
  if (typeof spec === "string") return ["earliest", "earliest-local", "latest", "max-timestamp"].includes(spec);
  if (typeof spec !== "object" || spec === null) return false;
  const { timestamp } = spec as { timestamp?: unknown };
  return Number.isSafeInteger(timestamp) && (timestamp as number) >= 0;
}

function checkSignal(signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return;
  throw new TidemarkError("INVALID_REQUEST", "signal is not an AbortSignal");
}
