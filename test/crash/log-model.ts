import { encodeUtf8 } from "@tidemark/base";
import { crc32c, encodeBatch, stampBatch } from "@tidemark/wire";

/** All batches come from one idempotent producer, so that a log that loses count of it refuses the next. */
export const PRODUCER_ID = 7;

/** A batch as it must lie in the log: stamped with offsets and leader epoch. */
export interface ModelBatch {
  readonly baseOffset: number;
  readonly lastOffset: number;
  readonly epoch: number;
  readonly bytes: Uint8Array;
  /** Of the batch that its producer sends after this one. */
  readonly nextSequence: number;
}

export interface ModelEpoch {
  readonly epoch: number;
  readonly startOffset: number;
}

/** What a partition log holds, by the simplest means there are. Immutable. */
export class LogModel {
  readonly startOffset: number;
  /** Next offset (LEO). May lie above the last batch after a truncation to the middle of one. */
  readonly endOffset: number;
  readonly batches: readonly ModelBatch[];
  readonly epochs: readonly ModelEpoch[];
  /** Where no batch is left, a snapshot may still know the producer. */
  readonly #remembered: number | undefined;
  #bytes: Uint8Array | undefined;
  #print: string | undefined;

  /** @param remembered the producer's next sequence, as a log without batches told it */
  constructor(
    startOffset: number,
    endOffset: number,
    batches: readonly ModelBatch[],
    epochs: readonly ModelEpoch[],
    remembered?: number,
  ) {
    this.#remembered = batches.length === 0 ? remembered : undefined;
    this.startOffset = startOffset;
    this.endOffset = endOffset;
    this.batches = batches;
    this.epochs = epochs;
  }

  static empty(): LogModel {
    return new LogModel(0, 0, [], []);
  }

  /** End of the last batch; the log start when there is none. */
  get batchesEndOffset(): number {
    const last = this.batches.at(-1);
    return last === undefined ? this.startOffset : last.lastOffset + 1;
  }

  get latestEpoch(): number {
    return this.epochs.at(-1)?.epoch ?? -1;
  }

  /** All batches that hold a record at or above the log start, one behind the other: those below lie in the files for as long as they like. */
  get bytes(): Uint8Array {
    this.#bytes ??= concat(this.batchesFrom(this.startOffset).map((batch) => batch.bytes));
    return this.#bytes;
  }

  /** Those that hold a record at or above `offset`. */
  batchesFrom(offset: number): readonly ModelBatch[] {
    return this.batches.filter((batch) => batch.lastOffset >= offset);
  }

  /** What the producer's next batch must carry; `undefined` in a log that does not know it. */
  get nextSequence(): number | undefined {
    return this.batches.at(-1)?.nextSequence ?? this.#remembered;
  }

  /** Equal for equal logs. */
  get print(): string {
    const epochs = this.epochs.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join();
    this.#print ??= `${this.startOffset} ${this.endOffset} ${epochs} ${this.bytes.length} ${crc32c(this.bytes)}`;
    return this.#print;
  }

  withEpoch(epoch: number): LogModel {
    if (epoch === this.latestEpoch) return this;
    const startOffset = this.endOffset;
    const kept = this.epochs.filter((entry) => entry.epoch < epoch && entry.startOffset < startOffset);
    const epochs = [...kept, { epoch, startOffset }];
    return new LogModel(this.startOffset, this.endOffset, this.batches, epochs, this.#remembered);
  }

  /** A batch of so many records at the end, in its producer's sequence; an epoch whose entry a truncation took begins anew with it. */
  withBatch(serial: number, recordCount: number, epoch: number, valueBytes?: number): LogModel {
    return this.withBatchAt(this.endOffset, { serial, recordCount, epoch, valueBytes });
  }

  /** The same at a higher offset: a leader's compacted log leaves offsets out. */
  withBatchAt(
    baseOffset: number,
    {
      serial,
      recordCount,
      epoch,
      valueBytes,
    }: { serial: number; recordCount: number; epoch: number; valueBytes?: number | undefined },
  ): LogModel {
    const baseSequence = this.nextSequence ?? 0;
    const batch = batchOf(serial, recordCount, { baseSequence, valueBytes });
    const bytes = batch.slice();
    stampBatch(bytes, 0, baseOffset, epoch);
    const lastOffset = baseOffset + recordCount - 1;
    const nextSequence = baseSequence + recordCount;
    const batches = [...this.batches, { baseOffset, lastOffset, epoch, bytes, nextSequence }];
    const { epochs } = new LogModel(this.startOffset, baseOffset, this.batches, this.epochs).withEpoch(epoch);
    return new LogModel(this.startOffset, lastOffset + 1, batches, epochs);
  }

  truncatedTo(offset: number): LogModel {
    if (offset >= this.endOffset) {
      const { startOffset, endOffset } = this;
      const epochs = this.epochs.filter((entry) => entry.startOffset < endOffset);
      return new LogModel(startOffset, endOffset, this.batches, epochs, this.#remembered);
    }
    const batches = this.batches.filter((batch) => batch.lastOffset < offset);
    const epochs = this.epochs.filter((entry) => entry.startOffset < offset);
    return new LogModel(Math.min(this.startOffset, offset), offset, batches, epochs);
  }

  /** Records below are deleted; the batches that hold them may lie in the files for long. */
  startingAt(offset: number): LogModel {
    const covering = this.epochs.findLast((entry) => entry.startOffset <= offset);
    const above = this.epochs.filter((entry) => entry.startOffset > offset);
    const epochs = covering === undefined ? above : [{ epoch: covering.epoch, startOffset: offset }, ...above];
    return new LogModel(offset, this.endOffset, this.batches, epochs, this.#remembered);
  }

  emptiedAt(offset: number): LogModel {
    return new LogModel(offset, offset, [], []);
  }
}

/** A batch whose records say which batch of the whole script they belong to: no two batches are alike. */
export function batchOf(
  serial: number,
  recordCount: number,
  { baseSequence = 0, valueBytes = 12 }: { baseSequence?: number; valueBytes?: number | undefined } = {},
): Uint8Array {
  const value = (at: number): string => `${serial}.${at}`.padEnd(valueBytes, "-");
  return encodeBatch(
    Array.from({ length: recordCount }, (_, at) => ({
      key: null,
      value: encodeUtf8(value(at)),
      // Up and down from batch to batch.
      timestamp: 1_700_000_000_000 + ((serial * 7) % 5),
    })),
    { producerId: PRODUCER_ID, producerEpoch: 0, baseSequence },
  );
}

export function concat(parts: readonly Uint8Array[]): Uint8Array {
  const result = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    result.set(part, at);
    at += part.length;
  }
  return result;
}
