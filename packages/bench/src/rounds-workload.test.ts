import { existsSync, readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { noPeers, PeerUnavailableError } from "./peers.ts";
import { roundsWorkload, shuffled } from "./rounds-workload.ts";
import { TemporaryDirectories } from "./temporary-directories.ts";
import type { Measurement, Subject } from "./workload.ts";

function measurementIn(directories: TemporaryDirectories, rounds: number): Measurement {
  const sampleLimits = { durationMs: 1, bytesMax: 1 };
  return {
    quick: true,
    rounds,
    hasWarmUp: true,
    sampleLimits,
    directories,
    peers: noPeers("none here"),
    includes: () => true,
    onProgress: () => undefined,
  };
}

/** Samples 1, 2, 3 ...; notes what happens. */
function counting(name: string, events: string[]): Subject {
  let samples = 0;
  return {
    name,
    open: async (directory) => {
      events.push(`open ${name} ${readdirSync(directory).length}`);
      return {
        sample: async () => {
          events.push(name);
          return (samples += 1);
        },
        close: async () => void events.push(`close ${name}`),
      };
    },
  };
}

test("each round has every subject once, in an order of its own, and each comes after different ones", () => {
  const items = ["a", "b", "c", "d", "e", "f"];
  const orders = Array.from({ length: 8 }, (_, round) => shuffled(items, round));
  for (const order of orders) expect([...order].sort()).toEqual(items);
  expect(new Set(orders.map((order) => order.join(""))).size).toBeGreaterThan(6);
  for (const item of items) {
    const before = orders.map((order) => order[order.indexOf(item) - 1]);
    expect(new Set(before).size, item).toBeGreaterThan(2);
  }
  expect(shuffled(items, 3)).toEqual(shuffled(items, 3));
});

test("rounds are interleaved and the first one does not count", async () => {
  using directories = new TemporaryDirectories();
  const events: string[] = [];
  const workload = roundsWorkload({
    name: "w",
    unit: "MB/s",
    explanation: "",
    subjects: [counting("a", events), counting("b", events)],
    opensForEachSample: false,
  });
  const { results } = await workload.measure(measurementIn(directories, 2));
  const samples = events.filter((event) => event === "a" || event === "b").join("");
  expect(samples).toMatch(/^(ab|ba){3}$/u);
  expect(events.filter((event) => event.startsWith("open")).sort()).toEqual(["open a 0", "open b 0"]);
  expect(events.slice(-2)).toEqual(["close a", "close b"]);
  expect(results).toEqual([
    { workload: "w", subject: "a", median: 2.5, min: 2, max: 3, unit: "MB/s" },
    { workload: "w", subject: "b", median: 2.5, min: 2, max: 3, unit: "MB/s" },
  ]);
  expect(readdirSync(directories.root)).toEqual([]);
});

test("a workload that opens for each sample gives each an empty directory and closes it before the next", async () => {
  using directories = new TemporaryDirectories();
  const events: string[] = [];
  const subjects = [counting("a", events)];
  const workload = roundsWorkload({ name: "w", unit: "MB/s", explanation: "", subjects, opensForEachSample: true });
  await workload.measure(measurementIn(directories, 1));
  expect(events).toEqual(["open a 0", "a", "close a", "open a 0", "a", "close a"]);
});

test("a sample that fails closes every subject and leaves no directory", async () => {
  const directories = new TemporaryDirectories();
  const events: string[] = [];
  const failing: Subject = {
    name: "failing",
    open: async () => ({
      sample: () => Promise.reject(new Error("no luck")),
      close: async () => void events.push("close failing"),
    }),
  };
  const workload = roundsWorkload({
    name: "w",
    unit: "MB/s",
    explanation: "",
    subjects: [counting("a", events), failing],
    opensForEachSample: false,
  });
  await expect(workload.measure(measurementIn(directories, 1))).rejects.toThrow("no luck");
  expect(events.slice(-2)).toEqual(["close a", "close failing"]);
  expect(readdirSync(directories.root)).toEqual([]);
  directories[Symbol.dispose]();
  expect(existsSync(directories.root)).toBe(false);
});

/** Works until its sample `failsAt`. */
function failingPeer(name: string, failsAt: number, error: Error, isPeer: boolean): Subject {
  let samples = 0;
  const sample = async (): Promise<number> => {
    samples += 1;
    if (samples >= failsAt) throw error;
    return samples;
  };
  return { name, isPeer, open: async () => ({ sample, close: () => Promise.reject(error) }) };
}

test("a peer that is missing or fails is a row that says so, and stops nothing else", async () => {
  using directories = new TemporaryDirectories();
  const events: string[] = [];
  const missing: Subject = {
    name: "missing",
    open: () => Promise.reject(new PeerUnavailableError("Java is not on the PATH")),
  };
  const workload = roundsWorkload({
    name: "w",
    unit: "MB/s",
    explanation: "",
    subjects: [missing, counting("a", events), failingPeer("breaks", 2, new Error("disk gone"), true)],
    opensForEachSample: false,
  });
  const { results, skipped } = await workload.measure(measurementIn(directories, 2));
  expect(results.map(({ subject }) => subject)).toEqual(["a"]);
  expect(skipped).toEqual([
    { workload: "w", subject: "missing", reason: "Java is not on the PATH" },
    { workload: "w", subject: "breaks", reason: "failed: disk gone" },
  ]);
  expect(events.filter((event) => event === "a")).toHaveLength(3);
  expect(readdirSync(directories.root)).toEqual([]);
});

test("latencies are those of the rounds that count, and rounds may be fewer than asked for", async () => {
  using directories = new TemporaryDirectories();
  let samples = 0;
  const timed: Subject = {
    name: "timed",
    open: async () => ({
      sample: async (_budget, latencies) => {
        samples += 1;
        latencies.recordNs(samples * 1000);
        return samples;
      },
      close: async () => undefined,
    }),
  };
  const workload = roundsWorkload({
    name: "w",
    unit: "ms",
    explanation: "",
    subjects: [timed],
    opensForEachSample: false,
    roundsMax: 2,
  });
  const { results, latencies } = await workload.measure(measurementIn(directories, 7));
  expect(results).toEqual([{ workload: "w", subject: "timed", median: 2.5, min: 2, max: 3, unit: "ms" }]);
  expect(latencies).toEqual([expect.objectContaining({ workload: "w", subject: "timed", count: 2 })]);
  expect(latencies[0]?.max).toBeCloseTo(3, 1);
});
