import { describe, expect, test } from "vitest";
import { FAULT_TYPES, planOf } from "@tidemark/simulation";
import { simulate } from "@tidemark/simulation";

/** More of them: `TIDEMARK_SEEDS=2000 npx vitest run --project simulation`; from another on: `TIDEMARK_FIRST_SEED=10000`. */
const COUNT = Number(process.env["TIDEMARK_SEEDS"] ?? 200);
const FIRST = Number(process.env["TIDEMARK_FIRST_SEED"] ?? 1);
const BLOCK = 50;
/** For a seed, on a machine that is busy with other things. */
const SEED_TIMEOUT_MS = 5_000;

describe("random histories: faults within what must be survivable, rules looked at between any two events", () => {
  for (let first = FIRST; first < FIRST + COUNT; first += BLOCK) {
    const last = Math.min(first + BLOCK, FIRST + COUNT) - 1;
    test(`seeds ${first} to ${last}`, { timeout: (last - first + 1) * SEED_TIMEOUT_MS }, async () => {
      const failures: string[] = [];
      const totals = new Map<string, number>();
      const add = (name: string, count: number): void => void totals.set(name, (totals.get(name) ?? 0) + count);
      for (let seed = first; seed <= last; seed += 1) {
        const report = await simulate(seed);
        if (report.failure !== undefined)
          failures.push(
            `node --import tsx --conditions=tidemark-source test/simulation/main.ts ${seed} 1\n${report.failure}`,
          );
        for (const [fault, count] of Object.entries(report.faults)) add(fault, count);
        add("virtual seconds", Math.floor(report.virtualMs / 1000));
        for (const name of ["events", "acknowledged", "reads", "truncations", "leaderEpochs"] as const)
          add(name, report[name]);
      }
      console.log(`seeds ${first} to ${last}: ${[...totals].map(([name, count]) => `${name} ${count}`).join(", ")}`);
      expect(failures).toEqual([]);
    });
  }
});

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
