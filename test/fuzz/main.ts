import { parseArgs } from "node:util";

import { fuzz } from "./fuzzer.ts";
import { TARGETS } from "./targets.ts";

/** `npm run fuzz -- COUNT [--seed N] [--only TEXT]`: so many executions over all targets; exit code 1 for a finding. */
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: "string", default: "1" }, only: { type: "string", default: "" } },
});
const executions = Number(positionals[0] ?? 200_000);
const seed = Number(values.seed);
if (!Number.isSafeInteger(executions) || executions < 1 || !Number.isSafeInteger(seed)) {
  throw new Error("npm run fuzz -- COUNT [--seed N] [--only TEXT]");
}

/** What libraries take outside the heap shows only here. */
const RESIDENT_GROWTH_MIB_MAX = 256;

const startMs = performance.now();
const rssBefore = process.memoryUsage.rss();
const targets = TARGETS.filter(({ name }) => name.includes(values.only));
const report = await fuzz(targets, {
  seed,
  executions,
  onProgress: (done) => {
    if (process.stderr.isTTY) process.stderr.write(`\r${done} of ${executions}`);
  },
});
console.log(`seed ${seed}: ${report.executions} executions in ${((performance.now() - startMs) / 1000).toFixed(0)} s`);
console.log(
  `resident memory ${Math.round(rssBefore / 2 ** 20)} MiB before, ${Math.round(process.memoryUsage.rss() / 2 ** 20)} MiB after`,
);
for (const { name, executions: count, refused, memoryShareMax, digest, cpuMs } of report.targets) {
  const share = `${Math.round((refused / count) * 100)} % refused`;
  const memory = memoryShareMax === 0 ? "" : `, up to ${Math.round(memoryShareMax * 100)} % of its memory`;
  console.log(
    `${name.padEnd(26)} ${String(count).padStart(9)}  ${share.padStart(14)}  ${((cpuMs / count) * 1000).toFixed(1).padStart(8)} us${memory}  ${digest}`,
  );
}
for (const { target, input, what } of report.findings) {
  console.log(`\nFOUND in ${target}: ${what}\n  input (base64): ${Buffer.from(input).toString("base64")}`);
}
const grownMib = Math.round((process.memoryUsage.rss() - rssBefore) / 2 ** 20);
if (grownMib > RESIDENT_GROWTH_MIB_MAX) console.log(`\nFOUND: ${grownMib} MiB more are resident at the end`);
process.exitCode = report.findings.length === 0 && grownMib <= RESIDENT_GROWTH_MIB_MAX ? 0 : 1;
