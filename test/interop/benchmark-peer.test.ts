import { readdirSync, rmSync } from "node:fs";
import { allWorkloads, InstalledPeers, TemporaryDirectories } from "@tidemark/bench";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { makeScratchDirectory, runKafkaClass } from "./kafka.ts";

const peers = new InstalledPeers(() => undefined);
afterAll(() => peers.close());

function isKafka(subject: string): boolean {
  return subject.startsWith("Kafka's log class");
}

test("every row of the benchmarks for Kafka's own log class is measured", async () => {
  // Fetches the jars, which the benchmarks take too, where they are not there yet.
  expect((await runKafkaClass("org.apache.kafka.tools.DumpLogSegments", ["--version"])).exitCode).toBe(0);
  const scratch = await makeScratchDirectory();
  onTestFinished(() => rmSync(scratch, { recursive: true }));
  process.env["TMPDIR"] = scratch;
  using directories = new TemporaryDirectories();
  let rows = 0;
  for (const workload of allWorkloads().filter(({ subjects }) => subjects.some(isKafka))) {
    const { results, skipped, latencies } = await workload.measure({
      quick: true,
      rounds: 1,
      hasWarmUp: false,
      sampleLimits: { durationMs: 1, bytesMax: 1 },
      directories,
      peers,
      includes: isKafka,
      onProgress: () => undefined,
    });
    expect(skipped).toEqual([]);
    expect(results.map(({ subject }) => subject)).toEqual(workload.subjects.filter(isKafka));
    for (const { subject, median } of results) expect(median, `${workload.name}: ${subject}`).toBeGreaterThan(0);
    for (const { count } of latencies) expect(count).toBeGreaterThan(0);
    rows += results.length;
  }
  expect(rows).toBeGreaterThan(20);
  expect(readdirSync(directories.root)).toEqual([]);
});
