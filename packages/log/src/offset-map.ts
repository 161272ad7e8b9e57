import { fail } from "@tidemark/base";
import { md5 } from "./md5.ts";

/** Four words of a hash and an offset. */
const SLOT_BYTES = 24;
const HASH_WORDS = 4;
/** So much of the slots may be used: beyond it the looking takes long. Kafka: log.cleaner.io.buffer.load.factor. */
const LOAD_FACTOR = 0.9;
const SLOTS_MIN = 16;

/**
 * The last offset of each key, in a fixed amount of memory. Keys are told apart by their MD5 alone.
 *
 * Source: apache/kafka storage/.../internals/log/SkimpyOffsetMap.java
 */
export class OffsetMap {
  readonly #slots: number;
  readonly #hashes: Int32Array;
  /** One more than the offset; 0 = the slot is free. */
  readonly #offsets: Float64Array;
  readonly #digest = new Int32Array(HASH_WORDS);
  #size = 0;

  /** Memory for a map that so many keys do not fill. */
  static bytesFor(keyCount: number): number {
    return Math.ceil((Math.max(keyCount, 0) + 1) / LOAD_FACTOR) * SLOT_BYTES;
  }

  /** @param memoryBytes 24 for each key, a tenth of them unused */
  constructor(memoryBytes: number) {
    if (!(Number.isSafeInteger(memoryBytes) && memoryBytes >= 0)) fail("0 <= memory of an offset map", { memoryBytes });
    this.#slots = Math.max(Math.floor(memoryBytes / SLOT_BYTES), SLOTS_MIN);
    this.#hashes = new Int32Array(this.#slots * HASH_WORDS);
    this.#offsets = new Float64Array(this.#slots);
  }

  get size(): number {
    return this.#size;
  }

  /** Takes a later offset of the key. @returns false when there is no room: the map is as it was */
  put(key: Uint8Array, offset: number): boolean {
    const slot = this.#find(key);
    if (this.#offsets[slot] === 0) {
      if (this.#size >= Math.floor(this.#slots * LOAD_FACTOR)) return false;
      this.#hashes.set(this.#digest, slot * HASH_WORDS);
      this.#size += 1;
    }
    this.#offsets[slot] = offset + 1;
    return true;
  }

  /** -1 for a key that it does not know. */
  get(key: Uint8Array): number {
    return (this.#offsets[this.#find(key)] as number) - 1;
  }

  /** The slot of the key, or the free one that it would take. */
  #find(key: Uint8Array): number {
    const digest = this.#digest;
    md5(key, digest, 0);
    let slot = ((digest[0] as number) >>> 0) % this.#slots;
    while (this.#offsets[slot] !== 0) {
      const at = slot * HASH_WORDS;
      const hashes = this.#hashes;
      if (
        hashes[at] === digest[0] &&
        hashes[at + 1] === digest[1] &&
        hashes[at + 2] === digest[2] &&
        hashes[at + 3] === digest[3]
      )
        break;
      slot = slot + 1 === this.#slots ? 0 : slot + 1;
    }
    return slot;
  }
}
