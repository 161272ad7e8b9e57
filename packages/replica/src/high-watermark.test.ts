import { toOffset } from "@tidemark/base";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { nextHighWatermark } from "./high-watermark.ts";

function next(current: number, ...endOffsets: (number | undefined)[]): number {
  return nextHighWatermark(
    toOffset(current),
    endOffsets.map((endOffset) => (endOffset === undefined ? undefined : toOffset(endOffset))),
  );
}

test("the lowest end offset becomes the high watermark, wherever it stands in the list", () => {
  expect(next(0, 10, 7, 9)).toBe(7);
  expect(next(0, 7, 10, 9)).toBe(7);
  expect(next(0, 9, 10, 7)).toBe(7);
});

test("the high watermark does not fall when a replica truncated below it", () => {
  expect(next(8, 10, 5)).toBe(8);
});

test("an unknown end offset keeps the high watermark, wherever it stands in the list", () => {
  expect(next(3, 10, undefined)).toBe(3);
  expect(next(3, undefined, 10)).toBe(3);
  expect(next(3, 10, undefined, 9)).toBe(3);
});

test("nobody to count is a bug", () => {
  expect(() => next(3)).toThrow("the leader is always counted");
});

test("it is max(current, min(ends)) for any ends, in any order", () => {
  const offset = fc.integer({ min: 0, max: 20 });
  fc.assert(
    fc.property(offset, fc.array(offset, { minLength: 1, maxLength: 5 }), (current, ends) => {
      expect(next(current, ...ends)).toBe(Math.max(current, Math.min(...ends)));
      expect(next(current, ...ends.toReversed())).toBe(next(current, ...ends));
    }),
  );
});
