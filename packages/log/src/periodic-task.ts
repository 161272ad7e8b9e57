import type { Clock, Timer } from "@tidemark/base";

/** When to look, in ms. */
export interface Schedule {
  readonly initialDelayMs: number;
  readonly intervalMs: number;
}

/** Looks at logs every so often, one look at a time. Nothing is scheduled while there is nothing to look at. */
export class PeriodicTask {
  readonly #clock: Clock;
  readonly #schedule: Schedule;
  readonly #isNeeded: () => boolean;
  readonly #look: () => Promise<void>;
  #timer: Timer | undefined;
  #running: Promise<void> | undefined;
  #isStopped = false;

  /**
   * @param isNeeded whether there is a log to look at
   * @param look at all logs; never rejects: what the disk says is the logs' own affair
   */
  constructor(clock: Clock, schedule: Schedule, work: { isNeeded: () => boolean; look: () => Promise<void> }) {
    this.#clock = clock;
    this.#schedule = schedule;
    this.#isNeeded = work.isNeeded;
    this.#look = work.look;
  }

  /** The set of logs or their limits may have changed. */
  update(): void {
    if (this.#timer === undefined && this.#running === undefined) this.#arm(this.#schedule.initialDelayMs);
  }

  /** No look begins any more, and the one that runs is over when this resolves. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    await this.#running;
  }

  #arm(delayMs: number): void {
    if (this.#isStopped || !this.#isNeeded()) return;
    this.#timer = this.#clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      this.#running = this.#look().finally(() => {
        this.#running = undefined;
        this.#arm(this.#schedule.intervalMs);
      });
    });
  }
}
