import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { MutantApplication, mutantOf, MUTANTS } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { withMutant } from "./mutated.ts";
import type { SeedReport } from "@tidemark/simulation";

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
  ["M02", { from: 2, to: 60 }, /^(?:S[258]:|Error: never: the replicas agree)/u],
  ["M03", { from: 2, to: 60 }, /^Error: never: the replicas agree/u],
  // A follower that is never like its leader again stays out of the ISR for ever, too; or the checker misses a batch of it in its file.
  ["M04", { from: 12, to: 61 }, /^(?:L3:|Error: no batch at|Error: never: the replicas agree)/u],
  ["M05", { from: 12, to: 60 }, /^S(?:5|25):/u],
  ["M06", { from: 3, to: 60 }, /^S[45]:/u],
  ["M07", { from: 12, to: 60 }, /^S(?:5|25):/u],
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

describe("the simulator notices bugs that are planted", () => {
  async function firstFailure(
    id: string,
    { from, to }: { readonly from: number; readonly to: number },
  ): Promise<string> {
    return withMutant(mutantOf(id), "simulate.ts", async (module) => {
      const { simulate } = module as { simulate: (seed: number) => Promise<SeedReport> };
      for (let seed = from; seed <= to; seed += 1) {
        const report = await simulate(seed);
        if (report.failure !== undefined) return report.failure;
      }
      return "not noticed";
    });
  }

  test.each(NOTICED)("%s", { timeout: 240_000 }, async (id, seeds, rules) => {
    expect(await firstFailure(id, seeds)).toMatch(rules);
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
