/** Smaller memory is not worth keeping: the allocator has it at hand. */
const POOLED_BYTES_MIN = 16 * 1024;

/** Larger memory is rare, and goes back to the system. */
const POOLED_BYTES_MAX = 8 * 1024 * 1024;

/** Bytes that one pool keeps for later. */
export const POOL_BYTES_MAX = 32 * 1024 * 1024;

/** What `giveBack` leaves in memory, where a pool is told to. */
const POISON = 0xdd;

/**
 * Large buffers that are used again.
 *
 * Fresh memory for every batch costs the system a page fault each 4 KiB and V8 a full collection each few megabytes, several times what
 * moving the bytes costs. Giving back is never a duty: memory that was not given back is collected like any other. Giving back what
 * somebody still looks at is a bug that shows as bytes of another batch; `poisons` makes it show at once.
 */
export class BufferPool {
  /** By their size, a power of two. */
  readonly #kept = new Map<number, Uint8Array[]>();
  /** Lent and not given back. What comes from elsewhere is not in it, nor what was given back already. */
  readonly #lent = new WeakMap<ArrayBufferLike, Uint8Array>();
  readonly #poisons: boolean;
  #keptBytes = 0;
  #hasLent = false;

  /** @param options `poisons`: overwrites memory that is given back, for tests */
  constructor(options: { readonly poisons?: boolean } = {}) {
    this.#poisons = options.poisons ?? false;
  }

  get keptBytes(): number {
    return this.#keptBytes;
  }

  /** @returns memory of exactly this length, from its start on; what it holds is not defined */
  take(bytes: number): Uint8Array {
    if (bytes < POOLED_BYTES_MIN || bytes > POOLED_BYTES_MAX) return new Uint8Array(bytes);
    const sizeBytes = 2 ** Math.ceil(Math.log2(bytes));
    let whole = this.#kept.get(sizeBytes)?.pop();
    if (whole === undefined) whole = new Uint8Array(sizeBytes);
    else this.#keptBytes -= sizeBytes;
    this.#lent.set(whole.buffer, whole);
    this.#hasLent = true;
    return whole.subarray(0, bytes);
  }

  /** Takes back what `view` lies in, all of it. Does nothing with memory that is not this pool's, or was given back before. */
  giveBack(view: Uint8Array): void {
    // To ask a small array for its buffer makes V8 move it out of its heap.
    if (view.length === 0 || !this.#hasLent) return;
    const whole = this.#lent.get(view.buffer);
    if (whole === undefined) return;
    this.#lent.delete(view.buffer);
    if (this.#poisons) whole.fill(POISON);
    if (this.#keptBytes + whole.length > POOL_BYTES_MAX) return;
    this.#keptBytes += whole.length;
    const kept = this.#kept.get(whole.length);
    if (kept === undefined) this.#kept.set(whole.length, [whole]);
    else kept.push(whole);
  }
}
