import { mutantOf } from "@tidemark/simulator";
import type { simulate } from "@tidemark/simulation";
import { describe, expect, test } from "vitest";
import { withMutant } from "./mutated.ts";

/** From one on that soon finds them; others need more seeds: M08 and M01 are seen by clients too. */
const FIRST_SEED = 5;
const SEEDS = 15;
/** Planted bugs, and what clients see of them: what they were told is gone, or another record is there. */
const SEEN: readonly (readonly [id: string, anomalies: RegExp])[] = [
  ["P02", /^C(?:1|2|10|13):/u],
  ["P09", /^C(?:1|2|10|13):/u],
  ["P10", /^C(?:1|2):/u],
];

describe("what clients saw is enough to notice a bug: with all rules about the insides silenced", () => {
  test.each(SEEN)("%s", { timeout: 240_000 }, async (id, anomalies) => {
    const found = await withMutant(mutantOf(id), "simulate.ts", async (module) => {
      const { simulate: run } = module as { simulate: typeof simulate };
      for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed += 1) {
        const { failure } = await run(seed, undefined, (cluster, checker) => {
          // It goes on following what is committed, which decides what faults are within bounds.
          cluster.kernel.onEvent = () => {
            try {
              checker.check();
            } catch {
              // Somebody else is to notice it.
            }
          };
          checker.acknowledged = () => undefined;
          checker.consumed = (_bytes, fromOffset) => fromOffset;
        });
        // The bug may also show in that a producer never gets on.
        if (failure !== undefined && anomalies.test(failure)) return failure;
      }
      return "not noticed";
    });
    expect(found).toMatch(anomalies);
  });
});
