import { parseOffset, readFileIfPresent } from "@tidemark/base";
import type { FileSystem, Offset } from "@tidemark/base";
import { CheckpointError, decodeCheckpointLines, encodeCheckpointLines } from "@tidemark/epoch-cache";

export const RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint";
export const LOG_START_CHECKPOINT = "log-start-offset-checkpoint";
export const REPLICATION_CHECKPOINT = "replication-offset-checkpoint";
/** Up to where each log is clean: its first dirty offset. */
export const CLEANER_CHECKPOINT = "cleaner-offset-checkpoint";

/** One line of a directory-wide checkpoint file. */
export interface OffsetCheckpointEntry {
  readonly topic: string;
  readonly partition: number;
  readonly offset: Offset;
}

const FIELDS_PER_ENTRY = 3;
const PARTITION_MAX = 2 ** 31 - 1;

/**
 * Bytes of `recovery-point-`, `log-start-`, `replication-` and `cleaner-offset-checkpoint`:
 *
 * ```text
 * 0\n                            version
 * <count of entries>\n
 * <topic> <partition> <offset>\n  count times
 * ```
 *
 * Source: apache/kafka storage/.../internals/checkpoint/OffsetCheckpointFile.java
 */
export function encodeOffsetCheckpoint(entries: readonly OffsetCheckpointEntry[]): Uint8Array {
  return encodeCheckpointLines(entries.map(({ topic, partition, offset }) => [topic, partition, offset]));
}

/**
 * Entries of a checkpoint file; of a partition that is named twice the last line wins, as in Kafka.
 * @throws CheckpointError with path, line and reason
 */
export function decodeOffsetCheckpoint(bytes: Uint8Array, path: string): OffsetCheckpointEntry[] {
  const byPartition = new Map<string, OffsetCheckpointEntry>();
  for (const [index, [topic = "", partitionText = "", offsetText = ""]] of decodeCheckpointLines(
    bytes,
    path,
    FIELDS_PER_ENTRY,
  ).entries()) {
    const line = index + FIELDS_PER_ENTRY;
    const partition = parseInteger(partitionText);
    if (partition === undefined || partition < 0 || partition > PARTITION_MAX) {
      throw new CheckpointError({ path, line, reason: `partition ${partitionText} is not an int32 of at least 0` });
    }
    const number = parseInteger(offsetText);
    const offset = number === undefined ? undefined : parseOffset(number);
    if (offset === undefined) {
      throw new CheckpointError({ path, line, reason: `offset ${offsetText} is not in 0..2^53 - 1` });
    }
    byPartition.set(`${topic}-${partition}`, { topic, partition, offset });
  }
  return [...byPartition.values()];
}

/** What a checkpoint file holds: its bytes for comparing, and its entries or why it has none. */
export interface OffsetCheckpointContent {
  /** `undefined` when there is no file. */
  readonly bytes: Uint8Array | undefined;
  readonly entries: readonly OffsetCheckpointEntry[];
  /** Set when the file is not a checkpoint; `entries` is then empty, as Kafka goes on with an empty map. */
  readonly problem: string | undefined;
}

/** Reads a checkpoint file; a bad one is content, not an error. @throws FileError */
export async function readOffsetCheckpoint(files: FileSystem, path: string): Promise<OffsetCheckpointContent> {
  const bytes = await readFileIfPresent(files, path);
  if (bytes === undefined || bytes.length === 0) return { bytes, entries: [], problem: undefined };
  try {
    return { bytes, entries: decodeOffsetCheckpoint(bytes, path), problem: undefined };
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    return { bytes, entries: [], problem: error.message };
  }
}

/** The integer that a field spells with digits and an optional sign, exact to 2^53 - 1, or `undefined`. */
function parseInteger(text: string): number | undefined {
  if (!/^[+-]?\d+$/.test(text)) return undefined;
  const value = Number(text);
  return Number.isSafeInteger(value) ? value : undefined;
}
