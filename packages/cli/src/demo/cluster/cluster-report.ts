import type { EpochEntry } from "@tidemark/epoch-cache";
import type { TruncationReport } from "@tidemark/replica";

import { formatBytes, formatCount, formatDuration, plural } from "../../format.ts";
import { printLine, styled } from "../../terminal.ts";
import { plainTable, printLabelled, printProblems, type RunReport, type ThroughputFigures } from "../report.ts";
import type { SegmentFigures } from "../verify-records.ts";
import type { ReplicaRow } from "./cluster.ts";

/** What `--report FILE` holds after a run with three nodes. */
export interface ClusterDemoReport extends RunReport {
  readonly nodes: number;
  readonly acks: "all";
  readonly minInsyncReplicas: number;
  readonly flush: "interval";
  readonly flushIntervalMs: number;
  readonly failovers: readonly FailoverFigures[];
  /** Every cut of the whole run, in the order it was heard of. */
  readonly truncations: readonly TruncationFigures[];
  /** Deaths of brokers that the demo had not planned. */
  readonly unplannedDeaths: number;
  readonly replicas: readonly ReplicaFigures[];
  readonly throughput: ClusterThroughput;
}

/** One death of the leader, and what came of it. */
export interface FailoverFigures {
  /** The count that the seed chose. */
  readonly threshold: number;
  /** Records that were acknowledged when the leader died. */
  readonly acknowledged: number;
  readonly oldLeader: number;
  readonly oldLeaderEpoch: number;
  readonly newLeader: number;
  readonly newLeaderEpoch: number;
  /** From the SIGKILL to the first acknowledgement by the new leader. */
  readonly failoverMs: number;
  /** What the dead leader had and the new one had not: offsets [fromOffset, toOffset), found by comparing their files. */
  readonly divergent: { readonly fromOffset: number; readonly toOffset: number; readonly batches: number };
  /** What the old leader cut when it was back; `undefined` when it had nothing to cut, or was disturbed meanwhile. */
  readonly truncation: TruncationFigures | undefined;
  /** From the start of the old leader's new process to its place in the ISR. */
  readonly rejoinMs: number;
}

export interface TruncationFigures extends Pick<
  TruncationReport,
  "leaderEpoch" | "cause" | "fromOffset" | "toOffset" | "highWatermark"
> {
  readonly brokerId: number;
}

/** One replica at the end, from its files alone. */
export interface ReplicaFigures {
  readonly brokerId: number;
  readonly logStartOffset: number;
  readonly highWatermark: number | undefined;
  readonly logEndOffset: number;
  readonly epochs: readonly EpochEntry[];
  readonly batches: number;
  readonly segments: readonly SegmentFigures[];
}

export interface ClusterThroughput extends ThroughputFigures {
  /** From the first record to the last acknowledgement. */
  readonly ingestWithFailoversMs: number;
  readonly startMs: number;
  readonly shutDownMs: number;
}

/** All replicas at one moment. */
export function printReplicas(title: string, rows: readonly ReplicaRow[]): void {
  const table = plainTable(["replica", "role", "epoch", "log start", "HW", "LEO", "ISR", "epoch cache"]);
  for (const row of rows) {
    table.push([
      `${row.brokerId}`,
      row.role === "leader" ? styled("bold", row.role) : row.role,
      row.leaderEpoch === undefined ? "-" : `${row.leaderEpoch}`,
      formatCount(row.logStartOffset),
      row.highWatermark === undefined ? "-" : formatCount(row.highWatermark),
      formatCount(row.logEndOffset),
      row.isr?.join(",") ?? "-",
      formatEpochs(row.epochs),
    ]);
  }
  printLine();
  printLine(styled("bold", title));
  printLine(table.toString());
}

/** `0@0 1@66000`: each epoch and the offset of its first record. */
export function formatEpochs(epochs: readonly { readonly epoch: number; readonly startOffset: number }[]): string {
  return epochs.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ") || "none";
}

