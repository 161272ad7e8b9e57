import Table from "cli-table3";

import type { EpochEntry } from "@tidemark/epoch-cache";
import type { RecoveryReport } from "@tidemark/log";

import { formatBytes, formatCount, formatDuration, plural } from "../format.ts";
import { LABEL_CHARS, printLine, styled } from "../terminal.ts";
import type { PartitionOffsets } from "./messages.ts";
import type { SegmentFigures } from "./verify-records.ts";

/** What `--report FILE` holds of every run, as JSON. Sizes in bytes, times in ms. */
export interface RunReport {
  readonly verdict: "ok" | "failed";
  /** What is off; the first ones only when there are many. Empty when the verdict is ok. */
  readonly problems: readonly string[];
  readonly problemCount: number;
  readonly version: string;
  readonly node: string;
  readonly seed: number;
  readonly input: ReportInput;
  readonly directory: string;
  readonly topic: string;
  readonly partition: number;
  readonly segmentBytes: number;
  readonly maxMessageBytes: number;
  readonly throughput: ThroughputFigures;
}

/** What it holds after a run with one node. */
export interface DemoReport extends RunReport {
  readonly flush: "always";
  readonly kills: readonly KillFigures[];
  readonly segments: readonly SegmentFigures[];
  readonly epochs: readonly EpochEntry[];
  readonly offsets: PartitionOffsets;
  readonly throughput: ThroughputFigures & {
    /** `ingestMs` with the starts of the processes and their recoveries. */
    readonly ingestWithRestartsMs: number;
  };
}

export interface ReportInput {
  readonly name: string;
  readonly lines: number;
  readonly bytes: number;
  readonly longestLineBytes: number;
  readonly endsWithNewline: boolean;
}

/** One SIGKILL and the reopening after it. */
export interface KillFigures {
  /** The count that the seed chose. */
  readonly threshold: number;
  /** Records that were acknowledged when the process died. */
  readonly acknowledged: number;
  readonly recoveredLogEndOffset: number;
  readonly reopenMs: number;
  readonly recovery: RecoveryReport;
}

export interface ThroughputFigures {
  readonly records: number;
  readonly bytes: number;
  /** While records went in and all went its way: without deaths, what led up to them, and recoveries. */
  readonly ingestMs: number;
  readonly verifyMs: number;
  readonly recordsPerSecond: number;
  readonly bytesPerSecond: number;
}

/** `label      text`, the form of all lines of the demo. */
export function printLabelled(label: string, text: string): void {
  printLine(`${styled("bold", label.padEnd(LABEL_CHARS))} ${text}`);
}

export function describeRecovery(recovery: RecoveryReport): string {
  if (recovery.wasCleanShutdown) return "closed cleanly before, nothing to recover";
  const scanned = `${plural(recovery.segmentsScanned, "segment")} (${formatBytes(recovery.bytesScanned)}) scanned`;
  const from =
    recovery.recoveryPoint === undefined ? "" : ` from recovery point ${formatCount(recovery.recoveryPoint)}`;
  const cut =
    recovery.cut === undefined
      ? "nothing to cut"
      : `${formatBytes(recovery.cut.bytesCut)} cut at offset ${formatCount(recovery.cut.offset)} (${recovery.cut.reason})`;
  const more = [
    ...(recovery.indexesRebuilt > 0
      ? [
          `${formatCount(recovery.indexesRebuilt)} offset ${recovery.indexesRebuilt === 1 ? "index" : "indexes"} rebuilt`,
        ]
      : []),
    ...(recovery.epochsRebuilt ? ["epochs rebuilt"] : []),
    ...(recovery.segmentsCopied > 0 ? [`${plural(recovery.segmentsCopied, "segment")} copied afresh`] : []),
    ...(recovery.damaged.length > 0 ? [plural(recovery.damaged.length, "damaged range")] : []),
  ];
  return [`${scanned}${from}`, cut, ...more].join(", ");
}

