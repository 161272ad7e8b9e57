import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { LeaderEpochCache } from "@tidemark/epoch-cache";
import type { EpochEntry } from "@tidemark/epoch-cache";
import type { PeerErrorCode } from "@tidemark/wire";
import type { FollowerEffect, FollowerRequest, FollowerState, LogFacts } from "./follower-state.ts";
import { checkDivergence } from "./truncation.ts";

/** `"1@0 4@6"` as entries. */
export function entries(text: string): EpochEntry[] {
  return text
    .split(" ")
    .filter((part) => part !== "")
    .map((part) => {
      const [epoch, start] = part.split("@");
      return { epoch: toLeaderEpoch(Number(epoch)), startOffset: toOffset(Number(start)) };
    });
}

export function textOf(list: readonly EpochEntry[]): string {
  return list.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
}

/** A log as the epoch of each offset; offset 0 is its start. Epochs without records are entries alone. */
export class EpochLog {
  records: string[];
  readonly cache: LeaderEpochCache;

  /** @param records `"0 0 1 1"`, or records that tell apart writers of one epoch: `"0 0 1a 1b"` */
  constructor(records: string, emptyEpochs = "") {
    this.records = records.split(" ").filter((part) => part !== "");
    this.cache = new LeaderEpochCache();
    for (const [offset, record] of this.records.entries())
      this.cache.assign(toLeaderEpoch(Number.parseInt(record, 10)), toOffset(offset));
    for (const entry of entries(emptyEpochs)) this.cache.assign(entry.epoch, entry.startOffset);
  }

  get endOffset(): number {
    return this.records.length;
  }

  get facts(): LogFacts {
    const end = toOffset(this.endOffset);
    return { logStartOffset: toOffset(0), logEndOffset: end, flushedEndOffset: end, epochs: this.cache.entries };
  }

  append(record: string): void {
    this.cache.assign(toLeaderEpoch(Number.parseInt(record, 10)), toOffset(this.endOffset));
    this.records.push(record);
  }

  truncateTo(offset: number): void {
    this.cache.truncateFromEnd(Math.min(offset, this.endOffset));
    this.records = this.records.slice(0, offset);
  }

  /** As a leader, asked about an epoch. */
  epochAnswer(request: FollowerRequest & { type: "epoch" }): {
    error: PeerErrorCode;
    leaderEpoch: number;
    endOffset: number;
    logStartOffset: number;
    logEndOffset: number;
  } {
    const { epoch, endOffset } = this.cache.endOffsetFor(request.leaderEpoch, toOffset(this.endOffset));
    return { error: "NONE", leaderEpoch: epoch, endOffset, logStartOffset: 0, logEndOffset: this.endOffset };
  }

  /** As a leader, fetched from; `records` stand for the bytes. */
  fetchAnswer(request: FollowerRequest & { type: "fetch" }): {
    error: PeerErrorCode;
    divergingEpoch: number;
    divergingEndOffset: number;
    records: string[];
  } {
    const check = checkDivergence(request, {
      epochEnd: (epoch) => this.cache.endOffsetFor(epoch, toOffset(this.endOffset)),
      logStartOffset: 0,
      logEndOffset: this.endOffset,
    });
    if (check.type === "outOfRange")
      return { error: "OFFSET_OUT_OF_RANGE", divergingEpoch: -1, divergingEndOffset: -1, records: [] };
    if (check.type === "diverging")
      return { error: "NONE", divergingEpoch: check.epoch, divergingEndOffset: check.endOffset, records: [] };
    return {
      error: "NONE",
      divergingEpoch: -1,
      divergingEndOffset: -1,
      records: this.records.slice(request.fetchOffset),
    };
  }
}

export interface Exchange {
  readonly truncations: number[];
  readonly requests: number;
  readonly causes: string[];
}

/** Runs a follower against a leader until it has fetched everything. @throws Error when that takes more than `roundsMax` questions */
export function settle(state: FollowerState, follower: EpochLog, leader: EpochLog, roundsMax = 50): Exchange {
  const truncations: number[] = [];
  const causes: string[] = [];
  for (let requests = 0; requests < roundsMax; requests += 1) {
    const request = state.nextRequest(requests * 10_000);
    if (request === undefined) throw new Error(`nothing to ask: ${state.digest()}`);
    const nowMs = requests * 10_000;
    const effects: FollowerEffect[] = [];
    state.step({ type: "sent", request }, effects);
    let records: string[] = [];
    if (request.type === "epoch")
      state.step({ type: "epochAnswer", request, nowMs, ...leader.epochAnswer(request) }, effects);
    else {
      const { records: fetched, ...answer } = leader.fetchAnswer(request);
      records = fetched;
      const bytes = new Uint8Array(fetched.length);
      state.step(
        {
          type: "fetchAnswer",
          request,
          nowMs,
          highWatermark: 0,
          logStartOffset: 0,
          logEndOffset: leader.endOffset,
          bytes,
          ...answer,
        },
        effects,
      );
    }
    for (const effect of effects) {
      if (effect.type === "truncate" || effect.type === "truncateFully") {
        truncations.push(effect.offset);
        causes.push(effect.cause);
        follower.truncateTo(effect.offset);
        state.step({ type: "truncated", log: follower.facts, nowMs }, []);
      } else if (effect.type === "append") {
        for (const record of records) follower.append(record);
        state.step({ type: "appended", log: follower.facts, nowMs }, []);
      }
    }
    if (request.type === "fetch" && effects.length === 0 && records.length === 0)
      return { truncations, requests: requests + 1, causes };
  }
  throw new Error(`not settled after ${roundsMax} questions: ${state.digest()}`);
}

/** How many records two logs share from the start. */
export function commonPrefix(first: readonly string[], second: readonly string[]): number {
  let length = 0;
  while (length < first.length && length < second.length && first[length] === second[length]) length += 1;
  return length;
}
