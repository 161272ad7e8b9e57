import { toOffset } from "@tidemark/base";
import type { Offset, State, StatePut } from "@tidemark/base";
import { decodeSeal, encodeSeal } from "./log-seal.ts";
import type { LogSeal } from "./log-seal.ts";
import { decodeStateInt64, encodeStateInt64, putStateOffset, readStateOffset } from "./state-values.ts";

const GAP_PREFIX = "segment-gap/";
export const SEAL_PREFIX = "segment-seal/";
export const GAPLESS_PREFIX = "gapless/";

/** One segment in the place of several. */
export interface AnnouncedSwap {
  readonly baseOffset: Offset;
  /** Base offset of the segment behind the last one that is replaced. */
  readonly endBaseOffset: Offset;
  /** Where the batches of the new one end. */
  readonly endOffset: Offset;
}

/**
 * What a partition keeps in the node's `State`: three offsets, and where its log leaves offsets out.
 *
 * ```text
 * recovery-point/orders-3           -> int64   everything below is on the disk
 * log-start/orders-3                -> int64
 * cleaner-offset/orders-3           -> int64   below it no key has an older value than its last one below it
 * segment-gap/orders-3/00..0042     -> int64   the segments before segment 42 end here, not at 42, and that is right
 * gapless/orders-3                  -> empty   within a segment each batch begins where the one before it ends; absent: not known
 * segment-seal/orders-3             -> what the files are like, see `log-seal.ts`
 * segment-swap/orders-3/00..0042    -> 2 int64 a compaction puts one segment 42 in the place of all from 42 up to this offset; it ends there
 * ```
 */
export class LogState {
  readonly #state: State;
  readonly #topic: string;
  readonly #partition: number;

  constructor(state: State, topic: string, partition: number) {
    this.#state = state;
    this.#topic = topic;
    this.#partition = partition;
  }

