import { fail } from "@tidemark/base";
import type { BufferPool } from "@tidemark/base";
import { WireError } from "./error.ts";
import { RECORD_BATCH_OVERHEAD } from "./record-batch.ts";
import { BATCH_BYTES_MAX, completeBatch, recordBodyBytes, writeRecordBody } from "./record.ts";
import type { BatchOptions, RecordInput } from "./record.ts";
import { varintBytes, writeVarint } from "./varint.ts";

/** Most batches of a lone append fit; each growth makes the memory four times as large. */
const BYTES_INITIAL = 512;
const GROWTH = 4;
/** Memory that a builder keeps for its next batch. */
const BYTES_KEPT_MAX = 8 * 1024;

/** Where a batch is built. */
export interface BuilderMemory {
  /** Large memory comes from here, and goes back by `release`. Default: it is the builder's own. */
  readonly pool?: BufferPool;
  /** About how large the batch will be. Default: small. */
  readonly expectedBytes?: number;
}

/**
 * A batch that is encoded record by record, so that no record has to be kept until the batch is complete: for many small ones
 * in flight, keeping them costs the garbage collector more than encoding them costs.
 *
 * Gives the bytes of `encodeBatch`. Timestamps are the caller's to check: integers in -1 .. 2^53 - 2.
 * Source: apache/kafka MemoryRecordsBuilder.java
 */
export class BatchBuilder {
  readonly #pool: BufferPool | undefined;
  #bytes: Uint8Array;
  /** Of the batch so far, header included. The header is written at the end. */
  #sizeInBytes = RECORD_BATCH_OVERHEAD;
  #recordsCount = 0;
  #baseTimestamp = -1;
  #maxTimestamp = -1;

  constructor({ pool, expectedBytes = BYTES_INITIAL }: BuilderMemory = {}) {
    this.#pool = pool;
    this.#bytes = this.#take(Math.max(expectedBytes, BYTES_INITIAL));
  }

  get sizeInBytes(): number {
    return this.#sizeInBytes;
  }

  get recordsCount(): number {
    return this.#recordsCount;
  }

  /** Timestamp of the first record, -1 while there is none. */
  get baseTimestamp(): number {
    return this.#baseTimestamp;
  }

