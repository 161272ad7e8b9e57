import { readFile, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { joinPath } from "@tidemark/base";
import { verifyDirectory as verifyLogDirectory } from "@tidemark/log";
import type { VerifyOptions, VerifyReport } from "@tidemark/log";
import { NODE_JOBS, NodeFileSystem } from "@tidemark/runtime-node";
import { translated } from "./error.ts";
import { placesOf } from "./node-places.ts";
import { frozenState, readStateCopy } from "./state-copy.ts";

/** What the check asks of a node's state. */
const KEYS_ASKED = ["log-directory/", "segment-gap/"];

/**
 * Reads everything in a log's directory and says what is wrong. Never writes there and takes no lock: the directory may be closed,
 * killed or in use. What the node knows besides is read from a copy of its state, in the system's temporary directory.
 * @param directory that of `Tidemark.open`, a Kafka log directory, or the directory of one partition
 * @returns findings; damage is a finding, not an error
 * @throws TidemarkError KAFKA_STORAGE_ERROR when the directory itself cannot be read
 */
export async function verifyDirectory(
  directory: string,
  options: Pick<VerifyOptions, "onProgress" | "checkCancelled"> = {},
): Promise<VerifyReport> {
  const files = new NodeFileSystem();
  const path = resolve(directory);
  return translated(
    (async () => {
      const { logDirectory, stateDirectory } = await placesOf(files, path);
      const state =
        stateDirectory === undefined
          ? undefined
          : await readStateCopy(stateDirectory, (copy) => frozenState(copy, KEYS_ASKED));
      return verifyLogDirectory({
        ...options,
        files,
        workers: NODE_JOBS,
        directory: logDirectory,
        isInUse: await isLocked(joinPath(logDirectory, ".lock")),
        state,
      });
    })(),
  );
}

/**
 * Whether some process holds a lock on the file, as Linux lists them: asking takes no lock, so it never makes an opening node
 * fail. `undefined` where there is no such list.
 */
export async function isLocked(path: string): Promise<boolean | undefined> {
  let locks: string;
  try {
    locks = await readFile("/proc/locks", "utf8");
  } catch {
    return undefined;
  }
  try {
    const { ino } = await stat(path, { bigint: true });
    // "1: OFDLCK ADVISORY  WRITE -1 08:01:131090 0 EOF". Some file systems list another device than they show, so the inode decides.
    return locks
      .split("\n")
      .some((line) => / WRITE /.test(line) && line.split(/\s+/)[5]?.split(":")[2] === String(ino));
  } catch {
    return false; // No lock file: nothing was ever opened here.
  }
}
