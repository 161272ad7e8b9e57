import { fail, FileError, joinPath, readFileIfPresent, writeFully } from "@tidemark/base";
import type { Clock, FileHandle, FileSystem, Offset } from "@tidemark/base";
import { DIRECT_BYTES_MAX, DIRECT_CACHED_BYTES_MAX, DirectIo } from "./direct-io.ts";
import { LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segmentFileName, SIDE_FILE_SUFFIXES } from "./file-names.ts";
import { OffsetIndex, OFFSET_INDEX_ENTRY_BYTES } from "./offset-index.ts";
import { LogError } from "./error.ts";
import { RecentBatches } from "./recent-batches.ts";
import { walkSegment } from "./segment-walk.ts";
import type { WalkEnd } from "./segment-walk.ts";

/** A place in the file is looked for this much at a time: from an index entry it is not far. */
const LOOKUP_CHUNK_BYTES = 8 * 1024;

/** Bytes at the end of a segment that are taken to be in the page cache, if they were written since it was opened. */
const RECENTLY_WRITTEN_BYTES_MAX = 16 * 1024 * 1024;

/**
 * One `.log` file with its offset index.
 *
 * The file of the active segment stays open; that of a sealed one is open while somebody uses it, and beyond that from `keepOpen` to
 * `release`: a log of many segments must not hold a file for each. A removed segment stays readable for those who were reading it.
 * Source: apache/kafka storage/.../internals/log/LogSegment.java
 */
export class LogSegment {
  readonly baseOffset: Offset;
  readonly path: string;
  readonly indexPath: string;
  readonly io: DirectIo;
  /** Bytes of whole batches; what lies beyond in the file is not the log's yet, or not any more. */
  sizeBytes = 0;
  /** Bytes written or cut since the last `sync`. */
  isDirty = false;
  index: OffsetIndex;
  readonly #files: FileSystem;
  readonly #recent = new RecentBatches();
  /** Written since the segment was opened, from here on. */
  #writtenFromBytes = Number.POSITIVE_INFINITY;
  #bytesSinceLastIndexEntry = 0;
  #file: FileHandle | undefined;
  #opening: Promise<FileHandle> | undefined;
  #users = 0;
  /** Also while nobody uses it. */
  #keepsOpen = false;
  #isRemoved = false;
  /** Entries that the index file holds already, and its size; -1 = unknown, write it whole. */
  #persistedEntries = 0;
  #indexFileBytes = 0;

  constructor(files: FileSystem, clock: Clock, directory: string, baseOffset: Offset) {
    this.#files = files;
    this.baseOffset = baseOffset;
    this.path = joinPath(directory, segmentFileName(baseOffset, LOG_SUFFIX));
    this.indexPath = joinPath(directory, segmentFileName(baseOffset, OFFSET_INDEX_SUFFIX));
    this.index = new OffsetIndex(baseOffset);
    this.io = new DirectIo(clock);
  }

  /**
   * Makes the two empty files of a new segment and keeps the log file open. The caller syncs the directory.
   * @throws FileError; then no file is left, as far as the disk lets it
   */
  static async create(files: FileSystem, clock: Clock, directory: string, baseOffset: Offset): Promise<LogSegment> {
    const segment = new LogSegment(files, clock, directory, baseOffset);
    try {
      segment.#keepsOpen = true;
      segment.#file = await files.open(segment.path, "truncate");
      const index = await files.open(segment.indexPath, "truncate");
      await index.close();
    } catch (error) {
      await segment.close();
      await removeIfPresent(files, segment.path).catch(() => undefined);
      throw error;
    }
    return segment;
  }

  /** Takes over an index that was read from its file, or was rebuilt and is not written yet. */
  adoptIndex(index: OffsetIndex, isPersisted: boolean): void {
    this.index = index;
    this.#persistedEntries = isPersisted ? index.count : -1;
    this.#indexFileBytes = isPersisted ? index.count * OFFSET_INDEX_ENTRY_BYTES : -1;
  }

  /** Forgets what a survey noted, for another one. */
  reset(): void {
    this.sizeBytes = 0;
    this.#recent.clear();
    this.#bytesSinceLastIndexEntry = 0;
    this.index = new OffsetIndex(this.baseOffset);
  }

