export interface BudgetLimits {
  readonly durationMs: number;
  readonly bytesMax: number;
}

/**
 * How long a sample goes on: until the time is over or the bytes are written, whichever comes first. Without the second
 * limit a fast subject would leave the disk busy with its own pages while the next one is measured.
 */
export class Budget {
  readonly durationMs: number;
  readonly bytesMax: number;
  #startMs = 0;
  #hasBegun = false;

  constructor(limits: BudgetLimits) {
    this.durationMs = limits.durationMs;
    this.bytesMax = limits.bytesMax;
  }

  /** Starts the clock. */
  start(): void {
    this.#startMs = performance.now();
    this.#hasBegun = false;
  }

  /** Never at the first question after the start: a sample does something, however busy the machine is. */
  isSpent(bytes = 0): boolean {
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      return false;
    }
    return bytes >= this.bytesMax || this.elapsedMs >= this.durationMs;
  }

  get elapsedMs(): number {
    return performance.now() - this.#startMs;
  }

  /** `count` things a second, since the start. */
  rate(count: number): number {
    return (count / this.elapsedMs) * 1000;
  }

  /** MB (10^6 bytes) a second, since the start. */
  megabytesPerSecond(bytes: number): number {
    return this.rate(bytes) / 1e6;
  }
}
