import { resolve } from "node:path";
import { LogError, repairDirectory as repairLogDirectory } from "@tidemark/log";
import type { RepairReport } from "@tidemark/log";
import { NodeFileSystem, openEnvironment } from "@tidemark/runtime-node";
import { translated } from "./error.ts";
import { openLmdbState } from "./node-directory.ts";
import { placesOf } from "./node-places.ts";
import { frozenState, readStateCopy } from "./state-copy.ts";

export interface RepairDirectoryOptions {
  /** Gives up what cannot be read. Default false: it is listed only, and nothing is changed. */
  readonly acceptLoss?: boolean;
  /** As that of `Tidemark.open`. */
  readonly lock?: "fcntl" | "none" | undefined;
  /** Asked between partitions; what it throws ends the work. */
  readonly checkCancelled?: () => void;
}

/**
 * Makes partitions writable again that are read-only around damage, by giving up what cannot be read. Reads every batch; takes the
 * directory's lock meanwhile. What it was about to do when it was killed, the next call does.
 *
 * For a node that has no replicas elsewhere: what is given up here, another replica may have.
 * @param directory that of `Tidemark.open`
 * @returns what was given up, or would be
 * @throws TidemarkError UNKNOWN_DIRECTORY, META_PROPERTIES_INVALID; LOG_DIRECTORY_LOCKED, LOG_DIRECTORY_LOCK_UNSUPPORTED; KAFKA_STORAGE_ERROR
 */
export async function repairDirectory(directory: string, options: RepairDirectoryOptions = {}): Promise<RepairReport> {
  const { acceptLoss = false, lock, checkCancelled } = options;
  const path = resolve(directory);
  return translated(
    (async () => {
      const files = new NodeFileSystem();
      const { logDirectory, stateDirectory } = await placesOf(files, path);
      if (stateDirectory === undefined || logDirectory === path) {
        const reason = "not a directory of Tidemark.open, which holds a log and the state that goes with it";
        throw new LogError({ code: "UNKNOWN_DIRECTORY", path, reason });
      }
      const environment = openEnvironment();
      try {
        return await repairLogDirectory({
          environment,
          directory: logDirectory,
          acceptsLoss: acceptLoss,
          lock,
          checkCancelled,
          openState: async () => {
            if (acceptLoss) return (await openLmdbState(files, stateDirectory)).state;
            return (await readStateCopy(stateDirectory, (state) => frozenState(state, [""]))) ?? frozenState();
          },
        });
      } finally {
        await environment.close();
      }
    })(),
  );
}
