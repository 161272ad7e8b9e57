import { describe, expect, test } from "vitest";
import { encodePlan, parsePlan, PlanFileError } from "./plan-file.ts";
import { planOf } from "./plan.ts";
import type { Plan } from "./plan.ts";
import { shrink } from "./shrink.ts";

/** The first seed whose plan has so many faults. */
function planWithFaults(count: number): Plan {
  for (let seed = 1; ; seed += 1) if (planOf(seed).faults.length >= count) return planOf(seed);
}

describe("shrinking a plan", () => {
  test("keeps just the faults that the failure needs, wherever they stand, and simple numbers", async () => {
    const plan = planWithFaults(20);
    const needed = [plan.faults[3], plan.faults[11], plan.faults[19]].map((fault) => fault?.type);
    const has = (candidate: Plan): boolean => {
      let at = 0;
      for (const { type } of candidate.faults) if (type === needed[at]) at += 1;
      return at === needed.length && candidate.producers.length >= 1;
    };
    const { plan: shrunk, replays } = await shrink(plan, { breaks: (candidate) => Promise.resolve(has(candidate)) });
    expect(shrunk.faults.map(({ type }) => type)).toEqual(needed);
    expect(shrunk.producers).toHaveLength(1);
    expect(shrunk.hasMessageFaults).toBe(false);
    expect(shrunk.cluster).toMatchObject({ seed: plan.cluster.seed, brokers: 2, log: {}, manager: {} });
    for (const { atMs } of shrunk.faults) expect(atMs % 100).toBe(0);
    expect(replays).toBeLessThan(300);
  });

  test("leaves a plan alone whose every part is needed, and stops at its bounds", async () => {
    const plan = planWithFaults(10);
    const nothing = await shrink(plan, { breaks: () => Promise.resolve(false) });
    expect(nothing.plan).toBe(plan);
    const bounded = await shrink(plan, { breaks: () => Promise.resolve(false), replaysMax: 7 });
    expect(bounded.replays).toBe(7);
    let looks = 0;
    const stopped = await shrink(plan, { breaks: () => Promise.resolve(true), isOver: () => (looks += 1) > 3 });
    expect(stopped.replays).toBeLessThanOrEqual(3);
  });

  test("never runs the same plan twice", async () => {
    const seen = new Set<string>();
    await shrink(planWithFaults(6), {
      breaks: (candidate) => {
        const text = JSON.stringify(candidate);
        expect(seen.has(text)).toBe(false);
        seen.add(text);
        return Promise.resolve(false);
      },
    });
    expect(seen.size).toBeGreaterThan(10);
  });
});

describe("a plan as a file", () => {
  test("there and back it is the same plan", () => {
    for (let seed = 0; seed < 50; seed += 1) expect(parsePlan(encodePlan(planOf(seed)))).toStrictEqual(planOf(seed));
  });

  test.each([
    ["", "is not JSON"],
    ["7", "is not a plan"],
    ["{}", "is not a plan of this version"],
    [JSON.stringify({ ...planOf(1), format: "tidemark simulation plan 0" }), "is not a plan of this version"],
    [encodePlan({ ...planOf(1), durationMs: 1.5 }), "lacks a part of a plan"],
    [encodePlan(planOf(1)).replace('"faults"', '"failures"'), "lacks a part of a plan"],
  ])("%j is refused", (text, reason) => {
    expect(() => parsePlan(text)).toThrow(PlanFileError);
    expect(() => parsePlan(text)).toThrow(reason);
  });
});
