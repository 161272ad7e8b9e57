/** Small results lie side by side in memory of this size: of their own they cost more than the read. */
const SLAB_BYTES = 64 * 1024;

/** A larger result has memory of its own, so that one that is kept does not keep much more than itself. */
const SHARED_BYTES_MAX = SLAB_BYTES / 8;

/** Typed arrays begin at multiples of this, as those with memory of their own do. */
const ALIGNMENT_BYTES = 8;

let slab = new Uint8Array(0);
let usedBytes = 0;

/**
 * Memory for the result of a read, zeroed, which nobody else gets. Small ones share their `buffer`: it must not be transferred, and lives as long as
 * the last of them.
 */
export function readMemory(bytes: number): Uint8Array {
  if (bytes > SHARED_BYTES_MAX) return new Uint8Array(bytes);
  if (usedBytes + bytes > slab.length) {
    slab = new Uint8Array(SLAB_BYTES);
    usedBytes = 0;
  }
  const memory = slab.subarray(usedBytes, usedBytes + bytes);
  usedBytes += Math.ceil(bytes / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
  return memory;
}
