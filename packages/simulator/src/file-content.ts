import { hashBytes } from "./hash.ts";
import type { Hash64 } from "./hash.ts";

const CAPACITY_BYTES_MIN = 64;
/** A buffer doubles up to this much at a time. */
const CAPACITY_GROWTH_BYTES_MAX = 4 * 1024 * 1024;

/** Memory that several contents share. Bytes below `usedBytes` never change again. */
interface Backing {
  readonly bytes: Uint8Array;
  usedBytes: number;
}

/**
 * Immutable content of a file. A change gives a new content that shares memory where it can: an append at the end of the newest
 * content goes into the spare room behind it, everything else copies.
 */
export class FileContent {
  static readonly empty = new FileContent({ bytes: new Uint8Array(0), usedBytes: 0 }, 0);

  readonly sizeBytes: number;
  readonly #backing: Backing;
  #hash: Hash64 | undefined;

  private constructor(backing: Backing, sizeBytes: number) {
    this.#backing = backing;
    this.sizeBytes = sizeBytes;
  }

  /** Keeps a copy. */
  static of(bytes: Uint8Array): FileContent {
    return FileContent.empty.write(bytes, 0);
  }

  /** A view: not to be written to. */
  get bytes(): Uint8Array {
    return this.#backing.bytes.subarray(0, this.sizeBytes);
  }

  get hash(): Hash64 {
    this.#hash ??= hashBytes(this.bytes);
    return this.#hash;
  }

  /** A gap before `positionBytes` reads as zeros. */
  write(source: Uint8Array, positionBytes: number): FileContent {
    const endBytes = positionBytes + source.length;
    const sizeBytes = Math.max(this.sizeBytes, endBytes);
    const backing = this.#writable(positionBytes, sizeBytes);
    backing.bytes.set(source, positionBytes);
    return new FileContent(backing, sizeBytes);
  }

  /** Growing fills with zeros. */
  truncate(sizeBytes: number): FileContent {
    if (sizeBytes === this.sizeBytes) return this;
    if (sizeBytes < this.sizeBytes) return new FileContent(this.#backing, sizeBytes);
    return new FileContent(this.#writable(this.sizeBytes, sizeBytes), sizeBytes);
  }

  /** Memory with this content in front that may be written from `fromBytes` on; zeros between the old size and `sizeBytes`. */
  #writable(fromBytes: number, sizeBytes: number): Backing {
    const old = this.#backing;
    if (fromBytes >= this.sizeBytes && old.usedBytes === this.sizeBytes && sizeBytes <= old.bytes.length) {
      old.usedBytes = sizeBytes; // Behind the used part the memory still holds its first zeros.
      return old;
    }
    const spareBytes = Math.max(CAPACITY_BYTES_MIN, Math.min(sizeBytes, CAPACITY_GROWTH_BYTES_MAX));
    const bytes = new Uint8Array(sizeBytes + spareBytes);
    bytes.set(this.bytes);
    return { bytes, usedBytes: sizeBytes };
  }
}
