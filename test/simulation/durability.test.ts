import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { FAILURES, MODES, renderDurability, runDurability } from "./durability.ts";
import type { DurabilityReport } from "./durability.ts";

/** Histories of a cell that says "kept". More of them: `TIDEMARK_SEEDS=500`. */
const SEEDS = Number(process.env["TIDEMARK_SEEDS"] ?? 12);
/** One of so many has to lose something where a cell says that it may. */
const SEEDS_UNTIL_LOST = 200;

const CELLS = FAILURES.flatMap((failure) =>
  MODES.map((mode, column) => ({
    failure,
    mode,
    name: `${mode.title}: ${failure.title}`,
    isKept: failure.cells[column]?.startsWith("kept") ?? false,
    isByHand: failure.cells[column]?.endsWith("by hand") ?? false,
  })),
);

function named(isKept: boolean): (readonly [string, (typeof CELLS)[number]])[] {
  return CELLS.filter((cell) => cell.isKept === isKept).map((cell) => [cell.name, cell]);
}

/** Of every history, whether it loses anything or not. */
function expectConverged(seed: number, { isSame, acknowledged }: DurabilityReport): void {
  expect({ seed, isSame, isWritten: acknowledged > 0 }).toEqual({ seed, isSame: true, isWritten: true });
}

describe("acknowledged records are kept, and the replicas are the same in the end", () => {
  test.each(named(true))("%s", async (_name, { failure, mode, isByHand }) => {
    let electionsByHand = 0;
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const report = await runDurability(seed, failure, mode);
      expectConverged(seed, report);
      // A retry after a lost leader may be stored a second time with acks=1: who knew of the first is gone.
      const doubled = mode.acks === -1 ? report.doubled : [];
      expect({ seed, lost: report.lost, doubled }).toEqual({ seed, lost: [], doubled: [] });
      electionsByHand += report.electionsByHand;
    }
    expect(electionsByHand > 0).toBe(isByHand);
  });
});

describe("acknowledged records may be lost, and that is not hidden: the replicas are the same in the end", () => {
  test.each(named(false))("%s", async (_name, { failure, mode, isByHand }) => {
    const electionsMin = isByHand ? 1 : 0;
    let lostAt = 0;
    let electionsByHand = 0;
    for (let seed = 1; seed <= SEEDS_UNTIL_LOST && (lostAt === 0 || electionsByHand < electionsMin); seed += 1) {
      const report = await runDurability(seed, failure, mode);
      expectConverged(seed, report);
      if (report.lost.length > 0) lostAt ||= seed;
      // What all of the in-sync replicas had is given up by nobody but an operator.
      if (mode.acks === -1 && report.lost.length > 0) expect(report.electionsByHand).toBeGreaterThan(0);
      electionsByHand += report.electionsByHand;
    }
    expect(lostAt).toBeGreaterThan(0);
    expect(electionsByHand > 0).toBe(isByHand);
  });
});

test("the README's table is this one", () => {
  const readme = readFileSync(fileURLToPath(new URL("../../README.md", import.meta.url)), "utf8");
  expect(readme).toContain(`\n\n${renderDurability()}\n\n`);
});
