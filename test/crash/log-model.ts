import { encodeUtf8 } from "@tidemark/base";
import { encodeBatch, stampBatch } from "@tidemark/wire";

/** A batch as it must lie in the log: stamped with offsets and leader epoch. */
export interface ModelBatch {
  readonly baseOffset: number;
  readonly lastOffset: number;
  readonly epoch: number;
  readonly bytes: Uint8Array;
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
  #bytes: Uint8Array | undefined;

  constructor(startOffset: number, endOffset: number, batches: readonly ModelBatch[], epochs: readonly ModelEpoch[]) {
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

  /** All batches, one behind the other. */
  get bytes(): Uint8Array {
    this.#bytes ??= concat(this.batches.map((batch) => batch.bytes));
    return this.#bytes;
  }

  withEpoch(epoch: number): LogModel {
    if (epoch === this.latestEpoch) return this;
    const startOffset = this.endOffset;
    const kept = this.epochs.filter((entry) => entry.epoch < epoch && entry.startOffset < startOffset);
    return new LogModel(this.startOffset, this.endOffset, this.batches, [...kept, { epoch, startOffset }]);
  }

  /** Stamps the batch; an epoch whose entry a truncation took begins anew with it. */
  withBatch(batch: Uint8Array, recordCount: number, epoch: number): LogModel {
    const baseOffset = this.endOffset;
    const bytes = batch.slice();
    stampBatch(bytes, 0, baseOffset, epoch);
    const lastOffset = baseOffset + recordCount - 1;
    const batches = [...this.batches, { baseOffset, lastOffset, epoch, bytes }];
    return new LogModel(this.startOffset, lastOffset + 1, batches, this.withEpoch(epoch).epochs);
  }

  truncatedTo(offset: number): LogModel {
    if (offset >= this.endOffset) return this;
    const batches = this.batches.filter((batch) => batch.lastOffset < offset);
    const epochs = this.epochs.filter((entry) => entry.startOffset < offset);
    return new LogModel(Math.min(this.startOffset, offset), offset, batches, epochs);
  }

  emptiedAt(offset: number): LogModel {
    return new LogModel(offset, offset, [], []);
  }
}

/** A batch whose records say which batch of the whole script they belong to: no two batches are alike. */
export function batchOf(serial: number, recordCount: number, valueBytes = 12): Uint8Array {
  const value = (at: number): string => `${serial}.${at}`.padEnd(valueBytes, "-");
  return encodeBatch(
    Array.from({ length: recordCount }, (_, at) => ({
      key: null,
      value: encodeUtf8(value(at)),
      timestamp: 1_700_000_000_000 + serial,
    })),
    {},
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
