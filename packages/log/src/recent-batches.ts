/** Batches remembered: a follower or a reader at the tail asks for one of the last few. */
const RECENT_BATCHES_MAX = 64;

/** Where the last batches of a segment begin, so that a read at the tail looks for its place neither in the index nor in the file. */
export class RecentBatches {
  /** Rings, made with the first batch: most segments are never written to. */
  #lastOffsets: Float64Array | undefined;
  #positions: Float64Array | undefined;
  #count = 0;

  /** Batches come in order. */
  note(lastOffset: number, positionBytes: number): void {
    this.#lastOffsets ??= new Float64Array(RECENT_BATCHES_MAX);
    this.#positions ??= new Float64Array(RECENT_BATCHES_MAX);
    const at = this.#count % RECENT_BATCHES_MAX;
    this.#lastOffsets[at] = lastOffset;
    this.#positions[at] = positionBytes;
    this.#count += 1;
  }

  /** Where the first batch with last offset >= `offset` begins; `undefined` when it is not known here. */
  find(offset: number): number | undefined {
    const count = Math.min(this.#count, RECENT_BATCHES_MAX);
    let found: number | undefined;
    for (let back = 1; back <= count; back += 1) {
      const at = (this.#count - back) % RECENT_BATCHES_MAX;
      if ((this.#lastOffsets?.[at] ?? 0) < offset) return found;
      found = this.#positions?.[at];
    }
    // The one before the oldest may reach the offset too.
    return undefined;
  }

  clear(): void {
    this.#count = 0;
  }
}
