import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { allWorkloads } from "./all-workloads.ts";
import { appendWorkloads } from "./append-workloads.ts";
import { codecWorkloads } from "./codec-workloads.ts";
import { compactionWorkloads } from "./compaction-workloads.ts";
import { memoryWorkloads } from "./memory-workload.ts";
import { openWorkloads } from "./open-workloads.ts";
import { noPeers } from "./peers.ts";
import { readWorkloads } from "./read-workloads.ts";
import { simulationWorkloads } from "./simulation-workload.ts";
import { tailingWorkloads } from "./tailing-workloads.ts";
import { TemporaryDirectories } from "./temporary-directories.ts";
import type { Workload } from "./workload.ts";

const APART = /^(?:Kafka's log class|better-sqlite3|classic-level|hypercore|flumelog-offset|async-append-only-log)/u;

/** Without those that differ from others in the size of their batches alone. */
const MEASURED = [
  ...appendWorkloads(),
  ...readWorkloads(),
  ...codecWorkloads(),
  ...tailingWorkloads(),
  ...openWorkloads(),
  ...compactionWorkloads(),
  ...memoryWorkloads(),
  ...simulationWorkloads(),
].filter(({ name }) => !/0 KiB records, batches of|1 KiB records, batches of/u.test(name));

/** Of rows that start a process or a thread only one or two. */
function wantedOf({ name, subjects }: Workload): readonly string[] {
  if (name.startsWith("memory")) return subjects.slice(0, 1);
  return name.includes("by codec") ? subjects.filter((subject) => /none|zstd/u.test(subject)) : subjects;
}

test.each(MEASURED)(
  "$name: every subject gives a figure or the reason why not, and leaves nothing behind",
  async (workload) => {
    const wanted = wantedOf(workload);
    using directories = new TemporaryDirectories();
    const { results, skipped } = await workload.measure({
      quick: true,
      rounds: 1,
      hasWarmUp: false,
      sampleLimits: { durationMs: 1, bytesMax: 1 },
      directories,
      peers: noPeers("not in this test"),
      includes: (subject) => wanted.includes(subject),
      onProgress: () => undefined,
    });
    expect(results.map(({ subject }) => subject)).toEqual(wanted.filter((subject) => !APART.test(subject)));
    expect(skipped.map(({ subject }) => subject)).toEqual(wanted.filter((subject) => APART.test(subject)));
    for (const { subject, reason } of skipped) expect(reason, subject).toBe("not in this test");
    for (const { subject, median } of results) expect(median, subject).toBeGreaterThan(0);
    expect(readdirSync(directories.root)).toEqual([]);
  },
);

test("no two workloads, and no two subjects of one, have the same name; every peer is a subject", () => {
  const workloads = allWorkloads();
  expect(new Set(workloads.map(({ name }) => name)).size).toBe(workloads.length);
  for (const { name, subjects, peers } of workloads) {
    expect(new Set(subjects).size, name).toBe(subjects.length);
    for (const { subjectFor } of peers)
      for (const subject of subjects) expect(subjects, `${name}: ${subject}`).toContain(subjectFor(subject));
  }
});
