import Table from "cli-table3";
import { isLessBetter } from "./workload.ts";
import type { Latencies, Measured, Peer, Result } from "./workload.ts";

/**
 * Rows of one workload as a table; a column for each peer that was measured, with how many times as fast a row is. What has no
 * figures has the reason instead.
 */
export function renderTable({ results, skipped }: Omit<Measured, "latencies">, peers: readonly Peer[]): string {
  const columns = peers.filter(({ subjectFor }) =>
    results.some(({ subject }) => results.some((other) => other.subject === subjectFor(subject))),
  );
  const [first] = results;
  const unit = first?.unit ?? "ns";
  const table = new Table({
    head: ["", `median ${unit}`, "min", "max", ...columns.map(({ heading }) => heading)],
    colAligns: ["left", "right", "right", "right", ...columns.map(() => "right" as const)],
    style: { head: [], border: [], compact: true },
  });
  for (const row of results) {
    const { subject, median, min, max } = row;
    const ratios = columns.map(({ subjectFor }) => {
      const other = results.find((candidate) => candidate.subject === subjectFor(subject));
      return other === undefined || other === row ? "" : formatRatio(speedRatio(row, other));
    });
    table.push([subject, formatValue(median), formatValue(min), formatValue(max), ...ratios]);
  }
  for (const { subject, reason } of skipped)
    table.push([subject, { content: `not measured: ${reason}`, colSpan: 3 + columns.length }]);
  return table.toString();
}

/** Latencies of single operations, in us. */
export function renderLatencies(rows: readonly Latencies[]): string {
  const table = new Table({
    head: ["latency in us", "p50", "p99", "p99.9", "max", "operations"],
    colAligns: ["left", "right", "right", "right", "right", "right"],
    style: { head: [], border: [], compact: true },
  });
  for (const { subject, p50, p99, p999, max, count } of rows)
    table.push([subject, ...[p50, p99, p999, max].map((value) => formatValue(value)), count.toLocaleString("en-US")]);
  return table.toString();
}

/** How many times as fast `row` is as `other`, by their medians; both have the same unit. */
export function speedRatio(row: Result, other: Result): number {
  return isLessBetter(row.unit) ? other.median / row.median : row.median / other.median;
}

/** Three digits that count; thousands are separated, and have no digits behind the point. */
export function formatValue(value: number): string {
  if (!Number.isFinite(value)) return "-";
  if (value >= 1000) return Math.round(Number(value.toPrecision(3))).toLocaleString("en-US");
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** `12x`, `1.5x`, `0.031x`. */
export function formatRatio(ratio: number): string {
  if (!Number.isFinite(ratio)) return "-";
  if (ratio >= 10) return `${Math.round(ratio).toLocaleString("en-US")}x`;
  return ratio >= 0.1 ? `${ratio.toFixed(2)}x` : `${ratio.toPrecision(2)}x`;
}

const LINE_CHARACTERS_MAX = 110;

/** The text in lines of at most 110 characters, broken between words. */
export function wrapText(text: string): string {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > LINE_CHARACTERS_MAX) {
      lines.push(line);
      line = "";
    }
    line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line].join("\n");
}
