/** Odd constant near 2^32 / golden ratio: spreads consecutive counters over the whole range. */
const GOLDEN = 0x9e3779b1;

/**
 * A permutation of the 32-bit integers in which every input bit moves every output bit with a probability near one half.
 * Source: skeeto/hash-prospector, the two-round function of lowest bias found there.
 */
export function mix32(value: number): number {
  let x = value | 0;
  x ^= x >>> 16;
  x = Math.imul(x, 0x21f0aaad);
  x ^= x >>> 15;
  x = Math.imul(x, 0x735a2d97);
  x ^= x >>> 15;
  return x >>> 0;
}

/**
 * The n-th draw of a site: a pure function, so that removing one site's draws leaves every other site's unchanged.
 * @param seed 0 <= seed <= 2^53 - 1
 * @param siteHash from `hashText`
 * @param count how often the site has drawn before
 */
export function drawUint32(seed: number, siteHash: number, count: number): number {
  let x = mix32((seed >>> 0) ^ 0x5bd1e995);
  x = mix32(x ^ Math.imul(Math.floor(seed / 2 ** 32), GOLDEN));
  x = mix32(x ^ siteHash);
  return mix32(x + Math.imul(count, GOLDEN));
}

/** 32-bit hash of a string by its UTF-16 code units. */
export function hashText(text: string): number {
  let x = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) x = Math.imul(x ^ text.charCodeAt(index), 0x01000193);
  return mix32(x);
}

/** Two independent 32-bit hashes of some bytes: together good for telling millions of contents apart. */
export interface Hash64 {
  readonly low: number;
  readonly high: number;
}

/** About a nanosecond a byte. */
export function hashBytes(bytes: Uint8Array): Hash64 {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const wordsEnd = bytes.length & ~3;
  let low = bytes.length | 0;
  let high = ~bytes.length;
  for (let position = 0; position < wordsEnd; position += 4) {
    const word = view.getInt32(position, true);
    low = Math.imul((low ^ Math.imul(word, 0xcc9e2d51)) | 0, 0x1b873593);
    low = (low << 13) | (low >>> 19);
    high = Math.imul((high + Math.imul(word, 0x85ebca6b)) | 0, 0xc2b2ae35);
    high = (high << 15) | (high >>> 17);
  }
  for (let position = wordsEnd; position < bytes.length; position++) {
    const byte = view.getUint8(position);
    low = Math.imul(low ^ byte, 0x01000193);
    high = Math.imul((high + byte) | 0, GOLDEN) ^ (high >>> 16);
  }
  return { low: mix32(low), high: mix32(high ^ 0x7feb352d) };
}

/** Sum of hashes, so that the order of the parts does not matter. Shown as 16 hexadecimal digits. */
export class DigestSum {
  #low = 0;
  #high = 0;

  /** Adds the pair (name, content); `name` tells apart equal contents in different places. */
  add(name: number, content: Hash64): void {
    this.#low = (this.#low + mix32(content.low ^ Math.imul(name, GOLDEN))) | 0;
    this.#high = (this.#high + mix32(content.high ^ mix32(name + 0x3c6ef372))) | 0;
  }

  toString(): string {
    return hex32(this.#high) + hex32(this.#low);
  }
}

function hex32(value: number): string {
  return (value >>> 0).toString(16).padStart(8, "0");
}
