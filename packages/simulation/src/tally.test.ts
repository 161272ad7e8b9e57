import { expect, test } from "vitest";
import type { SeedReport } from "./simulate.ts";
import { median, SeedTally } from "./tally.ts";

function report(faults: SeedReport["faults"], operations: number, lostTailReturns = 0): SeedReport {
  return { faults, operations, lostTailReturns } as SeedReport;
}

test("counts faults and seeds by class, and no median is moved by single messages or by what was not made", () => {
  const tally = new SeedTally();
  tally.add(report({ kill: 3, skipped: 50, "excused stall": 1 }, 10));
  tally.add(report({ kill: 1, pause: 5, dropped: 900 }, 30, 2));
  tally.add(report({ pause: 0, "unclean election": 4 }, 20));
  expect(tally.classes).toEqual([
    { name: "kill", count: 4, seeds: 2 },
    { name: "dropped", count: 900, seeds: 1 },
    { name: "pause", count: 5, seeds: 1 },
  ]);
  expect(tally).toMatchObject({ seeds: 3, operationsMedian: 20, faultsMedian: 3, lostTailSeeds: 1 });
});

test("the median of none is 0, of two the upper one", () => {
  expect([median([]), median([7]), median([9, 1]), median([3, 9, 1])]).toEqual([0, 7, 9, 3]);
});
