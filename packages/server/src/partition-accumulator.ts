import { fail, WorkerError } from "@tidemark/base";
import type { BufferPool, CodecName, WorkerPool } from "@tidemark/base";
import { BATCHES_REMEMBERED, LogError } from "@tidemark/log";
import type { AppendResult, PartitionLog } from "@tidemark/log";
import {
  BatchBuilder,
  compressBatch,
  encodedRecordBytes,
  incrementSequence,
  RECORD_BATCH_OVERHEAD,
  scanBatch,
} from "@tidemark/wire";
import type { CompressionCodec, RecordInput } from "@tidemark/wire";
import { TidemarkError } from "./error.ts";

/** Batches of one partition that are with the log at a time: as many as a log remembers of a producer. */
export const BATCHES_IN_FLIGHT_MAX = BATCHES_REMEMBERED;

const SOON = Promise.resolve();

/** Never raised: a new producer id comes with every open. */
const PRODUCER_EPOCH = 0;

export interface AccumulatorOptions {
  readonly topic: string;
  readonly partition: number;
  readonly log: Pick<PartitionLog, "append">;
  readonly workers: WorkerPool;
  /** Where large batches are built. */
  readonly pool: BufferPool;
  readonly producerId: number;
  readonly compression: CompressionCodec;
  /** `undefined`: the codec's default. */
  readonly compressionLevel?: number | undefined;
  /** A batch takes records of several appends up to this size; one append's own records may make it larger. */
  readonly batchBytes: number;
  /** No batch is larger. */
  readonly batchBytesMax: number;
}

/** Consecutive records of one append in one batch. Exactly one of the methods is called, once. */
export interface Part {
  readonly count: number;
  /** @param logAppendTime ms; where the log wrote its time over that of the records */
  onAppended(baseOffset: number, logAppendTime?: number): void;
  onFailed(error: unknown): void;
}

/** Who adds many records and hears once of each run of them that lies together in a batch. */
export interface PartSource {
  /** The part that was begun last. */
  readonly current: Part | undefined;
  /** A record is about to be added that begins another part. */
  beginPart(): Part;
  /** A record was added behind those of the current part. */
  extendPart(): void;
}

interface ProducerBatch {
  readonly builder: BatchBuilder;
  readonly parts: Part[];
}

/**
 * Records of one partition on their way into batches, and the batches on their way into the log.
 *
 * A batch goes out at the end of the turn of the event loop in which its first record came if nothing is with the log;
 * otherwise it grows until it is full or something comes back. So appends that nobody awaits one by one fill batches, and a lone append
 * does not wait.
 *
 * Sequences: batches are numbered as they go out. If one fails, those behind it are refused by the log (their sequence
 * leaves a gap) and fail with it; nothing goes out until all have come back, and then the numbers go on behind the last
 * batch that the log has. So no sequence is ever skipped.
 *
 * Source: apache/kafka clients/.../producer/internals/RecordAccumulator.java, TransactionManager.java
 */
export class PartitionAccumulator {
  readonly #options: AccumulatorOptions;
  /** A batch takes records of further appends up to this size. */
  readonly #fillBytes: number;
  /** Oldest first; all but the last are full. */
  #batches: ProducerBatch[] = [];
  #inFlightCount = 0;
  #isDrainScheduled = false;
  /** First failure since the last time nothing was in flight. */
  #failure: { readonly error: unknown } | undefined;
  #nextSequence = 0;
  /** Behind the last batch that the log acknowledged. */
  #acknowledgedSequence = 0;
  /** With a little memory, for the next batch: a lone append costs less than making one. */
  #spareBuilder: BatchBuilder | undefined;
  /** Resolves when the batch before has taken its place in the log's queue. */
  #handedOver: Promise<void> = Promise.resolve();

  constructor(options: AccumulatorOptions) {
    this.#options = options;
    this.#fillBytes = Math.min(options.batchBytes, options.batchBytesMax);
  }

