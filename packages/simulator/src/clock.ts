import type { Clock, Timer } from "@tidemark/base";
import type { Kernel } from "./kernel.ts";

/** 2026-01-01T00:00:00Z. Any fixed moment would do. */
export const WALL_START_MS = 1_767_225_600_000;

/** The clock of one incarnation of a node, over the kernel's virtual time. */
export class SimulatedClock implements Clock {
  readonly #kernel: Kernel;
  readonly #timers = new Set<Timer>();
  #wallOffsetMs = WALL_START_MS;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  wallMs(): number {
    return this.#wallOffsetMs + Math.floor(this.#kernel.nowUs / 1_000);
  }

  monotonicMs(): number {
    return this.#kernel.nowUs / 1_000;
  }

  setTimer(delayMs: number, fire: () => void): Timer {
    const timer = this.#kernel.schedule(Math.max(0, delayMs) * 1_000, "clock.timer", () => {
      this.#timers.delete(timer);
      fire();
    });
    this.#timers.add(timer);
    return {
      cancel: () => {
        timer.cancel();
        this.#timers.delete(timer);
      },
    };
  }

  /** Moves the wall clock, either way; the monotonic one stays. */
  jumpWall(deltaMs: number): void {
    this.#wallOffsetMs += deltaMs;
  }

  /** The process is gone: none of its timers fires any more. */
  cancelAll(): void {
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
  }
}
