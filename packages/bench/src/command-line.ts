import { writeFileSync } from "node:fs";
import { allWorkloads } from "./all-workloads.ts";
import { InstalledPeers } from "./installed-peers.ts";
import { parseOptions } from "./options.ts";
import type { BenchOptions } from "./options.ts";
import { Progress } from "./progress.ts";
import { describeRun } from "./report.ts";
import type { Report } from "./report.ts";
import { pageSection, renderReportPage } from "./report-page.ts";
import type { PageSection } from "./report-page.ts";
import { SAMPLE_LIMITS, SAMPLE_LIMITS_QUICK } from "./rounds-workload.ts";
import { select } from "./selection.ts";
import type { Selected } from "./selection.ts";
import { renderLatencies, renderTable, wrapText } from "./table.ts";
import { TemporaryDirectories } from "./temporary-directories.ts";
import type { Latencies, Result, Skipped } from "./workload.ts";

const EXIT_OK = 0;
const EXIT_CANNOT = 2;

/**
 * Runs the benchmarks: tables on standard output, progress on standard error.
 * @param args without the interpreter and the script
 * @returns the exit code: 0 measured; 2 a wrong command line, or something could not be measured
 */
export async function runCommandLine(args: readonly string[]): Promise<number> {
  const invocation = parseOptions(args);
  if (invocation.type === "help") return EXIT_OK;
  if (invocation.type === "wrong") return refuse(`${invocation.reason} (--help tells the options)`);
  const { options } = invocation;
  const workloads = allWorkloads();
  const selected = select(workloads, options.only);
  if (selected.length === 0) {
    const names = workloads.map(({ name }) => `  ${name}`).join("\n");
    return refuse(`nothing is named ${JSON.stringify(options.only)}; the workloads are\n${names}`);
  }
  try {
    await measure(selected, options);
  } catch (error) {
    const isDebug = process.env["TIDEMARK_DEBUG"] === "1";
    return refuse(error instanceof Error ? ((isDebug ? error.stack : undefined) ?? error.message) : String(error));
  }
  return EXIT_OK;
}

function refuse(reason: string): number {
  process.stderr.write(`bench: ${reason}\n`);
  return EXIT_CANNOT;
}

async function measure(selected: readonly Selected[], options: BenchOptions): Promise<void> {
  // A file that cannot be written is found before the measuring; an earlier report in it stays until there is a new one.
  for (const path of [options.jsonPath, options.htmlPath])
    if (path !== undefined) writeFileSync(path, "", { flag: "a" });
  using directories = new TemporaryDirectories();
  const description = describeRun(options, directories.root);
  print(heading(description));
  const progress = new Progress();
  const peers = new InstalledPeers((what) => progress.announce(what));
  const results: Result[] = [];
  const skipped: Skipped[] = [];
  const latencies: Latencies[] = [];
  const sections: PageSection[] = [];
  try {
    for (const { workload, includes } of selected) {
      const measured = await workload.measure({
        quick: options.quick,
        rounds: options.rounds,
        hasWarmUp: !options.quick,
        sampleLimits: options.quick ? SAMPLE_LIMITS_QUICK : SAMPLE_LIMITS,
        directories,
        peers,
        includes,
        onProgress: (what) => progress.show(workload.name, what),
      });
      progress.clear();
      results.push(...measured.results);
      skipped.push(...measured.skipped);
      latencies.push(...measured.latencies);
      sections.push(pageSection(workload, measured));
      print(`\n${workload.name}\n${wrapText(workload.explanation)}\n${renderTable(measured, workload.peers)}`);
      if (measured.latencies.length > 0) print(renderLatencies(measured.latencies));
    }
  } finally {
    await peers.close();
  }
  if (options.jsonPath !== undefined) {
    const report: Report = { ...description, results, skipped, latencies };
    writeFileSync(options.jsonPath, `${JSON.stringify(report, undefined, 2)}\n`);
  }
  if (options.htmlPath !== undefined) {
    const lines = heading(description).split("\n");
    writeFileSync(options.htmlPath, renderReportPage({ title: "Tidemark benchmarks", heading: lines, sections }));
  }
}

function heading({ machine, node, versions, settings }: ReturnType<typeof describeRun>): string {
  const { cpu, cores, memoryBytes, loadAverage, platform, release, arch, fileSystem } = machine;
  const lines = [
    `${cpu}, ${cores} cores, ${Math.round(memoryBytes / 1024 ** 3)} GiB, ${platform} ${release} ${arch}, files on ${fileSystem}`,
    `Node ${node}; ${Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(", ")}`,
    `${settings.rounds} rounds${settings.quick ? ", quick: whether it runs, not how fast" : ""}; a ratio is how many times as fast`,
  ];
  if (loadAverage > cores / 2)
    lines.push(
      `Load average ${loadAverage.toFixed(1)} on ${cores} cores before it began: others use the machine, and figures and ratios say little.`,
    );
  if (settings.code === "sources") lines.push("Sources through tsx: compiled code is faster.");
  if (fileSystem === "tmpfs")
    lines.push("These files are in memory, where a sync costs nothing: set TMPDIR to a directory on a disk.");
  return lines.join("\n");
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
