import { fail, FileError } from "@tidemark/base";
import type { FileHandle, FileLock, FileOperation, FileSystem, OpenMode } from "@tidemark/base";
import { immediateCompletion, KernelCompletion } from "./completion.ts";
import type { Completion } from "./completion.ts";
import { drawCrashImage, enumerateCrashImages } from "./crash-image.ts";
import type { EnumerationLimits, LossRule } from "./loss-rule.ts";
import { DIRECT_CALL_US, DiskCore } from "./disk-core.ts";
import type { DiskLimits } from "./disk-core.ts";
import type { DiskFault, InjectedFault, Stall } from "./fault.ts";
import { SimulatedFileHandle } from "./file-handle.ts";
import { bootFrom, OperationLog } from "./operation-log.ts";
import type { CrashPoint } from "./operation-log.ts";
import type { Inode, Operation } from "./operation.ts";
import { isWithin, locate, locateDirectory, partsOf } from "./path.ts";
import { SimulatedRandom } from "./random.ts";
import { DiskImage } from "./volume.ts";

export interface SimulatedDiskOptions extends Partial<DiskLimits> {
  /** Feeds short transfers, partial writes and drawn crashes. Default: seed 0. */
  readonly random?: SimulatedRandom;
  /** Default: every call takes effect at once and its promise is settled when it returns. */
  readonly completion?: Completion;
  /** Keeps all operations, for `history` and `crashPoints`. Default true; long simulations set it false. */
  readonly keepsHistory?: boolean;
}

/**
 * A machine's disk as one process sees it.
 *
 * Every mutating call is an operation with a number. Writes, truncates and changes of names are pending until the sync of their
 * file or directory; a crash of the machine loses pending operations by a loss rule, a crash of the process loses none.
 * A crash gives a new disk; calls on the old one never settle, direct calls on it throw `SimulatedCrash`.
 */
export class SimulatedDisk implements FileSystem {
  /** For `SimulatedState`, which shares the order of operations. */
  readonly core: DiskCore;
  readonly #options: SimulatedDiskOptions;
  readonly #modifiedMs: Map<Inode, number>;
  readonly #locked = new Set<Inode>();

  constructor(
    options: SimulatedDiskOptions = {},
    start: CrashPoint = bootFrom(DiskImage.empty()),
    modifiedMs = new Map<Inode, number>(),
  ) {
    this.#options = options;
    this.#modifiedMs = modifiedMs;
    const log = new OperationLog(start, { keepsHistory: options.keepsHistory ?? true });
    this.core = new DiskCore(log, {
      completion: options.completion ?? immediateCompletion,
      random: options.random ?? new SimulatedRandom(0),
      limits: {
        capacityBytes: options.capacityBytes ?? Number.POSITIVE_INFINITY,
        handlesMax: options.handlesMax ?? Number.POSITIVE_INFINITY,
        shortTransferOneIn: options.shortTransferOneIn ?? 0,
        directCallUs: options.directCallUs ?? DIRECT_CALL_US,
      },
      modifiedMs: this.#modifiedMs,
    });
  }

  /** A disk after a crash of the machine: everything in the image is durable. */
  static fromImage(image: DiskImage, options: SimulatedDiskOptions = {}): SimulatedDisk {
    return new SimulatedDisk(options, bootFrom(image));
  }

  /** A disk after a crash of the process at that point: all contents are there, what was pending still is. */
  static afterProcessCrash(point: CrashPoint, options: SimulatedDiskOptions = {}): SimulatedDisk {
    return new SimulatedDisk(options, point);
  }

  /** Capacity, open files, short transfers: may be changed at any time. */
  get limits(): DiskLimits {
    return this.core.limits;
  }

  /** Operations so far: the number of the next one. */
  get operationCount(): number {
    return this.core.log.operationCount;
  }

  /** Operations of this disk, oldest first. */
  get history(): readonly Operation[] {
    return this.core.log.history;
  }

  /** Files that are open. */
  get openFileCount(): number {
    return this.core.handleCount;
  }

  /** What the process sees now. */
  image(): DiskImage {
    return new DiskImage(this.core.log.live.clone());
  }

  /** The storage as it is now, for crash images of this moment. */
  crashPoint(): CrashPoint {
    return this.core.log.now();
  }

