import { readdir } from "node:fs/promises";
import { join } from "node:path";

import type { BatchHeader } from "@tidemark/wire";

import { hasCode } from "../../errors.ts";
import { segmentBaseOffset, segmentBatches } from "../../segment-file.ts";

/** A batch as it lies in the files. */
export interface StoredBatch {
  readonly header: BatchHeader;
  /** The batch alone. */
  readonly bytes: Uint8Array;
  /** `00000000000000000000.log at byte 61`. */
  readonly where: string;
}

/**
 * The whole batches of a partition directory, segment after segment. Ends at the first place that is no whole batch: the end of a
 * log that was killed or is in use. Only reads.
 * @throws errors of node:fs
 */
export async function* partitionBatches(directory: string): AsyncGenerator<StoredBatch> {
  const names = await readdir(directory).catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return []; // A broker that died before it made the topic.
    throw error;
  });
  for (const name of names.filter((candidate) => segmentBaseOffset(candidate) !== undefined).sort()) {
    for await (const step of segmentBatches(join(directory, name))) {
      if (step.type === "broken") return;
      const { header } = step;
      const bytes = step.bytes.subarray(header.positionBytes, header.positionBytes + header.sizeInBytes);
      yield { header, bytes, where: `${name} at byte ${step.positionBytes}` };
    }
  }
}

/** Batches that one log has and another has not, from some offset to its end. */
export interface DivergentTail {
  readonly brokerId: number;
  /** Offsets [fromOffset, toOffset); equal when nothing diverges. */
  readonly fromOffset: number;
  readonly toOffset: number;
  readonly batches: readonly DivergentBatch[];
}

/** What tells a batch from any other that was ever at its place. */
export interface DivergentBatch {
  readonly baseOffset: number;
  readonly lastOffset: number;
  readonly leaderEpoch: number;
  readonly crc: number;
}

/**
 * Where a log leaves the longest common prefix with another, to the byte: batch for batch, from the files alone. Knows nothing of
 * epochs, so it can judge what a truncation by epochs did.
 * @param directory of the log whose tail is asked for; nobody may be writing there
 * @param otherDirectory of a log that is only appended to meanwhile
 */
export async function divergentTail(
  brokerId: number,
  directory: string,
  otherDirectory: string,
): Promise<DivergentTail> {
  const others = partitionBatches(otherDirectory);
  const batches: DivergentBatch[] = [];
  let endOffset = 0;
  try {
    for await (const { header, bytes } of partitionBatches(directory)) {
      endOffset = header.lastOffset + 1;
      if (batches.length === 0) {
        const other = await others.next();
        if (other.done !== true && Buffer.compare(other.value.bytes, bytes) === 0) continue;
      }
      const { baseOffset, lastOffset, partitionLeaderEpoch, crc } = header;
      batches.push({ baseOffset, lastOffset, leaderEpoch: partitionLeaderEpoch, crc });
    }
  } finally {
    await others.return(undefined);
  }
  return { brokerId, fromOffset: batches[0]?.baseOffset ?? endOffset, toOffset: endOffset, batches };
}
