import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { traceHashes } from "./trace-hashes.ts";

const SEEDS = 50;
const FIRST = 20_000;

const run = promisify(execFile);

/** The same seeds in a process of its own, which loads and compiles everything anew. */
async function inNewProcess(...flags: readonly string[]): Promise<unknown> {
  const program = fileURLToPath(new URL("trace-hashes.ts", import.meta.url));
  const args = [...flags, "--import", "tsx", "--conditions=tidemark-source", program, `${FIRST}`, `${SEEDS}`];
  const { stdout } = await run(process.execPath, args, { maxBuffer: 1 << 24 });
  return JSON.parse(stdout);
}

test(`${SEEDS} seeds run the same to the last event: in this process, in another, and in one with another heap`, async () => {
  const [here, there, small] = await Promise.all([
    traceHashes(FIRST, SEEDS),
    inNewProcess(),
    inNewProcess("--max-old-space-size=120", "--max-semi-space-size=1"),
  ]);
  expect(here).toHaveLength(SEEDS);
  expect(new Set(here.map(([, hash]) => hash)).size).toBe(SEEDS);
  expect(there).toEqual(here);
  expect(small).toEqual(here);
}, 600_000);
