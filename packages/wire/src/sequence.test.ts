import * as fc from "fast-check";
import { expect, test } from "vitest";
import { decrementSequence, incrementSequence } from "./sequence.ts";

const MAX = 2 ** 31 - 1;
const sequence = fc.oneof(fc.integer({ min: 0, max: MAX }), fc.constantFrom(0, 1, MAX - 1, MAX));

test("the sequence after 2^31 - 1 is 0, and before 0 comes 2^31 - 1", () => {
  expect(incrementSequence(MAX, 1)).toBe(0);
  expect(incrementSequence(MAX - 1, 3)).toBe(1);
  expect(decrementSequence(0, 1)).toBe(MAX);
  expect(decrementSequence(1, 3)).toBe(MAX - 1);
});

test("both are arithmetic modulo 2^31 and undo each other", () => {
  fc.assert(
    fc.property(sequence, sequence, (start, delta) => {
      const after = incrementSequence(start, delta);
      expect(after).toBe((start + delta) % 2 ** 31);
      expect(decrementSequence(after, delta)).toBe(start);
    }),
  );
});
