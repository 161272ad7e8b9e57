import { toOffset } from "@tidemark/base";
import type { Offset, WorkerPool } from "@tidemark/base";
import type { PartitionLog } from "@tidemark/log";
import { checkCrc, decodeRecords, decompressBatch, isControlBatch, scanBatch } from "@tidemark/wire";
import type { BatchHeader, RecordHeader } from "@tidemark/wire";
import { onAbort } from "./abort.ts";
import { TidemarkError, toTidemarkError } from "./error.ts";

/** Bytes read from the log at a time unless told otherwise. Kafka: max.partition.fetch.bytes. */
const FETCH_BYTES_DEFAULT = 1024 ** 2;

/** The first read of an iteration; each further one is `READ_GROWTH` times as large, up to the above. Who wants one record pays for few. */
const FIRST_READ_BYTES = 16 * 1024;
const READ_GROWTH = 4;

/** Period of a timer that does nothing but keep the process; the longest that Node takes. */
const KEEPING_TIMER_MS = 2 ** 31 - 1;

/** No batch may decompress to more: it is held in memory at once. */
const DECOMPRESSED_BYTES_MAX = 256 * 1024 ** 2;

export interface FetchOptions {
  readonly partition: number;
  /** Where to begin: an offset, `earliest` = log start, `latest` = where the log ends when `fetch` is called. Default `earliest`. */
  readonly from?: "earliest" | "latest" | number;
  /** Ends before this offset. Default: no end. */
  readonly to?: number;
  /** On abort the iteration rejects with `signal.reason`. */
  readonly signal?: AbortSignal;
  /** Bytes read from the log at a time, at most; one batch is always read whole. Default 1 MiB. */
  readonly maxBytes?: number;
  /** At the end of the log: `true` waits for new records, `false` ends the iteration. Default `true`. */
  readonly follow?: boolean;
}

/**
 * A record that was read. `key`, `value` and header values are views on the slice it was read with (`maxBytes`, and more for a
 * large batch): they stay valid, and one that is kept keeps its slice in memory, at least 64 KiB; copy it if it is to be kept for long.
 */
export interface FetchedRecord {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  /** Unix time in ms; -1 = none. */
  readonly timestamp: number;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly RecordHeader[];
}

export interface FetchSource {
  readonly topic: string;
  readonly partition: number;
  readonly log: PartitionLog;
  readonly workers: WorkerPool;
  /** Why the log may not be used any more, if so. */
  readonly refusal: () => TidemarkError | undefined;
}

/** Decoded records handed over at a time, at least: a batch is not cut. More would only delay the first of them. */
const RECORDS_AT_A_TIME = 1024;

/**
 * Records from `fromOffset` on, in order. One read of the log a slice and one `await` of the disk for thousands of records.
 *
 * Every batch's CRC is checked. Control batches are passed over. It is no async generator since a step of one costs several
 * times what decoding a small record does, and since `return` has to get through while `next` waits for new records.
 */
export class RecordIterator implements AsyncIterableIterator<FetchedRecord> {
  readonly #source: FetchSource;
  readonly #options: Omit<FetchOptions, "partition" | "from">;
  /** Where the iteration ends: given by the caller, or where the log ended when it began. */
  readonly #endOffset: number;
  /** Next offset to be decoded. */
  #offset: number;
  #records: FetchedRecord[] = [];
  /** Index of the next record to be handed out. */
  #next = 0;
  /** What is left of the slice that was read. */
  #slice: Uint8Array = new Uint8Array(0);
  #sliceAtBytes = 0;
  #readBytes = FIRST_READ_BYTES;
  #isDone = false;
  #filling: Promise<void> | undefined;
  #stopWaiting: (() => void) | undefined;

  constructor(source: FetchSource, fromOffset: Offset, options: Omit<FetchOptions, "partition" | "from">) {
    this.#source = source;
    this.#options = options;
    this.#offset = fromOffset;
    const logEnd = (options.follow ?? true) ? Number.POSITIVE_INFINITY : source.log.visibleEndOffset;
    this.#endOffset = Math.min(options.to ?? Number.POSITIVE_INFINITY, logEnd);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<FetchedRecord, undefined>> {
    const record = this.#records[this.#next];
    if (record === undefined || this.#isDone || this.#options.signal?.aborted === true) return this.#nextAfterFill();
    this.#next += 1;
    return Promise.resolve({ done: false, value: record });
  }

  /** Ends the iteration, also one that waits for records. */
  return(): Promise<IteratorResult<FetchedRecord, undefined>> {
    this.#end();
    return Promise.resolve({ done: true, value: undefined });
  }

  #end(): void {
    this.#isDone = true;
    this.#records = [];
    this.#slice = new Uint8Array(0);
    this.#stopWaiting?.();
  }

