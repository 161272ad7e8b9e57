import type { Codecs, WorkerError } from "@tidemark/base";
import { ByteSink, corruptPayload } from "./byte-sink.ts";
import { readInt32LittleEndian, xxHash32 } from "./xxhash32.ts";

/*
 * One LZ4 frame, version 1. Little-endian.
 *
 *   0 magic 04 22 4D 18 | 4 FLG | 5 BD | 6 [content size u64] | HC: second byte of xxHash32 over FLG .. content size
 *   blocks: size u32, high bit = stored as it is | data | [xxHash32 of the data] ...
 *   end mark u32 = 0 | [content checksum]
 *
 * FLG: bits 7-6 version = 1, 5 independent blocks, 4 block checksums, 3 content size, 2 content checksum, 1 reserved, 0 dictionary id.
 * BD: bits 6-4 largest block (4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB), others reserved.
 *
 * Read as Kafka reads: exactly one frame, its blocks independent, no dictionary; a content checksum is passed over, what follows the frame
 * is not looked at.
 *
 * Source: apache/kafka common/compress/Lz4BlockInputStream.java, Lz4BlockOutputStream.java; lz4/lz4 doc/lz4_Frame_format.md
 */

const MAGIC = 0x184d2204;
const HEADER_BYTES_MIN = 7;
const FLAGS_POSITION = 4;
const BLOCK_DESCRIPTOR_POSITION = 5;
const CONTENT_SIZE_BYTES = 8;
const CHECKSUM_BYTES = 4;
const SIZE_BYTES = 4;

const VERSION_MASK = 0xc0;
const VERSION_1 = 0x40;
const INDEPENDENT_BLOCKS = 0x20;
const BLOCK_CHECKSUMS = 0x10;
const CONTENT_SIZE = 0x08;
const CONTENT_CHECKSUM = 0x04;
const FLAGS_RESERVED = 0x03;
const DESCRIPTOR_RESERVED = 0x8f;
const STORED_BIT = 0x8000_0000;

/** What Java writes: independent blocks of 64 KiB and no checksum but that of the header. */
const OUR_HEADER = Uint8Array.of(0x04, 0x22, 0x4d, 0x18, VERSION_1 | INDEPENDENT_BLOCKS, 0x40, 0x82);
const OUR_BLOCK_BYTES = 64 * 1024;
/** A byte of a block stands for at most 255 of its content. */
const EXPANSION_MAX = 255;

/** The payload as one frame, in memory of its own. */
export function compressLz4(codecs: Codecs, payload: Uint8Array): Uint8Array {
  const blockCount = Math.ceil(payload.length / OUR_BLOCK_BYTES);
  // A block that does not shrink is stored as it is, so that this is all that it can take.
  const boundBytes = OUR_HEADER.length + (blockCount + 1) * SIZE_BYTES + payload.length;
  const sink = new ByteSink(boundBytes, boundBytes);
  sink.add(OUR_HEADER);
  for (let from = 0; from < payload.length; from += OUR_BLOCK_BYTES) {
    const content = payload.subarray(from, from + OUR_BLOCK_BYTES);
    const block = codecs.compressLz4Block(content);
    const isStored = block.length >= content.length;
    sink.add(sizeField(isStored ? STORED_BIT + content.length : block.length));
    sink.add(isStored ? content : block);
  }
  sink.add(sizeField(0));
  return sink.take();
}

function sizeField(value: number): Uint8Array {
  return Uint8Array.of(value, value >>> 8, value >>> 16, value >>> 24);
}

interface FrameHeader {
  readonly blockBytesMax: number;
  readonly hasBlockChecksums: boolean;
  readonly hasContentChecksum: boolean;
  readonly endBytes: number;
}

/**
 * The payload of a frame, in memory of its own.
 * @throws WorkerError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE
 */
export function decompressLz4(codecs: Codecs, payload: Uint8Array, outputBytesMax: number): Uint8Array {
  const header = readHeader(payload);
  const sink = new ByteSink(outputBytesMax, Math.min(payload.length * 4, outputBytesMax));
  let at = header.endBytes;
  for (;;) {
    if (payload.length - at < SIZE_BYTES) throw corrupt("cut in the size of a block");
    const field = readInt32LittleEndian(payload, at) >>> 0;
    at += SIZE_BYTES;
    if (field === 0) break;
    const sizeBytes = field & ~STORED_BIT;
    const checksumBytes = header.hasBlockChecksums ? CHECKSUM_BYTES : 0;
    if (sizeBytes > header.blockBytesMax) throw corrupt(`a block of ${sizeBytes} bytes`);
    if (sizeBytes + checksumBytes > payload.length - at) throw corrupt("cut in a block");
    const block = payload.subarray(at, at + sizeBytes);
    at += sizeBytes;
    if (header.hasBlockChecksums && readInt32LittleEndian(payload, at) >>> 0 !== xxHash32(block, 0, sizeBytes)) {
      throw corrupt("a block's checksum");
    }
    at += checksumBytes;
    const isStored = field >= STORED_BIT;
    const roomBytes = Math.min(header.blockBytesMax, sizeBytes * EXPANSION_MAX);
    sink.add(isStored ? block : codecs.decompressLz4Block(block, roomBytes));
  }
  if (header.hasContentChecksum && payload.length - at < CHECKSUM_BYTES) throw corrupt("cut in the content checksum");
  return sink.take();
}

function readHeader(payload: Uint8Array): FrameHeader {
  if (payload.length < HEADER_BYTES_MIN) throw corrupt("cut in the header");
  if (readInt32LittleEndian(payload, 0) !== MAGIC) throw corrupt("no frame");
  const flags = payload[FLAGS_POSITION] as number;
  const descriptor = payload[BLOCK_DESCRIPTOR_POSITION] as number;
  if ((flags & VERSION_MASK) !== VERSION_1 || (flags & FLAGS_RESERVED) !== 0) throw corrupt(`frame flags ${flags}`);
  if ((flags & INDEPENDENT_BLOCKS) === 0) throw corrupt("blocks that depend on one another");
  const sizeClass = (descriptor & 0x70) >> 4;
  if ((descriptor & DESCRIPTOR_RESERVED) !== 0 || sizeClass < 4) throw corrupt(`block descriptor ${descriptor}`);
  const checksumPosition = HEADER_BYTES_MIN - 1 + ((flags & CONTENT_SIZE) === 0 ? 0 : CONTENT_SIZE_BYTES);
  if (payload.length <= checksumPosition) throw corrupt("cut in the header");
  const expected = (xxHash32(payload, FLAGS_POSITION, checksumPosition) >>> 8) & 0xff;
  if (payload[checksumPosition] !== expected) throw corrupt("the header's checksum");
  return {
    blockBytesMax: 2 ** (8 + 2 * sizeClass),
    hasBlockChecksums: (flags & BLOCK_CHECKSUMS) !== 0,
    hasContentChecksum: (flags & CONTENT_CHECKSUM) !== 0,
    endBytes: checksumPosition + 1,
  };
}

function corrupt(reason: string): WorkerError {
  return corruptPayload("lz4", reason);
}
