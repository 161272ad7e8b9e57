import { fail } from "@tidemark/base";
import type { CodecName } from "@tidemark/base";
import { readInt16, readInt32, readInt64, readUint32, writeInt16, writeInt32, writeInt64 } from "./bytes.ts";
import { crc32cOfRange } from "./crc32c.ts";
import { WireError } from "./error.ts";

/*
 * Record batch, magic 2. Big-endian. The CRC covers everything from the attributes on, so that a leader stamps offset and
 * epoch without touching it.
 *
 *   0 baseOffset i64 | 8 batchLength i32 | 12 partitionLeaderEpoch i32 | 16 magic i8 | 17 crc u32 |
 *  21 attributes i16 | 23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64 |
 *  43 producerId i64 | 51 producerEpoch i16 | 53 baseSequence i32 | 57 recordsCount i32 | 61 records
 *
 * Source: apache/kafka clients/.../common/record/internal/DefaultRecordBatch.java
 */

/** Bytes of base offset and length, which stand before what the length counts. */
export const LOG_OVERHEAD = 12;
/** Bytes of the header: the size of a batch without records. */
export const RECORD_BATCH_OVERHEAD = 61;
export const MAGIC_V2 = 2;

const LENGTH_POSITION = 8;
const PARTITION_LEADER_EPOCH_POSITION = 12;
const MAGIC_POSITION = 16;
const CRC_POSITION = 17;
const ATTRIBUTES_POSITION = 21;
const LAST_OFFSET_DELTA_POSITION = 23;
const BASE_TIMESTAMP_POSITION = 27;
const MAX_TIMESTAMP_POSITION = 35;
const PRODUCER_ID_POSITION = 43;
const PRODUCER_EPOCH_POSITION = 51;
const BASE_SEQUENCE_POSITION = 53;
const RECORDS_COUNT_POSITION = 57;

/** Offset, length, epoch and magic: what old formats share. */
const HEADER_UP_TO_MAGIC = 17;
/** The smallest batch of any format (magic 0), below which a length is garbage. */
const ANY_BATCH_BYTES_MIN = LOG_OVERHEAD + 14;

const CODEC_MASK = 0x07;
export const LOG_APPEND_TIME_BIT = 0x08;
export const TRANSACTIONAL_BIT = 0x10;
export const CONTROL_BIT = 0x20;
export const DELETE_HORIZON_BIT = 0x40;
/** Bits Kafka keeps when it rewrites a header: all it knows. */
const KNOWN_ATTRIBUTES = 0x7f;

/** What the records section is compressed with. */
export type CompressionCodec = "none" | CodecName;

/** By the id in the attributes. */
export const COMPRESSION_CODECS = [
  "none",
  "gzip",
  "snappy",
  "lz4",
  "zstd",
] as const satisfies readonly CompressionCodec[];

/** The header of one batch, as it stands in the bytes. */
export interface BatchHeader {
  /** Where the batch begins in the bytes it was read from. */
  readonly positionBytes: number;
  /** Whole batch with header, 61 .. 2^31 + 11. */
  readonly sizeInBytes: number;
  readonly baseOffset: number;
  /** baseOffset + lastOffsetDelta; at most 2^53 - 2, so that the log end offset after it is an offset too. */
  readonly lastOffset: number;
  /** Not recordsCount - 1 once the batch was compacted. */
  readonly lastOffsetDelta: number;
  /** int32, not checked: -1 = none, as producers send it. */
  readonly partitionLeaderEpoch: number;
  readonly magic: number;
  /** As stored, 0 .. 2^32 - 1. */
  readonly crc: number;
  /** int16 */
  readonly attributes: number;
  /** ms, -1 = none; the delete horizon when attribute bit 6 is set. Deltas of records are relative to it in either case. */
  readonly baseTimestamp: number;
  /** ms, -1 = none. */
  readonly maxTimestamp: number;
  /** -1 = none. */
  readonly producerId: number;
  /** int16, -1 = none. */
  readonly producerEpoch: number;
  /** int32, -1 = none. */
  readonly baseSequence: number;
  /** Records that are really there. */
  readonly recordsCount: number;
}

