import { encodeUtf8, InvariantError } from "@tidemark/base";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { WireError } from "./error.ts";
import { checkCrc, readBatchHeader, recordsSection } from "./record-batch.ts";
import type { BatchHeader } from "./record-batch.ts";
import { decodeRecords, validateClientHeader, validateRecords } from "./record-decode.ts";
import { encodeBatch, encodeBatchInto, encodedRecordBytes } from "./record.ts";
import type { RecordInput } from "./record.ts";
import { incrementSequence } from "./sequence.ts";

const TIMESTAMP = 1_700_000_000_000;

function headerOf(bytes: Uint8Array): BatchHeader {
  const scan = readBatchHeader(bytes, 0);
  if (scan.type !== "batch") throw new Error(`expected a batch, got ${JSON.stringify(scan)}`);
  return scan.header;
}

function record(value: string, timestamp = TIMESTAMP): RecordInput {
  return { key: null, value: encodeUtf8(value), timestamp };
}

/** Runs it and returns the code of the WireError it threw, or "passed". Any other error is passed on. */
function outcomeOf(run: () => void): string {
  try {
    run();
  } catch (error) {
    if (error instanceof WireError) return error.code;
    throw error;
  }
  return "passed";
}

const field = fc.option(fc.uint8Array({ maxLength: 300 }), { nil: null });
const recordInput: fc.Arbitrary<RecordInput> = fc.record({
  key: field,
  value: field,
  headers: fc.array(fc.record({ key: fc.string({ unit: "binary", maxLength: 20 }), value: field }), { maxLength: 4 }),
  timestamp: fc.oneof(
    fc.constant(-1),
    fc.integer({ min: TIMESTAMP - 1000, max: TIMESTAMP + 1000 }),
    fc.integer({ min: -1, max: Number.MAX_SAFE_INTEGER - 1 }),
  ),
});
const recordInputs = fc.array(recordInput, { minLength: 1, maxLength: 20 });
const batchOptions = fc.record({
  producerId: fc.integer({ min: -1, max: Number.MAX_SAFE_INTEGER }),
  producerEpoch: fc.integer({ min: -1, max: 2 ** 15 - 1 }),
  baseSequence: fc.oneof(fc.integer({ min: -1, max: 2 ** 31 - 1 }), fc.constant(2 ** 31 - 2)),
  transactional: fc.boolean(),
  baseOffset: fc.integer({ min: 0, max: 2 ** 53 - 100 }),
  partitionLeaderEpoch: fc.integer({ min: -1, max: 2 ** 31 - 1 }),
});

