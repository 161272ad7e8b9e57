import { LOSS_RULES } from "@tidemark/simulator";
import type { Cell, ScriptReport } from "./crash-explorer.ts";

const CELLS: readonly Cell[] = ["process", ...LOSS_RULES];

/** Distinct images by cell, after a second crash, and all together: the order of the floors. */
export function countsOf(report: ScriptReport): readonly number[] {
  return [...CELLS.map((cell) => report.distinct.get(cell) ?? 0), report.afterSecondCrash, report.total];
}

/** Columns: crash points, distinct images by cell, after a second crash, in all. */
export function formatReports(reports: readonly ScriptReport[]): string {
  const header = ["script", "points", ...CELLS, "second crash", "distinct"];
  const rows = reports.map((report) => [
    report.script,
    ...[report.crashPoints, ...countsOf(report)].map((count) => String(count)),
  ]);
  const sums = header.map((_, column) =>
    column === 0 ? "sum" : String(rows.reduce((sum, row) => sum + Number(row[column]), 0)),
  );
  const lines = [header, ...rows, sums];
  const widths = header.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((text, column) => (column === 0 ? text.padEnd(widths[column] ?? 0) : text.padStart(widths[column] ?? 0)))
        .join("  "),
    )
    .join("\n");
}
