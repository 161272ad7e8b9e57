import { open, readFile } from "node:fs/promises";
import { basename } from "node:path";

import { readBatchHeader, RECORD_BATCH_OVERHEAD } from "@tidemark/wire";

import type { Dump } from "./dump-kind.ts";
import { hasCode } from "./errors.ts";

const OFFSET_ENTRY_BYTES = 8;
const TIME_ENTRY_BYTES = 12;

/**
 * Each entry of an offset index, compared with the batch that it points to when the segment lies beside it.
 *
 * A file that is still preallocated ends in zeros, so a zero entry after the first ends the list.
 * Source: apache/kafka tools/src/main/java/org/apache/kafka/tools/DumpLogSegments.java dumpIndex
 */
export const dumpOffsetIndex: Dump = async (path, print) => {
  const { view, baseOffset, entryCount, problems } = await readIndex(path, OFFSET_ENTRY_BYTES);
  const segment = await openIfPresent(path.replace(/\.index$/u, ".log"));
  let previousOffset = -1;
  try {
    for (let index = 0; index < entryCount; index += 1) {
      const relativeOffset = view.getInt32(index * OFFSET_ENTRY_BYTES);
      const positionBytes = view.getInt32(index * OFFSET_ENTRY_BYTES + 4);
      if (relativeOffset === 0 && positionBytes === 0 && index > 0) break;
      const offset = baseOffset + relativeOffset;
      if (!(await print(`offset: ${offset} position: ${positionBytes}`))) break;
      if (offset <= previousOffset)
        problems.push(`Index offset ${offset} is not above the one before it, ${previousOffset}`);
      previousOffset = offset;
      const found = segment === undefined ? offset : await lastOffsetAt(segment, positionBytes);
      if (found !== offset) problems.push(`Index offset: ${offset}, log offset: ${found ?? "no batch there"}`);
    }
  } finally {
    await segment?.close();
  }
  if (problems.length > 0) await print(`Mismatches in :${path}`);
  for (const problem of problems) await print(`  ${problem}`);
  return problems.length;
};

/** Each entry of a time index. */
export const dumpTimeIndex: Dump = async (path, print) => {
  const { view, baseOffset, entryCount, problems } = await readIndex(path, TIME_ENTRY_BYTES);
  let previousTimestamp = -1;
  for (let index = 0; index < entryCount; index += 1) {
    const timestamp = Number(view.getBigInt64(index * TIME_ENTRY_BYTES));
    const relativeOffset = view.getInt32(index * TIME_ENTRY_BYTES + 8);
    if (timestamp === 0 && relativeOffset === 0 && index > 0) break;
    if (!(await print(`timestamp: ${timestamp} offset: ${baseOffset + relativeOffset}`))) break;
    if (timestamp < previousTimestamp) problems.push(`timestamp ${timestamp} after ${previousTimestamp}`);
    previousTimestamp = timestamp;
  }
  if (problems.length > 0) await print(`Found timestamp mismatch in :${path}`);
  for (const problem of problems) await print(`  ${problem}`);
  return problems.length;
};

async function readIndex(path: string, entryBytes: number) {
  const bytes = await readFile(path);
  const digits = /^\d+/u.exec(basename(path))?.[0] ?? "0";
  const over = bytes.length % entryBytes;
  return {
    view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    baseOffset: Number(digits),
    entryCount: Math.floor(bytes.length / entryBytes),
    problems: over === 0 ? [] : [`the file ends ${over} bytes into an entry`],
  };
}

type OpenFile = Awaited<ReturnType<typeof open>>;

async function openIfPresent(path: string): Promise<OpenFile | undefined> {
  try {
    return await open(path, "r");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

async function lastOffsetAt(segment: OpenFile, positionBytes: number): Promise<number | undefined> {
  const header = new Uint8Array(RECORD_BATCH_OVERHEAD);
  if (positionBytes < 0) return undefined;
  const { bytesRead } = await segment.read(header, 0, header.length, positionBytes);
  if (bytesRead === 0) return undefined;
  const scan = readBatchHeader(header.subarray(0, bytesRead), 0);
  return scan.type === "batch" ? scan.header.lastOffset : undefined;
}
