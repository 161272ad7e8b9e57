import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { MutantApplication, mutantOf, MUTANTS } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { withMutant } from "./mutated.ts";
import { planOf } from "@tidemark/simulation";
import type { Plan, SeedReport } from "@tidemark/simulation";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Rules that a mutant may break, and the seeds that are tried: from the first that is known to notice it, so that this takes little time.
 * Those that few seeds notice get that one alone. `npm run sim:mutants` tries all seeds in order, and all mutants.
 */
const NOTICED: readonly (readonly [
  id: string,
  seeds: { readonly from: number; readonly to: number },
  rules: RegExp,
])[] = [
  ["M01", { from: 2, to: 60 }, /^S[1478]:/u],
  ["M02", { from: 3, to: 60 }, /^(?:S[258]:|Error: never: the replicas agree)/u],
  ["M06", { from: 3, to: 60 }, /^S[45]:/u],
  ["M08", { from: 1, to: 60 }, /^S[15]:/u],
  ["M09", { from: 2, to: 60 }, /^S6:/u],
  ["M10", { from: 1, to: 60 }, /^S[16]:/u],
  ["M11", { from: 2, to: 60 }, /^S(?:4|19):/u],
  ["M14", { from: 9, to: 60 }, /^S12:/u],
  ["M36", { from: 5, to: 60 }, /^S[145]:/u],
  ["M41", { from: 32, to: 60 }, /^S16:/u],
  ["M44", { from: 5, to: 60 }, /^Error: no batch at/u],
  ["M45", { from: 3, to: 60 }, /^Error: no batch at/u],
  ["M46", { from: 5, to: 60 }, /^S22:/u],
  ["M47", { from: 1, to: 60 }, /^S22:/u],
  ["P01", { from: 3, to: 60 }, /^S(?:4|5|25):/u],
  ["P02", { from: 1, to: 60 }, /^S1:/u],
  ["P03", { from: 3, to: 60 }, /^S[78]:/u],
  ["P05", { from: 1, to: 60 }, /^L2:/u],
  ["P06", { from: 1, to: 60 }, /^S(?:5|25):/u],
];

/**
 * As `NOTICED`, of bugs that show only when leaders follow each other while others are held back: looked for in histories of nothing
 * else. M04 takes leaders that die one after another, each with records that the next one has not.
 */
const NOTICED_IN_LEAPFROGS: readonly (readonly [
  id: string,
  seeds: { readonly from: number; readonly to: number },
  rules: RegExp,
  leapfrogs: "all" | "chains",
])[] = [
  ["M03", { from: 3, to: 60 }, /^Error: never: the replicas agree/u, "all"],
  // Its cut goes to where the leader's epoch ends, which may lie inside a batch of the follower's: the log ends there without one.
  ["M04", { from: 369, to: 369 }, /^Error: (?:never: the replicas agree|no batch at)/u, "chains"],
  ["M05", { from: 70, to: 100 }, /^S(?:5|25):/u, "all"],
  ["M07", { from: 13, to: 60 }, /^S(?:5|25):/u, "all"],
];

const LEAPFROG_MS = { all: 6000, chains: 4000 } as const;

/** Of a seed's plan, its leapfrogs and no other fault, one after another under load; without any there is nothing to run. */
function leapfrogsOf(seed: number, which: "all" | "chains"): Plan | undefined {
  const { cluster, producers, hasMessageFaults, faults } = planOf(seed);
  const isChosen = (fault: Plan["faults"][number]): boolean => {
    if (fault.type !== "leapfrog") return false;
    const [first] = fault.leaps;
    return which === "all" || (first?.held === "next" && first.fate.type === "kill");
  };
  const chosen = faults
    .filter((fault) => isChosen(fault))
    .map((fault, index) => ({ ...fault, atMs: 2000 + LEAPFROG_MS[which] * index }));
  if (chosen.length === 0) return undefined;
  const durationMs = LEAPFROG_MS[which] * chosen.length + 5000;
  return { cluster, producers, hasMessageFaults, phases: [], durationMs, faults: chosen };
}

describe("the simulator notices bugs that are planted", () => {
  async function firstFailure(
    id: string,
    { from, to }: { readonly from: number; readonly to: number },
    planned: (seed: number) => Plan | undefined,
  ): Promise<string> {
    return withMutant(mutantOf(id), "simulate.ts", async (module) => {
      const { simulate } = module as { simulate: (seed: number, plan: Plan) => Promise<SeedReport> };
      for (let seed = from; seed <= to; seed += 1) {
        const plan = planned(seed);
        if (plan === undefined) continue;
        const report = await simulate(seed, plan);
        if (report.failure !== undefined) return report.failure;
      }
      return "not noticed";
    });
  }

  test.each(NOTICED)("%s", { timeout: 240_000 }, async (id, seeds, rules) => {
    expect(await firstFailure(id, seeds, planOf)).toMatch(rules);
  });

  test.each(NOTICED_IN_LEAPFROGS)("%s", { timeout: 240_000 }, async (id, seeds, rules, which) => {
    expect(await firstFailure(id, seeds, (seed) => leapfrogsOf(seed, which))).toMatch(rules);
  });
});

test("every mutant still finds its places in the source, each exactly once", () => {
  for (const mutant of MUTANTS) {
    const application = new MutantApplication(mutant);
    const sources = new Map(mutant.edits.map(({ file }) => [file, readFileSync(`${ROOT}${file}`, "utf8")]));
    for (const [file, source] of sources) expect(application.apply(`${ROOT}${file}`, source)).not.toBe(source);
    application.assertComplete();
  }
});

test("a mutant whose place is gone, is there twice, or whose file was never loaded fails", () => {
  const edit = { file: "a/b.ts", find: "x", replace: "y" };
  const application = new MutantApplication({ id: "M", title: "t", edits: [edit] });
  expect(application.apply("a/c.ts", "x")).toBeUndefined();
  expect(() => application.apply("/project/a/b.ts", "z")).toThrow("is there 0 times");
  expect(() => application.apply("/project/a/b.ts", "x x")).toThrow("is there 2 times");
  expect(() => application.assertComplete()).toThrow("was not loaded");
  expect(application.apply("/project/a/b.ts", "ax")).toBe("ay");
  application.assertComplete();
});
