import type { FileHandle, FileSystem } from "./environment.ts";
import { FileError } from "./errors.ts";

/** How often in a row a write may take nothing before it is reported as ENOSPC: the file system has no more to give. */
const EMPTY_WRITES_MAX = 3;

/**
 * Reads until `target` is full or the file ends.
 * @returns bytes read; fewer than `target.length` only at the end of the file
 */
export async function readFully(file: FileHandle, target: Uint8Array, positionBytes: number): Promise<number> {
  let count = 0;
  while (count < target.length) {
    const read = await file.readAt(target.subarray(count), positionBytes + count);
    if (read === 0) break;
    count += read;
  }
  return count;
}

/**
 * Writes all of `source`. A rejection leaves any part of it written.
 * @throws FileError
 */
export async function writeFully(file: FileHandle, source: Uint8Array, positionBytes: number): Promise<void> {
  let count = 0;
  let emptyWrites = 0;
  while (count < source.length) {
    const written = await file.writeAt(count === 0 ? source : source.subarray(count), positionBytes + count);
    count += written;
    emptyWrites = written === 0 ? emptyWrites + 1 : 0;
    if (emptyWrites === EMPTY_WRITES_MAX) throw new FileError("ENOSPC", "write", file.path);
  }
}

/** The whole file, or `undefined` when there is none. @throws FileError */
export async function readFileIfPresent(files: FileSystem, path: string): Promise<Uint8Array | undefined> {
  let file: FileHandle;
  try {
    file = await files.open(path, "read");
  } catch (error) {
    if (error instanceof FileError && error.code === "ENOENT") return undefined;
    throw error;
  }
  try {
    const content = new Uint8Array(await file.size());
    const count = await readFully(file, content, 0);
    return content.subarray(0, count);
  } finally {
    await file.close();
  }
}

/**
 * Replaces a file so that a crash leaves the old content or the new, never a mix, and so that the new one is durable once
 * this resolves: temporary file, write, sync, rename, sync of the directory.
 *
 * A crash before the rename leaves `PATH.tmp`, which the next call overwrites.
 * @throws FileError; a failed `sync` is not repeated, and the old file is then still in place
 * Source: apache/kafka server-common/.../server/common/CheckpointFile.java, Utils.atomicMoveWithFallback
 */
export async function writeFileAtomically(files: FileSystem, path: string, content: Uint8Array): Promise<void> {
  const temporaryPath = `${path}.tmp`;
  const file = await files.open(temporaryPath, "truncate");
  try {
    await writeFully(file, content, 0);
    await file.sync();
  } finally {
    await file.close();
  }
  await files.rename(temporaryPath, path);
  await files.syncDirectory(directoryOf(path));
}

/** Directory part of a path: `a/b/c` -> `a/b`, `c` -> `.`, `/c` -> `/`. */
export function directoryOf(path: string): string {
  const slash = path.lastIndexOf("/");
  if (slash < 0) return ".";
  return slash === 0 ? "/" : path.slice(0, slash);
}

/** `directory/name`. */
export function joinPath(directory: string, name: string): string {
  return directory.endsWith("/") ? directory + name : `${directory}/${name}`;
}

/** @throws FileError when that cannot be found out; `false` for what is not there */
export async function isDirectory(files: FileSystem, path: string): Promise<boolean> {
  try {
    await files.list(path);
    return true;
  } catch (error) {
    if (error instanceof FileError && (error.code === "ENOTDIR" || error.code === "ENOENT")) return false;
    throw error;
  }
}
