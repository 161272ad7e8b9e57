import { WorkerError } from "@tidemark/base";
import type { WorkerJobName, WorkerJobs, WorkerPool } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import { runWorkerJob } from "@tidemark/wire";
import { copyBytes } from "./bytes.ts";
import { SimulatedCrash } from "./completion.ts";
import type { Completion } from "./completion.ts";

/** What the caller finds in memory that it has handed over: a later use of it shows up as a wrong CRC. */
export const POISON = 0xdd;

/** Jobs in flight or waiting for their result; more wait until one is done. */
const QUEUE_LENGTH_MAX = 64;

/**
 * Runs every job inline, with the very functions that the real workers run, and completes it later, in an order drawn from the seed.
 */
export class SimulatedWorkerPool implements WorkerPool {
  readonly #completion: Completion;
  readonly #waiting: (() => void)[] = [];
  readonly #calls = new Set<Promise<unknown>>();
  #jobCount = 0;
  #isOpen = true;
  #isAbandoned = false;
  #failures = 0;

  constructor(completion: Completion) {
    this.#completion = completion;
  }

  run<Name extends WorkerJobName>(name: Name, input: WorkerJobs[Name]["input"]): Promise<WorkerJobs[Name]["output"]> {
    if (!this.#isOpen) return Promise.reject(new WorkerError("CLOSED", "the worker pool is closed"));
    const payload = copyBytes(input.payload);
    input.payload.fill(POISON);
    const call = this.#runQueued(name, { ...input, payload }).finally(() => this.#calls.delete(call));
    this.#calls.add(call);
    return call;
  }

  runNow<Name extends WorkerJobName>(name: Name, input: WorkerJobs[Name]["input"]): WorkerJobs[Name]["output"] {
    if (this.#isAbandoned) throw new SimulatedCrash("the process is gone");
    return runWorkerJob(NODE_CODECS, name, input);
  }

  /** The next `count` jobs die with their worker. */
  failNext(count: number): void {
    this.#failures += count;
  }

  /** The process is gone: no job completes any more. */
  abandon(): void {
    this.#isAbandoned = true;
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    await Promise.allSettled(this.#calls);
  }

  async #runQueued<Name extends WorkerJobName>(
    name: Name,
    input: WorkerJobs[Name]["input"],
  ): Promise<WorkerJobs[Name]["output"]> {
    while (this.#jobCount >= QUEUE_LENGTH_MAX) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#jobCount++;
    try {
      return await this.#completion.run(`workers.${name}`, () => this.#runNow(name, input));
    } finally {
      this.#jobCount--;
      this.#waiting.shift()?.();
    }
  }

  #runNow<Name extends WorkerJobName>(name: Name, input: WorkerJobs[Name]["input"]): WorkerJobs[Name]["output"] {
    if (this.#isAbandoned) throw new SimulatedCrash("the process is gone");
    if (this.#failures > 0) {
      this.#failures--;
      throw new WorkerError("WORKER_FAILED", `a worker died in ${name}`);
    }
    return runWorkerJob(NODE_CODECS, name, input);
  }
}