  /** Adds one record, which is encoded before this returns. It must fit into a batch. @param part with a count of 1 */
  add(record: RecordInput, part: Part): void {
    const last = this.#batches.at(-1);
    if (last !== undefined && last.builder.append(record, this.#fillBytes)) last.parts.push(part);
    else this.#open([record], part);
  }

  /** Adds one record to the batch that is being filled, as `add`. @returns false when there is none, or it does not fit: then `open` one */
  join(record: RecordInput, source: PartSource): boolean {
    const last = this.#batches.at(-1);
    if (last === undefined || !last.builder.append(record, this.#fillBytes)) return false;
    joinParts(last.parts, source);
    return true;
  }

  /** As `join`, of a record with a value and nothing else. */
  joinValue(value: Uint8Array, timestamp: number, source: PartSource): boolean {
    const last = this.#batches.at(-1);
    if (last === undefined || !last.builder.appendValue(value, timestamp, this.#fillBytes)) return false;
    joinParts(last.parts, source);
    return true;
  }

  /** Adds one record that begins a batch, of which many more may come. It must fit into one. */
  open(record: RecordInput, source: PartSource): void {
    this.#open([record], source.beginPart(), this.#fillBytes);
  }

  /**
   * Adds records that stay in order and next to each other: into the batch being filled if all fit there, else into batches
   * of their own, as few as `batchBytesMax` allows. Each record must fit into a batch.
   * @param onAppended called for each run of them that shares a batch, in order
   */
  addMany(
    records: readonly RecordInput[],
    onAppended: (firstIndex: number, count: number, baseOffset: number, logAppendTime?: number) => void,
    onFailed: (error: unknown) => void,
  ): void {
    if (
      this.#joinLast(records, {
        count: records.length,
        onAppended: (base, logAppendTime) => onAppended(0, records.length, base, logAppendTime),
        onFailed,
      })
    )
      return;
    let from = 0;
    while (from < records.length) {
      const count = longestBatch(records, from, this.#options.batchBytesMax);
      const firstIndex = from;
      const part: Part = {
        count,
        onAppended: (base, logAppendTime) => onAppended(firstIndex, count, base, logAppendTime),
        onFailed,
      };
      this.#open(records.slice(from, from + count), part);
      from += count;
    }
  }

  #joinLast(records: readonly RecordInput[], part: Part): boolean {
    const last = this.#batches.at(-1);
    if (last === undefined) return false;
    const { builder } = last;
    let sizeBytes = builder.sizeInBytes;
    let delta = builder.recordsCount;
    for (const record of records) {
      sizeBytes += encodedRecordBytes(record, builder.baseTimestamp, delta);
      if (sizeBytes > this.#fillBytes) return false;
      delta += 1;
    }
    this.#write(records, builder);
    last.parts.push(part);
    return true;
  }

  #open(records: readonly RecordInput[], part: Part, expectedBytes?: number): void {
    const { pool } = this.#options;
    const spare = expectedBytes === undefined ? this.#spareBuilder : undefined;
    if (spare !== undefined) this.#spareBuilder = undefined;
    const builder = spare ?? new BatchBuilder(expectedBytes === undefined ? { pool } : { pool, expectedBytes });
    this.#write(records, builder);
    this.#batches.push({ builder, parts: [part] });
    this.#drainSoon();
  }

  #write(records: readonly RecordInput[], builder: BatchBuilder): void {
    for (const record of records) {
      if (!builder.append(record, this.#options.batchBytesMax))
        fail("records fit into the batch that they were counted for", { sizeInBytes: builder.sizeInBytes });
    }
  }

  /** Callers of the same turn share the batch. */
  #drainSoon(): void {
    if (this.#isDrainScheduled) return;
    this.#isDrainScheduled = true;
    void SOON.then(this.#drainScheduled);
  }

  readonly #drainScheduled = (): void => {
    this.#isDrainScheduled = false;
    this.#drain();
  };

  #drain(): void {
    while (this.#failure === undefined && this.#inFlightCount < BATCHES_IN_FLIGHT_MAX) {
      const [batch] = this.#batches;
      if (batch === undefined) return;
      const isFull = this.#batches.length > 1 || batch.builder.sizeInBytes >= this.#options.batchBytes;
      if (!isFull && this.#inFlightCount > 0) return;
      this.#batches.shift();
      void this.#send(batch);
    }
  }

  /** Never rejects: what goes wrong is told to the batch's appends. */
  async #send(batch: ProducerBatch): Promise<void> {
    const baseSequence = this.#nextSequence;
    const endSequence = incrementSequence(baseSequence, batch.builder.recordsCount);
    this.#nextSequence = endSequence;
    this.#inFlightCount += 1;
    let result: AppendResult;
    try {
      result = refuseDuplicate(await this.#append(batch, baseSequence), this.#options);
    } catch (error) {
      this.#failure ??= { error };
      const told = isSequenceGap(error) ? this.#failure.error : error;
      for (const part of batch.parts) part.onFailed(told);
      this.#afterReturn();
      return;
    }
    this.#acknowledgedSequence = endSequence;
    let partBaseOffset: number = result.baseOffset;
    for (const part of batch.parts) {
      part.onAppended(partBaseOffset, result.logAppendTime);
      partBaseOffset += part.count;
    }
    this.#afterReturn();
  }

  #afterReturn(): void {
    this.#inFlightCount -= 1;
    if (this.#failure !== undefined && this.#inFlightCount === 0) {
      this.#failure = undefined;
      this.#nextSequence = this.#acknowledgedSequence;
    }
    this.#drain();
  }

  /** Without compression the batch takes its place in the log's queue before this returns to its caller. */
  #append({ builder }: ProducerBatch, baseSequence: number): Promise<AppendResult> {
    const { log, producerId, compression } = this.#options;
    const encoded = builder.finish({ producerId, producerEpoch: PRODUCER_EPOCH, baseSequence });
    if (compression !== "none") return this.#appendCompressed(builder, encoded, compression);
    const appended = log.append(encoded, { origin: "local" });
    this.#release(builder); // The log has copied it.
    return appended;
  }

  #release(builder: BatchBuilder): void {
    if (builder.release()) this.#spareBuilder = builder;
  }

  async #appendCompressed(builder: BatchBuilder, encoded: Uint8Array, codec: CodecName): Promise<AppendResult> {
    const previousHandedOver = this.#handedOver;
    let handedOver: () => void = () => undefined;
    this.#handedOver = new Promise((resolve) => {
      handedOver = resolve;
    });
    let appended: Promise<AppendResult>;
    try {
      const compressed = await this.#compress(encoded, codec);
      await previousHandedOver;
      appended = this.#options.log.append(compressed, { origin: "local" });
      this.#release(builder);
    } finally {
      handedOver();
    }
    return appended;
  }

  /** The batch compressed, or as it is when that is smaller or the pool fails: compression is a saving, not a promise. */
  async #compress(batch: Uint8Array, codec: CodecName): Promise<Uint8Array> {
    const scan = scanBatch(batch, 0);
    if (scan.type !== "batch") return fail("our own batch can be read", { type: scan.type });
    const { workers, compressionLevel } = this.#options;
    try {
      return await compressBatch(workers, batch, scan.header, codec, compressionLevel);
    } catch (error) {
      if (!(error instanceof WorkerError)) throw error;
      return batch;
    }
  }
}