describe("encode", () => {
  test("any records and options come back as they were", () => {
    fc.assert(
      fc.property(recordInputs, batchOptions, (records, options) => {
        const batch = encodeBatch(records, options);
        const header = headerOf(batch);
        expect(checkCrc(batch, header)).toBe(true);
        const { transactional, ...numbers } = options;
        expect(header).toMatchObject({
          ...numbers,
          attributes: transactional ? 0x10 : 0,
          sizeInBytes: batch.length,
          recordsCount: records.length,
          baseTimestamp: records[0]?.timestamp,
          maxTimestamp: Math.max(...records.map(({ timestamp }) => timestamp)),
        });
        const decoded = [...decodeRecords(header, recordsSection(batch, header))];
        expect(decoded).toEqual(
          records.map((input, index) => ({
            ...input,
            offset: options.baseOffset + index,
            timestampType: "CreateTime",
            sequence: options.baseSequence < 0 ? -1 : incrementSequence(options.baseSequence, index),
          })),
        );
        for (const fromOffset of [
          0,
          header.baseOffset,
          header.baseOffset + 1,
          header.lastOffset,
          header.lastOffset + 1,
        ])
          expect([...decodeRecords(header, recordsSection(batch, header), fromOffset)]).toEqual(
            decoded.filter(({ offset }) => offset >= fromOffset),
          );
      }),
      { numRuns: 300 },
    );
  });

  test("the announced sizes of its records and the header add up to the batch", () => {
    fc.assert(
      fc.property(recordInputs, (records) => {
        const baseTimestamp = records[0]?.timestamp ?? 0;
        const sizes = records.map((input, index) => encodedRecordBytes(input, baseTimestamp, index));
        expect(encodeBatch(records).length).toBe(61 + sizes.reduce((sum, size) => sum + size, 0));
      }),
    );
  });

  test("what a client would send passes the walk, which finds the same maximum timestamp", () => {
    fc.assert(
      fc.property(recordInputs, (records) => {
        const batch = encodeBatch(records);
        const header = headerOf(batch);
        validateClientHeader(header);
        expect(validateRecords(header, recordsSection(batch, header))).toMatchObject({
          maxTimestamp: header.maxTimestamp,
        });
      }),
    );
  });

  test("the maximum timestamp is that of the latest record, wherever it stands, to the millisecond", () => {
    const maxOf = (...deltas: readonly number[]): number =>
      headerOf(encodeBatch(deltas.map((delta) => record("a", TIMESTAMP + delta)))).maxTimestamp - TIMESTAMP;
    expect([maxOf(0, 1), maxOf(0, 1, 0), maxOf(0, -1), maxOf(5)]).toEqual([1, 1, 0, 5]);
  });

  test("producer fields default to none, base offset to 0 and the leader epoch to none", () => {
    const header = headerOf(encodeBatch([record("a")]));
    expect(header).toMatchObject({ producerId: -1, producerEpoch: -1, baseSequence: -1, baseOffset: 0 });
    expect(header).toMatchObject({ partitionLeaderEpoch: -1, attributes: 0 });
  });

  test("a lone surrogate in a header key is written as U+FFFD", () => {
    const batch = encodeBatch([{ ...record("a"), headers: [{ key: "x\ud800y", value: null }] }]);
    const header = headerOf(batch);
    const [decoded] = decodeRecords(header, recordsSection(batch, header));
    expect(decoded?.headers).toEqual([{ key: "x\ufffdy", value: null }]);
  });

  test("into memory of the caller: the same bytes, and nothing when they do not fit", () => {
    const records = [record("one"), record("two")];
    const batch = encodeBatch(records, { baseOffset: 5 });
    const target = new Uint8Array(batch.length + 3).fill(0xcc);
    expect(encodeBatchInto(target, records, { baseOffset: 5 })).toBe(batch.length);
    expect(target).toEqual(new Uint8Array([...batch, 0xcc, 0xcc, 0xcc]));
    const small = new Uint8Array(batch.length - 1).fill(0xcc);
    expect(encodeBatchInto(small, records)).toBe(batch.length);
    expect(small.every((byte) => byte === 0xcc)).toBe(true);
  });

  test.each([-2, 0.5, Number.NaN, Number.POSITIVE_INFINITY, Number.MAX_SAFE_INTEGER])(
    "timestamp %d is refused with INVALID_TIMESTAMP",
    (timestamp) => {
      expect(outcomeOf(() => encodeBatch([record("a"), record("b", timestamp)]))).toBe("INVALID_TIMESTAMP");
    },
  );

  test("no records, and producer fields out of range, are bugs of the caller", () => {
    expect(() => encodeBatch([])).toThrow(InvariantError);
    for (const options of [{ producerId: -2 }, { producerEpoch: 2 ** 15 }, { baseSequence: 2 ** 31 }]) {
      expect(() => encodeBatch([record("a")], options)).toThrow(InvariantError);
    }
  });
});

/** A batch around records written by hand: `0c 00 00 00 01 01 00` is one without key, value and headers. */
function handMade(recordsHex: string, header: Partial<BatchHeader> = {}): [BatchHeader, Uint8Array] {
  const payload = new Uint8Array(Buffer.from(recordsHex.replaceAll(" ", ""), "hex"));
  const encoded = headerOf(encodeBatch([record("a")]));
  return [{ ...encoded, ...header }, payload];
}

