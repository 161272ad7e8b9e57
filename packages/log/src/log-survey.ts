import { toLeaderEpoch, toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { LeaderEpochCache } from "@tidemark/epoch-cache";
import type { EpochEntry } from "@tidemark/epoch-cache";
import {
  endTransactionMarkerOf,
  legacyMagic,
  legacyMessageBytes,
  readBatchHeader,
  RECORD_BATCH_OVERHEAD,
} from "@tidemark/wire";
import type { BatchHeader, EndTransactionMarker } from "@tidemark/wire";
import { LogError } from "./error.ts";
import type { LogState } from "./log-state.ts";
import type { Trusted } from "./log-trust.ts";
import type { OffsetIndex } from "./offset-index.ts";
import type { ProducerReplay } from "./producer-replay.ts";
import type { ProducerState } from "./producer-state.ts";
import type { DamagedRange } from "./recovery-report.ts";
import type { LogSegment } from "./segment.ts";
import { findNextBatch, walkSegment } from "./segment-walk.ts";
import { NO_TIMESTAMP } from "./time-index.ts";
import type { TimeIndex } from "./time-index.ts";
import { TransactionIndex } from "./transaction-index.ts";
import type { AbortedTransaction } from "./transaction-index.ts";

/** An epoch as the batches show it. */
export interface SeenEpoch extends EpochEntry {
  /** End of what lies before its first batch: its entry may begin anywhere from here to that batch. */
  readonly earliestStartOffset: number;
  /** Of its last batch that was read. */
  readonly lastOffset: number;
}

/** Where the log is to be cut: everything from here on goes. */
export interface Cut {
  readonly segmentAt: number;
  readonly positionBytes: number;
  readonly offset: Offset;
  /**
   * The segment stays although all of it goes: it begins where its leader's log left offsets out. Without it the log would end below
   * the recovery point, which may be as high as its base offset.
   */
  readonly keepsEmptySegment: boolean;
  readonly reason: string;
}

/** What the files say, before anything in them is changed. */
export interface LogSurvey {
  /** Where the first segment begins, or what was lost before it. */
  readonly beginOffset: Offset;
  readonly logEndOffset: Offset;
  readonly cut: Cut | undefined;
  readonly damaged: readonly DamagedRange[];
  readonly seenEpochs: readonly SeenEpoch[];
  /** Of batches that lie below the log start. */
  readonly deletedEpochs: ReadonlySet<number>;
  /** Whether every batch began where the one before it ended; `undefined` when not all were looked at. */
  readonly isGapless: boolean | undefined;
  /** What the epoch file has wrong, as batches that agree with each other show it; `undefined` when they do not. */
  readonly epochFileProblem: string | undefined;
  readonly producers: ProducerState;
  /** Base offsets of segments whose border leaves offsets out and was believed, though nothing was noted of it. */
  readonly gapsBelieved: readonly { readonly baseOffset: Offset; readonly endOffset: Offset }[];
  readonly segmentsScanned: number;
  readonly bytesScanned: number;
  readonly indexesRebuilt: number;
  /** What was wrong with transaction indexes of segments that nobody should have changed. They were rebuilt. */
  readonly transactionIndexProblems: readonly { readonly path: string; readonly reason: string }[];
}

export interface SurveyOptions {
  /** Ascending by base offset. Their sizes and indexes are set here. */
  readonly segments: readonly LogSegment[];
  readonly fileBytes: readonly number[];
  /** The first segments, which are not looked at. */
  readonly trusted: Trusted;
  readonly state: LogState;
  /** Batches that lie below it are deleted: the epoch file says nothing of theirs. `undefined` when unknown. */
  readonly logStartOffset: Offset | undefined;
  /** 0 when unknown. */
  readonly recoveryPoint: Offset;
  readonly isRecoveryPointKnown: boolean;
  /** Whether every border that rightly leaves offsets out is noted in the state. */
  readonly areGapsRecorded: boolean;
  /** As the epoch file has them; none when it is no such file. Looked at only where nothing but our own process wrote it. */
  readonly fileEpochs: readonly EpochEntry[];
  /** Batches are then believed by their headers alone. */
  readonly isTrusted: boolean;
  /** CRCs of the segments below the recovery point too. Default false. */
  readonly checksAll?: boolean;
  readonly indexIntervalBytes: number;
  /** Has seen the trusted segments. */
  readonly producers: ProducerReplay;
}

/**
 * Reads a partition's segments from the first one on that is not trusted: headers everywhere, CRCs from the recovery point up.
 *
 * At or above the recovery point the first thing that is not right ends the log, whatever follows: torn tails and rot look
 * alike there. Below it nothing ends the log; what cannot be read is a damaged range, and the walk goes on behind it.
 * A batch whose leader epoch the epoch file contradicts is not right, unless it contradicts the next one in the same way.
 * Changes no file. Cost: reads all headers there, which brings the producers' state from its snapshot to the end too.
 * @throws FileError
 */
export async function surveyLog(options: SurveyOptions): Promise<LogSurvey> {
  const survey = new Survey(options);
  for (let at = options.trusted.count; at < options.segments.length && survey.cut === undefined; at += 1)
    await survey.segment(at);
  return survey.finish();
}

class Survey {
  readonly #options: SurveyOptions;
  readonly #damaged: DamagedRange[] = [];
  readonly #seenEpochs: (SeenEpoch & { lastOffset: number })[] = [];
  readonly #deletedEpochs = new Set<number>();
  readonly #gapsBelieved: { readonly baseOffset: Offset; readonly endOffset: Offset }[] = [];
  readonly #beginOffset: Offset;
  /** Next offset: the end of what was read so far. */
  #endOffset: number;
  /** End of the last batch: lower than `#endOffset` behind damage, and where offsets are left out. */
  #batchesEndOffset: number;
  #lastEpoch = -1;
  /** Whether no batch may leave offsets out. */
  readonly #refusesGaps: boolean;
  #gapsSeen = 0;
  /** An entry is durable before its first batch, so that a batch which it contradicts is none. Empty: nothing is known. */
  readonly #fileEpochs: LeaderEpochCache;
  /** Epochs in which the file is wrong. */
  readonly #believedEpochs = new Set<number>();
  #epochFileProblem: string | undefined;
  /** The batch that the epoch file contradicts, as it was refused for that. */
  #contradicted: BatchHeader | undefined;
  /** The segment at hand does not begin where the one before it ends, and that is right. */
  #isBehindGap = false;
  #segmentsScanned = 0;
  #bytesScanned = 0;
  #indexesRebuilt = 0;
  readonly #transactionIndexProblems: { readonly path: string; readonly reason: string }[] = [];
  /** Of the segment at hand, as its batches show them. */
  #aborted: AbortedTransaction[] = [];
  cut: Cut | undefined;

  constructor(options: SurveyOptions) {
    const { trusted } = options;
    this.#options = options;
    this.#beginOffset = beginOf(options);
    this.#endOffset = trusted.count > 0 ? trusted.endOffset : this.#beginOffset;
    this.#batchesEndOffset = this.#endOffset;
    this.#indexesRebuilt = trusted.indexesRebuilt;
    this.#lastEpoch = trusted.epochs.at(-1)?.epoch ?? -1;
    // Another program's file may lag behind its batches in either direction.
    this.#refusesGaps = options.areGapsRecorded && options.isRecoveryPointKnown && options.state.isGapless;
    const isFileOurs = options.areGapsRecorded && options.isRecoveryPointKnown && !options.isTrusted;
    this.#fileEpochs = new LeaderEpochCache(isFileOurs ? options.fileEpochs : []);
    // Wherever the file says that they begin.
    for (const { epoch, startOffset } of trusted.epochs)
      this.#seenEpochs.push({ epoch, startOffset, earliestStartOffset: 0, lastOffset: startOffset });
  }

  async segment(at: number): Promise<void> {
    const { segments, fileBytes, recoveryPoint, isTrusted } = this.#options;
    const segment = segments[at];
    if (segment === undefined) return;
    if (this.#refuseBorder(at, segment)) return;
    const nextBaseOffset = segments[at + 1]?.baseOffset;
    const isBelow = nextBaseOffset !== undefined && nextBaseOffset <= recoveryPoint;
    const verifyCrc = !isTrusted && (!isBelow || this.#options.checksAll === true);
    const bytes = fileBytes[at] ?? 0;
    if (verifyCrc) {
      this.#segmentsScanned += 1;
      this.#bytesScanned += bytes;
    }
    const onDisk = await segment.indexes.readFiles();
    const check = new IndexCheck(onDisk);
    let fromBytes = 0;
    this.#aborted = [];
    while (fromBytes < bytes && this.cut === undefined) {
      fromBytes = await this.#walk(at, segment, { fromBytes, bytes, verifyCrc, check });
    }
    // What the scan rebuilt is right in any case. The files' own entries may be others, as Kafka counts the interval anew
    // after each open; they are kept where every one of them names a batch.
    const offsets = check.areOffsetsGood && !verifyCrc ? onDisk.offsets : undefined;
    const times = check.areTimesGood && !verifyCrc ? onDisk.times : undefined;
    segment.indexes.noteEnd();
    segment.indexes.adopt({ offsets, times });
    if (offsets === undefined || times === undefined) this.#indexesRebuilt += 1;
    segment.indexes.resetInterval();
    await this.#adoptTransactionIndex(segment, verifyCrc);
  }

  /**
   * Above the recovery point the batches alone say which transactions were aborted. Below it the file may name more: what compaction or a
   * raised log start took away. It may not name less, and be no index.
   */
  async #adoptTransactionIndex(segment: LogSegment, isScanned: boolean): Promise<void> {
    const onDisk = await segment.readTransactionIndexFile();
    const known = onDisk instanceof TransactionIndex ? onDisk.entries : [];
    // What a torn write leaves of an entry may look like another one.
    const missing = this.#aborted.filter((aborted) => !known.some((entry) => isSameTransaction(entry, aborted)));
    const isSame = onDisk instanceof TransactionIndex && missing.length === 0;
    if (isSame && (!isScanned || known.length === this.#aborted.length))
      return segment.adoptTransactionIndex(onDisk, true);
    if (!isScanned) {
      const reason = onDisk instanceof TransactionIndex ? `lacks ${missing.length} transactions` : onDisk.problem;
      this.#transactionIndexProblems.push({ path: segment.transactionIndexPath, reason });
    }
    const isKept = ({ lastOffset }: AbortedTransaction): boolean =>
      !missing.some((transaction) => transaction.lastOffset === lastOffset);
    const entries = isScanned
      ? this.#aborted
      : [...known.filter(isKept), ...missing].sort((a, b) => a.lastOffset - b.lastOffset);
    segment.adoptTransactionIndex(new TransactionIndex(segment.baseOffset, entries), false);
  }

  finish(): LogSurvey {
    const { recoveryPoint, segments, fileBytes } = this.#options;
    const lastSegment = segments.at(-1);
    if (this.cut === undefined && this.#endOffset < recoveryPoint) {
      const fromBytes = fileBytes.at(-1) ?? 0;
      this.#noteDamage({
        toOffset: recoveryPoint,
        path: lastSegment?.path,
        fromBytes,
        toBytes: fromBytes,
        reason: "missing",
      });
    }
    return {
      beginOffset: this.#beginOffset,
      logEndOffset: toOffset(this.#endOffset),
      cut: this.cut,
      damaged: this.#damaged,
      seenEpochs: this.#seenEpochs,
      deletedEpochs: this.#deletedEpochs,
      isGapless: this.#options.trusted.count > 0 || this.#damaged.length > 0 ? undefined : this.#gapsSeen === 0,
      epochFileProblem: this.#epochFileProblem,
      producers: this.#options.producers.finish(),
      gapsBelieved: this.#gapsBelieved,
      segmentsScanned: this.#segmentsScanned,
      bytesScanned: this.#bytesScanned,
      indexesRebuilt: this.#indexesRebuilt,
      transactionIndexProblems: this.#transactionIndexProblems,
    };
  }

  /**
   * A segment that does not begin where the one before it ends.
   *
   * Compaction and a leader's raised start leave offsets out, which is noted when it happens; so does a machine that lost a
   * whole file in a crash, or somebody who removed one.
   * @returns true when the segment is not to be walked
   */
  #refuseBorder(at: number, segment: LogSegment): boolean {
    const { recoveryPoint, isRecoveryPointKnown, areGapsRecorded, segments, fileBytes, state } = this.#options;
    const { baseOffset, path } = segment;
    this.#isBehindGap = false;
    if (baseOffset === this.#endOffset) return false;
    if (baseOffset < this.#endOffset) {
      const reason = "segment overlaps the one before it";
      if (baseOffset >= recoveryPoint) return this.#cutAt({ at, positionBytes: 0, reason });
      const toOffset = Math.max(this.#endOffset + 1, segments[at + 1]?.baseOffset ?? recoveryPoint);
      this.#noteDamage({ toOffset, path, fromBytes: 0, toBytes: fileBytes[at] ?? 0, reason });
      return true;
    }
    const isNoted = state.endBeforeGap(baseOffset) === this.#endOffset;
    if (isNoted || !isRecoveryPointKnown || !areGapsRecorded) {
      if (!isNoted) this.#gapsBelieved.push({ baseOffset, endOffset: toOffset(this.#endOffset) });
      this.#endOffset = baseOffset;
      this.#isBehindGap = true;
      return false;
    }
    if (this.#endOffset >= recoveryPoint)
      return this.#cutAt({ at, positionBytes: 0, reason: "segment does not follow the one before it" });
    this.#noteDamage({ toOffset: baseOffset, path: undefined, fromBytes: 0, toBytes: 0, reason: "missing" });
    return false;
  }

  /** Walks on from `fromBytes`. @returns where to go on, behind damage; the end of the file when done */
  async #walk(
    at: number,
    segment: LogSegment,
    walk: { fromBytes: number; bytes: number; verifyCrc: boolean; check: IndexCheck },
  ): Promise<number> {
    const { recoveryPoint, segments, indexIntervalBytes } = this.#options;
    const { bytes, check } = walk;
    segment.sizeBytes = walk.fromBytes;
    const end = await segment.use((file) =>
      walkSegment({
        io: segment.io,
        file,
        fromBytes: walk.fromBytes,
        toBytes: bytes,
        verifyCrc: walk.verifyCrc,
        readsControlBatches: true,
        onBatch: (header, positionBytes, chunk) => {
          const refusal = this.#refuseBatch(segment, header);
          if (refusal !== undefined) return refusal;
          this.#noteBatch(header, endTransactionMarkerOf(chunk, header));
          check.batch(header, positionBytes);
          segment.noteBatch(header, indexIntervalBytes);
          return undefined;
        },
      }),
    );
    if (end.type === "end") return bytes;
    if (await this.#believesNext(at, segment, end.positionBytes, bytes)) return end.positionBytes;
    const reason = end.type === "corrupt" ? end.reason : "incomplete";
    await refuseOldFormat(segment, end.positionBytes, bytes);
    if (this.#endOffset >= recoveryPoint) {
      this.#cutAt({ at, positionBytes: end.positionBytes, reason });
      return bytes;
    }
    const maxOffset = segments[at + 1]?.baseOffset ?? Number.MAX_SAFE_INTEGER;
    const next = await segment.use((file) =>
      findNextBatch({
        io: segment.io,
        file,
        fromBytes: end.positionBytes + 1,
        toBytes: bytes,
        minOffset: this.#endOffset,
        maxOffset,
      }),
    );
    const toBytes = next?.positionBytes ?? bytes;
    const toOffset = next?.header.baseOffset ?? Math.min(maxOffset, recoveryPoint);
    this.#noteDamage({ toOffset, path: segment.path, fromBytes: end.positionBytes, toBytes, reason });
    segment.sizeBytes = toBytes;
    return toBytes;
  }

  #refuseBatch(segment: LogSegment, header: BatchHeader): string | undefined {
    if (header.baseOffset < this.#endOffset) return `offset ${header.baseOffset} after ${this.#endOffset - 1}`;
    // What the recovery point was raised over ended with a batch, unless it is deleted.
    const isOverPoint =
      this.#options.areGapsRecorded &&
      Math.max(this.#endOffset, this.#options.logStartOffset ?? 0) < this.#options.recoveryPoint &&
      header.baseOffset >= this.#options.recoveryPoint;
    if (header.baseOffset > this.#endOffset && (this.#refusesGaps || isOverPoint))
      return `offset ${header.baseOffset} where ${this.#endOffset} follows`;
    if (!segment.index.canHold(header.lastOffset)) return "offset too far from the segment's base";
    const epoch = header.partitionLeaderEpoch;
    // It lies outside the CRC. -1 is what a rewritten batch of an old format carries.
    if (epoch < -1) return `leader epoch ${epoch}`;
    const isAbove = header.baseOffset >= this.#options.recoveryPoint;
    if (isAbove && !this.#options.isTrusted && epoch >= 0 && epoch < this.#lastEpoch)
      return `leader epoch ${epoch} after ${this.#lastEpoch}`;
    return this.#contradictionOf(header);
  }

  /** What the epoch file says of a batch, if it says otherwise. One bit of a batch's epoch is enough for that: no CRC covers it. */
  #contradictionOf(header: BatchHeader): string | undefined {
    const { partitionLeaderEpoch: epoch, baseOffset, lastOffset } = header;
    const logStartOffset = this.#options.logStartOffset ?? toOffset(0);
    if (epoch < 0 || lastOffset < logStartOffset || this.#believedEpochs.has(epoch)) return undefined;
    // Where the log begins inside a batch, so does its epoch.
    const entryEpoch = this.#fileEpochs.epochForOffset(toOffset(Math.max(baseOffset, logStartOffset)));
    if (entryEpoch === undefined || entryEpoch === epoch) return undefined;
    this.#contradicted = header;
    return `leader epoch ${epoch}, where the epoch file has ${entryEpoch}`;
  }

  /**
   * Whether the epoch file contradicts the batch behind in the same way: no rot makes two of one epoch, so then it is the file that is wrong.
   * @returns true when the walk goes on with the contradicted batch
   */
  async #believesNext(at: number, segment: LogSegment, positionBytes: number, bytes: number): Promise<boolean> {
    const contradicted = this.#contradicted;
    this.#contradicted = undefined;
    if (contradicted === undefined) return false;
    const { segments, fileBytes } = this.#options;
    const { partitionLeaderEpoch: epoch, sizeInBytes, baseOffset } = contradicted;
    const nextBytes = positionBytes + sizeInBytes;
    const next =
      nextBytes < bytes
        ? await headerAt(segment, nextBytes, bytes)
        : await headerAt(segments[at + 1], 0, fileBytes[at + 1] ?? 0);
    if (next?.baseOffset !== contradicted.lastOffset + 1 || next.partitionLeaderEpoch !== epoch) return false;
    if (this.#fileEpochs.epochForOffset(toOffset(next.baseOffset)) === epoch) return false;
    this.#believedEpochs.add(epoch);
    this.#epochFileProblem ??= `does not have epoch ${epoch} for offset ${baseOffset}`;
    return true;
  }

  #noteBatch(header: BatchHeader, marker: EndTransactionMarker | undefined): void {
    if (header.baseOffset > this.#endOffset) this.#gapsSeen += 1;
    const epoch = header.partitionLeaderEpoch;
    const isDeleted = header.lastOffset < (this.#options.logStartOffset ?? 0);
    if (isDeleted) this.#deletedEpochs.add(epoch);
    if (epoch > this.#lastEpoch && !isDeleted) {
      this.#seenEpochs.push({
        epoch: toLeaderEpoch(epoch),
        startOffset: toOffset(header.baseOffset),
        // Its first batches may be among those that compaction took, or that are damaged.
        earliestStartOffset: this.#batchesEndOffset,
        lastOffset: header.lastOffset,
      });
      this.#lastEpoch = epoch;
    }
    const latest = this.#seenEpochs.at(-1);
    if (latest !== undefined && latest.epoch === epoch) latest.lastOffset = header.lastOffset;
    const aborted = this.#options.producers.batch(header, marker);
    if (aborted !== undefined) this.#aborted.push(aborted);
    this.#endOffset = header.lastOffset + 1;
    this.#batchesEndOffset = this.#endOffset;
  }

  #noteDamage(damage: {
    toOffset: number;
    path: string | undefined;
    fromBytes: number;
    toBytes: number;
    reason: string;
  }): void {
    this.#damaged.push({ ...damage, fromOffset: toOffset(this.#endOffset), toOffset: toOffset(damage.toOffset) });
    this.#endOffset = damage.toOffset;
  }

  #cutAt(cut: { at: number; positionBytes: number; reason: string }): true {
    this.cut = {
      segmentAt: cut.at,
      positionBytes: cut.positionBytes,
      offset: toOffset(this.#endOffset),
      keepsEmptySegment: cut.positionBytes === 0 && this.#isBehindGap,
      reason: cut.reason,
    };
    return true;
  }
}

/**
 * Where the log is to begin. A raised start is durable before a segment goes, and a log that is emptied to begin elsewhere has no recovery
 * point meanwhile: what lies between the start and the first segment, and was durable, is lost, unless it was noted that it was given up.
 */
function beginOf(options: SurveyOptions): Offset {
  const { segments, logStartOffset, recoveryPoint, isRecoveryPointKnown, areGapsRecorded, state, trusted } = options;
  const first = segments[0]?.baseOffset ?? logStartOffset ?? toOffset(0);
  if (trusted.count > 0 || !areGapsRecorded || !isRecoveryPointKnown || logStartOffset === undefined) return first;
  const isNoted = state.endBeforeGap(first) === logStartOffset;
  return isNoted || logStartOffset >= Math.min(first, recoveryPoint) ? first : logStartOffset;
}

function isSameTransaction(a: AbortedTransaction, b: AbortedTransaction): boolean {
  return (
    a.producerId === b.producerId &&
    a.firstOffset === b.firstOffset &&
    a.lastOffset === b.lastOffset &&
    a.lastStableOffset === b.lastStableOffset
  );
}

/** Whether every entry of the index files says what is so, looked at while the batches go by. */
class IndexCheck {
  readonly #offsets: OffsetIndex | undefined;
  readonly #times: TimeIndex | undefined;
  #nextOffset = 0;
  #nextTime = 0;
  #maxTimestamp = NO_TIMESTAMP;
  #areOffsetsGood = true;
  #areTimesGood = true;

  constructor(onDisk: { readonly offsets: OffsetIndex | undefined; readonly times: TimeIndex | undefined }) {
    this.#offsets = onDisk.offsets;
    this.#times = onDisk.times;
  }

  batch({ lastOffset, maxTimestamp }: BatchHeader, positionBytes: number): void {
    const entry = this.#offsets?.entry(this.#nextOffset);
    if (entry !== undefined && entry.positionBytes <= positionBytes) {
      if (entry.positionBytes !== positionBytes || entry.offset !== lastOffset) this.#areOffsetsGood = false;
      this.#nextOffset += 1;
    }
    // Only a batch with a timestamp above all before it has one.
    const isLargest = maxTimestamp > this.#maxTimestamp;
    if (isLargest) this.#maxTimestamp = maxTimestamp;
    const time = this.#times?.entry(this.#nextTime);
    if (time !== undefined && time.offset <= lastOffset) {
      if (!isLargest || time.offset !== lastOffset || time.timestamp !== maxTimestamp) this.#areTimesGood = false;
      this.#nextTime += 1;
    }
  }

  get areOffsetsGood(): boolean {
    return this.#areOffsetsGood && this.#nextOffset === (this.#offsets?.count ?? 0);
  }

  /** They also have to say what the largest timestamp is. */
  get areTimesGood(): boolean {
    if (!this.#areTimesGood || this.#nextTime !== (this.#times?.count ?? 0)) return false;
    return (this.#times?.lastTimestamp ?? NO_TIMESTAMP) === this.#maxTimestamp;
  }
}

/** What looks like a batch's header there. @throws FileError */
async function headerAt(
  segment: LogSegment | undefined,
  positionBytes: number,
  toBytes: number,
): Promise<BatchHeader | undefined> {
  if (segment === undefined || positionBytes + RECORD_BATCH_OVERHEAD > toBytes) return undefined;
  const head = new Uint8Array(RECORD_BATCH_OVERHEAD);
  const count = await segment.use((file) => segment.io.read(file, head, positionBytes));
  const scan = readBatchHeader(head.subarray(0, count), 0);
  return scan.type === "batch" ? scan.header : undefined;
}

/** Offset, size, CRC and magic: what tells of an old message. */
const LEGACY_HEAD_BYTES = 17;
/** Nobody made larger ones; what claims to be is taken for damage. */
const LEGACY_MESSAGE_BYTES_MAX = 128 * 1024 ** 2;

/**
 * What does not read as a batch may be sound and old: a message of before Kafka 0.11. It is not cut, and not called damage: the log does
 * not open, and the error says why.
 * @throws LogError UNSUPPORTED_FOR_MESSAGE_FORMAT
 */
async function refuseOldFormat(segment: LogSegment, positionBytes: number, toBytes: number): Promise<void> {
  const head = new Uint8Array(LEGACY_HEAD_BYTES);
  await segment.use(async (file) => {
    if ((await segment.io.read(file, head, positionBytes)) < LEGACY_HEAD_BYTES) return;
    const sizeBytes = legacyMessageBytes(head);
    if (sizeBytes === undefined || sizeBytes > Math.min(toBytes - positionBytes, LEGACY_MESSAGE_BYTES_MAX)) return;
    const message = new Uint8Array(sizeBytes);
    if ((await segment.io.read(file, message, positionBytes)) < sizeBytes) return;
    const magic = legacyMagic(message);
    if (magic === undefined) return;
    throw new LogError({ code: "UNSUPPORTED_FOR_MESSAGE_FORMAT", magic, path: segment.path, positionBytes });
  });
}
