import { createHash } from "node:crypto";
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { FuzzRandom, INPUT_BYTES_MAX, mutated } from "./mutator.ts";

/** A decoder, what it is fed with, and what it may do. */
export interface FuzzTarget {
  readonly name: string;
  /** Inputs that decode, as a rule. */
  readonly corpus: readonly Uint8Array[];
  /** Errors that it may throw; all others are bugs. */
  readonly errors: readonly (abstract new (...parameters: never[]) => Error)[];
  /** Live bytes that one call may take for each byte of input, and beside them. */
  readonly memory: { readonly factor: number; readonly bytes: number };
  /** Executions for each of the fastest target's. */
  readonly weight: number;
  /** Decodes. What it returns is what it holds at the end; false when the input was refused without an error. */
  readonly run: (input: Uint8Array) => unknown;
}

export interface FuzzFinding {
  readonly target: string;
  readonly input: Uint8Array;
  readonly what: string;
}

export interface TargetReport {
  readonly name: string;
  readonly executions: number;
  readonly refused: number;
  /** Largest live bytes of an execution over what its bound allows, as a share of the bound. */
  readonly memoryShareMax: number;
  /** Of the outcomes, in order: the same for the same seed. */
  readonly digest: string;
  readonly cpuMs: number;
}

export interface FuzzReport {
  readonly executions: number;
  readonly targets: readonly TargetReport[];
  readonly findings: readonly FuzzFinding[];
}

const FINDINGS_MAX = 20;
/** Calls after which a look at the memory is believed: the first ones compile and warm up. */
const WARM_UP_EXECUTIONS = 200;
const MEASURED_AGAIN = 4;
/** A decoder that takes too much does so again and again, and weighing it is slow. */
const GREEDY_MAX = 2;
/** Memory of libraries is given back in turns of the event loop, which a server has and a bare loop has not. */
const TURN_EVERY = 128;
/** Of so many executions one is looked at for its memory: looking costs as much as most decoders do. */
const LOOKED_AT_EVERY = 4;
/** Building traces of errors that are expected would take most of the time. */
const NO_TRACE = 0;

/**
 * Feeds every target with mutated inputs: the same ones for the same seed. The corpus itself comes first.
 *
 * Memory is looked at around each call; where it seems too much the call is made again, with the garbage collected before and after
 * and its result held: what is live then counts.
 */
export async function fuzz(
  targets: readonly FuzzTarget[],
  options: {
    readonly seed: number;
    readonly executions: number;
    readonly onProgress?: (executions: number) => void;
  },
): Promise<FuzzReport> {
  const findings: FuzzFinding[] = [];
  const weights = targets.reduce((sum, { weight }) => sum + weight, 0);
  const reports: TargetReport[] = [];
  let executions = 0;
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = NO_TRACE;
  for (const [index, target] of targets.entries()) {
    const count = Math.max(target.corpus.length, Math.round((options.executions * target.weight) / weights));
    const random = new FuzzRandom(options.seed * 1000 + index);
    const tally = new Tally(target, findings);
    const before = process.cpuUsage();
    for (let at = 0; at < count; at += 1) {
      const input = target.corpus[at]?.slice(0, INPUT_BYTES_MAX) ?? mutated(random, target.corpus);
      const result = tally.execute(input, at >= WARM_UP_EXECUTIONS && at % LOOKED_AT_EVERY === 0);
      if (result instanceof Promise) await tally.settle(input, result);
      if (at % TURN_EVERY === 0) await new Promise<void>((resolve) => setImmediate(resolve));
      if (at % 10_000 === 0) options.onProgress?.(executions + at);
    }
    executions += count;
    const { user, system } = process.cpuUsage(before);
    reports.push(tally.report(count, (user + system) / 1000));
  }
  Error.stackTraceLimit = stackTraceLimit;
  return { executions, targets: reports, findings: findings.map((finding) => withTrace(finding, targets)) };
}

