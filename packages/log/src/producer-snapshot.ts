import { parseOffset } from "@tidemark/base";
import { crc32c } from "@tidemark/wire";
import type { ProducerEntry } from "./producer-state.ts";

/*
 * `%020d.snapshot`: what is known of the producers below the offset in its name. Big-endian.
 *
 *   version i16 = 1 | crc u32: CRC-32C of all that follows | count i32 | entries
 *   entry, 46 bytes: producerId i64 | producerEpoch i16 | lastSequence i32 | lastOffset i64 | offsetDelta i32 |
 *     timestamp i64 | coordinatorEpoch i32 | currentTxnFirstOffset i64
 *
 * -1 stands for "none"; only the last batch of a producer is in it.
 * Source: apache/kafka storage/.../internals/log/ProducerStateManager.java, ProducerSnapshot.json
 */

const VERSION = 1;
const CRC_POSITION = 2;
const COUNT_POSITION = 6;
const HEADER_BYTES = 10;
const ENTRY_BYTES = 46;

/** The bytes of a snapshot file. Ascending by producer id, so that equal states give equal bytes; Kafka's order is that of a hash map. */
export function encodeProducerSnapshot(entries: ReadonlyMap<number, ProducerEntry>): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES + entries.size * ENTRY_BYTES);
  const view = new DataView(bytes.buffer);
  view.setInt16(0, VERSION);
  view.setInt32(COUNT_POSITION, entries.size);
  let at = HEADER_BYTES;
  for (const [producerId, entry] of [...entries].sort(([a], [b]) => a - b)) {
    const last = entry.batches.at(-1);
    view.setBigInt64(at, BigInt(producerId));
    view.setInt16(at + 8, entry.producerEpoch);
    view.setInt32(at + 10, last?.lastSequence ?? -1);
    view.setBigInt64(at + 14, BigInt(last?.lastOffset ?? -1));
    view.setInt32(at + 22, last?.offsetDelta ?? 0);
    view.setBigInt64(at + 26, BigInt(entry.lastTimestamp));
    view.setInt32(at + 34, entry.coordinatorEpoch);
    view.setBigInt64(at + 38, BigInt(entry.transactionFirstOffset ?? -1));
    at += ENTRY_BYTES;
  }
  view.setUint32(CRC_POSITION, crc32c(bytes.subarray(COUNT_POSITION)));
  return bytes;
}

export type DecodedSnapshot =
  | { readonly type: "snapshot"; readonly entries: ReadonlyMap<number, ProducerEntry> }
  | { readonly type: "damaged"; readonly reason: string };

/** Reads a snapshot file; anything that is not exactly one is damaged. Never throws. Memory: bounded by the file's own size. */
export function decodeProducerSnapshot(bytes: Uint8Array): DecodedSnapshot {
  if (bytes.length < HEADER_BYTES) return damaged(`${bytes.length} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const version = view.getInt16(0);
  if (version !== VERSION) return damaged(`version ${version}`);
  if (crc32c(bytes.subarray(COUNT_POSITION)) !== view.getUint32(CRC_POSITION)) return damaged("CRC");
  const count = view.getInt32(COUNT_POSITION);
  if (bytes.length !== HEADER_BYTES + count * ENTRY_BYTES) return damaged(`${count} entries in ${bytes.length} bytes`);
  const entries = new Map<number, ProducerEntry>();
  for (let at = HEADER_BYTES; at < bytes.length; at += ENTRY_BYTES) {
    const producerId = Number(view.getBigInt64(at));
    const lastOffset = Number(view.getBigInt64(at + 14));
    const timestamp = Number(view.getBigInt64(at + 26));
    const firstOffset = Number(view.getBigInt64(at + 38));
    const offsetDelta = view.getInt32(at + 22);
    if (parseOffset(producerId) === undefined) return damaged(`producer id ${producerId}`);
    if (lastOffset >= 0 && (parseOffset(lastOffset) === undefined || offsetDelta < 0 || offsetDelta > lastOffset))
      return damaged(`last offset ${lastOffset}, delta ${offsetDelta}`);
    if (firstOffset >= 0 && parseOffset(firstOffset) === undefined) return damaged(`first offset ${firstOffset}`);
    if (!Number.isSafeInteger(timestamp)) return damaged(`timestamp ${timestamp}`);
    const lastSequence = view.getInt32(at + 10);
    entries.set(producerId, {
      producerEpoch: view.getInt16(at + 8),
      batches: lastOffset < 0 ? [] : [{ lastSequence, lastOffset, offsetDelta, timestamp }],
      lastTimestamp: timestamp,
      coordinatorEpoch: view.getInt32(at + 34),
      transactionFirstOffset: firstOffset < 0 ? undefined : firstOffset,
    });
  }
  return { type: "snapshot", entries };
}

function damaged(reason: string): DecodedSnapshot {
  return { type: "damaged", reason };
}
