import { describe, expect, test } from "vitest";
import { simulate } from "@tidemark/simulation";

/** More of them: `TIDEMARK_SEEDS=2000 npx vitest run --project simulation`; from another on: `TIDEMARK_FIRST_SEED=10000`. */
const COUNT = Number(process.env["TIDEMARK_SEEDS"] ?? 200);
const FIRST = Number(process.env["TIDEMARK_FIRST_SEED"] ?? 1);
/** A test; with few seeds smaller, so that both files have one. */
const BLOCK = Math.min(50, Math.ceil(COUNT / 2));
/** For a seed, on a machine that is busy with other things. */
const SEED_TIMEOUT_MS = 5_000;

/** Every so many blocks of seeds, from this one on: files run side by side, and all seeds in one would be the last to end. */
export function runRandomHistories(part: number, parts: number): void {
  describe("random histories: faults within what must be survivable, rules looked at between any two events", () => {
    for (let first = FIRST + part * BLOCK; first < FIRST + COUNT; first += parts * BLOCK) runBlock(first);
  });
}

function runBlock(first: number): void {
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