  /** `undefined` when nothing is known: the state was lost, or the log is new to this node. */
  get recoveryPoint(): Offset | undefined {
    return readStateOffset(this.#state, "recovery-point", this.#topic, this.#partition);
  }

  get logStartOffset(): Offset | undefined {
    return readStateOffset(this.#state, "log-start", this.#topic, this.#partition);
  }

  /** Up to where the last compaction came; `undefined`: the log was never compacted, or nothing is known. */
  get cleanerOffset(): Offset | undefined {
    return readStateOffset(this.#state, "cleaner-offset", this.#topic, this.#partition);
  }

  /** Without `sync`: after the loss of a raise the same is compacted again. */
  async raiseCleanerOffset(offset: Offset): Promise<void> {
    await this.#state.commit([this.#cleanerOffset(offset)], { sync: false });
  }

  /**
   * Durably, before anything is appended at or above `offset`: what comes there is dirty. A value that is too high would let a tombstone go
   * before what it deletes.
   */
  async lowerCleanerOffset(offset: Offset): Promise<void> {
    const puts = this.#cleanerOffsetAbove(offset);
    if (puts.length > 0) await this.#state.commit(puts, { sync: true });
  }

  /**
   * Where the log before this segment ends, if it rightly leaves offsets out there. It has to end just there: a crash that took its
   * unsynced end leaves the note and the segment behind it.
   */
  endBeforeGap(segmentBaseOffset: Offset): number | undefined {
    return endBeforeGap(this.#state, `${this.#topic}-${this.#partition}`, segmentBaseOffset);
  }

  /** Whether each batch is known to begin where the one before it in its segment ends, and the first one where its segment does. */
  get isGapless(): boolean {
    return this.#state.get(this.#gaplessKey) !== undefined;
  }

  /** After a look at all batches. Without `sync`: while it is not known, gaps are believed. */
  async noteGapless(): Promise<void> {
    if (!this.isGapless)
      await this.#state.commit([{ key: this.#gaplessKey, value: new Uint8Array(0) }], { sync: false });
  }

  /** Durably, before a batch is written that does not begin where the log's batches end: recovery would take it for rot. */
  async forgetGapless(): Promise<void> {
    const puts = this.#noLongerGapless();
    if (puts.length > 0) await this.#state.commit(puts, { sync: true });
  }

  /** What the state vouches for, if it does. */
  get seal(): LogSeal | undefined {
    return decodeSeal(this.#state.get(this.#sealKey));
  }

  /** Without `sync`: losing a raise costs a longer scan and nothing else. @param seal `undefined` leaves the one that is there */
  async raiseRecoveryPoint(offset: Offset, seal?: LogSeal): Promise<void> {
    await this.#state.commit([this.#recoveryPoint(offset), ...this.#sealPuts(seal)], { sync: false });
  }

  /** Without `sync`: losing it costs a longer look. */
  async saveSeal(seal: LogSeal): Promise<void> {
    await this.#state.commit(this.#sealPuts(seal), { sync: false });
  }

  /**
   * Before a truncation to `offset` touches a byte: durably lowers recovery point and cleaner offset, and forgets the borders behind the
   * last segment that stays.
   */
  async noteTruncation(truncation: {
    readonly recoveryPoint: Offset;
    readonly offset: Offset;
    readonly lastBaseOffset: number;
    /** The log is to go on at `offset`, and its last batch ends below. */
    readonly leavesGap: boolean;
    /** Of what stays as it is. */
    readonly seal: LogSeal;
  }): Promise<void> {
    const { recoveryPoint, offset, lastBaseOffset, seal } = truncation;
    const puts = [...this.#staleGaps(lastBaseOffset), ...this.#cleanerOffsetAbove(offset)];
    if (truncation.leavesGap) puts.push(...this.#noLongerGapless());
    if (this.recoveryPoint !== recoveryPoint) puts.push(this.#recoveryPoint(recoveryPoint));
    // What the state vouched for below the cut stays so; nothing of it may be cut while it is vouched for.
    if (puts.length > 0 || seal.endBaseOffset < (this.seal?.endBaseOffset ?? 0)) puts.push(...this.#sealPuts(seal));
    if (puts.length > 0) await this.#state.commit(puts, { sync: true });
  }

  /** Before recovery removes segments: a segment that will have such a base offset later must not be excused by a note on this one. */
  async forgetGapsAbove(lastBaseOffset: number): Promise<void> {
    const puts = this.#staleGaps(lastBaseOffset);
    if (puts.length > 0) await this.#state.commit(puts, { sync: true });
  }

  /** @param seal `undefined` leaves the one that is there */
  async saveStart(logStartOffset: Offset, recoveryPoint: Offset, seal?: LogSeal): Promise<void> {
    const start = putStateOffset("log-start", this.#topic, this.#partition, logStartOffset);
    await this.#state.commit([start, this.#recoveryPoint(recoveryPoint), ...this.#sealPuts(seal)], { sync: true });
  }

  /** Durable before the segment exists, else recovery would take the border for a lost segment. */
  async saveGapBefore(segmentBaseOffset: Offset, endOffset: Offset): Promise<void> {
    const value = encodeStateInt64(endOffset);
    await this.#state.commit([{ key: this.#gapKey(segmentBaseOffset), value }], { sync: true });
  }

  /** Durable before a segment of a compaction gets its `.swap` name: what has to go for it if a crash comes then. */
  async announceSwap({ baseOffset, endBaseOffset, endOffset }: AnnouncedSwap, seal: LogSeal): Promise<void> {
    const value = new Uint8Array(16);
    value.set(encodeStateInt64(endBaseOffset));
    value.set(encodeStateInt64(endOffset), 8);
    const puts = [{ key: this.#swapKey(baseOffset), value }, ...this.#noLongerGapless(), ...this.#sealPuts(seal)];
    await this.#state.commit(puts, { sync: true });
  }

  /** What a segment that was left as `.swap` replaces; `undefined` when it was not announced. */
  announcedSwap(baseOffset: Offset): AnnouncedSwap | undefined {
    const value = this.#state.get(this.#swapKey(baseOffset));
    const [endBaseOffset, endOffset] = [
      decodeStateInt64(value?.subarray(0, 8)),
      decodeStateInt64(value?.subarray(8, 16)),
    ];
    if (endBaseOffset === undefined || endOffset === undefined) return undefined;
    return { baseOffset, endBaseOffset: toOffset(endBaseOffset), endOffset: toOffset(endOffset) };
  }

  /** When the sources are gone and before the segment has its last name: from here on the log may leave offsets out behind it. */
  async noteSwap({ endBaseOffset, endOffset }: AnnouncedSwap): Promise<void> {
    if (endOffset < endBaseOffset) await this.saveGapBefore(endBaseOffset, endOffset);
  }

  /** After the swap. A note that stays does no harm: it speaks of a file that is not there. */
  async forgetSwap(baseOffset: Offset, seal?: LogSeal): Promise<void> {
    const puts = [{ key: this.#swapKey(baseOffset), value: undefined }, ...this.#sealPuts(seal)];
    await this.#state.commit(puts, { sync: false });
  }

  get #gaplessKey(): string {
    return `${GAPLESS_PREFIX}${this.#topic}-${this.#partition}`;
  }

  #noLongerGapless(): StatePut[] {
    return this.isGapless ? [{ key: this.#gaplessKey, value: undefined }] : [];
  }

  get #sealKey(): string {
    return `${SEAL_PREFIX}${this.#topic}-${this.#partition}`;
  }

  #sealPuts(seal: LogSeal | undefined): StatePut[] {
    return seal === undefined ? [] : [{ key: this.#sealKey, value: encodeSeal(seal) }];
  }

  #swapKey(baseOffset: Offset): string {
    return `segment-swap/${this.#topic}-${this.#partition}/${String(baseOffset).padStart(20, "0")}`;
  }

  #staleGaps(lastBaseOffset: number): StatePut[] {
    const prefix = this.#gapKey(undefined);
    return this.#state
      .keys(prefix)
      .filter((key) => Number(key.slice(prefix.length)) > lastBaseOffset)
      .map((key) => ({ key, value: undefined }));
  }

  #cleanerOffset(offset: Offset): StatePut {
    return putStateOffset("cleaner-offset", this.#topic, this.#partition, offset);
  }

  /** The put that lowers it to `offset`, if it is above. */
  #cleanerOffsetAbove(offset: Offset): StatePut[] {
    return (this.cleanerOffset ?? 0) > offset ? [this.#cleanerOffset(offset)] : [];
  }

  #recoveryPoint(offset: Offset): StatePut {
    return putStateOffset("recovery-point", this.#topic, this.#partition, offset);
  }

  #gapKey(segmentBaseOffset: Offset | undefined): string {
    return gapKey(`${this.#topic}-${this.#partition}`, segmentBaseOffset);
  }
}

/** As `LogState.endBeforeGap`, for who only looks. @param partitionName `orders-3` */
export function endBeforeGap(
  state: Pick<State, "get">,
  partitionName: string,
  segmentBaseOffset: number,
): number | undefined {
  return decodeStateInt64(state.get(gapKey(partitionName, segmentBaseOffset)));
}

function gapKey(partitionName: string, segmentBaseOffset: number | undefined): string {
  const prefix = `${GAP_PREFIX}${partitionName}/`;
  return segmentBaseOffset === undefined ? prefix : prefix + String(segmentBaseOffset).padStart(20, "0");
}
