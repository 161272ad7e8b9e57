import { Cluster, NAME } from "./cluster.ts";

/** What a story ends with. */
export interface Outcome {
  /** Acknowledged by all of the ISR, in order. */
  readonly acknowledged: readonly string[];
  /** `offset:value` of every broker's log, by broker id from 1 on. */
  readonly logs: readonly (readonly string[])[];
  /** `broker: from -> to (cause)` of every cut. */
  readonly truncations: readonly string[];
}

/** Stories that a test runs twice, with the engine as it is and with a bug in it. */
export const STORIES = { lossAfterTwoFailovers, divergenceAfterPowerLoss, fastFailover } as const;

/**
 * KIP-101, scenario 1: loss.
 *
 * A record is on all three replicas and acknowledged; the followers do not know yet that it is committed, for that comes with their
 * next answer. The leader dies. One follower leads, the other follows it, and would cut the record that is above its high watermark.
 * Before it has fetched the record again the new leader dies too, and it leads itself.
 * Source: KIP-101 (https://cwiki.apache.org/confluence/display/KAFKA/KIP-101), scenario 1, with a leader change in place of a restart:
 * here a restart alone takes a replica out of the ISR.
 */
async function lossAfterTwoFailovers(): Promise<Outcome> {
  const cluster = new Cluster({ seed: 101, minInsyncReplicas: 2 });
  return cluster.run(async () => {
    await cluster.startAll();
    const acknowledged: string[] = [];
    await produce(cluster, 1, "m0", acknowledged);
    await cluster.converged();
    await produce(cluster, 1, "m1", acknowledged);
    expectState(cluster, 1, { end: 2, highWatermark: 2 });
    expectState(cluster, 2, { end: 2, highWatermark: 1 });
    expectState(cluster, 3, { end: 2, highWatermark: 1 });

    cluster.node(3).manager?.pauseFetching();
    await cluster.kill(1);
    await cluster.leads(2);
    await cluster.until("3 follows 2", () => cluster.node(3).partition?.followerState?.leaderId === 2);
    await cluster.kill(2);
    await cluster.leads(3);

    cluster.node(3).manager?.resumeFetching();
    await cluster.start(1);
    await cluster.start(2);
    await cluster.until("the ISR is whole", () => cluster.decided?.isr.length === 3);
    await produce(cluster, 3, "m2", acknowledged);
    await cluster.converged();
    return outcomeOf(cluster, acknowledged);
  });
}

/**
 * KIP-101, scenario 2: divergence.
 *
 * Two replicas hold two committed records, the second of them unsynced on one, whose machine loses power. The other dies too, and the
 * one that lost the record leads, which here somebody has to order: the controller has found it out. It takes another record at the
 * same offset. The first returns, with a high watermark that says that there is nothing to cut.
 */
async function divergenceAfterPowerLoss(): Promise<Outcome> {
  const cluster = new Cluster({
    seed: 102,
    brokers: 2,
    minInsyncReplicas: 1,
    manager: { highWatermarkCheckpointMs: 100, flushIntervalMs: undefined },
  });
  return cluster.run(async () => {
    await cluster.startAll();
    const acknowledged: string[] = [];
    await produce(cluster, 1, "m0", acknowledged);
    await cluster.converged();
    await cluster.shutDown(2); // Which syncs m0.
    await cluster.start(2);
    await cluster.converged();
    await produce(cluster, 1, "m1", acknowledged);
    await cluster.converged();
    await cluster.wait(1000); // The high watermarks are checkpointed.

    await cluster.powerCut(2, "all");
    await cluster.kill(1);
    await cluster.start(2);
    await cluster.until("2 is registered", () => (cluster.node(2).manager?.brokerEpoch ?? -1) > 0);
    expectState(cluster, 2, { end: 1 });
    await cluster.wait(1000);
    if (cluster.decided?.leader !== -1) throw new Error("a replica that lost its tail was elected");
    await cluster.controller?.electUncleanly(NAME, 2);
    await cluster.leads(2);
    await produce(cluster, 2, "mY", []);

    await cluster.start(1);
    await cluster.converged();
    return outcomeOf(cluster, acknowledged);
  });
}

/**
 * KIP-279: fast failover.
 *
 * Leaders change so fast that each writes records which the other never sees: epoch 1 on broker 1, epoch 3 on broker 2, both from
 * offset 2 on, and epoch 5 on broker 1 again. Broker 2 returns with an epoch that its leader never had.
 */
async function fastFailover(): Promise<Outcome> {
  const cluster = new Cluster({ seed: 279, brokers: 2, minInsyncReplicas: 1, replicaLagTimeMaxMs: 60_000 });
  return cluster.run(async () => {
    await cluster.startAll();
    const acknowledged: string[] = [];
    for (const value of ["a0", "a1"]) await produce(cluster, 1, value, acknowledged);
    await cluster.converged();

    await cluster.controller?.electUncleanly(NAME, 1); // Epoch 1.
    await cluster.leads(1);
    cluster.network.partition(1, 2);
    for (const value of ["x2", "x3"]) await cluster.produce(1, [value], { acks: 1 });
    await cluster.kill(1); // Nobody leads epoch 2.
    await cluster.controller?.electUncleanly(NAME, 2); // Epoch 3.
    await cluster.leads(2);
    for (const value of ["y2", "y3"]) await cluster.produce(2, [value], { acks: 1 });
    await cluster.kill(2);
    await cluster.start(1);
    await cluster.until("1 is registered", () => (cluster.node(1).manager?.brokerEpoch ?? -1) > 0);
    await cluster.controller?.electUncleanly(NAME, 1);
    await cluster.leads(1);
    for (const value of ["z4", "z5"]) await cluster.produce(1, [value], { acks: 1 });

    cluster.network.heal();
    await cluster.start(2);
    await cluster.converged();
    return outcomeOf(cluster, acknowledged);
  });
}

async function produce(cluster: Cluster, brokerId: number, value: string, acknowledged: string[]): Promise<void> {
  const { error, baseOffset } = await cluster.produce(brokerId, [value]);
  if (error !== "NONE") throw new Error(`${value}: ${error}`);
  acknowledged.push(`${baseOffset}:${value}`);
}

/** A story that does not go as it is told would prove nothing. */
function expectState(
  cluster: Cluster,
  brokerId: number,
  expected: { readonly end: number; readonly highWatermark?: number },
): void {
  const { log } = cluster.node(brokerId);
  const highWatermark = cluster.node(brokerId).partition?.highWatermark;
  if (log?.logEndOffset !== expected.end || (expected.highWatermark ?? highWatermark) !== highWatermark)
    throw new Error(`broker ${brokerId} is at ${highWatermark} of ${log?.logEndOffset}\n${cluster.describe()}`);
}

async function outcomeOf(cluster: Cluster, acknowledged: readonly string[]): Promise<Outcome> {
  const logs: string[][] = [];
  for (const brokerId of cluster.nodes.keys()) logs.push(await cluster.records(brokerId));
  const truncations = cluster.truncations.map(
    ({ brokerId, fromOffset, toOffset, cause }) => `${brokerId}: ${fromOffset} -> ${toOffset} (${cause})`,
  );
  return { acknowledged, logs, truncations };
}
