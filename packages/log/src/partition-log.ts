import { fail, InvariantError, toOffset } from "@tidemark/base";
import type { Clock, FileSystem, LeaderEpoch, Offset, State, WorkerPool } from "@tidemark/base";
import type { EpochEndOffset, EpochEntry, LeaderEpochFileCache } from "@tidemark/epoch-cache";
import type { BatchHeader } from "@tidemark/wire";
import { stampBatch } from "@tidemark/wire";
import { checkClientRecords, checkFollowerBatches, checkLeaderBatch } from "./append-checks.ts";
import type { BatchOrigin, FollowerBatches } from "./append-checks.ts";
import { checkLogConfig, READ_RETRIES_MAX, SEALED_FILES_OPEN_MAX, UNFLUSHED_BYTES_MAX } from "./config.ts";
import type { LogConfig } from "./config.ts";
import { EndOffsetWaiters } from "./end-offset-waiters.ts";
import type { EndOffsetWait } from "./end-offset-waiters.ts";
import { LogError } from "./error.ts";
import { loadLog } from "./load-log.ts";
import type { LoadedLog } from "./load-log.ts";
import { isDirectoryFailure, storageError } from "./log-directory.ts";
import type { LogDirectory } from "./log-directory.ts";
import { floorSegment, readLog } from "./log-read.ts";
import type { ReadOptions, ReadResult } from "./log-read.ts";
import type { LogState } from "./log-state.ts";
import { PartitionQueue } from "./partition-queue.ts";
import type { AppendGroup, AppendResult, GroupEntry } from "./partition-queue.ts";
import { ProducerState } from "./producer-state.ts";
import type { DamagedRange, RecoveryReport } from "./recovery-report.ts";
import { LogSegment } from "./segment.ts";
import { walkSegment } from "./segment-walk.ts";

export interface PartitionLogOptions {
  readonly files: FileSystem;
  readonly state: State;
  readonly clock: Clock;
  readonly workers: WorkerPool;
  /** The partition's own directory, which exists. */
  readonly directory: string;
  readonly topic: string;
  readonly partition: number;
  readonly config: LogConfig;
  /** Whether the directory's clean-shutdown marker was there. */
  readonly wasCleanShutdown: boolean;
  readonly logDirectory: LogDirectory;
}

export interface SegmentDescription {
  readonly baseOffset: Offset;
  readonly sizeBytes: number;
  readonly indexEntries: number;
}

/** Batches of one group that go to disk in one write. */
interface Run {
  readonly accepted: { readonly entry: GroupEntry; readonly baseOffset: Offset; readonly undo: () => void }[];
  sizeBytes: number;
  endOffset: Offset;
}

/** What came of a group: who gets an answer once it is durable, and what stopped it, if anything did. */
interface GroupOutcome {
  readonly answers: { readonly entry: GroupEntry; readonly result: AppendResult }[];
  nextEntry: number;
  failure: unknown;
}

/**
 * The log of one partition: segments, offset index, leader epochs and producers' state, behind one queue.
 *
 * Invariant: log start <= recovery point or flushed end <= log end, after every task. The log end moves when bytes are
 * written, the flushed end when they are synced; in `always` mode an append is answered after the latter.
 * Source: apache/kafka storage/.../internals/log/UnifiedLog.java
 */
