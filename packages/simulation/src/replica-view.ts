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

/** A sequence of batches, with look-ups by offset. */
export class BatchList {
  readonly batches: ViewedBatch[] = [];
  #startOffset = 0;
  #startChain: number | undefined = 0;

  /** Where the first batch begins, or would. */
  get startOffset(): number {
    return this.#startOffset;
  }

  get endOffset(): number {
    return this.batches.length === 0 ? this.#startOffset : (this.batches.at(-1)?.lastOffset ?? 0) + 1;
  }

  /** Digest of everything below the offset; `undefined` unless a batch ends there. */
  chainAt(offset: number): number | undefined {
    if (offset === this.#startOffset) return this.#startChain;
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

  /**
   * Leaves out what lies below the offset; where that is no border of a batch here, everything.
   * @param chain digest of all that was there below it; `undefined`: nobody knows
   */
  beginAt(offset: number, chain: number | undefined): void {
    const at = this.#indexEndingAfter(offset);
    this.batches.splice(0, this.batches[at]?.baseOffset === offset ? at : this.batches.length);
    this.#startOffset = offset;
    this.#startChain = chain;
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

/**
 * The log of a replica as its disk has it, read beside the engine: from the simulated files, up to the log end that it tells. Offsets that
 * are missing below a batch leave it, and what follows, as all that is seen: nothing before them is of the log any more.
 */
export class ReplicaView extends BatchList {
  /** What is known of the digests of logs, for one that begins where nothing is left of what was before. */
  readonly #chainAt: (offset: number) => number | undefined;
  /** Of the first segment, as it was at the last look. */
  #firstBaseOffset = 0;

  constructor(chainAt: (offset: number) => number | undefined = () => undefined) {
    super();
    this.#chainAt = chainAt;
  }

  /** Where the batches end that the files still have whole. */
  endIn(environment: SimulatedEnvironment): number {
    const last = this.batches.findLast(
      ({ path, positionBytes, sizeBytes }) => positionBytes + sizeBytes <= liveContent(environment, path).length,
    );
    return last === undefined ? this.startOffset : last.lastOffset + 1;
  }

  /** Begins where the first segment of the log does: segments before it were deleted, or the log has begun anew elsewhere. */
  followStart({ segments }: PartitionLog): void {
    const baseOffset = segments[0]?.baseOffset ?? this.#firstBaseOffset;
    if (baseOffset !== this.#firstBaseOffset) this.#jumpTo(baseOffset);
    this.#firstBaseOffset = baseOffset;
  }

  /** As a log that was cut inside a batch ends there, without it. */
  endAt(offset: number): void {
    if (offset > this.endOffset) this.#jumpTo(offset);
  }

  /** @returns the batches that are new. @throws Error when there are not as many as the log says */
  readTo(endOffset: number, log: PartitionLog, environment: SimulatedEnvironment): readonly ViewedBatch[] {
    const added: ViewedBatch[] = [];
    let last = this.batches.at(-1);
    let nextOffset = this.endOffset;
    if (nextOffset >= endOffset) return added;
    const { segments, directory } = log;
    let segmentOffset = -1;
    let path = "";
    let content: Uint8Array = NOTHING;
    let positionBytes = 0;
    while (nextOffset < endOffset) {
      const baseOffset = segments.findLast((segment) => segment.baseOffset <= nextOffset)?.baseOffset ?? 0;
      if (baseOffset !== segmentOffset) {
        segmentOffset = baseOffset;
        path = `${directory}/${String(baseOffset).padStart(20, "0")}.log`;
        content = liveContent(environment, path);
        positionBytes = last?.path === path ? last.positionBytes + last.sizeBytes : 0;
      }
      const scan = scanBatch(content, positionBytes);
      if (scan.type !== "batch") throw new Error(`no batch at ${positionBytes} of ${path}: ${JSON.stringify(scan)}`);
      const { lastOffset, partitionLeaderEpoch: epoch, crc, sizeInBytes: sizeBytes } = scan.header;
      // Behind a cut inside a batch, what is left of the segment comes first.
      if (lastOffset >= nextOffset) {
        if (scan.header.baseOffset > nextOffset) this.#jumpTo(scan.header.baseOffset);
        const before = this.batches.at(-1)?.chain ?? this.chainAt(this.startOffset) ?? 0;
        const chain = mix(before, [scan.header.baseOffset, lastOffset, epoch, crc, sizeBytes]);
        last = { baseOffset: scan.header.baseOffset, lastOffset, epoch, crc, chain, path, positionBytes, sizeBytes };
        this.batches.push(last);
        added.push(last);
        nextOffset = lastOffset + 1;
      }
      positionBytes += sizeBytes;
    }
    return added;
  }

  /** What lay below is deleted, and nobody's: where it differed, that is over. */
  #jumpTo(offset: number): void {
    this.beginAt(offset, this.#chainAt(offset) ?? this.chainAt(offset));
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
  let inode: number | undefined = 0;
  for (const part of path.split("/")) {
    inode = volume.entries(inode).get(part);
    if (inode === undefined) return NOTHING;
  }
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
