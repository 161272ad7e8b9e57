import { expect, test } from "vitest";
import { summarize } from "./statistics.ts";

test("the median of an odd number of samples is the one in the middle, whatever their order", () => {
  expect(summarize([30, 10, 1000])).toEqual({ median: 30, min: 10, max: 1000 });
});

test("the median of an even number of samples is the mean of the two in the middle", () => {
  expect(summarize([4, 1, 3, 100])).toEqual({ median: 3.5, min: 1, max: 100 });
});

test("one sample is its own median, minimum and maximum", () => {
  expect(summarize([7])).toEqual({ median: 7, min: 7, max: 7 });
});

test("samples are compared as numbers and stay in their order", () => {
  const samples = [9, 10, 100];
  expect(summarize(samples).median).toBe(10);
  expect(samples).toEqual([9, 10, 100]);
});

test("a summary of no samples is refused", () => {
  expect(() => summarize([])).toThrow(RangeError);
});
