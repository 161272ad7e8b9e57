import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const CANARY = "test/simulation/canary.ts";

/** A leader that counts the longest log for its high watermark: no harness may miss it. */
const MUTANT = "M08";
const SEED = "1";

/** Runs the command line as a process. */
function simulate(mutant: string): Promise<{ readonly exitCode: number; readonly output: string }> {
  const args = ["--import", "tsx", "--conditions=tidemark-source", CANARY, mutant, "simulate", "--seed", SEED];
  return new Promise((resolve) => {
    const child = execFile(process.execPath, args, { cwd: ROOT }, (_error, stdout, stderr) => {
      resolve({ exitCode: child.exitCode ?? -1, output: stdout + stderr });
    });
  });
}

describe("a run that must fail: a simulator that cannot find anything would report that all is well", () => {
  test(
    "with a bug planted the process fails, names the rule, and says how to see it again",
    { timeout: 120_000 },
    async () => {
      const { exitCode, output } = await simulate(MUTANT);
      expect(output).toMatch(new RegExp(`seed ${SEED} broke S[15], `, "u"));
      expect(output).toContain(`tidemark simulate --seed ${SEED} --html seed-${SEED}.html`);
      expect(exitCode).toBe(1);
    },
  );

  test("without it the same run is fine", { timeout: 120_000 }, async () => {
    const { exitCode, output } = await simulate("none");
    expect(output).toContain("no rule was broken");
    expect(exitCode).toBe(0);
  });
});
