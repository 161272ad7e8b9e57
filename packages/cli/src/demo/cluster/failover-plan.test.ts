import { describe, expect, test } from "vitest";

import { FAILOVER_COUNT, planFailovers } from "./failover-plan.ts";

describe("planFailovers", () => {
  test("the same seed plans the same, another seed something else", () => {
    expect(planFailovers(200_000, 7)).toEqual(planFailovers(200_000, 7));
    expect(planFailovers(200_000, 7)).not.toEqual(planFailovers(200_000, 8));
  });

  test.each([0, 1, 2, 3, 4, 5, 10, 1000])(
    "of %i records every death leaves the leader one to take alone",
    (recordCount) => {
      for (let seed = 0; seed < 300; seed += 1) {
        const plan = planFailovers(recordCount, seed);
        expect(plan).toHaveLength(Math.min(FAILOVER_COUNT, recordCount));
        let previousEnd = 0;
        for (const { atAcknowledged, returnAt, sendUpTo } of plan) {
          expect(atAcknowledged).toBeGreaterThanOrEqual(previousEnd);
          expect(returnAt).toBeGreaterThan(atAcknowledged);
          expect(returnAt).toBeLessThanOrEqual(sendUpTo);
          expect(sendUpTo).toBeLessThanOrEqual(recordCount);
          previousEnd = sendUpTo;
        }
        expect(previousEnd).toBe(recordCount);
      }
    },
  );
});
