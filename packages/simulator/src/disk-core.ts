import { FileError } from "@tidemark/base";
import type { FileOperation } from "@tidemark/base";
import { copyBytes } from "./bytes.ts";
import { SimulatedCrash } from "./completion.ts";
import type { Completion } from "./completion.ts";
import { FaultPlan } from "./fault.ts";
import type { OperationLog } from "./operation-log.ts";
import type { Inode } from "./operation.ts";
import type { SimulatedRandom } from "./random.ts";

/** The largest file that the simulator holds in memory. */
const FILE_BYTES_MAX = 2 ** 31;

export interface DiskLimits {
  /** Bytes that all files together may hold; a write past it is short, the next one fails with ENOSPC. May change while running. */
  capacityBytes: number;
  /** Open files at a time; past it `open` fails with EMFILE. May change while running. */
  handlesMax: number;
  /** One read or write in this many moves fewer bytes than asked; 0: none does. May change while running. */
  shortTransferOneIn: number;
  /** What a direct call takes beside what its bytes take, microseconds; much more on a slow disk. May change while running. */
  directCallUs: number;
}

/** On a disk that is not slow. */
export const DIRECT_CALL_US = 2;

export interface DiskCoreOptions {
  readonly completion: Completion;
  readonly random: SimulatedRandom;
  readonly limits: DiskLimits;
  readonly modifiedMs: Map<Inode, number>;
}

/** What a disk and its file handles share: one incarnation of a process over an operation log. Calls here take effect at once. */
export class DiskCore {
  readonly log: OperationLog;
  readonly completion: Completion;
  readonly random: SimulatedRandom;
  readonly limits: DiskLimits;
  readonly faults = new FaultPlan();
  /** The process has crashed although the machine runs on: its calls take no effect any more. */
  isAbandoned = false;
  /** The machine's clock; a disk without an environment has none. */
  wallMs: () => number = () => 0;
  /** When contents last changed. A crash of the process keeps it, one of the machine does not. */
  readonly #modifiedMs: Map<Inode, number>;
  readonly #openCounts = new Map<Inode, number>();
  /** Files without a name that are still open. */
  readonly #orphans = new Set<Inode>();
  #handleCount = 0;

  constructor(log: OperationLog, { completion, random, limits, modifiedMs }: DiskCoreOptions) {
    this.log = log;
    this.#modifiedMs = modifiedMs;
    this.completion = completion;
    this.random = random;
    this.limits = limits;
  }

  get handleCount(): number {
    return this.#handleCount;
  }

  /** @throws FileError of an injected fault; SimulatedCrash */
  enter(operation: FileOperation, path: string): void {
    this.assertRunning();
    const fault = this.faults.strike(operation, path);
    if (fault !== undefined) throw new FileError(fault.code, operation, path);
  }

  assertRunning(): void {
    this.log.assertRunning();
    if (this.isAbandoned) throw new SimulatedCrash("the process is gone");
  }

  takeHandle(inode: Inode, path: string): void {
    if (this.#handleCount >= this.limits.handlesMax) throw new FileError("EMFILE", "open", path);
    this.#handleCount++;
    this.#openCounts.set(inode, (this.#openCounts.get(inode) ?? 0) + 1);
  }

  releaseHandle(inode: Inode): void {
    this.#handleCount--;
    const count = (this.#openCounts.get(inode) ?? 0) - 1;
    if (count > 0) {
      this.#openCounts.set(inode, count);
      return;
    }
    this.#openCounts.delete(inode);
    if (this.#orphans.delete(inode)) this.log.live.forget(inode);
  }

  /** The last name of a file is gone: its space is free once it is closed. */
  orphan(inode: Inode): void {
    if (this.#openCounts.has(inode)) this.#orphans.add(inode);
    else this.log.live.forget(inode);
  }

  read(inode: Inode, path: string, target: Uint8Array, positionBytes: number): number {
    this.enter("read", path);
    const { bytes } = this.log.live.content(inode);
    const available = Math.max(0, Math.min(target.length, bytes.length - positionBytes));
    const count = this.#shorten(path, available);
    target.set(bytes.subarray(positionBytes, positionBytes + count));
    return count;
  }

  write(inode: Inode, path: string, source: Uint8Array, positionBytes: number): number {
    this.assertRunning();
    if (positionBytes + source.length > FILE_BYTES_MAX) throw new FileError("EIO", "write", path);
    const fault = this.faults.strike("write", path);
    if (fault !== undefined) {
      if (fault.written === "part") {
        this.#put(inode, path, source, positionBytes, this.random.below(`disk.part/${path}`, source.length + 1));
      }
      throw new FileError(fault.code, "write", path);
    }
    if (source.length === 0) return 0;
    const room = this.#roomBytes(inode, positionBytes);
    if (room <= 0) throw new FileError("ENOSPC", "write", path);
    const count = this.#shorten(path, Math.min(source.length, room));
    this.#put(inode, path, source, positionBytes, count);
    return count;
  }

  truncate(inode: Inode, path: string, sizeBytes: number): void {
    this.enter("truncate", path);
    const current = this.log.live.content(inode).sizeBytes;
    if (sizeBytes > current && this.#roomBytes(inode, current) < sizeBytes - current) {
      throw new FileError("ENOSPC", "truncate", path);
    }
    if (sizeBytes === current) return;
    this.log.record({ type: "truncate", inode, sizeBytes, path });
    this.#modifiedMs.set(inode, this.wallMs());
  }

  /** Of a file that nobody has written to since the machine was started: now. */
  modifiedMs(inode: Inode): number {
    const modifiedMs = this.#modifiedMs.get(inode) ?? this.wallMs();
    this.#modifiedMs.set(inode, modifiedMs);
    return modifiedMs;
  }

  /** @param before covers the operations below this number: those that had happened when the call was made */
  sync(inode: Inode, path: string, before: number): void {
    this.assertRunning();
    const fault = this.faults.strike("sync", path);
    if (fault === undefined) {
      this.log.record({ type: "sync", inode, before, path });
      return;
    }
    if (fault.pages !== "dirty") {
      this.log.record({ type: "failedSync", inode, before, reads: fault.pages ?? "new", path });
    }
    throw new FileError(fault.code, "sync", path);
  }

  #put(inode: Inode, path: string, source: Uint8Array, positionBytes: number, count: number): void {
    if (count === 0) return;
    this.log.record({ type: "write", inode, positionBytes, bytes: copyBytes(source.subarray(0, count)), path });
    this.#modifiedMs.set(inode, this.wallMs());
  }

  #shorten(path: string, count: number): number {
    const oneIn = this.limits.shortTransferOneIn;
    if (oneIn === 0 || count < 2 || this.random.below(`disk.short/${path}`, oneIn) !== 0) return count;
    return 1 + this.random.below(`disk.short/${path}`, count - 1);
  }

  /** Bytes that a write at this position may have: those that it overwrites, and those that are free. */
  #roomBytes(inode: Inode, positionBytes: number): number {
    const { capacityBytes } = this.limits;
    if (capacityBytes === Number.POSITIVE_INFINITY) return capacityBytes;
    let usedBytes = 0;
    for (const other of this.log.live.inodes) usedBytes += this.log.live.content(other).sizeBytes;
    return this.log.live.content(inode).sizeBytes + capacityBytes - usedBytes - positionBytes;
  }
}
