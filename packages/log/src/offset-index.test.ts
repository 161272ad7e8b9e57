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

/** Batches `[lastOffset, positionBytes, sizeInBytes]` of base 0, of which these offsets have an entry. */
function placesOf(batches: readonly (readonly [number, number, number])[], indexed: readonly number[]): OffsetIndex {
  const index = new OffsetIndex(toOffset(0));
  for (const [lastOffset, positionBytes] of batches)
    if (indexed.includes(lastOffset)) index.append(lastOffset, positionBytes);
  return index;
}

test("a batch's place is known where lookups met it, or entries lie side by side; never where a batch may lie between", () => {
  const batches = [
    [9, 0, 100],
    [19, 100, 100],
    [29, 200, 100],
    [39, 300, 100],
    [49, 400, 100],
    [59, 500, 100],
  ] as const;
  const index = placesOf(batches, [19, 39]);
  const place = (offset: number): number | undefined => index.placeOf(offset)?.lastOffset;
  expect([0, 19, 20, 45].map(place)).toEqual([undefined, undefined, undefined, undefined]);
  index.noteBehind(-1, { lastOffset: 9, sizeInBytes: 100 }, 0);
  index.noteBehind(0, { lastOffset: 29, sizeInBytes: 100 }, 200);
  expect(index.placeOf(5)).toEqual({ lastOffset: 9, positionBytes: 0, sizeInBytes: 100 });
  expect(index.placeOf(12)).toEqual({ lastOffset: 19, positionBytes: 100, sizeInBytes: 100 });
  expect(index.placeOf(19)).toEqual({ lastOffset: 19, positionBytes: 100, sizeInBytes: 100 });
  expect(index.placeOf(29)).toEqual({ lastOffset: 29, positionBytes: 200, sizeInBytes: 100 });
  // How large the batch of the last entry is nobody knows, nor what follows.
  expect([30, 39, 40].map(place)).toEqual([undefined, undefined, undefined]);
  index.noteBehind(1, { lastOffset: 49, sizeInBytes: 100 }, 400);
  expect([30, 39, 40, 49, 50].map(place)).toEqual([39, 39, 49, 49, undefined]);

  const sparse = placesOf(batches, [39]);
  sparse.noteBehind(-1, { lastOffset: 9, sizeInBytes: 100 }, 0);
  sparse.noteBehind(0, { lastOffset: 49, sizeInBytes: 100 }, 400);
  expect(sparse.placeOf(9)?.lastOffset).toBe(9);
  expect(sparse.placeOf(15)).toBeUndefined();
  expect(sparse.placeOf(35)).toBeUndefined();
});

test("places are noted for entries that come later too, and go with a truncation", () => {
  const index = indexOf(0);
  index.noteBehind(-1, { lastOffset: 4, sizeInBytes: 10 }, 0);
  for (let at = 0; at < 200; at += 1) {
    index.append(at * 5 + 9, at * 10 + 10);
    index.noteBehind(at, { lastOffset: at * 5 + 14, sizeInBytes: 10 }, at * 10 + 20);
  }
  for (let offset = 0; offset < 1010; offset += 1) {
    const batch = Math.floor(offset / 5);
    const expected = { lastOffset: batch * 5 + 4, positionBytes: batch * 10, sizeInBytes: 10 };
    expect(index.placeOf(offset)).toEqual(expected);
  }
  index.truncateTo(500);
  expect(index.placeOf(7)).toBeUndefined();
});
