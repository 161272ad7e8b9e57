/** Draws that a seed repeats: mulberry32. */
export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Uniform integer in [from, to]. */
  between(from: number, to: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return from + Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * (to - from + 1));
  }

  oneIn(count: number): boolean {
    return this.between(1, count) === 1;
  }

  /** One of the names, each as likely as its weight. */
  pick<Name extends string>(weights: Readonly<Record<Name, number>>): Name {
    const names = Object.keys(weights) as Name[];
    let ticket = this.between(
      1,
      names.reduce((sum, name) => sum + weights[name], 0),
    );
    for (const name of names) {
      ticket -= weights[name];
      if (ticket <= 0) return name;
    }
    throw new Error("weights are positive integers");
  }

  bytes(count: number): Uint8Array {
    return Uint8Array.from({ length: count }, () => this.between(0, 255));
  }
}

/** `INTEROP_SEED`, or the seed that every run starts with. */
export function seedFromEnvironment(): number {
  const text = process.env["INTEROP_SEED"];
  if (text === undefined || text === "") return 431;
  const seed = Number(text);
  if (!Number.isSafeInteger(seed)) throw new Error(`INTEROP_SEED=${text} is no integer`);
  return seed;
}
