import { NODE_CODECS } from "@tidemark/codecs";
import { describe, expect, test } from "vitest";
import {
  checkCrc,
  codecId,
  compressionCodec,
  compressPayload,
  decodeRecords,
  decompressPayload,
  deleteHorizonMs,
  emptyBatch,
  encodeBatch,
  encodeEndTransactionMarker,
  endTransactionMarkerOf,
  isControlBatch,
  isLogAppendTime,
  isTransactional,
  rawRecords,
  readBatchHeader,
  rebuildBatch,
  recordsSection,
  scanBatch,
  stampBatch,
  stampMaxTimestamp,
  validateRecords,
  WireError,
  withCompressedPayload,
} from "@tidemark/wire";
import type { BatchHeader, DecodedRecord, RecordInput } from "@tidemark/wire";
import { GOLDEN_BATCHES, goldenBatch, T } from "./vectors.ts";
import type { GoldenBatch } from "./vectors.ts";

const CODEC_IDS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 };
/** What 100 records of any golden vector decompress to stays far below it. */
const OUTPUT_BYTES_MAX = 4096;

function headerOf(bytes: Uint8Array, positionBytes = 0): BatchHeader {
  const scan = scanBatch(bytes, positionBytes);
  if (scan.type !== "batch") throw new Error(`expected a batch, got ${JSON.stringify(scan)}`);
  return scan.header;
}

function payloadOf(bytes: Uint8Array, header: BatchHeader): Uint8Array {
  const codec = compressionCodec(header);
  const section = recordsSection(bytes, header);
  return codec === "none" ? section : decompressPayload(NODE_CODECS, codec, section, OUTPUT_BYTES_MAX);
}

function recordsOf(bytes: Uint8Array): DecodedRecord[] {
  const header = headerOf(bytes);
  return [...decodeRecords(header, payloadOf(bytes, header))];
}

/** Good enough to be stored: a sane header, all of it there, and the CRC of its bytes. */
function isAccepted(bytes: Uint8Array): boolean {
  const scan = scanBatch(bytes, 0);
  return scan.type === "batch" && checkCrc(bytes, scan.header);
}

function withFlippedBit(bytes: Uint8Array, positionBytes: number, bit: number): Uint8Array {
  const flipped = bytes.slice();
  flipped[positionBytes] = (bytes[positionBytes] ?? 0) ^ (1 << bit);
  return flipped;
}

describe.each(GOLDEN_BATCHES)("$id $about", (golden: GoldenBatch) => {
  test(`${golden.id} the header reads as Kafka's classes read it`, () => {
    const header = headerOf(golden.bytes);
    expect(header).toEqual({
      ...golden.header,
      positionBytes: 0,
      magic: 2,
      lastOffset: golden.header.baseOffset + golden.header.lastOffsetDelta,
    });
    expect(readBatchHeader(golden.bytes.subarray(0, 61), 0)).toEqual({ type: "batch", header });
  });

  test(`${golden.id} the CRC is that of its bytes, with any base offset and leader epoch`, () => {
    const bytes = golden.bytes.slice();
    expect(checkCrc(bytes, headerOf(bytes))).toBe(true);
    stampBatch(bytes, 0, 2 ** 40 + 5, 77);
    const header = headerOf(bytes);
    expect(checkCrc(bytes, header)).toBe(true);
    expect(header.baseOffset).toBe(2 ** 40 + 5);
    expect(header.partitionLeaderEpoch).toBe(77);
  });

  test(`${golden.id} no bit at or after byte 17 can flip unnoticed`, () => {
    const unnoticed: string[] = [];
    for (let positionBytes = 17; positionBytes < golden.bytes.length; positionBytes += 1) {
      for (let bit = 0; bit < 8; bit += 1) {
        if (isAccepted(withFlippedBit(golden.bytes, positionBytes, bit))) unnoticed.push(`${positionBytes}.${bit}`);
      }
    }
    expect(unnoticed).toEqual([]);
  });
});

test("flags are those of the attributes (G1 none, G4 transactional and control, G7 log append time, G3 control only)", () => {
  const flags = (id: string): boolean[] => {
    const header = headerOf(goldenBatch(id).bytes);
    return [isControlBatch(header), isTransactional(header), isLogAppendTime(header)];
  };
  expect(flags("G1")).toEqual([false, false, false]);
  expect(flags("G3")).toEqual([true, false, false]);
  expect(flags("G4")).toEqual([true, true, false]);
  expect(flags("G7")).toEqual([false, false, true]);
  expect(flags("G18")).toEqual([false, true, false]);
  expect(flags("G21")).toEqual([false, true, true]);
});

