import type { Clock, Timer } from "@tidemark/base";
import type { LogSegment } from "./segment.ts";

/**
 * Deleted segments whose files are still there, for those who read them.
 *
 * A removal that fails leaves a file that the next open removes: nothing depends on it.
 */
export class DelayedRemovals {
  readonly #clock: Clock;
  /** Made with the first removal, as below: most logs have none. */
  #waiting: Map<LogSegment, Timer> | undefined;
  #running: Set<Promise<void>> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(segment: LogSegment, delayMs: number): void {
    const timer = this.#clock.setTimer(delayMs, () => this.#remove(segment));
    this.#waiting ??= new Map();
    this.#waiting.set(segment, timer);
  }

  /** Removes at once what still waits: nobody reads any more. */
  async finish(): Promise<void> {
    for (const [segment, timer] of this.#waiting ?? []) {
      timer.cancel();
      this.#remove(segment);
    }
    if (this.#running !== undefined) await Promise.all(this.#running);
  }

  #remove(segment: LogSegment): void {
    this.#waiting?.delete(segment);
    const running = segment
      .removeRenamed()
      .catch(() => undefined)
      .finally(() => this.#running?.delete(running));
    this.#running ??= new Set();
    this.#running.add(running);
  }
}
