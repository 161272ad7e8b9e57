import { fail, joinPath, readFileIfPresent, toOffset, writeFully } from "@tidemark/base";
import type { Clock, FileHandle, FileSystem, Offset } from "@tidemark/base";
import { readBatchHeader, RECORD_BATCH_OVERHEAD } from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import type { BatchPlace } from "./batch-places.ts";
import { DirectIo } from "./direct-io.ts";
import {
  OFFSET_INDEX_SUFFIX,
  PRODUCER_SNAPSHOT_SUFFIX,
  segmentFileName,
  TIME_INDEX_SUFFIX,
  TRANSACTION_INDEX_SUFFIX,
} from "./file-names.ts";
import { LogError } from "./error.ts";
import { RELATIVE_OFFSET_MAX } from "./offset-index.ts";
import type { OffsetIndex } from "./offset-index.ts";
import { PendingSync } from "./pending-sync.ts";
import { RecentBatches } from "./recent-batches.ts";
import { refuseDamage } from "./recovery-report.ts";
import type { DamagedRange } from "./recovery-report.ts";
import { copyRanges } from "./segment-copy.ts";
import { removeIfPresent, SegmentFiles } from "./segment-files.ts";
import { SegmentIndexes } from "./segment-indexes.ts";
import type { IndexedBatch } from "./segment-indexes.ts";
import { findNextBatch, walkSegment } from "./segment-walk.ts";
import type { WalkEnd } from "./segment-walk.ts";
import { NO_TIMESTAMP } from "./time-index.ts";
import type { TimeIndex } from "./time-index.ts";
import { TransactionIndex } from "./transaction-index.ts";

/** A place in the file is looked for this much at a time: from an index entry it is not far. */
const LOOKUP_CHUNK_BYTES = 8 * 1024;

/** Reads of `findBatchNow`: where an index has no entries nearby, the search belongs into `findBatch`. */
const LOOKUP_READS_NOW_MAX = 16;

/**
 * What a lookup that does not wait reads first; behind a batch that is longer it reads a header, else `LOOKUP_CHUNK_BYTES`. Memory from all over a
 * file is in no cache of the processor, and costs more than a call.
 */
const LOOKUP_NOW_FIRST_BYTES = 512;
const LOOKUP_NOW_HEADER_BYTES = 128;

/** For such lookups: nobody keeps what is in it. */
const lookupChunk = new Uint8Array(LOOKUP_CHUNK_BYTES);

/** What the segments of a log have in common. */
export interface SegmentSettings {
  readonly files: FileSystem;
  readonly clock: Clock;
  readonly directory: string;
  /** Of each index file. Kafka: segment.index.bytes. */
  readonly indexBytesMax: number;
  /** Kafka: index.interval.bytes. */
  readonly indexIntervalBytes: number;
  /** Drawn once for each segment that is begun or opened: after this long no batch joins it. */
  readonly drawRollMs: () => number;
  /** Of a log file: what an index can say a place in. Default `SEGMENT_BYTES_MAX`; less only where a test has no 2 GiB. */
  readonly fileBytesMax?: number;
  /** Behind the names of all files: of a segment that is not in the log yet. Default none. */
  readonly nameSuffix?: string;
}

/** What decides whether a batch joins the active segment. */
export interface RollLimits {
  /** Of batches that will lie before it in this segment, and the max timestamp of the first of them, if the segment is empty yet. */
  readonly pendingBytes: number;
  readonly pendingFirstTimestamp: number | undefined;
  readonly segmentBytesMax: number;
}

/**
 * One `.log` file with its offset, time and transaction index.
 *
 * The file of the active segment stays open; that of a sealed one is open while somebody uses it, and beyond that from `keepOpen` to
 * `release`: a log of many segments must not hold a file for each. A removed segment stays readable for those who were reading it.
 * Source: apache/kafka storage/.../internals/log/LogSegment.java
 */
