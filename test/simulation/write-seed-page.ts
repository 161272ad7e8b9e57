import { writeFile } from "node:fs/promises";
import { renderHistory } from "@tidemark/console";
import { mutantOf } from "@tidemark/simulator";
import { withMutant } from "./mutated.ts";
import { recordSeed } from "@tidemark/simulation";
import type { SeedReport } from "@tidemark/simulation";

/** Runs a seed, with a planted bug if one is named, and writes the page of its history. */
export async function writeSeedPage(seed: number, path: string, mutantId: string | undefined): Promise<SeedReport> {
  const { report, history } = mutantId === undefined ? await recordSeed(seed) : await recordMutant(seed, mutantId);
  await writeFile(path, renderHistory(history));
  return report;
}

/** A seed's history with a planted bug in the engine. */
export function recordMutant(seed: number, mutantId: string): ReturnType<typeof recordSeed> {
  return withMutant(mutantOf(mutantId), "record.ts", (module) =>
    (module as { recordSeed: typeof recordSeed }).recordSeed(seed, mutantId),
  );
}
