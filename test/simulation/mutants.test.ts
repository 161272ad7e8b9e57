import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { MutantApplication, mutantOf, MUTANTS } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { withMutant } from "./mutated.ts";
import type { SeedReport } from "@tidemark/simulation";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Seeds that a mutant gets here, and the rules that may be broken. The others need more seeds (`hunt.ts`), or are noticed by the named
 * histories and the tests of `packages/replica`.
 */
const SEEDS_MAX = 60;
const NOTICED: readonly (readonly [id: string, rules: RegExp])[] = [
  ["M01", /^S[178]:/u],
  ["M06", /^S[45]:/u],
  ["M08", /^S[15]:/u],
  ["M10", /^S[16]:/u],
  ["P02", /^S1:/u],
  ["P03", /^S[78]:/u],
];

describe("the simulator notices bugs that are planted", () => {
  test.each(NOTICED)("%s", { timeout: 240_000 }, async (id, rules) => {
    const failure = await withMutant(mutantOf(id), "simulate.ts", async (module) => {
      const { simulate } = module as { simulate: (seed: number) => Promise<SeedReport> };
      for (let seed = 1; seed <= SEEDS_MAX; seed += 1) {
        const report = await simulate(seed);
        if (report.failure !== undefined) return report.failure;
      }
      return "not noticed";
    });
    expect(failure).toMatch(rules);
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