/** Attribute bits 0 to 2: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 mean nothing. */
export function codecId(header: BatchHeader): number {
  return header.attributes & CODEC_MASK;
}

/**
 * The codec of the records section.
 * @throws WireError UNSUPPORTED_COMPRESSION_TYPE for the ids that mean nothing
 */
export function compressionCodec(header: BatchHeader): CompressionCodec {
  const id = codecId(header);
  const codec = COMPRESSION_CODECS[id];
  if (codec !== undefined) return codec;
  throw new WireError("UNSUPPORTED_COMPRESSION_TYPE", `there is no codec ${id}`, {
    codecId: id,
    baseOffset: header.baseOffset,
  });
}

export function isControlBatch(header: BatchHeader): boolean {
  return (header.attributes & CONTROL_BIT) !== 0;
}

export function isTransactional(header: BatchHeader): boolean {
  return (header.attributes & TRANSACTIONAL_BIT) !== 0;
}

/** When set, every record reads as maxTimestamp, whatever its delta says. */
export function isLogAppendTime(header: BatchHeader): boolean {
  return (header.attributes & LOG_APPEND_TIME_BIT) !== 0;
}

export type BatchScan =
  /** The header is sane. CRC not yet checked. */
  | { readonly type: "batch"; readonly header: BatchHeader }
  /** The bytes end inside it. `neededBytes` counts from its first byte: 61 if even the header is cut, else its size. */
  | { readonly type: "incomplete"; readonly neededBytes: number }
  /** Not a batch of ours, however many bytes follow. With a header where size and magic are right, and only what it counts is not. */
  | {
      readonly type: "corrupt";
      readonly positionBytes: number;
      readonly reason: string;
      readonly header?: BatchHeader;
    };

/**
 * The batch at `positionBytes`, all of which must lie before `endBytes` to be a "batch".
 *
 * Never throws on content. O(1), one object besides the result. `neededBytes` of damaged bytes may be up to 2 GiB: bound
 * it before allocating. Stricter than Kafka's scanners, which leave the magic on files and the 61 bytes to later checks.
 * @throws InvariantError when the range is not inside `bytes`
 * Source: apache/kafka ByteBufferLogInputStream.java, FileLogInputStream.java, DefaultRecordBatch.ensureValid
 */
export function scanBatch(bytes: Uint8Array, positionBytes: number, endBytes: number = bytes.length): BatchScan {
  const scan = scanHeader(bytes, positionBytes, endBytes);
  if (scan.type === "batch" && scan.header.sizeInBytes > endBytes - positionBytes) {
    return { type: "incomplete", neededBytes: scan.header.sizeInBytes };
  }
  return scan;
}

/**
 * As `scanBatch`, but 61 bytes are enough for a "batch": to walk a file without reading the records.
 * @throws InvariantError when the position is not inside `bytes`
 */
export function readBatchHeader(bytes: Uint8Array, positionBytes: number): BatchScan {
  return scanHeader(bytes, positionBytes, bytes.length);
}

function scanHeader(bytes: Uint8Array, positionBytes: number, endBytes: number): BatchScan {
  if (!(positionBytes >= 0 && endBytes <= bytes.length)) {
    fail("0 <= position and end <= length", { positionBytes, endBytes, length: bytes.length });
  }
  const availableBytes = endBytes - positionBytes;
  if (availableBytes < LOG_OVERHEAD) return { type: "incomplete", neededBytes: RECORD_BATCH_OVERHEAD };
  const sizeInBytes = LOG_OVERHEAD + readInt32(bytes, positionBytes + LENGTH_POSITION);
  if (sizeInBytes < ANY_BATCH_BYTES_MIN) return corrupt(positionBytes, `batch size ${sizeInBytes}`);
  if (availableBytes < HEADER_UP_TO_MAGIC) return { type: "incomplete", neededBytes: RECORD_BATCH_OVERHEAD };
  // Before the size: a batch of an old format may be smaller than our header, and its reader deserves the real reason.
  const magic = ((bytes[positionBytes + MAGIC_POSITION] as number) << 24) >> 24;
  if (magic !== MAGIC_V2) return corrupt(positionBytes, `magic ${magic}`);
  if (sizeInBytes < RECORD_BATCH_OVERHEAD) return corrupt(positionBytes, `batch size ${sizeInBytes}`);
  if (availableBytes < RECORD_BATCH_OVERHEAD) return { type: "incomplete", neededBytes: RECORD_BATCH_OVERHEAD };

  const header = headerAt(bytes, positionBytes, sizeInBytes);
  if (header.lastOffsetDelta < 0) return corrupt(positionBytes, `last offset delta ${header.lastOffsetDelta}`, header);
  if (header.recordsCount < 0) return corrupt(positionBytes, `records count ${header.recordsCount}`, header);
  // Strict: the log end offset after this batch has to be a safe integer as well.
  if (!(header.baseOffset >= 0 && header.lastOffset < Number.MAX_SAFE_INTEGER)) {
    return corrupt(positionBytes, `base offset ${header.baseOffset} outside 0 .. 2^53 - 1`);
  }
  return { type: "batch", header };
}

