import { parseOffset, readFully, WorkerError } from "@tidemark/base";
import type { FileHandle, FileSystem, WorkerPool } from "@tidemark/base";
import type { LeaderEpochCache } from "@tidemark/epoch-cache";
import {
  checkCrc,
  decodeRecords,
  decompressBatchNow,
  readBatchHeader,
  RECORD_BATCH_OVERHEAD,
  scanBatch,
  validateRecords,
  WireError,
} from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import type { OffsetIndexEntry } from "./offset-index.ts";
import type { VerifyFindings } from "./verify-report.ts";
import type { TimeIndexVerifier } from "./verify-time-index.ts";

const WINDOW_BYTES = 1024 ** 2;
/** No payload may decompress to more here. */
const DECOMPRESSED_BYTES_MAX = 256 * 1024 ** 2;
const MAGIC_POSITION = 16;

export interface SegmentToVerify {
  readonly path: string;
  readonly baseOffset: number;
  /** The last one of its partition: a crash may have torn its end. */
  readonly isActive: boolean;
  /** Whether a torn end is what the next open expects: the stop was not clean, or a node is writing. */
  readonly mayBeTorn: boolean;
  /** No batch may begin below. */
  readonly previousEndOffset: number;
  readonly previousEpoch: number;
  /** What lies below is deleted, and has no leader epochs any more. */
  readonly logStartOffset: number;
  readonly epochs: LeaderEpochCache | undefined;
  readonly indexPath: string;
  readonly index: readonly OffsetIndexEntry[];
  /** `undefined`: nothing to hold against the batches. */
  readonly times: TimeIndexVerifier | undefined;
}

export interface SegmentFigures {
  readonly sizeBytes: number;
  readonly batches: number;
  readonly records: number;
  readonly endOffset: number;
  readonly lastEpoch: number;
  /** Whether offsets are left out, as compaction does: between batches, or within one. */
  readonly isSparse: boolean;
}

/**
 * Walks one segment: every batch's header, CRC, records, offsets and epoch, and the index entries against the batches.
 *
 * Behind damage it looks for the next sound batch and goes on there; if there is none, what is left is a tail.
 * Bounded memory: a window, or one batch where that is larger. Only reads.
 * @throws FileError
 */
export async function verifySegment(
  files: FileSystem,
  workers: Pick<WorkerPool, "runNow">,
  segment: SegmentToVerify,
  findings: VerifyFindings,
): Promise<SegmentFigures> {
  const file = await files.open(segment.path, "read");
  try {
    return await new SegmentVerifier(file, await file.size(), workers, segment, findings).run();
  } finally {
    await file.close();
  }
}

class SegmentVerifier {
  readonly #workers: Pick<WorkerPool, "runNow">;
  readonly #window: FileWindow;
  readonly #sizeBytes: number;
  readonly #segment: SegmentToVerify;
  readonly #findings: VerifyFindings;
  #batches = 0;
  #records = 0;
  #endOffset: number;
  #lastEpoch: number;
  #nextIndexEntry = 0;
  readonly #epochsReported = new Set<number>();
  #isDamaged = false;
  #isSparse = false;

  constructor(
    file: FileHandle,
    sizeBytes: number,
    workers: Pick<WorkerPool, "runNow">,
    segment: SegmentToVerify,
    findings: VerifyFindings,
  ) {
    this.#workers = workers;
    this.#window = new FileWindow(file, sizeBytes);
    this.#sizeBytes = sizeBytes;
    this.#segment = segment;
    this.#findings = findings;
    this.#endOffset = Math.max(segment.baseOffset, segment.previousEndOffset);
    this.#lastEpoch = segment.previousEpoch;
  }

