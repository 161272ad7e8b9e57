import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { MutantApplication } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { CRASH_MUTANTS, noticeMutant, NOTICES } from "./noticed-mutants.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

describe("the crash suite notices bugs that are planted", () => {
  test.each(CRASH_MUTANTS.map((mutant) => [mutant.id, mutant] as const))("%s", async (id, mutant) => {
    expect(await noticeMutant(mutant)).toMatch(NOTICES.find((notice) => notice.id === id)?.invariant ?? "");
  });
});

test("every storage mutant has one script that notices it, and finds its places in the source", () => {
  expect(NOTICES.map(({ id }) => id)).toEqual(CRASH_MUTANTS.map(({ id }) => id));
  for (const mutant of CRASH_MUTANTS) {
    const application = new MutantApplication(mutant);
    const sources = new Map(mutant.edits.map(({ file }) => [file, readFileSync(`${ROOT}${file}`, "utf8")]));
    for (const [file, source] of sources) expect(application.apply(`${ROOT}${file}`, source)).not.toBe(source);
    application.assertComplete();
  }
});
