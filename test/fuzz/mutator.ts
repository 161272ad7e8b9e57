/** Values that decoders are likely to trip over: ends of ranges, sign bits, continuation bits. */
const ODD_BYTES = [0x00, 0x01, 0x02, 0x7f, 0x80, 0xfe, 0xff] as const;
const ODD_INTEGERS = [0, 1, -1, 2 ** 31 - 1, -(2 ** 31), 2 ** 16, 14, 49, 0x7fff_ffff >> 3] as const;

const MUTATIONS_MAX = 6;
/** A mutated input is never larger than this: what an input may cost is measured in multiples of it. */
export const INPUT_BYTES_MAX = 4096;

/** Random numbers by seed (mulberry32). */
export class FuzzRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Uniform in [0, bound). */
  below(bound: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * bound);
  }
}

/** A copy of one of the inputs, changed in one to six places: bits, bytes, integers, runs moved, doubled, cut out or put in. */
export function mutated(random: FuzzRandom, corpus: readonly Uint8Array[]): Uint8Array {
  let bytes: Uint8Array = pick(random, corpus).slice(0, INPUT_BYTES_MAX);
  const count = 1 + random.below(MUTATIONS_MAX);
  for (let each = 0; each < count; each += 1) bytes = mutatedOnce(random, corpus, bytes);
  return bytes;
}

function mutatedOnce(random: FuzzRandom, corpus: readonly Uint8Array[], bytes: Uint8Array): Uint8Array {
  const at = random.below(bytes.length + 1);
  switch (random.below(9)) {
    case 0:
      if (at < bytes.length) bytes[at] = (bytes[at] as number) ^ (1 << random.below(8));
      return bytes;
    case 1:
      if (at < bytes.length) bytes[at] = pick(random, ODD_BYTES);
      return bytes;
    case 2:
      if (at < bytes.length) bytes[at] = random.below(256);
      return bytes;
    case 3: {
      const value = pick(random, ODD_INTEGERS);
      const isLittle = random.below(2) === 0;
      if (at + 4 <= bytes.length) new DataView(bytes.buffer, bytes.byteOffset).setInt32(at, value, isLittle);
      return bytes;
    }
    case 4:
      return bytes.slice(0, at);
    case 5: {
      const count = random.below(Math.min(bytes.length - at, 64) + 1);
      return joined(bytes.subarray(0, at), bytes.subarray(at + count));
    }
    case 6: {
      const count = random.below(Math.min(bytes.length - at, 256) + 1);
      return joined(bytes.subarray(0, at + count), bytes.subarray(at));
    }
    case 7: {
      const noise = Uint8Array.from({ length: random.below(12) }, () => random.below(256));
      return joined(bytes.subarray(0, at), noise, bytes.subarray(at));
    }
    default: {
      const other = pick(random, corpus);
      return joined(bytes.subarray(0, at), other.subarray(random.below(other.length + 1)));
    }
  }
}

function pick<Value>(random: FuzzRandom, values: readonly Value[]): Value {
  const value = values[random.below(values.length)];
  if (value === undefined) throw new Error("a corpus holds at least one input");
  return value;
}

function joined(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts).subarray(0, INPUT_BYTES_MAX));
}
