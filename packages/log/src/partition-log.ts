import { fail, InvariantError, toOffset, WorkerError } from "@tidemark/base";
import type { Clock, FileSystem, LeaderEpoch, Offset, Random, State, WorkerPool } from "@tidemark/base";
import type { EpochEndOffset, EpochEntry, LeaderEpochFileCache } from "@tidemark/epoch-cache";
import {
  encodeEndTransactionMarker,
  endTransactionMarkerOf,
  isControlBatch,
  isLogAppendTime,
  readBatchHeader,
  stampBatch,
  stampMaxTimestamp,
  WireError,
} from "@tidemark/wire";
import type { EndTransactionMarker, RecordTimes } from "@tidemark/wire";
import { compactSegments } from "./compaction.ts";
import type { CompactionResult } from "./compaction.ts";
import { compactionRange } from "./compaction-range.ts";
import type { CompactionRange } from "./compaction-range.ts";
import {
  checkClientRecords,
  checkFollowerBatches,
  checkLeaderBatch,
  DECOMPRESSED_BYTES_FACTOR,
} from "./append-checks.ts";
import type { BatchOrigin, FollowerBatches } from "./append-checks.ts";
import {
  checkLogConfig,
  COMPACTION_MAP_BYTES,
  DEFAULT_COMPACTION,
  PRODUCER_ID_EXPIRATION_CHECK_MS,
  PRODUCER_ID_EXPIRATION_MS_DEFAULT,
  READ_RETRIES_MAX,
} from "./config.ts";
import type { LogConfig } from "./config.ts";
import { EndOffsetWaiters } from "./end-offset-waiters.ts";
import type { EndOffsetWait } from "./end-offset-waiters.ts";
import { LogError } from "./error.ts";
import { loadLog } from "./load-log.ts";
import type { LoadedLog } from "./load-log.ts";
import { LocalLog } from "./local-log.ts";
import type { WrittenBatch } from "./local-log.ts";
import { isDirectoryFailure, storageError } from "./log-directory.ts";
import type { LogDirectory } from "./log-directory.ts";
import type { ReadOptions, ReadResult } from "./log-read.ts";
import { findMaxTimestamp, findOffsetByTimestamp } from "./offset-lookup.ts";
import type { ListedOffset, OffsetSpec } from "./offset-lookup.ts";
import { PartitionQueue } from "./partition-queue.ts";
import type { AppendGroup, AppendResult, GroupEntry } from "./partition-queue.ts";
import { ProducerState } from "./producer-state.ts";
import type { ProducerAppend, Remembered } from "./producer-state.ts";
import type { DamagedRange, RecoveryReport } from "./recovery-report.ts";
import { segmentsToDelete } from "./retention.ts";
import type { RetainedSegment, RetentionReason } from "./retention.ts";
import { NO_TIMESTAMP } from "./time-index.ts";
import type { LogSegment } from "./segment.ts";

export interface PartitionLogOptions {
  readonly files: FileSystem;
  readonly state: State;
  readonly clock: Clock;
  readonly random: Random;
  readonly workers: WorkerPool;
  /** The partition's own directory, which exists. */
  readonly directory: string;
  readonly topic: string;
  readonly partition: number;
  readonly config: LogConfig;
  /** Whether the directory's clean-shutdown marker was there. */
  readonly wasCleanShutdown: boolean;
  /** False when another program wrote here: its segments may leave offsets out where we noted nothing. Default true. */
  readonly areGapsRecorded?: boolean;
  /** A producer of whom nothing was heard for so long is forgotten. Kafka: producer.id.expiration.ms. Default one day. */
  readonly producerIdExpirationMs?: number | undefined;
  readonly logDirectory: LogDirectory;
}

export interface AppendOptions {
  readonly origin: BatchOrigin;
  /** A client's first batch of a transaction is refused unless somebody asked the coordinator whether that is open. Default false. */
  readonly isTransactionVerified?: boolean;
}

/** What a transaction coordinator writes to a partition when a transaction ends. */
export interface EndTransaction extends EndTransactionMarker {
  readonly producerId: number;
  readonly producerEpoch: number;
  /** Of the transaction: 2 when every marker raises the producer epoch. */
  readonly transactionVersion: 0 | 1 | 2;
}

export interface SegmentDescription {
  readonly baseOffset: Offset;
  readonly sizeBytes: number;
  readonly indexEntries: number;
}

