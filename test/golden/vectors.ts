/**
 * Record batches as Apache Kafka 4.3.1 encodes them, with what its classes decode from them. The facts are Kafka's, none
 * was taken from our codec. "Compacted" batches were made by its log cleaner's `filterTo` at clock T with
 * delete.retention.ms of a day. Payloads of G13 to G16 are as its producer compresses them at the default level.
 */

export const T = 1_700_000_000_000;
const DAY_MS = 86_400_000;

export interface GoldenHeader {
  readonly baseOffset: number;
  readonly sizeInBytes: number;
  readonly partitionLeaderEpoch: number;
  readonly crc: number;
  readonly attributes: number;
  readonly lastOffsetDelta: number;
  readonly baseTimestamp: number;
  readonly maxTimestamp: number;
  readonly producerId: number;
  readonly producerEpoch: number;
  readonly baseSequence: number;
  readonly recordsCount: number;
}

export interface GoldenRecord {
  readonly offset: number;
  readonly timestamp: number;
  readonly sequence: number;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly { readonly key: string; readonly value: Uint8Array | null }[];
}

export interface GoldenBatch {
  readonly id: string;
  readonly about: string;
  readonly bytes: Uint8Array;
  readonly header: GoldenHeader;
  readonly records: readonly GoldenRecord[];
}

/** Blanks and line ends are for the eye. */
function hex(digits: string): Uint8Array {
  return new Uint8Array(Buffer.from(digits.replaceAll(/\s/g, ""), "hex"));
}

function text(value: string): Uint8Array {
  return new TextEncoder().encode(value);
}

