// Prints what came of seeds, as JSON: `node --import tsx --conditions=tidemark-source test/simulation/trace-hashes.ts FIRST COUNT`.
import { pathToFileURL } from "node:url";
import { planOf, simulate } from "@tidemark/simulation";

/** Of the faults' time: the first load and some of the quiet after it. What a seed does in it is as much of a proof as what it does later. */
const DURATION_MS = 20_000;

/** What must be the same whenever a seed runs: the order of all events, the logs byte for byte, how long it took. */
export async function traceHashes(first: number, count: number): Promise<readonly (readonly unknown[])[]> {
  const rows: (readonly unknown[])[] = [];
  for (let seed = first; seed < first + count; seed += 1) {
    const plan = planOf(seed);
    const faults = plan.faults.filter(({ atMs }) => atMs < DURATION_MS);
    const report = await simulate(seed, { ...plan, durationMs: DURATION_MS, faults });
    rows.push([seed, report.traceHash, report.events, report.virtualMs, report.logDigests, report.failure ?? "none"]);
  }
  return rows;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href)
  console.log(JSON.stringify(await traceHashes(Number(process.argv[2]), Number(process.argv[3]))));
