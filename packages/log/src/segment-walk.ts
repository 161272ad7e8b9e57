import type { FileHandle } from "@tidemark/base";
import { checkCrc, isControlBatch, readBatchHeader, RECORD_BATCH_OVERHEAD, scanBatch } from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import type { DirectIo } from "./direct-io.ts";

/** Read at a time; grows for a batch that is larger when its CRC is asked for. */
const WALK_CHUNK_BYTES = 128 * 1024;

/** A control batch is read whole up to this size: a marker has 78 bytes, one of the quorum a few hundred. */
const CONTROL_BATCH_BYTES_MAX = 64 * 1024;

/** Where and why a walk over the batches of a segment ended. */
export type WalkEnd =
  | { readonly type: "end"; readonly positionBytes: number }
  | { readonly type: "incomplete"; readonly positionBytes: number }
  | { readonly type: "corrupt"; readonly positionBytes: number; readonly reason: string };

export interface WalkOptions {
  readonly io: DirectIo;
  readonly file: FileHandle;
  /** The batches of `[fromBytes, toBytes)`; `fromBytes` must be the begin of one. */
  readonly fromBytes: number;
  readonly toBytes: number;
  /** Read at a time. Default 128 KiB. */
  readonly chunkBytes?: number;
  /** Reads and checks whole batches; otherwise only their headers are read and looked at. */
  readonly verifyCrc: boolean;
  /** Makes `bytes` hold control batches whole. Default false. */
  readonly readsControlBatches?: boolean;
  /**
   * Called for each batch with its place in the file. A returned string ends the walk there as corrupt, for that reason.
   * @param bytes hold the header at `header.positionBytes`, and the batch where `verifyCrc` or `readsControlBatches` asks for it
   */
  onBatch(header: BatchHeader, positionBytes: number, bytes: Uint8Array): string | undefined;
}

/**
 * Walks the batches of a segment file in order.
 *
 * Bounded memory: one chunk, or one batch where that is larger and CRCs are checked. A walk always advances or ends: a size
 * below a header, as in a tail of zeros, is corrupt.
 * @throws FileError
 */
export async function walkSegment(options: WalkOptions): Promise<WalkEnd> {
  const { io, file, toBytes, verifyCrc } = options;
  let positionBytes = options.fromBytes;
  let chunk = new Uint8Array(Math.min(options.chunkBytes ?? WALK_CHUNK_BYTES, Math.max(toBytes - positionBytes, 0)));
  let chunkBytesWanted = chunk.length;
  while (positionBytes < toBytes) {
    if (chunk.length < chunkBytesWanted) chunk = new Uint8Array(chunkBytesWanted);
    const asked = Math.min(chunk.length, toBytes - positionBytes);
    const count = await io.read(file, asked === chunk.length ? chunk : chunk.subarray(0, asked), positionBytes);
    if (count < asked) return { type: "incomplete", positionBytes };
    let at = 0;
    while (at < count) {
      const scan = verifyCrc ? scanBatch(chunk, at, count) : readBatchHeader(chunk.subarray(0, count), at);
      if (scan.type === "corrupt") return { type: "corrupt", positionBytes: positionBytes + at, reason: scan.reason };
      if (scan.type === "incomplete") {
        if (positionBytes + at + scan.neededBytes > toBytes)
          return { type: "incomplete", positionBytes: positionBytes + at };
        chunkBytesWanted = Math.max(scan.neededBytes, RECORD_BATCH_OVERHEAD, chunk.length);
        break;
      }
      const { header } = scan;
      if (positionBytes + at + header.sizeInBytes > toBytes)
        return { type: "incomplete", positionBytes: positionBytes + at };
      if (verifyCrc && !checkCrc(chunk, header))
        return { type: "corrupt", positionBytes: positionBytes + at, reason: "CRC" };
      if (options.readsControlBatches === true && isCutControlBatch(header, count)) {
        chunkBytesWanted = Math.max(header.sizeInBytes, chunk.length);
        break;
      }
      const refusal = options.onBatch(header, positionBytes + at, chunk);
      if (refusal !== undefined) return { type: "corrupt", positionBytes: positionBytes + at, reason: refusal };
      at += header.sizeInBytes;
    }
    positionBytes += at;
  }
  return { type: "end", positionBytes };
}

/** Whether a control batch goes on behind the chunk; one that claims more than any has is not read for that. */
function isCutControlBatch(header: BatchHeader, chunkBytes: number): boolean {
  return (
    isControlBatch(header) &&
    header.positionBytes + header.sizeInBytes > chunkBytes &&
    header.sizeInBytes <= CONTROL_BATCH_BYTES_MAX
  );
}

export interface BatchSearch {
  readonly io: DirectIo;
  readonly file: FileHandle;
  readonly fromBytes: number;
  readonly toBytes: number;
  /** The batch sought has a base offset in `[minOffset, maxOffset)`. */
  readonly minOffset: number;
  readonly maxOffset: number;
}

/**
 * The first whole batch with a right CRC at or after a place that is not known to be the begin of one.
 *
 * For the way out of a damaged range below the recovery point only: at a torn tail, what follows is not to be trusted.
 * Cost: reads the range; a CRC only where the 61 bytes before look like a header.
 * @throws FileError
 */
export async function findNextBatch(
  search: BatchSearch,
): Promise<{ header: BatchHeader; positionBytes: number } | undefined> {
  const { io, file, toBytes, minOffset, maxOffset } = search;
  const window = new Uint8Array(WALK_CHUNK_BYTES);
  let windowBytes = search.fromBytes;
  while (windowBytes + RECORD_BATCH_OVERHEAD <= toBytes) {
    const count = await io.read(file, window.subarray(0, Math.min(window.length, toBytes - windowBytes)), windowBytes);
    if (count < RECORD_BATCH_OVERHEAD) return undefined;
    const last = count - RECORD_BATCH_OVERHEAD;
    for (let at = 0; at <= last; at += 1) {
      if (window[at + 16] !== 2) continue;
      const scan = readBatchHeader(window.subarray(0, count), at);
      if (scan.type !== "batch") continue;
      const { header } = scan;
      const positionBytes = windowBytes + at;
      if (header.baseOffset < minOffset || header.baseOffset >= maxOffset) continue;
      if (positionBytes + header.sizeInBytes > toBytes) continue;
      const batch = new Uint8Array(header.sizeInBytes);
      if ((await io.read(file, batch, positionBytes)) < batch.length) continue;
      const whole = scanBatch(batch, 0);
      if (whole.type === "batch" && checkCrc(batch, whole.header)) return { header: whole.header, positionBytes };
    }
    windowBytes += last + 1;
  }
  return undefined;
}
