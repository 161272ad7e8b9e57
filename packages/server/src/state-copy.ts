import { copyFile, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fail } from "@tidemark/base";
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

/**
 * What a state holds at this moment, as a state of its own to which nobody may write.
 * @param prefixes of the keys that are taken over. Default: an empty state
 */
export function frozenState(state?: State, prefixes: readonly string[] = []): State {
  const values = new Map<string, Uint8Array | undefined>();
  for (const key of prefixes.flatMap((prefix) => state?.keys(prefix) ?? [])) values.set(key, state?.get(key));
  return {
    get: (key) => values.get(key),
    keys: (prefix) => [...values.keys()].filter((key) => key.startsWith(prefix)),
    commit: () => fail("nobody writes to a copy of a state"),
    close: () => Promise.resolve(),
  };
}
