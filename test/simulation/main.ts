// Runs random histories: `node --import tsx --conditions=tidemark-source test/simulation/main.ts FIRST COUNT`.
// `npm run sim -- SEED 1 --html FILE` writes the page of one seed, with `--mutant ID` that of an engine with a planted bug.
// With VERBOSE=1 a line for each seed; exit 1 when a seed failed.
import { parseArgs } from "node:util";
import { simulate } from "@tidemark/simulation";
import { writeSeedPage } from "./write-seed-page.ts";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { html: { type: "string" }, mutant: { type: "string" } },
});
const first = Number(positionals[0] ?? 1);
const count = Number(positionals[1] ?? 100);
if (options.html === undefined ? options.mutant !== undefined : count !== 1)
  throw new Error("--html FILE is for one seed, and --mutant ID for --html");
const cpuStart = process.cpuUsage();
const totals = new Map<string, number>();
let failed = 0;
let virtualMs = 0;
for (let seed = first; seed < first + count; seed += 1) {
  const report =
    options.html === undefined ? await simulate(seed) : await writeSeedPage(seed, options.html, options.mutant);
  virtualMs += report.virtualMs;
  for (const [name, value] of Object.entries(report.faults)) totals.set(name, (totals.get(name) ?? 0) + value);
  for (const name of ["acknowledged", "sends", "reads", "truncations", "leaderEpochs", "events", "checks"] as const)
    totals.set(name, (totals.get(name) ?? 0) + report[name]);
  if (process.env["VERBOSE"] === "1") console.log(JSON.stringify(report));
  if (report.failure !== undefined) {
    failed += 1;
    console.log(`seed ${seed} FAILED: ${report.failure.slice(0, 3000)}`);
  }
}
const cpu = process.cpuUsage(cpuStart);
const cpuSeconds = (cpu.user + cpu.system) / 1e6;
console.log(
  `${count} seeds from ${first}, ${failed} failed; ${(virtualMs / 1000).toFixed(0)} virtual seconds in ${cpuSeconds.toFixed(1)} CPU seconds`,
);
console.log(JSON.stringify(Object.fromEntries(totals)));
if (failed > 0) process.exitCode = 1;
