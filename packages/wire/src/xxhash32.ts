/*
 * xxHash32, seed 0: the checksum of LZ4 frames, of which Kafka's writer uses one byte, and its reader those of blocks too.
 * Source: Yann Collet, xxHash fast digest algorithm, doc/xxhash_spec.md
 */

const PRIME_1 = 0x9e3779b1;
const PRIME_2 = 0x85ebca77;
const PRIME_3 = 0xc2b2ae3d;
const PRIME_4 = 0x27d4eb2f;
const PRIME_5 = 0x165667b1;

const STRIPE_BYTES = 16;

/** xxHash32 of `[fromBytes, toBytes)`, 0 .. 2^32 - 1. O(bytes), allocates nothing. */
export function xxHash32(bytes: Uint8Array, fromBytes: number, toBytes: number): number {
  let position = fromBytes;
  let hash: number;
  if (toBytes - fromBytes >= STRIPE_BYTES) {
    let lane1 = (PRIME_1 + PRIME_2) | 0;
    let lane2 = PRIME_2 | 0;
    let lane3 = 0;
    let lane4 = -PRIME_1 | 0;
    for (const last = toBytes - STRIPE_BYTES; position <= last; position += STRIPE_BYTES) {
      lane1 = round(lane1, readInt32LittleEndian(bytes, position));
      lane2 = round(lane2, readInt32LittleEndian(bytes, position + 4));
      lane3 = round(lane3, readInt32LittleEndian(bytes, position + 8));
      lane4 = round(lane4, readInt32LittleEndian(bytes, position + 12));
    }
    hash = (rotate(lane1, 1) + rotate(lane2, 7) + rotate(lane3, 12) + rotate(lane4, 18)) | 0;
  } else {
    hash = PRIME_5 | 0;
  }
  hash = (hash + (toBytes - fromBytes)) | 0;
  for (const last = toBytes - 4; position <= last; position += 4) {
    const word = (hash + Math.imul(readInt32LittleEndian(bytes, position), PRIME_3)) | 0;
    hash = Math.imul(rotate(word, 17), PRIME_4);
  }
  for (; position < toBytes; position += 1) {
    const word = (hash + Math.imul(bytes[position] as number, PRIME_5)) | 0;
    hash = Math.imul(rotate(word, 11), PRIME_1);
  }
  hash = Math.imul(hash ^ (hash >>> 15), PRIME_2);
  hash = Math.imul(hash ^ (hash >>> 13), PRIME_3);
  return (hash ^ (hash >>> 16)) >>> 0;
}

function round(lane: number, word: number): number {
  return Math.imul(rotate((lane + Math.imul(word, PRIME_2)) | 0, 13), PRIME_1);
}

function rotate(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}

/** The one thing here that others of this package need too: LZ4 and Zstandard frames are little-endian. The range lies inside `bytes`. */
export function readInt32LittleEndian(bytes: Uint8Array, positionBytes: number): number {
  return (
    (bytes[positionBytes] as number) |
    ((bytes[positionBytes + 1] as number) << 8) |
    ((bytes[positionBytes + 2] as number) << 16) |
    ((bytes[positionBytes + 3] as number) << 24)
  );
}