function headerAt(bytes: Uint8Array, positionBytes: number, sizeInBytes: number): BatchHeader {
  const baseOffset = readInt64(bytes, positionBytes);
  const lastOffsetDelta = readInt32(bytes, positionBytes + LAST_OFFSET_DELTA_POSITION);
  return {
    positionBytes,
    sizeInBytes,
    baseOffset,
    lastOffset: baseOffset + lastOffsetDelta,
    lastOffsetDelta,
    partitionLeaderEpoch: readInt32(bytes, positionBytes + PARTITION_LEADER_EPOCH_POSITION),
    magic: MAGIC_V2,
    crc: readUint32(bytes, positionBytes + CRC_POSITION),
    attributes: readInt16(bytes, positionBytes + ATTRIBUTES_POSITION),
    baseTimestamp: readInt64(bytes, positionBytes + BASE_TIMESTAMP_POSITION),
    maxTimestamp: readInt64(bytes, positionBytes + MAX_TIMESTAMP_POSITION),
    producerId: readInt64(bytes, positionBytes + PRODUCER_ID_POSITION),
    producerEpoch: readInt16(bytes, positionBytes + PRODUCER_EPOCH_POSITION),
    baseSequence: readInt32(bytes, positionBytes + BASE_SEQUENCE_POSITION),
    recordsCount: readInt32(bytes, positionBytes + RECORDS_COUNT_POSITION),
  };
}

function corrupt(positionBytes: number, reason: string, header?: BatchHeader): BatchScan {
  return { type: "corrupt", positionBytes, reason, ...(header === undefined ? {} : { header }) };
}

/** Whether the stored CRC is that of the bytes; the batch lies at `header.positionBytes` in `bytes`. O(batch). */
export function checkCrc(bytes: Uint8Array, header: BatchHeader): boolean {
  return batchCrc(bytes, header.positionBytes, header.sizeInBytes) === header.crc;
}

function batchCrc(bytes: Uint8Array, positionBytes: number, sizeInBytes: number): number {
  return crc32cOfRange(bytes, positionBytes + ATTRIBUTES_POSITION, positionBytes + sizeInBytes);
}

/** Records section, possibly compressed: a view. */
export function recordsSection(bytes: Uint8Array, header: BatchHeader): Uint8Array {
  return bytes.subarray(header.positionBytes + RECORD_BATCH_OVERHEAD, header.positionBytes + header.sizeInBytes);
}

/** Writes what a leader owns into a batch in place. Both lie outside the CRC. */
export function stampBatch(
  bytes: Uint8Array,
  positionBytes: number,
  baseOffset: number,
  partitionLeaderEpoch: number,
): void {
  writeInt64(bytes, positionBytes, baseOffset);
  writeInt32(bytes, positionBytes + PARTITION_LEADER_EPOCH_POSITION, partitionLeaderEpoch);
}

