import type { Codecs, WorkerError } from "@tidemark/base";
import { ByteSink, corruptPayload, tooLarge } from "./byte-sink.ts";
import { readInt32LittleEndian } from "./xxhash32.ts";

/*
 * Zstandard frames, one or more, skippable ones between them. Little-endian.
 *
 *   0 magic 28 B5 2F FD | 4 descriptor | [window u8] | [dictionary id 0, 1, 2, 4] | [content size 0, 1, 2, 4, 8]
 *   blocks: header u24 (bit 0 last, bits 2-1 type, others size) | data ...
 *   [checksum u32]
 *
 * The libraries differ in what they say of a cut frame, of a second one, and of bytes behind; some trust the content size, some take no
 * bound. So the structure is read here, first: a frame reaches a library whole, alone, and with a bound on what it can become.
 *
 * Source: RFC 8878, 3.1
 */

const MAGIC = 0xfd2fb528 | 0;
const SKIPPABLE_MAGIC = 0x184d2a50;
const SKIPPABLE_MASK = 0xfffffff0 | 0;
const MAGIC_BYTES = 4;
const BLOCK_HEADER_BYTES = 3;
const CHECKSUM_BYTES = 4;
/** No block becomes more, whatever its frame's window. */
const BLOCK_BYTES_MAX = 128 * 1024;
/** A larger window is refused, as Kafka's library refuses it: its memory would be taken at once. */
const WINDOW_BYTES_MAX = 128 * 1024 ** 2;

/** The payload as one frame, in memory of its own. */
export function compressZstd(codecs: Codecs, payload: Uint8Array, level: number | undefined): Uint8Array {
  return codecs.compressZstd(payload, level);
}

/**
 * The payload of all frames, in memory of its own.
 * @throws WorkerError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE
 */
export function decompressZstd(codecs: Codecs, payload: Uint8Array, outputBytesMax: number): Uint8Array {
  const frames = scanFrames(payload);
  let leastBytes = 0;
  let mostBytes = 0;
  for (const frame of frames) {
    leastBytes += frame.contentBytesMin;
    mostBytes += frame.contentBytesMax;
  }
  if (leastBytes > outputBytesMax) throw tooLarge(outputBytesMax);
  const sink = new ByteSink(outputBytesMax, Math.min(mostBytes, payload.length * 4));
  for (const { fromBytes, toBytes, contentBytesMax } of frames) {
    const limits = { outputBytesMax: outputBytesMax - sink.length, frameBytesMax: contentBytesMax };
    sink.add(codecs.decompressZstdFrame(payload.subarray(fromBytes, toBytes), limits));
  }
  return sink.take();
}

interface ZstdFrame {
  readonly fromBytes: number;
  readonly toBytes: number;
  /** What its blocks, or its header, say that it becomes: at least and at most. Equal when the header says it. */
  readonly contentBytesMin: number;
  readonly contentBytesMax: number;
}

function scanFrames(payload: Uint8Array): ZstdFrame[] {
  const frames: ZstdFrame[] = [];
  let at = 0;
  while (at < payload.length) {
    if (payload.length - at < MAGIC_BYTES) throw corrupt("bytes behind the last frame");
    const magic = readInt32LittleEndian(payload, at);
    if ((magic & SKIPPABLE_MASK) === SKIPPABLE_MAGIC) {
      at = endOfSkippable(payload, at);
      continue;
    }
    if (magic !== MAGIC) throw corrupt(at === 0 ? "no frame" : "bytes behind the last frame");
    const frame = scanFrame(payload, at);
    frames.push(frame);
    at = frame.toBytes;
  }
  if (frames.length === 0) throw corrupt("no frame");
  return frames;
}

function endOfSkippable(payload: Uint8Array, fromBytes: number): number {
  const sizePosition = fromBytes + MAGIC_BYTES;
  if (payload.length - sizePosition < 4) throw corrupt("cut in a skippable frame");
  const endBytes = sizePosition + 4 + (readInt32LittleEndian(payload, sizePosition) >>> 0);
  if (endBytes > payload.length) throw corrupt("cut in a skippable frame");
  return endBytes;
}

interface FrameHeader {
  readonly endBytes: number;
  readonly windowBytes: number;
  readonly contentBytes: number | undefined;
  readonly hasChecksum: boolean;
}