/** The tables and the verdict, for people. */
export function printReport(report: DemoReport): void {
  printLine();
  printLine(segmentTable(report.segments));
  printLabelled(
    "epochs",
    report.epochs.map(({ epoch, startOffset }) => `${epoch} from ${formatCount(startOffset)}`).join(", ") || "none",
  );
  const { logStartOffset, logEndOffset, flushedEndOffset, recoveryPoint } = report.offsets;
  printLabelled(
    "offsets",
    `log start ${formatCount(logStartOffset)}, log end ${formatCount(logEndOffset)}, flushed ${formatCount(flushedEndOffset)}, recovery point ${formatCount(recoveryPoint)}`,
  );
  if (report.kills.length > 0) printLine(killTable(report));
  const { records, bytes, ingestMs, ingestWithRestartsMs, verifyMs, recordsPerSecond, bytesPerSecond } =
    report.throughput;
  printLabelled(
    "throughput",
    `${formatCount(recordsPerSecond)} records/s, ${formatBytes(Math.round(bytesPerSecond))}/s: ${plural(records, "record")}, ${formatBytes(bytes)} in ${formatDuration(ingestMs)}, each acknowledged after its fdatasync`,
  );
  printLabelled(
    "times",
    `ingest with restarts ${formatDuration(ingestWithRestartsMs)}, verification ${formatDuration(verifyMs)}`,
  );
  printLine();
  printVerdict(report);
}

function printVerdict(report: DemoReport): void {
  if (report.verdict === "ok") {
    const kills = report.kills.length === 0 ? "" : ` after ${plural(report.kills.length, "kill")}`;
    printLine(
      styled(["green", "bold"], "OK") +
        `: ${plural(report.input.lines, "record")} acknowledged, each in the log once and in order${kills}; nothing else but whole batches.`,
    );
    return;
  }
  printProblems(report);
}

/** What is off, and how much of it. */
export function printProblems(report: Pick<RunReport, "problems" | "problemCount">): void {
  for (const problem of report.problems) printLine(`${styled("red", "problem")}  ${problem}`);
  const unlisted = report.problemCount - report.problems.length;
  if (unlisted > 0) printLine(`         and ${formatCount(unlisted)} more`);
  printLine(`${styled(["red", "bold"], "FAILED")}: ${plural(report.problemCount, "problem")}.`);
}

/** Rows of the segment table before its middle is left out. */
const SEGMENT_ROWS_MAX = 24;

function segmentTable(segments: readonly SegmentFigures[]): string {
  const table = plainTable(["segment", "base offset", "records", "batches", "bytes", "index entries"]);
  const row = (segment: SegmentFigures, index: number) => [
    `${index + 1}`,
    formatCount(segment.baseOffset),
    formatCount(segment.records),
    formatCount(segment.batches),
    formatCount(segment.bytes),
    formatCount(segment.indexEntries),
  ];
  const rows = segments.map(row);
  const half = SEGMENT_ROWS_MAX / 2;
  if (rows.length <= SEGMENT_ROWS_MAX) table.push(...rows);
  else table.push(...rows.slice(0, half), ["…", "…", "…", "…", "…", "…"], ...rows.slice(-half));
  const sum = (value: (segment: SegmentFigures) => number) =>
    formatCount(segments.reduce((total, segment) => total + value(segment), 0));
  table.push([
    "all",
    "",
    sum(({ records }) => records),
    sum(({ batches }) => batches),
    sum(({ bytes }) => bytes),
    sum(({ indexEntries }) => indexEntries),
  ]);
  return table.toString();
}

function killTable(report: DemoReport): string {
  const table = plainTable([
    "kill",
    `at (seed ${report.seed})`,
    "acknowledged",
    "recovered log end",
    "bytes cut",
    "reopened in",
  ]);
  for (const [index, kill] of report.kills.entries()) {
    table.push([
      `${index + 1}`,
      formatCount(kill.threshold),
      formatCount(kill.acknowledged),
      formatCount(kill.recoveredLogEndOffset),
      formatCount(kill.recovery.cut?.bytesCut ?? 0),
      formatDuration(kill.reopenMs),
    ]);
  }
  return table.toString();
}

/** A table without colours of its own, all columns to the right. */
export function plainTable(head: readonly string[]): Table.Table {
  return new Table({
    head: head.map((title) => styled("bold", title)),
    colAligns: head.map(() => "right"),
    style: { head: [], border: [], compact: true }, // No colours of its own: those come from `styled` only.
  });
}
