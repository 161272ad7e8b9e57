import type { PartitionLog } from "@tidemark/log";
import type { SimulatedEnvironment } from "@tidemark/simulator";
import { scanBatch } from "@tidemark/wire";

const NOTHING = new Uint8Array(0);

/** One batch as it lies in a replica's file. */
export interface ViewedBatch {
  readonly baseOffset: number;
  readonly lastOffset: number;
  readonly epoch: number;
  /** Covers everything but base offset, length, epoch and magic. */
  readonly crc: number;
  /** Digest of this batch and all before it: equal for logs that are equal up to here. */
  readonly chain: number;
  readonly path: string;
  readonly positionBytes: number;
  readonly sizeBytes: number;
}

/** A sequence of batches from offset 0 on, with look-ups by offset. */
export class BatchList {
  readonly batches: ViewedBatch[] = [];

  get endOffset(): number {
    return (this.batches.at(-1)?.lastOffset ?? -1) + 1;
  }

  /** Digest of everything below the offset; `undefined` unless a batch ends there. */
  chainAt(offset: number): number | undefined {
    if (offset === 0) return 0;
    const batch = this.batches[this.#indexEndingAfter(offset - 1)];
    return batch?.lastOffset === offset - 1 ? batch.chain : undefined;
  }

  /** The batch that begins at the offset. */
  batchAt(offset: number): ViewedBatch | undefined {
    const batch = this.batches[this.#indexEndingAfter(offset)];
    return batch?.baseOffset === offset ? batch : undefined;
  }

  /** Batches that lie at or above the offset, in part or whole. */
  from(offset: number): readonly ViewedBatch[] {
    return this.batches.slice(this.#indexEndingAfter(offset));
  }

  /** Takes away all batches that reach the offset. */
  cutTo(offset: number): ViewedBatch[] {
    return this.batches.splice(this.#indexEndingAfter(offset));
  }

  /** Of the first batch whose last offset is at least this. */
  #indexEndingAfter(offset: number): number {
    let low = 0;
    let high = this.batches.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.batches[middle]?.lastOffset ?? 0) >= offset) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

/** The log of a replica as its disk has it, read beside the engine: from the simulated files, up to the log end that it tells. */
export class ReplicaView extends BatchList {
  /** Where the batches end that the files still have whole. */
  endIn(environment: SimulatedEnvironment): number {
    const last = this.batches.findLast(
      ({ path, positionBytes, sizeBytes }) => positionBytes + sizeBytes <= liveContent(environment, path).length,
    );
    return last === undefined ? 0 : last.lastOffset + 1;
  }

  /** @returns the batches that are new. @throws Error when there are not as many as the log says */
  readTo(endOffset: number, log: PartitionLog, environment: SimulatedEnvironment): readonly ViewedBatch[] {
    const firstNew = this.batches.length;
    let last = this.batches.at(-1);
    let nextOffset = this.endOffset;
    if (nextOffset >= endOffset) return [];
    const { segments, directory } = log;
    let segmentOffset = -1;
    let path = "";
    let content: Uint8Array = NOTHING;
    while (nextOffset < endOffset) {
      const baseOffset = segments.findLast((segment) => segment.baseOffset <= nextOffset)?.baseOffset ?? 0;
      if (baseOffset !== segmentOffset) {
        segmentOffset = baseOffset;
        path = `${directory}/${String(baseOffset).padStart(20, "0")}.log`;
        content = liveContent(environment, path);
      }
      const positionBytes = last?.path === path ? last.positionBytes + last.sizeBytes : 0;
      const scan = scanBatch(content, positionBytes);
      if (scan.type !== "batch") throw new Error(`no batch at ${positionBytes} of ${path}: ${JSON.stringify(scan)}`);
      const { lastOffset, partitionLeaderEpoch: epoch, crc, sizeInBytes: sizeBytes } = scan.header;
      const chain = mix(last?.chain ?? 0, [scan.header.baseOffset, lastOffset, epoch, crc, sizeBytes]);
      last = { baseOffset: scan.header.baseOffset, lastOffset, epoch, crc, chain, path, positionBytes, sizeBytes };
      this.batches.push(last);
      nextOffset = lastOffset + 1;
    }
    return this.batches.slice(firstNew);
  }
}

/** What the running machine reads at the path. */
export function liveContent(environment: SimulatedEnvironment, path: string): Uint8Array {
  const { live } = environment.files.core.log;
  return contentIn(live, path);
}

/** Whether the batch would survive the loss of everything that was not synced. */
export function isDurable(environment: SimulatedEnvironment, batch: ViewedBatch): boolean {
  const { durable } = environment.files.core.log;
  const scan = scanBatch(contentIn(durable, batch.path), batch.positionBytes);
  return scan.type === "batch" && scan.header.crc === batch.crc && scan.header.baseOffset === batch.baseOffset;
}

type Volume = SimulatedEnvironment["files"]["core"]["log"]["live"];

function contentIn(volume: Volume, path: string): Uint8Array {
  let inode = 0;
  for (const part of path.split("/")) inode = volume.entries(inode).get(part) ?? -1;
  return volume.content(inode).bytes;
}

/** 53 bits of a digest over numbers. */
function mix(start: number, values: readonly number[]): number {
  let low = start >>> 0 || 0x9e3779b9;
  let high = Math.floor(start / 2 ** 32) ^ 0x85ebca6b;
  for (const value of values) {
    low = Math.imul(low ^ value, 0x01000193) ^ (high >>> 15);
    high = Math.imul(high ^ (value + low), 0x5bd1e995) ^ (low >>> 13);
  }
  return (high >>> 11) * 2 ** 32 + (low >>> 0);
}
