// Crashes of a log and of a directory at full effort: `npm run crash:full`. Prints the table and the time; exit 1 for a violation, a
// cell below its floor, or too few distinct images. With --floors it explores as `npm test` does and writes the floors of that.
import { writeFileSync } from "node:fs";
import type { FlushMode } from "@tidemark/log";
import type { ScriptReport } from "./crash-explorer.ts";
import { countedImages, crashJobs, DEFAULT_EFFORT, FULL_EFFORT } from "./crash-suite.ts";
import { FLOORS } from "./floors.ts";
import { cellsBelow, floorOf, formatReports } from "./report-table.ts";

const DISTINCT_MIN = 300_000;
const MODES: readonly FlushMode[] = ["always", "none"];

const writesFloors = process.argv.includes("--floors");
// Errors of opens are values here; a stack for each costs more than the open.
Error.stackTraceLimit = 0;
const complaints: string[] = [];
const all: ScriptReport[] = [];
const floors: string[] = [];
for (const flush of MODES) {
  const reports: ScriptReport[] = [];
  floors.push(`  ${flush}: {`);
  for (const job of crashJobs(flush)) {
    const report = await job.explore(writesFloors ? DEFAULT_EFFORT : FULL_EFFORT);
    reports.push(report);
    floors.push(`    ${JSON.stringify(report.script)}:\n      ${JSON.stringify(floorOf(report))},`);
    const wrong = writesFloors ? [] : cellsBelow(report, FLOORS[flush][report.script] ?? "");
    complaints.push(...[...report.violations, ...wrong].map((text) => `flush ${flush}, ${report.script}: ${text}`));
  }
  floors.push("  },");
  all.push(...reports);
  console.log(
    `flush ${flush}: distinct disk images by loss, first/second crash/crash in recovery\n${formatReports(reports)}\n`,
  );
}
const { user, system } = process.cpuUsage();
const counted = countedImages(all);
const sum = (value: (report: ScriptReport) => number): number =>
  all.reduce((total, report) => total + value(report), 0);
if (!writesFloors && counted < DISTINCT_MIN) complaints.push(`${counted} distinct images counted of ${DISTINCT_MIN}`);
for (const complaint of complaints) console.log(complaint);
console.log(
  `${sum(({ total }) => total)} distinct images, ${sum(({ torn }) => torn)} of them by torn writes alone; ${counted} counted;`,
  `${sum(({ opens }) => opens)} opens; ${((user + system) / 1e6).toFixed(0)} s of CPU; ${complaints.length} complaints`,
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
