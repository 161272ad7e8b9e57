import { fail, InvariantError, toOffset } from "@tidemark/base";
import type { LeaderEpoch, Offset } from "@tidemark/base";
import {
  endTransactionMarkerOf,
  isControlBatch,
  isLogAppendTime,
  readBatchHeader,
  stampBatch,
  stampMaxTimestamp,
} from "@tidemark/wire";
import type { BatchHeader, RecordsSummary } from "@tidemark/wire";
import { checkClientRecords, checkFollowerBatches, checkLeaderBatch } from "./append-checks.ts";
import type { FollowerBatches, RecordsJudgement } from "./append-checks.ts";
import { conversionOf } from "./append-conversion.ts";
import { PRODUCER_ID_EXPIRATION_CHECK_MS } from "./config.ts";
import { DIRECT_WRITE_BYTES_MAX } from "./direct-io.ts";
import { LogError } from "./error.ts";
import type { WrittenBatch } from "./local-log.ts";
import type { LogCore } from "./log-core.ts";
import { storageError } from "./log-directory.ts";
import type { AppendGroup, AppendResult, GroupEntry } from "./partition-queue.ts";
import type { ProducerAppend, Remembered } from "./producer-state.ts";
import { NO_TIMESTAMP } from "./time-index.ts";

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

const SOON = Promise.resolve();

/** Where several batches come in one turn, those that are smaller share a write: a call costs more than their copy. */
export const OWN_WRITE_BYTES_MIN = 16 * 1024;

/** Where a batch is stamped that is written at once: the caller's memory is not ours. One for the process, since nobody waits meanwhile. */
let stampBuffer = new Uint8Array(64 * 1024);

function stampedCopy(batch: Uint8Array, baseOffset: Offset, epoch: LeaderEpoch): Uint8Array {
  if (batch.length > stampBuffer.length) stampBuffer = new Uint8Array(DIRECT_WRITE_BYTES_MAX);
  stampBuffer.set(batch);
  stampBatch(stampBuffer, 0, baseOffset, epoch);
  return stampBuffer.subarray(0, batch.length);
}

/** How batches come into a partition's log: checked and queued, then group by group written, synced, noted and answered. */
export class LogAppends {
  readonly #core: LogCore;
  readonly #producerIdExpirationMs: number;
  /** Monotonic. */
  #nextExpiryCheckMs: number;
  /** Written at once since the event loop began to run what is due now. */
  #bytesInTurn = 0;

  constructor(core: LogCore, producerIdExpirationMs: number) {
    this.#core = core;
    this.#producerIdExpirationMs = producerIdExpirationMs;
    this.#nextExpiryCheckMs = core.clock.monotonicMs() + PRODUCER_ID_EXPIRATION_CHECK_MS;
  }

  /** As `PartitionLog.append`, for all origins. @throws LogError as that does, as a rejection */
  append(batch: Uint8Array, options: ProducerAppend): Promise<AppendResult> {
    try {
      return this.#append(batch, options);
    } catch (error) {
      // Behind a write that was made at once the log's own books are wrong then: nothing may be appended on top of them.
      return Promise.reject(error instanceof InvariantError ? this.#core.noteFailure(error) : error);
    }
  }

  #append(batch: Uint8Array, options: ProducerAppend): Promise<AppendResult> {
    const { refusal, config, workers, queue } = this.#core;
    if (refusal !== undefined) throw refusal;
    const nowMs = this.#core.nowMs();
    const header = checkLeaderBatch(batch, options.origin, config, nowMs);
    let append = options;
    if (isControlBatch(header)) {
      const marker = endTransactionMarkerOf(batch, header);
      if (options.origin !== "coordinator" || marker === undefined)
        throw new LogError({ code: "INVALID_RECORD", reason: "a control batch that is no coordinator's marker" });
      append = { ...options, marker };
    }
    if (options.origin !== "client") return this.#appendChecked(batch, header, append, undefined);
    const leader = { config, workers, nowMs };
    const conversion = conversionOf(batch, header, leader);
    if (conversion !== undefined) return queue.appendConverted(batch, header, append, conversion);
    return this.#appendChecked(batch, header, append, checkClientRecords(batch, header, leader));
  }

