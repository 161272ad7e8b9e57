import { open, type FileHandle } from "node:fs/promises";

import { LOG_OVERHEAD, type BatchHeader, RECORD_BATCH_OVERHEAD, scanBatch } from "@tidemark/wire";

const WINDOW_BYTES = 1024 * 1024;

/** One step through a segment file: a whole batch, or the place where batches end before the file does. */
export type SegmentStep =
  /** `bytes` is good until the next step; the batch lies at `header.positionBytes` in it, and at `positionBytes` in the file. */
  | { readonly type: "batch"; readonly header: BatchHeader; readonly bytes: Uint8Array; readonly positionBytes: number }
  | { readonly type: "broken"; readonly positionBytes: number; readonly bytesLeft: number; readonly reason: string };

/**
 * Walks the batches of a `.log` file from its front, reading it in windows of 1 MiB (or of one batch, where that is larger).
 * Opens the file for reading only. Does not check CRCs. A "broken" step is the last.
 * @throws errors of node:fs
 */
export async function* segmentBatches(path: string): AsyncGenerator<SegmentStep> {
  const file = await open(path, "r");
  try {
    yield* batchesOf(file);
  } finally {
    await file.close();
  }
}

async function* batchesOf(file: FileHandle): AsyncGenerator<SegmentStep> {
  const sizeBytes = (await file.stat()).size;
  let windowPosition = 0; // Place in the file of the window's first byte.
  let window: Uint8Array = new Uint8Array(0);
  let position = 0; // Place in the file of the next batch.
  let wantedBytes = RECORD_BATCH_OVERHEAD;
  while (position < sizeBytes) {
    const bytesLeft = sizeBytes - position;
    if (windowPosition + window.length - position < Math.min(wantedBytes, bytesLeft)) {
      window = await readWindow(file, position, Math.min(Math.max(wantedBytes, WINDOW_BYTES), bytesLeft));
      windowPosition = position;
      if (window.length === 0) return; // The file has become shorter meanwhile.
    }
    const scan = scanBatch(window, position - windowPosition);
    if (scan.type === "batch") {
      yield { type: "batch", header: scan.header, bytes: window, positionBytes: position };
      position += scan.header.sizeInBytes;
      wantedBytes = RECORD_BATCH_OVERHEAD;
    } else if (scan.type === "incomplete" && scan.neededBytes <= bytesLeft && scan.neededBytes > wantedBytes) {
      wantedBytes = scan.neededBytes; // The window ends inside the batch: read again from its front.
    } else {
      yield { type: "broken", positionBytes: position, bytesLeft, reason: reasonOf(scan, bytesLeft) };
      return;
    }
  }
}

function reasonOf(scan: Exclude<ReturnType<typeof scanBatch>, { type: "batch" }>, bytesLeft: number): string {
  if (scan.type === "corrupt") return scan.reason;
  if (bytesLeft < LOG_OVERHEAD) return `the file ends ${bytesLeft} bytes into a batch`;
  return `a batch of ${scan.neededBytes} bytes, of which the file holds ${bytesLeft}`;
}

async function readWindow(file: FileHandle, positionBytes: number, lengthBytes: number): Promise<Uint8Array> {
  const window = new Uint8Array(lengthBytes); // Fresh each time: views of the last one may still be held.
  let count = 0;
  while (count < lengthBytes) {
    const { bytesRead } = await file.read(window, count, lengthBytes - count, positionBytes + count);
    if (bytesRead === 0) break;
    count += bytesRead;
  }
  return window.subarray(0, count);
}

const SEGMENT_NAME = /^(\d{20})\.log$/u;

/** Base offset in the name of a segment file, or `undefined` for another file. */
export function segmentBaseOffset(name: string): number | undefined {
  const digits = SEGMENT_NAME.exec(name)?.[1];
  if (digits === undefined) return undefined;
  const baseOffset = Number(digits);
  return Number.isSafeInteger(baseOffset) ? baseOffset : undefined;
}
