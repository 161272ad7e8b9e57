import { expect, test } from "vitest";
import { LatencyRecorder } from "./latency.ts";

test("percentiles of what was recorded, to a part in a thousand, in us", () => {
  const recorder = new LatencyRecorder();
  for (let us = 1; us <= 10_000; us += 1) recorder.recordNs(us * 1000);
  const { count, p50, p99, p999, max, unit } = recorder.summarize();
  expect({ count, unit }).toEqual({ count: 10_000, unit: "us" });
  for (const [found, wanted] of [
    [p50, 5000],
    [p99, 9900],
    [p999, 9990],
    [max, 10_000],
  ] as const)
    expect(Math.abs(found / wanted - 1)).toBeLessThan(0.001);
});

test("a count stands for so many operations, and one of no time at all is one", () => {
  const recorder = new LatencyRecorder();
  recorder.recordNs(0);
  recorder.recordNs(5000, 99);
  expect(recorder.count).toBe(100);
  expect(recorder.valueAt(50)).toBeCloseTo(5, 2);
});

test("the curve goes only as far as operations stand behind it, then to the maximum", () => {
  const recorder = new LatencyRecorder();
  for (let at = 1; at <= 200; at += 1) recorder.recordNs(at * 1000);
  const percentiles = recorder.summarize().curve.map(([percentile]) => percentile);
  expect(percentiles).toEqual([0, 10, 25, 50, 75, 90, 95, 99, 99.5, 100]);
});

test("a latency beyond a minute counts as a minute", () => {
  const recorder = new LatencyRecorder();
  recorder.recordNs(1e15);
  expect(recorder.summarize().max / 60e6).toBeCloseTo(1, 2);
});
