import { SeedTally, simulate } from "@tidemark/simulation";
import { describe, expect, test } from "vitest";

/** More of them: `TIDEMARK_SEEDS=2000 npx vitest run --project simulation`; from another on: `TIDEMARK_FIRST_SEED=10000`. */
const COUNT = Number(process.env["TIDEMARK_SEEDS"] ?? 500);
const FIRST = Number(process.env["TIDEMARK_FIRST_SEED"] ?? 1);
const BLOCK = 50;
/** For a seed, on a machine that is busy with other things. */
const SEED_TIMEOUT_MS = 10_000;

/** What a seed has to have in it in the median, and how many classes of faults have to be in so many of a hundred seeds. */
const OPERATIONS_MEDIAN_MIN = 1000;
const FAULTS_MEDIAN_MIN = 60;
const CLASSES_MIN = 20;
const CLASS_PERCENT_MIN = 5;
/** Fewer seeds say little of shares. */
const SEEDS_COUNTED_MIN = 80;

/** The seeds of CI, in as many parts as there are test files: each runs in a process of its own. @param part from 0 on */
export function runRandomHistories(part: number, parts: number): void {
  const from = FIRST + Math.floor((COUNT * part) / parts);
  const to = FIRST + Math.floor((COUNT * (part + 1)) / parts);
  describe("random histories: faults within what must be survivable, rules looked at between any two events", () => {
    const tally = new SeedTally();
    for (let first = from; first < to; first += BLOCK) {
      const last = Math.min(first + BLOCK, to) - 1;
      test(`seeds ${first} to ${last}`, { timeout: (last - first + 1) * SEED_TIMEOUT_MS }, async () => {
        const failures: string[] = [];
        for (let seed = first; seed <= last; seed += 1) {
          const report = await simulate(seed);
          tally.add(report);
          if (report.failure !== undefined)
            failures.push(
              `node --import tsx --conditions=tidemark-source test/simulation/main.ts ${seed} 1\n${report.failure}`,
            );
        }
        expect(failures).toEqual([]);
      });
    }

    test("they are rich: operations, faults, classes of faults, machines that come back without their tail", () => {
      const { seeds, operationsMedian, faultsMedian, lostTailSeeds } = tally;
      const classes = tally.classes.filter((one) => one.seeds * 100 >= CLASS_PERCENT_MIN * seeds);
      const shares = classes.map((one) => `${one.name} ${((100 * one.seeds) / seeds).toFixed(0)} %`).join(", ");
      console.log(`${seeds} seeds: ${operationsMedian} operations, ${faultsMedian} faults; ${shares}`);
      expect(seeds).toBe(to - from);
      if (seeds < SEEDS_COUNTED_MIN) return;
      expect(operationsMedian).toBeGreaterThanOrEqual(OPERATIONS_MEDIAN_MIN);
      expect(faultsMedian).toBeGreaterThanOrEqual(FAULTS_MEDIAN_MIN);
      expect(classes.length).toBeGreaterThanOrEqual(CLASSES_MIN);
      expect(lostTailSeeds * 100).toBeGreaterThanOrEqual(seeds);
    });
  });
}
