import { fail, InvariantError, toOffset } from "@tidemark/base";
import type { FileSystem, Offset } from "@tidemark/base";
import type { EpochEntry } from "@tidemark/epoch-cache";
import { FLUSHES_BEHIND_MAX } from "./config.ts";
import type { LogConfig } from "./config.ts";
import type { LoadedLog } from "./load-log.ts";
import { printOf } from "./log-seal.ts";
import type { LogSeal } from "./log-seal.ts";
import type { LogState } from "./log-state.ts";
import { PendingSync } from "./pending-sync.ts";
import type { ProducerSnapshots } from "./producer-snapshots.ts";
import type { LogSegment } from "./segment.ts";

/** What of a log is to be flushed, as it is at the moment. */
export interface FlushedLog {
  readonly segments: readonly LogSegment[];
  readonly logStartOffset: Offset;
  readonly logEndOffset: Offset;
  /** Where the next open would find the end, were all of it on the disk. */
  readonly foundEndOffset: Offset;
}

/** Whom a flush tells, and asks. */
export interface FlushEvents {
  /** Of a flush in the background that failed; at once, and perhaps more than once. */
  readonly onFailure: (error: unknown) => void;
  /** The flushed end moved. */
  readonly onFlushed: () => void;
  /** What ends all syncs here: behind a failed one, another's too, pages may be clean and gone, and the next would write nothing and succeed. */
  readonly stop: () => Error | undefined;
}

interface LogFlushOptions {
  readonly files: FileSystem;
  readonly directory: string;
  readonly config: LogConfig;
}

/**
 * How far a log is on the disk, and the flush that brings it there, beside appends.
 *
 * Without `always` appends may be faster than the disk. So the recovery point rises inside of a flush, each `flushBytes`, and where more
 * than `FLUSHES_BEHIND_MAX` times as many lie above it appends wait: an open after a crash has no more to check than that and a group.
 * Invariant: flushed end <= log end; recovery point <= end of the last batch.
 * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, flush
 */
export class LogFlush {
  readonly #files: FileSystem;
  readonly #directory: string;
  readonly #config: LogConfig;
  readonly #log: FlushedLog;
  readonly #state: LogState;
  readonly #snapshots: ProducerSnapshots;
  readonly #isDamaged: boolean;
  readonly #epochEntries: () => readonly EpochEntry[];
  readonly #events: FlushEvents;
  /** Dirty: files were made or removed. */
  readonly #directorySync: PendingSync;
  #flushedEndOffset: Offset;
  #recoveryPoint: Offset;
  /** Of batches above the recovery point, or more. */
  #unflushedBytes: number;
  /** Segments with a base offset below are synced with their indexes: the state may vouch for them. */
  #sealedBelow: number;
  /** The flush under way: resolves with what stopped it, or `undefined`; never rejects. */
  #background: Promise<unknown> | undefined;
  /** Of the append that waits for the recovery point to rise. */
  #onRaised: (() => void) | undefined;

  /** @param log read anew each time */
  constructor(options: LogFlushOptions, loaded: LoadedLog, log: FlushedLog, events: FlushEvents) {
    this.#files = options.files;
    this.#directory = options.directory;
    this.#config = options.config;
    this.#log = log;
    this.#state = loaded.state;
    this.#snapshots = loaded.snapshots;
    this.#isDamaged = loaded.damaged.length > 0;
    const { epochs } = loaded;
    this.#epochEntries = () => epochs.entries;
    this.#events = events;
    this.#directorySync = new PendingSync(loaded.segments.some((segment) => segment.isDirty));
    this.#flushedEndOffset = loaded.flushedEndOffset;
    this.#recoveryPoint = loaded.recoveryPoint;
    this.#unflushedBytes = loaded.unflushedBytes;
    this.#sealedBelow = loaded.sealedBelow;
  }

  get flushedEndOffset(): Offset {
    return this.#flushedEndOffset;
  }

  get recoveryPoint(): Offset {
    return this.#recoveryPoint;
  }

  get sealedBelow(): number {
    return this.#sealedBelow;
  }

  set sealedBelow(baseOffset: number) {
    this.#sealedBelow = baseOffset;
  }