const CAUSES: Readonly<Record<TruncationReport["cause"], string>> = {
  epochAnswer: "by the leader's answer to OffsetsForLeaderEpoch",
  divergingEpoch: "by the diverging epoch in a fetch",
  leaderEndOffset: "because the leader's log ends there",
  leaderLogStart: "because the leader's log begins there",
};

export function describeTruncation({ brokerId, fromOffset, toOffset, cause, leaderEpoch }: TruncationFigures): string {
  return `broker ${brokerId} cut ${rangeOf(toOffset, fromOffset)}, ${CAUSES[cause]} (epoch ${leaderEpoch})`;
}

/** `1,200 records [66,000, 67,200)`. */
export function rangeOf(fromOffset: number, toOffset: number): string {
  return `${plural(toOffset - fromOffset, "record")} [${formatCount(fromOffset)}, ${formatCount(toOffset)})`;
}

/** The tables and the verdict, for people. */
export function printClusterReport(report: ClusterDemoReport): void {
  printLine();
  if (report.failovers.length > 0) printLine(failoverTable(report));
  printLine(replicaTable(report.replicas));
  const { throughput } = report;
  const { records, bytes, ingestMs, ingestWithFailoversMs, recordsPerSecond, bytesPerSecond } = throughput;
  printLabelled(
    "throughput",
    `${formatCount(recordsPerSecond)} records/s, ${formatBytes(Math.round(bytesPerSecond))}/s: ${plural(records, "record")}, ${formatBytes(bytes)} in ${formatDuration(ingestMs)}, each acknowledged when it was on all replicas in sync`,
  );
  printLabelled(
    "times",
    `start ${formatDuration(throughput.startMs)}, ingest with failovers ${formatDuration(ingestWithFailoversMs)}, shutdown ${formatDuration(throughput.shutDownMs)}, verification ${formatDuration(throughput.verifyMs)}`,
  );
  printLine();
  if (report.verdict === "failed") {
    printProblems(report);
    return;
  }
  const deaths =
    report.failovers.length === 0 ? "" : ` after ${plural(report.failovers.length, "death")} of the leader`;
  printLine(
    styled(["green", "bold"], "OK") +
      `: ${plural(report.input.lines, "record")} acknowledged, each on all ${report.replicas.length} replicas once and in order${deaths}; the replicas are identical to the byte, and what only a dead leader had is gone.`,
  );
}

function failoverTable(report: ClusterDemoReport): string {
  const table = plainTable([
    "death",
    `at (seed ${report.seed})`,
    "old leader",
    "new leader",
    "failover",
    "only the old one had",
    "it cut",
    "back in sync",
  ]);
  for (const [index, failover] of report.failovers.entries()) {
    const { divergent, truncation } = failover;
    table.push([
      `${index + 1}`,
      formatCount(failover.acknowledged),
      `${failover.oldLeader} (epoch ${failover.oldLeaderEpoch})`,
      `${failover.newLeader} (epoch ${failover.newLeaderEpoch})`,
      formatDuration(failover.failoverMs),
      `[${formatCount(divergent.fromOffset)}, ${formatCount(divergent.toOffset)})`,
      truncation === undefined
        ? "nothing"
        : `[${formatCount(truncation.toOffset)}, ${formatCount(truncation.fromOffset)})`,
      formatDuration(failover.rejoinMs),
    ]);
  }
  return table.toString();
}

function replicaTable(replicas: readonly ReplicaFigures[]): string {
  const table = plainTable(["files of", "log start", "HW", "LEO", "batches", "segments", "bytes", "epoch cache"]);
  for (const replica of replicas) {
    table.push([
      `broker ${replica.brokerId}`,
      formatCount(replica.logStartOffset),
      replica.highWatermark === undefined ? "-" : formatCount(replica.highWatermark),
      formatCount(replica.logEndOffset),
      formatCount(replica.batches),
      formatCount(replica.segments.length),
      formatCount(replica.segments.reduce((sum, { bytes }) => sum + bytes, 0)),
      formatEpochs(replica.epochs),
    ]);
  }
  return table.toString();
}