  async #nextAfterFill(): Promise<IteratorResult<FetchedRecord, undefined>> {
    for (;;) {
      if (this.#isDone) return { done: true, value: undefined };
      try {
        this.#options.signal?.throwIfAborted();
        const record = this.#records[this.#next];
        if (record !== undefined) {
          this.#next += 1;
          return { done: false, value: record };
        }
        // Calls that overlap share one fill.
        this.#filling ??= this.#fill().finally(() => {
          this.#filling = undefined;
        });
        await this.#filling;
      } catch (error) {
        this.#end();
        const { topic, partition } = this.#source;
        throw toTidemarkError(error, { topic, partition, offset: this.#offset });
      }
    }
  }

  /** Gets at least one record ready, or finds the end. */
  async #fill(): Promise<void> {
    const { log, refusal } = this.#source;
    const { signal, maxBytes = FETCH_BYTES_DEFAULT } = this.#options;
    this.#records = [];
    this.#next = 0;
    while (this.#records.length === 0 && !this.#isDone) {
      signal?.throwIfAborted();
      // A log that closes wakes its waiters.
      const refused = refusal();
      if (refused !== undefined) throw refused;
      if (this.#offset >= this.#endOffset) return this.#end();
      if (this.#sliceAtBytes < this.#slice.length && (await this.#decodeSlice())) continue;
      const limitOffset = log.visibleEndOffset;
      if (this.#offset >= limitOffset) {
        await this.#waitForRecords(toOffset(this.#offset), signal);
        continue;
      }
      const fromOffset = toOffset(this.#offset);
      const readBytes = Math.min(this.#readBytes, maxBytes);
      this.#readBytes = readBytes * READ_GROWTH;
      this.#slice = (await log.read({ fromOffset, maxBytes: readBytes, limitOffset, minOneBatch: true })).bytes;
      this.#sliceAtBytes = 0;
      if (this.#slice.length === 0) throw corrupt(this.#source, this.#offset, "the log holds no batch before its end");
    }
  }

  /**
   * Decodes batches of the slice into `#records`. What cannot be decoded is thrown only when nothing lies before it: the records in front
   * of damage are handed over first.
   * @returns whether it got any further; else the rest is half a batch
   */
  async #decodeSlice(): Promise<boolean> {
    const startBytes = this.#sliceAtBytes;
    while (
      this.#sliceAtBytes < this.#slice.length &&
      this.#records.length < RECORDS_AT_A_TIME &&
      this.#offset < this.#endOffset
    ) {
      const scan = scanBatch(this.#slice, this.#sliceAtBytes);
      if (scan.type === "incomplete") break; // The slice was cut here; the next one begins with it.
      try {
        if (scan.type === "corrupt") throw corrupt(this.#source, this.#offset, scan.reason);
        for (const record of await this.#decodeBatch(scan.header)) this.#records.push(record);
      } catch (error) {
        if (this.#records.length > 0) return true;
        throw error;
      }
      this.#offset = Math.max(this.#offset, scan.header.lastOffset + 1);
      this.#sliceAtBytes += scan.header.sizeInBytes;
    }
    if (this.#sliceAtBytes > startBytes) return true;
    this.#slice = new Uint8Array(0);
    this.#sliceAtBytes = 0;
    return false;
  }

  /** The wanted records of a batch. @throws TidemarkError CORRUPT_MESSAGE; WireError; WorkerError */
  async #decodeBatch(header: BatchHeader): Promise<FetchedRecord[]> {
    const { topic, partition } = this.#source;
    if (header.lastOffset < this.#offset) return [];
    if (!checkCrc(this.#slice, header)) throw corrupt(this.#source, this.#offset, "the CRC does not match");
    if (isControlBatch(header)) return [];
    const records: FetchedRecord[] = [];
    const payload = await decompressBatch(this.#source.workers, this.#slice, header, DECOMPRESSED_BYTES_MAX);
    for (const { offset, timestamp, key, value, headers } of decodeRecords(header, payload, this.#offset)) {
      if (offset >= this.#endOffset) break;
      if (offset < this.#offset) continue;
      records.push({ topic, partition, offset, timestamp, key, value, headers });
    }
    return records;
  }

  /** Resolves when there may be records at `offset`, on abort, and when the iteration is ended. */
  async #waitForRecords(offset: Offset, signal: AbortSignal | undefined): Promise<void> {
    const wait = this.#source.log.waitForEndOffset(offset);
    const cancel = (): void => wait.cancel();
    this.#stopWaiting = cancel;
    const stopListening = signal === undefined ? undefined : onAbort(signal, cancel);
    // Nothing of the operating system is busy meanwhile: without this a program that only waits for records would end.
    const keepsProcess = setInterval(() => undefined, KEEPING_TIMER_MS);
    try {
      await wait.promise;
    } finally {
      clearInterval(keepsProcess);
      stopListening?.();
      this.#stopWaiting = undefined;
    }
  }
}

function corrupt({ topic, partition }: FetchSource, offset: number, reason: string): TidemarkError {
  return new TidemarkError("CORRUPT_MESSAGE", `${topic}-${partition}: batch at offset ${offset}: ${reason}`, {
    topic,
    partition,
    offset,
  });
}
