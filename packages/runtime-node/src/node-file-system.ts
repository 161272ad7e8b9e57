import * as fs from "node:fs";
import type { FileHandle, FileLock, FileOperation, FileSystem, OpenMode } from "@tidemark/base";
import { directoryOf, FileError } from "@tidemark/base";
import { NodeFileHandle } from "./node-file-handle.ts";
import type { TryLock } from "./node-file-lock.ts";
import { loadTryLock, lockFile } from "./node-file-lock.ts";
import type { Callback } from "./system-call.ts";
import { systemCall } from "./system-call.ts";

const { O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, O_TRUNC } = fs.constants;

const OPEN_FLAGS: { readonly [Mode in OpenMode]: number } = {
  read: O_RDONLY,
  write: O_RDWR,
  create: O_RDWR | O_CREAT,
  truncate: O_RDWR | O_CREAT | O_TRUNC,
};

/** The files of the operating system. Holds no state: any number of these see the same files and locks. */
export class NodeFileSystem implements FileSystem {
  readonly #loadTryLock: () => Promise<TryLock>;

  /** @param options `loadTryLock` stands in for the native addon where a test needs it to fail */
  constructor(options: { readonly loadTryLock?: () => Promise<TryLock> } = {}) {
    this.#loadTryLock = options.loadTryLock ?? loadTryLock;
  }

  async open(path: string, mode: OpenMode): Promise<FileHandle> {
    const descriptor = await openDescriptor("open", path, OPEN_FLAGS[mode]);
    const file = new NodeFileHandle(path, descriptor, mode !== "read");
    // The system refuses a directory for writing, but opens it for reading and fails at the first read.
    if (mode === "read" && (await isDirectory(path, descriptor))) {
      await file.close();
      throw new FileError("EISDIR", "open", path);
    }
    return file;
  }

  rename(from: string, to: string): Promise<void> {
    return systemCall("rename", from, (done: Callback<void>) => fs.rename(from, to, asVoid(done)));
  }

  unlink(path: string): Promise<void> {
    return systemCall("unlink", path, (done: Callback<void>) => fs.unlink(path, asVoid(done)));
  }

  list(directory: string): Promise<readonly string[]> {
    return systemCall("list", directory, (done: Callback<string[]>) => fs.readdir(directory, done));
  }

  /** Level by level: Node's own recursive call does not end where a file system refuses new names as absent, as /proc does. */
  async makeDirectory(path: string): Promise<void> {
    try {
      await makeOneDirectory(path);
    } catch (error) {
      const parent = directoryOf(path);
      if (!(error instanceof FileError && error.code === "ENOENT") || parent === path || parent === ".") throw error;
      await this.makeDirectory(parent);
      await makeOneDirectory(path);
    }
  }

  removeDirectory(path: string): Promise<void> {
    return systemCall("removeDirectory", path, (done: Callback<void>) => fs.rmdir(path, asVoid(done)));
  }

  async syncDirectory(directory: string): Promise<void> {
    const descriptor = await openDescriptor("syncDirectory", directory, O_RDONLY | O_DIRECTORY);
    try {
      await systemCall("syncDirectory", directory, (done: Callback<void>) => fs.fsync(descriptor, asVoid(done)));
    } finally {
      await systemCall("syncDirectory", directory, (done: Callback<void>) => fs.close(descriptor, asVoid(done)));
    }
  }

  lock(path: string): Promise<FileLock> {
    return lockFile(path, this.#loadTryLock);
  }
}

function openDescriptor(operation: FileOperation, path: string, flags: number): Promise<number> {
  return systemCall(operation, path, (done: Callback<number>) => fs.open(path, flags, done));
}

async function isDirectory(path: string, descriptor: number): Promise<boolean> {
  const stats = await systemCall("open", path, (done: Callback<fs.Stats>) => fs.fstat(descriptor, done));
  return stats.isDirectory();
}

function asVoid(done: Callback<void>): (error: Error | null) => void {
  return (error) => done(error, undefined);
}

/** An existing directory is no error. */
async function makeOneDirectory(path: string): Promise<void> {
  try {
    await systemCall("makeDirectory", path, (done: Callback<void>) => fs.mkdir(path, done));
  } catch (error) {
    if (!(error instanceof FileError && error.code === "EEXIST")) throw error;
    const stats = await systemCall("makeDirectory", path, (done: Callback<fs.Stats>) => fs.stat(path, done));
    if (!stats.isDirectory()) throw error;
  }
}
