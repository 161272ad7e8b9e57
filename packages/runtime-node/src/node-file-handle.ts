import * as fs from "node:fs";
import type { FileHandle, FileOperation } from "@tidemark/base";
import { fail, FileError } from "@tidemark/base";
import { toFileError } from "./file-errors.ts";
import type { Callback } from "./system-call.ts";
import { systemCall } from "./system-call.ts";

/** Bytes moved by one system call; Node refuses 2 GiB and more. A longer call comes back short, as any call may. */
const CALL_BYTES_MAX = 2 ** 30;

/** A file descriptor. Made by `NodeFileSystem.open`, which owns no part of it afterwards. */
export class NodeFileHandle implements FileHandle {
  readonly path: string;
  readonly #descriptor: number;
  readonly #isWritable: boolean;
  /** Calls that hold the descriptor in the thread pool. Never negative. */
  #callsInFlight = 0;
  #onIdle: (() => void) | undefined;
  /** Set by the first `close`; from then on no call begins. */
  #closed: Promise<void> | undefined;

  constructor(path: string, descriptor: number, isWritable: boolean) {
    this.path = path;
    this.#descriptor = descriptor;
    this.#isWritable = isWritable;
  }

  readAt(target: Uint8Array, positionBytes: number): Promise<number> {
    checkPosition(positionBytes);
    const countMax = Math.min(target.length, CALL_BYTES_MAX);
    return this.#call("read", (done: Callback<number>) => {
      fs.read(this.#descriptor, target, 0, countMax, positionBytes, done);
    });
  }

  writeAt(source: Uint8Array, positionBytes: number): Promise<number> {
    checkPosition(positionBytes);
    const countMax = Math.min(source.length, CALL_BYTES_MAX);
    return this.#call("write", (done: Callback<number>) => {
      fs.write(this.#descriptor, source, 0, countMax, positionBytes, done);
    });
  }

  readNow(target: Uint8Array, positionBytes: number): number {
    checkPosition(positionBytes);
    this.#checkAllowed("read");
    try {
      return fs.readSync(this.#descriptor, target, 0, Math.min(target.length, CALL_BYTES_MAX), positionBytes);
    } catch (error) {
      throw toFileError(error, "read", this.path);
    }
  }

  writeNow(source: Uint8Array, positionBytes: number): number {
    checkPosition(positionBytes);
    this.#checkAllowed("write");
    try {
      return fs.writeSync(this.#descriptor, source, 0, Math.min(source.length, CALL_BYTES_MAX), positionBytes);
    } catch (error) {
      throw toFileError(error, "write", this.path);
    }
  }

  truncate(sizeBytes: number): Promise<void> {
    checkPosition(sizeBytes);
    return this.#call("truncate", (done: Callback<void>) => fs.ftruncate(this.#descriptor, sizeBytes, asVoid(done)));
  }

  sync(): Promise<void> {
    return this.#call("sync", (done: Callback<void>) => fs.fdatasync(this.#descriptor, asVoid(done)));
  }

  async size(): Promise<number> {
    const stats = await this.#call("size", (done: Callback<fs.Stats>) => fs.fstat(this.#descriptor, done));
    return stats.size;
  }

  async modifiedMs(): Promise<number> {
    const stats = await this.#call("size", (done: Callback<fs.Stats>) => fs.fstat(this.#descriptor, done));
    return Math.floor(stats.mtimeMs);
  }

  close(): Promise<void> {
    this.#closed ??= this.#closeWhenIdle();
    return this.#closed;
  }

  async #closeWhenIdle(): Promise<void> {
    // A descriptor closed under a call in the thread pool may by then be the number of another file: the call would land there.
    if (this.#callsInFlight > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    await systemCall("close", this.path, (done: Callback<void>) => fs.close(this.#descriptor, asVoid(done)));
  }

  async #call<Result>(operation: FileOperation, begin: (done: Callback<Result>) => void): Promise<Result> {
    this.#checkAllowed(operation);
    this.#callsInFlight++;
    try {
      return await systemCall(operation, this.path, begin);
    } finally {
      this.#callsInFlight--;
      if (this.#callsInFlight === 0) this.#onIdle?.();
    }
  }

  /** The system would say EBADF to a write but EINVAL to a truncation of a file opened for read. */
  #checkAllowed(operation: FileOperation): void {
    const isRefused = (operation === "write" || operation === "truncate") && !this.#isWritable;
    if (this.#closed !== undefined || isRefused) throw new FileError("EBADF", operation, this.path);
  }
}

function checkPosition(positionBytes: number): void {
  if (!(Number.isSafeInteger(positionBytes) && positionBytes >= 0)) fail("0 <= position in a file", { positionBytes });
}

function asVoid(done: Callback<void>): (error: Error | null) => void {
  return (error) => done(error, undefined);
}