function scanFrame(payload: Uint8Array, fromBytes: number): ZstdFrame {
  const header = readHeader(payload, fromBytes);
  const blockBytesMax = Math.min(header.windowBytes, BLOCK_BYTES_MAX);
  let contentBytesMin = 0;
  let contentBytesMax = 0;
  let at = header.endBytes;
  for (let isLast = false; !isLast;) {
    if (payload.length - at < BLOCK_HEADER_BYTES) throw corrupt("cut in the header of a block");
    const field = (payload[at] as number) | ((payload[at + 1] as number) << 8) | ((payload[at + 2] as number) << 16);
    at += BLOCK_HEADER_BYTES;
    isLast = (field & 1) === 1;
    const sizeBytes = field >> 3;
    if (sizeBytes > BLOCK_BYTES_MAX) throw corrupt(`a block of ${sizeBytes} bytes`);
    switch ((field >> 1) & 3) {
      case 0: // Stored as it is.
        contentBytesMin += sizeBytes;
        contentBytesMax += sizeBytes;
        at += sizeBytes;
        break;
      case 1: // One byte, so many times.
        contentBytesMin += sizeBytes;
        contentBytesMax += sizeBytes;
        at += 1;
        break;
      case 2: // Compressed.
        contentBytesMax += blockBytesMax;
        at += sizeBytes;
        break;
      default:
        throw corrupt("a block of the reserved type");
    }
    if (at > payload.length) throw corrupt("cut in a block");
  }
  if (header.hasChecksum) at += CHECKSUM_BYTES;
  if (at > payload.length) throw corrupt("cut in the checksum");
  const { contentBytes } = header;
  if (contentBytes === undefined) return { fromBytes, toBytes: at, contentBytesMin, contentBytesMax };
  if (contentBytes < contentBytesMin || contentBytes > contentBytesMax)
    throw corrupt("its blocks are not its content size");
  return { fromBytes, toBytes: at, contentBytesMin: contentBytes, contentBytesMax: contentBytes };
}

const DICTIONARY_ID_BYTES = [0, 1, 2, 4] as const;

function readHeader(payload: Uint8Array, fromBytes: number): FrameHeader {
  let at = fromBytes + MAGIC_BYTES;
  const descriptor = payload[at];
  if (descriptor === undefined) throw corrupt("cut in the header");
  if ((descriptor & 0x08) !== 0) throw corrupt("a reserved bit of the header");
  const isSingleSegment = (descriptor & 0x20) !== 0;
  const windowBytesLength = isSingleSegment ? 0 : 1;
  const dictionaryIdBytes = DICTIONARY_ID_BYTES[(descriptor & 3) as 0 | 1 | 2 | 3];
  const sizeClass = descriptor >> 6;
  const contentSizeBytes = sizeClass === 0 ? (isSingleSegment ? 1 : 0) : 2 ** sizeClass;
  at += 1;
  const endBytes = at + windowBytesLength + dictionaryIdBytes + contentSizeBytes;
  if (endBytes > payload.length) throw corrupt("cut in the header");
  let windowBytes = 0;
  if (!isSingleSegment) {
    const field = payload[at] as number;
    const base = 2 ** (10 + (field >> 3));
    windowBytes = base + (base / 8) * (field & 7);
    at += 1;
  }
  for (let index = 0; index < dictionaryIdBytes; index += 1) {
    if (payload[at + index] !== 0) throw corrupt("it needs a dictionary");
  }
  at += dictionaryIdBytes;
  const contentBytes = contentSizeBytes === 0 ? undefined : readContentSize(payload, at, contentSizeBytes);
  if (isSingleSegment) windowBytes = contentBytes ?? 0;
  else if (windowBytes > WINDOW_BYTES_MAX) throw corrupt(`a window of ${windowBytes} bytes`);
  return { endBytes, windowBytes, contentBytes, hasChecksum: (descriptor & 4) !== 0 };
}

/** Up to 2^64, rounded beyond 2^53: whoever compares it with what the blocks can hold refuses that. */
function readContentSize(payload: Uint8Array, positionBytes: number, sizeBytes: number): number {
  let value = 0;
  for (let index = sizeBytes - 1; index >= 0; index -= 1)
    value = value * 256 + (payload[positionBytes + index] as number);
  // Two bytes count from 256 on: one byte says what is below.
  return sizeBytes === 2 ? value + 256 : value;
}

function corrupt(reason: string): WorkerError {
  return corruptPayload("zstd", reason);
}
