import { fail } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { BatchPlaces } from "./batch-places.ts";
import type { BatchPlace } from "./batch-places.ts";

/** `relativeOffset i32, position i32`. */
export const OFFSET_INDEX_ENTRY_BYTES = 8;

/** An entry's offset is int32, counted from the segment's base. */
export const RELATIVE_OFFSET_MAX = 2 ** 31 - 1;
const INITIAL_CAPACITY = 64;
/** Most segments of most partitions have no entry in memory: idle ones, and sealed ones that nobody reads. */
const NO_ENTRIES = new Int32Array(0);

export interface OffsetIndexEntry {
  /** Last offset of a batch. */
  readonly offset: number;
  /** Where that batch begins in the segment. */
  readonly positionBytes: number;
}

/**
 * Sparse map of one segment from offset to file position, in memory; exactly its entries go to disk.
 *
 * ```text
 * entry, big-endian:  | last offset of a batch - base offset : i32 | position of that batch : i32 |
 * ```
 *
 * Invariant: offsets and positions strictly increase.
 * Source: apache/kafka storage/.../internals/log/OffsetIndex.java
 */
export class OffsetIndex {
  readonly baseOffset: Offset;
  readonly #entriesMax: number;
  readonly #places: BatchPlaces;
  #relativeOffsets = NO_ENTRIES;
  #positions = NO_ENTRIES;
  #count = 0;

  /** @param indexBytesMax Kafka: segment.index.bytes. A full index makes the segment roll */
  constructor(baseOffset: Offset, indexBytesMax: number = Number.POSITIVE_INFINITY) {
    this.baseOffset = baseOffset;
    this.#places = new BatchPlaces(baseOffset);
    this.#entriesMax = Math.floor(indexBytesMax / OFFSET_INDEX_ENTRY_BYTES);
  }

  /** The entries of an index file, or `undefined` when they are not an index: cut short, or not strictly increasing. */
  static decode(
    baseOffset: Offset,
    bytes: Uint8Array,
    indexBytesMax: number = Number.POSITIVE_INFINITY,
  ): OffsetIndex | undefined {
    if (bytes.length % OFFSET_INDEX_ENTRY_BYTES !== 0) return undefined;
    const index = new OffsetIndex(baseOffset, indexBytesMax);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let previousOffset = -1;
    let previousPosition = -1;
    for (let at = 0; at < bytes.length; at += OFFSET_INDEX_ENTRY_BYTES) {
      const relativeOffset = view.getInt32(at);
      const position = view.getInt32(at + 4);
      if (relativeOffset <= previousOffset || position <= previousPosition) return undefined;
      index.append(baseOffset + relativeOffset, position);
      previousOffset = relativeOffset;
      previousPosition = position;
    }
    return index;
  }

  get count(): number {
    return this.#count;
  }

  get isFull(): boolean {
    return this.#count >= this.#entriesMax;
  }

  /** Whether `offset - baseOffset` fits in an entry. */
  canHold(offset: number): boolean {
    const relativeOffset = offset - this.baseOffset;
    return relativeOffset >= 0 && relativeOffset <= RELATIVE_OFFSET_MAX;
  }

