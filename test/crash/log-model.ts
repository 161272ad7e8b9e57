import { decodeUtf8, encodeUtf8 } from "@tidemark/base";
import {
  crc32c,
  decodeRecords,
  encodeBatch,
  encodeEndTransactionMarker,
  recordsSection,
  scanBatch,
  stampBatch,
} from "@tidemark/wire";

/** All batches outside transactions come from one idempotent producer, so that a log that loses count of it refuses the next. */
export const PRODUCER_ID = 7;

export type TransactionEnd = "commit" | "abort";

/** A batch as it must lie in the log: stamped with offsets and leader epoch. */
export interface ModelBatch {
  readonly baseOffset: number;
  readonly lastOffset: number;
  readonly epoch: number;
  readonly bytes: Uint8Array;
  readonly producerId: number;
  readonly isTransactional: boolean;
  /** A coordinator's marker ends its producer's transaction so. */
  readonly marker: TransactionEnd | undefined;
  /** Of the batch that its producer sends after this one; of a marker nothing follows. */
  readonly nextSequence: number;
}

/** As `.txnindex` tells it. */
export interface ModelAborted {
  readonly producerId: number;
  readonly firstOffset: number;
  readonly lastOffset: number;
  readonly lastStableOffset: number;
}

/** What the next batch is made of. */
interface BatchSpec {
  readonly serial: number;
  readonly recordCount: number;
  readonly epoch: number;
  readonly valueBytes?: number | undefined;
  /** Default: none. */
  readonly key?: string | undefined;
  /** Of a transaction; default: the idempotent producer, outside of one. */
  readonly transactionOf?: number | undefined;
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
    this.#remembered = lastOf(batches, PRODUCER_ID) === undefined ? remembered : undefined;
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
    return lastOf(this.batches, PRODUCER_ID)?.nextSequence ?? this.#remembered;
  }

  /** Every transaction that was aborted, in the order of the markers, and where the oldest open one begins. */
  get transactions(): { readonly aborted: readonly ModelAborted[]; readonly firstOpenOffset: number | undefined } {
    const aborted: ModelAborted[] = [];
    const open = new Map<number, number>();
    const firstOpen = (): number => Math.min(...open.values());
    for (const { producerId, isTransactional, marker, baseOffset, lastOffset } of this.batches) {
      if (marker === undefined) {
        if (isTransactional && !open.has(producerId)) open.set(producerId, baseOffset);
        continue;
      }
      const firstOffset = open.get(producerId);
      open.delete(producerId);
      if (marker === "abort" && firstOffset !== undefined)
        aborted.push({
          producerId,
          firstOffset,
          lastOffset,
          lastStableOffset: open.size > 0 ? firstOpen() : lastOffset + 1,
        });
    }
    return { aborted, firstOpenOffset: open.size > 0 ? firstOpen() : undefined };
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
  withBatchAt(baseOffset: number, { recordCount, transactionOf, ...spec }: BatchSpec): LogModel {
    const producerId = transactionOf ?? PRODUCER_ID;
    const isTransactional = transactionOf !== undefined;
    const baseSequence = (isTransactional ? lastOf(this.batches, producerId)?.nextSequence : this.nextSequence) ?? 0;
    const bytes = batchOf(spec.serial, recordCount, { ...spec, baseSequence, producerId, isTransactional }).slice();
    const nextSequence = baseSequence + recordCount;
    return this.#with(bytes, { baseOffset, recordCount, epoch: spec.epoch, producerId, isTransactional, nextSequence });
  }

  /** A coordinator's marker at the end. */
  withMarker(end: TransactionEnd, producerId: number, epoch: number, timestamp: number): LogModel {
    const marker = { type: end, producerId, producerEpoch: 0, coordinatorEpoch: 0, timestamp };
    const bytes = encodeEndTransactionMarker(marker).slice();
    const batch = { baseOffset: this.endOffset, recordCount: 1, epoch, producerId, isTransactional: true };
    return this.#with(bytes, { ...batch, marker: end, nextSequence: 0 });
  }

  #with(
    bytes: Uint8Array,
    {
      recordCount,
      marker,
      ...batch
    }: Omit<ModelBatch, "bytes" | "lastOffset" | "marker"> & {
      readonly recordCount: number;
      readonly marker?: TransactionEnd;
    },
  ): LogModel {
    const { baseOffset, epoch } = batch;
    stampBatch(bytes, 0, baseOffset, epoch);
    const lastOffset = baseOffset + recordCount - 1;
    const batches = [...this.batches, { ...batch, marker, bytes, lastOffset }];
    const before = new LogModel(this.startOffset, baseOffset, this.batches, this.epochs);
    return new LogModel(this.startOffset, lastOffset + 1, batches, before.withEpoch(epoch).epochs, this.#remembered);
  }

  /**
   * As one pass of compaction leaves it whose files below `swappedBelow` have taken the place of others. Batches of one record each: of
   * those below `uncleanableOffset` each stays that is the last of its key.
   */
  compacted(uncleanableOffset: number, swappedBelow: number): LogModel {
    const lastOffsets = new Map<string, number>();
    const keys = new Map<ModelBatch, string>();
    for (const batch of this.batches) {
      if (batch.baseOffset >= uncleanableOffset) break;
      const key = keyOf(batch);
      keys.set(batch, key);
      lastOffsets.set(key, batch.baseOffset);
    }
    const batches = this.batches.filter(
      (batch) => batch.baseOffset >= swappedBelow || lastOffsets.get(keys.get(batch) ?? "") === batch.baseOffset,
    );
    return new LogModel(this.startOffset, this.endOffset, batches, this.epochs, this.#remembered);
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
  {
    baseSequence = 0,
    valueBytes = 12,
    key,
    producerId = PRODUCER_ID,
    isTransactional = false,
  }: {
    readonly baseSequence?: number;
    readonly valueBytes?: number | undefined;
    readonly key?: string | undefined;
    readonly producerId?: number;
    readonly isTransactional?: boolean;
  } = {},
): Uint8Array {
  const value = (at: number): string => `${serial}.${at}`.padEnd(valueBytes, "-");
  return encodeBatch(
    Array.from({ length: recordCount }, (_, at) => ({
      key: key === undefined ? null : encodeUtf8(key),
      value: encodeUtf8(value(at)),
      // Up and down from batch to batch.
      timestamp: 1_700_000_000_000 + ((serial * 7) % 5),
    })),
    { producerId, producerEpoch: 0, baseSequence, transactional: isTransactional },
  );
}

/** The last batch with a sequence of this producer. */
function lastOf(batches: readonly ModelBatch[], producerId: number): ModelBatch | undefined {
  return batches.findLast((batch) => batch.producerId === producerId && batch.marker === undefined);
}

function keyOf({ bytes, baseOffset }: ModelBatch): string {
  const scan = scanBatch(bytes, 0);
  const [record, ...others] =
    scan.type === "batch" ? decodeRecords(scan.header, recordsSection(bytes, scan.header)) : [];
  if (record === undefined || record.key === null || others.length > 0)
    throw new Error(`batch ${baseOffset} is not one record with a key`);
  return decodeUtf8(record.key);
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
