import type { FileErrorCode, FileOperation } from "@tidemark/base";

interface FaultAddress {
  /** Calls that the fault can strike. */
  readonly operation: FileOperation | readonly FileOperation[];
  /** A string matches the end of the path, a pattern anywhere. Default: every path. State commits have the path `state`. */
  readonly path?: string | RegExp;
  /** Matching calls that go well first. Default 0. */
  readonly skip?: number;
  /** Calls that fail then. Default 1; `Infinity`: for good. */
  readonly count?: number;
  readonly code: FileErrorCode;
}

/**
 * A fault while running, addressed by operation, path and count. Calls by `readNow` and `writeNow` are reads and writes.
 */
export interface DiskFault extends FaultAddress {
  /** Writes: what the failed call leaves. `part`: a seeded part of its bytes. Default `nothing`. */
  readonly written?: "nothing" | "part";
  /**
   * Syncs: what happened to the pages. `new`: marked clean although they never reached the disk, reads see the new bytes until the
   * machine stops, later syncs succeed; `old`: the same, reads see the old bytes; `dirty`: still waiting for a sync. Default `new`.
   * Source: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.
   */
  readonly pages?: "new" | "old" | "dirty";
  /** Asked just before a call is failed, with its file; `false`: it goes well, as if it did not match. Default: always. */
  readonly isWanted?: (path: string) => boolean;
}

/** A fault in place. */
export interface InjectedFault {
  /** Calls that it has failed so far. */
  readonly hits: number;
  cancel(): void;
}

/** Calls that the disk does not answer. */
export interface Stall {
  /** They go on now, and later ones are answered as ever. Never called: they wait for ever. */
  release(): void;
}

class ActiveFault implements InjectedFault {
  readonly fault: DiskFault;
  hits = 0;
  #matches = 0;
  #cancelled = false;

  constructor(fault: DiskFault) {
    this.fault = fault;
  }

  cancel(): void {
    this.#cancelled = true;
  }

  strikes(operation: FileOperation, path: string): boolean {
    if (this.#cancelled || !this.#isAddressed(operation, path)) return false;
    const match = this.#matches++;
    if (match < (this.fault.skip ?? 0) || this.hits >= (this.fault.count ?? 1)) return false;
    if (this.fault.isWanted?.(path) === false) return false;
    this.hits++;
    return true;
  }

  #isAddressed(operation: FileOperation, path: string): boolean {
    const { operation: operations, path: pattern } = this.fault;
    if (!(typeof operations === "string" ? operations === operation : operations.includes(operation))) return false;
    if (pattern === undefined) return true;
    return typeof pattern === "string" ? path.endsWith(pattern) : pattern.test(path);
  }
}

/** The faults of one disk. */
export class FaultPlan {
  readonly #faults: ActiveFault[] = [];
  readonly #stalls = new Set<{
    readonly operation: FileOperation;
    readonly path: RegExp;
    readonly ended: Promise<void>;
  }>();

  inject(fault: DiskFault): InjectedFault {
    const active = new ActiveFault(fault);
    this.#faults.push(active);
    return active;
  }

  stall(address: { readonly operation: FileOperation; readonly path: RegExp }): Stall {
    let end: () => void = () => undefined;
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const stall = { ...address, ended };
    this.#stalls.add(stall);
    return {
      release: () => {
        this.#stalls.delete(stall);
        end();
      },
    };
  }

  /** What this call has to wait for, if anything. */
  stalled(operation: FileOperation, path: string): Promise<void> | undefined {
    for (const stall of this.#stalls) if (stall.operation === operation && stall.path.test(path)) return stall.ended;
    return undefined;
  }

  /** Cancels all of them. */
  clear(): void {
    for (const active of this.#faults.splice(0)) active.cancel();
  }

  /** The first fault that fails this call. Counts the call for every fault before it. */
  strike(operation: FileOperation, path: string): DiskFault | undefined {
    for (const active of this.#faults) if (active.strikes(operation, path)) return active.fault;
    return undefined;
  }
}