  /**
   * Encodes one more record behind the others, unless the batch would then be larger than `limitBytes`. The first one is always
   * taken. Nothing of the record is kept.
   * @returns whether it was taken
   * @throws WireError MESSAGE_TOO_LARGE past 2 GiB
   */
  append(record: RecordInput, limitBytes: number): boolean {
    const { timestamp, key, value, headers } = record;
    const delta = this.#recordsCount;
    const baseTimestamp = delta === 0 ? timestamp : this.#baseTimestamp;
    const timestampDelta = timestamp - baseTimestamp;
    if (headers === undefined && key === null && value !== null && timestampDelta === timestampDelta << 0) {
      return this.#appendPlain(value, timestamp, timestampDelta, limitBytes);
    }
    const bodyBytes = recordBodyBytes(record, timestampDelta, delta);
    const sizeInBytes = this.#sizeInBytes + varintBytes(bodyBytes) + bodyBytes;
    if (delta > 0 && sizeInBytes > limitBytes) return false;
    if (sizeInBytes > BATCH_BYTES_MAX) throw new WireError("MESSAGE_TOO_LARGE", "batch over 2 GiB", { sizeInBytes });
    if (sizeInBytes > this.#bytes.length) this.#grow(sizeInBytes, limitBytes);
    const bytes = this.#bytes;
    const position = writeVarint(bytes, this.#sizeInBytes, bodyBytes);
    const end = writeRecordBody(bytes, position, record, timestampDelta, delta);
    if (end !== sizeInBytes) fail("a record is as large as it was sized", { end, sizeInBytes });
    this.#sizeInBytes = sizeInBytes;
    this.#recordsCount = delta + 1;
    this.#baseTimestamp = baseTimestamp;
    this.#maxTimestamp = delta === 0 ? timestamp : Math.max(this.#maxTimestamp, timestamp);
    return true;
  }

  /** As `append`, of a record with a value and nothing else. */
  appendValue(value: Uint8Array, timestamp: number, limitBytes: number): boolean {
    const timestampDelta = this.#recordsCount === 0 ? 0 : timestamp - this.#baseTimestamp;
    if (timestampDelta === timestampDelta << 0) return this.#appendPlain(value, timestamp, timestampDelta, limitBytes);
    return this.append({ timestamp, key: null, value }, limitBytes);
  }

  #appendPlain(value: Uint8Array, timestamp: number, timestampDelta: number, limitBytes: number): boolean {
    const delta = this.#recordsCount;
    const valueBytes = value.length;
    const bodyBytes = 3 + varintBytes(timestampDelta) + varintBytes(delta) + varintBytes(valueBytes) + valueBytes;
    const sizeInBytes = this.#sizeInBytes + varintBytes(bodyBytes) + bodyBytes;
    if (delta > 0 && sizeInBytes > limitBytes) return false;
    if (sizeInBytes > BATCH_BYTES_MAX) throw new WireError("MESSAGE_TOO_LARGE", "batch over 2 GiB", { sizeInBytes });
    if (sizeInBytes > this.#bytes.length) this.#grow(sizeInBytes, limitBytes);
    const bytes = this.#bytes;
    let position = writeVarint(bytes, this.#sizeInBytes, bodyBytes);
    bytes[position] = 0;
    position = writeVarint(bytes, position + 1, timestampDelta);
    position = writeVarint(bytes, position, delta);
    bytes[position] = 1;
    position = writeVarint(bytes, position + 1, valueBytes);
    bytes.set(value, position);
    bytes[position + valueBytes] = 0;
    this.#sizeInBytes = sizeInBytes;
    this.#recordsCount = delta + 1;
    if (delta === 0) {
      this.#baseTimestamp = timestamp;
      this.#maxTimestamp = timestamp;
    } else if (timestamp > this.#maxTimestamp) this.#maxTimestamp = timestamp;
    return true;
  }

  /**
   * The batch, with header and CRC: a view on the builder's memory, valid until the next `append`.
   * @throws InvariantError without records, or with producer fields out of range
   */
  finish(options: BatchOptions = {}): Uint8Array {
    if (this.#recordsCount === 0) fail("a batch has at least one record");
    completeBatch(this.#bytes, this.#sizeInBytes, options, {
      recordsCount: this.#recordsCount,
      baseTimestamp: this.#baseTimestamp,
      maxTimestamp: this.#maxTimestamp,
    });
    return this.#bytes.subarray(0, this.#sizeInBytes);
  }

  /**
   * Gives the memory back: nobody may look at what `finish` returned any more.
   * @returns whether the builder is empty now, with a little memory of its own, and may begin another batch; else it is over
   */
  release(): boolean {
    const isSmall = this.#bytes.length <= BYTES_KEPT_MAX;
    if (!isSmall) {
      this.#pool?.giveBack(this.#bytes);
      this.#bytes = NO_BYTES;
    }
    this.#recordsCount = 0;
    this.#sizeInBytes = RECORD_BATCH_OVERHEAD;
    return isSmall;
  }

  #grow(neededBytes: number, limitBytes: number): void {
    const wantedBytes = Math.min(this.#bytes.length * GROWTH, limitBytes);
    const larger = this.#take(Math.max(neededBytes, wantedBytes));
    larger.set(this.#bytes.subarray(0, this.#sizeInBytes));
    this.#pool?.giveBack(this.#bytes);
    this.#bytes = larger;
  }

  #take(bytes: number): Uint8Array {
    return this.#pool?.take(bytes) ?? new Uint8Array(bytes);
  }
}

const NO_BYTES = new Uint8Array(0);
