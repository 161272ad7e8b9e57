import { fail, toOffset } from "@tidemark/base";
import type { FileSystem, Offset } from "@tidemark/base";
import { batchesBefore, endOfBatches } from "./batches-before.ts";
import type { LogConfig } from "./config.ts";
import { DelayedRemovals } from "./delayed-removals.ts";
import { SWAP_SUFFIX } from "./file-names.ts";
import type { LoadedLog } from "./load-log.ts";
import { storageError } from "./log-directory.ts";
import { LogFlush } from "./log-flush.ts";
import type { FlushedLog, FlushEvents } from "./log-flush.ts";
import { floorSegment, readLog, readLogNow } from "./log-read.ts";
import type { LogView, ReadOptions, ReadResult } from "./log-read.ts";
import type { LogState } from "./log-state.ts";
import type { ProducerSnapshots } from "./producer-snapshots.ts";
import type { ProducerState } from "./producer-state.ts";
import { RecentlyRead } from "./recently-read.ts";
import type { DamagedRange } from "./recovery-report.ts";
import { LogSegment } from "./segment.ts";
import type { SegmentSettings } from "./segment.ts";
import type { IndexedBatch } from "./segment-indexes.ts";
import type { AbortedTransaction } from "./transaction-index.ts";

/** A batch that was written: what indexes and log end need of it. */
export interface WrittenBatch extends IndexedBatch {
  readonly lastOffset: Offset;
  /** The transaction that it ends, if it is an abort marker. */
  readonly aborted?: AbortedTransaction | undefined;
}

interface LocalLogOptions {
  readonly files: FileSystem;
  readonly directory: string;
  readonly config: LogConfig;
}

/**
 * The segments of a partition and the offsets that say what of them is written, synced and to be scanned after a crash.
 *
 * Knows nothing of leaders and callers, and of epochs only what the next open may hold against their file. Everything that changes it is called from the partition's queue, one at a time;
 * only the background flush runs beside appends, and whatever removes or cuts waits for it first.
 * Invariant: recovery point <= end of the last batch <= log end; flushed end <= log end.
 * Source: apache/kafka storage/.../internals/log/LocalLog.java
 */
export class LocalLog implements FlushedLog {
  readonly #files: FileSystem;
  readonly #directory: string;
  readonly #config: LogConfig;
  readonly #segmentSettings: SegmentSettings;
  readonly #state: LogState;
  readonly #damaged: readonly DamagedRange[];
  readonly #snapshots: ProducerSnapshots;
  readonly #flush: LogFlush;
  /** Ascending, never empty, replaced and not changed: a reader keeps the array it began with. The last one is active. */
  #segments: readonly LogSegment[];
  #logStartOffset: Offset;
  #logEndOffset: Offset;
  /** End of the last batch. Below the log end only after a truncation inside a batch, until the next append. */
  #lastBatchEndOffset: Offset;
  /** Made when it is needed, as below: most logs delete and read nothing. */
  #removals: DelayedRemovals | undefined;
  #recentlyRead: RecentlyRead | undefined;

  constructor(options: LocalLogOptions, loaded: LoadedLog, events: FlushEvents) {
    this.#files = options.files;
    this.#segmentSettings = loaded.segmentSettings;
    this.#directory = options.directory;
    this.#config = options.config;
    this.#state = loaded.state;
    this.#damaged = loaded.damaged;
    this.#snapshots = loaded.snapshots;
    this.#segments = loaded.segments;
    this.#logStartOffset = loaded.logStartOffset;
    this.#logEndOffset = loaded.logEndOffset;
    this.#lastBatchEndOffset = loaded.logEndOffset;
    this.#flush = new LogFlush(options, loaded, this, events);
  }

  get segmentSettings(): SegmentSettings {
    return this.#segmentSettings;
  }

  get segments(): readonly LogSegment[] {
    return this.#segments;
  }

  get active(): LogSegment {
    return this.#segments.at(-1) ?? fail("a log has a segment", { directory: this.#directory });
  }

  get firstBaseOffset(): Offset {
    return this.#segments[0]?.baseOffset ?? fail("a log has a segment", { directory: this.#directory });
  }

