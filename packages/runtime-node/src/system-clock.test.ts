import { afterEach, describe, expect, test, vi } from "vitest";
import { InvariantError } from "@tidemark/base";
import { SystemClock } from "./system-clock.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

/** Takes the place of the platform's timers and monotonic clock: time stands still until a test moves it. */
function frozenPlatform() {
  let nowMs = 1000;
  const waits: { timeoutMs: number | undefined; wake: () => void }[] = [];
  const realSetTimeout = setTimeout;
  vi.spyOn(performance, "now").mockImplementation(() => nowMs);
  vi.spyOn(globalThis, "setTimeout").mockImplementation((wake, timeoutMs) => {
    waits.push({ timeoutMs, wake });
    return realSetTimeout(() => {}, 0);
  });
  return {
    waits,
    wakeAfter(ms: number): void {
      nowMs += ms;
      waits.at(-1)?.wake();
    },
  };
}

test("wall time is that of Date", () => {
  const before = Date.now();
  const wallMs = new SystemClock().wallMs();
  expect(wallMs).toBeGreaterThanOrEqual(before);
  expect(wallMs).toBeLessThanOrEqual(Date.now());
});

describe("a timer", () => {
  test("that the platform wakes early waits for the rest", () => {
    const platform = frozenPlatform();
    let fired = 0;
    new SystemClock().setTimer(10, () => fired++);
    platform.wakeAfter(9.25);
    expect(fired).toBe(0);
    expect(platform.waits.map(({ timeoutMs }) => timeoutMs)).toEqual([10, 1]);
    platform.wakeAfter(0.75);
    expect(fired).toBe(1);
    expect(platform.waits).toHaveLength(2);
  });

  test("longer than the platform can wait is waited for in parts", () => {
    const platform = frozenPlatform();
    let fired = 0;
    new SystemClock().setTimer(2 ** 31 + 10, () => fired++);
    platform.wakeAfter(2 ** 31 - 1);
    expect(fired).toBe(0);
    expect(platform.waits.map(({ timeoutMs }) => timeoutMs)).toEqual([2 ** 31 - 1, 11]);
    platform.wakeAfter(11);
    expect(fired).toBe(1);
  });

  test("with a delay in the past fires as soon as it may, with none at all is a bug of the caller", () => {
    const platform = frozenPlatform();
    new SystemClock().setTimer(-5, () => {});
    expect(platform.waits[0]?.timeoutMs).toBe(0);
    expect(() => new SystemClock().setTimer(Number.NaN, () => {})).toThrow(InvariantError);
  });
});
