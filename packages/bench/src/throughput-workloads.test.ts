import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { TemporaryDirectories } from "./temporary-directories.ts";
import { throughputWorkloads } from "./throughput-workloads.ts";

test.each(throughputWorkloads())("$name: every subject gives a rate, and leaves nothing behind", async (workload) => {
  using directories = new TemporaryDirectories();
  const results = await workload.measure({
    quick: true,
    rounds: 1,
    sampleLimits: { durationMs: 1, bytesMax: 1 },
    directories,
    includes: () => true,
    onProgress: () => undefined,
  });
  expect(results.map(({ subject }) => subject)).toEqual(workload.subjects);
  for (const { subject, median } of results) expect(median, subject).toBeGreaterThan(0);
  expect(readdirSync(directories.root)).toEqual([]);
});

test("every peer of a workload is one of its subjects", () => {
  for (const { name, subjects, peers } of throughputWorkloads()) {
    for (const { subjectFor } of peers) expect(subjects, name).toContain(subjectFor(subjects[0] ?? ""));
  }
});
