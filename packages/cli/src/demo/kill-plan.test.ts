import { describe, expect, test } from "vitest";

import { planKills } from "./kill-plan.ts";

describe("the plan of kills", () => {
  test("the same seed plans the same kills, other seeds other ones", () => {
    expect(planKills(200_000, 7)).toEqual(planKills(200_000, 7));
    const plans = new Set(Array.from({ length: 50 }, (_unused, seed) => JSON.stringify(planKills(200_000, seed))));
    expect(plans.size).toBe(50);
  });

  test("kills fall in different thirds, and every third has its turn", () => {
    const thirdsSeen = new Set<number>();
    for (let seed = 0; seed < 200; seed += 1) {
      const thirds = planKills(3000, seed).map(({ atAcknowledged }) => Math.floor((atAcknowledged - 1) / 1000));
      expect(new Set(thirds).size).toBe(2);
      for (const third of thirds) thirdsSeen.add(third);
    }
    expect(thirdsSeen).toEqual(new Set([0, 1, 2]));
  });

  test("for any size each kill can be reached, and leaves records for the next process", () => {
    for (let recordCount = 3; recordCount < 40; recordCount += 1) {
      for (let seed = 0; seed < 40; seed += 1) {
        const plan = planKills(recordCount, seed);
        expect(plan).toHaveLength(2);
        let previous = 0;
        for (const { atAcknowledged, appendUpTo } of plan) {
          expect(atAcknowledged).toBeGreaterThan(previous);
          expect(appendUpTo).toBeGreaterThanOrEqual(atAcknowledged);
          expect(appendUpTo).toBeLessThan(recordCount);
          previous = atAcknowledged;
        }
        expect(plan[0]?.appendUpTo).toBeLessThan(plan[1]?.atAcknowledged ?? 0);
      }
    }
  });

  test("an input of two records is killed after each, of one once, of none never", () => {
    expect(planKills(2, 1)).toEqual([
      { atAcknowledged: 1, appendUpTo: 1 },
      { atAcknowledged: 2, appendUpTo: 2 },
    ]);
    expect(planKills(1, 1)).toEqual([{ atAcknowledged: 1, appendUpTo: 1 }]);
    expect(planKills(0, 1)).toEqual([]);
  });
});
