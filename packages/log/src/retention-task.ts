import type { Clock, Timer } from "@tidemark/base";

/** When to look, in ms. */
export interface RetentionSchedule {
  readonly initialDelayMs: number;
  readonly intervalMs: number;
}

/**
 * Looks every so often at what may be deleted, one look at a time. Nothing is scheduled while there is nothing to look at.
 * Source: apache/kafka core/src/main/scala/kafka/log/LogManager.scala, cleanupLogs
 */
export class RetentionTask {
  readonly #clock: Clock;
  readonly #schedule: RetentionSchedule;
  readonly #isNeeded: () => boolean;
  readonly #look: () => Promise<void>;
  #timer: Timer | undefined;
  #running: Promise<void> | undefined;
  #isStopped = false;

  /**
   * @param isNeeded whether there is a log with a limit
   * @param look at all logs; never rejects: what the disk says is the logs' own affair
   */
  constructor(clock: Clock, schedule: RetentionSchedule, work: { isNeeded: () => boolean; look: () => Promise<void> }) {
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