describe("records", () => {
  test.each(GOLDEN_BATCHES)("$id decodes to Kafka's records ($about)", (golden) => {
    const timestampType = golden.id === "G7" ? "LogAppendTime" : "CreateTime";
    expect(recordsOf(golden.bytes)).toEqual(golden.records.map((record) => ({ ...record, timestampType })));
  });

  test.each([
    ["G10", "lz4"],
    ["G11", "snappy"],
    ["G13", "gzip"],
    ["G14", "snappy"],
    ["G15", "lz4"],
    ["G16", "zstd"],
  ] as const)("%s is known as %s", (id, codec) => {
    const header = headerOf(goldenBatch(id).bytes);
    expect(codecId(header)).toBe(CODEC_IDS[codec]);
    expect(compressionCodec(header)).toBe(codec);
  });

  test.each(["G1", "G2", "G7", "G10", "G11", "G12", "G13", "G14", "G15", "G16", "G17", "G18", "G22", "G25"])(
    "%s is what a client may send",
    (id) => {
      const golden = goldenBatch(id);
      const header = headerOf(golden.bytes);
      expect(validateRecords(header, payloadOf(golden.bytes, header))).toMatchObject({
        maxTimestamp: golden.header.maxTimestamp,
      });
    },
  );

  test.each(["G5", "G5a", "G6", "G21", "G26"])("%s was compacted, which no client may send", (id) => {
    const golden = goldenBatch(id);
    const header = headerOf(golden.bytes);
    expect(() => validateRecords(header, payloadOf(golden.bytes, header))).toThrow(WireError);
  });
});

describe("encoding, byte for byte", () => {
  function inputsOf(golden: GoldenBatch): RecordInput[] {
    return golden.records.map(({ key, value, headers, timestamp }) => ({ key, value, headers, timestamp }));
  }

  test.each(["G1", "G2", "G12", "G17", "G18", "G22", "G25"])("%s", (id) => {
    const golden = goldenBatch(id);
    const { baseOffset, partitionLeaderEpoch, producerId, producerEpoch, baseSequence } = golden.header;
    const batch = encodeBatch(inputsOf(golden), {
      baseOffset,
      partitionLeaderEpoch,
      producerId,
      producerEpoch,
      baseSequence,
      transactional: id === "G18",
    });
    expect(batch).toEqual(golden.bytes);
  });

  test("G1 as a producer sends it has epoch -1 and the same CRC, and is stamped in place", () => {
    const golden = goldenBatch("G1");
    const batch = encodeBatch(inputsOf(golden), {});
    const header = headerOf(batch);
    expect(header.partitionLeaderEpoch).toBe(-1);
    expect(header.crc).toBe(0xdb5e9cdd);
    stampBatch(batch, 0, 0, 0);
    expect(batch).toEqual(golden.bytes);
  });

  test("G7 is a CreateTime batch whose leader stamped log append time", () => {
    const records = ["a", "b"].map((value, index) => ({
      key: null,
      value: new TextEncoder().encode(value),
      timestamp: T + 5 * index,
    }));
    const batch = encodeBatch(records, { baseOffset: 7, partitionLeaderEpoch: 0 });
    expect(stampMaxTimestamp(batch, headerOf(batch), "LogAppendTime", T + 999)).toBe(true);
    expect(batch).toEqual(goldenBatch("G7").bytes);
    expect(stampMaxTimestamp(batch, headerOf(batch), "LogAppendTime", T + 999)).toBe(false);
  });

  test.each([
    ["G13", "gzip", "G12"],
    ["G14", "snappy", "G12"],
    ["G15", "lz4", "G12"],
    ["G16", "zstd", "G12"],
    ["G10", "lz4", "G1"],
    ["G11", "snappy", "G1"],
  ] as const)(
    "%s is Kafka's %s payload in the header of %s, and ours decodes to the same records",
    (id, codec, plainId) => {
      const golden = goldenBatch(id).bytes;
      const plain = goldenBatch(plainId).bytes;
      expect(withCompressedPayload(plain, codec, recordsSection(golden, headerOf(golden)))).toEqual(golden);
      const payload = compressPayload(NODE_CODECS, codec, recordsSection(plain, headerOf(plain)));
      const ours = withCompressedPayload(plain, codec, payload);
      expect(isAccepted(ours)).toBe(true);
      expect(recordsOf(ours)).toEqual(recordsOf(golden));
    },
  );

  test("gzip, snappy and lz4 of ours begin as Kafka's do: G13, G14, G15", () => {
    const section = recordsSection(goldenBatch("G12").bytes, headerOf(goldenBatch("G12").bytes));
    for (const [id, codec, count] of [
      ["G13", "gzip", 10],
      ["G14", "snappy", 16],
      ["G15", "lz4", 7],
    ] as const) {
      const golden = goldenBatch(id).bytes;
      const ours = compressPayload(NODE_CODECS, codec, section);
      expect(ours.subarray(0, count)).toEqual(recordsSection(golden, headerOf(golden)).subarray(0, count));
    }
  });
});

