import { CRASHES, LOSSES } from "./crash-explorer.ts";
import type { ScriptReport } from "./crash-explorer.ts";

/** Counts of a report, by loss: of the first crash, the second, and one in recovery. `8/30/12 8/31/12 ...` */
function countsOf(report: ScriptReport): string {
  return cellsOf(report)
    .map((cell) => cell.join("/"))
    .join(" ");
}

/** The cells in which a report gave fewer images than `floor`, which is written as `countsOf` writes. */
export function cellsBelow(report: ScriptReport, floor: string): readonly string[] {
  const floors = floor.split(" ").map((cell) => cell.split("/").map(Number));
  return cellsOf(report).flatMap((counts, at) =>
    counts.flatMap((count, crash) => {
      const wanted = floors[at]?.[crash] ?? Number.POSITIVE_INFINITY;
      return count >= wanted ? [] : [`${LOSSES[at]}, ${CRASHES[crash]}: ${count} of ${wanted}`];
    }),
  );
}

/** Half of what a report gave, as a floor; no cell is empty. */
export function floorOf(report: ScriptReport): string {
  return cellsOf(report)
    .map((cell) => cell.map((count) => Math.max(1, Math.floor(count / 2))).join("/"))
    .join(" ");
}

function cellsOf(report: ScriptReport): readonly (readonly number[])[] {
  return LOSSES.map((loss) => CRASHES.map((crash) => report.distinct.get(crash)?.get(loss) ?? 0));
}

/** Columns: crash points; distinct images by loss as first/second/in recovery; in all, and of these by torn writes alone. */
export function formatReports(reports: readonly ScriptReport[]): string {
  const header = ["script", "points", ...LOSSES, "distinct", "torn only"];
  const rows = reports.map((report) => [
    report.script,
    String(report.crashPoints),
    ...countsOf(report).split(" "),
    String(report.total),
    String(report.torn),
  ]);
  const sums = ["sum", ...header.slice(1).map((_, column) => sumOf(rows.map((row) => row[column + 1] ?? "")))];
  const lines = [header, ...rows, sums];
  const widths = header.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const pad = (text: string, column: number): string =>
    column === 0 ? text.padEnd(widths[column] ?? 0) : text.padStart(widths[column] ?? 0);
  return lines.map((line) => line.map(pad).join("  ")).join("\n");
}

function sumOf(cells: readonly string[]): string {
  const parts = cells.map((cell) => cell.split("/").map(Number));
  const width = parts[0]?.length ?? 0;
  return Array.from({ length: width }, (_, at) => parts.reduce((sum, part) => sum + (part[at] ?? 0), 0)).join("/");
}
