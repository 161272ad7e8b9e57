import { describe, expect } from "vitest";
import type { Clock } from "@tidemark/base";
import type { Fixture } from "./fixture.ts";
import { contractTest } from "./fixture.ts";

export interface ClockFixture extends Fixture {
  readonly clock: Clock;
  /** Lets at least `ms` of the clock's monotonic time go by, and every timer due by then fire. */
  readonly pass: (ms: number) => Promise<void>;
}

/** The contract of `Clock`. */
export function describeClock(name: string, makeFixture: () => Promise<ClockFixture>): void {
  describe(`Clock: ${name}`, () => {
    timeTests(makeFixture);
    timerTests(makeFixture);
    cancelTests(makeFixture);
  });
}

function timeTests(makeFixture: () => Promise<ClockFixture>): void {
  contractTest(makeFixture, "wall time is a whole, safe number of ms", async ({ clock }) => {
    expect(Number.isSafeInteger(clock.wallMs())).toBe(true);
    expect(clock.wallMs()).toBeGreaterThanOrEqual(0);
  });

  contractTest(makeFixture, "monotonic time never goes back", async ({ clock, pass }) => {
    let last = clock.monotonicMs();
    for (let round = 0; round < 5; round++) {
      for (let read = 0; read < 1000; read++) {
        const now = clock.monotonicMs();
        expect(now >= last).toBe(true);
        last = now;
      }
      await pass(1);
    }
  });

  contractTest(makeFixture, "monotonic time moves on by what passed", async ({ clock, pass }) => {
    const before = clock.monotonicMs();
    await pass(5);
    expect(clock.monotonicMs() - before).toBeGreaterThanOrEqual(5);
  });
}

function timerTests(makeFixture: () => Promise<ClockFixture>): void {
  contractTest(makeFixture, "a timer fires once, not before its delay", async ({ clock, pass }) => {
    const start = clock.monotonicMs();
    const firedAfterMs: number[] = [];
    for (const delayMs of [1, 1.5, 3, 7, 10]) {
      clock.setTimer(delayMs, () => firedAfterMs.push(clock.monotonicMs() - start - delayMs));
    }
    await pass(40);
    expect(firedAfterMs).toHaveLength(5);
    for (const lateMs of firedAfterMs) expect(lateMs).toBeGreaterThanOrEqual(0);
  });

  contractTest(makeFixture, "a timer without delay fires later, not inside setTimer", async ({ clock, pass }) => {
    let fired = 0;
    clock.setTimer(0, () => fired++);
    expect(fired).toBe(0);
    await pass(5);
    expect(fired).toBe(1);
  });

  contractTest(makeFixture, "a timer may be set from a timer", async ({ clock, pass }) => {
    const fired: string[] = [];
    clock.setTimer(1, () => {
      fired.push("outer");
      clock.setTimer(1, () => fired.push("inner"));
    });
    await pass(10);
    await pass(10);
    expect(fired).toEqual(["outer", "inner"]);
  });

  contractTest(makeFixture, "a delay above 2^31 ms does not fire at once", async ({ clock, pass }) => {
    let fired = 0;
    const timer = clock.setTimer(2 ** 31 + 10, () => fired++);
    await pass(10);
    expect(fired).toBe(0);
    timer.cancel();
  });
}

function cancelTests(makeFixture: () => Promise<ClockFixture>): void {
  contractTest(makeFixture, "a cancelled timer does not fire; cancelling twice is fine", async ({ clock, pass }) => {
    let fired = 0;
    const timer = clock.setTimer(2, () => fired++);
    timer.cancel();
    timer.cancel();
    await pass(10);
    expect(fired).toBe(0);
  });

  contractTest(makeFixture, "cancelling a timer that has fired does nothing", async ({ clock, pass }) => {
    let fired = 0;
    const timer = clock.setTimer(1, () => fired++);
    await pass(10);
    timer.cancel();
    await pass(5);
    expect(fired).toBe(1);
  });

  contractTest(
    makeFixture,
    "of two timers due together, one that cancels the other fires alone",
    async ({ clock, pass }) => {
      const fired: string[] = [];
      const first = clock.setTimer(3, () => {
        fired.push("first");
        second.cancel();
      });
      const second = clock.setTimer(3, () => {
        fired.push("second");
        first.cancel();
      });
      await pass(15);
      expect(fired).toHaveLength(1);
    },
  );
}
