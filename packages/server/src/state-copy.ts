import { copyFile, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { State } from "@tidemark/base";
import { LmdbState } from "@tidemark/runtime-node";

/** A copy made while the owner writes may be torn; another one hardly is too. */
const STATE_COPIES_MAX = 3;

/**
 * Reads a copy: lmdb enters even its readers into the lock file beside the data.
 * @returns `undefined` when there is no state, or no sound copy could be had
 */
export async function readStateCopy<Result>(
  directory: string,
  read: (state: State) => Result,
): Promise<Result | undefined> {
  const path = join(directory, "data.mdb");
  const isThere = await stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );
  if (!isThere) return undefined;
  for (let copies = 0; copies < STATE_COPIES_MAX; copies += 1) {
    const copy = await mkdtemp(join(tmpdir(), "tidemark-state-copy-"));
    try {
      await copyFile(path, join(copy, "data.mdb"));
      const state = await LmdbState.open(copy);
      try {
        return read(state);
      } finally {
        await state.close();
      }
    } catch {
      continue; // Torn: the owner committed meanwhile.
    } finally {
      await rm(copy, { recursive: true, force: true });
    }
  }
  return undefined;
}
