import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { pathToFileURL } from "node:url";
import { Piscina } from "piscina";
import type { WorkerJobName, WorkerJobs, WorkerPool } from "@tidemark/base";
import { fail, WorkerError } from "@tidemark/base";
import { NODE_JOBS } from "./node-jobs.ts";
import { transferable } from "./transfer.ts";
import type { WorkerReply } from "./worker-protocol.ts";

export interface WorkerPoolOptions {
  /** Threads at most, at least 1. Default: one less than the machine's cores, from 1 to 4. */
  readonly threads?: number;
  /** A thread that had no job for so long ends. Default 10 s. */
  readonly idleMs?: number;
  /** A job that takes longer is stopped with its thread: REQUEST_TIMED_OUT. Default `JOB_MS_MAX`. */
  readonly jobMsMax?: number;
  /** Memory of a thread's own objects, MiB; payloads lie outside. A thread that needs more dies with its job. Default `HEAP_MIB_MAX`. */
  readonly heapMibMax?: number;
  /** Calls that wait for a thread, at least 0; more are refused with QUEUE_FULL. Default `WAITING_JOBS_MAX`. */
  readonly waitingJobsMax?: number;
  /** Payload bytes of the calls that wait. One alone may be larger. Default `WAITING_BYTES_MAX`. */
  readonly waitingBytesMax?: number;
  /** Another worker file, for tests of threads that fail. */
  readonly workerUrl?: URL;
}

const THREADS_DEFAULT_MAX = 4;
const IDLE_MS_DEFAULT = 10_000;
/** Far more than any job takes within its bound on output, a thread's start included: what takes longer hangs. */
export const JOB_MS_MAX = 30_000;
/** The engine's own jobs need some megabytes. */
const HEAP_MIB_MAX = 256;
export const WAITING_JOBS_MAX = 4096;
export const WAITING_BYTES_MAX = 256 * 1024 ** 2;
const WORKER_URL = new URL(import.meta.url.endsWith(".ts") ? "./worker.ts" : "./worker.js", import.meta.url);

/** A piscina instance and, once it broke, why. */
interface Threads {
  readonly pool: Piscina;
  failure: unknown;
}

/** A call that waits for a thread. */
interface Waiting {
  readonly bytes: number;
  readonly resume: () => void;
}

/**
 * Jobs in worker threads. No thread starts before the first job; idle threads end, and none keeps the process alive.
 *
 * Each thread is handed one job at a time, so that a thread that dies, or is stopped because its job hangs, fails one call. Further
 * calls wait here, in their order, with their payload still in their own memory: so many of them, and so many bytes.
 */
export class PiscinaWorkerPool implements WorkerPool {
  readonly #threadsMax: number;
  readonly #idleMs: number;
  readonly #jobMsMax: number;
  readonly #heapMibMax: number;
  readonly #waitingJobsMax: number;
  readonly #waitingBytesMax: number;
  readonly #workerUrl: URL;
  #threads: Threads | undefined;
  /** Jobs handed to threads, [0, threadsMax]. */
  #runningCount = 0;
  /** Calls that wait for a thread, first come first. */
  readonly #waiting: Waiting[] = [];
  /** Sum over them. */
  #waitingBytes = 0;
  /** Calls accepted and not yet settled: those that run and those that wait. */
  #unsettledCount = 0;
  #onSettled: (() => void) | undefined;
  #closed: Promise<void> | undefined;

