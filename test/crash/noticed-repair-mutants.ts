import type { Mutant } from "@tidemark/simulator";
import type * as Repair from "../../packages/log/src/repair.fixture.ts";
import { withMutant } from "../simulation/mutated.ts";

/** Explores the crashes of a repair with a mutant in the code. @returns what went wrong first; `undefined` when nothing did */
export async function noticeRepairMutant(mutant: Mutant): Promise<string | undefined> {
  return withMutant(mutant, "packages/log/src/repair.fixture.ts", async (module) => {
    try {
      await (module as typeof Repair).exploreRepair();
      return undefined;
    } catch (error) {
      return String(error);
    }
  });
}
