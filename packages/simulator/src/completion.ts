import { InvariantError } from "@tidemark/base";
import type { Kernel } from "./kernel.ts";
import type { SimulatedRandom } from "./random.ts";

/** The simulated process or machine has crashed: nothing that it began goes on. Seen only by direct (synchronous) calls. */
export class SimulatedCrash extends Error {
  override readonly name = "SimulatedCrash";
}

/** [min, max] in microseconds. */
export interface LatencyRange {
  readonly minUs: number;
  readonly maxUs: number;
}

/**
 * When asynchronous calls take effect and complete.
 *
 * `run` performs `effect` (at once, or at a later event), and settles with its outcome right after. A `SimulatedCrash` thrown by
 * the effect leaves the promise open for ever: the caller is dead, nobody holds the promise, and it is collected with its waiters.
 */
export interface Completion {
  /** Whether effects happen inside the call. */
  readonly isImmediate: boolean;
  run<T>(site: string, effect: () => T): Promise<T>;
  /** A direct call holds up the whole process: moves the clock. */
  spend(costUs: number): void;
}

/** Every call takes effect at once and returns a settled promise: no kernel, no time. For exhaustive suites and unit tests. */
export const immediateCompletion: Completion = {
  isImmediate: true,
  run<T>(_site: string, effect: () => T): Promise<T> {
    try {
      return Promise.resolve(effect());
    } catch (error) {
      return error instanceof SimulatedCrash ? never() : Promise.reject(error);
    }
  },
  spend(): void {
    // There is no clock to move.
  },
};

/** Every call takes effect after a latency drawn from the seed by its site; calls overtake each other. */
export class KernelCompletion implements Completion {
  readonly isImmediate = false;
  /** Drawn on top of every latency, up to this: a disk that is slow. May change while running. */
  extraUsMax = 0;
  readonly #kernel: Kernel;
  readonly #random: SimulatedRandom;
  readonly #latency: LatencyRange;

  constructor(kernel: Kernel, random: SimulatedRandom, latency: LatencyRange) {
    this.#kernel = kernel;
    this.#random = random;
    this.#latency = latency;
  }

  run<T>(site: string, effect: () => T): Promise<T> {
    const { minUs, maxUs } = this.#latency;
    const delayUs = minUs + this.#random.below(latencySite(site), maxUs - minUs + 1);
    const extraUs = this.extraUsMax === 0 ? 0 : this.#random.below("latency.extra", this.extraUsMax);
    return new Promise<T>((resolve, reject) => {
      this.#kernel.schedule(delayUs + extraUs, site, () => {
        try {
          resolve(effect());
        } catch (error) {
          // A broken invariant is a bug of the caller: it ends the run instead of becoming one more failed call.
          if (error instanceof InvariantError) throw error;
          if (!(error instanceof SimulatedCrash)) reject(error);
        }
      });
    });
  }

  spend(costUs: number): void {
    this.#kernel.advance(costUs);
  }
}

const latencySites = new Map<string, string>();

/** Joined once: a random site is looked up by its name with every call. */
function latencySite(site: string): string {
  let name = latencySites.get(site);
  if (name === undefined) {
    name = `latency/${site}`;
    latencySites.set(site, name);
  }
  return name;
}

function never<T>(): Promise<T> {
  return new Promise<T>(() => undefined);
}
