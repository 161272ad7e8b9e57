import { fail, parseOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";

/*
 * `%020d.txnindex`: the transactions whose abort marker lies in the segment, in the order of the markers. Big-endian, no checksum.
 *
 *   entry, 34 bytes: version i16 = 0 | producerId i64 | firstOffset i64 | lastOffset i64 | lastStableOffset i64
 *
 * Source: apache/kafka storage/.../internals/log/{TransactionIndex,AbortedTxn}.java
 */

const TRANSACTION_INDEX_ENTRY_BYTES = 34;
const VERSION = 0;

/** A transaction that was aborted. */
export interface AbortedTransaction {
  readonly producerId: number;
  /** Of its first batch. */
  readonly firstOffset: number;
  /** Of its marker. */
  readonly lastOffset: number;
  /** Below it no transaction was open when the marker was appended: whoever looks for aborts below it need not look further. */
  readonly lastStableOffset: number;
}

/**
 * The aborted transactions of one segment, in memory.
 *
 * Invariant: markers' offsets strictly increase. There is no file while there are none.
 */
export class TransactionIndex {
  readonly baseOffset: Offset;
  #entries: AbortedTransaction[];

  constructor(baseOffset: Offset, entries: readonly AbortedTransaction[] = []) {
    this.baseOffset = baseOffset;
    this.#entries = [...entries];
  }

  /** The entries of a file, or what is wrong with it. A part of an entry at the end is what a torn write leaves. Never throws. */
  static decode(baseOffset: Offset, bytes: Uint8Array): TransactionIndex | { readonly problem: string } {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (bytes.length % TRANSACTION_INDEX_ENTRY_BYTES !== 0)
      return { problem: `${bytes.length} bytes are no whole number of entries` };
    const entries: AbortedTransaction[] = [];
    let previousOffset = baseOffset - 1;
    for (let at = 0; at < bytes.length; at += TRANSACTION_INDEX_ENTRY_BYTES) {
      const version = view.getInt16(at);
      const entry: AbortedTransaction = {
        producerId: Number(view.getBigInt64(at + 2)),
        firstOffset: Number(view.getBigInt64(at + 10)),
        lastOffset: Number(view.getBigInt64(at + 18)),
        lastStableOffset: Number(view.getBigInt64(at + 26)),
      };
      const number = entries.length;
      if (version !== VERSION) return { problem: `entry ${number}: version ${version}` };
      const { firstOffset, lastOffset, lastStableOffset } = entry;
      if (Object.values(entry).some((value) => parseOffset(value) === undefined))
        return { problem: `entry ${number}: a number outside 0 .. 2^53 - 1` };
      if (!(lastOffset > previousOffset && firstOffset <= lastOffset && lastStableOffset <= lastOffset + 1))
        return { problem: `entry ${number}: ${firstOffset} to ${lastOffset}, after ${previousOffset}` };
      entries.push(entry);
      previousOffset = lastOffset;
    }
    return new TransactionIndex(baseOffset, entries);
  }

  get count(): number {
    return this.#entries.length;
  }

  get entries(): readonly AbortedTransaction[] {
    return this.#entries;
  }

  append(entry: AbortedTransaction): void {
    const last = this.#entries.at(-1);
    if (last !== undefined && !(entry.lastOffset > last.lastOffset))
      fail("markers' offsets strictly increase", { lastOffset: entry.lastOffset, last: last.lastOffset });
    this.#entries.push(entry);
  }

  /** Keeps the entries whose marker lies below `offset`. */
  truncateTo(offset: number): void {
    const at = this.#entries.findIndex(({ lastOffset }) => lastOffset >= offset);
    if (at >= 0) this.#entries.length = at;
  }

  /**
   * Adds to `found` the transactions that touch `[fromOffset, toOffset)`.
   * @returns whether no later segment can have another
   */
  collect(fromOffset: number, toOffset: number, found: AbortedTransaction[]): boolean {
    for (const entry of this.#entries) {
      if (entry.lastOffset >= fromOffset && entry.firstOffset < toOffset) found.push(entry);
      if (entry.lastStableOffset >= toOffset) return true;
    }
    return false;
  }

  encode(): Uint8Array {
    const bytes = new Uint8Array(this.#entries.length * TRANSACTION_INDEX_ENTRY_BYTES);
    const view = new DataView(bytes.buffer);
    for (const [number, entry] of this.#entries.entries()) {
      const at = number * TRANSACTION_INDEX_ENTRY_BYTES;
      view.setInt16(at, VERSION);
      view.setBigInt64(at + 2, BigInt(entry.producerId));
      view.setBigInt64(at + 10, BigInt(entry.firstOffset));
      view.setBigInt64(at + 18, BigInt(entry.lastOffset));
      view.setBigInt64(at + 26, BigInt(entry.lastStableOffset));
    }
    return bytes;
  }
}
