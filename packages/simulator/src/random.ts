import { fail } from "@tidemark/base";
import type { Random } from "@tidemark/base";
import { drawUint32, hashText } from "./hash.ts";

interface Site {
  readonly hash: number;
  count: number;
}

/**
 * Counter-based random numbers: draw n of a site is hash(seed, site, n). Two sites never disturb each other, so that a
 * shrinker that removes one fault leaves all other draws as they were.
 */
export class SimulatedRandom implements Random {
  readonly seed: number;
  readonly #sites = new Map<string, Site>();

  /** @param seed integer, 0 <= seed <= 2^53 - 1 */
  constructor(seed: number) {
    if (!(Number.isSafeInteger(seed) && seed >= 0)) fail("0 <= seed <= 2^53 - 1", { seed });
    this.seed = seed;
  }

  uint32(site: string): number {
    const state = this.#site(site);
    return drawUint32(this.seed, state.hash, state.count++);
  }

  below(site: string, bound: number): number {
    if (!(Number.isInteger(bound) && bound >= 1 && bound <= 2 ** 32)) fail("1 <= bound <= 2^32", { bound });
    // Draws in the last, incomplete multiple of the bound are thrown away: they would favour small results.
    const limit = 2 ** 32 - (2 ** 32 % bound);
    for (;;) {
      const drawn = this.uint32(site);
      if (drawn < limit) return drawn % bound;
    }
  }

  bytes(site: string, count: number): Uint8Array {
    const result = new Uint8Array(count);
    for (let index = 0; index < count; index++) result[index] = this.uint32(site);
    return result;
  }

  #site(site: string): Site {
    let state = this.#sites.get(site);
    if (state === undefined) {
      state = { hash: hashText(site), count: 0 };
      this.#sites.set(site, state);
    }
    return state;
  }
}