/** What retention did. */
export interface RetentionReport {
  readonly deleted: readonly {
    readonly baseOffset: Offset;
    readonly sizeBytes: number;
    readonly reason: RetentionReason;
  }[];
  /** Segments with a timestamp in the future: unless the topic ignores it, they keep themselves and all behind them. */
  readonly futureSegments: number;
}

export interface CompactOptions {
  /** Up to where the log is clean, as `compact` said last. Default, and where it is none of the log's offsets: the log start. */
  readonly firstDirtyOffset?: Offset | undefined;
  /** Nothing at or above it is compacted. Default: what a consumer may see while there are no other replicas. */
  readonly highWatermark?: Offset | undefined;
  /** Memory for the map of keys; one that is full ends the pass early. Default 128 MiB. */
  readonly mapBytes?: number | undefined;
}

/** Batches of one group that go to disk in one write. */
interface Run {
  readonly accepted: { readonly entry: GroupEntry; readonly baseOffset: Offset; readonly remembered: Remembered }[];
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
  readonly #clock: Clock;
  readonly #workers: WorkerPool;
  readonly #logDirectory: LogDirectory;
  readonly #epochs: LeaderEpochFileCache;
  readonly #queue: PartitionQueue;
  readonly #waiters = new EndOffsetWaiters();
  readonly #damaged: readonly DamagedRange[];
  readonly #local: LocalLog;
  readonly #producerIdExpirationMs: number;
  #producers: ProducerState;
  /** Monotonic. */
  #nextExpiryCheckMs: number;
  /** Epoch that this log leads in, or `undefined`: not the leader. */
  #leaderEpoch: LeaderEpoch | undefined;
  /** What stops this partition alone: a vanished file, or a broken invariant. */
  #failure: LogError | InvariantError | undefined;
  /** Counts truncations, so that a read can tell that one ran while it read. */
  #truncations = 0;
  #truncation: Promise<void> | undefined;
  /** Counts deletions of segments: a read that meets one may find its file gone. */
  #deletions = 0;
  /** Counts what makes a compaction under way worthless. */
  #cuts = 0;
  #compaction: Promise<CompactionResult> | undefined;
  #closing: Promise<boolean> | undefined;
  #isClosed = false;
  private constructor(options: PartitionLogOptions, loaded: LoadedLog) {
    this.topic = options.topic;
    this.partition = options.partition;
    this.directory = options.directory;
    this.config = options.config;
    this.recovery = loaded.report;
    this.#clock = options.clock;
    this.#workers = options.workers;
    this.#logDirectory = options.logDirectory;
    this.#epochs = loaded.epochs;
    this.#damaged = loaded.damaged;
    this.#producers = loaded.producers;
    this.#producerIdExpirationMs = options.producerIdExpirationMs ?? PRODUCER_ID_EXPIRATION_MS_DEFAULT;
    this.#nextExpiryCheckMs = options.clock.monotonicMs() + PRODUCER_ID_EXPIRATION_CHECK_MS;
    this.#local = new LocalLog(options, loaded, {
      onFailure: (error) => this.#noteFailure(error),
      onFlushed: () => this.#wakeWaiters(),
    });
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
      const producerIdExpirationMs = options.producerIdExpirationMs ?? PRODUCER_ID_EXPIRATION_MS_DEFAULT;
      const loaded = await loadLog({ ...options, producerIdExpirationMs });
      const log = new PartitionLog(options, loaded);
      await log.#local.active.openForAppend();
      return log;
    } catch (error) {
      const failure = storageError(error, options.directory);
      if (isDirectoryFailure(failure)) options.logDirectory.markOffline(failure);
      throw failure;
    }
  }

  get logStartOffset(): Offset {
    return this.#local.logStartOffset;
  }

  /** Next offset to be assigned (LEO). */
  get logEndOffset(): Offset {
    return this.#local.logEndOffset;
  }

  /** Everything below is on the disk. */
  get flushedEndOffset(): Offset {
    return this.#local.flushedEndOffset;
  }

  /** What a consumer may see while there are no other replicas: the flushed end in `always` mode, the log end otherwise. */
  get visibleEndOffset(): Offset {
    return this.config.flush === "always" ? this.#local.flushedEndOffset : this.#local.logEndOffset;
  }

  /** From here up the next open scans. */
  get recoveryPoint(): Offset {
    return this.#local.recoveryPoint;
  }

  get leaderEpoch(): LeaderEpoch | undefined {
    return this.#leaderEpoch;
  }

  get epochEntries(): readonly EpochEntry[] {
    return this.#epochs.entries;
  }

  get segments(): readonly SegmentDescription[] {
    return this.#local.segments.map(({ baseOffset, sizeBytes, index }) => ({
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

  /** Producers that the log knows of. */
  get producers(): ProducerState["entries"] {
    return this.#producers.entries;
  }

  /**
   * What a reader of committed records may see: everything below the first transaction that is open, or whose marker the high watermark
   * has not passed. At most the high watermark.
   * @param highWatermark default: what a consumer may see while there are no other replicas
   * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, lastStableOffset
   */
  lastStableOffset(highWatermark: Offset = this.visibleEndOffset): Offset {
    const unstable = this.#producers.firstUnstableOffset(highWatermark) ?? highWatermark;
    return toOffset(Math.min(Math.max(unstable, this.logStartOffset), highWatermark));
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
      await this.#epochs.assign(epoch, this.#local.logEndOffset);
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
   * @throws LogError as a rejection: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
   * NOT_LEADER_OR_FOLLOWER, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, UNSUPPORTED_COMPRESSION_TYPE,
   * QUEUE_FULL, LOG_CLOSED, KAFKA_STORAGE_ERROR
   */
  append(batch: Uint8Array, options: AppendOptions): Promise<AppendResult> {
    return this.#append(batch, options);
  }

  /**
   * Appends the marker that ends a producer's transaction here, as its coordinator's answer to a commit or an abort. One without an open
   * transaction is appended all the same.
   * @throws LogError as a rejection: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, and as `append`
   * Source: apache/kafka storage/.../internals/log/ProducerAppendInfo.java, appendEndTxnMarker
   */
  endTransaction(transaction: EndTransaction): Promise<AppendResult> {
    const batch = encodeEndTransactionMarker({ ...transaction, timestamp: this.#clock.wallMs() });
    return this.#append(batch, { origin: "coordinator", transactionVersion: transaction.transactionVersion });
  }

  async #append(batch: Uint8Array, options: ProducerAppend): Promise<AppendResult> {
    const { refusal } = this;
    if (refusal !== undefined) throw refusal;
    const nowMs = this.#nowMs();
    const header = checkLeaderBatch(batch, options.origin, this.config, nowMs);
    let append = options;
    if (isControlBatch(header)) {
      const marker = endTransactionMarkerOf(batch, header);
      if (options.origin !== "coordinator" || marker === undefined)
        throw new LogError({ code: "INVALID_RECORD", reason: "a control batch that is no coordinator's marker" });
      append = { ...options, marker };
    }
    const leader = { config: this.config, workers: this.#workers, nowMs };
    const judgement = options.origin === "client" ? checkClientRecords(batch, header, leader) : undefined;
    return this.#queue.append(batch, header, append, judgement);
  }

  /**
   * Appends, as follower, the whole batches in front of a fetch answer, up to the first one above `leaderEpoch`.
   * The bytes are stored as they are and not copied: whoever calls may not change them before this settles.
   * @returns offsets of what was appended, or `undefined` for nothing
   * @throws LogError as a rejection: CORRUPT_MESSAGE, INVALID_RECORD, OFFSETS_OUT_OF_ORDER, UNEXPECTED_APPEND_OFFSET, RECORD_LIST_TOO_LARGE,
   * UNSUPPORTED_FOR_MESSAGE_FORMAT, LOG_CLOSED, KAFKA_STORAGE_ERROR; then nothing was appended
   */
  appendAsFollower(
    bytes: Uint8Array,
    options: { readonly leaderEpoch?: LeaderEpoch } = {},
  ): Promise<AppendResult | undefined> {
    return this.#task(async () => {
      const log = {
        logEndOffset: this.#local.logEndOffset,
        latestEpoch: this.#epochs.latest?.epoch ?? -1,
        config: this.config,
        leaderEpoch: options.leaderEpoch,
      };
      const batches = checkFollowerBatches(bytes, log);
      if (batches === undefined) return undefined;
      await this.#writeFollowerBatches(bytes, batches);
      return { baseOffset: batches.firstBaseOffset, lastOffset: batches.lastOffset, duplicate: false };
    });
  }

  /**
   * A slice of the log; see `ReadOptions`. Sees one moment: a truncation that runs meanwhile makes it start again. For a reader of
   * committed records `limitOffset` is the high watermark.
   * @throws LogError as a rejection: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, LOG_CLOSED
   */
  async read(options: ReadOptions): Promise<ReadResult> {
    const empty = { bytes: new Uint8Array(0), startOffset: options.fromOffset };
    return this.#atOneMoment(() => this.#local.read(this.#limited(options)), empty);
  }

  /**
   * The offset asked for, with the leader epoch of its record: a lookup by time finds the exact record, and decodes the one batch.
   * @param limitOffset where what may be read ends, as `ReadOptions`; default: the log end. What is found at or above it is not told
   * @returns `undefined` when there is no such record
   * @throws LogError as a rejection: CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, KAFKA_STORAGE_ERROR, LOG_CLOSED
   * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, fetchOffsetByTimestamp
   */
  async listOffset(spec: OffsetSpec, limitOffset?: Offset): Promise<ListedOffset | undefined> {
    const found = await this.#atOneMoment(() => this.#findOffset(spec, limitOffset), undefined);
    const isBehindLimit = limitOffset !== undefined && found !== undefined && found.offset >= limitOffset;
    return isBehindLimit && spec !== "latest" && !isEarliest(spec) ? undefined : found;
  }

  async #findOffset(spec: OffsetSpec, limitOffset: Offset | undefined): Promise<ListedOffset | undefined> {
    const { logStartOffset, logEndOffset } = this;
    if (isEarliest(spec)) {
      const first = this.#epochs.entries[0];
      const isCovered = first !== undefined && first.startOffset <= logStartOffset;
      return {
        offset: logStartOffset,
        timestamp: NO_TIMESTAMP,
        leaderEpoch: isCovered ? first.epoch : undefined,
      };
    }
    if (spec === "latest") {
      const offset = toOffset(Math.min(limitOffset ?? logEndOffset, logEndOffset));
      return { offset, timestamp: NO_TIMESTAMP, leaderEpoch: this.#epochs.latest?.epoch };
    }
    const decompressedBytesMax = this.config.maxMessageBytes * DECOMPRESSED_BYTES_FACTOR;
    const view = { ...this.#local.view, workers: this.#workers, decompressedBytesMax };
    return spec === "max-timestamp" ? findMaxTimestamp(view) : findOffsetByTimestamp(view, spec.timestamp);
  }

  /** Runs `look` again when a truncation ran beside it; what it says is true of one moment. */
  async #atOneMoment<Result>(look: () => Promise<Result>, otherwise: Result): Promise<Result> {
    for (let attempt = 0; attempt < READ_RETRIES_MAX; attempt += 1) {
      await this.#truncation;
      if (this.#isClosed) throw new LogError({ code: "LOG_CLOSED", directory: this.directory });
      const truncations = this.#truncations;
      const deletions = this.#deletions;
      try {
        const result = await look();
        if (truncations === this.#truncations) return result;
      } catch (error) {
        if (error instanceof InvariantError) throw error;
        if (truncations === this.#truncations && deletions === this.#deletions)
          throw this.#isClosed
            ? new LogError({ code: "LOG_CLOSED", directory: this.directory })
            : storageError(error, this.directory);
      }
    }
    return otherwise;
  }

  /** The answer to OffsetsForLeaderEpoch. */
  endOffsetForEpoch(epoch: number): EpochEndOffset {
    return this.#epochs.endOffsetFor(epoch, this.#local.logEndOffset);
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

  /**
   * Deletes the records below `offset`: no read finds them any more, and this is durable when it resolves. Their bytes go with the last
   * of a segment's records.
   * @param highWatermark nothing at or above it may go. Default: what a consumer may see
   * @returns the log start offset, which never goes back
   * @throws LogError OFFSET_OUT_OF_RANGE above the high watermark; KAFKA_STORAGE_ERROR, LOG_CLOSED
   * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, maybeIncrementLogStartOffset
   */
  deleteRecords(offset: Offset, highWatermark?: Offset): Promise<Offset> {
    return this.#task(async () => {
      const { logStartOffset, logEndOffset } = this;
      const limit = Math.min(highWatermark ?? this.visibleEndOffset, logEndOffset);
      if (offset > limit)
        throw new LogError({
          code: "OFFSET_OUT_OF_RANGE",
          fetchOffset: offset,
          logStartOffset,
          logEndOffset: toOffset(Math.max(limit, logStartOffset)),
        });
      await this.#raiseLogStart(offset);
      const { segments } = this.#local;
      await this.#deleteOldest(
        segments.filter((_segment, at) => (segments[at + 1]?.baseOffset ?? Infinity) <= offset).length,
      );
      return this.logStartOffset;
    });
  }

  /**
   * Deletes the oldest segments by the topic's limits of age and size; where all go, a new one is begun first.
   * @param highWatermark nothing at or above it goes. Default: what a consumer may see
   * @throws LogError KAFKA_STORAGE_ERROR, LOG_CLOSED
   * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, deleteOldSegments
   */
  deleteOldSegments(highWatermark?: Offset): Promise<RetentionReport> {
    return this.#task(async () => {
      const nowMs = this.#nowMs();
      const { ages, futureSegments } = await this.#segmentAges(nowMs);
      const view = {
        segments: ages,
        logStartOffset: this.logStartOffset,
        logEndOffset: this.logEndOffset,
        highWatermark: highWatermark ?? this.visibleEndOffset,
        nowMs,
      };
      const reasons = segmentsToDelete(view, this.config);
      const deleted = reasons.map((reason, at) => {
        const { baseOffset, sizeBytes } = ages[at] ?? fail("a segment is judged", { at });
        return { baseOffset, sizeBytes, reason };
      });
      if (reasons.length > 0) {
        if (reasons.length === ages.length) await this.#local.roll(this.logEndOffset, this.#producers);
        const first = this.#local.segments[reasons.length] ?? fail("a log keeps a segment", { deleted });
        await this.#raiseLogStart(first.baseOffset);
        await this.#deleteOldest(reasons.length);
      }
      return { deleted, futureSegments };
    });
  }

  async #segmentAges(nowMs: number): Promise<{ ages: RetainedSegment[]; futureSegments: number }> {
    const ages: RetainedSegment[] = [];
    let futureSegments = 0;
    for (const segment of this.#local.segments) {
      let largestTimestamp = await segment.largestTimestamp();
      if (largestTimestamp > nowMs) {
        futureSegments += 1;
        if (this.config.ignoresFutureTimestamps) largestTimestamp = await segment.modifiedMs();
      }
      ages.push({ baseOffset: segment.baseOffset, sizeBytes: segment.sizeBytes, largestTimestamp });
    }
    return { ages, futureSegments };
  }

  /** The start first, durably: what is deleted then may be gone in any order. */
  async #raiseLogStart(offset: Offset): Promise<void> {
    await this.#local.settle();
    await this.#local.raiseLogStart(offset);
    this.#epochs.truncateFromStart(this.logStartOffset);
    await this.#epochs.flush();
    this.#wakeWaiters();
  }

  async #deleteOldest(count: number): Promise<void> {
    if (count === 0) return;
    this.#deletions += 1;
    this.#cuts += 1;
    await this.#local.deleteOldest(count);
  }

  /** What a compaction could do now. @throws FileError */
  compactionRange(options: CompactOptions = {}): Promise<CompactionRange> {
    return compactionRange({
      segments: this.#local.segments,
      logStartOffset: this.logStartOffset,
      logEndOffset: this.logEndOffset,
      lastStableOffset: this.lastStableOffset(options.highWatermark),
      firstDirtyOffset: options.firstDirtyOffset,
      config: this.config.compaction ?? DEFAULT_COMPACTION,
      nowMs: this.#clock.wallMs(),
    });
  }

  /**
   * One pass of compaction over the sealed segments: of each key the last value stays. Appends and reads go on beside it; only while a
   * segment takes the place of others they wait. A call while a pass runs gets the result of that one.
   * @throws LogError CORRUPT_MESSAGE for a batch that cannot be read, UNSUPPORTED_COMPRESSION_TYPE; KAFKA_STORAGE_ERROR, LOG_CLOSED;
   * COMPACTION_ABORTED when the log was cut meanwhile. What was put in place before stays
   */
  compact(options: CompactOptions = {}): Promise<CompactionResult> {
    this.#compaction ??= this.#compact(options).finally(() => {
      this.#compaction = undefined;
    });
    return this.#compaction;
  }

  async #compact(options: CompactOptions): Promise<CompactionResult> {
    const { refusal } = this;
    if (refusal !== undefined) throw refusal;
    const cuts = this.#cuts;
    const checkAborted = (): void => {
      if (this.refusal !== undefined) throw this.refusal;
      if (this.#cuts !== cuts) throw new LogError({ code: "COMPACTION_ABORTED", directory: this.directory });
    };
    const { firstDirtyOffset, firstUncleanableOffset } = await this.compactionRange(options);
    const { segments } = this.#local;
    const compaction = {
      workers: this.#workers,
      settings: this.#local.segmentSettings,
      config: this.config,
      segments: segments.filter(({ baseOffset }) => baseOffset < firstUncleanableOffset),
      firstDirtyOffset,
      firstUncleanableOffset,
      deleteRetentionMs: (this.config.compaction ?? DEFAULT_COMPACTION).deleteRetentionMs,
      mapBytes: options.mapBytes ?? COMPACTION_MAP_BYTES,
      abortedTransactions: segments.flatMap(({ transactionIndex }) => transactionIndex.entries),
      producers: () => this.producers,
      checkAborted,
      swap: (sources: readonly LogSegment[], cleaned: LogSegment) =>
        this.#task(async () => {
          checkAborted();
          await this.#exclusively(() => this.#local.replaceSegments(sources, cleaned));
        }),
    };
    try {
      return await compactSegments(compaction);
    } catch (error) {
      if (error instanceof InvariantError) throw error;
      if (error instanceof WireError || error instanceof WorkerError)
        throw new LogError(
          {
            code: "CORRUPT_MESSAGE",
            path: this.directory,
            positionBytes: 0,
            fromOffset: undefined,
            toOffset: undefined,
            reason: error.message,
          },
          { cause: error },
        );
      throw storageError(error, this.directory);
    }
  }

  /** Begins a new segment at the log end, unless the active one is empty. @returns base offset of the active segment */
  roll(): Promise<Offset> {
    return this.#task(async () => {
      if (this.#local.active.sizeBytes > 0) await this.#local.roll(this.logEndOffset, this.#producers);
      return this.#local.active.baseOffset;
    });
  }

  /** Makes everything up to the log end durable and raises the recovery point to it. @throws LogError KAFKA_STORAGE_ERROR, LOG_CLOSED */
  flush(): Promise<void> {
    return this.#task(() => this.#local.flush());
  }

  /** Begins to make durable what is written so far, beside the appends that follow. A failed sync takes the directory offline. */
  flushInBackground(): Promise<void> {
    return this.#task(async () => this.#local.startBackgroundFlush());
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

  // ---- appending -----------------------------------------------------------------------------------------------------

  /** Writes a group, syncs it, and answers each of its entries. */
  async #commit(group: AppendGroup): Promise<void> {
    this.#expireProducers();
    const outcome: GroupOutcome = { answers: [], nextEntry: 0, failure: undefined };
    const startOffset = this.#local.logEndOffset;
    try {
      while (outcome.nextEntry < group.entries.length) await this.#commitRun(group, outcome);
    } catch (error) {
      outcome.failure = this.#noteFailure(error);
    }
    try {
      // What was written before a failure is in the log, and is answered as any other once it is safe.
      if (this.#local.logEndOffset > startOffset || this.#local.isDirty) await this.#local.commit();
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
    const run: Run = { accepted: [], sizeBytes: 0, endOffset: this.#local.logEndOffset };
    try {
      await this.#collectRun(group, outcome, run);
      const first = run.accepted[0];
      if (first === undefined) return;
      const epoch = this.#leaderEpoch ?? fail("a run is collected by a leader", { directory: this.directory });
      if (this.#epochs.latest?.epoch !== epoch) await this.#epochs.assign(epoch, first.baseOffset);
      for (const { entry, baseOffset } of run.accepted) stampBatch(group.buffer, entry.atBytes, baseOffset, epoch);
      await this.#local.write(group.buffer.subarray(first.entry.atBytes, first.entry.atBytes + run.sizeBytes));
    } catch (error) {
      for (const { remembered } of [...run.accepted].reverse()) remembered.undo();
      if (run.accepted.length > 0)
        outcome.nextEntry = group.entries.indexOf(
          run.accepted[0]?.entry ?? fail("a run has a first entry"),
          firstEntry,
        );
      throw error;
    }
    const written: WrittenBatch[] = [];
    for (const { entry, baseOffset, remembered } of run.accepted) {
      const lastOffset = toOffset(baseOffset + entry.header.lastOffsetDelta);
      const { sizeInBytes, maxTimestamp } = entry.header;
      written.push({ lastOffset, sizeInBytes, maxTimestamp, aborted: remembered.aborted });
      const times = isLogAppendTime(entry.header) ? { logAppendTime: maxTimestamp } : undefined;
      outcome.answers.push({ entry, result: { baseOffset, lastOffset, duplicate: false, ...times } });
    }
    this.#local.noteBatches(written);
  }

  async #collectRun(group: AppendGroup, outcome: GroupOutcome, run: Run): Promise<void> {
    for (; outcome.nextEntry < group.entries.length; outcome.nextEntry += 1) {
      const entry = group.entries[outcome.nextEntry] ?? fail("the entry is in the group");
      const judged =
        entry.judgement instanceof Promise
          ? await entry.judgement.catch((error: unknown) => storageError(error, this.directory))
          : entry.judgement;
      if (this.#leaderEpoch === undefined)
        throw new LogError({ code: "NOT_LEADER_OR_FOLLOWER", directory: this.directory });
      const stop = this.#failure ?? this.#logDirectory.offlineError;
      if (stop !== undefined) throw stop;
      const verdict =
        judged instanceof LogError
          ? ({ type: "refuse", error: judged } as const)
          : this.#producers.judge(entry.header, entry.append);
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
      if (!(judged instanceof LogError)) this.#stampTime(group, entry, judged);
      if (!(await this.#takeIntoRun(entry, run))) return;
    }
  }

  /**
   * Writes the leader's time over that of a batch, or the largest of its records' where its producer says another. The CRC covers it; as
   * a rule nothing is to be done.
   */
  #stampTime(group: AppendGroup, entry: GroupEntry, times: RecordTimes | undefined): void {
    const { timestampType } = this.config;
    const isLogAppend = timestampType === "LogAppendTime";
    const maxTimestamp = isLogAppend ? this.#nowMs() : times?.maxTimestamp;
    if (maxTimestamp === undefined) return;
    if (isLogAppendTime(entry.header) === isLogAppend && entry.header.maxTimestamp === maxTimestamp) return;
    const { buffer } = group;
    stampMaxTimestamp(buffer, { ...entry.header, positionBytes: entry.atBytes }, timestampType, maxTimestamp);
    const stamped = readBatchHeader(buffer, entry.atBytes);
    if (stamped.type !== "batch") fail("a batch stays one when its time is stamped", { directory: this.directory });
    entry.header = stamped.header;
  }

  #nowMs(): number {
    return Math.floor(this.#clock.wallMs());
  }

  /** @returns false when the batch belongs into the next segment, and the run must be written first */
  async #takeIntoRun(entry: GroupEntry, run: Run): Promise<boolean> {
    const { header } = entry;
    const baseOffset = run.endOffset;
    const lastOffset = toOffset(baseOffset + header.lastOffsetDelta);
    const { sizeInBytes, maxTimestamp } = header;
    const limits = {
      pendingBytes: run.sizeBytes,
      pendingFirstTimestamp: run.accepted[0]?.entry.header.maxTimestamp,
      segmentBytesMax: this.config.segmentBytes,
    };
    if (this.#local.active.mustRollBefore({ sizeInBytes, maxTimestamp, lastOffset }, limits)) {
      if (run.accepted.length > 0) return false;
      await this.#local.roll(baseOffset, this.#producers);
    }
    const remembered = this.#producers.remember(header, baseOffset, entry.append.marker);
    run.accepted.push({ entry, baseOffset, remembered });
    run.sizeBytes += sizeInBytes;
    run.endOffset = toOffset(lastOffset + 1);
    return true;
  }

  async #writeFollowerBatches(bytes: Uint8Array, batches: FollowerBatches): Promise<void> {
    const limits = { pendingBytes: 0, pendingFirstTimestamp: undefined, segmentBytesMax: this.config.segmentBytes };
    const { sizeBytes, lastOffset } = batches;
    const maxTimestamp = batches.headers.reduce((max, header) => Math.max(max, header.maxTimestamp), NO_TIMESTAMP);
    if (this.#local.active.mustRollBefore({ sizeInBytes: sizeBytes, lastOffset, maxTimestamp }, limits))
      await this.#local.roll(batches.firstBaseOffset, this.#producers);
    try {
      // An epoch's entry is on the disk before any of its batches is.
      for (const { partitionLeaderEpoch, baseOffset } of batches.headers) {
        if (partitionLeaderEpoch === this.#epochs.latest?.epoch) continue;
        await this.#epochs.assign(partitionLeaderEpoch as LeaderEpoch, toOffset(baseOffset));
      }
      await this.#local.write(bytes.subarray(0, sizeBytes));
    } catch (error) {
      // An epoch without its batches would refuse those of the epochs before it when they come again.
      this.#epochs.truncateFromEnd(this.logEndOffset);
      throw error;
    }
    this.#expireProducers();
    this.#local.noteBatches(
      batches.headers.map((header) => {
        const marker = endTransactionMarkerOf(bytes, header);
        const { aborted } = this.#producers.remember(header, header.baseOffset, marker);
        const { sizeInBytes, maxTimestamp: batchMaxTimestamp } = header;
        return { lastOffset: toOffset(header.lastOffset), sizeInBytes, maxTimestamp: batchMaxTimestamp, aborted };
      }),
    );
    await this.#local.commit();
    this.#wakeWaiters();
  }

  // ---- truncation ----------------------------------------------------------------------------------------------------

  /**
   * Runs `truncate` without a flush beside it, and makes reads that overlap it start again. One that fails half way stops the
   * partition: what its files hold is known again after the next open.
   */
  async #exclusively(truncate: () => Promise<void>): Promise<void> {
    await this.#local.settle();
    this.#truncations += 1;
    const running = truncate();
    this.#truncation = running.catch(() => undefined);
    try {
      await running;
    } catch (error) {
      this.#failure ??= error instanceof InvariantError ? error : storageError(error, this.directory);
      throw error;
    } finally {
      this.#truncations += 1;
      this.#truncation = undefined;
    }
  }

  async #truncateTo(offset: Offset): Promise<void> {
    this.#cuts += 1;
    const { logEndOffset } = this;
    if (offset < logEndOffset) {
      if (offset < this.#local.firstBaseOffset) return this.#truncateFully(offset);
      this.#producers = await this.#local.truncateTo(offset);
    }
    this.#epochs.truncateFromEnd(Math.min(offset, logEndOffset));
    await this.#epochs.flush();
  }

  async #truncateFully(offset: Offset): Promise<void> {
    this.#cuts += 1;
    await this.#local.truncateFullyAndStartAt(offset, () => this.#epochs.clearAndFlush());
    this.#producers = new ProducerState();
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

  /** Every ten minutes, as far as something is appended: nothing else would see the difference. */
  #expireProducers(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < this.#nextExpiryCheckMs) return;
    this.#nextExpiryCheckMs = nowMs + PRODUCER_ID_EXPIRATION_CHECK_MS;
    this.#producers.expire(this.#clock.wallMs(), this.#producerIdExpirationMs);
  }

  #limited(options: ReadOptions): ReadOptions {
    if (options.isolation !== "read_committed") return options;
    return { ...options, limitOffset: this.lastStableOffset(options.limitOffset) };
  }

  #wakeWaiters(): void {
    this.#waiters.moved(this.visibleEndOffset);
  }

  async #close(refusal: Error | undefined): Promise<boolean> {
    // It sees that the log closes, and has no swap in the queue behind this.
    await this.#compaction?.catch(() => undefined);
    await this.#local.settle();
    let isComplete = refusal === undefined && this.#failure === undefined && this.#logDirectory.isOnline;
    try {
      if (isComplete) {
        await this.#local.seal(this.#producers);
        await this.#epochs.flush();
      }
    } catch (error) {
      this.#noteFailure(error);
      isComplete = false;
    }
    this.#isClosed = true;
    this.#waiters.wakeAll();
    await this.#local.close();
    return isComplete;
  }
}

function isEarliest(spec: OffsetSpec): spec is "earliest" | "earliest-local" {
  return spec === "earliest" || spec === "earliest-local";
}
