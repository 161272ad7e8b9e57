import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";

import { WorkerError } from "@tidemark/base";
import {
  checkCrc,
  decodeRecords,
  decompressBatchNow,
  isControlBatch,
  type BatchHeader,
  WireError,
} from "@tidemark/wire";

import { NODE_JOBS } from "@tidemark/runtime-node";

import { lineBlocks } from "../lines.ts";
import { segmentBaseOffset, segmentBatches } from "../segment-file.ts";
import { escapeControls } from "../format.ts";

/** Problems listed in full; more are only counted. */
const LISTED_PROBLEMS_MAX = 10;

export interface SegmentFigures {
  readonly baseOffset: number;
  readonly records: number;
  readonly batches: number;
  readonly bytes: number;
  readonly indexEntries: number;
}

export interface RecordsVerdict {
  /** At most `LISTED_PROBLEMS_MAX`; empty = every record is where it should be. */
  readonly problems: readonly string[];
  readonly problemCount: number;
  readonly recordCount: number;
  readonly batchCount: number;
  readonly valueBytes: number;
  readonly segments: readonly SegmentFigures[];
  readonly logEndOffset: number;
}

/**
 * Reads the segment files of a partition directory from the first byte to the last and compares them with the input: record i
 * must be line i, byte for byte, for every line and no more; every byte must belong to a whole batch with a good CRC; offsets
 * must be contiguous from 0; each file must begin at the offset of its name.
 *
 * It shares the batch decoder with the engine and nothing else: not its recovery, its index, its state. Only reads.
 * Memory: one window of a file, one chunk of the input.
 * @param chunks the input again
 * @throws errors of node:fs, LineTooLongError
 */
export async function verifyRecords(options: {
  readonly partitionDirectory: string;
  readonly chunks: AsyncIterable<Uint8Array>;
  readonly lineCount: number;
  readonly lineBytesMax: number;
  readonly onProgress: (recordCount: number) => void;
  readonly signal: AbortSignal;
}): Promise<RecordsVerdict> {
  const check = new RecordCheck(new LineCursor(lineBlocks(options.chunks, options.lineBytesMax)));
  const names = await readdir(options.partitionDirectory);
  const sizes = await fileSizes(options.partitionDirectory, names);
  const segments: SegmentFigures[] = [];
  for (const name of names.filter((candidate) => candidate.endsWith(".log")).sort()) {
    const figures = await check.segment(options.partitionDirectory, name, options);
    const indexBytes = sizes.get(name.replace(/\.log$/u, ".index")) ?? 0;
    segments.push({ ...figures, indexEntries: Math.floor(indexBytes / 8) });
  }
  await check.finish(options.lineCount);
  return { ...check.result(), segments };
}

async function fileSizes(directory: string, names: readonly string[]): Promise<ReadonlyMap<string, number>> {
  const sizes = new Map<string, number>();
  for (const name of names) sizes.set(name, (await stat(join(directory, name))).size);
  return sizes;
}

/** Lines one by one; awaits only between blocks. */
class LineCursor {
  readonly #blocks: AsyncIterator<readonly Uint8Array[]>;
  #block: readonly Uint8Array[] = [];
  #index = 0;

  constructor(blocks: AsyncIterable<readonly Uint8Array[]>) {
    this.#blocks = blocks[Symbol.asyncIterator]();
  }

  /** The next line of the current block, `undefined` when `refill` must be awaited first. */
  take(): Uint8Array | undefined {
    const line = this.#block[this.#index];
    this.#index += 1;
    return line;
  }

  /** @returns false at the end of the input */
  async refill(): Promise<boolean> {
    const next = await this.#blocks.next();
    this.#block = next.done === true ? [] : next.value;
    this.#index = 0;
    return next.done !== true;
  }

  /** Passes over lines; a count below 1 does nothing. */
  async skip(count: number): Promise<void> {
    for (let left = count; left > 0; left -= 1) {
      if (this.take() !== undefined) continue;
      if (!(await this.refill())) return;
      this.take();
    }
  }

  async close(): Promise<void> {
    await this.#blocks.return?.();
  }
}

class RecordCheck {
  readonly #lines: LineCursor;
  readonly #problems: string[] = [];
  #problemCount = 0;
  /** Offset that the next record must have = number of records seen. */
  #nextOffset = 0;
  #batchCount = 0;
  #recordCount = 0;
  #valueBytes = 0;
  #latestEpoch = 0;

  constructor(lines: LineCursor) {
    this.#lines = lines;
  }

