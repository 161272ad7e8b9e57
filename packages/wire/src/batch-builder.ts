import { fail } from "@tidemark/base";
import { WireError } from "./error.ts";
import { RECORD_BATCH_OVERHEAD } from "./record-batch.ts";
import { BATCH_BYTES_MAX, completeBatch, recordBodyBytes, writeRecordBody } from "./record.ts";
import type { BatchOptions, RecordInput } from "./record.ts";
import { varintBytes, writeVarint } from "./varint.ts";

/** Most batches of a lone append fit; each growth makes the memory four times as large. */
const BYTES_INITIAL = 512;
const GROWTH = 4;

/**
 * A batch that is encoded record by record, so that no record has to be kept until the batch is complete: for many small ones
 * in flight, keeping them costs the garbage collector more than encoding them costs.
 *
 * Gives the bytes of `encodeBatch`. Timestamps are the caller's to check: integers in -1 .. 2^53 - 2.
 * Source: apache/kafka MemoryRecordsBuilder.java
 */
export class BatchBuilder {
  #bytes = new Uint8Array(BYTES_INITIAL);
  /** Of the batch so far, header included. The header is written at the end. */
  #sizeInBytes = RECORD_BATCH_OVERHEAD;
  #recordsCount = 0;
  #baseTimestamp = -1;
  #maxTimestamp = -1;

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
    const { timestamp } = record;
    const delta = this.#recordsCount;
    const baseTimestamp = delta === 0 ? timestamp : this.#baseTimestamp;
    const bodyBytes = recordBodyBytes(record, timestamp - baseTimestamp, delta);
    const sizeInBytes = this.#sizeInBytes + varintBytes(bodyBytes) + bodyBytes;
    if (delta > 0 && sizeInBytes > limitBytes) return false;
    if (sizeInBytes > BATCH_BYTES_MAX) throw new WireError("MESSAGE_TOO_LARGE", "batch over 2 GiB", { sizeInBytes });
    if (sizeInBytes > this.#bytes.length) this.#grow(sizeInBytes, limitBytes);
    const position = writeVarint(this.#bytes, this.#sizeInBytes, bodyBytes);
    const end = writeRecordBody(this.#bytes, position, record, timestamp - baseTimestamp, delta);
    if (end !== sizeInBytes) fail("a record is as large as it was sized", { end, sizeInBytes });
    this.#sizeInBytes = sizeInBytes;
    this.#recordsCount = delta + 1;
    this.#baseTimestamp = baseTimestamp;
    this.#maxTimestamp = delta === 0 ? timestamp : Math.max(this.#maxTimestamp, timestamp);
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

  #grow(neededBytes: number, limitBytes: number): void {
    const wantedBytes = Math.min(this.#bytes.length * GROWTH, limitBytes);
    const larger = new Uint8Array(Math.max(neededBytes, wantedBytes));
    larger.set(this.#bytes.subarray(0, this.#sizeInBytes));
    this.#bytes = larger;
  }
}
