import type { LeaderEpoch, Offset } from "@tidemark/base";
import type { EpochEndOffset, EpochEntry } from "@tidemark/epoch-cache";
import { encodeEndTransactionMarker } from "@tidemark/wire";
import type { EndTransactionMarker } from "@tidemark/wire";
import type { BatchOrigin } from "./append-checks.ts";
import type { CompactionResult } from "./compaction.ts";
import type { CompactionRange, DirtyPart } from "./compaction-range.ts";
import { checkLogConfig, PRODUCER_ID_EXPIRATION_MS_DEFAULT } from "./config.ts";
import type { LogConfig } from "./config.ts";
import type { EndOffsetWait } from "./end-offset-waiters.ts";
import { LogError } from "./error.ts";
import { loadLog } from "./load-log.ts";
import type { LoadedLog } from "./load-log.ts";
import { LogAppends } from "./log-appends.ts";
import { LogCompaction } from "./log-compaction.ts";
import type { CompactOptions } from "./log-compaction.ts";
import { LogCore } from "./log-core.ts";
import type { PartitionLogOptions } from "./log-core.ts";
import { isDirectoryFailure, storageError } from "./log-directory.ts";
import type { ReadOptions, ReadResult } from "./log-read.ts";
import { LogReads } from "./log-reads.ts";
import { LogRetention } from "./log-retention.ts";
import type { RetentionReport } from "./log-retention.ts";
import { LogTruncation } from "./log-truncation.ts";
import type { ListedOffset, OffsetSpec } from "./offset-lookup.ts";
import type { AppendResult } from "./partition-queue.ts";
import type { ProducerState } from "./producer-state.ts";
import type { DamagedRange, RecoveryReport } from "./recovery-report.ts";

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
  readonly #core: LogCore;
  readonly #appends: LogAppends;
  readonly #reads: LogReads;
  readonly #truncation: LogTruncation;
  readonly #retention: LogRetention;
  readonly #compaction: LogCompaction;

  private constructor(options: PartitionLogOptions, loaded: LoadedLog) {
    this.topic = options.topic;
    this.partition = options.partition;
    this.directory = options.directory;
    this.config = options.config;
    this.recovery = loaded.report;
    this.#core = new LogCore(options, loaded, (group) => this.#appends.commit(group));
    this.#appends = new LogAppends(this.#core, options.producerIdExpirationMs ?? PRODUCER_ID_EXPIRATION_MS_DEFAULT);
    this.#reads = new LogReads(this.#core);
    this.#truncation = new LogTruncation(this.#core);
    this.#retention = new LogRetention(this.#core);
    this.#compaction = new LogCompaction(this.#core, this.#truncation);
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
      await log.#core.local.lowerCleanerOffset();
      await log.#core.local.active.openForAppend();
      return log;
    } catch (error) {
      const failure = storageError(error, options.directory);
      if (isDirectoryFailure(failure)) options.logDirectory.markOffline(failure);
      throw failure;
    }
  }

  get logStartOffset(): Offset {
    return this.#core.local.logStartOffset;
  }

  /** Next offset to be assigned (LEO). */
  get logEndOffset(): Offset {
    return this.#core.local.logEndOffset;
  }

  /** Everything below is on the disk. */
  get flushedEndOffset(): Offset {
    return this.#core.local.flushedEndOffset;
  }

  /** What a consumer may see while there are no other replicas: the flushed end in `always` mode, the log end otherwise. */
  get visibleEndOffset(): Offset {
    return this.#core.visibleEndOffset;
  }

  /** From here up the next open scans. */
  get recoveryPoint(): Offset {
    return this.#core.local.recoveryPoint;
  }

  get leaderEpoch(): LeaderEpoch | undefined {
    return this.#core.leaderEpoch;
  }

  get epochEntries(): readonly EpochEntry[] {
    return this.#core.epochs.entries;
  }

  get segments(): readonly SegmentDescription[] {
    return this.#core.local.segments.map(({ baseOffset, sizeBytes, index }) => ({
      baseOffset,
      sizeBytes,
      indexEntries: index.count,
    }));
  }

  /** Ranges that were durable once and cannot be read; while there are any the log takes no appends. */
  get damaged(): readonly DamagedRange[] {
    return this.#core.damaged;
  }

  /** Why appends are refused at present, or `undefined`. */
  get refusal(): Error | undefined {
    return this.#core.refusal;
  }

  /** Producers that the log knows of. */
  get producers(): ProducerState["entries"] {
    return this.#core.producers.entries;
  }

  /**
   * What a reader of committed records may see: everything below the first transaction that is open, or whose marker the high watermark
   * has not passed. At most the high watermark.
   * @param highWatermark default: what a consumer may see while there are no other replicas
   * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, lastStableOffset
   */
  lastStableOffset(highWatermark?: Offset): Offset {
    return this.#core.lastStableOffset(highWatermark);
  }

  /** The sequence that a producer's next batch must carry, or `undefined` when the log does not know the producer. */
  nextSequence(producerId: number): number | undefined {
    return this.#core.producers.nextSequence(producerId);
  }

  /**
   * From here on the log appends in this epoch, whose entry (epoch, log end) is durable when this resolves.
   * @throws LogError FENCED_LEADER_EPOCH when the log has seen a higher epoch; KAFKA_STORAGE_ERROR
   */
  becomeLeader(epoch: LeaderEpoch): Promise<void> {
    return this.#core.task(async () => {
      const currentEpoch = Math.max(this.#core.leaderEpoch ?? -1, this.#core.epochs.latest?.epoch ?? -1);
      if (epoch < currentEpoch)
        throw new LogError({ code: "FENCED_LEADER_EPOCH", requestedEpoch: epoch, currentEpoch });
      await this.#core.epochs.assign(epoch, this.#core.local.logEndOffset);
      this.#core.leaderEpoch = epoch;
    });
  }

  /** From here on `append` answers NOT_LEADER_OR_FOLLOWER. */
  becomeFollower(): Promise<void> {
    return this.#core.task(async () => {
      this.#core.leaderEpoch = undefined;
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
    return this.#appends.append(batch, options);
  }

  /**
   * Appends the marker that ends a producer's transaction here, as its coordinator's answer to a commit or an abort. One without an open
   * transaction is appended all the same.
   * @throws LogError as a rejection: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, and as `append`
   * Source: apache/kafka storage/.../internals/log/ProducerAppendInfo.java, appendEndTxnMarker
   */
  endTransaction(transaction: EndTransaction): Promise<AppendResult> {
    const batch = encodeEndTransactionMarker({ ...transaction, timestamp: this.#core.clock.wallMs() });
    return this.#appends.append(batch, { origin: "coordinator", transactionVersion: transaction.transactionVersion });
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
    return this.#appends.appendAsFollower(bytes, options.leaderEpoch);
  }

  /**
   * A slice of the log; see `ReadOptions`. Sees one moment: a truncation that runs meanwhile makes it start again. For a reader of
   * committed records `limitOffset` is the high watermark.
   * @throws LogError as a rejection: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, LOG_CLOSED
   */
  read(options: ReadOptions): Promise<ReadResult> {
    return this.#reads.read(options);
  }

  /**
   * As `read`, but what is known without waiting is returned at once: what the page cache is expected to have, and that there is nothing.
   * @throws LogError as `read`, at once or as a rejection
   */
  readSoon(options: ReadOptions): ReadResult | Promise<ReadResult> {
    return this.#reads.readSoon(options);
  }

  /**
   * The offset asked for, with the leader epoch of its record: a lookup by time finds the exact record, and decodes the one batch.
   * @param limitOffset where what may be read ends, as `ReadOptions`; default: the log end. What is found at or above it is not told
   * @returns `undefined` when there is no such record
   * @throws LogError as a rejection: CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, KAFKA_STORAGE_ERROR, LOG_CLOSED
   * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, fetchOffsetByTimestamp
   */
  listOffset(spec: OffsetSpec, limitOffset?: Offset): Promise<ListedOffset | undefined> {
    return this.#reads.listOffset(spec, limitOffset);
  }

  /** The answer to OffsetsForLeaderEpoch. */
  endOffsetForEpoch(epoch: number): EpochEndOffset {
    return this.#core.epochs.endOffsetFor(epoch, this.#core.local.logEndOffset);
  }

  /** Waits until `visibleEndOffset > beyond`, or the log closes. @throws LogError QUEUE_FULL past `WAITERS_MAX` */
  waitForEndOffset(beyond: Offset): EndOffsetWait {
    const wait = this.#core.waiters.add(beyond);
    if (this.visibleEndOffset > beyond || this.#core.isClosed) wait.cancel();
    return wait;
  }

  /**
   * Cuts the log so that it ends at `offset`: batches that reach it go whole. Durable when it resolves. At or above the log
   * end only epoch entries without batches go.
   * @throws LogError KAFKA_STORAGE_ERROR, LOG_CLOSED
   * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, truncateTo
   */
  truncateTo(offset: Offset): Promise<void> {
    return this.#truncation.truncateTo(offset);
  }

  /** Empties the log; it begins and ends at `offset` then. Durable when it resolves. @throws LogError KAFKA_STORAGE_ERROR, LOG_CLOSED */
  truncateFullyAndStartAt(offset: Offset): Promise<void> {
    return this.#truncation.truncateFullyAndStartAt(offset);
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
    return this.#retention.deleteRecords(offset, highWatermark);
  }

  /**
   * Deletes the oldest segments by the topic's limits of age and size; where all go, a new one is begun first.
   * @param highWatermark nothing at or above it goes. Default: what a consumer may see
   * @throws LogError KAFKA_STORAGE_ERROR, LOG_CLOSED
   * Source: apache/kafka storage/.../internals/log/UnifiedLog.java, deleteOldSegments
   */
  deleteOldSegments(highWatermark?: Offset): Promise<RetentionReport> {
    return this.#retention.deleteOldSegments(highWatermark);
  }

  /** What of the log was compacted before. Sealed segments only. */
  get dirtyPart(): DirtyPart {
    return this.#compaction.dirtyPart;
  }

  /** Where the last pass of compaction ended, kept over restarts; `undefined` when there was none, or all it says is lost. */
  get cleanerOffset(): Offset | undefined {
    return this.#core.local.cleanerOffset;
  }

  /** What a compaction could do now. @throws FileError */
  compactionRange(options: CompactOptions = {}): Promise<CompactionRange> {
    return this.#compaction.range(options);
  }

  /**
   * One pass of compaction over the sealed segments: of each key the last value stays. Appends and reads go on beside it; only while a
   * segment takes the place of others they wait. A call while a pass runs gets the result of that one.
   * @throws LogError CORRUPT_MESSAGE for a batch that cannot be read, UNSUPPORTED_COMPRESSION_TYPE; KAFKA_STORAGE_ERROR, LOG_CLOSED;
   * COMPACTION_ABORTED when the log was cut meanwhile. What was put in place before stays
   */
  compact(options: CompactOptions = {}): Promise<CompactionResult> {
    return this.#compaction.compact(options);
  }

  /** Ends a pass that runs, which answers COMPACTION_ABORTED; resolves when it is over. */
  abortCompaction(): Promise<void> {
    return this.#compaction.abort();
  }

  /** Begins a new segment at the log end, unless the active one is empty. @returns base offset of the active segment */
  roll(): Promise<Offset> {
    return this.#core.task(async () => {
      if (this.#core.local.active.sizeBytes > 0) await this.#core.local.roll(this.logEndOffset, this.#core.producers);
      return this.#core.local.active.baseOffset;
    });
  }

  /** Makes everything up to the log end durable and raises the recovery point to it. @throws LogError KAFKA_STORAGE_ERROR, LOG_CLOSED */
  flush(): Promise<void> {
    return this.#core.task(async () => {
      await this.#core.settle();
      await this.#core.local.flush();
    });
  }

  /** Begins to make durable what is written so far, beside the appends that follow. A failed sync takes the directory offline. */
  flushInBackground(): Promise<void> {
    return this.#core.task(async () => this.#core.local.startBackgroundFlush());
  }

  /**
   * Flushes everything and closes the files. Idempotent; appends called before it are answered first.
   * @returns whether the log is complete on the disk, with indexes and recovery point: only then may a clean shutdown be noted
   */
  close(): Promise<boolean> {
    if (this.#core.closing === undefined) {
      const { refusal } = this;
      this.#core.closing = this.#core.queue.run(() => this.#close(refusal));
    }
    return this.#core.closing;
  }

  async #close(refusal: Error | undefined): Promise<boolean> {
    // It sees that the log closes, and has no swap in the queue behind this.
    await this.#compaction.running?.catch(() => undefined);
    await this.#core.local.settle();
    let isComplete = refusal === undefined && this.#core.failure === undefined && this.#core.logDirectory.isOnline;
    try {
      if (isComplete) {
        await this.#core.local.seal(this.#core.producers);
        await this.#core.epochs.flush();
      }
    } catch (error) {
      this.#core.noteFailure(error);
      isComplete = false;
    }
    this.#core.isClosed = true;
    this.#core.waiters.wakeAll();
    await this.#core.local.close();
    return isComplete;
  }
}