/** Makes the call again, now with a trace. */
function withTrace(finding: FuzzFinding, targets: readonly FuzzTarget[]): FuzzFinding {
  const target = targets.find(({ name }) => name === finding.target);
  try {
    const result = target?.run(finding.input.slice());
    if (result instanceof Promise) result.catch(() => undefined);
    return finding;
  } catch (error) {
    const trace = error instanceof Error ? error.stack : undefined;
    return trace === undefined ? finding : { ...finding, what: `${finding.what}\n${trace}` };
  }
}

class Tally {
  readonly #target: FuzzTarget;
  readonly #findings: FuzzFinding[];
  readonly #hash = createHash("sha256");
  #refused = 0;
  #memoryShareMax = 0;
  /** Findings of too much memory. */
  #greedy = 0;

  constructor(target: FuzzTarget, findings: FuzzFinding[]) {
    this.#target = target;
    this.#findings = findings;
  }

  execute(input: Uint8Array, isLookedAt: boolean): unknown {
    const { run } = this.#target;
    const copy = input.slice();
    const before = isLookedAt ? usedBytes() : 0;
    let result: unknown;
    try {
      result = run(input);
      if (result instanceof Promise) return result;
      this.#count(result !== false);
    } catch (error) {
      this.#judge(copy, error);
    }
    if (isLookedAt) this.#look(copy, usedBytes() - before);
    if (Buffer.compare(copy, input) !== 0) this.#find(copy, "the input was changed");
    return result;
  }

  async settle(input: Uint8Array, result: Promise<unknown>): Promise<void> {
    try {
      this.#count((await result) !== false);
    } catch (error) {
      this.#judge(input, error);
    }
  }

  report(executions: number, cpuMs: number): TargetReport {
    const digest = this.#hash.digest("hex").slice(0, 16);
    return {
      name: this.#target.name,
      executions,
      refused: this.#refused,
      memoryShareMax: this.#memoryShareMax,
      digest,
      cpuMs,
    };
  }

  #judge(input: Uint8Array, error: unknown): void {
    this.#count(false);
    if (!this.#target.errors.some((kind) => error instanceof kind)) {
      this.#find(input, `threw ${String(error)}`);
    }
  }

  #count(isTaken: boolean): void {
    if (!isTaken) this.#refused += 1;
    this.#hash.update(isTaken ? "1" : "0");
  }

  /** A first look costs little and sees garbage too; only what it finds too much is looked at with care. */
  #look(input: Uint8Array, takenBytes: number): void {
    const boundBytes = input.length * this.#target.memory.factor + this.#target.memory.bytes;
    if (takenBytes <= boundBytes || this.#greedy >= GREEDY_MAX) return;
    let liveBytes = Infinity;
    for (let round = 0; round < MEASURED_AGAIN && liveBytes > boundBytes; round += 1) {
      liveBytes = Math.min(liveBytes, this.#liveBytes(input));
    }
    this.#memoryShareMax = Math.max(this.#memoryShareMax, liveBytes / boundBytes);
    if (liveBytes <= boundBytes) return;
    this.#greedy += 1;
    this.#find(input, `holds ${liveBytes} bytes where ${boundBytes} are allowed`);
  }

  #liveBytes(input: Uint8Array): number {
    const copy = input.slice();
    collectGarbage();
    const before = usedBytes();
    let result: unknown;
    try {
      result = this.#target.run(copy);
    } catch {
      result = undefined;
    }
    collectGarbage();
    const liveBytes = usedBytes() - before;
    if (result === this) throw new Error("a result is held until it was weighed");
    return liveBytes;
  }

  #find(input: Uint8Array, what: string): void {
    if (this.#findings.length < FINDINGS_MAX) this.#findings.push({ target: this.#target.name, input, what });
  }
}

function usedBytes(): number {
  const { used_heap_size, external_memory } = getHeapStatistics();
  return used_heap_size + external_memory;
}

let collect: (() => void) | undefined;

function collectGarbage(): void {
  if (collect === undefined) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as () => void;
  }
  // The memory of buffers is given back after the collection, at the latest by the next one.
  collect();
  collect();
}
