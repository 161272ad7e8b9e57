import type { Clock, Timer } from "@tidemark/base";
import { Kernel } from "@tidemark/simulator";

/** Whoever ran it has seen enough. */
export class RunEnded extends Error {
  override readonly name = "RunEnded";
}

/** A kernel that has everything looked at between two events, and that ends the run with the first error of an event. */
export class WatchedKernel extends Kernel {
  /** Called before each event, hence after all that the one before has led to. */
  onEvent: (() => void) | undefined;
  /** The first error thrown by an event or by `onEvent`. */
  failure: Error | undefined;
  /** The run ends with a `RunEnded` at the first event behind it, in microseconds. */
  endUs = Number.POSITIVE_INFINITY;
  #rejectRun: ((error: Error) => void) | undefined;

  protected override fireEvent(fire: () => void): void {
    if (this.failure !== undefined) return;
    try {
      if (this.nowUs > this.endUs) throw new RunEnded(`nobody wants to know what comes after ${this.endUs / 1000} ms`);
      this.onEvent?.();
      fire();
    } catch (error) {
      this.fail(error);
    }
  }

  /** Ends the run in progress with an error. */
  fail(error: unknown): void {
    this.failure ??= error instanceof Error ? error : new Error(String(error));
    this.#rejectRun?.(this.failure);
  }

  override run<T>(body: () => Promise<T>): Promise<T> {
    return super.run(
      () =>
        new Promise<T>((resolve, reject) => {
          this.#rejectRun = reject;
          if (this.failure !== undefined) reject(this.failure);
          else void body().then(resolve, reject);
        }),
    );
  }
}

/** The clock of one process: while the process is stopped its timers wait, when it is dead they never fire. */
export class ProcessClock implements Clock {
  readonly #inner: Clock;
  #state: "running" | "paused" | "dead" = "running";
  #overdue: (() => void)[] = [];

  constructor(inner: Clock) {
    this.#inner = inner;
  }

  get isPaused(): boolean {
    return this.#state === "paused";
  }

  wallMs(): number {
    return this.#inner.wallMs();
  }

  monotonicMs(): number {
    return this.#inner.monotonicMs();
  }

  setTimer(delayMs: number, fire: () => void): Timer {
    let isCancelled = false;
    const run = (): void => {
      if (isCancelled || this.#state === "dead") return;
      if (this.#state === "paused") this.#overdue.push(run);
      else fire();
    };
    const timer = this.#inner.setTimer(delayMs, run);
    return {
      cancel: () => {
        isCancelled = true;
        timer.cancel();
      },
    };
  }

  pause(): void {
    if (this.#state === "running") this.#state = "paused";
  }

  /** What fell due meanwhile fires now, one after another. */
  resume(): void {
    if (this.#state !== "paused") return;
    this.#state = "running";
    for (const run of this.#overdue.splice(0)) this.#inner.setTimer(0, run);
  }

  die(): void {
    this.#state = "dead";
    this.#overdue = [];
  }
}
