import type { Environment } from "@tidemark/base";
import { SimulatedClock } from "./clock.ts";
import { immediateCompletion, KernelCompletion } from "./completion.ts";
import type { Completion, LatencyRange } from "./completion.ts";
import type { EnumerationLimits, LossRule } from "./loss-rule.ts";
import { SimulatedDisk } from "./disk.ts";
import type { SimulatedDiskOptions } from "./disk.ts";
import { Kernel } from "./kernel.ts";
import { SimulatedRandom } from "./random.ts";
import { SimulatedState } from "./state.ts";
import { SimulatedWorkerPool } from "./worker-pool.ts";

const LATENCY_DEFAULT: LatencyRange = { minUs: 20, maxUs: 2_000 };

export interface SimulatedEnvironmentOptions {
  /** 0 <= seed <= 2^53 - 1. */
  readonly seed: number;
  /**
   * `immediate`: calls take effect at once, time stands still unless the kernel is run; for exhaustive suites and unit tests.
   * `kernel`: calls complete at events of the kernel, which `kernel.run` or `kernel.runFor` has to run. Default `immediate`.
   */
  readonly mode?: "immediate" | "kernel";
  /** Default: a new kernel of this seed. */
  readonly kernel?: Kernel;
  /** Of calls in `kernel` mode. Default 20 µs to 2 ms. */
  readonly latency?: LatencyRange;
  readonly disk?: Omit<SimulatedDiskOptions, "random" | "completion">;
}

/** One process on one simulated machine. A crash gives the environment of the next process. */
export class SimulatedEnvironment implements Environment {
  readonly kernel: Kernel;
  readonly random: SimulatedRandom;
  readonly clock: SimulatedClock;
  readonly files: SimulatedDisk;
  readonly state: SimulatedState;
  readonly workers: SimulatedWorkerPool;
  readonly #options: SimulatedEnvironmentOptions;

  /** @param disk the one that a crash left; default an empty one */
  constructor(
    options: SimulatedEnvironmentOptions,
    disk?: SimulatedDisk,
    random: SimulatedRandom = new SimulatedRandom(options.seed),
  ) {
    this.#options = options;
    this.kernel = options.kernel ?? new Kernel({ seed: options.seed });
    this.random = random;
    this.clock = new SimulatedClock(this.kernel);
    const completion = this.#completion();
    this.files = disk ?? new SimulatedDisk({ ...options.disk, random: this.random, completion });
    this.files.core.wallMs = () => this.clock.wallMs();
    this.state = new SimulatedState(this.files);
    this.workers = new SimulatedWorkerPool(completion);
  }

  /** The process dies: timers, calls and jobs in flight end without a result; the page cache survives. */
  crashProcess(): SimulatedEnvironment {
    this.#abandon();
    return this.#next(this.files.crashProcess());
  }

  /** The machine dies: as above, and what was not synced is lost by one outcome of `rule`, drawn from the seed. */
  crashMachine(rule: LossRule, limits?: EnumerationLimits): SimulatedEnvironment {
    this.#abandon();
    return this.#next(this.files.crashMachine(rule, limits));
  }

  #abandon(): void {
    this.clock.cancelAll();
    this.workers.abandon();
  }

  #next(disk: SimulatedDisk): SimulatedEnvironment {
    return new SimulatedEnvironment({ ...this.#options, kernel: this.kernel }, disk, this.random);
  }

  #completion(): Completion {
    if (this.#options.mode !== "kernel") return immediateCompletion;
    return new KernelCompletion(this.kernel, this.random, this.#options.latency ?? LATENCY_DEFAULT);
  }
}