  /** One moment of the log. */
  get view(): LogView {
    return {
      segments: this.#segments,
      logStartOffset: this.#logStartOffset,
      logEndOffset: this.#logEndOffset,
      damaged: this.#damaged,
    };
  }

  get logStartOffset(): Offset {
    return this.#logStartOffset;
  }

  get logEndOffset(): Offset {
    return this.#logEndOffset;
  }

  get flushedEndOffset(): Offset {
    return this.#flush.flushedEndOffset;
  }

  /**
   * Where the next open would find the end: above the last batch nothing but a segment that begins there tells of it. What else is missing it
   * takes for a loss.
   */
  get foundEndOffset(): Offset {
    return toOffset(Math.max(this.#lastBatchEndOffset, this.active.baseOffset));
  }

  get recoveryPoint(): Offset {
    return this.#flush.recoveryPoint;
  }

  /** As `LogState.cleanerOffset`. */
  get cleanerOffset(): Offset | undefined {
    return this.#state.cleanerOffset;
  }

  /** As `LogState.raiseCleanerOffset`. */
  raiseCleanerOffset(offset: Offset): Promise<void> {
    return this.#state.raiseCleanerOffset(offset);
  }

  /** After an open, before anything is appended: what was lost of the log is not clean when it comes again. @throws FileError */
  lowerCleanerOffset(): Promise<void> {
    return this.#state.lowerCleanerOffset(this.#logEndOffset);
  }

  /** See `readLog`. @throws LogError, FileError */
  async read(options: ReadOptions): Promise<ReadResult> {
    // Noted before it is read: its file then stays open from the first time on.
    await this.#noteRead(this.#segments[floorSegment(this.#segments, options.fromOffset)]);
    return readLog(this.view, options);
  }

  /** As `read`, at once; `undefined` when that cannot be. @throws LogError, FileError */
  readNow(options: ReadOptions): ReadResult | undefined {
    const segment = this.#segments[floorSegment(this.#segments, options.fromOffset)];
    if (segment !== undefined && segment !== this.active) {
      if (this.#recentlyRead?.noteAgain(segment) !== true) return undefined;
    }
    return readLogNow(this.view, options);
  }

  /**
   * Writes whole batches at the end of the active segment. Nothing moves: `noteBatches` follows.
   * @throws LogError KAFKA_STORAGE_ERROR; with ENOSPC nothing of them is left in the file
   */
  async write(bytes: Uint8Array): Promise<void> {
    try {
      await this.active.write(bytes);
    } catch (error) {
      await this.failWrite(error);
    }
  }

  /**
   * As `write`, at once.
   * @returns false when that cannot be: then `write`
   * @throws FileError; then `failWrite` is due before anything else is written
   */
  writeNow(bytes: Uint8Array): boolean {
    return this.active.writeNow(bytes);
  }

  /** Draws the consequence of a failed write for the file: with ENOSPC nothing of it is left there. @throws LogError in any case */
  async failWrite(error: unknown): Promise<never> {
    const segment = this.active;
    const failure = storageError(error, segment.path);
    // Durably, before anybody is told that it failed, or other batches get these offsets: a flush beside it may have synced what was refused,
    // and a crash that loses the others would bring it back in their place.
    if (failure.retriable) await segment.cutBack({ durably: true });
    throw failure;
  }

  /** Takes written batches into index and log end. */
  noteBatches(batches: readonly WrittenBatch[]): void {
    for (const batch of batches) this.noteBatch(batch);
  }

  /** Takes a written batch into index and log end. */
  noteBatch(batch: WrittenBatch): void {
    const { active } = this;
    active.noteBatch(batch, this.#config.indexIntervalBytes);
    if (batch.aborted !== undefined) active.transactionIndex.append(batch.aborted);
    this.#flush.noteWritten(batch.sizeInBytes);
    this.#logEndOffset = toOffset(batch.lastOffset + 1);
    this.#lastBatchEndOffset = this.#logEndOffset;
  }

  /** Whether something was written that a sync has not covered. */
  get isDirty(): boolean {
    return this.active.isDirty;
  }

  /** As `LogFlush.commit`. @throws FileError */
  commit(): Promise<void> {
    return this.#flush.commit();
  }

  /** As `LogFlush.bound`. */
  boundUnflushed(): void {
    this.#flush.bound();
  }

  /** As `LogFlush.mustWait`. */
  get mustWait(): boolean {
    return this.#flush.mustWait;
  }

  /** As `LogFlush.makeRoom`. @throws FileError */
  makeRoom(): Promise<void> {
    return this.#flush.makeRoom();
  }

  /**
   * Seals the active segment and begins one at `firstOffset`, the offset of the batch that comes next.
   *
   * In `always` mode everything so far is durable then; otherwise a flush begins in the background.
   * @param producers what is known of them at the log end; a snapshot of it is written
   * @throws FileError; then the active segment stays what it was
   */
  async roll(firstOffset: Offset, producers: ProducerState): Promise<void> {
    const sealed = this.active;
    const isAlways = this.#config.flush === "always";
    await sealed.cutLooseEnd();
    sealed.indexes.noteEnd();
    if (isAlways) await this.#flush.commitSealed(firstOffset);
    if (firstOffset > this.foundEndOffset) await this.#state.saveGapBefore(firstOffset, this.foundEndOffset);
    await this.#writeSnapshot(firstOffset, producers, isAlways);
    let segment: LogSegment;
    try {
      segment = await LogSegment.create(this.#segmentSettings, firstOffset);
      // Only now: a flush beside it may have synced the directory a moment ago.
      this.#flush.noteNames();
    } catch (error) {
      // Offsets below it may be given to batches yet: it does not know them.
      if (firstOffset > this.#logEndOffset) await this.#snapshots.removeUnless((offset) => offset < firstOffset);
      throw error;
    }
    this.#segments = [...this.#segments, segment];
    await this.#noteRead(sealed);
    if (!isAlways) this.#flush.startBackground();
  }

  /** As `LogState.forgetGapless`. */
  forgetGapless(): Promise<void> {
    return this.#state.forgetGapless();
  }

  /** As `LogFlush.flush`. @throws FileError */
  flush(): Promise<void> {
    return this.#flush.flush();
  }

  /** As `LogFlush.startBackground`. */
  startBackgroundFlush(): void {
    this.#flush.startBackground();
  }

  /** Waits for a flush in the background, however it ends. */
  settle(): Promise<void> {
    return this.#flush.settle();
  }

  /**
   * Cuts the log so that it ends at `offset`, which lies in it: batches that reach it go whole, and deleted ones with them when no other is
   * left. The cut is durable when this
   * resolves, and so is the lowered recovery point, which goes first: lowered after the cut, a crash in between would look like
   * lost bytes.
   *
   * Snapshots above the cut go durably before the cut: one that came back later would speak of batches that are not there.
   * @returns the producers of what is left
   * @throws FileError, LogError; then the log is not usable until it is opened again
   */
  async truncateTo(offset: Offset): Promise<ProducerState> {
    const keptCount = floorSegment(this.#segments, offset) + 1;
    const kept = this.#segments.slice(0, keptCount);
    const last = kept.at(-1) ?? fail("a segment holds the offset", { offset });
    const positionBytes = (await last.positionOf(offset)) ?? last.sizeBytes;
    const rest = await batchesBefore({ segments: kept, positionBytes, offset }, this.#snapshots, (segment) =>
      this.#noteRead(segment),
    );
    const recoveryPoint = toOffset(Math.min(this.recoveryPoint, rest.endOffset));
    const logStartOffset = toOffset(Math.min(this.#logStartOffset, offset));
    this.#flush.sealedBelow = Math.min(this.#flush.sealedBelow, last.baseOffset);
    const seal = this.#flush.seal(logStartOffset);
    const leavesGap = rest.endOffset < offset;
    await this.#state.noteTruncation({ recoveryPoint, offset, lastBaseOffset: last.baseOffset, leavesGap, seal });
    if (logStartOffset < this.#logStartOffset) await this.#state.saveStart(logStartOffset, recoveryPoint, seal);
    this.#flush.lowerRecoveryPoint(recoveryPoint);
    this.#logStartOffset = logStartOffset;

    if (await this.#snapshots.removeUnless((snapshot) => snapshot <= offset))
      await this.#files.syncDirectory(this.#directory);
    const removed = this.#segments.slice(keptCount).reverse();
    this.#segments = kept;
    for (const segment of removed) await this.#removeSegment(segment);
    if (removed.length > 0) await this.#files.syncDirectory(this.#directory);
    this.#lastBatchEndOffset = rest.endOffset;
    if (this.foundEndOffset < logStartOffset) {
      await this.#beginAtStart();
      this.#segments = this.#segments.slice(-1);
      for (const segment of [...kept].reverse()) await this.#removeSegment(segment);
      await this.#files.syncDirectory(this.#directory);
    } else await last.truncateAt(positionBytes, offset);
    this.#logEndOffset = offset;
    this.#flush.noteCut(offset);
    if (offset > logStartOffset) {
      await this.#writeSnapshot(offset, rest.producers, this.#config.flush === "always");
    }
    return rest.producers;
  }

  /**
   * Puts an empty segment at the log start behind all others, which hold nothing but deleted records: the next open would find a log that ends
   * below its start. Once it is there, the others lie below the start, and go whenever a crash comes.
   */
  async #beginAtStart(): Promise<void> {
    const segment = await LogSegment.create(this.#segmentSettings, this.#logStartOffset);
    await this.#files.syncDirectory(this.#directory);
    this.#segments = [...this.#segments, segment];
  }

  /**
   * Replaces all segments by an empty one at `offset`.
   * @param clearEpochs runs when the old segments are gone and before the new start is durable
   * @throws FileError; then the log is not usable until it is opened again
   */
  async truncateFullyAndStartAt(offset: Offset, clearEpochs: () => Promise<void>): Promise<void> {
    // Whatever a crash leaves of the old segments is a whole log again, from its old start.
    this.#flush.sealedBelow = 0;
    await this.#state.noteTruncation({
      recoveryPoint: toOffset(0),
      offset: toOffset(0),
      lastBaseOffset: -1,
      leavesGap: false,
      seal: this.#flush.seal(),
    });
    this.#flush.lowerRecoveryPoint(toOffset(0));
    await this.#snapshots.removeUnless(() => false);
    const removed = [...this.#segments].reverse();
    for (const segment of removed) await this.#removeSegment(segment);
    await this.#files.syncDirectory(this.#directory);
    const segment = await LogSegment.create(this.#segmentSettings, offset);
    await this.#files.syncDirectory(this.#directory);
    await clearEpochs();
    await this.#state.saveStart(offset, offset);
    this.#segments = [segment];
    this.#logStartOffset = offset;
    this.#logEndOffset = offset;
    this.#lastBatchEndOffset = offset;
    this.#flush.startAt(offset);
  }

  /**
   * Records below `offset`, which lies in the log, are deleted: durable when it resolves. What lies below is made durable first, or a
   * crash could leave a log that ends below its start. No flush may run beside it.
   * @throws FileError
   */
  async raiseLogStart(offset: Offset): Promise<void> {
    if (offset <= this.#logStartOffset) return;
    if (offset > this.flushedEndOffset || this.#flush.hasUnsyncedNames) await this.#flush.flush();
    await this.#state.saveStart(offset, this.recoveryPoint, this.#flush.seal(offset));
    this.#logStartOffset = offset;
    // Behind a cut inside a batch: no batch reaches the start.
    if (this.foundEndOffset < offset) await this.#beginAtStart();
  }

  /**
   * Takes away the oldest `count` segments, which lie below the log start: nobody finds them any more. Their files are renamed, and go
   * after `fileDeleteDelayMs`, or with the close. What a crash leaves of them, the next open removes.
   * @throws FileError of a rename or the sync of it; the segments are gone from the log all the same
   */
  async deleteOldest(count: number): Promise<void> {
    const doomed = this.#segments.slice(0, count);
    this.#segments = this.#segments.slice(count);
    if (!(this.active.baseOffset <= this.#logEndOffset && this.firstBaseOffset <= this.#logStartOffset))
      fail("a log keeps the segment of its start", { directory: this.#directory });
    for (const segment of doomed) {
      this.#recentlyRead?.forget(segment);
      await segment.renameForRemoval();
      this.#snapshots.forget(segment.baseOffset);
      this.#removals ??= new DelayedRemovals(this.#segmentSettings.clock);
      this.#removals.add(segment, this.#config.fileDeleteDelayMs);
    }
    await this.#files.syncDirectory(this.#directory);
  }

  /**
   * Puts a cleaned segment in the place of its sources, neighbours of which none is active. A crash at any moment leaves either the
   * sources whole, or the new segment whole under its `.swap` name, with which the next open goes on.
   * @throws FileError; then the log is not usable until it is opened again
   */
  async replaceSegments(sources: readonly LogSegment[], cleaned: LogSegment): Promise<void> {
    const at = this.#segments.indexOf(sources[0] ?? fail("a swap has sources"));
    const next = this.#segments[at + sources.length];
    if (at < 0 || next === undefined || sources.some((source, index) => this.#segments[at + index] !== source))
      fail("sources of a swap are sealed neighbours", { at, count: sources.length });
    const { baseOffset } = cleaned;
    const announced = { baseOffset, endBaseOffset: next.baseOffset, endOffset: await endOfBatches(cleaned) };
    const { sealedBelow } = this.#flush;
    this.#flush.sealedBelow = Math.min(sealedBelow, baseOffset);
    await this.#state.announceSwap(announced, this.#flush.seal());
    const swap = await cleaned.renamed(this.#segmentSettings, SWAP_SUFFIX);
    await this.#files.syncDirectory(this.#directory);
    for (const source of [...sources].reverse()) {
      if (source.baseOffset === baseOffset) {
        this.#recentlyRead?.forget(source);
        await source.makeWay();
      } else await this.#removeSegment(source);
    }
    await this.#files.syncDirectory(this.#directory);
    await this.#state.noteSwap(announced);
    const segment = await swap.renamed(this.#segmentSettings, "");
    await this.#files.syncDirectory(this.#directory);
    this.#segments = [...this.#segments.slice(0, at), segment, ...this.#segments.slice(at + sources.length)];
    this.#flush.sealedBelow = sealedBelow;
    await this.#state.forgetSwap(baseOffset, this.#flush.seal());
  }

  /** Flushes all, the active segment's indexes, the producers and both offsets too: a clean open needs no scan then. @throws FileError */
  async seal(producers: ProducerState): Promise<void> {
    await this.active.cutLooseEnd();
    await this.flush();
    this.active.indexes.noteEnd();
    await this.active.persistIndexes();
    if (this.active.transactionIndex.count > 0) this.#flush.noteNames();
    if (this.#logEndOffset > (this.#snapshots.offsets.at(-1) ?? this.#logStartOffset))
      await this.#writeSnapshot(this.#logEndOffset, producers, true);
    await this.#flush.syncNames();
    await this.#state.saveStart(this.#logStartOffset, this.recoveryPoint, this.#flush.stopSeal());
  }

  /** Closes the files, whatever state they are in. */
  async close(): Promise<void> {
    await this.#flush.settle();
    await this.#removals?.finish();
    for (const segment of this.#segments) await segment.close().catch(() => undefined);
  }

  async #writeSnapshot(offset: Offset, producers: ProducerState, durably: boolean): Promise<void> {
    await this.#snapshots.write(offset, producers, durably);
    this.#flush.noteNames();
  }

  #noteRead(segment: LogSegment | undefined): Promise<void> | undefined {
    if (segment === undefined || segment === this.active) return undefined;
    this.#recentlyRead ??= new RecentlyRead();
    return this.#recentlyRead.note(segment, this.active);
  }

  async #removeSegment(segment: LogSegment): Promise<void> {
    this.#recentlyRead?.forget(segment);
    await segment.remove();
    this.#snapshots.forget(segment.baseOffset);
  }
}