/** The fields an encoder chooses; the rest follows from the bytes. */
export interface HeaderFields {
  readonly baseOffset: number;
  readonly partitionLeaderEpoch: number;
  readonly attributes: number;
  readonly lastOffsetDelta: number;
  readonly baseTimestamp: number;
  readonly maxTimestamp: number;
  readonly producerId: number;
  readonly producerEpoch: number;
  readonly baseSequence: number;
  readonly recordsCount: number;
}

/** Completes the batch of `sizeInBytes` at the front of `batch`, whose records are already in place: header, then CRC. */
export function writeHeader(batch: Uint8Array, sizeInBytes: number, fields: HeaderFields): void {
  writeInt64(batch, 0, fields.baseOffset);
  writeInt32(batch, LENGTH_POSITION, sizeInBytes - LOG_OVERHEAD);
  writeInt32(batch, PARTITION_LEADER_EPOCH_POSITION, fields.partitionLeaderEpoch);
  batch[MAGIC_POSITION] = MAGIC_V2;
  writeInt16(batch, ATTRIBUTES_POSITION, fields.attributes);
  writeInt32(batch, LAST_OFFSET_DELTA_POSITION, fields.lastOffsetDelta);
  writeInt64(batch, BASE_TIMESTAMP_POSITION, fields.baseTimestamp);
  writeInt64(batch, MAX_TIMESTAMP_POSITION, fields.maxTimestamp);
  writeInt64(batch, PRODUCER_ID_POSITION, fields.producerId);
  writeInt16(batch, PRODUCER_EPOCH_POSITION, fields.producerEpoch);
  writeInt32(batch, BASE_SEQUENCE_POSITION, fields.baseSequence);
  writeInt32(batch, RECORDS_COUNT_POSITION, fields.recordsCount);
  writeInt32(batch, CRC_POSITION, batchCrc(batch, 0, sizeInBytes));
}

/**
 * A new batch with the header of `batch` around `payload`, its records as `codec` compressed them. Attributes, length and
 * CRC are set.
 */
export function withCompressedPayload(batch: Uint8Array, codec: CompressionCodec, payload: Uint8Array): Uint8Array {
  const compressed = new Uint8Array(RECORD_BATCH_OVERHEAD + payload.length);
  compressed.set(batch.subarray(0, RECORD_BATCH_OVERHEAD));
  compressed.set(payload, RECORD_BATCH_OVERHEAD);
  writeInt32(compressed, LENGTH_POSITION, compressed.length - LOG_OVERHEAD);
  const attributes = readInt16(batch, ATTRIBUTES_POSITION) & ~CODEC_MASK;
  writeInt16(compressed, ATTRIBUTES_POSITION, attributes | COMPRESSION_CODECS.indexOf(codec));
  writeInt32(compressed, CRC_POSITION, batchCrc(compressed, 0, compressed.length));
  return compressed;
}

/**
 * What a leader does to the timestamps of a batch before it stores it: type and maximum, and the CRC if either changed.
 * CreateTime: `maxTimestamp` is the result of `validateRecords`; LogAppendTime: the wall clock. Bits above 6 vanish when
 * something is rewritten.
 * @returns whether anything was rewritten
 * Source: apache/kafka DefaultRecordBatch.setMaxTimestamp
 */
export function stampMaxTimestamp(
  bytes: Uint8Array,
  header: BatchHeader,
  timestampType: "CreateTime" | "LogAppendTime",
  maxTimestamp: number,
): boolean {
  const wantsLogAppendTime = timestampType === "LogAppendTime";
  if (isLogAppendTime(header) === wantsLogAppendTime && header.maxTimestamp === maxTimestamp) return false;
  const attributes = header.attributes & KNOWN_ATTRIBUTES & ~LOG_APPEND_TIME_BIT;
  const { positionBytes, sizeInBytes } = header;
  writeInt16(
    bytes,
    positionBytes + ATTRIBUTES_POSITION,
    wantsLogAppendTime ? attributes | LOG_APPEND_TIME_BIT : attributes,
  );
  writeInt64(bytes, positionBytes + MAX_TIMESTAMP_POSITION, maxTimestamp);
  writeInt32(bytes, positionBytes + CRC_POSITION, batchCrc(bytes, positionBytes, sizeInBytes));
  return true;
}