export class LogSegment {
  readonly baseOffset: Offset;
  readonly transactionIndexPath: string;
  readonly io: DirectIo;
  readonly indexes: SegmentIndexes;
  /** Bytes of whole batches; what lies beyond in the file is not the log's yet, or not any more. */
  sizeBytes = 0;
  transactionIndex: TransactionIndex;
  /** Parts of the file that are no batches, in order: found by the open, or met later. Reads go around them. */
  damaged: readonly DamagedRange[] = [];
  readonly #files: FileSystem;
  readonly #segmentFiles: SegmentFiles;
  readonly #clock: Clock;
  readonly #rollMs: number;
  readonly #settings: SegmentSettings;
  readonly #nameSuffix: string;
  #loading: Promise<void> | undefined;
  /** Counts what makes indexes worthless that are being made anew. */
  #cuts = 0;
  /** Of a segment that was taken as it was left: no batch of it reaches this offset. */
  #endOffsetMax = Number.MAX_SAFE_INTEGER;
  readonly #recent = new RecentBatches();
  readonly #pendingSync = new PendingSync();
  /** A part of a write may lie behind the end of the segment. */
  #hasLooseEnd = false;
  /** When the segment was begun, or opened. */
  #createdMs: number;
  /** It is written to, or about to be: entries of the indexes stay in memory. */
  #keepsIndexes = false;
  /** Entries of the transaction index's file, which does not exist when there are none; -1 = unknown, write it whole. */
  #persistedTransactions = 0;

  constructor(settings: SegmentSettings, baseOffset: Offset) {
    const { files, clock, directory, indexBytesMax, nameSuffix = "" } = settings;
    this.#settings = settings;
    this.#files = files;
    this.#clock = clock;
    this.#rollMs = settings.drawRollMs();
    this.#createdMs = clock.wallMs();
    this.baseOffset = baseOffset;
    this.#nameSuffix = nameSuffix;
    this.#segmentFiles = new SegmentFiles(files, directory, baseOffset, nameSuffix);
    this.transactionIndexPath = joinPath(directory, segmentFileName(baseOffset, TRANSACTION_INDEX_SUFFIX) + nameSuffix);
    this.transactionIndex = new TransactionIndex(baseOffset);
    this.indexes = new SegmentIndexes(files, directory, baseOffset, indexBytesMax, nameSuffix);
    this.io = new DirectIo(clock);
  }

  /**
   * Makes the three empty files of a new segment and keeps the log file open. The caller syncs the directory.
   * @throws FileError; then no file is left, as far as the disk lets it
   */
  static async create(settings: SegmentSettings, baseOffset: Offset): Promise<LogSegment> {
    const segment = new LogSegment(settings, baseOffset);
    try {
      segment.#keepsIndexes = true;
      await segment.#segmentFiles.create();
      await segment.indexes.create();
    } catch (error) {
      await segment.close();
      await removeIfPresent(settings.files, segment.path).catch(() => undefined);
      throw error;
    }
    return segment;
  }

  get path(): string {
    return this.#segmentFiles.path;
  }