describe("decode and validate", () => {
  test.each([
    ["a payload that ends before the record", "0e 00 00 00 01 01 00", "a record runs past the payload"],
    ["a record longer than its fields", "0e 00 00 00 01 01 00 00", "a record is longer than its fields"],
    ["a record shorter than its fields", "0a 00 00 00 01 01 00", "a varint is past the end"],
    ["a length of zero", "00", "record length 0"],
    ["a negative length", "01", "record length -1"],
    ["a length of six bytes", "8c 80 80 80 80 00 00 00 00 01 01 00", "record length longer than its type"],
    ["bytes after the last record", "0c 00 00 00 01 01 00 ff", "bytes after the last record"],
    ["no bytes at all", "", "record length past the end"],
    ["a value past its record", "0e 00 00 00 01 06 61 00", "a field runs past its record"],
    ["a negative headers count", "0c 00 00 00 01 01 01", "headers count -1"],
    ["a headers count larger than what is left", "0c 00 00 00 01 01 02", "headers count 1"],
    ["a header without a key", "10 00 00 00 01 01 02 01 01", "a header has no key"],
    [
      "a varlong of eleven bytes",
      "20 00 80 80 80 80 80 80 80 80 80 80 00 00 01 01 00",
      "a varint is longer than its type",
    ],
  ])("%s is INVALID_RECORD for both", (_about, bytes, reason) => {
    const [header, payload] = handMade(bytes);
    const expected = expect.objectContaining({ name: "WireError", code: "INVALID_RECORD", reason });
    expect(() => [...decodeRecords(header, payload)]).toThrow(expected);
    expect(() => validateRecords(header, payload)).toThrow(expected);
  });

  test("a record that is stepped over has to end where it says, and its varints too", () => {
    const last = "0e 00 00 02 01 02 61 00";
    const from = (first: string): number[] => {
      const [header, payload] = handMade(`${first} ${last}`, { recordsCount: 2, lastOffsetDelta: 1 });
      return [...decodeRecords(header, payload, header.baseOffset + 1)].map(({ offset }) => offset - header.baseOffset);
    };
    expect(from("0e 00 00 00 01 02 60 00")).toEqual([1]);
    expect(from("0e 00 00 00 07 07 07 07")).toEqual([1]); // Its fields are nobody's business.
    for (const [first, reason] of [
      ["06 00 80 80", "a varint is past the end"],
      ["ee 00 00 00 00", "a record runs past the payload"],
      ["00", "record length 0"],
    ] as const)
      expect(() => from(first)).toThrow(reason);
  });

  test("any attributes byte, and any negative length as null, are accepted by both", () => {
    const [header, payload] = handMade("10 ff 00 00 0d 03 02 00 05");
    expect([...decodeRecords(header, payload)]).toMatchObject([
      { key: null, value: null, headers: [{ key: "", value: null }] },
    ]);
    expect(validateRecords(header, payload)).toEqual({
      maxTimestamp: TIMESTAMP,
      minTimestamp: TIMESTAMP,
      keylessCount: 1,
    });
  });

  test("a batch that counts fewer records than it holds is INVALID_RECORD, one that counts none is not looked at", () => {
    const two = "0c 00 00 00 01 01 00 0c 00 00 02 01 01 00";
    expect(outcomeOf(() => [...decodeRecords(...handMade(two, { recordsCount: 1 }))])).toBe("INVALID_RECORD");
    expect([...decodeRecords(...handMade(two, { recordsCount: 2, lastOffsetDelta: 1 }))]).toHaveLength(2);
    expect([...decodeRecords(...handMade("ff ff", { recordsCount: 0 }))]).toEqual([]);
  });

  test("gaps and steps back in the offsets are read; a client may not send them", () => {
    const bytes = "0c 00 00 0a 01 01 00 0c 00 00 00 01 01 00 0c 00 00 01 01 01 00"; // Deltas 5, 0, -1.
    const [header, payload] = handMade(bytes, { recordsCount: 3, lastOffsetDelta: 2, baseOffset: 7, baseSequence: 0 });
    const records = [...decodeRecords(header, payload)];
    expect(records.map(({ offset }) => offset)).toEqual([12, 7, 6]);
    expect(records.map(({ sequence }) => sequence)).toEqual([5, 0, 2 ** 31 - 1]);
    expect(outcomeOf(() => validateRecords(header, payload))).toBe("INVALID_RECORD");
    const gap = handMade("0c 00 00 00 01 01 00 0c 00 00 04 01 01 00", { recordsCount: 2, lastOffsetDelta: 1 });
    expect(outcomeOf(() => validateRecords(...gap))).toBe("INVALID_RECORD");
  });

  test("an offset below 0 or above 2^53 - 1 is INVALID_RECORD", () => {
    expect(outcomeOf(() => [...decodeRecords(...handMade("0c 00 00 01 01 01 00"))])).toBe("INVALID_RECORD");
    const last = { baseOffset: Number.MAX_SAFE_INTEGER };
    expect(outcomeOf(() => [...decodeRecords(...handMade("0c 00 00 02 01 01 00", last))])).toBe("INVALID_RECORD");
  });

  test("a timestamp outside the safe integers is INVALID_TIMESTAMP for both", () => {
    const far = handMade("1a 00 80 80 80 80 80 80 80 20 00 01 01 00");
    expect(outcomeOf(() => [...decodeRecords(...far)])).toBe("INVALID_TIMESTAMP");
    expect(outcomeOf(() => validateRecords(...far))).toBe("INVALID_TIMESTAMP");
    const late = handMade("0c 00 00 00 01 01 00", { attributes: 0x08, maxTimestamp: 2 ** 60 });
    expect(outcomeOf(() => [...decodeRecords(...late)])).toBe("INVALID_TIMESTAMP");
  });

  test("with log append time every record and the maximum read as the batch's, whatever the deltas say", () => {
    const [header, payload] = handMade("0c 00 06 00 01 01 00", { attributes: 0x08, maxTimestamp: TIMESTAMP + 9 });
    expect([...decodeRecords(header, payload)]).toMatchObject([
      { timestamp: TIMESTAMP + 9, timestampType: "LogAppendTime" },
    ]);
    expect(validateRecords(header, payload)).toMatchObject({ maxTimestamp: TIMESTAMP + 9 });
  });

  test("a record time below -1 is walked, and the stored maximum stays -1", () => {
    const [header, payload] = handMade("0c 00 00 00 01 01 00", { baseTimestamp: -7 });
    expect([...decodeRecords(header, payload)]).toMatchObject([{ timestamp: -7 }]);
    expect(validateRecords(header, payload)).toMatchObject({ maxTimestamp: -1 });
  });

  test("keys and values are views on the payload", () => {
    const batch = encodeBatch([{ key: encodeUtf8("k"), value: encodeUtf8("v"), timestamp: 1 }]);
    const header = headerOf(batch);
    const [decoded] = decodeRecords(header, recordsSection(batch, header));
    expect([decoded?.key?.buffer, decoded?.value?.buffer]).toEqual([batch.buffer, batch.buffer]);
    expect(decoded?.value?.byteOffset).toBeGreaterThan(61);
  });

  test.each([
    ["a base offset other than 0", { baseOffset: 1, lastOffset: 1 }, "INVALID_RECORD"],
    ["no records", { recordsCount: 0 }, "INVALID_RECORD"],
    ["a count that its last offset delta contradicts", { lastOffsetDelta: 1 }, "INVALID_RECORD"],
    ["the control bit", { attributes: 0x20 }, "INVALID_RECORD"],
    ["a producer id without a sequence", { producerId: 5, producerEpoch: 0 }, "INVALID_RECORD"],
    ["a producer id beyond 53 bits", { producerId: 2 ** 60, baseSequence: 0 }, "INVALID_RECORD"],
    ["a time beyond 53 bits", { maxTimestamp: 2 ** 60 }, "INVALID_TIMESTAMP"],
    ["log append time without a time", { attributes: 0x08, maxTimestamp: -1 }, "INVALID_TIMESTAMP"],
    ["a producer id with a sequence", { producerId: 5, producerEpoch: 0, baseSequence: 3 }, "passed"],
    ["a transaction", { attributes: 0x10, producerId: 5, producerEpoch: 0, baseSequence: 3 }, "passed"],
    ["log append time with a time", { attributes: 0x08 }, "passed"],
  ])("of a client's header: %s (%j): %s", (_about, facts, outcome) => {
    const [header] = handMade("", facts);
    expect(outcomeOf(() => validateClientHeader(header))).toBe(outcome);
  });
});

