import { fail, toLeaderEpoch, toOffset } from "@tidemark/base";
import type { LeaderEpoch, Offset } from "@tidemark/base";

import { UNDEFINED_EPOCH_END } from "./epoch-entry.ts";
import type { EpochEndOffset, EpochEntry } from "./epoch-entry.ts";

const NO_ENTRIES: readonly EpochEntry[] = Object.freeze([]);

/**
 * Leader epoch to start offset of one partition, in memory.
 *
 * Invariant: epochs and start offsets both strictly increase. Every change swaps in a new frozen array, so a reader may
 * keep what `entries` gave it, and "nothing changed" is the same array.
 *
 * Lookups cost O(log entries), changes O(entries); the questions asked per batch and per fetch (`assign` of the latest
 * epoch, `endOffsetFor` the latest epoch) are O(1).
 * Source: apache/kafka storage/.../internals/epoch/LeaderEpochFileCache.java
 */
export class LeaderEpochCache {
  #entries: readonly EpochEntry[] = NO_ENTRIES;

  /** Feeds `entries` through `assign` in the given order, which heals a list that does not increase (CK-07). */
  constructor(entries: readonly EpochEntry[] = NO_ENTRIES) {
    for (const { epoch, startOffset } of entries) this.assign(epoch, startOffset);
  }

  /** Ascending; a snapshot that later changes leave alone. */
  get entries(): readonly EpochEntry[] {
    return this.#entries;
  }

  get latest(): EpochEntry | undefined {
    return this.#entries.at(-1);
  }

  /**
   * Enters that `epoch` begins at `startOffset`. The last writer wins: entries that contradict it (`epoch` or
   * `startOffset` not below) are dropped, which is how a follower heals a wrong tail. The latest epoch at the same or a
   * higher offset is no news.
   * @returns whether anything changed
   * @throws InvariantError when either is out of its range
   */
  assign(epoch: LeaderEpoch, startOffset: Offset): boolean {
    const latest = this.latest;
    if (latest !== undefined && latest.epoch === epoch && latest.startOffset <= startOffset) return false;
    const entry = Object.freeze({ epoch: toLeaderEpoch(epoch), startOffset: toOffset(startOffset) });
    let keptCount = this.#entries.length;
    while (keptCount > 0 && contradicts(this.#at(keptCount - 1), entry)) keptCount--;
    this.#entries = Object.freeze([...this.#entries.slice(0, keptCount), entry]);
    return true;
  }

  /**
   * The end of the largest known epoch at or below `requestedEpoch`:
   *
   * | requested                 | answer                                                   |
   * |---------------------------|----------------------------------------------------------|
   * | -1                        | undefined                                                |
   * | the latest                | it, `logEndOffset` (also when it has no record yet)      |
   * | above the latest, or none | undefined                                                |
   * | below the earliest        | the requested epoch echoed, start of the earliest        |
   * | known, or between two     | largest epoch not above it, start of the next higher one |
   *
   * The echo makes a follower truncate to the earliest start at most; only -1 is undefined, so -5 is echoed too.
   * @param requestedEpoch what a peer sent: any number
   */
  endOffsetFor(requestedEpoch: number, logEndOffset: Offset): EpochEndOffset {
    if (requestedEpoch === -1) return UNDEFINED_EPOCH_END;
    if (requestedEpoch === this.latest?.epoch) return { epoch: requestedEpoch, endOffset: logEndOffset };
    const higherPosition = this.#countWhere((entry) => entry.epoch <= requestedEpoch);
    const higher = this.#entries[higherPosition];
    if (higher === undefined) return UNDEFINED_EPOCH_END;
    const floor = higherPosition === 0 ? undefined : this.#at(higherPosition - 1);
    return { epoch: floor?.epoch ?? requestedEpoch, endOffset: higher.startOffset };
  }

  /**
   * Drops epochs that begin at or above `offset`: the log now ends there, so none of them has a record.
   * @param offset the new log end offset; negative = unknown, nothing happens
   * @returns whether anything changed
   */
  truncateFromEnd(offset: number): boolean {
    if (!Number.isSafeInteger(offset)) fail("truncateFromEnd takes an integer", { offset });
    if (offset < 0) return false;
    return this.#keep(
      0,
      this.#countWhere((entry) => entry.startOffset < offset),
    );
  }

  /**
   * Drops epochs that end at or below `offset`; the one that covers it now begins there. An offset past everything
   * keeps the latest epoch, moved up: the next record's leader must be known even when no record is left.
   * @param offset the new log start offset; below the first entry nothing happens
   * @returns whether anything changed
   */
  truncateFromStart(offset: number): boolean {
    if (!Number.isSafeInteger(offset)) fail("truncateFromStart takes an integer", { offset });
    const reachedCount = this.#countWhere((entry) => entry.startOffset <= offset);
    if (reachedCount === 0) return false;
    const covering = this.#at(reachedCount - 1);
    if (covering.startOffset === offset) return this.#keep(reachedCount - 1, this.#entries.length);
    const moved = Object.freeze({ epoch: covering.epoch, startOffset: toOffset(offset) });
    this.#entries = Object.freeze([moved, ...this.#entries.slice(reachedCount)]);
    return true;
  }

  clear(): void {
    this.#entries = NO_ENTRIES;
  }

  /** Epoch of the last entry at or below `offset`; no upper bound is checked. `undefined` before the first entry. */
  epochForOffset(offset: Offset): LeaderEpoch | undefined {
    return this.#entries[this.#countWhere((entry) => entry.startOffset <= offset) - 1]?.epoch;
  }

  /** The largest known epoch strictly below `epoch`. */
  previousEpoch(epoch: number): LeaderEpoch | undefined {
    return this.#entries[this.#countWhere((entry) => entry.epoch < epoch) - 1]?.epoch;
  }

  /** The smallest known epoch strictly above `epoch`. */
  nextEpoch(epoch: number): LeaderEpoch | undefined {
    return this.#entries[this.#countWhere((entry) => entry.epoch <= epoch)]?.epoch;
  }

  /** The entries as a log that holds [fromOffset, toOffset) would have them; this cache stays as it is. */
  entriesInRange(fromOffset: number, toOffset: number): readonly EpochEntry[] {
    const copy = new LeaderEpochCache();
    copy.#entries = this.#entries;
    copy.truncateFromStart(fromOffset);
    copy.truncateFromEnd(toOffset);
    return copy.#entries;
  }

  /** Keeps the entries at positions [from, to). */
  #keep(from: number, to: number): boolean {
    if (from === 0 && to === this.#entries.length) return false;
    this.#entries = from >= to ? NO_ENTRIES : Object.freeze(this.#entries.slice(from, to));
    return true;
  }

  /** How many leading entries match; `matches` must not become true again once it was false. */
  #countWhere(matches: (entry: EpochEntry) => boolean): number {
    let low = 0;
    let high = this.#entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (matches(this.#at(middle))) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #at(position: number): EpochEntry {
    return this.#entries[position] ?? fail("an entry at this position", { position, count: this.#entries.length });
  }
}

function contradicts(entry: EpochEntry, assigned: EpochEntry): boolean {
  return entry.epoch >= assigned.epoch || entry.startOffset >= assigned.startOffset;
}
