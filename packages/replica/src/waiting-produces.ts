import { fail } from "@tidemark/base";
import type { Offset } from "@tidemark/base";

interface WaitingProduce {
  readonly id: number;
  readonly lastOffset: Offset;
}

/**
 * Produces that wait for HW to pass their last offset, lowest offset first, equal offsets as they came.
 *
 * Adding costs O(1) for the usual case, an offset at or above all others; a duplicate of an earlier batch is inserted
 * further down. How many may wait is bounded by whoever admits them.
 */
export class WaitingProduces {
  readonly #lastOffsets = new Map<number, Offset>();
  /** Ascending by lastOffset. Those before #head are done; they are dropped when they outnumber the rest. */
  #queue: WaitingProduce[] = [];
  #head = 0;

  get count(): number {
    return this.#lastOffsets.size;
  }

  /** @throws InvariantError when the id waits already */
  add(id: number, lastOffset: Offset): void {
    if (this.#lastOffsets.has(id)) fail("a produce waits once", { id, lastOffset });
    this.#lastOffsets.set(id, lastOffset);
    let at = this.#queue.length;
    while (at > this.#head && (this.#queue[at - 1]?.lastOffset ?? 0) > lastOffset) at -= 1;
    if (at === this.#queue.length) this.#queue.push({ id, lastOffset });
    else this.#queue.splice(at, 0, { id, lastOffset });
  }

  /** O(waiting): this happens at the rate of time-outs. */
  remove(id: number): void {
    if (!this.#lastOffsets.delete(id)) return;
    const at = this.#queue.findIndex((waiting, place) => place >= this.#head && waiting.id === id);
    this.#queue.splice(at, 1);
  }

  /** The id of the next produce whose records lie wholly below the high watermark; it waits no longer. */
  takeReached(highWatermark: Offset): number | undefined {
    const next = this.#queue[this.#head];
    if (next === undefined || next.lastOffset >= highWatermark) return undefined;
    return this.#take(next.id);
  }

  /** The id of the next produce in order, wherever the high watermark is. */
  takeAny(): number | undefined {
    const next = this.#queue[this.#head];
    return next === undefined ? undefined : this.#take(next.id);
  }

  /** [id, lastOffset] of each, in order. */
  entries(): [number, Offset][] {
    return this.#queue.slice(this.#head).map(({ id, lastOffset }) => [id, lastOffset]);
  }

  #take(id: number): number {
    this.#lastOffsets.delete(id);
    this.#head += 1;
    if (this.#head * 2 >= this.#queue.length) {
      this.#queue.splice(0, this.#head);
      this.#head = 0;
    }
    return id;
  }
}
