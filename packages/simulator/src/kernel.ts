import { fail } from "@tidemark/base";
import type { Timer } from "@tidemark/base";
import { canDrainMicrotasks, drainMicrotasks } from "./drain.ts";
import { EventHeap } from "./event-heap.ts";
import type { KernelEvent } from "./event-heap.ts";
import { drawUint32, hashText, mix32 } from "./hash.ts";

/** Events between two turns of the real event loop, so that a test runner stays responsive. */
const EVENTS_PER_TURN = 20_000;
const EVENTS_MAX_DEFAULT = 5_000_000;
const TIE_SITE = hashText("kernel.tie");

/** Of labels: few different ones, hashed again with every event. */
const labelHashes = new Map<string, number>();
const LABEL_HASHES_MAX = 10_000;

function labelHash(label: string): number {
  let hash = labelHashes.get(label);
  if (hash === undefined) {
    if (labelHashes.size >= LABEL_HASHES_MAX) labelHashes.clear();
    hash = hashText(label);
    labelHashes.set(label, hash);
  }
  return hash;
}

export interface KernelOptions {
  /** 0 <= seed <= 2^53 - 1. */
  readonly seed: number;
  /** Order of events due at the same microsecond. Default: seeded for odd seeds, in order of insertion for even ones. */
  readonly ties?: "seeded" | "insertion";
  /** A run of more events counts as a failure. Default 5,000,000. */
  readonly eventsMax?: number;
}

/**
 * Virtual time and the order of everything: pops the earliest event, sets the clock to it, runs it, runs all microtasks, and again.
 *
 * Time is an integer count of microseconds and moves only from event to event, so that an idle world costs nothing. The same seed
 * and the same calls give the same order of events.
 */
export class Kernel {
  readonly seed: number;
  readonly #heap = new EventHeap();
  readonly #seededTies: boolean;
  readonly #eventsMax: number;
  #nowUs = 0;
  #insertions = 0;
  #eventCount = 0;
  #traceHash = 0;
  #pumping = false;
  /** Says whether the run in progress is over. Undefined between runs. */
  #run: { readonly isOver: () => boolean; readonly finish: (error: Error | undefined) => void } | undefined;

  constructor(options: KernelOptions) {
    this.seed = options.seed;
    this.#seededTies = options.ties === undefined ? options.seed % 2 === 1 : options.ties === "seeded";
    this.#eventsMax = options.eventsMax ?? EVENTS_MAX_DEFAULT;
  }

  /** Virtual time in microseconds since the kernel was made. */
  get nowUs(): number {
    return this.#nowUs;
  }

  /** Events run so far. */
  get eventCount(): number {
    return this.#eventCount;
  }

  /** Events that are still to come. O(n). */
  get pendingCount(): number {
    return this.#heap.pendingCount;
  }

  /** Hash over the times and labels of all events so far: equal for two runs of one seed. */
  get traceHash(): number {
    return this.#traceHash >>> 0;
  }

  /** Calls `fire` once, `delayUs` (rounded up) from now. `label` goes into the trace hash. */
  schedule(delayUs: number, label: string, fire: () => void): Timer {
    if (!(delayUs >= 0)) fail("a delay is not negative", { delayUs, label });
    const insertion = this.#insertions++;
    const event: KernelEvent = {
      atUs: this.#nowUs + Math.ceil(delayUs),
      priority: this.#seededTies ? drawUint32(this.seed, TIE_SITE, insertion) : 0,
      insertion,
      label,
      fire,
    };
    this.#heap.push(event);
    return { cancel: () => void (event.fire = undefined) };
  }

  /** Moves the clock by the cost of a direct call. Events that fall due meanwhile run late, as on a real event loop. */
  advance(costUs: number): void {
    if (!(costUs >= 0)) fail("time does not go back", { costUs });
    this.#nowUs += Math.ceil(costUs);
  }

  /**
   * Runs `body` and all events until its promise settles.
   * @returns what it resolves to; rejects with its error, with `DEADLOCK ...` when no event is left and the promise is still open,
   * or with `EVENT CAP ...` after too many events
   */
  async run<T>(body: () => Promise<T>): Promise<T> {
    let outcome: { readonly value: T } | { readonly error: unknown } | undefined;
    await this.#start(
      () => outcome !== undefined,
      () => {
        body().then(
          (value) => (outcome = { value }),
          (error: unknown) => (outcome = { error }),
        );
      },
    );
    if (outcome === undefined) fail("a run ends with an outcome");
    if ("error" in outcome) throw outcome.error;
    return outcome.value;
  }

  /** Runs the events of the next `durationUs`; the clock then stands at the end of it. */
  async runFor(durationUs: number): Promise<void> {
    let over = false;
    this.schedule(durationUs, "kernel.run-for", () => (over = true));
    await this.#start(
      () => over,
      () => undefined,
    );
  }

  #start(isOver: () => boolean, begin: () => void): Promise<void> {
    if (this.#run !== undefined) fail("one run at a time");
    return new Promise<void>((resolve, reject) => {
      const finish = (error: Error | undefined): void => {
        this.#run = undefined;
        if (error === undefined) resolve();
        else reject(error);
      };
      this.#run = { isOver, finish };
      // From a macrotask: inside a promise job the microtask queue cannot be drained.
      setImmediate(() => {
        begin();
        if (canDrainMicrotasks()) drainMicrotasks();
        this.#startPump();
      });
    });
  }

  #startPump(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    setImmediate(() => this.#pump());
  }

  #pump(): void {
    const canDrain = canDrainMicrotasks();
    const eventsEnd = this.#eventCount + (canDrain ? EVENTS_PER_TURN : 1);
    while (this.#eventCount < eventsEnd) {
      if (this.#run?.isOver() === true) return this.#stopPump(undefined);
      if (this.#eventCount >= this.#eventsMax) {
        return this.#stopPump(new Error(`EVENT CAP: ${this.#eventsMax} events without an end`));
      }
      if (!this.#step()) {
        return this.#stopPump(new Error("DEADLOCK: no event is left and the run still waits"));
      }
      if (canDrain) drainMicrotasks();
    }
    setImmediate(() => this.#pump());
  }

  #stopPump(error: Error | undefined): void {
    this.#pumping = false;
    this.#run?.finish(error);
  }

  #step(): boolean {
    for (;;) {
      const event = this.#heap.pop();
      if (event === undefined) return false;
      const fire = event.fire;
      if (fire === undefined) continue; // Cancelled.
      event.fire = undefined;
      if (event.atUs > this.#nowUs) this.#nowUs = event.atUs;
      this.#eventCount++;
      this.#traceHash = mix32(this.#traceHash ^ mix32(this.#nowUs) ^ labelHash(event.label));
      this.fireEvent(fire);
      return true;
    }
  }

  /** Runs an event: for kernels that look on. */
  protected fireEvent(fire: () => void): void {
    fire();
  }
}
