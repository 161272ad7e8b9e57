import { expect, test } from "vitest";
import { FAULT_TYPES, planOf, simulate } from "@tidemark/simulation";
import { runRandomHistories } from "./random-histories.ts";

// The other half is in a file of its own.
runRandomHistories(0, 2);

test("the same seed gives the same history: the order of all events, the counts and the logs", async () => {
  for (const seed of [8, 24]) {
    const first = await simulate(seed);
    expect(await simulate(seed)).toEqual(first);
    expect(await simulate(seed + 1000)).not.toMatchObject({ traceHash: first.traceHash });
  }
});

test("a plan is drawn from its seed alone, and every class of faults is off in many plans and on in many", () => {
  const plans = Array.from({ length: 200 }, (_, seed) => planOf(seed));
  expect(plans).toEqual(Array.from({ length: 200 }, (_, seed) => planOf(seed)));
  for (const type of FAULT_TYPES) {
    const withIt = plans.filter(({ faults }) => faults.some((fault) => fault.type === type)).length;
    expect([type, withIt > 40, withIt < 160]).toEqual([type, true, true]);
  }
  const frozen = plans.flatMap(({ liveness }) => liveness?.frozen ?? []);
  expect(plans.filter(({ liveness }) => liveness !== undefined).length).toBeGreaterThan(20);
  expect(new Set(frozen.map(({ fault }) => fault)).size).toBe(7);
});
