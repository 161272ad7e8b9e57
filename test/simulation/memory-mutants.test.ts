import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { MEMORY_MUTANTS, MutantApplication } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { probeAnswers, probeWorkers } from "./memory-probes.ts";
import { noticeMemoryMutant } from "./noticed-memory-mutants.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const SEEDS = [1, 2, 3];

test("the probes find nothing in the code as it is", async () => {
  for (const seed of SEEDS)
    expect([await probeWorkers(seed), await probeAnswers(seed)]).toEqual([undefined, undefined]);
});

test.each(MEMORY_MUTANTS.map((mutant) => [mutant.id, mutant] as const))(
  "%s is noticed with every seed",
  async (_id, mutant) => {
    for (const said of await noticeMemoryMutant(mutant, SEEDS)) expect(said).toMatch(/^S15:/u);
  },
);

test("every mutant finds its place in the source", () => {
  for (const mutant of MEMORY_MUTANTS) {
    const application = new MutantApplication(mutant);
    for (const { file } of mutant.edits) {
      const source = readFileSync(`${ROOT}${file}`, "utf8");
      expect(application.apply(file, source)).not.toBe(source);
    }
    application.assertComplete();
  }
});