  /** The storage before the first operation of this disk, between any two, and after the last. Needs `keepsHistory`. */
  crashPoints(): Generator<CrashPoint, void, undefined> {
    return this.core.log.crashPoints();
  }

  /** Distinct images that a crash of the machine now could leave. */
  enumerateCrashImages(rule: LossRule, limits?: EnumerationLimits): Generator<DiskImage, void, undefined> {
    return enumerateCrashImages(this.crashPoint(), rule, limits);
  }

  /** `count` more operations happen; the one after, and every later call, does not. */
  crashAfter(count: number): void {
    this.core.log.stopBefore(this.core.log.operationCount + count);
  }

  /** Whether a crash set by `crashAfter` has come. */
  get isCrashed(): boolean {
    return this.core.isAbandoned || this.core.log.isCrashed;
  }

  /** The process dies here. @returns the disk that the next process finds: locks are free, contents complete, pending what was pending */
  crashProcess(): SimulatedDisk {
    this.core.isAbandoned = true;
    return new SimulatedDisk(this.#nextOptions(), this.core.log.now(), this.#modifiedMs);
  }

  /** The machine dies here. @returns the disk that it starts with again: one outcome of `rule`, drawn from the seed */
  crashMachine(rule: LossRule, limits?: EnumerationLimits): SimulatedDisk {
    this.core.isAbandoned = true;
    const image = drawCrashImage(this.core.log.now(), rule, this.core.random, limits);
    return SimulatedDisk.fromImage(image, this.#nextOptions());
  }

  inject(fault: DiskFault): InjectedFault {
    return this.core.faults.inject(fault);
  }

  /** Asynchronous calls take up to so much longer from now on; 0: no longer. Needs the completion of a kernel. */
  slowDown(extraUsMax: number): void {
    const { completion } = this.core;
    if (!(completion instanceof KernelCompletion)) fail("only a kernel has time", { extraUsMax });
    completion.extraUsMax = extraUsMax;
  }

  /** Asynchronous calls to open files that are not answered until it is released: a disk that hangs. */
  stall(address: { readonly operation: FileOperation; readonly path: RegExp }): Stall {
    return this.core.faults.stall(address);
  }

  open(path: string, mode: OpenMode): Promise<FileHandle> {
    return this.core.completion.run("disk.open", () => {
      this.core.enter("open", path);
      const volume = this.core.log.live;
      const place = locate(volume, path, "open");
      if (place.inode !== undefined && volume.node(place.inode)?.type === "directory") {
        throw new FileError("EISDIR", "open", path);
      }
      if (place.inode === undefined && (mode === "read" || mode === "write")) {
        throw new FileError("ENOENT", "open", path);
      }
      const inode = place.inode ?? this.core.log.takeInode();
      this.core.takeHandle(inode, path);
      if (place.inode === undefined) {
        this.core.log.record({ type: "link", directory: place.directory, name: place.name, inode, kind: "file", path });
      } else if (mode === "truncate") {
        this.core.truncate(inode, path, 0);
      }
      return new SimulatedFileHandle(this.core, inode, path, mode !== "read");
    });
  }

  rename(from: string, to: string): Promise<void> {
    return this.core.completion.run("disk.rename", () => {
      this.core.enter("rename", from);
      const volume = this.core.log.live;
      const source = locate(volume, from, "rename");
      const target = locate(volume, to, "rename", from); // As the operating system, which blames the first path.
      if (source.inode === undefined) throw new FileError("ENOENT", "rename", from);
      if (source.inode === target.inode) return;
      const isDirectory = volume.node(source.inode)?.type === "directory";
      if (isDirectory && isWithin(volume, source.inode, target.directory)) throw new FileError("EIO", "rename", from);
      this.#assertReplaceable(target.inode, isDirectory, from);
      this.core.log.record({
        type: "rename",
        fromDirectory: source.directory,
        fromName: source.name,
        directory: target.directory,
        name: target.name,
        inode: source.inode,
        path: to,
      });
      if (target.inode !== undefined) this.core.orphan(target.inode);
    });
  }

  unlink(path: string): Promise<void> {
    return this.core.completion.run("disk.unlink", () => {
      this.core.enter("unlink", path);
      const { directory, name, inode } = locate(this.core.log.live, path, "unlink");
      if (inode === undefined) throw new FileError("ENOENT", "unlink", path);
      if (this.core.log.live.node(inode)?.type === "directory") throw new FileError("EISDIR", "unlink", path);
      this.core.log.record({ type: "unlink", directory, name, inode, path });
      this.core.orphan(inode);
    });
  }

  list(directory: string): Promise<readonly string[]> {
    return this.core.completion.run("disk.list", () => {
      this.core.enter("list", directory);
      const inode = locateDirectory(this.core.log.live, directory, "list");
      return this.#shuffle([...this.core.log.live.entries(inode).keys()]);
    });
  }

  makeDirectory(path: string): Promise<void> {
    return this.core.completion.run("disk.makeDirectory", () => {
      this.core.enter("makeDirectory", path);
      const parts = partsOf(path);
      for (let depth = 1; depth <= parts.length; depth++) {
        const partial = `/${parts.slice(0, depth).join("/")}`;
        const { directory, name, inode } = locate(this.core.log.live, partial, "makeDirectory", path);
        if (inode === undefined) {
          const made = this.core.log.takeInode();
          this.core.log.record({ type: "link", directory, name, inode: made, kind: "directory", path: partial });
        } else if (this.core.log.live.node(inode)?.type !== "directory") {
          throw new FileError(depth === parts.length ? "EEXIST" : "ENOTDIR", "makeDirectory", path);
        }
      }
    });
  }

  removeDirectory(path: string): Promise<void> {
    return this.core.completion.run("disk.removeDirectory", () => {
      this.core.enter("removeDirectory", path);
      const inode = locateDirectory(this.core.log.live, path, "removeDirectory");
      if (this.core.log.live.entries(inode).size > 0) throw new FileError("ENOTEMPTY", "removeDirectory", path);
      const { directory, name } = locate(this.core.log.live, path, "removeDirectory");
      this.core.log.record({ type: "unlink", directory, name, inode, path });
      this.core.orphan(inode);
    });
  }

  syncDirectory(directory: string): Promise<void> {
    const before = this.core.log.operationCount;
    return this.core.completion.run("disk.syncDirectory", () => {
      this.core.enter("syncDirectory", directory);
      const inode = locateDirectory(this.core.log.live, directory, "syncDirectory");
      this.core.log.record({ type: "syncDirectory", directory: inode, before, path: directory });
    });
  }

  lock(path: string): Promise<FileLock> {
    return this.core.completion.run("disk.lock", () => {
      this.core.enter("lock", path);
      const place = locate(this.core.log.live, path, "lock");
      const inode = place.inode ?? this.core.log.takeInode();
      if (this.core.log.live.node(inode)?.type === "directory") throw new FileError("EISDIR", "lock", path);
      if (this.#locked.has(inode)) throw new FileError("EBUSY", "lock", path);
      if (place.inode === undefined) {
        this.core.log.record({ type: "link", directory: place.directory, name: place.name, inode, kind: "file", path });
      }
      this.#locked.add(inode);
      let isHeld = true;
      const release = (): void => {
        if (isHeld) this.#locked.delete(inode);
        isHeld = false;
      };
      return { release: () => this.core.completion.run("disk.unlock", release) };
    });
  }

  #assertReplaceable(inode: Inode | undefined, byDirectory: boolean, path: string): void {
    if (inode === undefined) return;
    const isDirectory = this.core.log.live.node(inode)?.type === "directory";
    if (isDirectory && !byDirectory) throw new FileError("EISDIR", "rename", path);
    if (!isDirectory && byDirectory) throw new FileError("ENOTDIR", "rename", path);
    if (this.core.log.live.entries(inode).size > 0) throw new FileError("ENOTEMPTY", "rename", path);
  }

  /** The port promises no order, so callers must not get one by chance. */
  #shuffle(names: string[]): string[] {
    for (let index = names.length - 1; index > 0; index--) {
      const other = this.core.random.below("disk.list", index + 1);
      const name = names[index];
      const otherName = names[other];
      if (name === undefined || otherName === undefined) break;
      names[index] = otherName;
      names[other] = name;
    }
    return names;
  }

  #nextOptions(): SimulatedDiskOptions {
    return { ...this.#options, ...this.core.limits, random: this.core.random };
  }
}
