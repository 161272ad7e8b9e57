import type { Mutant } from "@tidemark/simulator";
import { withMutant } from "./mutated.ts";
import type * as Probes from "./memory-probes.ts";

const PROBES: Readonly<Record<string, keyof typeof Probes>> = { M42: "probeWorkers", M43: "probeAnswers" };

/** Runs the probe that is known to notice a mutant, with the mutant in the code. @returns for each seed what it said */
export async function noticeMemoryMutant(
  mutant: Mutant,
  seeds: readonly number[],
): Promise<readonly (string | undefined)[]> {
  const name = PROBES[mutant.id];
  if (name === undefined) throw new Error(`no probe is known to notice ${mutant.id}`);
  return withMutant(mutant, "test/simulation/memory-probes.ts", async (module) => {
    const probes = module as typeof Probes;
    const said: (string | undefined)[] = [];
    for (const seed of seeds) said.push(await probes[name](seed));
    return said;
  });
}