export class PartitionLog {
  readonly topic: string;
  readonly partition: number;
  readonly directory: string;
  readonly config: LogConfig;
  /** What the open found and did. */
  readonly recovery: RecoveryReport;
  readonly #files: FileSystem;
  readonly #clock: Clock;
  readonly #workers: WorkerPool;
  readonly #logDirectory: LogDirectory;
  readonly #state: LogState;
  readonly #epochs: LeaderEpochFileCache;
  readonly #queue: PartitionQueue;
  readonly #waiters = new EndOffsetWaiters();
  readonly #damaged: readonly DamagedRange[];
  #producers: ProducerState;
  /** Ascending, never empty, replaced and not changed: a reader keeps the array it began with. The last one is active. */
  #segments: readonly LogSegment[];
  #logStartOffset: Offset;
  #logEndOffset: Offset;
  /** End of the last batch. Below the log end only after a truncation inside a batch, until the next append. */
  #lastBatchEndOffset: Offset;
  #flushedEndOffset: Offset;
  #recoveryPoint: Offset;
  /** Epoch that this log leads in, or `undefined`: not the leader. */
  #leaderEpoch: LeaderEpoch | undefined;
  #bytesAboveRecoveryPoint = 0;
  /** Files were made or removed since the directory was last synced. */
  #isDirectoryDirty = false;
  /** What stops this partition alone: a vanished file, or a broken invariant. */
  #failure: LogError | InvariantError | undefined;
  /** Runs beside appends; every task that removes or cuts waits for it first. Never rejects. */
  #backgroundFlush: Promise<void> | undefined;
  /** Counts truncations, so that a read can tell that one ran while it read. */
  #truncations = 0;
  #truncation: Promise<void> | undefined;
  #closing: Promise<boolean> | undefined;
  #isClosed = false;
  /** Sealed segments whose file may be open, least recently read first. */
  readonly #recentlyRead = new Set<LogSegment>();

  private constructor(options: PartitionLogOptions, loaded: LoadedLog) {
    this.topic = options.topic;
    this.partition = options.partition;
    this.directory = options.directory;
    this.config = options.config;
    this.recovery = loaded.report;
    this.#files = options.files;
    this.#clock = options.clock;
    this.#workers = options.workers;
    this.#logDirectory = options.logDirectory;
    this.#state = loaded.state;
    this.#epochs = loaded.epochs;
    this.#damaged = loaded.damaged;
    this.#producers = loaded.producers;
    this.#segments = loaded.segments;
    this.#logStartOffset = loaded.logStartOffset;
    this.#logEndOffset = loaded.logEndOffset;
    this.#lastBatchEndOffset = loaded.logEndOffset;
    this.#flushedEndOffset = loaded.flushedEndOffset;
    this.#recoveryPoint = loaded.recoveryPoint;
    this.#queue = new PartitionQueue((group) => this.#commit(group));
  }

  /**
   * Opens the log in an existing directory and recovers it. One log at a time may have a directory open.
   * @throws LogError KAFKA_STORAGE_ERROR; a failed sync takes the log directory offline
   * Cost: reads all batch headers; all bytes from the recovery point up after an unclean stop.
   */
  static async open(options: PartitionLogOptions): Promise<PartitionLog> {
    checkLogConfig(options.config);
    try {
      const loaded = await loadLog(options);
      const log = new PartitionLog(options, loaded);
      await log.#active.openForAppend();
      return log;
    } catch (error) {
      const failure = storageError(error, options.directory);
      if (isDirectoryFailure(failure)) options.logDirectory.markOffline(failure);
      throw failure;
    }
  }

  get logStartOffset(): Offset {
    return this.#logStartOffset;
  }

  /** Next offset to be assigned (LEO). */
  get logEndOffset(): Offset {
    return this.#logEndOffset;
  }

  /** Everything below is on the disk. */
  get flushedEndOffset(): Offset {
    return this.#flushedEndOffset;
  }

  /** What a consumer may see while there are no other replicas: the flushed end in `always` mode, the log end otherwise. */
  get visibleEndOffset(): Offset {
    return this.config.flush === "always" ? this.#flushedEndOffset : this.#logEndOffset;
  }

  /** From here up the next open scans. */
  get recoveryPoint(): Offset {
    return this.#recoveryPoint;
  }

  get leaderEpoch(): LeaderEpoch | undefined {
    return this.#leaderEpoch;
  }

  get epochEntries(): readonly EpochEntry[] {
    return this.#epochs.entries;
  }

