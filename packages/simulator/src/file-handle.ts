import { fail, FileError } from "@tidemark/base";
import type { FileHandle, FileOperation } from "@tidemark/base";
import { copyBytes, isEqualBytes } from "./bytes.ts";
import type { DiskCore } from "./disk-core.ts";
import type { Inode } from "./operation.ts";

/** What a kibibyte adds to the cost of a direct call, microseconds. */
const DIRECT_KIBIBYTE_US = 0.5;

export class SimulatedFileHandle implements FileHandle {
  readonly path: string;
  readonly #core: DiskCore;
  readonly #inode: Inode;
  readonly #isWritable: boolean;
  #isOpen = true;
  /** Calls in flight, which a close lets end as if it had not come. */
  #callCount = 0;
  #releaseWaits = false;

  /** The handle is already counted in `core`. */
  constructor(core: DiskCore, inode: Inode, path: string, isWritable: boolean) {
    this.#core = core;
    this.#inode = inode;
    this.path = path;
    this.#isWritable = isWritable;
  }

  readAt(target: Uint8Array, positionBytes: number): Promise<number> {
    return this.#run("read", () => this.#core.read(this.#inode, this.path, target, positionBytes));
  }

  writeAt(source: Uint8Array, positionBytes: number): Promise<number> {
    const atCall = this.#core.completion.isImmediate ? source : copyBytes(source);
    return this.#run("write", () => {
      this.#assertWritable("write");
      if (!isEqualBytes(atCall, source)) fail("the bytes of a write in flight do not change", { path: this.path });
      return this.#core.write(this.#inode, this.path, atCall, positionBytes);
    });
  }

  readNow(target: Uint8Array, positionBytes: number): number {
    this.#assertOpen("read");
    this.#spend(target.length);
    return this.#core.read(this.#inode, this.path, target, positionBytes);
  }

  writeNow(source: Uint8Array, positionBytes: number): number {
    this.#assertOpen("write");
    this.#assertWritable("write");
    this.#spend(source.length);
    return this.#core.write(this.#inode, this.path, source, positionBytes);
  }

  truncate(sizeBytes: number): Promise<void> {
    return this.#run("truncate", () => {
      this.#assertWritable("truncate");
      this.#core.truncate(this.#inode, this.path, sizeBytes);
    });
  }

  sync(): Promise<void> {
    const before = this.#core.log.operationCount;
    return this.#run("sync", () => this.#core.sync(this.#inode, this.path, before));
  }

  size(): Promise<number> {
    return this.#run("size", () => {
      this.#core.enter("size", this.path);
      return this.#core.log.live.content(this.#inode).sizeBytes;
    });
  }

  modifiedMs(): Promise<number> {
    return this.#run("size", () => {
      this.#core.enter("size", this.path);
      return this.#core.modifiedMs(this.#inode);
    });
  }

  /** Idempotent: the second call does not reach the file. */
  close(): Promise<void> {
    const wasOpen = this.#isOpen;
    this.#isOpen = false;
    return this.#core.completion.run("disk.close", () => {
      if (!wasOpen) return;
      this.#core.assertRunning();
      this.#releaseWaits = true;
      this.#releaseIfIdle();
      this.#core.enter("close", this.path);
    });
  }

  /** Whether the handle is open is decided at the call: a close overtakes nothing. */
  #run<T>(operation: FileOperation, effect: () => T): Promise<T> {
    const wasOpen = this.#isOpen;
    this.#callCount++;
    const take = (): T => {
      try {
        if (!wasOpen) throw new FileError("EBADF", operation, this.path);
        return effect();
      } finally {
        this.#callCount--;
        this.#releaseIfIdle();
      }
    };
    const { completion, faults } = this.#core;
    const stalled = faults.stalled(operation, this.path);
    if (stalled === undefined) return completion.run(`disk.${operation}`, take);
    return stalled.then(() => completion.run(`disk.${operation}`, take));
  }

  #releaseIfIdle(): void {
    if (!this.#releaseWaits || this.#callCount > 0) return;
    this.#releaseWaits = false;
    this.#core.releaseHandle(this.#inode);
  }

  /** A direct call holds up the whole process. */
  #spend(count: number): void {
    this.#core.completion.spend(this.#core.limits.directCallUs + (count / 1024) * DIRECT_KIBIBYTE_US);
  }

  #assertOpen(operation: FileOperation): void {
    if (!this.#isOpen) throw new FileError("EBADF", operation, this.path);
  }

  #assertWritable(operation: FileOperation): void {
    if (!this.#isWritable) throw new FileError("EBADF", operation, this.path);
  }
}
