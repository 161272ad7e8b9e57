import { StreamPeerTransport } from "@tidemark/replica";
import { SystemClock, TcpNetwork } from "@tidemark/runtime-node";
import { BATCHES_IN_FLIGHT_MAX, ClusterProducer } from "@tidemark/server";

import { CommandError } from "../../errors.ts";
import { formatBytes, formatCount, formatDuration, plural } from "../../format.ts";
import { Progress } from "../../terminal.ts";
import { type DemoContext, maxMessageBytesOf, runReportOf } from "../demo-context.ts";
import { inputChunks, inputName, topicOf } from "../input.ts";
import { printLabelled } from "../report.ts";
import { BROKER_IDS, Cluster, FLUSH_INTERVAL_MS, MIN_INSYNC_REPLICAS } from "./cluster.ts";
import { ClusterIngest } from "./cluster-ingest.ts";
import {
  type ClusterDemoReport,
  describeTruncation,
  type FailoverFigures,
  printReplicas,
  rangeOf,
  type TruncationFigures,
} from "./cluster-report.ts";
import { FAILOVER_COUNT, planFailovers, type PlannedFailover } from "./failover-plan.ts";
import { type DivergentTail, divergentTail } from "./partition-batches.ts";
import { type ReplicasVerdict, verifyReplicas } from "./verify-replicas.ts";

/** Records and bytes of one batch, at most; and into how many batches an input is cut at least, if it has the records. */
const BATCH_RECORDS_MAX = 1000;
const BATCH_BYTES_MAX = 128 * 1024;
const BATCHES_WANTED = 100;

/** The one producer. Any number will do: nobody else writes here. */
const PRODUCER_ID = 1;
/** How long the leader may wait for the ISR; twice that, and the producer looks for another leader. */
const REQUEST_TIMEOUT_MS = 1500;
/** After that the run ends: nothing takes records any more. */
const DELIVERY_TIMEOUT_MS = 60_000;
const RETRY_BACKOFF_MS = 20;

/** How often the leader is brought to hold records alone before a death is given up, when brokers die or stop meanwhile. */
const TAIL_ATTEMPTS_MAX = 5;
const TAIL_WAIT_MS = 5000;
/** A dead leader comes back at the latest after this, also when nothing is acknowledged without it. */
const AWAY_MS_MAX = 5000;
const COMPLETE_WAIT_MS = 30_000;
const POLL_MS = 20;

/** The leader as it was brought to hold records alone. */
interface LoneLeader {
  readonly brokerId: number;
  readonly leaderEpoch: number;
  readonly acknowledged: number;
}

/**
 * The demo with three brokers: records go in with acks=all; the leader dies while it holds what nobody else has, another one leads in
 * a new epoch, the old one comes back and cuts exactly what nobody else had; twice. Then all is proven from the files.
 */
export class ClusterDemo {
  readonly #context: DemoContext;
  readonly #topic: string;
  readonly #progress: Progress;
  readonly #problems: string[] = [];
  readonly #failovers: FailoverFigures[] = [];
  readonly #truncations: TruncationFigures[] = [];
  readonly #tails: DivergentTail[] = [];
  #ingestMs = 0;

  constructor(context: DemoContext) {
    this.#context = context;
    this.#topic = topicOf(context.source);
    this.#progress = new Progress("ingesting", context.summary.lineCount, "records");
  }

  async run(): Promise<ClusterDemoReport> {
    const plan = planFailovers(this.#context.summary.lineCount, this.#context.options.seed);
    this.#introduce(plan);
    try {
      const { unplannedDeaths, ...phases } = await this.#withCluster(plan);
      const verifyStartMs = performance.now();
      const verdict = await this.#verify();
      const report = runReportOf(this.#context, {
        topic: this.#topic,
        problems: [...this.#problems, ...verdict.problems],
        problemCount: this.#problems.length + verdict.problemCount,
        ingestMs: this.#ingestMs,
        verifyMs: performance.now() - verifyStartMs,
      });
      return {
        ...report,
        nodes: BROKER_IDS.length,
        acks: "all",
        minInsyncReplicas: MIN_INSYNC_REPLICAS,
        flush: "interval",
        flushIntervalMs: FLUSH_INTERVAL_MS,
        failovers: this.#failovers,
        truncations: this.#truncations,
        unplannedDeaths,
        replicas: verdict.replicas,
        throughput: { ...report.throughput, ...phases },
      };
    } finally {
      this.#progress.stop();
    }
  }

  #introduce(plan: readonly PlannedFailover[]): void {
    const { summary, source, directory, options } = this.#context;
    const { lineCount, lineBytes } = summary;
    printLabelled("input", `${inputName(source)}: ${plural(lineCount, "record")}, ${formatBytes(lineBytes)}`);
    printLabelled(
      "topic",
      `${this.#topic}-0 on brokers ${BROKER_IDS.join(", ")} in ${directory.path}, acks all, min in-sync replicas ${MIN_INSYNC_REPLICAS}, segments of ${formatBytes(options.segmentBytes)}, flushed every ${formatDuration(FLUSH_INTERVAL_MS)}`,
    );
    const counts = plan.map(({ atAcknowledged }) => formatCount(atAcknowledged)).join(" and ");
    const small = plan.length < FAILOVER_COUNT ? `; the input is too small for ${FAILOVER_COUNT} deaths` : "";
    printLabelled(
      "deaths",
      `${counts === "" ? "none" : `SIGKILL of the leader after ${counts} acknowledged records`}${small} (repeat with --seed ${options.seed})`,
    );
  }

