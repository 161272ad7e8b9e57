import { encodeUtf8, InvariantError } from "@tidemark/base";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  checkCrc,
  compressionCodec,
  MAGIC_V2,
  readBatchHeader,
  recordsSection,
  scanBatch,
  stampBatch,
  stampMaxTimestamp,
  withCompressedPayload,
} from "./record-batch.ts";
import type { BatchHeader, BatchScan } from "./record-batch.ts";
import { encodeBatch } from "./record.ts";

const TIMESTAMP = 1_700_000_000_000;

function batchOf(...values: readonly string[]): Uint8Array {
  return encodeBatch(values.map((value) => ({ key: null, value: encodeUtf8(value), timestamp: TIMESTAMP })));
}

function headerOf(bytes: Uint8Array, positionBytes = 0): BatchHeader {
  const scan = scanBatch(bytes, positionBytes);
  if (scan.type !== "batch") throw new Error(`expected a batch, got ${JSON.stringify(scan)}`);
  return scan.header;
}

function edited(bytes: Uint8Array, edit: (view: DataView) => void): Uint8Array {
  const copy = bytes.slice();
  edit(new DataView(copy.buffer));
  return copy;
}

describe("scan", () => {
  const batch = batchOf("a", "b", "c");

  test("a batch is found where it lies, with the bytes around it left alone", () => {
    const bytes = new Uint8Array(7 + batch.length + 9).fill(0xee);
    bytes.set(batch, 7);
    const header = headerOf(bytes, 7);
    expect(header).toMatchObject({ positionBytes: 7, sizeInBytes: batch.length, recordsCount: 3, lastOffset: 2 });
    expect(checkCrc(bytes, header)).toBe(true);
    expect(recordsSection(bytes, header)).toEqual(batch.subarray(61));
  });

  test("what lies at or after the given end is not there", () => {
    const twice = new Uint8Array([...batch, ...batch]);
    expect(scanBatch(twice, 0, batch.length - 1)).toEqual({ type: "incomplete", neededBytes: batch.length });
    expect(scanBatch(twice, batch.length, batch.length + 60)).toEqual({ type: "incomplete", neededBytes: 61 });
    expect(scanBatch(twice, batch.length, batch.length)).toEqual({ type: "incomplete", neededBytes: 61 });
    expect(scanBatch(twice, 0, batch.length).type).toBe("batch");
  });

  test("a header alone is enough for readBatchHeader, not for scanBatch", () => {
    const alone = batch.subarray(0, 61);
    expect(readBatchHeader(alone, 0)).toEqual({ type: "batch", header: headerOf(batch) });
    expect(scanBatch(alone, 0)).toEqual({ type: "incomplete", neededBytes: batch.length });
    expect(readBatchHeader(alone.subarray(0, 60), 0)).toEqual({ type: "incomplete", neededBytes: 61 });
  });

  test("a tail of zeros, as a file that grew in a crash has it, is corrupt as soon as the length can be seen", () => {
    expect(scanBatch(new Uint8Array(11), 0)).toEqual({ type: "incomplete", neededBytes: 61 });
    expect(scanBatch(new Uint8Array(12), 0)).toEqual({ type: "corrupt", positionBytes: 0, reason: "batch size 12" });
  });

  test.each([0, 1, 3, 7, -1])(
    "magic %i is named as the reason, also where the batch is shorter than our header",
    (magic) => {
      const old = new Uint8Array(34);
      new DataView(old.buffer).setInt32(8, 22);
      new DataView(old.buffer).setInt8(16, magic);
      expect(scanBatch(old, 0)).toEqual({ type: "corrupt", positionBytes: 0, reason: `magic ${magic}` });
    },
  );

  test.each([
    ["a length below the header", (view: DataView) => view.setInt32(8, 48), "batch size 60"],
    ["a negative length", (view: DataView) => view.setInt32(8, -1), "batch size 11"],
    ["a negative last offset delta", (view: DataView) => view.setInt32(23, -1), "last offset delta -1"],
    ["a negative records count", (view: DataView) => view.setInt32(57, -2), "records count -2"],
    ["a negative base offset", (view: DataView) => view.setBigInt64(0, -1n), "base offset -1 outside 0 .. 2^53 - 1"],
  ])("%s is corrupt", (_about, edit, reason) => {
    expect(scanBatch(edited(batch, edit), 0)).toMatchObject({ type: "corrupt", positionBytes: 0, reason });
  });

  test("the largest last offset is 2^53 - 2: the log end offset after it is still an offset", () => {
    const at = (baseOffset: bigint) =>
      scanBatch(
        edited(batch, (view) => view.setBigInt64(0, baseOffset)),
        0,
      ).type;
    expect(at(2n ** 53n - 4n)).toBe("batch");
    expect(at(2n ** 53n - 3n)).toBe("corrupt");
    expect(at(2n ** 53n)).toBe("corrupt");
    expect(at(2n ** 63n - 1n)).toBe("corrupt");
  });

  test("a batch may count no records, and fewer than its offsets", () => {
    const emptied = edited(batch.subarray(0, 61).slice(), (view) => {
      view.setInt32(8, 49);
      view.setInt32(57, 0);
    });
    expect(headerOf(emptied)).toMatchObject({ recordsCount: 0, lastOffsetDelta: 2, sizeInBytes: 61 });
  });

  test("a range outside the bytes is a bug of the caller", () => {
    expect(() => scanBatch(batch, -1)).toThrow(InvariantError);
    expect(() => scanBatch(batch, 0, batch.length + 1)).toThrow(InvariantError);
  });
});

