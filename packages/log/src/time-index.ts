import { fail } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { RELATIVE_OFFSET_MAX } from "./offset-index.ts";

/** `timestamp i64, relativeOffset i32`. */
export const TIME_INDEX_ENTRY_BYTES = 12;

/** A timestamp that is none: records may come without. */
export const NO_TIMESTAMP = -1;

/** What the upper half of an int64 counts. */
const HIGH = 2 ** 32;

/** Grows by doubling; most segments have few entries, and an active one with an idle partition has none. */
const INITIAL_CAPACITY = 16;
const NO_TIMESTAMPS = new Float64Array(0);
const NO_OFFSETS = new Int32Array(0);

export interface TimeIndexEntry {
  /** ms; the largest of the segment up to the batch that ends at `offset`. */
  readonly timestamp: number;
  /** Last offset of the batch that brought it, the earliest such one. */
  readonly offset: number;
}

/**
 * Sparse map of one segment from time to offset, in memory; exactly its entries go to disk.
 *
 * ```text
 * entry, big-endian:  | largest timestamp so far, ms : i64 | last offset of the batch that brought it - base offset : i32 |
 * ```
 *
 * Invariant: timestamps strictly increase, offsets do not fall. The last place is kept for the entry of the end, which says what the
 * segment's largest timestamp is.
 * Source: apache/kafka storage/.../internals/log/TimeIndex.java
 */
export class TimeIndex {
  readonly baseOffset: Offset;
  readonly #entriesMax: number;
  #timestamps = NO_TIMESTAMPS;
  #relativeOffsets = NO_OFFSETS;
  #count = 0;

  /** @param indexBytesMax Kafka: segment.index.bytes */
  constructor(baseOffset: Offset, indexBytesMax: number = Number.POSITIVE_INFINITY) {
    this.baseOffset = baseOffset;
    this.#entriesMax = Math.floor(indexBytesMax / TIME_INDEX_ENTRY_BYTES);
  }

  /**
   * The entries of an index file, or `undefined` when they are no index: cut short, zeros at the end (as a preallocated file has them
   * after a crash), out of order, or below the segment.
   */
  static decode(
    baseOffset: Offset,
    bytes: Uint8Array,
    indexBytesMax: number = Number.POSITIVE_INFINITY,
  ): TimeIndex | undefined {
    if (bytes.length % TIME_INDEX_ENTRY_BYTES !== 0) return undefined;
    const index = new TimeIndex(baseOffset, indexBytesMax);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let lastRelativeOffset = 0;
    for (let at = 0; at < bytes.length; at += TIME_INDEX_ENTRY_BYTES) {
      const timestamp = view.getInt32(at) * HIGH + view.getUint32(at + 4);
      const relativeOffset = view.getInt32(at + 8);
      if (!Number.isSafeInteger(timestamp)) return undefined;
      if (timestamp <= index.lastTimestamp || relativeOffset < lastRelativeOffset) return undefined;
      index.#append(timestamp, relativeOffset);
      lastRelativeOffset = relativeOffset;
    }
    return index;
  }

  get count(): number {
    return this.#count;
  }

  /** Only the entry of the end still has a place. */
  get isFull(): boolean {
    return this.#count >= this.#entriesMax - 1;
  }

  /** Of the last entry, or -1. */
  get lastTimestamp(): number {
    return this.#count === 0 ? NO_TIMESTAMP : (this.#timestamps[this.#count - 1] ?? NO_TIMESTAMP);
  }

  get lastEntry(): TimeIndexEntry | undefined {
    return this.entry(this.#count - 1);
  }

  entry(at: number): TimeIndexEntry | undefined {
    const timestamp = this.#timestamps[at];
    const relativeOffset = this.#relativeOffsets[at];
    if (at >= this.#count || timestamp === undefined || relativeOffset === undefined) return undefined;
    return { timestamp, offset: this.baseOffset + relativeOffset };
  }

  /** Adds an entry unless the index is full or knows a timestamp as large already. @throws InvariantError when the offset does not fit */
  maybeAppend(timestamp: number, offset: number): void {
    if (!this.isFull) this.appendEnd(timestamp, offset);
  }

  /** As `maybeAppend`, but the entry of the end: it has a place of its own. */
  appendEnd(timestamp: number, offset: number): void {
    if (timestamp <= this.lastTimestamp) return;
    const relativeOffset = offset - this.baseOffset;
    if (!(relativeOffset >= 0 && relativeOffset <= RELATIVE_OFFSET_MAX))
      fail("0 <= relative offset <= 2^31 - 1", { relativeOffset });
    const last = this.#relativeOffsets[this.#count - 1] ?? 0;
    if (!(relativeOffset >= last)) fail("time index offsets do not fall", { relativeOffset, last });
    this.#append(timestamp, relativeOffset);
  }

  /** The last entry with a timestamp <= `timestamp`, or `undefined`: begin at the segment's start then. O(log entries). */
  lookup(timestamp: number): TimeIndexEntry | undefined {
    return this.entry(floorOf(this.#timestamps, this.#count, timestamp));
  }

  /** Keeps the entries with an offset strictly below `offset`. */
  truncateTo(offset: number): void {
    this.#count = floorOf(this.#relativeOffsets, this.#count, offset - this.baseOffset - 1) + 1;
  }

  /** The bytes of entries `[fromEntry, count)`. */
  encode(fromEntry = 0): Uint8Array {
    const bytes = new Uint8Array((this.#count - fromEntry) * TIME_INDEX_ENTRY_BYTES);
    const view = new DataView(bytes.buffer);
    for (let at = fromEntry; at < this.#count; at += 1) {
      const positionBytes = (at - fromEntry) * TIME_INDEX_ENTRY_BYTES;
      const timestamp = this.#timestamps[at] ?? 0;
      view.setInt32(positionBytes, Math.floor(timestamp / HIGH));
      view.setUint32(positionBytes + 4, timestamp % HIGH);
      view.setInt32(positionBytes + 8, this.#relativeOffsets[at] ?? 0);
    }
    return bytes;
  }

  #append(timestamp: number, relativeOffset: number): void {
    if (this.#count === this.#timestamps.length) this.#grow();
    this.#timestamps[this.#count] = timestamp;
    this.#relativeOffsets[this.#count] = relativeOffset;
    this.#count += 1;
  }

  #grow(): void {
    const capacity = Math.max(this.#timestamps.length * 2, INITIAL_CAPACITY);
    const timestamps = new Float64Array(capacity);
    timestamps.set(this.#timestamps);
    this.#timestamps = timestamps;
    const relativeOffsets = new Int32Array(capacity);
    relativeOffsets.set(this.#relativeOffsets);
    this.#relativeOffsets = relativeOffsets;
  }
}

/** Number of the last of `count` ascending values that is at most `value`; -1 when there is none. */
function floorOf(values: Float64Array | Int32Array, count: number, value: number): number {
  let low = 0;
  let high = count - 1;
  while (low <= high) {
    const middle = (low + high) >>> 1;
    if ((values[middle] ?? 0) <= value) low = middle + 1;
    else high = middle - 1;
  }
  return high;
}
