import { expect, test } from "vitest";
import { mix32 } from "./hash.ts";
import { SimulatedRandom } from "./random.ts";

test("draws of one site do not depend on those of another", () => {
  const alone = new SimulatedRandom(7);
  const mixed = new SimulatedRandom(7);
  const expected = [1, 2, 3].map(() => alone.uint32("a"));
  const seen = [1, 2, 3].map(() => {
    mixed.uint32("b");
    return mixed.uint32("a");
  });
  expect(seen).toEqual(expected);
});

test("another seed, in its low or its high half, gives other draws", () => {
  const first = [1, 2, 2 ** 32 + 1, 2 ** 33 + 1].map((seed) => new SimulatedRandom(seed).uint32("a"));
  expect(new Set(first).size).toBe(4);
});

test("below is uniform: each of 10 values within 5 % of its share of 100,000 draws", () => {
  const random = new SimulatedRandom(1);
  const counts = Array.from({ length: 10 }, () => 0);
  for (let draw = 0; draw < 100_000; draw++) {
    const value = random.below("a", 10);
    counts[value] = (counts[value] ?? 0) + 1;
  }
  for (const count of counts) expect(Math.abs(count - 10_000)).toBeLessThan(500);
});

test("below takes every bound from 1 to 2^32 and stays under it", () => {
  const random = new SimulatedRandom(1);
  expect(random.below("a", 1)).toBe(0);
  expect(random.below("a", 2 ** 32)).toBeLessThan(2 ** 32);
  expect(() => random.below("a", 0)).toThrow("1 <= bound");
});

test("mix32 moves about half of the output bits for each input bit", () => {
  for (let bit = 0; bit < 32; bit++) {
    let flipped = 0;
    for (let value = 0; value < 1_000; value++) {
      let difference = mix32(value * 2_654_435) ^ mix32((value * 2_654_435) ^ (1 << bit));
      for (; difference !== 0; difference &= difference - 1) flipped++;
    }
    expect(Math.abs(flipped / 1_000 - 16)).toBeLessThan(0.6);
  }
});
