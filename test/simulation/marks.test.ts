import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { MARKS, NEVER, placeOf, SELDOM } from "./marks.ts";

const SEEDS = 40;

const run = promisify(execFile);

interface Passed {
  readonly failures: readonly string[];
  readonly marks: readonly { readonly id: string; readonly times: number }[];
}

/** In a process of its own: coverage slows all code of a process down, and has to begin before the engine is loaded. */
async function passedBy(seeds: string): Promise<Passed> {
  const program = fileURLToPath(new URL("coverage.ts", import.meta.url));
  const { stdout } = await run(process.execPath, ["--import", "tsx", program, seeds, "--json"], { maxBuffer: 1 << 24 });
  return JSON.parse(stdout) as Passed;
}

test(`${SEEDS} seeds come to every branch that is marked, but for those that are seldom or never reached`, async () => {
  const { failures, marks } = await passedBy(`1..${SEEDS}`);
  expect(failures).toEqual([]);
  expect(marks.map(({ id }) => id)).toEqual(MARKS.map(({ id }) => id));
  const missed = marks.filter(({ id, times }) => times === 0 && !SELDOM.has(id) && !NEVER.has(id));
  expect(missed).toEqual([]);
  // Else the reason is not true, or the place is wrong.
  const never = marks.filter(({ id, times }) => NEVER.has(id) && times > 0);
  expect(never).toEqual([]);
}, 600_000);

test("what is said to be seldom or never reached is a mark, and each has a name of its own", () => {
  const ids = MARKS.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of [...SELDOM, ...NEVER.keys()]) expect(ids).toContain(id);
  expect([...SELDOM].filter((id) => NEVER.has(id))).toEqual([]);
});

test("a mark is found where its bar is, whatever the white space; one whose place is gone, or there twice, fails", () => {
  const mark = { id: "m", file: "f.js", at: "if (a) ¦return b;" };
  expect(placeOf(mark, "x; if (a)\n    return b;")).toBe("x; if (a)\n    ".length);
  expect(() => placeOf(mark, "if (c) return b;")).toThrow("is there 0 times");
  expect(() => placeOf(mark, "if (a) return b; if (a) return b;")).toThrow("is there 2 times");
});