  constructor(options: WorkerPoolOptions = {}) {
    this.#threadsMax = options.threads ?? Math.min(Math.max(availableParallelism() - 1, 1), THREADS_DEFAULT_MAX);
    if (!(Number.isInteger(this.#threadsMax) && this.#threadsMax >= 1))
      fail("threads >= 1", { threads: this.#threadsMax });
    this.#idleMs = options.idleMs ?? IDLE_MS_DEFAULT;
    this.#jobMsMax = options.jobMsMax ?? JOB_MS_MAX;
    this.#heapMibMax = options.heapMibMax ?? HEAP_MIB_MAX;
    this.#waitingJobsMax = options.waitingJobsMax ?? WAITING_JOBS_MAX;
    this.#waitingBytesMax = options.waitingBytesMax ?? WAITING_BYTES_MAX;
    this.#workerUrl = options.workerUrl ?? WORKER_URL;
  }

  /** Threads alive at this moment. */
  get threadCount(): number {
    return this.#threads?.pool.threads.length ?? 0;
  }

  async run<Name extends WorkerJobName>(
    name: Name,
    input: WorkerJobs[Name]["input"],
  ): Promise<WorkerJobs[Name]["output"]> {
    if (this.#closed !== undefined) throw new WorkerError("CLOSED", "the worker pool is closed");
    this.#unsettledCount++;
    try {
      await this.#takeThread(input.payload.length);
      try {
        return await this.#runInThread(name, input);
      } finally {
        this.#giveThreadBack();
      }
    } finally {
      this.#unsettledCount--;
      if (this.#unsettledCount === 0) this.#onSettled?.();
    }
  }

  runNow<Name extends WorkerJobName>(name: Name, input: WorkerJobs[Name]["input"]): WorkerJobs[Name]["output"] {
    return NODE_JOBS.runNow(name, input);
  }

  close(): Promise<void> {
    this.#closed ??= this.#closeWhenSettled();
    return this.#closed;
  }

  async #closeWhenSettled(): Promise<void> {
    if (this.#unsettledCount > 0) {
      await new Promise<void>((resolve) => {
        this.#onSettled = resolve;
      });
    }
    await this.#threads?.pool.destroy();
    this.#threads = undefined;
  }

  async #runInThread<Name extends WorkerJobName>(
    name: Name,
    input: WorkerJobs[Name]["input"],
  ): Promise<WorkerJobs[Name]["output"]> {
    const payload = transferable(input.payload);
    const request = { name, input: { ...input, payload } };
    this.#threads ??= this.#startThreads();
    const threads = this.#threads;
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), this.#jobMsMax);
    let reply: WorkerReply;
    try {
      const options = { transferList: [payload.buffer], signal: stop.signal };
      reply = (await threads.pool.run(request, options)) as WorkerReply;
    } catch (error) {
      if (stop.signal.aborted) {
        throw new WorkerError("REQUEST_TIMED_OUT", `job ${name} took more than ${this.#jobMsMax} ms`, { cause: error });
      }
      throw new WorkerError("WORKER_FAILED", `job ${name}`, { cause: threads.failure ?? error });
    } finally {
      clearTimeout(timer);
    }
    if (reply.type === "failed") throw new WorkerError(reply.code, reply.message);
    return reply.output;
  }

  #startThreads(): Threads {
    const pool = new Piscina({
      filename: this.#workerUrl.href,
      minThreads: 0,
      maxThreads: this.#threadsMax,
      maxQueue: this.#threadsMax,
      concurrentTasksPerWorker: 1,
      idleTimeout: this.#idleMs,
      resourceLimits: { maxOldGenerationSizeMb: this.#heapMibMax },
      ...(this.#workerUrl.pathname.endsWith(".ts") ? { execArgv: typescriptArguments() } : {}),
    });
    const threads: Threads = { pool, failure: undefined };
    // A thread that fails before its first job (its file does not load) leaves the job in piscina's queue for ever. Destroying
    // the pool rejects what is queued; the next job starts anew.
    pool.on("error", (error: unknown) => {
      threads.failure ??= error;
      if (this.#threads === threads) this.#threads = undefined;
      void pool.destroy();
    });
    return threads;
  }

  /** Resolves when one of the threads is free for this call. @throws WorkerError QUEUE_FULL */
  async #takeThread(bytes: number): Promise<void> {
    if (this.#runningCount < this.#threadsMax) {
      this.#runningCount++;
      return;
    }
    const isFull = this.#waitingBytes > 0 && this.#waitingBytes + bytes > this.#waitingBytesMax;
    if (isFull || this.#waiting.length >= this.#waitingJobsMax) {
      throw new WorkerError("QUEUE_FULL", `${this.#waiting.length} jobs with ${this.#waitingBytes} bytes wait already`);
    }
    this.#waitingBytes += bytes;
    await new Promise<void>((resume) => this.#waiting.push({ bytes, resume }));
  }

  /** The thread goes to the first that waits, without becoming free between: a new call cannot overtake. */
  #giveThreadBack(): void {
    const next = this.#waiting.shift();
    if (next === undefined) {
      this.#runningCount--;
      return;
    }
    this.#waitingBytes -= next.bytes;
    next.resume();
  }
}

/** Node 20 cannot run a `.ts` worker. From sources (development only) tsx loads it, and the other packages' sources with it. */
function typescriptArguments(): string[] {
  const tsx = createRequire(import.meta.url).resolve("tsx");
  return ["--import", pathToFileURL(tsx).href, "--conditions", "tidemark-source"];
}