  // ---- the run -------------------------------------------------------------------------------------------------------

  async #withCluster(plan: readonly PlannedFailover[]) {
    const { lineCount } = this.#context.summary;
    const startMs = performance.now();
    const cluster = await this.#startCluster();
    const transport = new StreamPeerTransport({ network: new TcpNetwork(), clock: new SystemClock() });
    const ingest = this.#ingestInto(cluster, transport);
    try {
      await this.#show(cluster, "three brokers, one partition");
      const openMs = performance.now();
      for (const [index, planned] of plan.entries()) {
        await this.#sendSteadily(cluster, ingest, planned.atAcknowledged);
        await this.#failover(cluster, ingest, planned, index + 1);
      }
      await this.#sendSteadily(cluster, ingest, lineCount);
      const ingestedMs = performance.now();
      await cluster.shutDown(() => this.#waitUntilComplete(cluster));
      return {
        startMs: openMs - startMs,
        ingestWithFailoversMs: ingestedMs - openMs,
        shutDownMs: performance.now() - ingestedMs,
        unplannedDeaths: cluster.unplannedDeaths,
      };
    } finally {
      await cluster.destroy();
      await transport.close();
      await ingest.close();
    }
  }

  #startCluster(): Promise<Cluster> {
    const { directory, options, signal } = this.#context;
    return Cluster.start({
      directory: directory.path,
      topic: this.#topic,
      segmentBytes: options.segmentBytes,
      maxMessageBytes: maxMessageBytesOf(this.#context),
      signal,
      say: (label, text) => this.#say(label, text),
      onTruncated: (brokerId, report) => this.#onTruncated({ brokerId, ...report }),
      onReplicaFailed: (brokerId, reason) => this.#problems.push(`broker ${brokerId}: its replica stopped: ${reason}`),
    });
  }

