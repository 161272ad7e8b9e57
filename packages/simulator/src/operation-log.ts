import { SimulatedCrash } from "./completion.ts";
import { isDataOperation, isPending } from "./operation.ts";
import type { NewOperation, Operation, PendingOperation } from "./operation.ts";
import { walk } from "./volume.ts";
import type { DiskImage, Volume } from "./volume.ts";

/** A machine's storage between two operations. Nobody changes its volumes. */
export interface CrashPoint {
  /** Operations that have happened. */
  readonly number: number;
  /** What the running machine reads: survives a crash of the process. */
  readonly live: Volume;
  /** What is safe whatever happens. */
  readonly durable: Volume;
  /** What a crash of the machine may lose, in order. */
  readonly pending: readonly PendingOperation[];
  /** The operation just before. */
  readonly last: Operation | undefined;
}

/** Sweep for unreachable inodes once a volume has this many more than after the last sweep. */
const SWEEP_SLACK = 64;

/**
 * The storage of one machine: its live and durable images, and the operations between the two.
 *
 * With `keepsHistory` all operations since the start are kept, so that `crashPoints` can show the storage between any two of them:
 * one run of a script gives every crash it could have had.
 */
export class OperationLog {
  readonly #keepsHistory: boolean;
  readonly #start: CrashPoint;
  readonly #history: Operation[] = [];
  #live: Volume;
  #durable: Volume;
  #pending: PendingOperation[];
  #last: Operation | undefined;
  #number: number;
  #stopBefore = Number.POSITIVE_INFINITY;
  #nextInode: number;
  #sweepAtCount = SWEEP_SLACK;

  constructor(start: CrashPoint, options: { readonly keepsHistory: boolean }) {
    this.#keepsHistory = options.keepsHistory;
    this.#start = start;
    this.#live = start.live.clone();
    this.#durable = start.durable.clone();
    this.#pending = [...start.pending];
    this.#last = start.last;
    this.#number = start.number;
    this.#nextInode = highestInode(start) + 1;
  }

  get live(): Volume {
    return this.#live;
  }

  /** What is safe whatever happens; not to be changed. */
  get durable(): Volume {
    return this.#durable;
  }

  /** Operations so far. Also the number that the next one gets. */
  get operationCount(): number {
    return this.#number;
  }

  /** Operations since this log began; empty without history. */
  get history(): readonly Operation[] {
    return this.#history;
  }

  get isCrashed(): boolean {
    return this.#number >= this.#stopBefore;
  }

  takeInode(): number {
    return this.#nextInode++;
  }

  /** The operation with this number, and every later call, does not happen. */
  stopBefore(number: number): void {
    this.#stopBefore = number;
  }

  /** @throws SimulatedCrash when the machine or process has stopped */
  assertRunning(): void {
    if (this.isCrashed) throw new SimulatedCrash("stopped");
  }

  /** @throws SimulatedCrash as `assertRunning` */
  record(operation: NewOperation): void {
    this.assertRunning();
    const numbered: Operation = { ...operation, number: this.#number++ };
    this.#last = numbered;
    if (this.#keepsHistory) this.#history.push(numbered);
    this.#step(numbered);
  }

  /** The storage as it is now. */
  now(): CrashPoint {
    return {
      number: this.#number,
      live: this.#live.clone(),
      durable: this.#durable.clone(),
      pending: [...this.#pending],
      last: this.#last,
    };
  }

  /** The storage before the first operation of this log, between any two, and after the last. Needs the history. */
  *crashPoints(): Generator<CrashPoint, void, undefined> {
    const replay = new OperationLog(this.#start, { keepsHistory: false });
    yield replay.now();
    for (const operation of this.#history) {
      replay.#number = operation.number + 1;
      replay.#last = operation;
      replay.#step(operation);
      yield replay.now();
    }
  }

  #step(operation: Operation): void {
    if (isPending(operation)) {
      this.#live.apply(operation);
      this.#pending.push(operation);
      if (operation.type === "commit" && operation.sync) this.#settle((pending) => pending.type === "commit");
      return;
    }
    switch (operation.type) {
      case "sync":
        this.#settle((pending) => coversData(operation, pending));
        break;
      case "syncDirectory":
        this.#settle((pending) => {
          if (isDataOperation(pending) || pending.type === "commit") return false;
          return pending.directory === operation.directory && pending.number < operation.before;
        });
        this.#sweep();
        break;
      default:
        // The pages are clean: no later sync will write them.
        this.#pending = this.#pending.filter((pending) => !coversData(operation, pending));
        if (operation.reads === "old") this.#rereadFromDurable(operation.inode);
    }
  }

  #settle(isCovered: (operation: PendingOperation) => boolean): void {
    const remaining: PendingOperation[] = [];
    for (const operation of this.#pending) {
      if (isCovered(operation)) this.#durable.apply(operation);
      else remaining.push(operation);
    }
    this.#pending = remaining;
  }

  #rereadFromDurable(inode: number): void {
    this.#live.setContent(inode, this.#durable.content(inode));
    for (const operation of this.#pending) {
      if (isDataOperation(operation) && operation.inode === inode) this.#live.apply(operation);
    }
  }

  /** Inodes whose last name is gone for good would pile up in the durable image. */
  #sweep(): void {
    let count = 0;
    for (const _ of this.#durable.inodes) count++;
    if (count < this.#sweepAtCount) return;
    const kept = new Set<number>([0]);
    for (const volume of [this.#live, this.#durable]) walk(volume, (_path, inode) => kept.add(inode));
    for (const inode of this.#live.inodes) kept.add(inode); // Also files that are open without a name.
    for (const operation of this.#pending) if (operation.type !== "commit") kept.add(operation.inode);
    for (const inode of this.#durable.inodes) if (!kept.has(inode)) this.#durable.forget(inode);
    this.#sweepAtCount = kept.size * 2 + SWEEP_SLACK;
  }
}

/** A machine that has just been switched on with this image: everything on it is durable. */
export function bootFrom(image: DiskImage): CrashPoint {
  return { number: 0, live: image.volume, durable: image.volume, pending: [], last: undefined };
}

function coversData(barrier: { readonly inode: number; readonly before: number }, pending: PendingOperation): boolean {
  return isDataOperation(pending) && pending.inode === barrier.inode && pending.number < barrier.before;
}

function highestInode(point: CrashPoint): number {
  let highest = 0;
  for (const volume of [point.live, point.durable]) {
    for (const inode of volume.inodes) highest = Math.max(highest, inode);
  }
  for (const operation of point.pending) if (operation.type !== "commit") highest = Math.max(highest, operation.inode);
  return highest;
}