/** The record of the source that was just added belongs to its current part, or begins one. */
function joinParts(parts: Part[], source: PartSource): void {
  if (parts[parts.length - 1] === source.current) source.extendPart();
  else parts.push(source.beginPart());
}

/** Size of a batch with this one record. */
export function singleBatchBytes(record: RecordInput): number {
  return RECORD_BATCH_OVERHEAD + encodedRecordBytes(record, record.timestamp, 0);
}

/** How many of `records` from index `from` fit into one batch; at least one. */
function longestBatch(records: readonly RecordInput[], from: number, limitBytes: number): number {
  const baseTimestamp = records[from]?.timestamp ?? fail("a batch has at least one record", { from });
  let sizeBytes = RECORD_BATCH_OVERHEAD;
  let count = 0;
  for (let at = from; at < records.length; at += 1) {
    const record = records[at];
    if (record === undefined) break;
    sizeBytes += encodedRecordBytes(record, baseTimestamp, count);
    if (count > 0 && sizeBytes > limitBytes) break;
    count += 1;
  }
  return count;
}

/** A batch sent for the first time is no duplicate. If the log takes it for one, it was not written, and that must not pass for an ack. */
function refuseDuplicate(result: AppendResult, { topic, partition, producerId }: AccumulatorOptions): AppendResult {
  if (!result.duplicate) return result;
  const message = `${topic}-${partition}: producer id ${producerId} is used by somebody else; reopen the log for a new one`;
  throw new TidemarkError("DUPLICATE_SEQUENCE_NUMBER", message, { topic, partition });
}

function isSequenceGap(error: unknown): boolean {
  return error instanceof LogError && error.code === "OUT_OF_ORDER_SEQUENCE_NUMBER";
}