  async run(): Promise<SegmentFigures> {
    let positionBytes = 0;
    let endBytes = 0;
    while (positionBytes < this.#sizeBytes) {
      const found = await this.#batchAt(positionBytes);
      if (found.type === "batch") {
        await this.#checkBatch(found, positionBytes);
        positionBytes += found.header.sizeInBytes;
        endBytes = positionBytes;
        continue;
      }
      const nextBytes = await this.#nextSoundBatch(positionBytes + 1);
      if (nextBytes === undefined) {
        this.#reportTail(positionBytes, found.reason);
        break;
      }
      this.#isDamaged = true;
      const length = nextBytes - positionBytes;
      const detail = `${length} bytes are no batch (${found.reason}); sound batches follow`;
      this.#findings.add("error", "batch-damaged", this.#segment.path, detail, {
        positionBytes,
        offset: this.#endOffset,
      });
      this.#dropIndexEntriesBefore(nextBytes);
      positionBytes = nextBytes;
    }
    this.#checkIndexTail(endBytes);
    // Of a damaged batch's timestamp nothing is known: the damage is told once.
    if (!this.#isDamaged) this.#segment.times?.end();
    return {
      sizeBytes: this.#sizeBytes,
      batches: this.#batches,
      records: this.#records,
      endOffset: this.#endOffset,
      lastEpoch: this.#lastEpoch,
      isSparse: this.#isSparse,
    };
  }

  /** The batch at a position, whole and with its CRC right, or why there is none. */
  async #batchAt(positionBytes: number): Promise<FoundBatch | { readonly type: "none"; readonly reason: string }> {
    const head = await this.#window.at(positionBytes, RECORD_BATCH_OVERHEAD);
    const headScan = readBatchHeader(head.bytes.subarray(0, head.endBytes), head.atBytes);
    if (headScan.type === "corrupt") return { type: "none", reason: headScan.reason };
    if (headScan.type === "incomplete") return { type: "none", reason: "the file ends within a batch header" };
    const { sizeInBytes } = headScan.header;
    if (positionBytes + sizeInBytes > this.#sizeBytes) return { type: "none", reason: "the file ends within a batch" };
    const { bytes, atBytes, endBytes } = await this.#window.at(positionBytes, sizeInBytes);
    const scan = scanBatch(bytes, atBytes, endBytes);
    if (scan.type !== "batch") return { type: "none", reason: "the file became shorter" };
    if (!checkCrc(bytes, scan.header)) return { type: "none", reason: "the CRC does not match" };
    return { type: "batch", header: scan.header, bytes };
  }

  async #checkBatch({ header, bytes }: FoundBatch, positionBytes: number): Promise<void> {
    const { path, baseOffset: segmentBaseOffset } = this.#segment;
    const { baseOffset, lastOffset } = header;
    const at = { positionBytes, offset: baseOffset };
    if (baseOffset < this.#endOffset) {
      this.#findings.add(
        "error",
        "offsets-overlap",
        path,
        `base offset ${baseOffset}, but the log before it ends at ${this.#endOffset}`,
        at,
      );
    } else if (positionBytes === 0 && baseOffset !== segmentBaseOffset) {
      this.#findings.add("note", "segment-base-differs", path, `the first batch begins at ${baseOffset}`, at);
    } else if (baseOffset > this.#endOffset && this.#batches > 0) {
      // Behind damage, what is not there was in the damage.
      if (!this.#isDamaged) this.#isSparse = true;
      const detail = `offsets ${this.#endOffset} to ${baseOffset - 1} are not there (as after compaction)`;
      this.#findings.add("note", "offsets-missing", path, detail, at);
    }
    if (header.recordsCount <= header.lastOffsetDelta) this.#isSparse = true;
    this.#checkEpoch(header, at);
    this.#checkRecords(header, bytes, at);
    this.#checkIndexEntry(header, positionBytes);
    if (!this.#isDamaged) this.#segment.times?.batch(header);
    this.#batches += 1;
    this.#records += header.recordsCount;
    this.#endOffset = Math.max(this.#endOffset, lastOffset + 1);
  }

  #checkEpoch(header: BatchHeader, at: { positionBytes: number; offset: number }): void {
    const { path, epochs, logStartOffset, mayBeTorn } = this.#segment;
    const epoch = header.partitionLeaderEpoch;
    if (header.lastOffset < logStartOffset) return;
    if (epoch < this.#lastEpoch) {
      this.#findings.add("error", "epoch-order", path, `leader epoch ${epoch} behind ${this.#lastEpoch}`, at);
    }
    this.#lastEpoch = Math.max(this.#lastEpoch, epoch);
    if (epoch < 0 || epochs === undefined || this.#epochsReported.has(epoch)) return;
    // Where the log begins inside a batch, so does its epoch.
    const offset = parseOffset(Math.max(at.offset, logStartOffset));
    if (offset === undefined) return;
    const entryEpoch = epochs.epochForOffset(offset);
    if (entryEpoch === epoch) return;
    this.#epochsReported.add(epoch);
    const says = entryEpoch === undefined ? "has none for it" : `says ${entryEpoch}`;
    this.#findings.add(
      // A broker that is killed may have deleted the records, which the epoch file knows at once and the start's checkpoint later.
      entryEpoch === undefined && mayBeTorn ? "note" : "error",
      "epoch-mismatch",
      path,
      `offset ${at.offset} has leader epoch ${epoch}, the epoch file ${says}`,
      at,
    );
  }

  #checkRecords(header: BatchHeader, bytes: Uint8Array, at: { positionBytes: number; offset: number }): void {
    const { path } = this.#segment;
    try {
      const payload = decompressBatchNow(this.#workers, bytes, header, DECOMPRESSED_BYTES_MAX);
      // After compaction offsets have gaps, which a client's batch may not have.
      if (header.recordsCount === header.lastOffsetDelta + 1) validateRecords(header, payload);
      else for (const record of decodeRecords(header, payload)) checkDelta(header, record.offset);
    } catch (error) {
      if (!(error instanceof WireError || error instanceof WorkerError)) throw error;
      if (error instanceof WorkerError && error.code === "UNSUPPORTED_COMPRESSION_TYPE") {
        this.#findings.add("note", "codec-unknown", path, `records not looked at: ${error.message}`, at);
        return;
      }
      this.#findings.add(
        "error",
        "records-damaged",
        path,
        `the CRC matches, the records do not read: ${error.message}`,
        at,
      );
    }
  }

  #checkIndexEntry(header: BatchHeader, positionBytes: number): void {
    this.#skipIndexEntriesBefore(positionBytes);
    const entry = this.#segment.index[this.#nextIndexEntry];
    if (entry?.positionBytes !== positionBytes) return;
    if (entry.offset !== header.lastOffset) {
      this.#reportIndexEntry(entry, `the batch there ends at offset ${header.lastOffset}`);
    }
    this.#nextIndexEntry += 1;
  }

  /** Those of the batches that are damaged: the damage is told once. */
  #dropIndexEntriesBefore(positionBytes: number): void {
    const { index } = this.#segment;
    while ((index[this.#nextIndexEntry]?.positionBytes ?? positionBytes) < positionBytes) this.#nextIndexEntry += 1;
  }

  #skipIndexEntriesBefore(positionBytes: number): void {
    for (;;) {
      const entry = this.#segment.index[this.#nextIndexEntry];
      if (entry === undefined || entry.positionBytes >= positionBytes) return;
      this.#reportIndexEntry(entry, "no sound batch begins there");
      this.#nextIndexEntry += 1;
    }
  }

  #checkIndexTail(endBytes: number): void {
    const rest = this.#segment.index.slice(this.#nextIndexEntry);
    const { isActive, mayBeTorn, indexPath } = this.#segment;
    if (rest.length === 0) return;
    if (isActive && mayBeTorn) {
      const detail = `${rest.length} entries point at or behind byte ${endBytes}, where the log ends: the next open makes the index anew`;
      this.#findings.add("note", "index-stale", indexPath, detail);
      return;
    }
    for (const entry of rest) this.#reportIndexEntry(entry, "no sound batch begins there");
  }

  #reportIndexEntry(entry: OffsetIndexEntry, reason: string): void {
    const number = this.#segment.index.indexOf(entry);
    const detail = `entry ${number} says that offset ${entry.offset} lies at byte ${entry.positionBytes}: ${reason}`;
    const { isActive, mayBeTorn, indexPath } = this.#segment;
    // An index above the recovery point is made anew by the next open, whatever is in it.
    if (isActive && mayBeTorn) this.#findings.add("note", "index-stale", indexPath, detail, { offset: entry.offset });
    else this.#findings.add("error", "index-entry-wrong", indexPath, detail, { offset: entry.offset });
  }

  #reportTail(positionBytes: number, reason: string): void {
    this.#isDamaged = true;
    const { path, isActive, mayBeTorn } = this.#segment;
    const detail = `the last ${this.#sizeBytes - positionBytes} bytes are no batch (${reason})`;
    const at = { positionBytes, offset: this.#endOffset };
    if (isActive && mayBeTorn) this.#findings.add("note", "tail-torn", path, `${detail}: the next open cuts them`, at);
    else this.#findings.add("error", "batch-damaged", path, detail, at);
  }

  /** Where the next batch with a matching CRC and an offset that can follow begins, or `undefined`. */
  async #nextSoundBatch(fromBytes: number): Promise<number | undefined> {
    for (let position = fromBytes; position + RECORD_BATCH_OVERHEAD <= this.#sizeBytes; position += 1) {
      const { bytes, atBytes, endBytes } = await this.#window.atOrBuffered(position);
      // Most positions fall here: no magic 2, or an offset above 2^56.
      if (bytes[atBytes + MAGIC_POSITION] !== 2 || bytes[atBytes] !== 0) continue;
      const scan = readBatchHeader(bytes.subarray(0, endBytes), atBytes);
      if (scan.type !== "batch" || scan.header.baseOffset < this.#endOffset) continue;
      if (position + scan.header.sizeInBytes > this.#sizeBytes) continue;
      const found = await this.#batchAt(position);
      if (found.type === "batch") return position;
    }
    return undefined;
  }
}

