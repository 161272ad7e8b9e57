import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  unsignedVarintBytes,
  varintBytes,
  VarintReader,
  varlongBytes,
  writeUnsignedVarint,
  writeVarint,
  writeVarlong,
} from "./varint.ts";

function encoded(write: (target: Uint8Array, positionBytes: number) => number): number[] {
  const target = new Uint8Array(16);
  return [...target.subarray(0, write(target, 0))];
}

/** The definition, in bigint, to compare with. */
function zigzagGroups(value: bigint): number[] {
  let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
  const groups: number[] = [];
  while (rest >= 0x80n) {
    groups.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  return [...groups, Number(rest)];
}

const int32 = fc.oneof(fc.integer(), fc.integer({ min: -70, max: 70 }));
const safeInteger = fc.oneof(fc.maxSafeInteger(), fc.integer(), fc.constantFrom(2 ** 30, -(2 ** 30), -(2 ** 30) - 1));

describe("varint", () => {
  test.each([
    [0, [0]],
    [-1, [1]],
    [1, [2]],
    [63, [0x7e]],
    [-64, [0x7f]],
    [64, [0x80, 0x01]],
    [2 ** 31 - 1, [0xfe, 0xff, 0xff, 0xff, 0x0f]],
    [-(2 ** 31), [0xff, 0xff, 0xff, 0xff, 0x0f]],
  ])("%i is written as %j and read back", (value, bytes) => {
    expect(encoded((target, position) => writeVarint(target, position, value))).toEqual(bytes);
    expect(new VarintReader(Uint8Array.from(bytes)).readVarint()).toBe(value);
  });

  test("every int32 is written as the definition says, in the size announced, and read back", () => {
    fc.assert(
      fc.property(int32, (value) => {
        const bytes = encoded((target, position) => writeVarint(target, position, value));
        expect(bytes).toEqual(zigzagGroups(BigInt(value)));
        expect(varintBytes(value)).toBe(bytes.length);
        expect(new VarintReader(Uint8Array.from(bytes)).readVarint()).toBe(value);
      }),
    );
  });

  test("a form longer than needed is accepted; bits above 32 are dropped", () => {
    expect(new VarintReader(Uint8Array.of(0x82, 0x80, 0x80, 0x00)).readVarint()).toBe(1);
    expect(new VarintReader(Uint8Array.of(0x82, 0x80, 0x80, 0x80, 0x70)).readVarint()).toBe(1);
  });

  test("a sixth byte, and an end in the middle, are faults that stick", () => {
    const long = new VarintReader(Uint8Array.of(0x82, 0x80, 0x80, 0x80, 0x80, 0x00, 0x02));
    expect(long.readVarint()).toBe(0);
    expect(long.fault).toBe("longer than its type");
    expect(long.readVarlong()).toBe(0); // It would fit here, but nothing is read after a fault.
    expect(long.fault).toBe("longer than its type");
    const cut = new VarintReader(Uint8Array.of(0x02, 0x80), 0);
    expect(cut.readVarint()).toBe(1);
    expect(cut.fault).toBeUndefined();
    cut.readVarint();
    expect(cut.readVarlong()).toBe(0);
    expect(cut.fault).toBe("past the end");
  });

  test("reading stops at the end it was given", () => {
    const reader = new VarintReader(Uint8Array.of(0x02, 0x04), 0, 1);
    expect([reader.readVarint(), reader.readVarint(), reader.fault]).toEqual([1, 0, "past the end"]);
  });
});

describe("unsigned varint", () => {
  test.each([
    [0, [0]],
    [127, [0x7f]],
    [128, [0x80, 0x01]],
    [300, [0xac, 0x02]],
    [2 ** 32 - 1, [0xff, 0xff, 0xff, 0xff, 0x0f]],
  ])("%i is written as %j and read back", (value, bytes) => {
    expect(encoded((target, position) => writeUnsignedVarint(target, position, value))).toEqual(bytes);
    expect(unsignedVarintBytes(value)).toBe(bytes.length);
    expect(new VarintReader(Uint8Array.from(bytes)).readUnsignedVarint()).toBe(value);
  });
});

describe("varlong", () => {
  test("every safe integer is written as the definition says, in the size announced, and read back", () => {
    fc.assert(
      fc.property(safeInteger, (value) => {
        const bytes = encoded((target, position) => writeVarlong(target, position, value));
        expect(bytes).toEqual(zigzagGroups(BigInt(value)));
        expect(varlongBytes(value)).toBe(bytes.length);
        expect(new VarintReader(Uint8Array.from(bytes)).readVarlong()).toBe(value);
      }),
      { numRuns: 2000 },
    );
  });

  test("a 64-bit value outside the safe integers does not read as a safe one", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (value) => {
        const read = new VarintReader(Uint8Array.from(zigzagGroups(value))).readVarlong();
        const isSafe = value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER);
        expect(Number.isSafeInteger(read)).toBe(isSafe);
      }),
    );
  });

  test("an eleventh byte is a fault; of the tenth only one bit counts", () => {
    const eleven = new VarintReader(Uint8Array.from([...Array<number>(10).fill(0x80), 0x00]));
    expect(eleven.readVarlong()).toBe(0);
    expect(eleven.fault).toBe("longer than its type");
    expect(new VarintReader(Uint8Array.from([0x82, ...Array<number>(8).fill(0x80), 0x7e])).readVarlong()).toBe(1);
  });
});
