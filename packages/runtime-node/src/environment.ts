import type { Environment } from "@tidemark/base";
import { NodeFileSystem } from "./node-file-system.ts";
import type { WorkerPoolOptions } from "./piscina-worker-pool.ts";
import { PiscinaWorkerPool } from "./piscina-worker-pool.ts";
import { SystemClock } from "./system-clock.ts";
import { SystemRandom } from "./system-random.ts";

export interface NodeEnvironmentOptions {
  readonly workers?: WorkerPoolOptions;
}

/** The real Environment. Holds nothing of the operating system until it is used, and no process open. */
export interface NodeEnvironment extends Environment, AsyncDisposable {
  /** Waits for jobs in flight and ends the worker threads. Files and locks are their users' to close. Idempotent. */
  close(): Promise<void>;
}

/** The operating system as the engine's Environment: files, clocks, random numbers, worker threads. */
export function openEnvironment(options: NodeEnvironmentOptions = {}): NodeEnvironment {
  const workers = new PiscinaWorkerPool(options.workers);
  return {
    clock: new SystemClock(),
    random: new SystemRandom(),
    files: new NodeFileSystem(),
    workers,
    close: () => workers.close(),
    [Symbol.asyncDispose]: () => workers.close(),
  };
}
