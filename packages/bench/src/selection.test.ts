import { expect, test } from "vitest";
import { select } from "./selection.ts";
import { peer } from "./workload.ts";
import type { Workload } from "./workload.ts";

function workload(name: string, subjects: readonly string[], peers: Workload["peers"] = []): Workload {
  return {
    name,
    unit: "MB/s",
    explanation: "",
    subjects,
    peers,
    measure: async () => ({ results: [], skipped: [], latencies: [] }),
  };
}

const APPEND = workload("append", ["ours", "theirs", "raw"], [peer("vs raw", "raw")]);
const FETCH = workload("Fetch", ["ours", "theirs"]);

function namesOf(pattern: string | undefined): Record<string, string[]> {
  return Object.fromEntries(
    select([APPEND, FETCH], pattern).map(({ workload: { name, subjects }, includes }) => [
      name,
      subjects.filter((subject) => includes(subject)),
    ]),
  );
}

test("without a pattern everything is measured", () => {
  expect(namesOf(undefined)).toEqual({ append: ["ours", "theirs", "raw"], Fetch: ["ours", "theirs"] });
});

test("a pattern in a workload's name takes all of it, upper or lower case", () => {
  expect(namesOf("fetch")).toEqual({ Fetch: ["ours", "theirs"] });
});

test("a pattern in a subject's name takes it and the peers it is compared with", () => {
  expect(namesOf("theirs")).toEqual({ append: ["theirs", "raw"], Fetch: ["theirs"] });
});

test("a pattern that names nothing selects nothing", () => {
  expect(namesOf("sideways")).toEqual({});
});
