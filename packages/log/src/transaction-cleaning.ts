import { isTransactional } from "@tidemark/wire";
import type { BatchHeader, EndTransactionMarker } from "@tidemark/wire";
import type { AbortedTransaction } from "./transaction-index.ts";

/**
 * What a pass of compaction learns of transactions while it goes through the batches: whose data was aborted, and whose marker has none left.
 *
 * Source: apache/kafka storage/.../internals/log/CleanedTransactionMetadata.java
 */
export class TransactionCleaning {
  /** By first offset; those in front have begun. */
  readonly #aborted: readonly AbortedTransaction[];
  #next = 0;
  /** Producers whose open transaction will be aborted, and whether data of it was seen. */
  readonly #aborting = new Map<number, { readonly transaction: AbortedTransaction; hasData: boolean }>();
  /** Producers whose open transaction will be committed, and who have data in it. */
  readonly #committing = new Set<number>();

  /**
   * @param aborted of the whole log
   * @param fromOffset where the pass begins: markers below it are not met any more
   */
  constructor(aborted: readonly AbortedTransaction[], fromOffset: number) {
    this.#aborted = aborted
      .filter(({ lastOffset }) => lastOffset >= fromOffset)
      .sort((a, b) => a.firstOffset - b.firstOffset);
  }

  /** Takes a data batch. @returns whether its transaction was aborted */
  isAborted(header: BatchHeader): boolean {
    this.#begin(header.lastOffset);
    if (!isTransactional(header)) return false;
    const aborting = this.#aborting.get(header.producerId);
    if (aborting === undefined) {
      this.#committing.add(header.producerId);
      return false;
    }
    aborting.hasData = true;
    return true;
  }

  /**
   * Takes a control batch.
   * @param keep is told of the aborted transaction whose marker has to stay in the index
   * @returns whether nothing is left of what it ends: then it may go when its time has come
   */
  marker(
    header: BatchHeader,
    marker: EndTransactionMarker | undefined,
    keep: (transaction: AbortedTransaction) => void = () => undefined,
  ): boolean {
    this.#begin(header.lastOffset);
    // One that was emptied before; of a type that means nothing to a log there is none in a topic.
    if (marker === undefined) return header.recordsCount === 0;
    if (marker.type === "commit") return !this.#committing.delete(header.producerId);
    const aborting = this.#aborting.get(header.producerId);
    this.#aborting.delete(header.producerId);
    if (aborting?.hasData !== true) return true;
    keep(aborting.transaction);
    return false;
  }

  #begin(lastOffset: number): void {
    for (let next = this.#aborted[this.#next]; next !== undefined; next = this.#aborted[this.#next]) {
      if (next.firstOffset > lastOffset) return;
      if (!this.#aborting.has(next.producerId))
        this.#aborting.set(next.producerId, { transaction: next, hasData: false });
      this.#next += 1;
    }
  }
}
