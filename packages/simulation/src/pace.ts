import type { Kernel } from "@tidemark/simulator";

/** A time of load, or of next to none: producers send a batch every few seconds, and consumers wait at the leader. */
export interface Phase {
  readonly isQuiet: boolean;
  readonly durationMs: number;
}

/** What clients do at present: there is load, or next to none. */
export class Pace {
  readonly #kernel: Kernel;
  readonly #phases: readonly Phase[];
  #startUs = 0;
  #isOver = false;

  constructor(kernel: Kernel, phases: readonly Phase[]) {
    this.#kernel = kernel;
    this.#phases = phases;
  }

  /** The first phase begins now. */
  begin(): void {
    this.#startUs = this.#kernel.nowUs;
  }

  /** The faults are over: there is load, whatever was planned. */
  end(): void {
    this.#isOver = true;
  }

  get isQuiet(): boolean {
    return this.quietMs > 0;
  }

  /** Until there is load again; 0: there is. */
  get quietMs(): number {
    if (this.#isOver) return 0;
    let endMs = this.#startUs / 1000;
    const nowMs = this.#kernel.nowUs / 1000;
    for (const { isQuiet, durationMs } of this.#phases) {
      endMs += durationMs;
      if (nowMs < endMs) return isQuiet ? endMs - nowMs : 0;
    }
    return 0;
  }
}