  #appendChecked(
    batch: Uint8Array,
    header: BatchHeader,
    append: ProducerAppend,
    judgement: Promise<RecordsJudgement> | RecordsSummary | undefined,
  ): Promise<AppendResult> {
    return (
      this.#appendNow(batch, header, append, judgement) ?? this.#core.queue.append(batch, header, append, judgement)
    );
  }

  /**
   * The usual append where nobody waits for a sync: nothing is queued before it, the batch is appended as it is, and it is written at once.
   * What it takes to answer otherwise is in the queue's way.
   * @returns `undefined` when it has to take its place in the queue
   */
  #appendNow(
    batch: Uint8Array,
    header: BatchHeader,
    append: ProducerAppend,
    judgement: Promise<RecordsJudgement> | RecordsSummary | undefined,
  ): Promise<AppendResult> | undefined {
    const { config, local, epochs, queue, leaderEpoch, producers } = this.#core;
    if (config.flush === "always" || !queue.isIdle || !this.#fitsTurn(header.sizeInBytes)) return undefined;
    if (local.mustWait) return undefined;
    if (leaderEpoch === undefined || epochs.latest?.epoch !== leaderEpoch) return undefined;
    if (judgement instanceof Promise || this.#timeToStamp(header, judgement) !== undefined) return undefined;
    const { lastOffsetDelta, sizeInBytes, maxTimestamp } = header;
    if (sizeInBytes > DIRECT_WRITE_BYTES_MAX || producers.judge(header, append).type !== "append") return undefined;
    const baseOffset = local.logEndOffset;
    const lastOffset = toOffset(baseOffset + lastOffsetDelta);
    const limits = { pendingBytes: 0, pendingFirstTimestamp: undefined, segmentBytesMax: config.segmentBytes };
    if (local.active.mustRollBefore({ sizeInBytes, maxTimestamp, lastOffset }, limits)) return undefined;

    const stamped = stampedCopy(batch, baseOffset, leaderEpoch);
    try {
      if (!local.writeNow(stamped)) return undefined;
    } catch (error) {
      return this.#core.task(() => local.failWrite(error));
    }
    this.#expireProducers();
    const { aborted } = producers.remember(header, baseOffset, append.marker);
    local.noteBatch({ lastOffset, sizeInBytes, maxTimestamp, aborted });
    local.boundUnflushed();
    this.#core.wakeWaiters();
    if (this.#bytesInTurn === 0) void SOON.then(this.#turnOver);
    this.#bytesInTurn += sizeInBytes;
    return Promise.resolve({ baseOffset, lastOffset, duplicate: false });
  }

  /** Of a burst the small ones share a write, and the large ones do not hold up the loop for more than one of the largest does. */
  #fitsTurn(sizeInBytes: number): boolean {
    const isFirst = this.#bytesInTurn === 0;
    return isFirst || (sizeInBytes >= OWN_WRITE_BYTES_MIN && this.#bytesInTurn + sizeInBytes <= DIRECT_WRITE_BYTES_MAX);
  }

  readonly #turnOver = (): void => {
    this.#bytesInTurn = 0;
  };

  /** As `PartitionLog.appendAsFollower`. @throws LogError as that does */
  appendAsFollower(bytes: Uint8Array, leaderEpoch: LeaderEpoch | undefined): Promise<AppendResult | undefined> {
    return this.#core.task(async () => {
      await this.#makeRoom();
      const log = {
        logEndOffset: this.#core.local.logEndOffset,
        latestEpoch: this.#core.epochs.latest?.epoch ?? -1,
        config: this.#core.config,
        leaderEpoch,
      };
      const batches = checkFollowerBatches(bytes, log);
      if (batches === undefined) return undefined;
      await this.#writeFollowerBatches(bytes, batches);
      return { baseOffset: batches.firstBaseOffset, lastOffset: batches.lastOffset, duplicate: false };
    });
  }

  /** Writes may be faster than the disk: then they wait. */
  async #makeRoom(): Promise<void> {
    if (!this.#core.local.mustWait) return;
    await this.#core.local.makeRoom();
    this.#core.checkUsable();
  }

  /** Writes a group, syncs it, and answers each of its entries. */
  async commit(group: AppendGroup): Promise<void> {
    this.#expireProducers();
    const outcome: GroupOutcome = { answers: [], nextEntry: 0, failure: undefined };
    const startOffset = this.#core.local.logEndOffset;
    try {
      await this.#makeRoom();
      while (outcome.nextEntry < group.entries.length) await this.#commitRun(group, outcome);
    } catch (error) {
      outcome.failure = this.#core.noteFailure(error);
    }
    try {
      // What was written before a full disk is in the log, and is answered as any other once it is safe. Behind a failed sync, the one
      // of a roll in this group too, nothing is.
      this.#core.checkUsable();
      if (this.#core.local.logEndOffset > startOffset || this.#core.local.isDirty) await this.#core.local.commit();
      this.#core.checkUsable();
    } catch (error) {
      const failure = this.#core.noteFailure(error);
      for (const { entry } of outcome.answers) entry.reject(failure);
      outcome.answers.length = 0;
      outcome.failure ??= failure;
    }
    group.isAnswered = true;
    for (const { entry, result } of outcome.answers) entry.resolve(result);
    for (const entry of group.entries.slice(outcome.nextEntry)) entry.reject(outcome.failure);
    this.#core.wakeWaiters();
  }

  /** One write of as many batches as lie together, fit the segment and are to be appended. */
  async #commitRun(group: AppendGroup, outcome: GroupOutcome): Promise<void> {
    const firstEntry = outcome.nextEntry;
    const run: Run = { accepted: [], sizeBytes: 0, endOffset: this.#core.local.logEndOffset };
    try {
      await this.#collectRun(group, outcome, run);
      const first = run.accepted[0];
      if (first === undefined) return;
      const epoch =
        this.#core.leaderEpoch ?? fail("a run is collected by a leader", { directory: this.#core.directory });
      if (this.#core.epochs.latest?.epoch !== epoch) await this.#core.epochs.assign(epoch, first.baseOffset);
      for (const { entry, baseOffset } of run.accepted) stampBatch(group.buffer, entry.atBytes, baseOffset, epoch);
      await this.#core.local.write(group.buffer.subarray(first.entry.atBytes, first.entry.atBytes + run.sizeBytes));
      this.#core.checkUsable();
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
    this.#core.local.noteBatches(written);
  }

  async #collectRun(group: AppendGroup, outcome: GroupOutcome, run: Run): Promise<void> {
    for (; outcome.nextEntry < group.entries.length; outcome.nextEntry += 1) {
      const entry = group.entries[outcome.nextEntry] ?? fail("the entry is in the group");
      const judged =
        entry.judgement instanceof Promise
          ? await entry.judgement.catch((error: unknown) => storageError(error, this.#core.directory))
          : entry.judgement;
      if (this.#core.leaderEpoch === undefined)
        throw new LogError({ code: "NOT_LEADER_OR_FOLLOWER", directory: this.#core.directory });
      this.#core.checkUsable();
      const verdict =
        judged instanceof LogError
          ? ({ type: "refuse", error: judged } as const)
          : this.#core.producers.judge(entry.header, entry.append);
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
   * The leader's time, to be written over that of a batch; or the largest of its records', where its producer says another or gives it the
   * type of a leader's. `undefined` where its header is right as it is, as a rule, or nobody looked at its records.
   */
  #timeToStamp(header: BatchHeader, times: RecordsSummary | undefined): number | undefined {
    const isLogAppend = this.#core.config.timestampType === "LogAppendTime";
    const maxTimestamp = isLogAppend ? this.#core.nowMs() : times?.maxTimestamp;
    return isLogAppendTime(header) === isLogAppend && header.maxTimestamp === maxTimestamp ? undefined : maxTimestamp;
  }

  /** Writes it there. The CRC covers it. */
  #stampTime(group: AppendGroup, entry: GroupEntry, times: RecordsSummary | undefined): void {
    const maxTimestamp = this.#timeToStamp(entry.header, times);
    if (maxTimestamp === undefined) return;
    const { timestampType } = this.#core.config;
    const { buffer } = group;
    stampMaxTimestamp(buffer, { ...entry.header, positionBytes: entry.atBytes }, timestampType, maxTimestamp);
    const stamped = readBatchHeader(buffer, entry.atBytes);
    if (stamped.type !== "batch")
      fail("a batch stays one when its time is stamped", { directory: this.#core.directory });
    entry.header = stamped.header;
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
      segmentBytesMax: this.#core.config.segmentBytes,
    };
    if (this.#core.local.active.mustRollBefore({ sizeInBytes, maxTimestamp, lastOffset }, limits)) {
      if (run.accepted.length > 0) return false;
      await this.#core.local.roll(baseOffset, this.#core.producers);
    }
    const remembered = this.#core.producers.remember(header, baseOffset, entry.append.marker);
    run.accepted.push({ entry, baseOffset, remembered });
    run.sizeBytes += sizeInBytes;
    run.endOffset = toOffset(lastOffset + 1);
    return true;
  }

  async #writeFollowerBatches(bytes: Uint8Array, batches: FollowerBatches): Promise<void> {
    const limits = {
      pendingBytes: 0,
      pendingFirstTimestamp: undefined,
      segmentBytesMax: this.#core.config.segmentBytes,
    };
    const { sizeBytes, lastOffset } = batches;
    const maxTimestamp = batches.headers.reduce((max, header) => Math.max(max, header.maxTimestamp), NO_TIMESTAMP);
    if (this.#core.local.active.mustRollBefore({ sizeInBytes: sizeBytes, lastOffset, maxTimestamp }, limits))
      await this.#core.local.roll(batches.firstBaseOffset, this.#core.producers);
    let endOffset: number = this.#core.local.foundEndOffset;
    for (const { baseOffset, lastOffset: batchLastOffset } of batches.headers) {
      if (baseOffset > endOffset) await this.#core.local.forgetGapless();
      endOffset = batchLastOffset + 1;
    }
    try {
      // An epoch's entry is on the disk before any of its batches is.
      for (const { partitionLeaderEpoch, baseOffset } of batches.headers) {
        if (partitionLeaderEpoch === this.#core.epochs.latest?.epoch) continue;
        await this.#core.epochs.assign(partitionLeaderEpoch as LeaderEpoch, toOffset(baseOffset));
      }
      // And none of an epoch above it, of batches that could not be written: recovery would hold it against these.
      if (this.#core.epochs.isDirty) await this.#core.epochs.flush();
      await this.#core.local.write(bytes.subarray(0, sizeBytes));
      this.#core.checkUsable();
    } catch (error) {
      // An epoch without its batches would refuse those of the epochs before it when they come again.
      this.#core.epochs.truncateFromEnd(this.#core.local.logEndOffset);
      throw error;
    }
    this.#expireProducers();
    this.#core.local.noteBatches(
      batches.headers.map((header) => {
        const marker = endTransactionMarkerOf(bytes, header);
        const { aborted } = this.#core.producers.remember(header, header.baseOffset, marker);
        const { sizeInBytes, maxTimestamp: batchMaxTimestamp } = header;
        return { lastOffset: toOffset(header.lastOffset), sizeInBytes, maxTimestamp: batchMaxTimestamp, aborted };
      }),
    );
    await this.#core.local.commit();
    this.#core.checkUsable();
    this.#core.wakeWaiters();
  }

  /** Every ten minutes, as far as something is appended: nothing else would see the difference. */
  #expireProducers(): void {
    const nowMs = this.#core.clock.monotonicMs();
    if (nowMs < this.#nextExpiryCheckMs) return;
    this.#nextExpiryCheckMs = nowMs + PRODUCER_ID_EXPIRATION_CHECK_MS;
    this.#core.producers.expire(this.#core.clock.wallMs(), this.#producerIdExpirationMs);
  }
}
