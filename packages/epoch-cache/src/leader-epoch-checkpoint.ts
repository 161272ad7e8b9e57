import { parseLeaderEpoch, parseOffset } from "@tidemark/base";

import { CheckpointError, decodeCheckpointLines, encodeCheckpointLines, parseInteger } from "./checkpoint-lines.ts";
import type { EpochEntry } from "./epoch-entry.ts";

/** Name of the file in a partition's directory. */
export const LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint";

/** Two head lines come before the first entry. */
const FIRST_ENTRY_LINE = 3;

/**
 * `[3@40 5@52]` -> `0\n2\n3 40\n5 52\n`.
 * Source: apache/kafka storage/.../internals/checkpoint/LeaderEpochCheckpointFile.java
 */
export function encodeLeaderEpochCheckpoint(entries: readonly EpochEntry[]): Uint8Array {
  return encodeCheckpointLines(entries.map(({ epoch, startOffset }) => [epoch, startOffset]));
}

/**
 * The entries in file order, which need not be ascending: a cache heals that.
 * @param path for the error only
 * @throws CheckpointError also where Kafka's start-up dies of an unchecked exception: an entry that is no number or
 * negative (CK-05). Start offsets above 2^53 - 1 are refused too.
 */
export function decodeLeaderEpochCheckpoint(bytes: Uint8Array, path: string): EpochEntry[] {
  return decodeCheckpointLines(bytes, path, 2).map(([epochText = "", offsetText = ""], i) => {
    const line = FIRST_ENTRY_LINE + i;
    const epoch = parseLeaderEpoch(parseInteger(epochText, path, line));
    if (epoch === undefined)
      throw new CheckpointError({ path, line, reason: `leader epoch ${epochText} is out of range` });
    const startOffset = parseOffset(parseInteger(offsetText, path, line));
    if (startOffset === undefined) {
      throw new CheckpointError({ path, line, reason: `start offset ${offsetText} is out of range` });
    }
    return { epoch, startOffset };
  });
}
