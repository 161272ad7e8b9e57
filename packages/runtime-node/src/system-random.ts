import { randomFillSync } from "node:crypto";
import type { Random } from "@tidemark/base";
import { fail } from "@tidemark/base";

const UINT32_COUNT = 2 ** 32;
/** Draws fetched from the operating system at a time: one call costs as much as hundreds of draws. */
const POOL_DRAWS = 256;

/** The operating system's random source. The site of a draw does not matter here: nothing is repeated. */
export class SystemRandom implements Random {
  readonly #pool = new Uint32Array(POOL_DRAWS);
  /** Draws of the pool that were given out, [0, POOL_DRAWS]. */
  #usedCount = POOL_DRAWS;

  uint32(_site: string): number {
    if (this.#usedCount === POOL_DRAWS) {
      randomFillSync(this.#pool);
      this.#usedCount = 0;
    }
    const draw = this.#pool[this.#usedCount] ?? fail("a draw lies inside the pool", { usedCount: this.#usedCount });
    this.#usedCount++;
    return draw;
  }

  below(site: string, bound: number): number {
    if (!(Number.isInteger(bound) && bound >= 1 && bound <= UINT32_COUNT)) fail("1 <= bound <= 2^32", { site, bound });
    // Draws of the last, partial round of the bound are thrown away: a remainder alone would favour small values.
    const fairCount = UINT32_COUNT - (UINT32_COUNT % bound);
    let draw = this.uint32(site);
    while (draw >= fairCount) draw = this.uint32(site);
    return draw % bound;
  }

  bytes(_site: string, count: number): Uint8Array {
    return randomFillSync(new Uint8Array(count));
  }
}
