import { toOffset } from "@tidemark/base";
import { expect, test } from "vitest";
import { OffsetIndex } from "./offset-index.ts";

function indexOf(base: number, ...entries: readonly (readonly [number, number])[]): OffsetIndex {
  const index = new OffsetIndex(toOffset(base));
  for (const [offset, positionBytes] of entries) index.append(offset, positionBytes);
  return index;
}

test("golden: base 1000, offset 1057 at position 4153 is 0000003900001039", () => {
  const index = indexOf(1000, [1057, 4153]);
  expect(Buffer.from(index.encode()).toString("hex")).toBe("0000003900001039");
  expect(OffsetIndex.decode(toOffset(1000), index.encode())?.lastEntry).toEqual({ offset: 1057, positionBytes: 4153 });
});

test("a lookup answers the largest entry at or below the offset, else the begin of the segment", () => {
  const index = indexOf(100, [105, 1000], [110, 2000], [120, 3000]);
  expect([100, 104, 105, 109, 110, 119, 120, 5000].map((offset) => index.lookup(offset))).toEqual([
    0, 0, 1000, 1000, 2000, 2000, 3000, 3000,
  ]);
  expect(new OffsetIndex(toOffset(5)).lookup(7)).toBe(0);
});

test("lookups agree with a linear search for any number of entries", () => {
  for (let count = 0; count < 70; count += 1) {
    const entries = Array.from({ length: count }, (_, at) => [at * 3 + 1, at * 10 + 10] as const);
    const index = indexOf(0, ...entries);
    for (let offset = 0; offset < count * 3 + 3; offset += 1) {
      const expected = entries.findLast(([entryOffset]) => entryOffset <= offset)?.[1] ?? 0;
      expect(index.lookup(offset)).toBe(expected);
    }
  }
});

test("a truncation keeps the entries strictly below the offset", () => {
  for (const [offset, count] of [
    [121, 3],
    [120, 2],
    [106, 1],
    [105, 0],
    [100, 0],
  ] as const) {
    const index = indexOf(100, [105, 1000], [110, 2000], [120, 3000]);
    index.truncateTo(toOffset(offset));
    expect([offset, index.count]).toEqual([offset, count]);
  }
});

test("bytes that are no index are refused: cut inside an entry, not increasing, a tail of zeros", () => {
  const bytes = indexOf(0, [5, 100], [9, 200]).encode();
  expect(OffsetIndex.decode(toOffset(0), bytes)?.count).toBe(2);
  expect(OffsetIndex.decode(toOffset(0), bytes.subarray(0, 15))).toBeUndefined();
  expect(
    OffsetIndex.decode(toOffset(0), new Uint8Array([...bytes.subarray(8), ...bytes.subarray(0, 8)])),
  ).toBeUndefined();
  expect(OffsetIndex.decode(toOffset(0), new Uint8Array([...bytes, ...new Uint8Array(16)]))).toBeUndefined();
  expect(OffsetIndex.decode(toOffset(0), new Uint8Array(0))?.count).toBe(0);
});

test("bytes whose positions do not increase are refused, though their offsets do: a lookup would start behind its batch", () => {
  for (const second of [100, 99]) {
    const bytes = indexOf(0, [5, 100], [9, second]).encode();
    expect(OffsetIndex.decode(toOffset(0), bytes)).toBeUndefined();
  }
});

test("an entry that does not increase, or does not fit, is a broken invariant", () => {
  expect(() => indexOf(0, [5, 100], [5, 200])).toThrow("strictly increase");
  expect(() => indexOf(10, [9, 100])).toThrow("relative offset");
  expect(() => indexOf(0, [2 ** 31, 100])).toThrow("relative offset");
  expect(indexOf(0, [2 ** 31 - 1, 100]).count).toBe(1);
});

test("entries from a place on are encoded alone, as a growing file needs them", () => {
  const index = indexOf(0, [5, 100], [9, 200], [12, 300]);
  expect(index.encode(1)).toEqual(index.encode().subarray(8));
});