test("whatever happens to the records of a batch, decoding and walking throw a WireError or nothing, and agree", () => {
  const batch = encodeBatch([
    { key: encodeUtf8("key"), value: encodeUtf8("value"), timestamp: TIMESTAMP, headers: [{ key: "h", value: null }] },
    record("another", TIMESTAMP - 3),
    { key: null, value: null, timestamp: -1 },
  ]);
  const change = fc.record({ at: fc.integer({ min: 61, max: batch.length - 1 }), value: fc.nat(255) });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 4 }), fc.integer({ min: 61, max: batch.length }), (changes, end) => {
      const bytes = batch.slice();
      for (const { at, value } of changes) bytes[at] = value;
      const header = headerOf(bytes);
      const payload = bytes.subarray(61, end);
      let decodedMax = -1;
      const decoded = outcomeOf(() => {
        for (const { timestamp } of decodeRecords(header, payload)) decodedMax = Math.max(decodedMax, timestamp);
      });
      let walkedMax = -1;
      const walked = outcomeOf(() => {
        walkedMax = validateRecords(header, payload).maxTimestamp;
      });
      // The walk is the stricter one: it also looks at the offset deltas.
      const agreed = walked === "passed" ? ["passed", walkedMax] : [decoded, decodedMax];
      expect([decoded, decodedMax]).toEqual(agreed);
      expect(decoded !== "passed" && walked === "passed").toBe(false);
    }),
    { numRuns: 1000 },
  );
});

test("random payloads never make decoding or walking throw anything but a WireError", () => {
  const header = headerOf(encodeBatch([record("a"), record("b")]));
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), (payload) => {
      const outcomes = [
        outcomeOf(() => [...decodeRecords(header, payload)]),
        outcomeOf(() => validateRecords(header, payload)),
      ];
      for (const outcome of outcomes) expect(["passed", "INVALID_RECORD", "INVALID_TIMESTAMP"]).toContain(outcome);
    }),
    { numRuns: 1000 },
  );
});