export const GOLDEN_BATCHES: readonly GoldenBatch[] = [
  {
    id: "G1",
    about: "one record",
    bytes: hex(`
      0000000000000000000000400000000002db5e9cdd0000000000000000018bcfe568000000018bcfe56800ffffffffffffff
      ffffffffffffff000000011c000000066b65790a76616c756500
    `),
    header: {
      baseOffset: 0,
      sizeInBytes: 76,
      partitionLeaderEpoch: 0,
      crc: 0xdb5e9cdd,
      attributes: 0x00,
      lastOffsetDelta: 0,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [{ offset: 0, timestamp: T, sequence: -1, key: text("key"), value: text("value"), headers: [] }],
  },
  {
    id: "G2",
    about: "idempotent, nulls, empty fields, headers, a timestamp that goes back",
    bytes: hex(`
      000000000000006400000055000000050247b2b4730000000000020000018bcfe568000000018bcfe568070000000000000f
      a000010000000a0000000310000000010476300026000e02046b31010604683102780468320100000c000504000000
    `),
    header: {
      baseOffset: 100,
      sizeInBytes: 97,
      partitionLeaderEpoch: 5,
      crc: 0x47b2b473,
      attributes: 0x00,
      lastOffsetDelta: 2,
      baseTimestamp: T,
      maxTimestamp: T + 7,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: 10,
      recordsCount: 3,
    },
    records: [
      { offset: 100, timestamp: T, sequence: 10, key: null, value: text("v0"), headers: [] },
      {
        offset: 101,
        timestamp: T + 7,
        sequence: 11,
        key: text("k1"),
        value: null,
        headers: [
          { key: "h1", value: text("x") },
          { key: "h2", value: null },
          { key: "", value: text("") },
        ],
      },
      { offset: 102, timestamp: T - 3, sequence: 12, key: text(""), value: text(""), headers: [] },
    ],
  },
  {
    id: "G3",
    about: "control: LeaderChange v0, leader 1, voters 1 2 3, granting 1 3",
    bytes: hex(`
      000000000000002a0000005e0000000702ca7001930020000000000000018bcfe568000000018bcfe56800ffffffffffffff
      ffffffffffffff00000001580000000800000002440000000000010400000001000000000200000000030003000000010000
      000003000000
    `),
    header: {
      baseOffset: 42,
      sizeInBytes: 106,
      partitionLeaderEpoch: 7,
      crc: 0xca700193,
      attributes: 0x20,
      lastOffsetDelta: 0,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [
      {
        offset: 42,
        timestamp: T,
        sequence: -1,
        key: hex("0000 0002"),
        value: hex("0000 00000001 04 00000001 00 00000002 00 00000003 00 03 00000001 00 00000003 00 00"),
        headers: [],
      },
    ],
  },
  {
    id: "G4",
    about: "control: ABORT marker, coordinator epoch 9",
    bytes: hex(`
      00000000000000cd000000420000000502c4c8967e0030000000000000018bcfe569f40000018bcfe569f40000000000000f
      a00001ffffffff000000012000000008000000000c00000000000900
    `),
    header: {
      baseOffset: 205,
      sizeInBytes: 78,
      partitionLeaderEpoch: 5,
      crc: 0xc4c8967e,
      attributes: 0x30,
      lastOffsetDelta: 0,
      baseTimestamp: T + 500,
      maxTimestamp: T + 500,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [
      {
        offset: 205,
        timestamp: T + 500,
        sequence: -1,
        key: hex("0000 0000"),
        value: hex("0000 00000009"),
        headers: [],
      },
    ],
  },
  {
    id: "G5",
    about: "compacted, gaps, delete horizon",
    bytes: hex(`
      00000000000001f4000000480000000302e8b45e7f0040000000040000018bd50bc4000000018bcfe568030000000000000f
      a0000100000014000000021400fdefb25202026101001600f9efb252060262024200
    `),
    header: {
      baseOffset: 500,
      sizeInBytes: 84,
      partitionLeaderEpoch: 3,
      crc: 0xe8b45e7f,
      attributes: 0x40,
      lastOffsetDelta: 4,
      baseTimestamp: T + DAY_MS,
      maxTimestamp: T + 3,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: 20,
      recordsCount: 2,
    },
    records: [
      { offset: 501, timestamp: T + 1, sequence: 21, key: text("a"), value: null, headers: [] },
      { offset: 503, timestamp: T + 3, sequence: 23, key: text("b"), value: text("B"), headers: [] },
    ],
  },
  {
    id: "G5a",
    about: "compacted, gaps, no horizon",
    bytes: hex(`
      00000000000001f400000043000000030245d8c5a80000000000040000018bcfe568010000018bcfe568030000000000000f
      a000010000001400000002100000020261024100100004060262024200
    `),
    header: {
      baseOffset: 500,
      sizeInBytes: 79,
      partitionLeaderEpoch: 3,
      crc: 0x45d8c5a8,
      attributes: 0x00,
      lastOffsetDelta: 4,
      baseTimestamp: T + 1,
      maxTimestamp: T + 3,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: 20,
      recordsCount: 2,
    },
    records: [
      { offset: 501, timestamp: T + 1, sequence: 21, key: text("a"), value: text("A"), headers: [] },
      { offset: 503, timestamp: T + 3, sequence: 23, key: text("b"), value: text("B"), headers: [] },
    ],
  },
  {
    id: "G6",
    about: "emptied by compaction",
    bytes: hex(`
      00000000000001f4000000310000000302272dfbf1000000000004ffffffffffffffff0000018bcfe568040000000000000f
      a000010000001400000000
    `),
    header: {
      baseOffset: 500,
      sizeInBytes: 61,
      partitionLeaderEpoch: 3,
      crc: 0x272dfbf1,
      attributes: 0x00,
      lastOffsetDelta: 4,
      baseTimestamp: -1,
      maxTimestamp: T + 4,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: 20,
      recordsCount: 0,
    },
    records: [],
  },
  {
    id: "G7",
    about: "log append time T + 999, sent at T and T + 5",
    bytes: hex(`
      0000000000000007000000410000000002d00bf2d90008000000010000018bcfe568000000018bcfe56be7ffffffffffffff
      ffffffffffffff000000020e000000010261000e000a0201026200
    `),
    header: {
      baseOffset: 7,
      sizeInBytes: 77,
      partitionLeaderEpoch: 0,
      crc: 0xd00bf2d9,
      attributes: 0x08,
      lastOffsetDelta: 1,
      baseTimestamp: T,
      maxTimestamp: T + 999,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 2,
    },
    records: [
      { offset: 7, timestamp: T + 999, sequence: -1, key: null, value: text("a"), headers: [] },
      { offset: 8, timestamp: T + 999, sequence: -1, key: null, value: text("b"), headers: [] },
    ],
  },
  {
    id: "G8",
    about: "control: SnapshotHeader",
    bytes: hex(`
      0000000000000000000000470000000002695d78600020000000000000018bcfe568000000018bcfe56800ffffffffffffff
      ffffffffffffff000000012a000000080000000316000000000000000000000000
    `),
    header: {
      baseOffset: 0,
      sizeInBytes: 83,
      partitionLeaderEpoch: 0,
      crc: 0x695d7860,
      attributes: 0x20,
      lastOffsetDelta: 0,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [
      {
        offset: 0,
        timestamp: T,
        sequence: -1,
        key: hex("0000 0003"),
        value: hex("0000 0000000000000000 00"),
        headers: [],
      },
    ],
  },
  {
    id: "G9",
    about: "control: SnapshotFooter",
    bytes: hex(`
      00000000000000010000003f00000000028f6608e60020000000000000018bcfe568000000018bcfe56800ffffffffffffff
      ffffffffffffff000000011a00000008000000040600000000
    `),
    header: {
      baseOffset: 1,
      sizeInBytes: 75,
      partitionLeaderEpoch: 0,
      crc: 0x8f6608e6,
      attributes: 0x20,
      lastOffsetDelta: 0,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [{ offset: 1, timestamp: T, sequence: -1, key: hex("0000 0004"), value: hex("0000 00"), headers: [] }],
  },
  {
    id: "G10",
    about: "lz4, one stored block",
    bytes: hex(`
      00000000000000000000004f000000000252cd43460003000000000000018bcfe568000000018bcfe56800ffffffffffffff
      ffffffffffffff0000000104224d186040820f0000801c000000066b65790a76616c75650000000000
    `),
    header: {
      baseOffset: 0,
      sizeInBytes: 91,
      partitionLeaderEpoch: 0,
      crc: 0x52cd4346,
      attributes: 0x03,
      lastOffsetDelta: 0,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [{ offset: 0, timestamp: T, sequence: -1, key: text("key"), value: text("value"), headers: [] }],
  },
  {
    id: "G11",
    about: "snappy, xerial, one literal block",
    bytes: hex(`
      00000000000000000000005600000000021e8178b00002000000000000018bcfe568000000018bcfe56800ffffffffffffff
      ffffffffffffff0000000182534e41505059000000000100000001000000110f381c000000066b65790a76616c756500
    `),
    header: {
      baseOffset: 0,
      sizeInBytes: 98,
      partitionLeaderEpoch: 0,
      crc: 0x1e8178b0,
      attributes: 0x02,
      lastOffsetDelta: 0,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [{ offset: 0, timestamp: T, sequence: -1, key: text("key"), value: text("value"), headers: [] }],
  },
  {
    id: "G12",
    about: "three repetitive records, which G13 to G16 compress",
    bytes: hex(`
      000000000000000a000001150000000402586f195c0000000000020000018bcfe568000000018bcfe56802ffffffffffffff
      ffffffffffffff000000039401000000066b6579800161626364656667686162636465666768616263646566676861626364
      656667686162636465666768616263646566676861626364656667686162636465666768009401000202066b657980016162
      6364656667686162636465666768616263646566676861626364656667686162636465666768616263646566676861626364
      656667686162636465666768009401000404066b657980016162636465666768616263646566676861626364656667686162
      636465666768616263646566676861626364656667686162636465666768616263646566676800
    `),
    header: {
      baseOffset: 10,
      sizeInBytes: 289,
      partitionLeaderEpoch: 4,
      crc: 0x586f195c,
      attributes: 0x00,
      lastOffsetDelta: 2,
      baseTimestamp: T,
      maxTimestamp: T + 2,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 3,
    },
    records: [
      { offset: 10, timestamp: T, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 11, timestamp: T + 1, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 12, timestamp: T + 2, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
    ],
  },
  {
    id: "G13",
    about: "gzip",
    bytes: hex(`
      000000000000000a00000067000000040209e0bbdc0001000000020000018bcfe568000000018bcfe56802ffffffffffffff
      ffffffffffffff000000031f8b08000000000000ff9bc2c8c0c0c0969d5ad9c09898949c929a969e412ecd3085918189897a
      66b1b050c92c00debd6260e4000000
    `),
    header: {
      baseOffset: 10,
      sizeInBytes: 115,
      partitionLeaderEpoch: 4,
      crc: 0x09e0bbdc,
      attributes: 0x01,
      lastOffsetDelta: 2,
      baseTimestamp: T,
      maxTimestamp: T + 2,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 3,
    },
    records: [
      { offset: 10, timestamp: T, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 11, timestamp: T + 1, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 12, timestamp: T + 2, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
    ],
  },
  {
    id: "G14",
    about: "snappy",
    bytes: hex(`
      000000000000000a0000007200000004021567411a0002000000020000018bcfe568000000018bcfe56802ffffffffffffff
      ffffffffffffff0000000382534e415050590000000001000000010000002de401489401000000066b657980016162636465
      666768de080014009401000202fe4c00194c040404fe4c000d4c
    `),
    header: {
      baseOffset: 10,
      sizeInBytes: 126,
      partitionLeaderEpoch: 4,
      crc: 0x1567411a,
      attributes: 0x02,
      lastOffsetDelta: 2,
      baseTimestamp: T,
      maxTimestamp: T + 2,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 3,
    },
    records: [
      { offset: 10, timestamp: T, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 11, timestamp: T + 1, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 12, timestamp: T + 2, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
    ],
  },
  {
    id: "G15",
    about: "lz4",
    bytes: hex(`
      000000000000000a0000006e000000040257ad80fa0003000000020000018bcfe568000000018bcfe56802ffffffffffffff
      ffffffffffffff0000000304224d186040822e000000ff049401000000066b6579800161626364656667680800256f009401
      0002024c00372f04044c002f50656667680000000000
    `),
    header: {
      baseOffset: 10,
      sizeInBytes: 122,
      partitionLeaderEpoch: 4,
      crc: 0x57ad80fa,
      attributes: 0x03,
      lastOffsetDelta: 2,
      baseTimestamp: T,
      maxTimestamp: T + 2,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 3,
    },
    records: [
      { offset: 10, timestamp: T, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 11, timestamp: T + 1, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 12, timestamp: T + 2, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
    ],
  },
  {
    id: "G16",
    about: "zstd",
    bytes: hex(`
      000000000000000a000000640000000402799d20c90004000000020000018bcfe568000000018bcfe56802ffffffffffffff
      ffffffffffffff0000000328b52ffd00583c0100d89401000000066b65798001616263646566676800940100020204040300
      0428be27a065779630010000
    `),
    header: {
      baseOffset: 10,
      sizeInBytes: 112,
      partitionLeaderEpoch: 4,
      crc: 0x799d20c9,
      attributes: 0x04,
      lastOffsetDelta: 2,
      baseTimestamp: T,
      maxTimestamp: T + 2,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 3,
    },
    records: [
      { offset: 10, timestamp: T, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 11, timestamp: T + 1, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
      { offset: 12, timestamp: T + 2, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
    ],
  },
  {
    id: "G17",
    about: "idempotent",
    bytes: hex(`
      00000000000000c80000004300000005020444b3170000000000010000018bcfe568000000018bcfe568000000000000000f
      a00000000000000000000210000000026b02760010000002026b027700
    `),
    header: {
      baseOffset: 200,
      sizeInBytes: 79,
      partitionLeaderEpoch: 5,
      crc: 0x0444b317,
      attributes: 0x00,
      lastOffsetDelta: 1,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: 4000,
      producerEpoch: 0,
      baseSequence: 0,
      recordsCount: 2,
    },
    records: [
      { offset: 200, timestamp: T, sequence: 0, key: text("k"), value: text("v"), headers: [] },
      { offset: 201, timestamp: T, sequence: 1, key: text("k"), value: text("w"), headers: [] },
    ],
  },
  {
    id: "G18",
    about: "transactional",
    bytes: hex(`
      00000000000000c8000000430000000502d168b7100010000000010000018bcfe568000000018bcfe568000000000000000f
      a00001000000000000000210000000026b02760010000002026b027700
    `),
    header: {
      baseOffset: 200,
      sizeInBytes: 79,
      partitionLeaderEpoch: 5,
      crc: 0xd168b710,
      attributes: 0x10,
      lastOffsetDelta: 1,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: 0,
      recordsCount: 2,
    },
    records: [
      { offset: 200, timestamp: T, sequence: 0, key: text("k"), value: text("v"), headers: [] },
      { offset: 201, timestamp: T, sequence: 1, key: text("k"), value: text("w"), headers: [] },
    ],
  },
  {
    id: "G19",
    about: "control: COMMIT marker",
    bytes: hex(`
      00000000000000cd00000042000000050230f640360030000000000000018bcfe569f40000018bcfe569f40000000000000f
      a00001ffffffff000000012000000008000000010c00000000000900
    `),
    header: {
      baseOffset: 205,
      sizeInBytes: 78,
      partitionLeaderEpoch: 5,
      crc: 0x30f64036,
      attributes: 0x30,
      lastOffsetDelta: 0,
      baseTimestamp: T + 500,
      maxTimestamp: T + 500,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [
      {
        offset: 205,
        timestamp: T + 500,
        sequence: -1,
        key: hex("0000 0001"),
        value: hex("0000 00000009"),
        headers: [],
      },
    ],
  },
  {
    id: "G20",
    about: "control: COMMIT marker of an emptied transaction, delete horizon",
    bytes: hex(`
      00000000000000cd00000045000000050236b557860070000000000000018bd50bc4000000018bcfe569f40000000000000f
      a00001ffffffff00000001260097e8b2520008000000010c00000000000900
    `),
    header: {
      baseOffset: 205,
      sizeInBytes: 81,
      partitionLeaderEpoch: 5,
      crc: 0x36b55786,
      attributes: 0x70,
      lastOffsetDelta: 0,
      baseTimestamp: T + DAY_MS,
      maxTimestamp: T + 500,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [
      {
        offset: 205,
        timestamp: T + 500,
        sequence: -1,
        key: hex("0000 0001"),
        value: hex("0000 00000009"),
        headers: [],
      },
    ],
  },
  {
    id: "G21",
    about: "emptied; was transactional, log append time and lz4",
    bytes: hex(`
      000000000000000a00000031000000040290d40d04001800000002ffffffffffffffff0000018bcfe56be70000000000000f
      a000010000000700000000
    `),
    header: {
      baseOffset: 10,
      sizeInBytes: 61,
      partitionLeaderEpoch: 4,
      crc: 0x90d40d04,
      attributes: 0x18,
      lastOffsetDelta: 2,
      baseTimestamp: -1,
      maxTimestamp: T + 999,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: 7,
      recordsCount: 0,
    },
    records: [],
  },
  {
    id: "G22",
    about: "sequence wraps to 0",
    bytes: hex(`
      00000000000000000000004900000000021528e13c0000000000020000018bcfe568000000018bcfe568000000000000000f
      a000017ffffffe000000030e000000010261000e000002010262000e00000401026300
    `),
    header: {
      baseOffset: 0,
      sizeInBytes: 85,
      partitionLeaderEpoch: 0,
      crc: 0x1528e13c,
      attributes: 0x00,
      lastOffsetDelta: 2,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: 4000,
      producerEpoch: 1,
      baseSequence: 2147483646,
      recordsCount: 3,
    },
    records: [
      { offset: 0, timestamp: T, sequence: 2147483646, key: null, value: text("a"), headers: [] },
      { offset: 1, timestamp: T, sequence: 2147483647, key: null, value: text("b"), headers: [] },
      { offset: 2, timestamp: T, sequence: 0, key: null, value: text("c"), headers: [] },
    ],
  },
  {
    id: "G23",
    about: "control: KRaftVersion 1",
    bytes: hex(`
      0000000000000001000000410000000302a89c55860020000000000000018bcfe568000000018bcfe56800ffffffffffffff
      ffffffffffffff000000011e00000008000000050a000000010000
    `),
    header: {
      baseOffset: 1,
      sizeInBytes: 77,
      partitionLeaderEpoch: 3,
      crc: 0xa89c5586,
      attributes: 0x20,
      lastOffsetDelta: 0,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [
      { offset: 1, timestamp: T, sequence: -1, key: hex("0000 0005"), value: hex("0000 0001 00"), headers: [] },
    ],
  },
  {
    id: "G24",
    about: "control: Voters",
    bytes: hex(`
      0000000000000002000000740000000302ef498a2f0020000000000000018bcfe568000000018bcfe56800ffffffffffffff
      ffffffffffffff00000001820100000008000000066e0000020000000100000000000000010000000000000002020b434f4e
      54524f4c4c45520a6c6f63616c686f73742385000000000100000000
    `),
    header: {
      baseOffset: 2,
      sizeInBytes: 128,
      partitionLeaderEpoch: 3,
      crc: 0xef498a2f,
      attributes: 0x20,
      lastOffsetDelta: 0,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [
      {
        offset: 2,
        timestamp: T,
        sequence: -1,
        key: hex("0000 0006"),
        value: hex(
          "0000 02 00000001 00000000000000010000000000000002 02 0b434f4e54524f4c4c4552 0a6c6f63616c686f7374 2385 00 0000 0001 00 00 00",
        ),
        headers: [],
      },
    ],
  },
  {
    id: "G25",
    about: "no timestamp, null key and value, epoch as a producer sends it",
    bytes: hex(`
      000000000000000000000038ffffffff02baab5a07000000000000ffffffffffffffffffffffffffffffffffffffffffffff
      ffffffffffffff000000010c000000010100
    `),
    header: {
      baseOffset: 0,
      sizeInBytes: 68,
      partitionLeaderEpoch: -1,
      crc: 0xbaab5a07,
      attributes: 0x00,
      lastOffsetDelta: 0,
      baseTimestamp: -1,
      maxTimestamp: -1,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [{ offset: 0, timestamp: -1, sequence: -1, key: null, value: null, headers: [] }],
  },
  {
    id: "G26",
    about: "G12 compacted to its last record",
    bytes: hex(`
      000000000000000a0000007d0000000402e911e0670000000000020000018bcfe568020000018bcfe56802ffffffffffffff
      ffffffffffffff000000019401000004066b6579800161626364656667686162636465666768616263646566676861626364
      65666768616263646566676861626364656667686162636465666768616263646566676800
    `),
    header: {
      baseOffset: 10,
      sizeInBytes: 137,
      partitionLeaderEpoch: 4,
      crc: 0xe911e067,
      attributes: 0x00,
      lastOffsetDelta: 2,
      baseTimestamp: T + 2,
      maxTimestamp: T + 2,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 1,
    },
    records: [
      { offset: 12, timestamp: T + 2, sequence: -1, key: text("key"), value: text("abcdefgh".repeat(8)), headers: [] },
    ],
  },
  {
    id: "G27",
    about: "control: LeaderChange, KRaftVersion and Voters in one batch",
    bytes: hex(`
      0000000000000000000000a20000000102755749a10020000000020000018bcfe568000000018bcfe56800ffffffffffffff
      ffffffffffffff000000033a00000008000000022600000000000102000000010002000000010000001e0000020800000005
      0a000000010000820100000408000000066e0000020000000100000000000000010000000000000002020b434f4e54524f4c
      4c45520a6c6f63616c686f73742385000000000100000000
    `),
    header: {
      baseOffset: 0,
      sizeInBytes: 174,
      partitionLeaderEpoch: 1,
      crc: 0x755749a1,
      attributes: 0x20,
      lastOffsetDelta: 2,
      baseTimestamp: T,
      maxTimestamp: T,
      producerId: -1,
      producerEpoch: -1,
      baseSequence: -1,
      recordsCount: 3,
    },
    records: [
      {
        offset: 0,
        timestamp: T,
        sequence: -1,
        key: hex("0000 0002"),
        value: hex("0000 00000001 02 00000001 00 02 00000001 00 00"),
        headers: [],
      },
      { offset: 1, timestamp: T, sequence: -1, key: hex("0000 0005"), value: hex("0000 0001 00"), headers: [] },
      {
        offset: 2,
        timestamp: T,
        sequence: -1,
        key: hex("0000 0006"),
        value: hex(
          "0000 02 00000001 00000000000000010000000000000002 02 0b434f4e54524f4c4c4552 0a6c6f63616c686f7374 2385 00 0000 0001 00 00 00",
        ),
        headers: [],
      },
    ],
  },
];

/** The batch with that id, or an error that names it. */
export function goldenBatch(id: string): GoldenBatch {
  const batch = GOLDEN_BATCHES.find((candidate) => candidate.id === id);
  if (batch === undefined) throw new Error(`no golden batch ${id}`);
  return batch;
}
