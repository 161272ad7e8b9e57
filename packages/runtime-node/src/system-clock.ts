import type { Clock, Timer } from "@tidemark/base";
import { fail } from "@tidemark/base";

/** Node fires a timer with a longer delay at once. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

/** The clocks and timers of the operating system. */
export class SystemClock implements Clock {
  wallMs(): number {
    return Date.now();
  }

  monotonicMs(): number {
    return performance.now();
  }

  setTimer(delayMs: number, fire: () => void): Timer {
    if (Number.isNaN(delayMs)) fail("a delay is a number of ms", { delayMs });
    return new SystemTimer(performance.now() + delayMs, fire);
  }
}

/** A timer that waits again when the platform's fires early: `setTimeout` rounds down, and cannot wait past 2^31 ms. */
class SystemTimer implements Timer {
  readonly #dueMs: number;
  readonly #fire: () => void;
  #timeout: NodeJS.Timeout | undefined;

  constructor(dueMs: number, fire: () => void) {
    this.#dueMs = dueMs;
    this.#fire = fire;
    this.#wait();
  }

  cancel(): void {
    clearTimeout(this.#timeout);
    this.#timeout = undefined;
  }

  #wait(): void {
    const remainingMs = Math.ceil(this.#dueMs - performance.now());
    const timeoutMs = Math.min(Math.max(remainingMs, 0), TIMEOUT_MS_MAX);
    this.#timeout = setTimeout(() => this.#wake(), timeoutMs).unref();
  }

  #wake(): void {
    if (performance.now() < this.#dueMs) {
      this.#wait();
      return;
    }
    this.#timeout = undefined;
    this.#fire();
  }
}
