import { encodeUtf8 } from "@tidemark/base";
import type { Random } from "@tidemark/base";
import { expect, test } from "vitest";
import { partitionForKey, StickyPartitioner } from "./partitioner.ts";

/** Draws 0, 1, 2, 0, ... */
function countingRandom(): Random & { readonly draws: () => number } {
  let count = 0;
  return {
    draws: () => count,
    uint32: () => count++,
    below: (_site, bound) => count++ % bound,
    bytes: (_site, length) => new Uint8Array(length),
  };
}

// Hashes of apache/kafka UtilsTest.testMurmur2, with the sign bit cleared, modulo 7.
test.each([
  ["21", -973932308],
  ["foobar", -790332482],
  ["a-little-bit-long-string", -985981536],
  ["a-little-bit-longer-string", -1486304829],
  ["lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971],
  ["abc", 479470107],
])("key %j goes to the partition that Kafka's murmur2 %d names", (key, hash) => {
  expect(partitionForKey(encodeUtf8(key), 7)).toBe((hash & 0x7fff_ffff) % 7);
});

test("records without a key stay in a partition until it has a batch's worth of bytes", () => {
  const random = countingRandom();
  const partitioner = new StickyPartitioner(random, 3, 100);
  expect([60, 30, 10, 99, 1, 500, 5].map((bytes) => partitioner.next(bytes))).toEqual([0, 0, 0, 1, 1, 2, 0]);
});

test("with one partition nothing is drawn", () => {
  const random = countingRandom();
  const partitioner = new StickyPartitioner(random, 1, 1);
  expect([partitioner.next(5), partitioner.next(5), random.draws()]).toEqual([0, 0, 0]);
});
