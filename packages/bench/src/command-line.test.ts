import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { PageReport } from "./report-page.ts";
import type { Report } from "./report.ts";

const MAIN = fileURLToPath(new URL("./main.ts", import.meta.url));
const TIMEOUT_MS = 60_000;

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "bench-test-"));
});
afterEach(() => {
  rmSync(directory, { recursive: true });
});

/** The command from its sources, with this test's directory as the temporary one. */
function start(...args: string[]): ChildProcess {
  return spawn(process.execPath, ["--import", "tsx", "--conditions=tidemark-source", MAIN, ...args], {
    env: { ...process.env, TMPDIR: directory },
    stdio: ["ignore", "pipe", "pipe"],
  });
}

async function run(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = start(...args);
  const output = { stdout: "", stderr: "" };
  child.stdout?.on("data", (chunk: Buffer) => (output.stdout += chunk.toString()));
  child.stderr?.on("data", (chunk: Buffer) => (output.stderr += chunk.toString()));
  const [code] = (await once(child, "close")) as [number | null];
  return { code, ...output };
}

/** Without what tsx keeps there. */
function leftovers(): string[] {
  return readdirSync(directory).filter((name) => name.startsWith("tidemark-bench-"));
}

test(
  "--quick --only varint --json --html writes machine, versions and a row for each subject, and leaves nothing behind",
  async () => {
    const path = join(directory, "report.json");
    const pagePath = join(directory, "report.html");
    const { code, stdout, stderr } = await run("--quick", "--only", "varint", "--json", path, "--html", pagePath);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "measuring: varint\n" });
    const report = JSON.parse(readFileSync(path, "utf8")) as Report;
    expect(report.node).toBe(process.versions.node);
    expect(report.machine).toMatchObject({ platform: process.platform, arch: process.arch });
    expect(report.versions["benchmark"]).toMatch(/^\d+\.\d+\.\d+$/u);
    expect(report.versions["lmdb"]).toMatch(/^\d+\.\d+\.\d+$/u);
    expect(report.results.map(({ workload, subject, unit }) => [workload, subject, unit])).toEqual([
      ["varint", "encode, 1 byte", "ns"],
      ["varint", "decode, 1 byte", "ns"],
      ["varint", "encode, 1 to 5 bytes", "ns"],
      ["varint", "decode, 1 to 5 bytes", "ns"],
    ]);
    for (const { subject, median, min, max } of report.results) {
      expect(min, subject).toBeGreaterThan(0);
      expect(median, subject).toBeGreaterThanOrEqual(min);
      expect(max, subject).toBeGreaterThanOrEqual(median);
      expect(stdout).toContain(subject);
    }
    const page = readFileSync(pagePath, "utf8");
    const [, shown = ""] = /id="report">(.*?)<\/script>/u.exec(page) ?? [];
    const { sections } = JSON.parse(shown) as PageReport;
    expect(sections.map(({ rows }) => rows.map(({ subject, median }) => [subject, median]))).toEqual([
      report.results.map(({ subject, median }) => [subject, median]),
    ]);
    expect(leftovers()).toEqual([]);
  },
  TIMEOUT_MS,
);

test(
  "an interrupted run ends with 130 and takes its directories with it",
  async () => {
    const child = start("--only", "append 100 B records, flush none");
    let progress = "";
    await new Promise<void>((resolve) => {
      child.stderr?.on("data", (chunk: Buffer) => {
        progress += chunk.toString();
        if (progress.includes("measuring")) resolve();
      });
    });
    expect(leftovers()).toHaveLength(1);
    child.kill("SIGINT");
    expect(await once(child, "exit")).toEqual([130, null]);
    expect(leftovers()).toEqual([]);
  },
  TIMEOUT_MS,
);

test.each([
  { args: ["--bogus"], says: "--bogus" },
  { args: ["--only", "sideways"], says: '"sideways"' },
])(
  "$args cannot be done: one line says why, exit code 2",
  async ({ args, says }) => {
    const { code, stdout, stderr } = await run(...args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toContain(says);
  },
  TIMEOUT_MS,
);