interface FoundBatch {
  readonly type: "batch";
  /** Its `positionBytes` is a place in `bytes`, not in the file. */
  readonly header: BatchHeader;
  readonly bytes: Uint8Array;
}

function checkDelta(header: BatchHeader, offset: number): void {
  if (offset >= header.baseOffset && offset <= header.lastOffset) return;
  throw new WireError("INVALID_RECORD", "an offset is outside its batch", { offset, baseOffset: header.baseOffset });
}

interface WindowPlace {
  readonly bytes: Uint8Array;
  /** Where in `bytes` the asked position is. */
  readonly atBytes: number;
  /** Where in `bytes` the bytes of the file end. */
  readonly endBytes: number;
}

/** The part of a file that is in memory; moves forward. */
class FileWindow {
  readonly #file: FileHandle;
  readonly #sizeBytes: number;
  #bytes = new Uint8Array(0);
  #startBytes = 0;
  #count = 0;

  constructor(file: FileHandle, sizeBytes: number) {
    this.#file = file;
    this.#sizeBytes = sizeBytes;
  }

  /** A view in which `count` bytes from `positionBytes` on lie together, fewer only where the file ends. */
  async at(positionBytes: number, count: number): Promise<WindowPlace> {
    const wanted = Math.min(count, this.#sizeBytes - positionBytes);
    if (positionBytes < this.#startBytes || positionBytes + wanted > this.#startBytes + this.#count) {
      const length = Math.min(Math.max(count, WINDOW_BYTES), this.#sizeBytes - positionBytes);
      if (this.#bytes.length < length) this.#bytes = new Uint8Array(length);
      this.#startBytes = positionBytes;
      this.#count = await readFully(this.#file, this.#bytes.subarray(0, length), positionBytes);
    }
    return { bytes: this.#bytes, atBytes: positionBytes - this.#startBytes, endBytes: this.#count };
  }

  /** As `at` for one header, without a promise where it is in memory. */
  atOrBuffered(positionBytes: number): WindowPlace | Promise<WindowPlace> {
    const atBytes = positionBytes - this.#startBytes;
    if (atBytes >= 0 && atBytes + RECORD_BATCH_OVERHEAD <= this.#count) {
      return { bytes: this.#bytes, atBytes, endBytes: this.#count };
    }
    return this.at(positionBytes, RECORD_BATCH_OVERHEAD);
  }
}
