import { readInt16, readInt32, writeInt16, writeInt32 } from "./bytes.ts";
import {
  CONTROL_BIT,
  isControlBatch,
  isTransactional,
  RECORD_BATCH_OVERHEAD,
  recordsSection,
  TRANSACTIONAL_BIT,
  writeHeader,
} from "./record-batch.ts";
import type { BatchHeader } from "./record-batch.ts";
import { VarintReader, writeVarint } from "./varint.ts";

/*
 * The marker that ends a transaction: a batch of one control record, 78 bytes.
 *
 *   key:   version i16 = 0 | type i16: 0 abort, 1 commit
 *   value: version i16 = 0 | coordinatorEpoch i32
 *
 * Source: apache/kafka clients/.../common/record/internal/{ControlRecordType,EndTransactionMarker}.java
 */

const CONTROL_KEY_BYTES = 4;
const MARKER_VALUE_BYTES = 6;
/** length, attributes, timestamp delta, offset delta, key length, key, value length, value, headers count. */
const MARKER_RECORD_BYTES = 1 + 1 + 1 + 1 + 1 + CONTROL_KEY_BYTES + 1 + MARKER_VALUE_BYTES + 1;
const TYPES = ["abort", "commit"] as const;

/** What a marker says of the transaction that it ends. */
export interface EndTransactionMarker {
  readonly type: "abort" | "commit";
  /** int32: of the transaction coordinator that wrote it. */
  readonly coordinatorEpoch: number;
}

/** Bytes of a marker's batch. */
export const END_TRANSACTION_MARKER_BYTES = RECORD_BATCH_OVERHEAD + MARKER_RECORD_BYTES;

/**
 * A marker as a coordinator sends it: base offset 0, no leader epoch.
 * @param marker `timestamp` in ms; producer id and epoch are those of the transaction
 */
export function encodeEndTransactionMarker(
  marker: EndTransactionMarker & {
    readonly producerId: number;
    readonly producerEpoch: number;
    readonly timestamp: number;
  },
): Uint8Array {
  const batch = new Uint8Array(END_TRANSACTION_MARKER_BYTES);
  let at = writeVarint(batch, RECORD_BATCH_OVERHEAD, MARKER_RECORD_BYTES - 1);
  at += 3; // Attributes, timestamp delta and offset delta are 0.
  at = writeVarint(batch, at, CONTROL_KEY_BYTES);
  writeInt16(batch, at + 2, TYPES.indexOf(marker.type));
  at = writeVarint(batch, at + CONTROL_KEY_BYTES, MARKER_VALUE_BYTES);
  writeInt32(batch, at + 2, marker.coordinatorEpoch);
  writeHeader(batch, batch.length, {
    baseOffset: 0,
    partitionLeaderEpoch: -1,
    attributes: TRANSACTIONAL_BIT | CONTROL_BIT,
    lastOffsetDelta: 0,
    baseTimestamp: marker.timestamp,
    maxTimestamp: marker.timestamp,
    producerId: marker.producerId,
    producerEpoch: marker.producerEpoch,
    baseSequence: -1,
    recordsCount: 1,
  });
  return batch;
}

/**
 * The marker in a batch, or `undefined` when the batch holds none: no control batch of a transaction, emptied by compaction, of a
 * type that means nothing to a log, or not readable.
 * @param bytes hold the batch at `header.positionBytes`, whole
 */
export function endTransactionMarkerOf(bytes: Uint8Array, header: BatchHeader): EndTransactionMarker | undefined {
  if (!isControlBatch(header) || !isTransactional(header) || header.recordsCount === 0) return undefined;
  const payload = recordsSection(bytes, header);
  const reader = new VarintReader(payload);
  reader.readVarint();
  reader.position += 1;
  reader.readVarlong();
  reader.readVarint();
  const keyBytes = reader.readVarint();
  const keyAt = reader.position;
  if (reader.fault !== undefined || keyBytes < CONTROL_KEY_BYTES || keyAt + keyBytes > payload.length) return undefined;
  const type = TYPES[readInt16(payload, keyAt + 2)];
  if (readInt16(payload, keyAt) < 0 || type === undefined) return undefined;
  reader.position = keyAt + keyBytes;
  const valueBytes = reader.readVarint();
  const valueAt = reader.position;
  if (reader.fault !== undefined || valueBytes < MARKER_VALUE_BYTES || valueAt + valueBytes > payload.length)
    return undefined;
  return { type, coordinatorEpoch: readInt32(payload, valueAt + 2) };
}