  /** Adds the batch with this last offset at this position. @throws InvariantError unless both increase and fit */
  append(offset: number, positionBytes: number): void {
    const relativeOffset = offset - this.baseOffset;
    if (!this.canHold(offset)) fail("0 <= relative offset <= 2^31 - 1", { relativeOffset });
    if (this.#count > 0) {
      const last = this.#relativeOffsets[this.#count - 1] ?? -1;
      if (!(relativeOffset > last)) fail("index offsets strictly increase", { relativeOffset, last });
    }
    if (this.#count === this.#relativeOffsets.length) this.#grow();
    this.#relativeOffsets[this.#count] = relativeOffset;
    this.#positions[this.#count] = positionBytes;
    this.#count += 1;
  }

  entry(at: number): OffsetIndexEntry | undefined {
    const relativeOffset = this.#relativeOffsets[at];
    const positionBytes = this.#positions[at];
    if (at >= this.#count || relativeOffset === undefined || positionBytes === undefined) return undefined;
    return { offset: this.baseOffset + relativeOffset, positionBytes };
  }

  get lastEntry(): OffsetIndexEntry | undefined {
    return this.entry(this.#count - 1);
  }

  /** Where to start looking for `offset`: the position of the largest entry with offset <= it, else 0. O(log entries). */
  lookup(offset: number): number {
    const at = this.#floor(offset - this.baseOffset);
    return at < 0 ? 0 : (this.#positions[at] ?? 0);
  }

  /** The entry that `lookup` finds, if there is one. */
  entryOf(offset: number): OffsetIndexEntry | undefined {
    return this.entry(this.entryAtOf(offset));
  }

  /** Its number; -1 when there is none. */
  entryAtOf(offset: number): number {
    return this.#floor(offset - this.baseOffset);
  }

  /** A lookup met the batch that follows that of an entry; -1: the first of the segment. */
  noteBehind(entryAt: number, header: Pick<BatchPlace, "lastOffset" | "sizeInBytes">, positionBytes: number): void {
    this.#places.note(entryAt, this.#positions.length, header, positionBytes);
  }

  /** The first batch that reaches `offset`, where entries and what lookups met tell it; else `undefined`. O(log entries). */
  placeOf(offset: number): BatchPlace | undefined {
    const at = this.entryAtOf(offset);
    const behind = this.#places.behind(at);
    if (behind === undefined) return undefined;
    const entry = this.entry(at);
    if (entry?.offset === offset) return this.#placeOfEntry(entry, behind);
    if (offset <= behind.lastOffset) return behind;
    const next = this.entry(at + 1);
    const afterNext = this.#places.behind(at + 1);
    if (next === undefined || afterNext === undefined) return undefined;
    // Another batch may lie between.
    if (behind.positionBytes + behind.sizeInBytes !== next.positionBytes) return undefined;
    return this.#placeOfEntry(next, afterNext);
  }

  #placeOfEntry({ offset, positionBytes }: OffsetIndexEntry, behind: BatchPlace): BatchPlace {
    return { positionBytes, sizeInBytes: behind.positionBytes - positionBytes, lastOffset: offset };
  }

  /** The largest entry whose batch begins at or before a position, or `undefined`: begin at the segment's start then. */
  entryAtOrBefore(positionBytes: number): OffsetIndexEntry | undefined {
    let at = this.#count - 1;
    while (at >= 0 && (this.#positions[at] ?? 0) > positionBytes) at -= 1;
    return this.entry(at);
  }

  /** The last offset of the first batch here that begins at or behind a position, or `undefined` when no entry does. */
  offsetAtOrAbove(positionBytes: number): number | undefined {
    let low = 0;
    let high = this.#count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#positions[middle] ?? 0) < positionBytes) low = middle + 1;
      else high = middle;
    }
    return this.entry(low)?.offset;
  }

  /** Keeps the entries with an offset strictly below `offset`. */
  truncateTo(offset: number): void {
    this.#count = this.#floor(offset - this.baseOffset - 1) + 1;
    this.#places.clear();
  }

  /** The bytes of entries `[fromEntry, count)`. */
  encode(fromEntry = 0): Uint8Array {
    const bytes = new Uint8Array((this.#count - fromEntry) * OFFSET_INDEX_ENTRY_BYTES);
    const view = new DataView(bytes.buffer);
    for (let at = fromEntry; at < this.#count; at += 1) {
      const positionBytes = (at - fromEntry) * OFFSET_INDEX_ENTRY_BYTES;
      view.setInt32(positionBytes, this.#relativeOffsets[at] ?? 0);
      view.setInt32(positionBytes + 4, this.#positions[at] ?? 0);
    }
    return bytes;
  }

  /** Number of the last entry whose relative offset is at most `relativeOffset`; -1 when there is none. */
  #floor(relativeOffset: number): number {
    let low = 0;
    let high = this.#count - 1;
    while (low <= high) {
      const middle = (low + high) >>> 1;
      if ((this.#relativeOffsets[middle] ?? 0) <= relativeOffset) low = middle + 1;
      else high = middle - 1;
    }
    return high;
  }

  #grow(): void {
    const capacity = Math.max(this.#positions.length * 2, INITIAL_CAPACITY);
    const relativeOffsets = new Int32Array(capacity);
    relativeOffsets.set(this.#relativeOffsets);
    this.#relativeOffsets = relativeOffsets;
    const positions = new Int32Array(capacity);
    positions.set(this.#positions);
    this.#positions = positions;
  }
}