  get segments(): readonly SegmentDescription[] {
    return this.#segments.map(({ baseOffset, sizeBytes, index }) => ({
      baseOffset,
      sizeBytes,
      indexEntries: index.count,
    }));
  }

  /** Ranges that were durable once and cannot be read; while there are any the log takes no appends. */
  get damaged(): readonly DamagedRange[] {
    return this.#damaged;
  }

  /** Why appends are refused at present, or `undefined`. */
  get refusal(): Error | undefined {
    if (this.#isClosed || this.#closing !== undefined)
      return new LogError({ code: "LOG_CLOSED", directory: this.directory });
    if (this.#failure !== undefined) return this.#failure;
    if (this.#logDirectory.offlineError !== undefined) return this.#logDirectory.offlineError;
    const damage = this.#damaged[0];
    if (damage === undefined) return undefined;
    return new LogError({
      code: "KAFKA_STORAGE_ERROR",
      failure: "DAMAGED",
      path: damage.path ?? this.directory,
      operation: "append",
    });
  }

  /** The sequence that a producer's next batch must carry, or `undefined` when the log does not know the producer. */
  nextSequence(producerId: number): number | undefined {
    return this.#producers.nextSequence(producerId);
  }

  /**
   * From here on the log appends in this epoch, whose entry (epoch, log end) is durable when this resolves.
   * @throws LogError FENCED_LEADER_EPOCH when the log has seen a higher epoch; KAFKA_STORAGE_ERROR
   */
  becomeLeader(epoch: LeaderEpoch): Promise<void> {
    return this.#task(async () => {
      const currentEpoch = Math.max(this.#leaderEpoch ?? -1, this.#epochs.latest?.epoch ?? -1);
      if (epoch < currentEpoch)
        throw new LogError({ code: "FENCED_LEADER_EPOCH", requestedEpoch: epoch, currentEpoch });
      await this.#epochs.assign(epoch, this.#logEndOffset);
      this.#leaderEpoch = epoch;
    });
  }

  /** From here on `append` answers NOT_LEADER_OR_FOLLOWER. */
  becomeFollower(): Promise<void> {
    return this.#task(async () => {
      this.#leaderEpoch = undefined;
    });
  }

  /**
   * Appends one batch as leader. Takes its place in the log when it is called; the bytes are copied before it returns.
   *
   * Resolves when the batch is durable (`flush: always`) or written (`none`). A batch that its producer appended before is
   * answered with its first offsets. When it rejects with ENOSPC nothing of it is in the log; with SYNC_FAILED or IO_ERROR it
   * may be there after the next open.
   * @throws LogError as a rejection: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, NOT_LEADER_OR_FOLLOWER,
   * OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNSUPPORTED_COMPRESSION_TYPE, QUEUE_FULL, LOG_CLOSED, KAFKA_STORAGE_ERROR
   */
  async append(batch: Uint8Array, options: { readonly origin: BatchOrigin }): Promise<AppendResult> {
    const { refusal } = this;
    if (refusal !== undefined) throw refusal;
    const header = checkLeaderBatch(batch, options.origin, this.config);
    const judgement =
      options.origin === "client" ? checkClientRecords(batch, header, this.config, this.#workers) : undefined;
    return this.#queue.append(batch, header, judgement);
  }

  /**
   * Appends, as follower, the whole batches in front of a fetch answer, up to the first one above `leaderEpoch`.
   * The bytes are copied before it returns, and stored as they are.
   * @returns offsets of what was appended, or `undefined` for nothing
   * @throws LogError as a rejection: CORRUPT_MESSAGE, INVALID_RECORD, OFFSETS_OUT_OF_ORDER, UNEXPECTED_APPEND_OFFSET, RECORD_LIST_TOO_LARGE,
   * UNSUPPORTED_FOR_MESSAGE_FORMAT, LOG_CLOSED, KAFKA_STORAGE_ERROR; then nothing was appended
   */
  appendAsFollower(
    bytes: Uint8Array,
    options: { readonly leaderEpoch?: LeaderEpoch } = {},
  ): Promise<AppendResult | undefined> {
    const copy = bytes.slice();
    return this.#task(async () => {
      const log = {
        logEndOffset: this.#logEndOffset,
        latestEpoch: this.#epochs.latest?.epoch ?? -1,
        config: this.config,
        leaderEpoch: options.leaderEpoch,
      };
      const batches = checkFollowerBatches(copy, log);
      if (batches === undefined) return undefined;
      await this.#writeFollowerBatches(copy, batches);
      return { baseOffset: batches.firstBaseOffset, lastOffset: batches.lastOffset, duplicate: false };
    });
  }

  /**
   * A slice of the log; see `ReadOptions`. Sees one moment: a truncation that runs meanwhile makes it start again.
   * @throws LogError as a rejection: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, LOG_CLOSED
   */
  async read(options: ReadOptions): Promise<ReadResult> {
    for (let attempt = 0; attempt < READ_RETRIES_MAX; attempt += 1) {
      await this.#truncation;
      if (this.#isClosed) throw new LogError({ code: "LOG_CLOSED", directory: this.directory });
      const truncations = this.#truncations;
      const view = {
        segments: this.#segments,
        logStartOffset: this.#logStartOffset,
        logEndOffset: this.#logEndOffset,
        damaged: this.#damaged,
      };
      try {
        const result = await readLog(view, options);
        if (truncations === this.#truncations) {
          await this.#noteRead(result.startOffset);
          return result;
        }
      } catch (error) {
        if (error instanceof InvariantError) throw error;
        if (truncations === this.#truncations)
          throw this.#isClosed
            ? new LogError({ code: "LOG_CLOSED", directory: this.directory })
            : storageError(error, this.directory);
      }
    }
    return { bytes: new Uint8Array(0), startOffset: options.fromOffset };
  }

  /** The answer to OffsetsForLeaderEpoch. */
  endOffsetForEpoch(epoch: number): EpochEndOffset {
    return this.#epochs.endOffsetFor(epoch, this.#logEndOffset);
  }

  /** Waits until `visibleEndOffset > beyond`, or the log closes. @throws LogError QUEUE_FULL past `WAITERS_MAX` */
  waitForEndOffset(beyond: Offset): EndOffsetWait {
    const wait = this.#waiters.add(beyond);
    if (this.visibleEndOffset > beyond || this.#isClosed) wait.cancel();
    return wait;
  }

  /**
   * Cuts the log so that it ends at `offset`: batches that reach it go whole. Durable when it resolves. At or above the log
   * end only epoch entries without batches go.
   * @throws LogError KAFKA_STORAGE_ERROR, LOG_CLOSED
   * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, truncateTo
   */
  truncateTo(offset: Offset): Promise<void> {
    return this.#task(() => this.#exclusively(() => this.#truncateTo(offset)));
  }

  /** Empties the log; it begins and ends at `offset` then. Durable when it resolves. @throws LogError KAFKA_STORAGE_ERROR, LOG_CLOSED */
  truncateFullyAndStartAt(offset: Offset): Promise<void> {
    return this.#task(() => this.#exclusively(() => this.#truncateFully(offset)));
  }

  /** Begins a new segment at the log end, unless the active one is empty. @returns base offset of the active segment */
  roll(): Promise<Offset> {
    return this.#task(async () => {
      if (this.#active.sizeBytes > 0) await this.#roll(this.#logEndOffset);
      return this.#active.baseOffset;
    });
  }

  /** Makes everything up to the log end durable and raises the recovery point to it. @throws LogError KAFKA_STORAGE_ERROR, LOG_CLOSED */
  flush(): Promise<void> {
    return this.#task(async () => {
      await this.#backgroundFlush;
      await this.#flush();
    });
  }

  /**
   * Flushes everything and closes the files. Idempotent; appends called before it are answered first.
   * @returns whether the log is complete on the disk, with indexes and recovery point: only then may a clean shutdown be noted
   */
  close(): Promise<boolean> {
    if (this.#closing === undefined) {
      const { refusal } = this;
      this.#closing = this.#queue.run(() => this.#close(refusal));
    }
    return this.#closing;
  }

  get #active(): LogSegment {
    return this.#segments.at(-1) ?? fail("a log has a segment", { directory: this.directory });
  }

  // ---- appending -----------------------------------------------------------------------------------------------------

  /** Writes a group, syncs it, and answers each of its entries. */
  async #commit(group: AppendGroup): Promise<void> {
    const outcome: GroupOutcome = { answers: [], nextEntry: 0, failure: undefined };
    const startOffset = this.#logEndOffset;
    try {
      while (outcome.nextEntry < group.entries.length) await this.#commitRun(group, outcome);
    } catch (error) {
      outcome.failure = this.#noteFailure(error);
    }
    try {
      // What was written before a failure is in the log, and is answered as any other once it is safe.
      if (this.#logEndOffset > startOffset || this.#active.isDirty) await this.#afterWrite();
    } catch (error) {
      const failure = this.#noteFailure(error);
      for (const { entry } of outcome.answers) entry.reject(failure);
      outcome.answers.length = 0;
      outcome.failure ??= failure;
    }
    for (const { entry, result } of outcome.answers) entry.resolve(result);
    for (const entry of group.entries.slice(outcome.nextEntry)) entry.reject(outcome.failure);
    this.#wakeWaiters();
  }

  /** One write of as many batches as lie together, fit the segment and are to be appended. */
  async #commitRun(group: AppendGroup, outcome: GroupOutcome): Promise<void> {
    const firstEntry = outcome.nextEntry;
    const run: Run = { accepted: [], sizeBytes: 0, endOffset: this.#logEndOffset };
    try {
      await this.#collectRun(group, outcome, run);
      const first = run.accepted[0];
      if (first === undefined) return;
      const epoch = this.#leaderEpoch ?? fail("a run is collected by a leader", { directory: this.directory });
      if (this.#epochs.latest?.epoch !== epoch) await this.#epochs.assign(epoch, first.baseOffset);
      for (const { entry, baseOffset } of run.accepted) stampBatch(group.buffer, entry.atBytes, baseOffset, epoch);
      await this.#write(group.buffer.subarray(first.entry.atBytes, first.entry.atBytes + run.sizeBytes));
    } catch (error) {
      for (const { undo } of [...run.accepted].reverse()) undo();
      if (run.accepted.length > 0)
        outcome.nextEntry = group.entries.indexOf(
          run.accepted[0]?.entry ?? fail("a run has a first entry"),
          firstEntry,
        );
      throw error;
    }
    for (const { entry, baseOffset } of run.accepted) {
      const lastOffset = toOffset(baseOffset + entry.header.lastOffsetDelta);
      this.#active.noteBatch(lastOffset, entry.header.sizeInBytes, this.config.indexIntervalBytes);
      outcome.answers.push({ entry, result: { baseOffset, lastOffset, duplicate: false } });
    }
    this.#logEndOffset = run.endOffset;
    this.#lastBatchEndOffset = run.endOffset;
    this.#bytesAboveRecoveryPoint += run.sizeBytes;
  }

  async #collectRun(group: AppendGroup, outcome: GroupOutcome, run: Run): Promise<void> {
    for (; outcome.nextEntry < group.entries.length; outcome.nextEntry += 1) {
      const entry = group.entries[outcome.nextEntry] ?? fail("the entry is in the group");
      const refusal =
        entry.judgement === undefined
          ? undefined
          : await entry.judgement.catch((error: unknown) => storageError(error, this.directory));
      if (this.#leaderEpoch === undefined)
        throw new LogError({ code: "NOT_LEADER_OR_FOLLOWER", directory: this.directory });
      const stop = this.#failure ?? this.#logDirectory.offlineError;
      if (stop !== undefined) throw stop;
      const verdict =
        refusal === undefined ? this.#producers.judge(entry.header) : ({ type: "refuse", error: refusal } as const);
      if (verdict.type !== "append") {
        if (run.accepted.length > 0) return;
        if (verdict.type === "refuse") entry.reject(verdict.error);
        else {
          const result = {
            baseOffset: toOffset(verdict.baseOffset),
            lastOffset: toOffset(verdict.lastOffset),
            duplicate: true,
          };
          outcome.answers.push({ entry, result });
        }
        continue;
      }
      if (!(await this.#takeIntoRun(entry, run))) return;
    }
  }

  /** @returns false when the batch belongs into the next segment, and the run must be written first */
  async #takeIntoRun(entry: GroupEntry, run: Run): Promise<boolean> {
    const { header } = entry;
    const baseOffset = run.endOffset;
    const lastOffset = toOffset(baseOffset + header.lastOffsetDelta);
    const limits = { pendingBytes: run.sizeBytes, segmentBytesMax: this.config.segmentBytes };
    if (this.#active.mustRollBefore(header.sizeInBytes, lastOffset, limits)) {
      if (run.accepted.length > 0) return false;
      await this.#roll(baseOffset);
    }
    run.accepted.push({ entry, baseOffset, undo: this.#producers.remember(header, baseOffset) });
    run.sizeBytes += header.sizeInBytes;
    run.endOffset = toOffset(lastOffset + 1);
    return true;
  }

  async #writeFollowerBatches(bytes: Uint8Array, batches: FollowerBatches): Promise<void> {
    const limits = { pendingBytes: 0, segmentBytesMax: this.config.segmentBytes };
    if (this.#active.mustRollBefore(batches.sizeBytes, batches.lastOffset, limits))
      await this.#roll(batches.firstBaseOffset);
    // An epoch's entry is on the disk before any of its batches is.
    for (const { partitionLeaderEpoch, baseOffset } of batches.headers) {
      if (partitionLeaderEpoch === this.#epochs.latest?.epoch) continue;
      await this.#epochs.assign(partitionLeaderEpoch as LeaderEpoch, toOffset(baseOffset));
    }
    await this.#write(bytes.subarray(0, batches.sizeBytes));
    for (const header of batches.headers) {
      this.#active.noteBatch(header.lastOffset, header.sizeInBytes, this.config.indexIntervalBytes);
      this.#producers.remember(header, header.baseOffset);
    }
    this.#logEndOffset = toOffset(batches.lastOffset + 1);
    this.#lastBatchEndOffset = this.#logEndOffset;
    this.#bytesAboveRecoveryPoint += batches.sizeBytes;
    await this.#afterWrite();
    this.#wakeWaiters();
  }

  /** Writes at the end of the active segment; when that fails for want of space, takes away what it left there. */
  async #write(bytes: Uint8Array): Promise<void> {
    const segment = this.#active;
    try {
      await segment.write(bytes);
    } catch (error) {
      const failure = storageError(error, segment.path);
      if (!failure.retriable) throw failure;
      // In `always` mode durably, before anybody is told that it failed: else a crash could bring back what was refused.
      await segment.cutBack(this.config.flush === "always");
      throw failure;
    }
  }

  /** Syncs in `always` mode, and keeps the recovery point from lagging. */
  async #afterWrite(): Promise<void> {
    if (this.config.flush === "always") {
      await this.#syncActive();
      this.#flushedEndOffset = this.#logEndOffset;
      if (this.#bytesAboveRecoveryPoint >= UNFLUSHED_BYTES_MAX) await this.#raiseRecoveryPoint(this.#flushedEndOffset);
    } else if (this.#bytesAboveRecoveryPoint >= UNFLUSHED_BYTES_MAX) this.#startBackgroundFlush();
  }

  async #syncActive(): Promise<void> {
    await this.#active.sync();
    await this.#syncDirectory();
  }

  async #syncDirectory(): Promise<void> {
    if (!this.#isDirectoryDirty) return;
    this.#isDirectoryDirty = false;
    await this.#files.syncDirectory(this.directory);
  }

  // ---- segments ------------------------------------------------------------------------------------------------------

  async #roll(firstOffset: Offset): Promise<void> {
    const sealed = this.#active;
    const isAlways = this.config.flush === "always";
    if (isAlways) {
      await this.#syncActive();
      await sealed.persistIndex();
      this.#flushedEndOffset = this.#logEndOffset;
      await this.#raiseRecoveryPoint(this.#logEndOffset);
    }
    if (firstOffset > this.#lastBatchEndOffset) await this.#state.saveGapBefore(firstOffset);
    const segment = await LogSegment.create(this.#files, this.#clock, this.directory, firstOffset);
    this.#isDirectoryDirty = true;
    this.#segments = [...this.#segments, segment];
    await this.#noteSealed(sealed);
    if (!isAlways) this.#startBackgroundFlush();
  }

  /** Keeps a bounded number of sealed files open. */
  async #noteSealed(segment: LogSegment): Promise<void> {
    this.#recentlyRead.delete(segment);
    this.#recentlyRead.add(segment);
    for (const oldest of this.#recentlyRead) {
      if (this.#recentlyRead.size <= SEALED_FILES_OPEN_MAX) return;
      this.#recentlyRead.delete(oldest);
      if (oldest !== this.#active) await oldest.releaseIfIdle();
    }
  }

  async #noteRead(offset: Offset): Promise<void> {
    const segment = this.#segments[floorSegment(this.#segments, offset)];
    if (segment !== undefined && segment !== this.#active) await this.#noteSealed(segment);
  }

  // ---- flushing ------------------------------------------------------------------------------------------------------

  #startBackgroundFlush(): void {
    this.#backgroundFlush ??= this.#flush()
      .catch((error: unknown) => {
        this.#noteFailure(error);
      })
      .finally(() => {
        this.#backgroundFlush = undefined;
      });
  }

  /** Segments from the recovery point up, then their names; only then the recovery point. */
  async #flush(): Promise<void> {
    const endOffset = this.#logEndOffset;
    const segments = this.#segments;
    const active = this.#active;
    const from = floorSegment(segments, this.#recoveryPoint);
    for (const segment of segments.slice(from)) {
      await segment.sync();
      if (segment !== active) await segment.persistIndex();
    }
    await this.#syncDirectory();
    if (endOffset > this.#flushedEndOffset) this.#flushedEndOffset = endOffset;
    await this.#raiseRecoveryPoint(endOffset);
    this.#wakeWaiters();
  }

  async #raiseRecoveryPoint(endOffset: Offset): Promise<void> {
    this.#bytesAboveRecoveryPoint = 0;
    // Above the last batch there is nothing that a later open could find, and it would take that for a loss.
    const offset = toOffset(Math.min(endOffset, this.#lastBatchEndOffset));
    if (offset <= this.#recoveryPoint || this.#damaged.length > 0) return;
    this.#recoveryPoint = offset;
    await this.#state.raiseRecoveryPoint(offset);
  }

  // ---- truncation ----------------------------------------------------------------------------------------------------

  /** Runs `truncate` without a flush beside it, and makes reads that overlap it start again. */
  async #exclusively(truncate: () => Promise<void>): Promise<void> {
    await this.#backgroundFlush;
    this.#truncations += 1;
    const running = truncate();
    this.#truncation = running.catch(() => undefined);
    try {
      await running;
    } finally {
      this.#truncations += 1;
      this.#truncation = undefined;
    }
  }

  async #truncateTo(offset: Offset): Promise<void> {
    if (offset >= this.#logEndOffset) {
      this.#epochs.truncateFromEnd(this.#logEndOffset);
      await this.#epochs.flush();
      return;
    }
    if (offset < (this.#segments[0]?.baseOffset ?? 0)) return this.#truncateFully(offset);
    const keptCount = floorSegment(this.#segments, offset) + 1;
    const kept = this.#segments.slice(0, keptCount);
    const last = kept.at(-1) ?? fail("a segment holds the offset", { offset });
    const positionBytes = (await last.positionOf(offset, [])) ?? last.sizeBytes;
    const rest = await this.#batchesBefore(kept, positionBytes);
    // The recovery point goes first: were it lowered after the cut, a crash in between would look like lost bytes.
    const recoveryPoint = toOffset(Math.min(this.#recoveryPoint, rest.endOffset));
    const logStartOffset = toOffset(Math.min(this.#logStartOffset, offset));
    if (logStartOffset < this.#logStartOffset) await this.#state.saveStart(logStartOffset, recoveryPoint);
    else if (recoveryPoint < this.#recoveryPoint) await this.#state.lowerRecoveryPoint(recoveryPoint);
    this.#recoveryPoint = recoveryPoint;
    this.#logStartOffset = logStartOffset;

    const removed = this.#segments.slice(keptCount).reverse();
    this.#segments = kept;
    for (const segment of removed) await this.#removeSegment(segment);
    if (removed.length > 0) await this.#files.syncDirectory(this.directory);
    await last.truncateAt(positionBytes, offset);
    this.#epochs.truncateFromEnd(offset);
    await this.#epochs.flush();
    this.#logEndOffset = offset;
    this.#lastBatchEndOffset = rest.endOffset;
    this.#flushedEndOffset = toOffset(Math.min(this.#flushedEndOffset, offset));
    this.#producers = rest.producers;
  }

  async #truncateFully(offset: Offset): Promise<void> {
    // Whatever a crash leaves of the old segments is a whole log again, from its old start.
    await this.#state.lowerRecoveryPoint(toOffset(0));
    this.#recoveryPoint = toOffset(0);
    const removed = [...this.#segments].reverse();
    for (const segment of removed) await this.#removeSegment(segment);
    await this.#files.syncDirectory(this.directory);
    const segment = await LogSegment.create(this.#files, this.#clock, this.directory, offset);
    await this.#files.syncDirectory(this.directory);
    await this.#epochs.clearAndFlush();
    await this.#state.saveStart(offset, offset);
    this.#segments = [segment];
    this.#logStartOffset = offset;
    this.#logEndOffset = offset;
    this.#lastBatchEndOffset = offset;
    this.#flushedEndOffset = offset;
    this.#recoveryPoint = offset;
    this.#bytesAboveRecoveryPoint = 0;
    this.#producers = new ProducerState();
  }

  async #removeSegment(segment: LogSegment): Promise<void> {
    this.#recentlyRead.delete(segment);
    await segment.remove();
  }

  /** Where the batches of `segments` end if the last segment is cut at `positionBytes`, and what their producers are then. */
  async #batchesBefore(
    segments: readonly LogSegment[],
    positionBytes: number,
  ): Promise<{ endOffset: Offset; producers: ProducerState }> {
    const producers = new ProducerState();
    let endOffset = segments[0]?.baseOffset ?? fail("a log has a segment");
    for (const segment of segments) {
      await segment.use((file) =>
        walkSegment({
          io: segment.io,
          file,
          fromBytes: 0,
          toBytes: segment === segments.at(-1) ? positionBytes : segment.sizeBytes,
          verifyCrc: false,
          onBatch: (header: BatchHeader) => {
            producers.remember(header, header.baseOffset);
            endOffset = toOffset(header.lastOffset + 1);
            return undefined;
          },
        }),
      );
      if (segment !== this.#active) await this.#noteSealed(segment);
    }
    return { endOffset, producers };
  }

  // ---- tasks and failures --------------------------------------------------------------------------------------------

  /** Queues a task that changes the log; refused, and its failures noted, as with appends. */
  #task<Result>(run: () => Promise<Result>): Promise<Result> {
    const before = this.refusal;
    if (before !== undefined) return Promise.reject(before);
    return this.#queue.run(async () => {
      const stop = this.#failure ?? this.#logDirectory.offlineError;
      if (stop !== undefined) throw stop;
      try {
        return await run();
      } catch (error) {
        throw this.#noteFailure(error);
      }
    });
  }

  /** Draws the consequence of an error for partition or directory. @returns what the caller is told */
  #noteFailure(error: unknown): Error {
    if (error instanceof InvariantError) {
      this.#failure ??= error;
      return error;
    }
    const failure = storageError(error, this.directory);
    if (isDirectoryFailure(failure)) this.#logDirectory.markOffline(failure);
    else if (failure.type.code === "KAFKA_STORAGE_ERROR" && failure.type.failure === "ENOENT")
      this.#failure ??= failure;
    return failure;
  }

  #wakeWaiters(): void {
    this.#waiters.moved(this.visibleEndOffset);
  }

  async #close(refusal: Error | undefined): Promise<boolean> {
    await this.#backgroundFlush;
    let isComplete = refusal === undefined && this.#failure === undefined && this.#logDirectory.isOnline;
    try {
      if (isComplete) {
        await this.#flush();
        await this.#active.persistIndex();
        await this.#epochs.flush();
        await this.#state.saveStart(this.#logStartOffset, this.#recoveryPoint);
      }
    } catch (error) {
      this.#noteFailure(error);
      isComplete = false;
    }
    this.#isClosed = true;
    this.#waiters.wakeAll();
    for (const segment of this.#segments) await segment.close().catch(() => undefined);
    return isComplete;
  }
}
