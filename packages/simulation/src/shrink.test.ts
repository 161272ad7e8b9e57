import { describe, expect, test } from "vitest";
import { encodePlan, parsePlan, PlanFileError } from "./plan-file.ts";
import { planOf } from "./plan.ts";
import type { Plan } from "./plan.ts";
import { breaksRule, shrink } from "./shrink.ts";

/** Behind the end of all plans. */
const NEVER_MS = 1e9;

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
    const { plan: shrunk, replays } = await shrink(plan, {
      breaks: (candidate) => Promise.resolve(has(candidate) ? NEVER_MS : undefined),
      brokeAtMs: NEVER_MS,
    });
    expect(shrunk.faults.map(({ type }) => type)).toEqual(needed);
    expect(shrunk.producers).toHaveLength(1);
    expect(shrunk.hasMessageFaults).toBe(false);
    expect(shrunk.cluster).toMatchObject({ seed: plan.cluster.seed, brokers: 2, log: {}, manager: {} });
    for (const { atMs } of shrunk.faults) expect(atMs % 100).toBe(0);
    expect(replays).toBeLessThan(300);
  });

  test("leaves a plan alone whose every part is needed, and stops at its bounds", async () => {
    const plan = planWithFaults(10);
    const nothing = await shrink(plan, { breaks: () => Promise.resolve(undefined), brokeAtMs: NEVER_MS });
    expect(nothing.plan).toBe(plan);
    const bounded = await shrink(plan, {
      breaks: () => Promise.resolve(undefined),
      brokeAtMs: NEVER_MS,
      replaysMax: 7,
    });
    expect(bounded.replays).toBe(7);
    let looks = 0;
    const stopped = await shrink(plan, {
      breaks: () => Promise.resolve(NEVER_MS),
      brokeAtMs: NEVER_MS,
      isOver: () => (looks += 1) > 3,
    });
    expect(stopped.replays).toBeLessThanOrEqual(3);
  });

  test("runs nothing that comes after the break, nor waits much longer for it than the plan did before", async () => {
    const plan = planWithFaults(20);
    const brokeAtMs = plan.faults[9]?.atMs ?? 0;
    const limits: number[] = [];
    const { plan: shrunk } = await shrink(plan, {
      breaks: (_candidate, untilMs) => {
        limits.push(untilMs);
        return Promise.resolve(limits.length === 1 ? brokeAtMs - 1000 : undefined);
      },
      brokeAtMs,
    });
    expect([shrunk.durationMs, shrunk.faults]).toEqual([
      brokeAtMs,
      plan.faults.filter(({ atMs }) => atMs <= brokeAtMs),
    ]);
    expect([limits[0], limits[1], limits.at(-1)]).toEqual([brokeAtMs + 10_000, brokeAtMs + 9000, brokeAtMs + 9000]);
  });

  test("a rule counts as broken only if it is the same one, and only up to the time that is looked at", async () => {
    const plan = { ...planOf(3), durationMs: 1000, faults: [], phases: [] };
    expect(await breaksRule("S1")(plan, NEVER_MS)).toBeUndefined();
    // Cut short it fails with an error of no rule.
    expect(await breaksRule("liveness")(plan, 500)).toBeUndefined();
  });

  test("never runs the same plan twice", async () => {
    const seen = new Set<string>();
    await shrink(planWithFaults(6), {
      breaks: (candidate) => {
        const text = JSON.stringify(candidate);
        expect(seen.has(text)).toBe(false);
        seen.add(text);
        return Promise.resolve(undefined);
      },
      brokeAtMs: NEVER_MS,
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