  get #active(): LogSegment {
    return this.#log.segments.at(-1) ?? fail("a log has a segment", { directory: this.#directory });
  }

  noteWritten(sizeBytes: number): void {
    this.#unflushedBytes += sizeBytes;
  }

  /** Files were made, renamed or removed: the next sync has to cover the directory. */
  noteNames(): void {
    this.#directorySync.isDirty = true;
  }

  get hasUnsyncedNames(): boolean {
    return this.#directorySync.isDirty;
  }

  /** Syncs the directory if something is left to sync there. @throws FileError */
  syncNames(): Promise<void> {
    return this.#directorySync.run(() => this.#files.syncDirectory(this.#directory));
  }

  /** After a group: syncs in `always` mode, and keeps the recovery point from lagging. @throws FileError */
  async commit(): Promise<void> {
    if (this.#config.flush === "always") {
      await this.#syncActive();
      this.#flushedEndOffset = this.#log.logEndOffset;
      if (this.#unflushedBytes >= this.#config.flushBytes)
        await this.#raiseRecoveryPoint(this.#flushedEndOffset, this.#active.baseOffset, 0);
    } else this.bound();
  }

  /** In `always` mode, before the next segment begins at `firstOffset`: the active one is made durable with its indexes. @throws FileError */
  async commitSealed(firstOffset: Offset): Promise<void> {
    const sealed = this.#active;
    await this.#syncActive();
    await sealed.persistIndexes();
    if (sealed.transactionIndex.count > 0) await this.#files.syncDirectory(this.#directory);
    this.#flushedEndOffset = this.#log.logEndOffset;
    await this.#raiseRecoveryPoint(this.#log.logEndOffset, firstOffset, 0);
  }

  async #syncActive(): Promise<void> {
    await this.#active.sync();
    await this.syncNames();
  }

  /** Begins a flush where the recovery point lags too far; it stands still in `always` mode. */
  bound(): void {
    if (this.#unflushedBytes >= this.#config.flushBytes) this.startBackground();
  }

  /** Whether what comes next has to wait for `makeRoom`. */
  get mustWait(): boolean {
    return this.#unflushedBytes >= this.#config.flushBytes * FLUSHES_BEHIND_MAX;
  }

  /**
   * Before something is written: waits until few enough bytes lie above the recovery point, or nothing may be written any more. One call at
   * a time.
   * @throws what stopped the flush that was to make room. If the disk is only full, the next call begins another
   */
  async makeRoom(): Promise<void> {
    while (this.mustWait) {
      this.startBackground();
      if (this.#background === undefined) return;
      const failure = await new Promise<unknown>((resolve) => {
        this.#onRaised = () => resolve(undefined);
        void this.#background?.then(resolve);
      });
      this.#onRaised = undefined;
      if (failure !== undefined) throw failure;
    }
  }

  /** Makes everything up to the log end durable, indexes of sealed segments too, and raises the recovery point to it. @throws FileError */
  async flush(): Promise<void> {
    await this.#background;
    await this.#flush();
  }

  /** Waits for a flush in the background. */
  async settle(): Promise<void> {
    await this.#background;
  }

  /** Begins to flush beside appends, unless that is going on, or nothing may be synced any more. */
  startBackground(): void {
    if (this.#events.stop() !== undefined) return;
    this.#background ??= this.#flush()
      .catch((error: unknown) => {
        this.#events.onFailure(error);
        return error;
      })
      .finally(() => {
        this.#background = undefined;
      });
  }

  /**
   * Segment by segment: contents, and beside those of the next one the indexes. Below the recovery point one may be dirty too: cut just there
   * by a process that died before it could sync the cut.
   */
  async #flush(): Promise<void> {
    const { segments, logEndOffset } = this.#log;
    const active = this.#active;
    const activeBytes = active.sizeBytes;
    let syncedBytes = 0;
    let sealed: LogSegment | undefined;
    for (const segment of segments) {
      this.#checkUsable();
      const isNameNew = await this.#bothOf(segment.sync(), sealed?.persistIndexes());
      if (isNameNew === true || (sealed?.transactionIndex.count ?? 0) > 0) this.noteNames();
      if (sealed !== undefined && segment.baseOffset > this.#recoveryPoint) syncedBytes += sealed.sizeBytes;
      sealed = segment;
      if (segment === active || syncedBytes < this.#config.flushBytes) continue;
      syncedBytes = 0;
      await this.#noteSynced(segment.baseOffset, segment.baseOffset, 0);
    }
    await this.#noteSynced(logEndOffset, active.baseOffset, activeBytes);
    this.#events.onFlushed();
  }

  #checkUsable(): void {
    const stop = this.#events.stop();
    if (stop !== undefined) throw stop;
  }

  /** What the second gives. Ends when both have, so that nothing goes on behind a flush that failed; but the failure is told at once, for appends go on beside it. */
  async #bothOf<Second>(first: Promise<unknown>, second: Promise<Second> | undefined): Promise<Second | undefined> {
    try {
      const [, result] = await Promise.all([first, second]);
      return result;
    } catch (error) {
      this.#events.onFailure(error);
      await Promise.allSettled([first, second]);
      throw error;
    }
  }

  /**
   * Contents and indexes up to here are on the disk: snapshots and names follow, only then the recovery point.
   * @param baseOffset of the segment from which on bytes are left, behind the first `syncedBytes` of it
   */
  async #noteSynced(endOffset: Offset, baseOffset: Offset, syncedBytes: number): Promise<void> {
    this.#checkUsable();
    await this.#snapshots.sync();
    this.#checkUsable();
    await this.syncNames();
    // Somebody else's sync of the directory may have failed meanwhile: then this one vouches for nothing.
    this.#checkUsable();
    if (endOffset > this.#flushedEndOffset) this.#flushedEndOffset = endOffset;
    let leftBytes = -syncedBytes;
    for (const segment of this.#log.segments) if (segment.baseOffset >= baseOffset) leftBytes += segment.sizeBytes;
    await this.#raiseRecoveryPoint(endOffset, baseOffset, leftBytes);
    this.#onRaised?.();
  }

  /**
   * @param sealedBelow segments with a lower base offset are synced with their indexes too
   * @param unflushedBytes what lies above at the call
   */
  async #raiseRecoveryPoint(endOffset: Offset, sealedBelow: number, unflushedBytes: number): Promise<void> {
    const flushedBytes = this.#unflushedBytes - unflushedBytes;
    const offset = toOffset(Math.min(endOffset, this.#log.foundEndOffset));
    if (!this.#isDamaged && (offset > this.#recoveryPoint || sealedBelow > this.#sealedBelow)) {
      this.#sealedBelow = Math.max(this.#sealedBelow, sealedBelow);
      await this.#saveRaised(offset);
    }
    // Only now: an append that waited for it may go on.
    this.#unflushedBytes -= flushedBytes;
  }

  async #saveRaised(offset: Offset): Promise<void> {
    try {
      if (offset <= this.#recoveryPoint) return await this.#state.saveSeal(this.seal());
      await this.#state.raiseRecoveryPoint(offset, this.seal());
    } catch (error) {
      if (error instanceof InvariantError) throw error;
      return; // Where it stands it is right too, only low: the next raise tries again.
    }
    this.#recoveryPoint = offset;
  }

  /** What the state may vouch for: nothing from the first segment on in which damage was met. @param logStartOffset that will be */
  seal(logStartOffset: Offset = this.#log.logStartOffset): LogSeal {
    const { segments } = this.#log;
    // Those that lie below the start may be gone at the next open, and are then.
    const kept = segments.filter(
      (_segment, at) => (segments[at + 1]?.baseOffset ?? Number.POSITIVE_INFINITY) > logStartOffset,
    );
    const damaged = kept.find((segment) => segment.damaged.length > 0);
    const endBaseOffset = Math.min(this.#sealedBelow, damaged?.baseOffset ?? this.#sealedBelow);
    const covered = kept.filter(({ baseOffset }) => baseOffset < endBaseOffset);
    const print = printOf(covered, this.#epochEntries(), { logStartOffset, endOffset: endBaseOffset });
    return { endBaseOffset, print, stop: undefined };
  }

  /** As `seal`, after a clean stop, when all is flushed with the active segment's indexes. */
  stopSeal(): LogSeal {
    const active = this.#active;
    this.#sealedBelow = active.baseOffset;
    const seal = this.seal();
    if (seal.endBaseOffset !== active.baseOffset) return seal;
    const all = { logStartOffset: this.#log.logStartOffset, endOffset: this.#recoveryPoint };
    const print = printOf([active], this.#epochEntries(), all);
    return { ...seal, stop: { activeBytes: active.sizeBytes, print } };
  }

  /** Before a truncation touches a byte, when the state says so already. No flush is under way. */
  lowerRecoveryPoint(offset: Offset): void {
    this.#recoveryPoint = offset;
  }

  /** The log ends at `endOffset` after a truncation. */
  noteCut(endOffset: Offset): void {
    this.#flushedEndOffset = toOffset(Math.min(this.#flushedEndOffset, endOffset));
  }

  /** The log is empty, durably, and begins at `offset`. */
  startAt(offset: Offset): void {
    this.#flushedEndOffset = offset;
    this.#recoveryPoint = offset;
    this.#unflushedBytes = 0;
  }
}
