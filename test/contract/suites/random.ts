import { describe, expect } from "vitest";
import type { Random } from "@tidemark/base";
import { InvariantError } from "@tidemark/base";
import type { Fixture } from "./fixture.ts";
import { contractTest } from "./fixture.ts";

export interface RandomFixture extends Fixture {
  readonly random: Random;
}

const UINT32_COUNT = 2 ** 32;

/** The contract of `Random`. Bounds on frequencies are so wide that a fair source misses them less than once in 10^12 runs. */
export function describeRandom(name: string, makeFixture: () => Promise<RandomFixture>): void {
  describe(`Random: ${name}`, () => {
    contractTest(makeFixture, "uint32 gives whole numbers of [0, 2^32) in both halves", async ({ random }) => {
      const draws = Array.from({ length: 256 }, () => random.uint32("contract.uint32"));
      expect(draws.every((draw) => Number.isInteger(draw) && draw >= 0 && draw < UINT32_COUNT)).toBe(true);
      expect(draws.some((draw) => draw >= 2 ** 31)).toBe(true);
      expect(draws.some((draw) => draw < 2 ** 31)).toBe(true);
      expect(new Set(draws).size).toBeGreaterThan(250);
    });

    contractTest(makeFixture, "below stays under its bound and reaches every value evenly", async ({ random }) => {
      const counts = Array.from({ length: 10 }, () => 0);
      for (let draw = 0; draw < 10_000; draw++) {
        const value = random.below("contract.below", 10);
        counts[value] = (counts[value] ?? Number.NaN) + 1;
      }
      expect(counts).toHaveLength(10);
      for (const count of counts) {
        expect(count).toBeGreaterThan(750);
        expect(count).toBeLessThan(1250);
      }
    });

    contractTest(
      makeFixture,
      "below 1 is 0; below 2^32 may be above 2^31; below 3 * 2^30 is not lopsided",
      async ({ random }) => {
        expect(random.below("contract.one", 1)).toBe(0);
        expect(
          Array.from({ length: 256 }, () => random.below("contract.all", UINT32_COUNT)).some((draw) => draw >= 2 ** 31),
        ).toBe(true);
        // A remainder in place of rejection would put half of the draws, not a third, into the lowest third.
        const lowest = Array.from({ length: 9000 }, () => random.below("contract.bias", 3 * 2 ** 30)).filter(
          (draw) => draw < 2 ** 30,
        );
        expect(lowest.length).toBeGreaterThan(2600);
        expect(lowest.length).toBeLessThan(3400);
      },
    );

    contractTest(makeFixture, "below refuses a bound outside 1..2^32", async ({ random }) => {
      for (const bound of [0, -1, 1.5, UINT32_COUNT + 1, Number.NaN]) {
        expect(() => random.below("contract.bound", bound)).toThrow(InvariantError);
      }
    });

    contractTest(makeFixture, "bytes gives as many as asked, in memory of its own", async ({ random }) => {
      expect(random.bytes("contract.bytes", 0)).toHaveLength(0);
      const first = random.bytes("contract.bytes", 5000);
      expect(first).toHaveLength(5000);
      expect(new Set(first).size).toBe(256);
      const kept = first.slice();
      const second = random.bytes("contract.bytes", 5000);
      second.fill(0);
      expect(first).toEqual(kept);
      expect(first).not.toEqual(random.bytes("contract.bytes", 5000));
    });
  });
}
