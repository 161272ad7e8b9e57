import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { MutantApplication, REPAIR_MUTANTS } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { noticeRepairMutant } from "./noticed-repair-mutants.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

test.each(REPAIR_MUTANTS.map((mutant) => [mutant.id, mutant] as const))(
  "%s: a crash in the middle of a repair shows it",
  async (_id, mutant) => {
    expect(await noticeRepairMutant(mutant)).toMatch(/is damaged as well|has no damage|the repaired log/u);
  },
);

test("every mutant of the repair finds its place in the source", () => {
  for (const mutant of REPAIR_MUTANTS) {
    const application = new MutantApplication(mutant);
    for (const { file } of mutant.edits) {
      const source = readFileSync(`${ROOT}${file}`, "utf8");
      expect(application.apply(file, source)).not.toBe(source);
    }
    application.assertComplete();
  }
});
