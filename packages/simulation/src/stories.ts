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

/** Called before the first event, for whoever wants to look on. */
type Watch = (cluster: Cluster) => void;

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
async function lossAfterTwoFailovers(watch?: Watch): Promise<Outcome> {
  const cluster = new Cluster({ seed: 101, minInsyncReplicas: 2 });
  watch?.(cluster);
  return cluster.run(async () => {
    await cluster.startAll();
    const acknowledged: string[] = [];
    cluster.tell("Broker 1 leads. A producer writes m0, and all three replicas get it.");
    await produce(cluster, 1, "m0", acknowledged);
    await cluster.converged();
    cluster.tell("The producer writes m1 and waits until all in-sync replicas have it.");
    await produce(cluster, 1, "m1", acknowledged);
    expectState(cluster, 1, { end: 2, highWatermark: 2 });
    expectState(cluster, 2, { end: 2, highWatermark: 1 });
    expectState(cluster, 3, { end: 2, highWatermark: 1 });
    cluster.tell(
      "m1 is acknowledged: all three replicas have it. Brokers 2 and 3 do not know yet that it is committed: their HW says 1, for the news comes with their next fetch.",
    );

    cluster.node(3).manager?.pauseFetching();
    cluster.tell(
      "The leader dies before it can tell them. (Broker 3 is slow here: it will fetch nothing for a while.)",
    );
    await cluster.kill(1);
    await cluster.leads(2);
    await cluster.until("3 follows 2", () => cluster.node(3).partition?.followerState?.leaderId === 2);
    cluster.tell("Broker 3 follows the new leader, 2, but has fetched nothing from it when that one dies too.");
    await cluster.kill(2);
    await cluster.leads(3);
    cluster.tell(
      "Broker 3 is the last in-sync replica, and leads with the log that it has. Brokers 1 and 2 come back.",
    );

    cluster.node(3).manager?.resumeFetching();
    await cluster.start(1);
    await cluster.start(2);
    await cluster.until("the ISR is whole", () => cluster.decided?.isr.length === 3);
    cluster.tell("The producer writes m2.");
    await produce(cluster, 3, "m2", acknowledged);
    await cluster.converged();
    cluster.tell("The replicas agree again. Is m1, which the producer was told is safe, still there?");
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
async function divergenceAfterPowerLoss(watch?: Watch): Promise<Outcome> {
  const cluster = new Cluster({
    seed: 102,
    brokers: 2,
    minInsyncReplicas: 1,
    manager: { highWatermarkCheckpointMs: 100, flushIntervalMs: undefined },
  });
  watch?.(cluster);
  return cluster.run(async () => {
    await cluster.startAll();
    const acknowledged: string[] = [];
    cluster.tell(
      "Broker 1 leads. A producer writes m0; broker 2 copies it, and restarts once, so that m0 is on its disk.",
    );
    await produce(cluster, 1, "m0", acknowledged);
    await cluster.converged();
    await cluster.shutDown(2); // Which syncs m0.
    await cluster.start(2);
    await cluster.converged();
    cluster.tell(
      "The producer writes m1. Both replicas have it and know that it is committed; broker 2 only in memory.",
    );
    await produce(cluster, 1, "m1", acknowledged);
    await cluster.converged();
    await cluster.wait(1000); // The high watermarks are checkpointed.

    cluster.tell("Broker 2's machine loses power, and m1 with it. Broker 1 dies as well.");
    await cluster.powerCut(2, "all");
    await cluster.kill(1);
    await cluster.start(2);
    await cluster.until("2 is registered", () => (cluster.node(2).manager?.brokerEpoch ?? -1) > 0);
    expectState(cluster, 2, { end: 1 });
    await cluster.wait(1000);
    if (cluster.decided?.leader !== -1) throw new Error("a replica that lost its tail was elected");
    cluster.tell(
      "Broker 2 comes back without m1. The controller has found that out and elects nobody; an operator who cannot wait for broker 1 orders that 2 leads, and gives m1 up with that.",
    );
    await cluster.controller?.electUncleanly(NAME, 2);
    await cluster.leads(2);
    cluster.tell("The producer writes mY to broker 2: another record at the offset where m1 was.");
    await produce(cluster, 2, "mY", []);

    cluster.tell("Broker 1 returns with m1 at offset 1, where its leader has mY. Will it notice?");
    await cluster.start(1);
    await cluster.converged();
    cluster.tell("Both replicas say that everything up to offset 1 is committed. Do their logs agree?");
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