  async segment(
    directory: string,
    name: string,
    options: { readonly onProgress: (recordCount: number) => void; readonly signal: AbortSignal },
  ): Promise<Omit<SegmentFigures, "indexEntries">> {
    const baseOffset = segmentBaseOffset(name) ?? -1;
    if (baseOffset !== this.#nextOffset) this.#report(`${name}: begins where offset ${this.#nextOffset} was expected`);
    const before = { records: this.#recordCount, batches: this.#batchCount };
    let bytes = 0;
    for await (const step of segmentBatches(join(directory, name))) {
      options.signal.throwIfAborted();
      if (step.type === "broken") {
        this.#report(
          `${name}: ${step.bytesLeft} bytes from byte ${step.positionBytes} are no whole batch: ${step.reason}`,
        );
        bytes = step.positionBytes + step.bytesLeft;
        break;
      }
      bytes = step.positionBytes + step.header.sizeInBytes;
      await this.#batch(`${name} at byte ${step.positionBytes}`, step.header, step.bytes);
      options.onProgress(this.#recordCount);
    }
    return {
      baseOffset,
      records: this.#recordCount - before.records,
      batches: this.#batchCount - before.batches,
      bytes,
    };
  }

  async #batch(where: string, header: BatchHeader, bytes: Uint8Array): Promise<void> {
    this.#batchCount += 1;
    if (!checkCrc(bytes, header)) this.#report(`${where}: wrong CRC`);
    if (isControlBatch(header)) this.#report(`${where}: a control batch, which the demo never writes`);
    if (header.baseOffset !== this.#nextOffset) {
      this.#report(`${where}: base offset ${header.baseOffset}, expected ${this.#nextOffset}`);
      // Lines that are missing are missing; the others are compared with their own records all the same.
      await this.#lines.skip(header.baseOffset - this.#nextOffset);
    }
    if (header.partitionLeaderEpoch < this.#latestEpoch) {
      this.#report(`${where}: leader epoch ${header.partitionLeaderEpoch} after ${this.#latestEpoch}`);
    }
    this.#latestEpoch = Math.max(this.#latestEpoch, header.partitionLeaderEpoch);
    try {
      await this.#records(where, header, decompressBatchNow(NODE_JOBS, bytes, header, DECOMPRESSED_BYTES_MAX));
    } catch (error) {
      if (!(error instanceof WireError || error instanceof WorkerError)) throw error; // The input could not be read.
      this.#report(`${where}: ${error.message}`);
    }
    this.#nextOffset = header.lastOffset + 1; // Once out of step, say so once and go on from here.
  }

  async #records(where: string, header: BatchHeader, payload: Uint8Array): Promise<void> {
    let expectedOffset = header.baseOffset;
    for (const record of decodeRecords(header, payload)) {
      const line = this.#lines.take() ?? ((await this.#lines.refill()) ? this.#lines.take() : undefined);
      if (record.offset !== expectedOffset) {
        this.#report(`${where}: record ${record.offset} where ${expectedOffset} was expected`);
      }
      expectedOffset += 1;
      this.#recordCount += 1;
      if (line === undefined) {
        this.#report(`record ${record.offset}: the input has no line ${record.offset + 1}`);
      } else if (record.value === null || !sameBytes(record.value, line)) {
        this.#report(
          () => `record ${record.offset} is not line ${record.offset + 1}: ${difference(record.value, line)}`,
        );
      } else {
        this.#valueBytes += line.length;
      }
      if (record.key !== null || record.headers.length > 0)
        this.#report(`record ${record.offset}: has a key or headers`);
    }
    if (expectedOffset !== header.lastOffset + 1) {
      this.#report(`${where}: ${expectedOffset - header.baseOffset} records for offsets up to ${header.lastOffset}`);
    }
  }

  /** After the last segment: no line of the input may be left. */
  async finish(lineCount: number): Promise<void> {
    if (this.#recordCount < lineCount) {
      const end = this.#nextOffset < lineCount ? `, it ends before line ${this.#nextOffset + 1}` : "";
      this.#report(`${lineCount - this.#recordCount} of ${lineCount} lines are not in the log${end}`);
    } else if (this.#recordCount > lineCount) {
      this.#report(`${this.#recordCount - lineCount} records more than the ${lineCount} lines`);
    }
    await this.#lines.close();
  }

  result(): Omit<RecordsVerdict, "segments"> {
    return {
      problems: this.#problems,
      problemCount: this.#problemCount,
      recordCount: this.#recordCount,
      batchCount: this.#batchCount,
      valueBytes: this.#valueBytes,
      logEndOffset: this.#nextOffset,
    };
  }

  #report(problem: string | (() => string)): void {
    this.#problemCount += 1;
    if (this.#problems.length >= LISTED_PROBLEMS_MAX) return;
    this.#problems.push(typeof problem === "string" ? problem : problem());
  }
}

/** No batch of the demo comes near. */
const DECOMPRESSED_BYTES_MAX = 2 ** 30;

/** Values below this many bytes are compared in a loop, which costs less than the call into the runtime. */
const LOOP_COMPARE_BYTES = 64;

function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  if (left.length !== right.length) return false;
  if (left.length > LOOP_COMPARE_BYTES) return Buffer.compare(left, right) === 0;
  for (let index = 0; index < left.length; index += 1) if (left[index] !== right[index]) return false;
  return true;
}

function difference(value: Uint8Array | null, line: Uint8Array): string {
  if (value === null) return `a null value instead of ${line.length} bytes`;
  let index = 0;
  while (index < value.length && value[index] === line[index]) index += 1;
  const excerpt = (bytes: Uint8Array) =>
    `"${escapeControls(Buffer.from(bytes.subarray(index, index + 16)).toString("latin1"))}"`;
  return `${value.length} bytes instead of ${line.length}, from byte ${index} on ${excerpt(value)} instead of ${excerpt(line)}`;
}
