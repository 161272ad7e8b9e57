import { expect, test } from "vitest";
import { decodeProducerSnapshot, encodeProducerSnapshot } from "./producer-snapshot.ts";
import type { ProducerEntry } from "./producer-state.ts";
import { TransactionIndex } from "./transaction-index.ts";
import { toOffset } from "@tidemark/base";

const T = 1_700_000_000_000;

function entry(fields: Partial<ProducerEntry>): ProducerEntry {
  return {
    producerEpoch: 1,
    batches: [],
    lastTimestamp: T,
    coordinatorEpoch: -1,
    transactionFirstOffset: undefined,
    ...fields,
  };
}

/** As the classes of Apache Kafka 4.3.1 write them. */
const GOLDEN: readonly (readonly [string, string, ReadonlyMap<number, ProducerEntry>])[] = [
  [
    "one producer",
    "0001d80b31ba000000010000000000000fa000010000000c0000000000000066000000020000018bcfe568" +
      "0700000009ffffffffffffffff",
    new Map([
      [
        4000,
        entry({
          batches: [{ lastSequence: 12, lastOffset: 102, offsetDelta: 2, timestamp: T + 7 }],
          lastTimestamp: T + 7,
          coordinatorEpoch: 9,
        }),
      ],
    ]),
  ],
  ["none", "000148674bc700000000", new Map()],
  [
    "an open transaction",
    "000192e5d56d000000010000000000000fa000010000000100000000000000c9000000010000018bcfe568" +
      "00ffffffff00000000000000c8",
    new Map([
      [
        4000,
        entry({
          batches: [{ lastSequence: 1, lastOffset: 201, offsetDelta: 1, timestamp: T }],
          transactionFirstOffset: 200,
        }),
      ],
    ]),
  ],
];

test.each(GOLDEN)("a snapshot of %s has Kafka's bytes, and reads back", (_what, hex, entries) => {
  const bytes = encodeProducerSnapshot(entries);
  expect(Buffer.from(bytes).toString("hex")).toBe(hex);
  expect(decodeProducerSnapshot(bytes)).toEqual({ type: "snapshot", entries });
});

test("a producer known from a marker only has no batch: -1, -1, 0", () => {
  const entries = new Map([[7, entry({ coordinatorEpoch: 3 })]]);
  const bytes = encodeProducerSnapshot(entries);
  expect(Buffer.from(bytes.subarray(20, 36)).toString("hex")).toBe("ffffffffffffffffffffffff00000000");
  expect(decodeProducerSnapshot(bytes)).toEqual({ type: "snapshot", entries });
});

test("BR-024 no flipped bit, no missing and no trailing byte passes for a snapshot", () => {
  const bytes = encodeProducerSnapshot(GOLDEN[0]?.[2] ?? new Map());
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const copy = bytes.slice();
    copy[bit >> 3] = (copy[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    expect(decodeProducerSnapshot(copy).type, `bit ${bit}`).toBe("damaged");
  }
  for (let length = 0; length < bytes.length; length += 1)
    expect(decodeProducerSnapshot(bytes.slice(0, length)).type, `${length} bytes`).toBe("damaged");
  const longer = new Uint8Array(bytes.length + 1);
  longer.set(bytes);
  expect(decodeProducerSnapshot(longer).type).toBe("damaged");
});

test("a transaction index entry has Kafka's bytes, and reads back", () => {
  const entries = [{ producerId: 4000, firstOffset: 200, lastOffset: 205, lastStableOffset: 206 }];
  const bytes = new TransactionIndex(toOffset(0), entries).encode();
  expect(Buffer.from(bytes).toString("hex")).toBe(
    "00000000000000000fa000000000000000c800000000000000cd00000000000000ce",
  );
  const decoded = TransactionIndex.decode(toOffset(0), bytes);
  expect(decoded instanceof TransactionIndex && decoded.entries).toEqual(entries);
});

test.each([
  ["cut short", (bytes: Uint8Array) => bytes.slice(0, 33)],
  ["a newer version", (bytes: Uint8Array) => bytes.map((byte, at) => (at === 1 ? 1 : byte))],
  ["a marker before its segment", (bytes: Uint8Array) => bytes.map((byte, at) => (at === 25 ? 0 : byte))],
  ["a negative producer id", (bytes: Uint8Array) => bytes.map((byte, at) => (at === 2 ? 0xff : byte))],
])("a transaction index with %s is none", (_what, damage) => {
  const entries = [{ producerId: 4000, firstOffset: 200, lastOffset: 205, lastStableOffset: 206 }];
  const bytes = new TransactionIndex(toOffset(150), entries).encode();
  expect(TransactionIndex.decode(toOffset(150), damage(bytes))).toHaveProperty("problem");
});
