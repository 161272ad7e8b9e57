// Crashes of a log and of a directory at full effort, on all cores: `npm run crash:full`. Prints the table and the time; exit 1 for a
// violation, a cell below its floor, or too few distinct images. With --floors it explores as `npm test` does and writes the floors of that.
import { writeFileSync } from "node:fs";
import type { FlushMode } from "@tidemark/log";
import type { ScriptReport } from "./crash-explorer.ts";
import { countedImages, crashJobs } from "./crash-suite.ts";
import { FLOORS } from "./floors.ts";
import { exploreInProcesses } from "./full-run.ts";
import { cellsBelow, floorOf, formatReports } from "./report-table.ts";

const DISTINCT_MIN = 1_000_000;
const MODES: readonly FlushMode[] = ["always", "none"];

const writesFloors = process.argv.includes("--floors");
const startMs = performance.now();
const jobs = MODES.flatMap((flush) =>
  crashJobs(flush).map(({ script }) => ({ flush, script, effort: writesFloors ? "default" : "full" }) as const),
);
const results = await exploreInProcesses(jobs);
const wallMs = performance.now() - startMs;
const cpuMs = results.reduce((sum, result) => sum + result.cpuMs, 0);
const all = results.map(({ report }) => report);
const complaints: string[] = [];
const floors: string[] = [];
for (const flush of MODES) {
  const reports = all.filter((report) => report.flush === flush);
  floors.push(`  ${flush}: {`);
  for (const report of reports) {
    floors.push(`    ${JSON.stringify(report.script)}:\n      ${JSON.stringify(floorOf(report))},`);
    const wrong = writesFloors ? [] : cellsBelow(report, FLOORS[flush][report.script] ?? "");
    complaints.push(...[...report.violations, ...wrong].map((text) => `flush ${flush}, ${report.script}: ${text}`));
  }
  floors.push("  },");
  console.log(
    `flush ${flush}: distinct disk images by loss, first/second crash/crash in recovery\n${formatReports(reports)}\n`,
  );
}
const slowest = results.toSorted((one, other) => other.cpuMs - one.cpuMs).slice(0, 5);
for (const { name, report, cpuMs: jobMs } of slowest)
  console.log(`${(jobMs / 1000).toFixed(1)} s of CPU: ${name.script}, flush ${name.flush}, ${report.total} images`);
const counted = countedImages(all);
const sum = (value: (report: ScriptReport) => number): number =>
  all.reduce((total, report) => total + value(report), 0);
if (!writesFloors && counted < DISTINCT_MIN) complaints.push(`${counted} distinct images counted of ${DISTINCT_MIN}`);
for (const complaint of complaints) console.log(complaint);
console.log(
  `${sum(({ total }) => total)} distinct images, ${sum(({ torn }) => torn)} of them by torn writes alone; ${counted} counted;`,
  `${sum(({ opens }) => opens)} opens; ${(cpuMs / 1000).toFixed(0)} s of CPU in ${(wallMs / 1000).toFixed(0)} s;`,
  `${complaints.length} complaints`,
);
if (complaints.length > 0) process.exitCode = 1;
if (writesFloors) {
  const text = `import type { FlushMode } from "@tidemark/log";

/**
 * Distinct images that each script must at least give, by loss as first/second crash/crash in recovery, so that a crash suite that stops
 * looking cannot pass: half of what \`npm test\` counts. Written by \`npm run crash:full -- --floors\`.
 */
export const FLOORS: Readonly<Record<FlushMode, Readonly<Record<string, string>>>> = {
${floors.join("\n")}
};
`;
  writeFileSync(new URL("floors.ts", import.meta.url), text);
}