  /** The index file's entries, or `undefined` when it is absent or no index. @throws FileError */
  async readIndexFile(): Promise<OffsetIndex | undefined> {
    const bytes = await readFileIfPresent(this.#files, this.indexPath);
    return bytes === undefined ? undefined : OffsetIndex.decode(this.baseOffset, bytes);
  }

  /** Opens the log file for appending. @throws FileError */
  async openForAppend(): Promise<FileHandle> {
    this.#keepsOpen = true;
    return this.#open();
  }

  /** Runs `read` with the open log file. @throws FileError */
  async use<Result>(read: (file: FileHandle) => Promise<Result>): Promise<Result> {
    this.#users += 1;
    try {
      return await read(await this.#open());
    } finally {
      this.#users -= 1;
      if (this.#isRemoved || !this.#keepsOpen) await this.#closeIfIdle();
    }
  }

  /** The log file stays open, once somebody has used it, until `release`. */
  keepOpen(): void {
    this.#keepsOpen = true;
  }

  /** Closes the log file, as soon as nobody uses it. */
  async release(): Promise<void> {
    this.#keepsOpen = false;
    await this.#closeIfIdle();
  }

  async #closeIfIdle(): Promise<void> {
    if (this.#users > 0) return;
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }

  /**
   * Writes whole batches behind the last one. Nothing of the segment's state moves: `noteBatch` follows for each.
   * @throws FileError; then any part of them may be in the file
   */
  async write(bytes: Uint8Array): Promise<void> {
    const file = this.#file ?? fail("the active segment is open", { path: this.path });
    this.#writtenFromBytes = Math.min(this.#writtenFromBytes, this.sizeBytes);
    try {
      await this.io.write(file, bytes, this.sizeBytes);
    } finally {
      // Not before: a sync that ran beside the write has covered a part of it at most, and took the segment for clean.
      this.isDirty = true;
    }
  }

  /** Takes the batch that begins at the segment's end into size and index. Kafka's rule: the entry of a batch is made before its own bytes count. */
  noteBatch(lastOffset: number, batchBytes: number, indexIntervalBytes: number): void {
    if (this.#bytesSinceLastIndexEntry > indexIntervalBytes && !this.index.isFull) {
      this.index.append(lastOffset, this.sizeBytes);
      this.#bytesSinceLastIndexEntry = 0;
    }
    this.#bytesSinceLastIndexEntry += batchBytes;
    this.#recent.note(lastOffset, this.sizeBytes);
    this.sizeBytes += batchBytes;
  }

  /** The counter of the index rule starts anew, as in Kafka after an open or a truncation. */
  resetIndexInterval(): void {
    this.#bytesSinceLastIndexEntry = 0;
  }

  /**
   * Whether a batch of `bytes` that ends at `lastOffset` belongs into the next segment.
   * @param pendingBytes of batches that will lie before it in this one
   */
  mustRollBefore(
    bytes: number,
    lastOffset: number,
    limits: { pendingBytes: number; segmentBytesMax: number },
  ): boolean {
    const usedBytes = this.sizeBytes + limits.pendingBytes;
    if (!this.index.canHold(lastOffset)) return true;
    if (usedBytes === 0) return false;
    return usedBytes > limits.segmentBytesMax - bytes || this.index.isFull;
  }

  /** Reads as `readFully`. What was written a moment ago is in the page cache: it is not worth a trip through the pool. @throws FileError */
  async read(file: FileHandle, target: Uint8Array, positionBytes: number): Promise<number> {
    const isRecent =
      positionBytes >= this.#writtenFromBytes && positionBytes >= this.sizeBytes - RECENTLY_WRITTEN_BYTES_MAX;
    return this.io.read(file, target, positionBytes, isRecent ? DIRECT_CACHED_BYTES_MAX : DIRECT_BYTES_MAX);
  }

  /** Makes the written batches durable. Not repeated after a failure: the caller takes the directory offline. @throws FileError */
  async sync(): Promise<void> {
    if (!this.isDirty) return;
    this.isDirty = false;
    await this.use((file) => file.sync());
  }

  /** Brings the index file to exactly the entries in memory, and syncs it. @throws FileError */
  async persistIndex(): Promise<void> {
    const { index } = this;
    if (this.#persistedEntries === index.count && this.#indexFileBytes === index.count * OFFSET_INDEX_ENTRY_BYTES)
      return;
    const fromEntry = Math.max(this.#persistedEntries, 0);
    const count = index.count;
    const file = await this.#files.open(this.indexPath, "create");
    try {
      if (this.#indexFileBytes !== fromEntry * OFFSET_INDEX_ENTRY_BYTES)
        await file.truncate(fromEntry * OFFSET_INDEX_ENTRY_BYTES);
      await writeFully(file, index.encode(fromEntry), fromEntry * OFFSET_INDEX_ENTRY_BYTES);
      await file.sync();
    } finally {
      await file.close();
    }
    this.#persistedEntries = count;
    this.#indexFileBytes = count * OFFSET_INDEX_ENTRY_BYTES;
  }

  /**
   * Cuts the file at `positionBytes`, the begin of a batch, and syncs it. `offset` is where the log ends now: index entries
   * at or above it go.
   * @throws FileError
   */
  async truncateAt(positionBytes: number, offset: Offset): Promise<void> {
    // The time index and what else Kafka may have left here would point behind the cut; Kafka makes them anew.
    await this.#removeSideFiles(OFFSET_INDEX_SUFFIX);
    this.index.truncateTo(offset);
    this.#persistedEntries = this.#persistedEntries < 0 ? -1 : Math.min(this.#persistedEntries, this.index.count);
    this.#bytesSinceLastIndexEntry = 0;
    this.#recent.clear();
    this.sizeBytes = positionBytes;
    // Entries behind the cut leave the file at once: a segment that is sealed next may lie below the recovery point already, and
    // would not be written again.
    if (this.#indexFileBytes !== this.#persistedEntries * OFFSET_INDEX_ENTRY_BYTES) await this.persistIndex();
    const file = await this.openForAppend();
    await file.truncate(positionBytes);
    this.isDirty = false;
    await file.sync();
  }

  /** Takes the bytes of a failed write away again. @param durably also on the disk, before anybody is told. @throws FileError */
  async cutBack(durably: boolean): Promise<void> {
    const file = this.#file ?? fail("the active segment is open", { path: this.path });
    await file.truncate(this.sizeBytes);
    this.isDirty = true;
    if (durably) await file.sync();
  }

  /**
   * Where the first batch with last offset >= `offset` begins, or `undefined` when none has.
   * @param skip ranges of the file that are no batches
   * @throws FileError
   */
  async positionOf(offset: number, skip: readonly FileRange[]): Promise<number | undefined> {
    if (this.sizeBytes === 0) return undefined;
    const recent = skip.length === 0 ? this.#recent.find(offset) : undefined;
    if (recent !== undefined) return recent;
    return this.use(async (file) => {
      let fromBytes = afterDamage(this.index.lookup(offset), skip);
      for (;;) {
        let found: number | undefined;
        const toBytes = skip.find((range) => range.fromBytes >= fromBytes)?.fromBytes ?? this.sizeBytes;
        const end = await walkSegment({
          io: this.io,
          file,
          fromBytes,
          toBytes,
          chunkBytes: LOOKUP_CHUNK_BYTES,
          verifyCrc: false,
          onBatch: (header, positionBytes) => {
            if (header.lastOffset < offset) return undefined;
            found = positionBytes;
            return "found";
          },
        });
        if (found !== undefined) return found;
        // The bytes up to here were whole batches once: a file that changed must not look like the end of the log.
        if (end.type !== "end") throw this.#unreadable(end);
        fromBytes = afterDamage(toBytes, skip);
        if (fromBytes >= this.sizeBytes || fromBytes === toBytes) return undefined;
      }
    });
  }

  /** Removes the files; the caller syncs the directory. @throws FileError */
  async remove(): Promise<void> {
    this.#isRemoved = true;
    await removeIfPresent(this.#files, this.path);
    await this.#removeSideFiles();
    await this.#closeIfIdle();
  }

  /** Replaces the log file by a fresh copy of itself that is known to be on the disk. The caller syncs the directory. @throws FileError */
  async copyAfresh(): Promise<void> {
    const copyPath = `${this.path}.tmp`;
    const copy = await this.#files.open(copyPath, "truncate");
    try {
      await this.use(async (file) => {
        const chunk = new Uint8Array(Math.min(1024 ** 2, this.sizeBytes));
        for (let at = 0; at < this.sizeBytes; at += chunk.length) {
          const part = chunk.subarray(0, Math.min(chunk.length, this.sizeBytes - at));
          const count = await this.io.read(file, part, at);
          if (count < part.length) throw new FileError("EIO", "read", this.path);
          await writeFully(copy, part, at);
        }
      });
      await copy.sync();
    } finally {
      await copy.close();
    }
    await this.#files.rename(copyPath, this.path);
    await this.#closeIfIdle();
    this.isDirty = false;
  }

  /** Idempotent; does not sync. */
  async close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }

  #unreadable(end: WalkEnd): LogError {
    const reason = end.type === "corrupt" ? end.reason : "incomplete";
    const { path } = this;
    const { positionBytes } = end;
    return new LogError({
      code: "CORRUPT_MESSAGE",
      path,
      positionBytes,
      fromOffset: undefined,
      toOffset: undefined,
      reason,
    });
  }

  async #open(): Promise<FileHandle> {
    if (this.#file !== undefined) return this.#file;
    this.#opening ??= this.#files.open(this.path, "write").finally(() => {
      this.#opening = undefined;
    });
    const file = await this.#opening;
    this.#file ??= file;
    return this.#file;
  }

  async #removeSideFiles(except?: string): Promise<void> {
    const stem = this.path.slice(0, -LOG_SUFFIX.length);
    for (const suffix of SIDE_FILE_SUFFIXES) if (suffix !== except) await removeIfPresent(this.#files, stem + suffix);
  }
}

/** Bytes `[fromBytes, toBytes)` of a segment file. */
export interface FileRange {
  readonly fromBytes: number;
  readonly toBytes: number;
}

function afterDamage(positionBytes: number, skip: readonly FileRange[]): number {
  let position = positionBytes;
  for (const range of skip) if (position >= range.fromBytes && position < range.toBytes) position = range.toBytes;
  return position;
}

/** @throws FileError other than ENOENT */
export async function removeIfPresent(files: FileSystem, path: string): Promise<void> {
  try {
    await files.unlink(path);
  } catch (error) {
    if (!(error instanceof FileError && error.code === "ENOENT")) throw error;
  }
}
