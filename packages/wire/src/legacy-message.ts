import { readInt32, readUint32 } from "./bytes.ts";
import { LOG_OVERHEAD } from "./record-batch.ts";

/*
 * Message, magic 0 or 1: what a segment held before Kafka 0.11. Big-endian. It is known here to be told from damage, not to be read.
 *
 *   0 offset i64 | 8 size i32 | 12 crc u32: CRC-32 (zlib's polynomial) of all that follows | 16 magic i8 | 17 attributes i8 |
 *   [magic 1: 18 timestamp i64] | key, value, each with its length i32
 *
 * Source: apache/kafka clients/.../common/record/internal/LegacyRecord.java
 */

const SIZE_POSITION = 8;
const CRC_POSITION = 12;
const MAGIC_POSITION = 16;
/** Behind the size, by magic. */
const MESSAGE_BYTES_MIN = [14, 22] as const;

/** Bytes of the message that begins here by what it says, or `undefined` when it says nothing of the kind. Needs 17 bytes. */
export function legacyMessageBytes(bytes: Uint8Array): number | undefined {
  const magic = bytes[MAGIC_POSITION];
  if (magic !== 0 && magic !== 1) return undefined;
  const size = readInt32(bytes, SIZE_POSITION);
  return size < MESSAGE_BYTES_MIN[magic] ? undefined : LOG_OVERHEAD + size;
}

/**
 * The magic of the whole message that begins here, 0 or 1, when its CRC fits; `undefined` for anything else, a damaged batch of today
 * among it. O(message).
 */
export function legacyMagic(bytes: Uint8Array): 0 | 1 | undefined {
  const sizeBytes = legacyMessageBytes(bytes);
  if (sizeBytes === undefined || sizeBytes > bytes.length) return undefined;
  if (crc32(bytes, MAGIC_POSITION, sizeBytes) !== readUint32(bytes, CRC_POSITION)) return undefined;
  return bytes[MAGIC_POSITION] === 0 ? 0 : 1;
}

let table: Int32Array | undefined;

/** CRC-32 as zlib has it: reflected polynomial 0xEDB88320. Only old messages need it. */
function crc32(bytes: Uint8Array, fromBytes: number, toBytes: number): number {
  table ??= crcTable();
  let crc = -1;
  for (let at = fromBytes; at < toBytes; at += 1) {
    crc = (table[(crc ^ (bytes[at] as number)) & 0xff] as number) ^ (crc >>> 8);
  }
  return ~crc >>> 0;
}

function crcTable(): Int32Array {
  return Int32Array.from({ length: 256 }, (_, byte) => {
    let crc = byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc & 1) === 0 ? crc >>> 1 : (crc >>> 1) ^ 0xedb88320;
    return crc;
  });
}
