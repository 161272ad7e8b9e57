import * as fs from "node:fs";
import type { FileLock } from "@tidemark/base";
import { FileError } from "@tidemark/base";
import { systemErrorCode, toFileError } from "./file-errors.ts";
import type { Callback } from "./system-call.ts";
import { systemCall } from "./system-call.ts";

/** Takes the exclusive lock of a whole open file; false when another holder has it. */
export type TryLock = (descriptor: number) => boolean;

/** What a file system without locks answers; NFS without a lock daemon says ENOLCK. */
const UNSUPPORTED_CODES: ReadonlySet<string> = new Set(["ENOTSUP", "EOPNOTSUPP", "ENOSYS", "ENOLCK", "EINVAL"]);

/**
 * The native addon's lock. On Linux it is an `fcntl` lock of the open file (F_OFD_SETLK): it conflicts with the lock that a JVM
 * takes, also with one of this process, goes with the last descriptor of that open file and so with the process, and, unlike
 * the classic per-process lock, is not dropped when another descriptor of the same file is closed.
 */
export async function loadTryLock(): Promise<TryLock> {
  const { tryLock } = await import("fs-native-extensions");
  return (descriptor) => tryLock(descriptor, 0, 0);
}

/** See `FileSystem.lock`. */
export async function lockFile(path: string, load: () => Promise<TryLock>): Promise<FileLock> {
  let tryLock: TryLock;
  try {
    tryLock = await load();
  } catch (error) {
    throw new FileError("ENOTSUP", "lock", path, { cause: error });
  }
  const descriptor = await systemCall("lock", path, (done: Callback<number>) => {
    fs.open(path, fs.constants.O_RDWR | fs.constants.O_CREAT, done);
  });
  try {
    if (!tryLock(descriptor)) throw new FileError("EBUSY", "lock", path);
  } catch (error) {
    fs.closeSync(descriptor);
    throw toLockError(error, path);
  }
  return new NodeFileLock(path, descriptor);
}

function toLockError(error: unknown, path: string): FileError {
  const code = systemErrorCode(error);
  // POSIX lets a system answer EACCES, in place of EAGAIN, when the lock is held.
  if (code === "EACCES") return new FileError("EBUSY", "lock", path, { cause: error });
  if (UNSUPPORTED_CODES.has(code)) return new FileError("ENOTSUP", "lock", path, { cause: error });
  return toFileError(error, "lock", path);
}

class NodeFileLock implements FileLock {
  readonly #path: string;
  readonly #descriptor: number;
  #released: Promise<void> | undefined;

  constructor(path: string, descriptor: number) {
    this.#path = path;
    this.#descriptor = descriptor;
  }

  release(): Promise<void> {
    this.#released ??= systemCall("lock", this.#path, (done: Callback<void>) => {
      fs.close(this.#descriptor, (error) => done(error ?? null, undefined));
    });
    return this.#released;
  }
}
