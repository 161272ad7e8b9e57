// Which script of the crash suite or which seed notices which mutant: `node --import tsx --conditions=tidemark-source test/simulation/hunt.ts [SEEDS] [ID…]`.
// Stops at the first seed that fails; exit 1 when a mutant was not noticed.
import { MEMORY_MUTANTS, MUTANTS, REPAIR_MUTANTS } from "@tidemark/simulator";
import { CRASH_MUTANTS, huntStorageMutants } from "../crash/noticed-mutants.ts";
import { noticeRepairMutant } from "../crash/noticed-repair-mutants.ts";
import { withMutant } from "./mutated.ts";
import { noticeMemoryMutant } from "./noticed-memory-mutants.ts";
import type { SeedReport } from "@tidemark/simulation";

const seeds = Number(process.argv[2] ?? 200);
const ids = process.argv.slice(3);
let missed = await huntStorageMutants(ids, console.log);
for (const mutant of MEMORY_MUTANTS.filter(({ id }) => ids.length === 0 || ids.includes(id))) {
  const [said] = await noticeMemoryMutant(mutant, [1]);
  if (said === undefined) missed += 1;
  console.log(
    `${mutant.id} ${said === undefined ? "ALIVE after its probe" : `killed by its probe: ${said}`} (${mutant.title})`,
  );
}
for (const mutant of REPAIR_MUTANTS.filter(({ id }) => ids.length === 0 || ids.includes(id))) {
  const said = await noticeRepairMutant(mutant);
  if (said === undefined) missed += 1;
  console.log(
    `${mutant.id} ${said === undefined ? "ALIVE" : "killed"} by crashes of a repair: ${said} (${mutant.title})`,
  );
}
for (const mutant of MUTANTS.filter(({ id }) => ids.length === 0 || ids.includes(id))) {
  const found = await withMutant(mutant, "simulate.ts", async (module) => {
    const { simulate } = module as { simulate: (seed: number) => Promise<SeedReport> };
    for (let seed = 1; seed <= seeds; seed += 1) {
      const { failure } = await simulate(seed);
      if (failure !== undefined) return `killed by seed ${seed}: ${failure.split("\n", 1)[0]}`;
    }
    return undefined;
  });
  if (found === undefined) missed += 1;
  console.log(`${mutant.id} ${found ?? `ALIVE after ${seeds} seeds`} (${mutant.title})`);
}
const hunted = [...CRASH_MUTANTS, ...MEMORY_MUTANTS, ...REPAIR_MUTANTS, ...MUTANTS].filter(
  ({ id }) => ids.length === 0 || ids.includes(id),
).length;
console.log(`${hunted - missed} of ${hunted} killed`);
if (missed > 0) process.exitCode = 1;
