/** Memory for about eight frames of a fetch. */
const SLAB_BYTES = 1024 * 1024;

/** With less room than this a new slab is begun: system calls for small pieces cost more than the memory. */
const ROOM_BYTES_MIN = 64 * 1024;
const ROOM_BYTES_MAX = 256 * 1024;

/**
 * Memory that a socket reads into, piece behind piece, so that what belongs together mostly lies together and needs no copy. Pieces are handed
 * out for good; a slab lives as long as the last of them.
 */
export class ReadSlab {
  #slab = new Uint8Array(0);
  #usedBytes = 0;

  /** Where the next read goes. */
  room(): Uint8Array {
    if (this.#slab.length - this.#usedBytes < ROOM_BYTES_MIN) {
      // The slow kind is not cut from Node's shared pool. Its pages cost nothing before they are read into.
      this.#slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
      this.#usedBytes = 0;
    }
    return this.#slab.subarray(this.#usedBytes, this.#usedBytes + ROOM_BYTES_MAX);
  }

  /** The first `count` bytes of the room: not given out again. */
  take(count: number): Uint8Array {
    const piece = this.#slab.subarray(this.#usedBytes, this.#usedBytes + count);
    this.#usedBytes += count;
    return piece;
  }
}
