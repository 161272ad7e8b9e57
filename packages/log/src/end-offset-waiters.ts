import { WAITERS_MAX } from "./config.ts";
import { LogError } from "./error.ts";

export interface EndOffsetWait {
  /** Resolves when the end has passed the offset, or the log closed: look at the log again. */
  readonly promise: Promise<void>;
  cancel(): void;
}

interface Waiter {
  readonly beyond: number;
  readonly wake: () => void;
}

/** Readers that wait for the end of the log to move. */
export class EndOffsetWaiters {
  /** Made with the first: most logs have none. */
  #waiters: Set<Waiter> | undefined;

  /** @throws LogError QUEUE_FULL past `WAITERS_MAX` */
  add(beyond: number): EndOffsetWait {
    this.#waiters ??= new Set();
    const waiters = this.#waiters;
    if (waiters.size >= WAITERS_MAX)
      throw new LogError({ code: "QUEUE_FULL", queuedBytes: waiters.size, limitBytes: WAITERS_MAX });
    let wake: () => void = () => undefined;
    const promise = new Promise<void>((resolve) => {
      wake = resolve;
    });
    const waiter: Waiter = { beyond, wake };
    waiters.add(waiter);
    const cancel = (): void => {
      waiters.delete(waiter);
      wake();
    };
    return { promise, cancel };
  }

  /** Wakes those whose offset the end has passed. */
  moved(endOffset: number): void {
    if (this.#waiters === undefined) return;
    for (const waiter of this.#waiters) {
      if (waiter.beyond >= endOffset) continue;
      this.#waiters.delete(waiter);
      waiter.wake();
    }
  }

  wakeAll(): void {
    this.moved(Number.POSITIVE_INFINITY);
  }
}
