import { toOffset } from "@tidemark/base";
import { expect, test } from "vitest";
import { TimeIndex } from "./time-index.ts";

const NOON = 1_700_000_000_000;

function indexOf(base: number, ...entries: readonly (readonly [number, number])[]): TimeIndex {
  const index = new TimeIndex(toOffset(base));
  for (const [timestamp, offset] of entries) index.maybeAppend(timestamp, offset);
  return index;
}

test("golden: base 1000, time 1700000000000 and offset 1057 are 0000018bcfe5680000000039", () => {
  const index = indexOf(1000, [NOON, 1057]);
  expect(Buffer.from(index.encode()).toString("hex")).toBe("0000018bcfe5680000000039");
  expect(TimeIndex.decode(toOffset(1000), index.encode())?.lastEntry).toEqual({ timestamp: NOON, offset: 1057 });
});

test("an entry is made for a larger timestamp only, and none for -1", () => {
  const index = indexOf(0, [-1, 0], [5, 3], [5, 7], [4, 8], [6, 9], [6, 10]);
  expect([index.count, index.entry(0), index.entry(1)]).toEqual([
    2,
    { timestamp: 5, offset: 3 },
    { timestamp: 6, offset: 9 },
  ]);
});

test("a lookup answers the last entry at or below the time", () => {
  const index = indexOf(100, [1000, 105], [2000, 110], [3000, 110]);
  expect([999, 1000, 1999, 2000, 3000, 9999].map((timestamp) => index.lookup(timestamp)?.timestamp)).toEqual([
    undefined,
    1000,
    1000,
    2000,
    3000,
    3000,
  ]);
});

test("a truncation keeps the entries strictly below the offset", () => {
  for (const [offset, count] of [
    [100, 0],
    [105, 0],
    [106, 1],
    [110, 1],
    [111, 2],
  ] as const) {
    const index = indexOf(100, [1000, 105], [2000, 110]);
    index.truncateTo(offset);
    expect([offset, index.count]).toEqual([offset, count]);
  }
});

test("the last place is for the entry of the end", () => {
  const index = new TimeIndex(toOffset(0), 3 * 12);
  for (const timestamp of [1, 2, 3]) index.maybeAppend(timestamp, timestamp);
  expect([index.count, index.isFull]).toEqual([2, true]);
  index.appendEnd(9, 9);
  expect(index.lastEntry).toEqual({ timestamp: 9, offset: 9 });
});

test("BR-016: zeros behind the entries, a cut entry, falling times and offsets below the segment are no index", () => {
  const good = indexOf(100, [1000, 105], [2000, 110], [3000, 120]).encode();
  const base = toOffset(100);
  expect(TimeIndex.decode(base, good)?.encode()).toEqual(good);
  for (const padding of [12, 24, 10 * 1024]) {
    const padded = new Uint8Array(good.length + padding);
    padded.set(good);
    expect(TimeIndex.decode(base, padded), `${padding} zeros`).toBeUndefined();
  }
  expect(TimeIndex.decode(base, good.subarray(0, 23))).toBeUndefined();
  const swapped = new Uint8Array([...good.subarray(12, 24), ...good.subarray(0, 12)]);
  expect(TimeIndex.decode(base, swapped)).toBeUndefined();
  const below = good.slice();
  new DataView(below.buffer).setInt32(8, -1);
  expect(TimeIndex.decode(base, below)).toBeUndefined();
  // A time that no number holds exactly would come back as another one.
  const tooLate = good.slice();
  tooLate[good.length - 12] = 0x7f;
  expect(TimeIndex.decode(base, tooLate)).toBeUndefined();
  expect(TimeIndex.decode(base, new Uint8Array(0))?.count).toBe(0);
});

test("many entries survive the way to the file and back, also far from any power of two", () => {
  const index = new TimeIndex(toOffset(7));
  for (let at = 0; at < 1000; at += 1) index.maybeAppend(at * 4_294_967_299 + 1, 7 + at * 3);
  const back = TimeIndex.decode(toOffset(7), index.encode());
  expect(back?.count).toBe(1000);
  for (let at = 0; at < 1000; at += 1) expect(back?.entry(at)).toEqual(index.entry(at));
});
