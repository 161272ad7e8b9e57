import type { FlushMode } from "@tidemark/log";
import { mutantOf, STORAGE_MUTANTS } from "@tidemark/simulator";
import type { Mutant } from "@tidemark/simulator";
import { withMutant } from "../simulation/mutated.ts";
import type { MUTANT_EFFORT, crashJobs } from "./crash-suite.ts";

/** All that this suite has to notice; seeds notice the last two as well. */
export const CRASH_MUTANTS: readonly Mutant[] = [...STORAGE_MUTANTS, mutantOf("M44"), mutantOf("M45")];

/** Where a mutant of one node's storage is noticed, and which invariant it breaks there. */
interface Notice {
  readonly id: string;
  readonly script: string;
  readonly flush: FlushMode;
  readonly invariant: RegExp;
  /** Only a second crash shows it: after a kill at each of so many points. Default: none is looked at. */
  readonly secondCrashAfterKillOneIn?: number;
}

export const NOTICES: readonly Notice[] = [
  { id: "M13", script: "append x3", flush: "always", invariant: /^S12:/u },
  { id: "M15", script: "failed sync, then recovery", flush: "always", invariant: /^S14:/u },
  { id: "M16", script: "failed sync of two waiting appends", flush: "always", invariant: /^S14:/u },
  { id: "M19", script: "append x3", flush: "always", invariant: /^S12:/u },
  { id: "M19b", script: "append x3", flush: "none", invariant: /^S1[13]:/u },
  { id: "M20", script: "append x3", flush: "none", invariant: /^S1[13]:/u },
  { id: "M21", script: "write that went astray", flush: "always", invariant: /^S1[13]:/u },
  { id: "M22", script: "append across index intervals", flush: "always", invariant: /^S10:/u },
  { id: "M23", script: "append across index intervals", flush: "always", invariant: /^S15:/u },
  { id: "M24", script: "index cut and grown again", flush: "always", invariant: /^S1[05]:/u },
  { id: "M24b", script: "truncate inside a segment", flush: "always", invariant: /^S17:/u },
  { id: "M24c", script: "index cut and grown again", flush: "always", invariant: /^S10:/u },
  { id: "M25", script: "truncate whole newer segments", flush: "always", invariant: /^S11:/u },
  { id: "M26", script: "epoch change", flush: "always", invariant: /^S9:/u },
  { id: "M26b", script: "epoch change", flush: "always", invariant: /^S9:/u },
  { id: "M27", script: "epoch cache cut from the tail", flush: "always", invariant: /^S9:/u },
  { id: "M28", script: "epoch change", flush: "always", invariant: /^S9:/u },
  { id: "M29", script: "one group across two rolls", flush: "always", invariant: /^S1[23]:/u },
  { id: "M30", script: "recovery point checkpoint", flush: "none", invariant: /^S13:/u },
  { id: "M31", script: "clean stop, start, kill", flush: "always", invariant: /^S13:/u },
  { id: "M17", script: "rot and loss while nothing runs", flush: "always", invariant: /^S13:/u },
  { id: "M18", script: "recovery itself", flush: "always", invariant: /^S13:/u },
  { id: "M18b", script: "recovery itself", flush: "always", invariant: /^S(?:9|12):/u },
  { id: "M38", script: "batches sent again", flush: "always", invariant: /^S17:/u },
  { id: "M39", script: "batches sent again", flush: "always", invariant: /offsets 3 in place of 2/u },
  { id: "M40", script: "transactions committed, aborted and left open", flush: "always", invariant: /^S18:/u },
  { id: "M51", script: "delete-records within and between segments", flush: "always", invariant: /^S6:/u },
  { id: "M52", script: "rot and loss while nothing runs", flush: "always", invariant: /^S13:/u },
  {
    id: "P16",
    script: "compaction, and another pass",
    flush: "always",
    invariant: /^S(?:6|13):/u,
    secondCrashAfterKillOneIn: 3,
  },
  { id: "P17", script: "markers cut off, and written otherwise", flush: "always", invariant: /^S1[08]:/u },
  { id: "P18", script: "roll by size", flush: "none", invariant: /^S10:/u },
  { id: "P19", script: "rot and loss while nothing runs", flush: "always", invariant: /^S13:/u },
  { id: "P20", script: "transactions committed, aborted and left open", flush: "always", invariant: /^S1[08]:/u },
  { id: "P21", script: "recovery point checkpoint", flush: "none", invariant: /^S13:/u },
  {
    id: "P25",
    script: "appends that wait for a flush of several segments",
    flush: "none",
    invariant: /^S1[03]:/u,
  },
  { id: "P26", script: "flush after a kill over several segments", flush: "none", invariant: /^S10:/u },
  { id: "M44", script: "short writes", flush: "always", invariant: /^S1[135]:/u },
  { id: "M45", script: "disk full, then space", flush: "always", invariant: /^S14:/u },
];

/** Plays the script that is known to notice a mutant with the mutant in the code. @returns the first invariant that breaks */
export async function noticeMutant(mutant: Mutant): Promise<string | undefined> {
  const notice = NOTICES.find(({ id }) => id === mutant.id);
  if (notice === undefined) throw new Error(`no script is known to notice ${mutant.id}`);
  return withMutant(mutant, "test/crash/crash-suite.ts", async (module) => {
    const suite = module as { crashJobs: typeof crashJobs; MUTANT_EFFORT: typeof MUTANT_EFFORT };
    const job = suite.crashJobs(notice.flush).find(({ script }) => script === notice.script);
    if (job === undefined) throw new Error(`there is no script "${notice.script}" with flush ${notice.flush}`);
    try {
      const { secondCrashAfterKillOneIn = suite.MUTANT_EFFORT.secondCrashAfterKillOneIn } = notice;
      return (await job.explore({ ...suite.MUTANT_EFFORT, secondCrashAfterKillOneIn })).violations[0];
    } catch (error) {
      // What the script itself shows needs no crash.
      return error instanceof Error ? error.message : String(error);
    }
  });
}

/** Line for line what became of each: `M13 killed by the crash suite, append x3 with flush always: S12: …`. */
export async function huntStorageMutants(ids: readonly string[], print: (line: string) => void): Promise<number> {
  let alive = 0;
  for (const mutant of CRASH_MUTANTS.filter(({ id }) => ids.length === 0 || ids.includes(id))) {
    const notice = NOTICES.find(({ id }) => id === mutant.id);
    const found = await noticeMutant(mutant);
    if (found === undefined) alive += 1;
    const where = `the crash suite, ${notice?.script} with flush ${notice?.flush}`;
    print(
      `${mutant.id} ${found === undefined ? `ALIVE after ${where}` : `killed by ${where}: ${found}`} (${mutant.title})`,
    );
  }
  return alive;
}
