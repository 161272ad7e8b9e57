import { describe, expect, test } from "vitest";

import { fuzz } from "./fuzzer.ts";
import type { FuzzTarget } from "./fuzzer.ts";
import { TARGETS } from "./targets.ts";

/** `npm run fuzz -- 5000000` makes more of them. */
const EXECUTIONS = Number(process.env["FUZZ_EXECUTIONS"] ?? 40_000);
const EXECUTIONS_MIN = 40_000;

test("every decoder takes mutated inputs with no error but its own, and within its memory", async () => {
  const report = await fuzz(TARGETS, { seed: 1, executions: EXECUTIONS });
  expect(
    report.findings.map(({ target, what, input }) => [target, what, Buffer.from(input).toString("base64")]),
  ).toEqual([]);
  expect(EXECUTIONS).toBeGreaterThanOrEqual(EXECUTIONS_MIN);
  expect(report.executions).toBeGreaterThanOrEqual(EXECUTIONS_MIN * 0.99);
  for (const { name, executions, refused } of report.targets) {
    // It sees both: what passes, and what does not.
    expect([name, executions >= 40, refused > 0, refused < executions]).toEqual([name, true, true, true]);
  }
});

test("the same seed makes the same inputs, and another one others", async () => {
  const digests = async (seed: number) => {
    const { targets } = await fuzz(TARGETS.slice(0, 4), { seed, executions: 2000 });
    return targets.map(({ digest }) => digest);
  };
  const first = await digests(7);
  expect(await digests(7)).toEqual(first);
  expect(await digests(8)).not.toEqual(first);
});

describe("a decoder that is wrong is found:", () => {
  const target = (run: FuzzTarget["run"]): FuzzTarget => ({
    name: "planted",
    corpus: [new Uint8Array(100)],
    errors: [RangeError],
    memory: { factor: 8, bytes: 64 * 1024 },
    weight: 1,
    run,
  });

  test.each<[string, FuzzTarget["run"], RegExp | undefined]>([
    ["one that is right is not", (input) => input.length > 50, undefined],
    [
      "its own errors are not",
      () => {
        throw new RangeError("mine");
      },
      undefined,
    ],
    [
      "another error",
      (input) => {
        if (input[3] === 0xff) throw new TypeError("not mine");
        return true;
      },
      /not mine[\s\S]*fuzz.test.ts/u,
    ],
    [
      "an error that comes later",
      async (input) => {
        if (input[3] === 0xff) throw new TypeError("late");
      },
      /late/u,
    ],
    [
      "a change of the input",
      (input) => {
        if (input[3] === 0xff) input[4] = 1;
      },
      /changed/u,
    ],
    [
      "memory beyond the bound",
      (input) => input.length > 5 && Array.from({ length: 200 }, () => new Uint8Array(1024).fill(1)),
      /holds \d+ bytes/u,
    ],
  ])("%s", async (_, run, what) => {
    const { findings } = await fuzz([target(run)], { seed: 3, executions: 1000 });
    if (what === undefined) expect(findings).toEqual([]);
    else expect(findings[0]?.what).toMatch(what);
  });
});