  #ingestInto(cluster: Cluster, transport: StreamPeerTransport): ClusterIngest {
    const { source, summary, lineBytesMax, options } = this.#context;
    const producer = new ClusterProducer({
      transport,
      clock: new SystemClock(),
      controller: cluster.controllerAddress,
      topic: this.#topic,
      partition: 0,
      producerId: PRODUCER_ID,
      acks: -1,
      requestTimeoutMs: REQUEST_TIMEOUT_MS,
      deliveryTimeoutMs: DELIVERY_TIMEOUT_MS,
      retryBackoffMs: RETRY_BACKOFF_MS,
    });
    return new ClusterIngest({
      source,
      lineBytesMax,
      // Small inputs are cut into many batches all the same, so that deaths fall between them.
      batchRecordsMax: Math.min(BATCH_RECORDS_MAX, Math.max(1, Math.floor(summary.lineCount / BATCHES_WANTED))),
      batchBytesMax: Math.min(BATCH_BYTES_MAX, Math.floor(options.segmentBytes / 8)),
      producer,
      onAcknowledged: (count) => this.#progress.update(count),
      onMisplaced: (problem) => this.#problems.push(problem),
    });
  }

  /** Sends up to a line and waits for all acknowledgements; the time counts as throughput. */
  async #sendSteadily(cluster: Cluster, ingest: ClusterIngest, endLine: number): Promise<void> {
    const startMs = performance.now();
    await cluster.orStop(ingest.send(endLine));
    await cluster.orStop(ingest.drain());
    this.#ingestMs += performance.now() - startMs;
  }

  async #failover(cluster: Cluster, ingest: ClusterIngest, planned: PlannedFailover, number: number): Promise<void> {
    const old = await this.#isolateLeader(cluster, ingest, planned);
    if (old === undefined) {
      this.#say("skipped", `death ${number}: too much else happened, and no records are left for the leader alone`);
      return;
    }
    await this.#show(cluster, `death ${number}: followers are held back, broker ${old.brokerId} takes records alone`);
    const deathMs = performance.now();
    const firstAcknowledged = ingest.whenAcknowledged(old.acknowledged + 1);
    await cluster.kill(old.brokerId);
    cluster.resume();
    // A producer that gives up is heard of by draining.
    const drained = ingest.drain().then(() => firstAcknowledged);
    const failoverMs = (await cluster.orStop(Promise.race([firstAcknowledged, drained]))) - deathMs;
    const { leader: newLeader, leaderEpoch: newLeaderEpoch } = cluster.partition;
    this.#say(
      "failover",
      `broker ${newLeader} leads in epoch ${newLeaderEpoch}, first acknowledgement ${formatDuration(failoverMs)} after the SIGKILL of broker ${old.brokerId}`,
    );
    await this.#show(cluster, `death ${number}: broker ${old.brokerId} is dead, broker ${newLeader} leads`);
    const startMs = performance.now();
    const sending = ingest.send(planned.sendUpTo);
    sending.catch(() => undefined);
    const returning = ingest.whenAcknowledged(planned.returnAt);
    await Promise.race([
      cluster.orStop(Promise.race([returning, sending.then(() => returning)])),
      cluster.sleep(AWAY_MS_MAX),
    ]);
    const back = await this.#bringBack(cluster, old);
    await cluster.orStop(sending);
    await cluster.orStop(ingest.drain());
    this.#ingestMs += performance.now() - startMs;
    await this.#show(cluster, `death ${number}: broker ${old.brokerId} is back in the ISR`);
    this.#failovers.push({
      threshold: planned.atAcknowledged,
      acknowledged: old.acknowledged,
      oldLeader: old.brokerId,
      oldLeaderEpoch: old.leaderEpoch,
      newLeader,
      newLeaderEpoch,
      failoverMs,
      ...back,
    });
  }

  /**
   * Has the leader take records that no follower fetches. Deaths and stops in between start it over.
   * @returns `undefined` when no records are left that it could take
   */
  async #isolateLeader(
    cluster: Cluster,
    ingest: ClusterIngest,
    planned: PlannedFailover,
  ): Promise<LoneLeader | undefined> {
    for (let attempt = 1; attempt <= TAIL_ATTEMPTS_MAX; attempt += 1) {
      await cluster.waitUntilWhole();
      await cluster.orStop(ingest.drain());
      if (ingest.sentCount >= planned.sendUpTo) return undefined;
      const { leader, leaderEpoch, partitionEpoch } = cluster.partition;
      const followers = BROKER_IDS.filter((brokerId) => brokerId !== leader);
      const isHeld = await cluster.orStop(cluster.hold(followers));
      const { acknowledgedCount: acknowledged } = ingest;
      if (isHeld) await cluster.orStop(ingest.send(planned.sendUpTo, BATCHES_IN_FLIGHT_MAX));
      let obstacle = isHeld ? await this.#obstacle(cluster, ingest, leader, followers) : "a follower did not answer";
      if (!cluster.isWhole || cluster.partition.partitionEpoch !== partitionEpoch) obstacle ??= "leader or ISR changed";
      if (ingest.acknowledgedCount !== acknowledged) obstacle ??= "records were acknowledged";
      if (obstacle === undefined) return { brokerId: leader, leaderEpoch, acknowledged };
      cluster.resume();
      this.#say("again", `${obstacle} while the followers were held back`);
    }
    throw new CommandError(
      `${TAIL_ATTEMPTS_MAX} times something happened while the followers were held back; this run cannot be judged`,
    );
  }

  /** Waits until the leader has all that was sent. @returns what keeps it from having more than anybody else, if anything does */
  async #obstacle(
    cluster: Cluster,
    ingest: ClusterIngest,
    leader: number,
    followers: readonly number[],
  ): Promise<string | undefined> {
    const deadlineMs = performance.now() + TAIL_WAIT_MS;
    while (performance.now() < deadlineMs) {
      const replicas = await cluster.orStop(Promise.all([leader, ...followers].map((id) => cluster.ask(id))));
      const [lead, ...others] = replicas;
      if (lead === undefined || others.includes(undefined)) return "a broker did not answer";
      if (lead.role === "leader" && lead.logEndOffset >= ingest.sentCount) {
        const isAlone = others.every((other) => other !== undefined && other.logEndOffset < lead.logEndOffset);
        return isAlone ? undefined : "a follower had them too";
      }
      await cluster.sleep(POLL_MS);
    }
    return "the leader did not take records";
  }

  /** Starts the old leader again and waits for it in the ISR; what it cuts must be what its files had alone, to the record. */
  async #bringBack(
    cluster: Cluster,
    old: LoneLeader,
  ): Promise<Pick<FailoverFigures, "divergent" | "truncation" | "rejoinMs">> {
    const { brokerId } = old;
    await cluster.waitUntil(() => cluster.partition.leader >= 0, "a leader");
    const { leader, leaderEpoch } = cluster.partition;
    const unplannedDeaths = cluster.unplannedDeaths;
    const tail = await divergentTail(
      brokerId,
      cluster.partitionDirectoryOf(brokerId),
      cluster.partitionDirectoryOf(leader),
    );
    this.#tails.push(tail);
    const heardBefore = this.#truncations.length;
    const startMs = performance.now();
    this.#say(
      "restart",
      `broker ${brokerId}; its files have ${describeTail(tail)} that broker ${leader} does not have`,
    );
    cluster.start(brokerId);
    await cluster.waitUntil(() => cluster.partition.isr.includes(brokerId), `broker ${brokerId} to rejoin the ISR`);
    const rejoinMs = performance.now() - startMs;
    const cuts = this.#truncations.slice(heardBefore).filter((cut) => cut.brokerId === brokerId);
    const truncation = combined(cuts);
    const isUndisturbed = cluster.unplannedDeaths === unplannedDeaths && cluster.partition.leaderEpoch === leaderEpoch;
    if (isUndisturbed) this.#judgeTruncation(tail, truncation);
    const { fromOffset, toOffset, batches } = tail;
    return { divergent: { fromOffset, toOffset, batches: batches.length }, truncation, rejoinMs };
  }

  /** The files were compared to the byte, the engine cut by epochs: both must have found the same place. */
  #judgeTruncation(tail: DivergentTail, cut: TruncationFigures | undefined): void {
    const { brokerId, fromOffset, toOffset } = tail;
    const isExact =
      cut === undefined ? fromOffset === toOffset : cut.toOffset === fromOffset && cut.fromOffset === toOffset;
    if (isExact) return;
    const did = cut === undefined ? "cut nothing" : `cut ${rangeOf(cut.toOffset, cut.fromOffset)}`;
    this.#problems.push(`broker ${brokerId} ${did}, but ${describeTail(tail)} were what it had alone`);
  }

  #onTruncated({ brokerId, leaderEpoch, cause, fromOffset, toOffset, highWatermark }: TruncationFigures): void {
    const cut = { brokerId, leaderEpoch, cause, fromOffset, toOffset, highWatermark };
    if (fromOffset === toOffset) return; // Only an epoch without records went.
    this.#truncations.push(cut);
    this.#say("truncated", describeTruncation(cut));
    if (toOffset < highWatermark) {
      this.#problems.push(
        `broker ${brokerId} cut ${rangeOf(toOffset, fromOffset)}, below its high watermark ${highWatermark}`,
      );
    }
  }

  /** Until every replica says of itself that it has all, and knows that all is committed. */
  async #waitUntilComplete(cluster: Cluster): Promise<void> {
    const { lineCount } = this.#context.summary;
    const deadlineMs = performance.now() + COMPLETE_WAIT_MS;
    for (;;) {
      const replicas = await cluster.orStop(Promise.all(BROKER_IDS.map((brokerId) => cluster.ask(brokerId))));
      // More than that can only be a matter for the verification.
      const isEnough = replicas.every(
        (replica) => replica !== undefined && replica.logEndOffset >= lineCount && replica.highWatermark >= lineCount,
      );
      if (isEnough && cluster.isWhole) break;
      if (performance.now() > deadlineMs)
        throw new CommandError("not all replicas came to hold all records; this run cannot be judged");
      await cluster.sleep(POLL_MS);
    }
    await this.#show(cluster, "all acknowledged, all in sync; the brokers are closed now");
  }

  // ---- the proof -----------------------------------------------------------------------------------------------------

  async #verify(): Promise<ReplicasVerdict> {
    const { summary, source, lineBytesMax, directory, signal } = this.#context;
    this.#progress.stop();
    const progress = new Progress("verifying", BROKER_IDS.length * summary.lineCount, "records");
    try {
      return await verifyReplicas({
        replicas: BROKER_IDS.map((brokerId) => ({ brokerId, directory: `${directory.path}/broker-${brokerId}` })),
        topic: this.#topic,
        chunks: () => inputChunks(source),
        lineCount: summary.lineCount,
        lineBytesMax,
        tails: this.#tails,
        onProgress: (count) => progress.update(count),
        signal,
      });
    } finally {
      progress.stop();
    }
  }

  async #show(cluster: Cluster, title: string): Promise<void> {
    const rows = await cluster.orStop(cluster.describe());
    this.#progress.interrupt(() => printReplicas(title, rows));
  }

  #say(label: string, text: string): void {
    this.#progress.interrupt(() => printLabelled(label, text));
  }
}

/** Rounds with the leader may cut in steps; together they are one cut. */
function combined(cuts: readonly TruncationFigures[]): TruncationFigures | undefined {
  const [first] = cuts;
  const last = cuts.at(-1);
  return first === undefined || last === undefined ? undefined : { ...last, fromOffset: first.fromOffset };
}

function describeTail({ fromOffset, toOffset }: DivergentTail): string {
  return rangeOf(fromOffset, toOffset);
}
