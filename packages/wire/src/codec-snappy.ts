import type { Codecs } from "@tidemark/base";
import { ByteSink, corruptPayload, tooLarge } from "./byte-sink.ts";
import { readInt32, writeInt32 } from "./bytes.ts";

/*
 * Snappy as Kafka frames it (xerial's block stream; the official framing of Snappy is another one). Big-endian.
 *
 *   0 magic 82 "SNAPPY" 00 | 8 version i32 = 1 | 12 compatible version i32 = 1 | 16 blocks:
 *   length i32 | a bare Snappy block of that length, which begins with its uncompressed length as an unsigned varint | ...
 *
 * A payload that does not begin with the magic is one bare block. The header may come again between blocks: streams were joined.
 *
 * Source: xerial/snappy-java SnappyCodec.java, SnappyInputStream.java, SnappyOutputStream.java
 */

const MAGIC = Uint8Array.of(0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00);
const HEADER_BYTES = 16;
const VERSION = 1;
const LENGTH_BYTES = 4;
/** Uncompressed bytes of a block that we write, as Java does. */
const BLOCK_BYTES = 32 * 1024;
/** No element of a block gives more for its bytes: three make a copy of 64. */
const EXPANSION_MAX = 22;

/** The payload as a block stream, in memory of its own. */
export function compressSnappy(codecs: Codecs, payload: Uint8Array): Uint8Array {
  // A block that does not shrink grows by a sixth at most; a batch that large is stored as it is.
  const roomBytes = HEADER_BYTES + payload.length + Math.ceil(payload.length / BLOCK_BYTES) * 64;
  const sink = new ByteSink(Number.MAX_SAFE_INTEGER, roomBytes);
  const header = new Uint8Array(HEADER_BYTES);
  header.set(MAGIC);
  writeInt32(header, MAGIC.length, VERSION);
  writeInt32(header, MAGIC.length + 4, VERSION);
  sink.add(header);
  const length = new Uint8Array(LENGTH_BYTES);
  for (let from = 0; from < payload.length; from += BLOCK_BYTES) {
    const block = codecs.compressSnappyBlock(payload.subarray(from, from + BLOCK_BYTES));
    writeInt32(length, 0, block.length);
    sink.add(length);
    sink.add(block);
  }
  return sink.take();
}

/**
 * The payload of a block stream, or of one bare block. Room is made once, for what the blocks say they hold, after all were looked at.
 * @throws WorkerError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE
 */
export function decompressSnappy(codecs: Codecs, payload: Uint8Array, outputBytesMax: number): Uint8Array {
  const blocks = hasMagic(payload, 0) ? blocksOf(payload) : [payload];
  let sizeBytes = 0;
  for (const block of blocks) {
    sizeBytes += uncompressedBytes(block);
    if (sizeBytes > outputBytesMax) throw tooLarge(outputBytesMax);
  }
  const output = new Uint8Array(sizeBytes);
  let at = 0;
  for (const block of blocks) {
    const part = codecs.decompressSnappyBlock(block);
    if (part.length > output.length - at) throw corruptPayload("snappy", "a block holds more than it says");
    output.set(part, at);
    at += part.length;
  }
  if (at !== output.length) throw corruptPayload("snappy", "a block holds less than it says");
  return output;
}

function hasMagic(payload: Uint8Array, positionBytes: number): boolean {
  if (payload.length - positionBytes < HEADER_BYTES) return false;
  return MAGIC.every((byte, index) => payload[positionBytes + index] === byte);
}

function blocksOf(payload: Uint8Array): Uint8Array[] {
  const blocks: Uint8Array[] = [];
  let at = 0;
  while (at < payload.length) {
    if (hasMagic(payload, at)) {
      at += HEADER_BYTES;
      continue;
    }
    if (payload.length - at < LENGTH_BYTES) throw corruptPayload("snappy", "cut in the length of a block");
    const length = readInt32(payload, at);
    at += LENGTH_BYTES;
    if (length <= 0 || length > payload.length - at) throw corruptPayload("snappy", `a block of ${length} bytes`);
    blocks.push(payload.subarray(at, at + length));
    at += length;
  }
  return blocks;
}

/** What the block says in front, which its size can bear out. */
function uncompressedBytes(block: Uint8Array): number {
  let length = 0;
  for (let index = 0; index < 5; index += 1) {
    const byte = block[index];
    if (byte === undefined) break;
    length += (byte & 0x7f) * 2 ** (7 * index);
    if (byte >= 0x80) continue;
    if (length > block.length * EXPANSION_MAX) break;
    return length;
  }
  throw corruptPayload("snappy", "the length in front of a block is none");
}