describe("G1 damaged bit by bit", () => {
  const { bytes } = goldenBatch("G1");
  const bits = [0, 1, 2, 3, 4, 5, 6, 7];

  test("bytes 0 to 7: another offset, still valid; outside 0 .. 2^53 - 1 it is corrupt", () => {
    for (let positionBytes = 0; positionBytes < 8; positionBytes += 1) {
      for (const bit of bits) {
        const power = 8 * (7 - positionBytes) + bit;
        const flipped = withFlippedBit(bytes, positionBytes, bit);
        if (power < 53) {
          expect(headerOf(flipped).baseOffset).toBe(2 ** power);
          expect(isAccepted(flipped)).toBe(true);
        } else {
          expect(scanBatch(flipped, 0).type).toBe("corrupt");
        }
      }
    }
  });

  test("bytes 8 to 11: the length ends it early, cuts it off or fails the CRC", () => {
    for (let positionBytes = 8; positionBytes < 12; positionBytes += 1) {
      for (const bit of bits) expect(isAccepted(withFlippedBit(bytes, positionBytes, bit))).toBe(false);
    }
  });

  test("bytes 12 to 15: another leader epoch, still valid", () => {
    for (let positionBytes = 12; positionBytes < 16; positionBytes += 1) {
      for (const bit of bits) {
        const flipped = withFlippedBit(bytes, positionBytes, bit);
        expect(isAccepted(flipped)).toBe(true);
        expect(headerOf(flipped).partitionLeaderEpoch).toBe((1 << (8 * (15 - positionBytes) + bit)) | 0);
      }
    }
  });

  test("byte 16: any other magic is corrupt, and the reason names it", () => {
    for (const bit of bits) {
      const magic = ((2 ^ (1 << bit)) << 24) >> 24;
      expect(scanBatch(withFlippedBit(bytes, 16, bit), 0)).toEqual({
        type: "corrupt",
        positionBytes: 0,
        reason: `magic ${magic}`,
      });
    }
  });

  test("cut anywhere it is a torn tail: 61 bytes wanted while the header is cut, 76 after", () => {
    for (let length = 0; length < bytes.length; length += 1) {
      const neededBytes = length < 61 ? 61 : 76;
      expect(scanBatch(bytes.subarray(0, length), 0)).toEqual({ type: "incomplete", neededBytes });
    }
  });
});

test.each([
  ["G4", "abort"],
  ["G19", "commit"],
] as const)("%s is the %s marker that a coordinator of epoch 9 writes, and reads as one", (id, type) => {
  const { bytes, header } = goldenBatch(id);
  const marker = encodeEndTransactionMarker({
    type,
    coordinatorEpoch: 9,
    producerId: header.producerId,
    producerEpoch: header.producerEpoch,
    timestamp: header.maxTimestamp,
  });
  stampBatch(marker, 0, header.baseOffset, header.partitionLeaderEpoch);
  expect(marker).toEqual(bytes);
  expect(endTransactionMarkerOf(bytes, headerOf(bytes))).toEqual({ type, coordinatorEpoch: 9 });
});

test("nothing else that is golden reads as a transaction's marker but the cleaned one", () => {
  const markers = GOLDEN_BATCHES.filter(({ bytes }) => endTransactionMarkerOf(bytes, headerOf(bytes)) !== undefined);
  expect(markers.map(({ id }) => id)).toEqual(["G4", "G19", "G20"]);
});

test.each([
  ["G5", "G5", [501, 503]],
  ["G5a", "G5a", [501, 503]],
  ["G26", "G12", [12]],
  ["G20", "G19", [205]],
] as const)("%s is what compaction makes of %s by keeping its records %j", (cleanedId, id, offsets) => {
  const { bytes } = goldenBatch(id);
  const header = headerOf(bytes);
  const records = rawRecords(header, recordsSection(bytes, header)).filter(({ offset }) =>
    offsets.some((kept) => kept === offset),
  );
  const cleaned = goldenBatch(cleanedId).bytes;
  expect(rebuildBatch(header, records, deleteHorizonMs(headerOf(cleaned)))).toEqual(cleaned);
});

test.each(["G6", "G21"])("%s is the header that compaction leaves of a batch", (id) => {
  const { bytes } = goldenBatch(id);
  expect(emptyBatch(headerOf(bytes))).toEqual(bytes);
});

test("all of them one after another scan as a stream, each at its place", () => {
  const stream = new Uint8Array(Buffer.concat(GOLDEN_BATCHES.map((golden) => golden.bytes)));
  let positionBytes = 0;
  for (const golden of GOLDEN_BATCHES) {
    const header = headerOf(stream, positionBytes);
    expect(header.crc).toBe(golden.header.crc);
    expect(header.positionBytes).toBe(positionBytes);
    expect(checkCrc(stream, header)).toBe(true);
    expect(recordsSection(stream, header)).toEqual(golden.bytes.subarray(61));
    positionBytes += header.sizeInBytes;
  }
  expect(positionBytes).toBe(stream.length);
  expect(scanBatch(stream, positionBytes)).toEqual({ type: "incomplete", neededBytes: 61 });
});
