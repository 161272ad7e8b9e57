interface Waiter {
  readonly bytes: number;
  /** `undefined` once it gave up. */
  admit: (() => void) | undefined;
}

/** Admitted waiters at the front of the list are dropped in runs of this many: one by one costs the length of the list. */
const COMPACT_AFTER = 1024;

/**
 * Bytes of records that were accepted and are not acknowledged yet, bounded: who wants more waits, first come, first served.
 *
 * One request larger than the bound is admitted when nothing else is buffered, else it could never be.
 */
export class BufferMemory {
  readonly #limitBytes: number;
  #waiters: Waiter[] = [];
  /** Index of the first waiter that was not admitted. */
  #next = 0;
  #waitingCount = 0;
  #usedBytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  get waitingCount(): number {
    return this.#waitingCount;
  }

  /** Takes `bytes`, to be given back by `release`, if that needs no wait. */
  tryAcquire(bytes: number): boolean {
    if (this.#waitingCount > 0 || !this.#fits(bytes)) return false;
    this.#usedBytes += bytes;
    return true;
  }

  /**
   * Takes `bytes`, to be given back by `release`, and calls `admit`: before it returns if there is room, else within the
   * `release` that makes room. It is a callback and no promise so that nobody who comes later can overtake in between.
   * @returns a function that gives the wait up (no effect after `admit`), or `undefined` when there was no wait
   */
  acquire(bytes: number, admit: () => void): (() => void) | undefined {
    if (this.tryAcquire(bytes)) {
      admit();
      return undefined;
    }
    const waiter: Waiter = { bytes, admit };
    this.#waiters.push(waiter);
    this.#waitingCount += 1;
    return () => {
      if (waiter.admit === undefined) return;
      waiter.admit = undefined;
      this.#waitingCount -= 1;
      this.#admitWaiters(); // A smaller one behind it may fit.
    };
  }

  release(bytes: number): void {
    this.#usedBytes -= bytes;
    this.#admitWaiters();
  }

  #fits(bytes: number): boolean {
    return this.#usedBytes === 0 || this.#usedBytes + bytes <= this.#limitBytes;
  }

  #admitWaiters(): void {
    for (;;) {
      const waiter = this.#waiters[this.#next];
      if (waiter === undefined) break;
      const { admit, bytes } = waiter;
      if (admit !== undefined) {
        if (!this.#fits(bytes)) break;
        waiter.admit = undefined;
        this.#waitingCount -= 1;
        this.#usedBytes += bytes;
      }
      this.#next += 1;
      admit?.();
    }
    if (this.#next === this.#waiters.length) this.#waiters = [];
    else if (this.#next >= COMPACT_AFTER) this.#waiters = this.#waiters.slice(this.#next);
    else return;
    this.#next = 0;
  }
}
