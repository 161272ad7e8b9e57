import type { Offset } from "@tidemark/base";

/** Where a batch lies, and what its header has to say. */
export interface BatchPlace {
  readonly positionBytes: number;
  readonly sizeInBytes: number;
  readonly lastOffset: number;
}

/** What of a header is remembered. */
type PlacedHeader = Pick<BatchPlace, "lastOffset" | "sizeInBytes">;

/** `position + 1, size, last offset - base offset`; a position of 0 = nobody has met it. */
const SLOT_NUMBERS = 3;

/**
 * What lookups met of a segment's batches: for each entry of the offset index, the batch that follows that of the entry, and in front of them
 * the segment's first. The index names no sizes; with these the place of a batch is known without a look at the headers before it, wherever an
 * interval of the index has two batches or one.
 *
 * A hint, never a proof: who reads at a place compares the header that is there. Memory: 12 bytes an entry, with the first lookup.
 * Invariant: a batch that is noted for an entry lies directly behind that of the entry.
 */
export class BatchPlaces {
  readonly #baseOffset: Offset;
  #slots: Int32Array | undefined;

  constructor(baseOffset: Offset) {
    this.#baseOffset = baseOffset;
  }

  /**
   * Notes the batch behind that of an index entry.
   * @param entryAt number of the entry; -1: the segment's first batch
   * @param entriesMax number of entries that memory is taken for
   */
  note(entryAt: number, entriesMax: number, { lastOffset, sizeInBytes }: PlacedHeader, positionBytes: number): void {
    const at = (entryAt + 1) * SLOT_NUMBERS;
    if (this.#slots === undefined || at >= this.#slots.length) {
      const larger = new Int32Array(Math.max(entriesMax + 1, entryAt + 2) * SLOT_NUMBERS);
      if (this.#slots !== undefined) larger.set(this.#slots);
      this.#slots = larger;
    }
    this.#slots[at] = positionBytes + 1;
    this.#slots[at + 1] = sizeInBytes;
    this.#slots[at + 2] = lastOffset - this.#baseOffset;
  }

  /** The batch behind that of an index entry, or the segment's first one for -1; `undefined` when nobody has met it. */
  behind(entryAt: number): BatchPlace | undefined {
    const at = (entryAt + 1) * SLOT_NUMBERS;
    const place = this.#slots?.[at] ?? 0;
    if (place === 0) return undefined;
    return {
      positionBytes: place - 1,
      sizeInBytes: this.#slots?.[at + 1] ?? 0,
      lastOffset: this.#baseOffset + (this.#slots?.[at + 2] ?? 0),
    };
  }

  /** Batches went. */
  clear(): void {
    this.#slots = undefined;
  }
}
