import { directoryOf, FileError } from "@tidemark/base";
import type { FileSystem, State } from "@tidemark/base";
import { LmdbState, StateError } from "@tidemark/runtime-node";

/**
 * Opens a node's own state. A damaged one is moved aside and begun anew: nothing in it is irreplaceable, the logs are only scanned
 * from their start.
 * @throws StateError IO; FileError
 */
export async function openLmdbState(
  files: FileSystem,
  directory: string,
): Promise<{ readonly state: State; readonly movedTo: string | undefined }> {
  try {
    return { state: await LmdbState.open(directory), movedTo: undefined };
  } catch (error) {
    if (!(error instanceof StateError && error.code === "CORRUPT")) throw error;
    const movedTo = await moveAside(files, directory);
    return { state: await LmdbState.open(directory), movedTo };
  }
}

/** Makes the directory and its missing parents, each durable in the one above. */
export async function makeDirectoryDurably(files: FileSystem, directory: string): Promise<void> {
  const missing: string[] = [];
  for (let path = directory; ; path = directoryOf(path)) {
    if (path === directoryOf(path) || (await exists(files, path))) break;
    missing.push(path);
  }
  await files.makeDirectory(directory);
  for (const path of missing.reverse()) await files.syncDirectory(directoryOf(path));
}

async function exists(files: FileSystem, directory: string): Promise<boolean> {
  try {
    await files.list(directory);
    return true;
  } catch (error) {
    if (error instanceof FileError && error.code === "ENOENT") return false;
    throw error;
  }
}

async function moveAside(files: FileSystem, directory: string): Promise<string> {
  for (let number = 1; ; number += 1) {
    const target = `${directory}.damaged-${number}`;
    if (await exists(files, target)) continue;
    await files.rename(directory, target);
    await files.syncDirectory(directoryOf(directory));
    return target;
  }
}
