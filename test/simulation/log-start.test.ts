import { toOffset } from "@tidemark/base";
import { Cluster, NAME, recordsOf } from "@tidemark/simulation";
import { LOSS_RULES, SimulatedRandom } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";

const ROUNDS = 40;
const SEEDS = [1, 2, 3, 4, 5, 6, 7, 8];
/** Kept apart, a replica falls below the start of the leader's log. */
const SEGMENT_BYTES = [300, 1000, 1 << 20] as const;

/** What happened, for asserting that the histories hold what they are for. */
interface Seen {
  trims: number;
  insideBatches: number;
  emptied: number;
  elections: number;
}

/** Records are appended and deleted from the front, by whoever leads, while replicas stop, lose their tail, and stand still. */
async function play(seed: number): Promise<Seen> {
  const random = new SimulatedRandom(seed * 17);
  const below = (site: string, bound: number): number => random.below(site, bound);
  const cluster = new Cluster({
    seed,
    minInsyncReplicas: 2,
    replicaLagTimeMaxMs: 500,
    sessionTimeoutMs: 3000,
    log: { segmentBytes: SEGMENT_BYTES[below("segment", SEGMENT_BYTES.length)] ?? 1000, indexIntervalBytes: 1 },
  });
  const seen: Seen = { trims: 0, insideBatches: 0, emptied: 0, elections: 0 };
  /** By offset, as it was acknowledged. */
  const acknowledged = new Map<number, string>();
  let askedStart = 0;
  await cluster.run(async () => {
    await cluster.startAll();
    for (let round = 0; round < ROUNDS; round += 1) {
      const leader = cluster.leader();
      if (leader !== undefined) {
        const values = Array.from({ length: 1 + below("count", 4) }, (_, at) => `${round}-${at}`);
        const answer = await cluster.produce(leader, values, { timeoutMs: 300 }).catch(() => undefined);
        if (answer?.error === "NONE")
          for (const [at, value] of values.entries()) acknowledged.set(answer.baseOffset + at, value);
      }
      await disturb(cluster, below, round);
      const trimmed = await trim(cluster, below, acknowledged, seen);
      askedStart = Math.max(askedStart, trimmed);
      await cluster.wait(below("pause", 400));
    }
    await repair(cluster);
    await cluster.converged();
    const starts = (): (number | undefined)[] => [...cluster.nodes.values()].map(({ log }) => log?.logStartOffset);
    await cluster.until("the log starts are equal", () => new Set(starts()).size === 1);
    const [start = -1] = starts();
    expect(start).toBe(askedStart);
    const kept = [...acknowledged].filter(([offset]) => offset >= start).map(([offset, value]) => `${offset}:${value}`);
    for (const { log } of cluster.nodes.values()) {
      const records = log === undefined ? [] : await recordsOf(log);
      expect(records).toEqual(expect.arrayContaining(kept));
      expect(records.filter((record) => Number(record.split(":")[0]) < start)).toEqual([]);
    }
    expect(cluster.failures.filter(({ reason }) => reason !== "FENCED_LEADER_EPOCH")).toEqual([]);
    seen.elections = cluster.decided?.leaderEpoch ?? 0;
  });
  seen.emptied = cluster.truncations.filter(({ cause }) => cause === "leaderLogStart").length;
  return seen;
}

/** @returns the log start that was acknowledged, 0 if none */
async function trim(
  cluster: Cluster,
  below: (site: string, bound: number) => number,
  acknowledged: ReadonlyMap<number, string>,
  seen: Seen,
): Promise<number> {
  const node = cluster.nodes.get(cluster.leader() ?? -1);
  const { broker, partition } = node ?? {};
  if (broker === undefined || partition === undefined || below("trim", 2) === 0) return 0;
  const { logStartOffset } = partition.log;
  const offset = logStartOffset + below("trim.offset", partition.highWatermark - logStartOffset + 1);
  const start = await broker.logs.deleteRecords(NAME.topic, NAME.partition, toOffset(offset)).catch(() => undefined);
  if (start === undefined) return 0;
  seen.trims += 1;
  if (acknowledged.get(offset)?.endsWith("-0") === false) seen.insideBatches += 1;
  return start;
}

/** At most one replica at a time is away or behind. */
async function disturb(cluster: Cluster, below: (site: string, bound: number) => number, round: number): Promise<void> {
  if (round % 5 !== 0) return;
  await repair(cluster);
  await cluster.converged();
  const brokerId = 1 + below("broker", cluster.nodes.size);
  switch (below("disturb", 4)) {
    case 0:
      return cluster.kill(brokerId);
    case 1:
      return cluster.powerCut(brokerId, LOSS_RULES[below("loss", LOSS_RULES.length)] ?? "all");
    case 2:
      return cluster.shutDown(brokerId);
    default:
      cluster.node(brokerId).manager?.pauseFetching();
  }
}

async function repair(cluster: Cluster): Promise<void> {
  for (const node of cluster.nodes.values()) {
    node.manager?.resumeFetching();
    if (!node.isRunning) await cluster.start(node.brokerId);
  }
}

describe("OR-01 to OR-07 the log start moves while replicas come and go: all end with the leader's start, and every record from there", () => {
  test("in all histories", async () => {
    const all: Seen[] = [];
    for (const seed of SEEDS) all.push(await play(seed));
    const sum = (of: (seen: Seen) => number): number => all.reduce((total, seen) => total + of(seen), 0);
    // They hold what they are for.
    expect(sum(({ trims }) => trims)).toBeGreaterThan(50);
    expect(sum(({ insideBatches }) => insideBatches)).toBeGreaterThan(10);
    expect(sum(({ emptied }) => emptied)).toBeGreaterThan(3);
    expect(sum(({ elections }) => elections)).toBeGreaterThan(10);
  });
});