  /** If it is open. */
  get #file(): FileHandle | undefined {
    return this.#segmentFiles.handle;
  }

  get index(): SegmentIndexes["offsets"] {
    return this.indexes.offsets;
  }

  /** Takes over a transaction index that was read from its file, or was rebuilt and is not written yet. */
  adoptTransactionIndex(index: TransactionIndex, isPersisted: boolean): void {
    this.transactionIndex = index;
    this.#persistedTransactions = isPersisted ? index.count : -1;
  }

  /**
   * Takes the segment as it was left, so many bytes of whole batches: nothing of it is read until somebody asks.
   * @param endOffset where it may end at most
   */
  trust(sizeBytes: number, endOffset: number): void {
    this.sizeBytes = sizeBytes;
    this.#endOffsetMax = endOffset;
    this.damaged = [];
    this.#recent.clear();
    this.indexes.leaveInFiles();
  }

  /** Forgets what a survey noted, for another one. */
  reset(): void {
    this.sizeBytes = 0;
    this.damaged = [];
    this.#recent.clear();
    this.indexes.reset();
    this.transactionIndex = new TransactionIndex(this.baseOffset);
  }

  /** The transaction index's file: without entries when it is absent; what is wrong when it is no index. @throws FileError */
  async readTransactionIndexFile(): Promise<TransactionIndex | { readonly problem: string }> {
    const bytes = await readFileIfPresent(this.#files, this.transactionIndexPath);
    return TransactionIndex.decode(this.baseOffset, bytes ?? new Uint8Array(0));
  }

  /**
   * Brings the indexes into memory, unless they are there. Files that are no indexes, or do not fit the end of the segment, are made anew
   * from its batches.
   * @throws FileError
   */
  async loadIndexes(): Promise<void> {
    if (this.indexes.areLoaded) return;
    this.#loading ??= this.#loadIndexes().finally(() => {
      this.#loading = undefined;
    });
    await this.#loading;
  }

  async #loadIndexes(): Promise<void> {
    const { offsets, times } = await this.indexes.readFiles();
    const fits = offsets !== undefined && times !== undefined && (await this.#fitsEnd(offsets, times));
    if (fits) this.indexes.load({ offsets, times });
    else await this.rebuildIndexes();
  }

  /** Whether the last entry names a batch, behind which whole batches follow to the end of the segment, and none with a later time. */
  async #fitsEnd(offsets: OffsetIndex, times: TimeIndex): Promise<boolean> {
    // One without entries says nothing: no batch has a time, or somebody emptied it.
    if (times.count === 0) return this.sizeBytes === 0;
    const last = offsets.lastEntry;
    if ((last?.positionBytes ?? 0) >= this.sizeBytes) return false;
    let fits = true;
    let isFirst = true;
    const end = await this.walk(last?.positionBytes ?? 0, LOOKUP_CHUNK_BYTES, ({ lastOffset, maxTimestamp }) => {
      if (isFirst && last !== undefined && lastOffset !== last.offset) fits = false;
      if (maxTimestamp > times.lastTimestamp) fits = false;
      isFirst = false;
    });
    return fits && end.type === "end";
  }

  /** Forgets what the index files know as well, unless the segment is written to. */
  unloadIndexes(): void {
    if (!this.#keepsIndexes) this.indexes.unload();
  }

  /**
   * Makes the indexes anew from the headers of all batches, and notes what is no batch. Cost: a walk over the segment.
   * @throws FileError
   */
  async rebuildIndexes(): Promise<void> {
    const { files, directory, indexBytesMax, indexIntervalBytes } = this.#settings;
    const proven = new SegmentIndexes(files, directory, this.baseOffset, indexBytesMax, this.#nameSuffix);
    const damaged: DamagedRange[] = [];
    const cuts = this.#cuts;
    let endOffset: number = this.baseOffset;
    for (let fromBytes = 0; fromBytes < this.sizeBytes;) {
      const end = await this.walk(fromBytes, undefined, (header, positionBytes) => {
        if (header.baseOffset < endOffset || !this.index.canHold(header.lastOffset))
          return `offset ${header.baseOffset} after ${endOffset - 1}`;
        proven.noteBatch(header, positionBytes, indexIntervalBytes);
        endOffset = header.lastOffset + 1;
        return undefined;
      });
      if (end.type === "end") break;
      const next = await this.use((file) =>
        findNextBatch({
          io: this.io,
          file,
          fromBytes: end.positionBytes + 1,
          toBytes: this.sizeBytes,
          minOffset: endOffset,
          maxOffset: this.baseOffset + RELATIVE_OFFSET_MAX,
        }),
      );
      fromBytes = next?.positionBytes ?? this.sizeBytes;
      damaged.push({
        fromOffset: toOffset(endOffset),
        toOffset: toOffset(next?.header.baseOffset ?? this.#endOffsetMax),
        path: this.path,
        fromBytes: end.positionBytes,
        toBytes: fromBytes,
        reason: end.type === "corrupt" ? end.reason : "incomplete",
      });
      endOffset = next?.header.baseOffset ?? endOffset;
    }
    if (cuts !== this.#cuts) return;
    if (!this.#keepsIndexes) proven.noteEnd();
    proven.resetInterval();
    this.indexes.replaceBy(proven);
    this.damaged = damaged;
    if (damaged.length > 0) this.#recent.clear();
  }

  /** Walks the headers of the batches from `fromBytes` on, where one begins, to the end of the segment. @throws FileError */
  walk(
    fromBytes: number,
    chunkBytes: number | undefined,
    onBatch: (header: BatchHeader, positionBytes: number) => string | undefined | void,
  ): Promise<WalkEnd> {
    return this.use((file) =>
      walkSegment({
        io: this.io,
        file,
        fromBytes,
        toBytes: this.sizeBytes,
        ...(chunkBytes === undefined ? {} : { chunkBytes }),
        verifyCrc: false,
        onBatch: (header, positionBytes) => onBatch(header, positionBytes) ?? undefined,
      }),
    );
  }

  /** Opens the log file for appending. @throws FileError */
  openForAppend(): Promise<FileHandle> {
    this.#segmentFiles.keepOpen();
    this.#keepsIndexes = true;
    return this.#segmentFiles.open();
  }

  /** Runs `read` with the open log file. @throws FileError */
  use<Result>(read: (file: FileHandle) => Promise<Result>): Promise<Result> {
    return this.#segmentFiles.use(read);
  }

  /** The log file stays open, once somebody has used it, until `release`. */
  keepOpen(): void {
    this.#segmentFiles.keepOpen();
  }

  /** Of a sealed segment: closes the log file, as soon as nobody uses it, and leaves the indexes to their files. @throws FileError */
  release(): Promise<void> {
    this.#keepsIndexes = false;
    this.unloadIndexes();
    return this.#segmentFiles.release();
  }

  /**
   * Writes whole batches behind the last one. Nothing of the segment's state moves: `noteBatch` follows for each.
   * @throws FileError; then any part of them may be in the file
   */
  async write(bytes: Uint8Array): Promise<void> {
    const file = this.#file ?? fail("the active segment is open", { path: this.path });
    try {
      await this.io.write(file, bytes, this.sizeBytes);
    } finally {
      // Not before: a sync that ran beside the write has covered a part of it at most, and took the segment for clean.
      this.isDirty = true;
    }
  }

  /**
   * As `write`, at once.
   * @returns false when the event-loop policy sends it to the pool, or not all could be written: then `write` all of it
   * @throws FileError; then any part of them may be in the file
   */
  writeNow(bytes: Uint8Array): boolean {
    const file = this.#file ?? fail("the active segment is open", { path: this.path });
    let count: number | undefined;
    try {
      count = this.io.writeNow(file, bytes, this.sizeBytes);
    } finally {
      this.isDirty = true;
    }
    if (count === bytes.length) return true;
    if (count !== undefined) this.#hasLooseEnd = true;
    return false;
  }

  /** Before nothing more is written here: takes away what of a write is in the file that was then made elsewhere, or not at all. @throws FileError */
  async cutLooseEnd(): Promise<void> {
    if (this.#hasLooseEnd) await this.cutBack({ durably: false });
  }

  /** Takes the batch that begins at the segment's end into size and indexes. */
  noteBatch(batch: IndexedBatch, indexIntervalBytes: number): void {
    this.indexes.noteBatch(batch, this.sizeBytes, indexIntervalBytes);
    this.#recent.note(batch.lastOffset, this.sizeBytes);
    this.sizeBytes += batch.sizeInBytes;
  }

  /**
   * Whether a batch, or several that are appended together, belong into the next segment. An empty segment is never left, but for an
   * offset that it cannot hold.
   * Source: apache/kafka storage/.../internals/log/LogSegment.java, shouldRoll
   */
  mustRollBefore(batch: IndexedBatch, limits: RollLimits): boolean {
    const usedBytes = this.sizeBytes + limits.pendingBytes;
    if (!this.index.canHold(batch.lastOffset)) return true;
    if (usedBytes === 0) return false;
    if (usedBytes > limits.segmentBytesMax - batch.sizeInBytes || this.indexes.isFull) return true;
    return this.#waitedMs(batch.maxTimestamp, limits.pendingFirstTimestamp) > this.#rollMs;
  }

  /** By the time of the records where the first batch has one: a log that is filled with old records is cut up as it would have been then. */
  #waitedMs(maxTimestamp: number, pendingFirstTimestamp: number | undefined): number {
    const firstTimestamp = this.indexes.firstTimestamp ?? pendingFirstTimestamp ?? NO_TIMESTAMP;
    return firstTimestamp >= 0 ? maxTimestamp - firstTimestamp : this.#clock.wallMs() - this.#createdMs;
  }

  /** Bytes were written or cut since the last `sync` began. */
  get isDirty(): boolean {
    return this.#pendingSync.isDirty;
  }

  set isDirty(isDirty: boolean) {
    this.#pendingSync.isDirty = isDirty;
  }

  /** Makes the written batches durable. Not repeated after a failure: the caller takes the directory offline. @throws FileError */
  sync(): Promise<void> {
    // Opened before: where that fails there was no sync, and the next one may make up for it.
    return this.isDirty
      ? this.use((file) => this.#pendingSync.run(() => file.sync()))
      : this.#pendingSync.run(() => Promise.resolve());
  }

  /**
   * Brings the three index files to exactly the entries in memory, and syncs them.
   * @returns whether one of them may be new: then the directory is to be synced
   * @throws FileError
   */
  async persistIndexes(): Promise<boolean> {
    const isTransactionIndexNew = await this.#persistTransactionIndex();
    return (await this.indexes.persist()) || isTransactionIndexNew;
  }

  /**
   * As `persistIndexes`, but the syncs of offset and time index are left to the next call of that one, also when the entries are in their files only
   * by then. Until then nobody may vouch for them. The caller syncs the directory.
   * @throws FileError
   */
  async writeIndexes(): Promise<void> {
    await this.#persistTransactionIndex();
    await this.indexes.write();
  }

  /**
   * Brings the transaction index's file to exactly the entries in memory, and syncs it.
   * @returns whether the caller has to sync the directory
   * @throws FileError
   */
  async #persistTransactionIndex(): Promise<boolean> {
    const { count } = this.transactionIndex;
    if (this.#persistedTransactions === count) return false;
    if (count === 0) await removeIfPresent(this.#files, this.transactionIndexPath);
    else {
      // Never a part, which might look like entries: the next open may look at no more than their number.
      const temporaryPath = `${this.transactionIndexPath}.tmp`;
      const file = await this.#files.open(temporaryPath, "truncate");
      try {
        await writeFully(file, this.transactionIndex.encode(), 0);
        await file.sync();
      } finally {
        await file.close();
      }
      await this.#files.rename(temporaryPath, this.transactionIndexPath);
    }
    this.#persistedTransactions = count;
    return true;
  }

  /**
   * Cuts the file at `positionBytes`, the begin of a batch, and syncs it. `offset` is where the log ends now: index entries
   * at or above it go.
   * @throws FileError
   */
  async truncateAt(positionBytes: number, offset: Offset): Promise<void> {
    // What else another program may have left here would point behind the cut.
    await this.#segmentFiles.removeSideFiles([
      OFFSET_INDEX_SUFFIX,
      TIME_INDEX_SUFFIX,
      TRANSACTION_INDEX_SUFFIX,
      PRODUCER_SNAPSHOT_SUFFIX,
    ]);
    this.#keepsIndexes = true;
    await this.loadIndexes();
    this.#cuts += 1;
    this.transactionIndex.truncateTo(offset);
    this.#recent.clear();
    this.sizeBytes = positionBytes;
    const { fromBytes, isFileBehind } = this.indexes.truncateTo(offset, positionBytes === 0);
    if (positionBytes === 0) this.#createdMs = this.#clock.wallMs();
    else {
      await this.#noteTimestamps(fromBytes);
      await this.firstTimestamp();
    }
    // Entries behind the cut leave the files at once: a segment that is sealed next may lie below the recovery point already, and
    // would not be written again.
    if (isFileBehind || this.#persistedTransactions !== 0) await this.persistIndexes();
    const file = await this.openForAppend();
    await file.truncate(positionBytes);
    this.isDirty = false;
    await file.sync();
  }

  /** Reads the timestamps of the batches from `fromBytes` on. */
  async #noteTimestamps(fromBytes: number): Promise<void> {
    await this.walk(fromBytes, LOOKUP_CHUNK_BYTES, ({ maxTimestamp, lastOffset }) =>
      this.indexes.noteTimestamp(maxTimestamp, lastOffset),
    );
  }

  /** Takes the bytes of a failed write away again. @throws FileError */
  async cutBack({ durably }: { readonly durably: boolean }): Promise<void> {
    const file = this.#file ?? fail("the active segment is open", { path: this.path });
    await file.truncate(this.sizeBytes);
    this.#hasLooseEnd = false;
    this.isDirty = true;
    if (durably) await this.sync();
  }

  /**
   * Where the first batch with last offset >= `offset` begins, or `undefined` when none has.
   * @throws LogError CORRUPT_MESSAGE when the offset lies in damage @throws FileError
   */
  async positionOf(offset: number): Promise<number | undefined> {
    if (this.sizeBytes === 0) return undefined;
    const recent = this.damaged.length === 0 ? this.#recent.find(offset) : undefined;
    if (recent !== undefined) return recent;
    const found = await this.findBatchOf(offset, ({ lastOffset }) => lastOffset >= offset);
    return found?.positionBytes;
  }

  /**
   * The first batch whose header `isWanted`, looked for from the index entry of `offset` on; `undefined` when there is none.
   *
   * The first look at a segment that was taken as it was left: where index and batches do not go together, the index is made anew, and what
   * is no batch is damage from then on.
   * @throws LogError CORRUPT_MESSAGE when the offset lies in damage @throws FileError
   */
  async findBatchOf(offset: number, isWanted: (header: BatchHeader) => boolean): Promise<FoundBatch | undefined> {
    await this.loadIndexes();
    const isProven = this.indexes.areProven;
    refuseDamage(this.damaged, offset);
    const entry = this.index.entryOf(offset);
    try {
      return await this.findBatch(entry?.positionBytes ?? 0, isWanted, entry?.offset);
    } catch (error) {
      if (isProven || !(error instanceof LogError && error.code === "CORRUPT_MESSAGE")) throw error;
    }
    await this.rebuildIndexes();
    return this.findBatchOf(offset, isWanted);
  }

  /**
   * The first batch from `fromBytes` on, where one begins, whose header `isWanted`; `undefined` when there is none. Goes around damage.
   * @param firstLastOffset what the last offset of the batch at `fromBytes` has to be
   * @throws LogError CORRUPT_MESSAGE for damage that was not known of @throws FileError
   */
  async findBatch(
    fromBytes: number,
    isWanted: (header: BatchHeader) => boolean,
    firstLastOffset?: number,
  ): Promise<FoundBatch | undefined> {
    const skip = this.damaged;
    return this.use(async (file) => {
      let atBytes = afterDamage(fromBytes, skip);
      for (;;) {
        let found: FoundBatch | undefined;
        const toBytes = skip.find((range) => range.fromBytes >= atBytes)?.fromBytes ?? this.sizeBytes;
        const end = await walkSegment({
          io: this.io,
          file,
          fromBytes: atBytes,
          toBytes,
          chunkBytes: LOOKUP_CHUNK_BYTES,
          verifyCrc: false,
          onBatch: (header, positionBytes) => {
            if (positionBytes === fromBytes && firstLastOffset !== undefined && header.lastOffset !== firstLastOffset)
              return `ends at offset ${header.lastOffset}, by the index at ${firstLastOffset}`;
            if (!isWanted(header)) return undefined;
            found = { header, positionBytes };
            return "found";
          },
        });
        if (found !== undefined) return found;
        // The bytes up to here were whole batches once: a file that changed must not look like the end of the log.
        if (end.type !== "end") throw this.#unreadable(end);
        atBytes = afterDamage(toBytes, skip);
        if (atBytes >= this.sizeBytes || atBytes === toBytes) return undefined;
      }
    });
  }

  /**
   * Where the first batch with last offset >= `offset` lies and how large it is, as lookups at once have met it before, or `undefined`. Reads
   * nothing: whoever reads there compares the header.
   */
  placeOf(offset: number): BatchPlace | undefined {
    if (!this.indexes.areLoaded || this.damaged.length > 0) return undefined;
    return this.index.placeOf(offset);
  }

  /**
   * As `positionOf` and a look at the batch, at once. Also reads what follows its begin, as far as it does so anyway.
   * @returns `undefined` when it cannot be told at once
   * @throws FileError
   */
  findBatchNow(offset: number): FoundNow | undefined {
    const file = this.#file;
    if (file === undefined || !this.indexes.areLoaded || this.damaged.length > 0) return undefined;
    const { index } = this;
    const recent = this.#recent.find(offset);
    const entryAt = recent === undefined ? index.entryAtOf(offset) : -1;
    const entry = index.entry(entryAt);
    const entryBytes = entry?.positionBytes;
    let atBytes = recent ?? entryBytes ?? 0;
    /** Where the batch begins that is remembered for the entry. */
    let behindBytes = recent === undefined && entry === undefined ? 0 : undefined;
    let wantedBytes = LOOKUP_NOW_FIRST_BYTES;
    for (let reads = 0; reads < LOOKUP_READS_NOW_MAX; reads += 1) {
      const asked = Math.min(wantedBytes, this.sizeBytes - atBytes);
      if (asked <= 0) return undefined;
      const chunk = lookupChunk.subarray(0, asked);
      if (this.io.readNow(file, chunk, atBytes) !== asked) return undefined;
      let at = 0;
      while (at < asked) {
        const scan = readBatchHeader(chunk, at);
        if (scan.type === "corrupt") return undefined;
        if (scan.type === "incomplete") break;
        const { header } = scan;
        // Of an index that does not fit, `findBatchOf` makes another.
        if (atBytes + at === entryBytes) {
          if (header.lastOffset !== entry?.offset) return undefined;
          behindBytes = entryBytes + header.sizeInBytes;
        } else if (atBytes + at === behindBytes) index.noteBehind(entryAt, header, behindBytes);
        if (header.lastOffset >= offset) return { header, positionBytes: atBytes + at, bytes: chunk.subarray(at) };
        at += header.sizeInBytes;
        wantedBytes = header.sizeInBytes > LOOKUP_NOW_FIRST_BYTES ? LOOKUP_NOW_HEADER_BYTES : LOOKUP_CHUNK_BYTES;
      }
      atBytes += at;
    }
    return undefined;
  }

  /** Fills `target` from the file, at once. @returns false when that cannot be done at once @throws FileError */
  readNow(target: Uint8Array, positionBytes: number): boolean {
    return this.#file !== undefined && this.io.readNow(this.#file, target, positionBytes) === target.length;
  }

  /** Bytes of the file, in fresh memory. @throws LogError KAFKA_STORAGE_ERROR when there are fewer @throws FileError */
  async readBytes(positionBytes: number, count: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(count);
    const read = await this.use((file) => this.io.read(file, bytes, positionBytes));
    if (read === count) return bytes;
    throw new LogError({ code: "KAFKA_STORAGE_ERROR", failure: "IO_ERROR", path: this.path, operation: "read" });
  }

  /**
   * The largest timestamp of a record, ms; where none has one, when the file was last written.
   * @throws FileError
   * Source: apache/kafka storage/.../internals/log/LogSegment.java, largestTimestamp
   */
  async largestTimestamp(): Promise<number> {
    const { maxTimestamp } = await this.timestamps();
    return maxTimestamp >= 0 ? maxTimestamp : this.modifiedMs();
  }

  /** Makes what is known of timestamps that of the batches' headers. Cost: a walk over the segment, once. @throws FileError */
  async proveTimestamps(): Promise<void> {
    if (!this.indexes.areProven) await this.rebuildIndexes();
  }

  /** What the time index says where nobody has read the batches since the open. @throws FileError */
  async timestamps(): Promise<Pick<SegmentIndexes, "maxTimestamp" | "maxTimestampOffset">> {
    const { indexes } = this;
    if (indexes.areLoaded || indexes.maxTimestamp >= 0) return indexes;
    await this.loadIndexes();
    // Asked of every segment in turn: that must not bring all of their entries into memory.
    this.unloadIndexes();
    return indexes;
  }

  /** Max timestamp of the first batch, ms; `undefined` when there is none. @throws FileError */
  async firstTimestamp(): Promise<number | undefined> {
    if (this.indexes.firstTimestamp === undefined && this.sizeBytes > 0)
      await this.walk(0, RECORD_BATCH_OVERHEAD, ({ maxTimestamp }) => {
        this.indexes.firstTimestamp = maxTimestamp;
        return "seen";
      });
    return this.indexes.firstTimestamp;
  }

  /** The last offset of the first indexed batch that begins at or behind a position, or `undefined`. @throws FileError */
  async indexedOffsetAtOrAbove(positionBytes: number): Promise<number | undefined> {
    await this.loadIndexes();
    return this.index.offsetAtOrAbove(positionBytes);
  }

  /** When the file was last written, ms. @throws FileError */
  modifiedMs(): Promise<number> {
    return this.use((file) => file.modifiedMs());
  }

  /** As `SegmentFiles.renameForRemoval`. @throws FileError */
  renameForRemoval(): Promise<void> {
    return this.#segmentFiles.renameForRemoval();
  }

  /** As `SegmentFiles.removeRenamed`. @throws FileError */
  removeRenamed(): Promise<void> {
    return this.#segmentFiles.removeRenamed();
  }

  /** As `SegmentFiles.remove`. @throws FileError */
  remove(): Promise<void> {
    return this.#segmentFiles.remove();
  }

  /** As `SegmentFiles.makeWay`. @throws FileError */
  makeWay(): Promise<void> {
    return this.#segmentFiles.makeWay();
  }

  /** As `SegmentFiles.renameTo`. @returns the segment under its new names @throws FileError */
  async renamed(settings: SegmentSettings, suffix: string): Promise<LogSegment> {
    await this.close();
    const renamed = new LogSegment({ ...settings, nameSuffix: suffix }, this.baseOffset);
    await this.#segmentFiles.renameTo(suffix);
    renamed.sizeBytes = this.sizeBytes;
    renamed.indexes.takeOver(this.indexes);
    renamed.adoptTransactionIndex(this.transactionIndex, true);
    return renamed;
  }

  /** Replaces the log file by a fresh copy of itself that is known to be on the disk. The caller syncs the directory. @throws FileError */
  async copyAfresh(): Promise<void> {
    const copyPath = `${this.path}.tmp`;
    await copyRanges(this.#files, this, [{ fromBytes: 0, toBytes: this.sizeBytes }], copyPath);
    await this.#files.rename(copyPath, this.path);
    await this.#segmentFiles.closeIfIdle();
    this.isDirty = false;
  }

  /** Idempotent; does not sync. */
  close(): Promise<void> {
    return this.#segmentFiles.close();
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
}

export interface FoundBatch {
  readonly header: BatchHeader;
  readonly positionBytes: number;
}

/** A batch that was found without waiting. */
export interface FoundNow extends FoundBatch {
  /** Of the file, from the begin of the batch on; overwritten by the next lookup. */
  readonly bytes: Uint8Array;
}

function afterDamage(positionBytes: number, skip: readonly DamagedRange[]): number {
  let position = positionBytes;
  for (const range of skip) if (position >= range.fromBytes && position < range.toBytes) position = range.toBytes;
  return position;
}