describe("scan of anything", () => {
  const base = batchOf("value", "", "another value");

  /** What is wrong with a verdict; empty when it is one that callers can rely on. */
  function faultsOf(scan: BatchScan, availableBytes: number, positionBytes: number): string[] {
    const faults: string[] = [];
    const demand = (fact: string, holds: boolean): void => {
      if (!holds) faults.push(`${fact}: ${JSON.stringify(scan)}`);
    };
    if (scan.type === "incomplete") {
      demand("more bytes are needed than there are", scan.neededBytes > availableBytes && scan.neededBytes >= 61);
    } else if (scan.type === "corrupt") {
      demand("the position is that of the batch", scan.positionBytes === positionBytes);
    } else {
      const { baseOffset, lastOffset, magic, recordsCount, sizeInBytes } = scan.header;
      demand("magic 2", magic === MAGIC_V2);
      demand("at least a header", sizeInBytes >= 61 && availableBytes >= 61);
      demand("offsets", baseOffset >= 0 && lastOffset >= baseOffset && Number.isSafeInteger(lastOffset + 1));
      demand("records are counted", recordsCount >= 0);
    }
    return faults;
  }

  function verdictFaults(bytes: Uint8Array, positionBytes: number): string[] {
    const availableBytes = bytes.length - positionBytes;
    const scan = scanBatch(bytes, positionBytes);
    const faults = faultsOf(scan, availableBytes, positionBytes);
    faults.push(...faultsOf(readBatchHeader(bytes, positionBytes), Math.min(availableBytes, 61), positionBytes));
    if (scan.type === "batch") {
      if (scan.header.sizeInBytes > availableBytes) faults.push("a batch that is not all there");
      checkCrc(bytes, scan.header);
    }
    return faults;
  }

  test("random bytes always get a verdict", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200, size: "max" }), fc.nat(200), (bytes, position) => {
        expect(verdictFaults(bytes, Math.min(position, bytes.length))).toEqual([]);
      }),
    );
  });

  test("mutated batches always get a verdict, and pass the CRC only if nothing under it changed", () => {
    const change = fc.record({ at: fc.nat(base.length - 1), value: fc.integer({ min: 0, max: 255 }) });
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), fc.nat(base.length), (changes, length) => {
        const bytes = base.slice();
        for (const { at, value } of changes) bytes[at] = value;
        expect(verdictFaults(bytes.subarray(0, length), 0)).toEqual([]);
        const scan = scanBatch(bytes, 0);
        const isAccepted = scan.type === "batch" && checkCrc(bytes, scan.header);
        const isChanged = bytes.subarray(17).some((byte, index) => byte !== base[17 + index]);
        expect(isAccepted && isChanged).toBe(false);
      }),
      { numRuns: 1000 },
    );
  });
});

describe("stamp", () => {
  test("offset and epoch are written where they belong and nowhere else", () => {
    const bytes = new Uint8Array([1, 2, 3, ...batchOf("a"), 4, 5]);
    const before = bytes.slice();
    stampBatch(bytes, 3, 2 ** 53 - 2, 2 ** 31 - 1);
    const header = headerOf(bytes, 3);
    expect(header).toMatchObject({ baseOffset: 2 ** 53 - 2, partitionLeaderEpoch: 2 ** 31 - 1 });
    expect(checkCrc(bytes, header)).toBe(true);
    stampBatch(bytes, 3, 0, -1);
    expect(bytes).toEqual(before);
  });

  test("a CreateTime leader corrects a claimed maximum and the CRC, and clears log append time and unknown bits", () => {
    const bytes = new Uint8Array([9, ...batchOf("a", "b"), 9]);
    const stamped = headerOf(bytes, 1);
    expect(stampMaxTimestamp(bytes, stamped, "LogAppendTime", TIMESTAMP + 50)).toBe(true);
    const view = new DataView(bytes.buffer);
    view.setInt16(1 + 21, view.getInt16(1 + 21) | 0x4180);
    expect(stampMaxTimestamp(bytes, headerOf(bytes, 1), "CreateTime", TIMESTAMP)).toBe(true);
    expect(headerOf(bytes, 1)).toEqual(stamped);
    expect(bytes).toEqual(new Uint8Array([9, ...batchOf("a", "b"), 9]));
  });

  test("nothing is touched when type and maximum are right already", () => {
    const bytes = edited(batchOf("a"), (view) => view.setUint32(17, 0xdead_beef));
    expect(stampMaxTimestamp(bytes, headerOf(bytes), "CreateTime", TIMESTAMP)).toBe(false);
    expect(headerOf(bytes).crc).toBe(0xdead_beef);
  });
});

describe("codec", () => {
  test("a compressed batch keeps the header but for codec, length and CRC", () => {
    const batch = edited(batchOf("a", "b"), (view) => view.setInt32(12, 5));
    const payload = Uint8Array.of(1, 2, 3);
    const compressed = withCompressedPayload(batch, "gzip", payload);
    const { crc, ...header } = headerOf(compressed);
    expect(header).toEqual({ ...headerOf(batch), crc: undefined, attributes: 1, sizeInBytes: 64 });
    expect(crc).not.toBe(headerOf(batch).crc);
    expect(checkCrc(compressed, headerOf(compressed))).toBe(true);
    expect(recordsSection(compressed, headerOf(compressed))).toEqual(payload);
    expect(compressionCodec(headerOf(compressed))).toBe("gzip");
    expect(compressionCodec(headerOf(batch))).toBe("none");
  });

  test.each([5, 6, 7])("codec id %i is refused with UNSUPPORTED_COMPRESSION_TYPE", (id) => {
    const batch = edited(batchOf("a"), (view) => view.setInt16(21, id));
    expect(() => compressionCodec(headerOf(batch))).toThrow(
      expect.objectContaining({ code: "UNSUPPORTED_COMPRESSION_TYPE", facts: { codecId: id, baseOffset: 0 } }),
    );
  });
});
