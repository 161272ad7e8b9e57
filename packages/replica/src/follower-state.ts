import { fail, toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import type { EpochEntry } from "@tidemark/epoch-cache";
import type { PeerErrorCode } from "@tidemark/wire";
import { truncationPoint } from "./truncation.ts";
import type { EpochAnswer } from "./truncation.ts";

/** Wait before the same question is asked again. Kafka: replica.fetch.backoff.ms. */
export const FETCH_BACKOFF_MS = 1000;

/** What a follower needs to know of its log. */
export interface LogFacts {
  readonly logStartOffset: Offset;
  readonly logEndOffset: Offset;
  readonly flushedEndOffset: Offset;
  readonly epochs: readonly EpochEntry[];
}

/** A question to the leader. Identity matters: an answer counts only for the request that is outstanding. */
export type FollowerRequest =
  | { readonly type: "epoch"; readonly leaderEpoch: number }
  | {
      readonly type: "fetch";
      readonly fetchOffset: Offset;
      readonly flushedEndOffset: Offset;
      readonly logStartOffset: Offset;
      readonly lastFetchedEpoch: number;
    };

export type FollowerInput =
  | { readonly type: "sent"; readonly request: FollowerRequest }
  | {
      readonly type: "epochAnswer";
      readonly request: FollowerRequest;
      readonly error: PeerErrorCode;
      readonly leaderEpoch: number;
      readonly endOffset: number;
      /** Of the leader. */
      readonly logStartOffset: number;
      readonly logEndOffset: number;
      readonly nowMs: number;
    }
  | {
      readonly type: "fetchAnswer";
      readonly request: FollowerRequest;
      readonly error: PeerErrorCode;
      readonly highWatermark: number;
      readonly logStartOffset: number;
      readonly logEndOffset: number;
      /** -1 and -1: not diverging. */
      readonly divergingEpoch: number;
      readonly divergingEndOffset: number;
      readonly bytes: Uint8Array;
      readonly nowMs: number;
    }
  /** No answer came. */
  | { readonly type: "requestFailed"; readonly request: FollowerRequest; readonly nowMs: number }
  | { readonly type: "truncated"; readonly log: LogFacts; readonly nowMs: number }
  | { readonly type: "appended"; readonly log: LogFacts; readonly nowMs: number }
  /** The answer's bytes were refused by the log, which is as it was: corrupt, or no room for them at present. They are asked for again. */
  | { readonly type: "appendRefused"; readonly reason: string; readonly nowMs: number }
  | { readonly type: "flushed"; readonly flushedEndOffset: Offset }
  /** Its start went up as `raiseLogStart` says, or an empty log begins anew before its start: where the leader's first batch begins. */
  | { readonly type: "logMoved"; readonly log: LogFacts };

export type TruncationCause = "epochAnswer" | "divergingEpoch" | "leaderEndOffset" | "leaderLogStart";

export type FollowerEffect =
  | { readonly type: "truncate"; readonly offset: Offset; readonly cause: Exclude<TruncationCause, "leaderLogStart"> }
  /** Empties the log: the leader has nothing any more of what would come next. */
  | { readonly type: "truncateFully"; readonly offset: Offset; readonly cause: "leaderLogStart" }
  /** Answered by `appended` or `appendRefused`. */
  | { readonly type: "append"; readonly bytes: Uint8Array }
  | { readonly type: "highWatermark"; readonly offset: Offset }
  /** The leader has nothing below any more, and it is committed here: it goes. Answered by `logMoved`. */
  | { readonly type: "raiseLogStart"; readonly offset: Offset }
  | { readonly type: "backOff"; readonly untilMs: number; readonly reason: string }
  /** This followership ends here: a newer leader epoch has to come from the controller. */
  | { readonly type: "fenced"; readonly reason: string };

/**
 * What a follower is doing:
 *
 * ```text
 *            ┌────────────── not final, or out of range ───────────┐
 *            ▼                                                     │
 *  (start) asking ──answer──► truncating ──final──► fetching ──diverging──► truncating
 *            │  ▲                                   │   ▲
 *            │  └──────── back-off over ────────────┤   └── appending (bytes came)
 *            └── nothing to cut, final ────────────►│
 *  any of them ── FENCED_LEADER_EPOCH ──► fenced
 * ```
 */
export type FollowerPhase = "asking" | "truncating" | "fetching" | "appending" | "fenced";

/** What a leader tells with a fetch's answer. */
interface LeaderOffsets {
  readonly highWatermark: number;
  readonly logStartOffset: number;
}

export interface FollowerStart {
  readonly leaderId: number;
  readonly leaderEpoch: number;
  readonly log: LogFacts;
  readonly highWatermark: Offset;
  readonly backOffMs?: number;
}

/**
 * The follower of one partition in one leader epoch, as a value: inputs in, effects out.
 *
 * It first settles with the leader where its log ends, by OffsetsForLeaderEpoch, round after round, and only then fetches; the
 * diverging epoch that any fetch may be answered with is the second guard. It cuts its log for four causes and no other, never
 * because of a high watermark.
 */
export class FollowerState {
  readonly leaderId: number;
  readonly leaderEpoch: number;
  readonly #backOffMs: number;
  #log: LogFacts;
  #phase: FollowerPhase;
  /** What follows a truncation. */
  #afterTruncation: "asking" | "fetching" = "fetching";
  #highWatermark: Offset;
  /** Taken after the append that they came with. */
  #leaderOffsets: LeaderOffsets | undefined;
  #outstanding: FollowerRequest | undefined;
  #waitUntilMs = Number.NEGATIVE_INFINITY;
  /** Log end and latest epoch when the leader last said out of range: asking again without a change would go on for ever. */
  #outOfRangeAt: string | undefined;

  constructor(start: FollowerStart) {
    this.leaderId = start.leaderId;
    this.leaderEpoch = start.leaderEpoch;
    this.#backOffMs = start.backOffMs ?? FETCH_BACKOFF_MS;
    this.#log = start.log;
    this.#highWatermark = start.highWatermark;
    this.#phase = start.log.epochs.length > 0 ? "asking" : "fetching";
  }

  get phase(): FollowerPhase {
    return this.#phase;
  }

  /** Never above the own log end. May fall when a new leader knows less of it than the old one did. */
  get highWatermark(): Offset {
    return this.#highWatermark;
  }

  /** What may be asked of the leader now; `undefined` while something is outstanding, being done, or waited for. */
  nextRequest(nowMs: number): FollowerRequest | undefined {
    if (this.#outstanding !== undefined || nowMs < this.#waitUntilMs) return undefined;
    const lastFetchedEpoch = this.#latestEpoch;
    if (this.#phase === "asking") return { type: "epoch", leaderEpoch: lastFetchedEpoch };
    if (this.#phase !== "fetching") return undefined;
    const { logEndOffset, flushedEndOffset, logStartOffset } = this.#log;
    return { type: "fetch", fetchOffset: logEndOffset, flushedEndOffset, logStartOffset, lastFetchedEpoch };
  }

  /** Until when nothing will be asked, if that is later than `nowMs`. */
  waitsUntilMs(nowMs: number): number | undefined {
    return this.#waitUntilMs > nowMs ? this.#waitUntilMs : undefined;
  }

  /** Same state and same input always give the same effects, in the same order. */
  step(input: FollowerInput, effects: FollowerEffect[]): void {
    switch (input.type) {
      case "sent":
        this.#outstanding = input.request;
        return;
      case "logMoved":
        this.#log = input.log;
        this.#clampHighWatermark(effects);
        return;
      case "flushed":
        this.#log = { ...this.#log, flushedEndOffset: input.flushedEndOffset };
        return;
      case "truncated":
        this.#log = input.log;
        if (this.#phase !== "truncating") fail("only a truncating follower is truncated", { phase: this.#phase });
        this.#phase = this.#latestEpoch < 0 ? "fetching" : this.#afterTruncation;
        this.#clampHighWatermark(effects);
        return;
      case "appended":
        this.#log = input.log;
        if (this.#phase !== "appending") fail("only an appending follower has appended", { phase: this.#phase });
        this.#phase = "fetching";
        this.#takeLeaderOffsets(effects);
        return;
      case "appendRefused":
        this.#phase = "fetching";
        this.#backOff(input.reason, input.nowMs, effects);
        return;
      default:
    }
    // An answer to anything but the outstanding request is late, doubled, or of another time: it says nothing about now.
    if (this.#phase === "fenced" || input.request !== this.#outstanding) return;
    this.#outstanding = undefined;
    switch (input.type) {
      case "requestFailed":
        this.#backOff("no answer", input.nowMs, effects);
        return;
      case "epochAnswer":
        if (this.#isRefused(input, effects)) return;
        this.#onEpochAnswer(input, effects);
        return;
      case "fetchAnswer":
        if (input.error === "OFFSET_OUT_OF_RANGE") this.#onOutOfRange(input.nowMs, effects);
        else if (!this.#isRefused(input, effects)) this.#onFetchAnswer(input, effects);
        return;
      default:
        fail("every input type is handled", { input: input satisfies never });
    }
  }

  /** Everything that decides what comes next, for comparing executions. */
  digest(): string {
    const { logStartOffset, logEndOffset, flushedEndOffset, epochs } = this.#log;
    const cache = epochs.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(",");
    const waiting = Number.isFinite(this.#waitUntilMs) ? this.#waitUntilMs : "-";
    return `follower ${this.leaderId}/${this.leaderEpoch} ${this.#phase}/${this.#afterTruncation} ${logStartOffset}..${flushedEndOffset}..${logEndOffset} hw ${this.#highWatermark} [${cache}] ${JSON.stringify(this.#outstanding ?? null)} ${waiting}`;
  }

  #onEpochAnswer(
    input: {
      readonly leaderEpoch: number;
      readonly endOffset: number;
      readonly logStartOffset: number;
      readonly logEndOffset: number;
      readonly nowMs: number;
    },
    effects: FollowerEffect[],
  ): void {
    if (this.#beginsAnew(this.#log.logEndOffset, input.logStartOffset, effects)) return;
    if (this.#latestEpoch < 0 && input.logEndOffset < this.#log.logEndOffset) {
      // A log without batches that begins behind the leader's end: there is no epoch to compare, and nothing to lose.
      this.#phase = "truncating";
      this.#afterTruncation = "fetching";
      effects.push({ type: "truncate", offset: toOffset(input.logEndOffset), cause: "leaderEndOffset" });
      return;
    }
    const answer = { epoch: input.leaderEpoch, endOffset: input.endOffset };
    if (answer.epoch < 0) return this.#backOff("the leader does not know the epoch", input.nowMs, effects);
    const cause =
      answer.epoch === this.#latestEpoch && input.endOffset === input.logEndOffset ? "leaderEndOffset" : "epochAnswer";
    if (this.#cut(answer, cause, input.logStartOffset, effects)) return;
    // Nothing to cut: the logs agree as far as both go, unless the fetch says out of range all the same.
    this.#phase = "fetching";
    if (this.#outOfRangeAt === this.#position)
      this.#backOff("out of range although the epochs agree", input.nowMs, effects);
  }

  #onFetchAnswer(
    input: LeaderOffsets & {
      readonly divergingEpoch: number;
      readonly divergingEndOffset: number;
      readonly bytes: Uint8Array;
      readonly nowMs: number;
    },
    effects: FollowerEffect[],
  ): void {
    if (input.divergingEpoch >= 0) {
      // Nothing else of this answer counts: its high watermark is one of records that this log does not hold.
      const answer = { epoch: input.divergingEpoch, endOffset: input.divergingEndOffset };
      if (!this.#cut(answer, "divergingEpoch", input.logStartOffset, effects))
        this.#backOff("diverging, but there is nothing to cut", input.nowMs, effects);
      return;
    }
    this.#outOfRangeAt = undefined;
    // Not the input itself, which holds memory that is given back.
    this.#leaderOffsets = { highWatermark: input.highWatermark, logStartOffset: input.logStartOffset };
    if (input.bytes.length === 0) return this.#takeLeaderOffsets(effects);
    this.#phase = "appending";
    effects.push({ type: "append", bytes: input.bytes });
  }

  /** The leader's log does not hold where this one ends: an epoch round finds out why, and confirms before anything is cut. */
  #onOutOfRange(nowMs: number, effects: FollowerEffect[]): void {
    this.#phase = "asking";
    if (this.#outOfRangeAt === this.#position) this.#backOff("out of range again", nowMs, effects);
    this.#outOfRangeAt = this.#position;
  }

  /**
   * A log that is not known to agree with the leader's above the leader's start agrees nowhere for sure: of what lies below, the leader knows
   * nothing any more. Kept until the start goes up, it would be read from a replica that leads before that.
   * @param agreedOffset behind the last offset up to which the logs can agree
   */
  #beginsAnew(agreedOffset: Offset, leaderLogStart: number, effects: FollowerEffect[]): boolean {
    if (leaderLogStart < agreedOffset || leaderLogStart <= this.#log.logStartOffset) return false;
    this.#phase = "truncating";
    this.#afterTruncation = "fetching";
    effects.push({ type: "truncateFully", offset: toOffset(leaderLogStart), cause: "leaderLogStart" });
    return true;
  }

  /** @returns whether there is anything to cut */
  #cut(
    answer: EpochAnswer,
    cause: Exclude<TruncationCause, "leaderLogStart">,
    leaderLogStart: number,
    effects: FollowerEffect[],
  ): boolean {
    const point = truncationPoint(answer, this.#log.epochs, this.#log.logEndOffset);
    if (point === undefined) return false;
    // An epoch without batches at the very end goes too, else it would be asked about for ever.
    const latestStart = this.#log.epochs.at(-1)?.startOffset ?? 0;
    const isTailEpochEmpty =
      this.#log.epochs.length > 0 && latestStart >= point.offset && answer.epoch !== this.#latestEpoch;
    if (point.offset >= this.#log.logEndOffset && !isTailEpochEmpty) return false;
    if (this.#beginsAnew(point.offset, leaderLogStart, effects)) return true;
    this.#phase = "truncating";
    this.#afterTruncation = cause === "divergingEpoch" || point.isFinal ? "fetching" : "asking";
    effects.push({ type: "truncate", offset: point.offset, cause });
    return true;
  }

  /** Answers that carry an error. @returns false for NONE */
  #isRefused(input: { readonly error: PeerErrorCode; readonly nowMs: number }, effects: FollowerEffect[]): boolean {
    if (input.error === "NONE") return false;
    if (input.error === "FENCED_LEADER_EPOCH") {
      this.#phase = "fenced";
      effects.push({ type: "fenced", reason: input.error });
    } else this.#backOff(input.error, input.nowMs, effects);
    return true;
  }

  /**
   * High watermark, then log start, which may not pass it: what is not known here to be committed stays.
   * Source: apache/kafka core/src/main/scala/kafka/server/ReplicaFetcherThread.scala, processPartitionData
   */
  #takeLeaderOffsets(effects: FollowerEffect[]): void {
    const leader = this.#leaderOffsets;
    this.#leaderOffsets = undefined;
    if (leader === undefined || leader.highWatermark < 0) return;
    const { logStartOffset, logEndOffset } = this.#log;
    this.#setHighWatermark(toOffset(Math.max(logStartOffset, Math.min(leader.highWatermark, logEndOffset))), effects);
    const offset = toOffset(Math.min(Math.max(leader.logStartOffset, logStartOffset), this.#highWatermark));
    if (offset > logStartOffset) effects.push({ type: "raiseLogStart", offset });
  }

  #clampHighWatermark(effects: FollowerEffect[]): void {
    const { logStartOffset, logEndOffset } = this.#log;
    this.#setHighWatermark(toOffset(Math.min(Math.max(this.#highWatermark, logStartOffset), logEndOffset)), effects);
  }

  #setHighWatermark(offset: Offset, effects: FollowerEffect[]): void {
    if (offset === this.#highWatermark) return;
    this.#highWatermark = offset;
    effects.push({ type: "highWatermark", offset });
  }

  #backOff(reason: string, nowMs: number, effects: FollowerEffect[]): void {
    this.#waitUntilMs = nowMs + this.#backOffMs;
    effects.push({ type: "backOff", untilMs: this.#waitUntilMs, reason });
  }

  get #latestEpoch(): number {
    return this.#log.epochs.at(-1)?.epoch ?? -1;
  }

  get #position(): string {
    return `${this.#log.logEndOffset}/${this.#latestEpoch}`;
  }
}
