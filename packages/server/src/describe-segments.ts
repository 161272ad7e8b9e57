import { open, readdir } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { LOG_SUFFIX, parseSegmentFileName } from "@tidemark/log";
import { readBatchHeader, RECORD_BATCH_OVERHEAD } from "@tidemark/wire";

const WINDOW_BYTES = 256 * 1024;

export interface SegmentFile {
  readonly path: string;
  readonly baseOffset: number;
}

/** The segment files of a partition, by base offset. */
export async function segmentsOf(directory: string): Promise<readonly SegmentFile[]> {
  const segments: SegmentFile[] = [];
  for (const name of await readdir(directory)) {
    const baseOffset = parseSegmentFileName(name, LOG_SUFFIX);
    if (baseOffset !== undefined) segments.push({ path: join(directory, name), baseOffset });
  }
  return segments.toSorted((first, second) => first.baseOffset - second.baseOffset);
}

/** Where the last segment's whole batches end; what cannot be walked becomes a problem. */
export async function walkedEndOffset(segments: readonly SegmentFile[], problems: string[]): Promise<number> {
  const last = segments.at(-1);
  if (last === undefined) {
    problems.push("no segment file");
    return 0;
  }
  let file: FileHandle;
  try {
    file = await open(last.path, "r");
  } catch (error) {
    problems.push(error instanceof Error ? error.message : String(error));
    return last.baseOffset;
  }
  try {
    return await walk(file, last, problems);
  } finally {
    await file.close();
  }
}

/** Reads headers only: a large batch costs no more than a small one. */
async function walk(file: FileHandle, segment: SegmentFile, problems: string[]): Promise<number> {
  const { size } = await file.stat();
  let endOffset = segment.baseOffset;
  let window = new Uint8Array(0);
  let windowStart = 0;
  for (let position = 0; position < size;) {
    if (position + RECORD_BATCH_OVERHEAD > windowStart + window.length) {
      window = new Uint8Array(Math.min(WINDOW_BYTES, size - position));
      const { bytesRead } = await file.read(window, 0, window.length, position);
      window = window.subarray(0, bytesRead);
      windowStart = position;
    }
    const scan = readBatchHeader(window, position - windowStart);
    if (scan.type !== "batch" || position + scan.header.sizeInBytes > size) {
      const reason = scan.type === "corrupt" ? scan.reason : "the file ends inside a batch";
      problems.push(`${segment.path}: ${size - position} bytes from byte ${position} are no whole batch: ${reason}`);
      break;
    }
    endOffset = scan.header.lastOffset + 1;
    position += scan.header.sizeInBytes;
  }
  return endOffset;
}
