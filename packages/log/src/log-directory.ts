import { FileError, InvariantError, joinPath } from "@tidemark/base";
import type { FileLock, FileSystem } from "@tidemark/base";
import { LogError } from "./error.ts";
import type { StorageFailure } from "./error.ts";

/**
 * The failure domain of the partitions that share a disk: once it is offline, nothing in it is acknowledged any more.
 *
 * It goes offline for EIO on read, write, truncate, rename or sync, and for any failed sync: what a failed sync covered may be
 * gone although it still reads well, so only a reopen, which copies it afresh, makes the directory usable again.
 * Source: apache/kafka storage/.../internals/log/LogDirFailureChannel.java
 */
export class LogDirectory {
  readonly path: string;
  #offlineError: LogError | undefined;
  readonly #listeners = new Set<(error: LogError) => void>();

  constructor(path: string) {
    this.path = path;
  }

  get isOnline(): boolean {
    return this.#offlineError === undefined;
  }

  /** The first failure, which every later call in this directory answers. */
  get offlineError(): LogError | undefined {
    return this.#offlineError;
  }

  /** Idempotent: the first error stays. */
  markOffline(error: LogError): void {
    if (this.#offlineError !== undefined) return;
    this.#offlineError = error;
    for (const listener of this.#listeners) listener(error);
    this.#listeners.clear();
  }

  /** Calls once, at once if the directory is offline already. @returns a function that takes the listener away */
  onOffline(listener: (error: LogError) => void): () => void {
    if (this.#offlineError !== undefined) {
      listener(this.#offlineError);
      return () => undefined;
    }
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/**
 * What an error of the disk or of the node's state means to the log: ENOSPC and EMFILE pass, a vanished file is one
 * partition's, all else is the disk's.
 * @throws InvariantError when the error is one: a bug is not an error of the disk
 */
export function storageError(error: unknown, path: string): LogError {
  if (error instanceof LogError) return error;
  if (error instanceof InvariantError) throw error;
  const isFile = error instanceof FileError;
  return new LogError(
    {
      code: "KAFKA_STORAGE_ERROR",
      failure: isFile ? storageFailure(error) : "IO_ERROR",
      path: isFile ? error.path : path,
      operation: isFile ? error.operation : "state",
    },
    { cause: error },
  );
}

function storageFailure(error: FileError): StorageFailure {
  // A sync that fails, even for want of space, has lost track of what is on the disk.
  if (error.operation === "sync" || error.operation === "syncDirectory") return "SYNC_FAILED";
  if (error.code === "ENOSPC") return "ENOSPC";
  if (error.code === "ENOENT" || error.code === "EMFILE") return error.code;
  return "IO_ERROR";
}

/** Whether the failure takes the whole directory with it. */
export function isDirectoryFailure(error: LogError): boolean {
  const { type } = error;
  if (type.code !== "KAFKA_STORAGE_ERROR") return false;
  return type.failure === "SYNC_FAILED" || type.failure === "IO_ERROR";
}

/** One writer a directory. @throws LogError LOG_DIRECTORY_LOCKED, LOG_DIRECTORY_LOCK_UNSUPPORTED @throws FileError */
export async function lockDirectory(files: FileSystem, directory: string): Promise<FileLock> {
  try {
    return await files.lock(joinPath(directory, ".lock"));
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    if (error.code === "EBUSY") throw new LogError({ code: "LOG_DIRECTORY_LOCKED", directory }, { cause: error });
    if (error.code !== "ENOTSUP") throw error;
    throw new LogError({ code: "LOG_DIRECTORY_LOCK_UNSUPPORTED", directory }, { cause: error });
  }
}
