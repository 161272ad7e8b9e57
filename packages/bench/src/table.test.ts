import { expect, test } from "vitest";
import { formatRatio, formatValue, renderTable, speedRatio, wrapText } from "./table.ts";
import { peer } from "./workload.ts";
import type { Result, Unit } from "./workload.ts";

function row(subject: string, median: number, unit: Unit): Result {
  return { workload: "w", subject, median, min: median / 2, max: median * 2, unit };
}

function cellsOf(table: string): string[][] {
  return table
    .split("\n")
    .filter((line) => line.startsWith("│"))
    .map((line) =>
      line
        .split("│")
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
}

test("a row has median, minimum, maximum and its speed relative to each peer", () => {
  const results = [row("ours", 1_000_000, "records/s"), row("raw", 4_000_000, "records/s")];
  expect(cellsOf(renderTable(results, [peer("vs raw", "raw")]))).toEqual([
    ["", "median records/s", "min", "max", "vs raw"],
    ["ours", "1,000,000", "500,000", "2,000,000", "0.25x"],
    ["raw", "4,000,000", "2,000,000", "8,000,000", ""],
  ]);
});

test("a peer that was not measured has no column", () => {
  const [head] = cellsOf(renderTable([row("ours", 1, "MB/s")], [peer("vs raw", "raw")]));
  expect(head).toEqual(["", "median MB/s", "min", "max"]);
});

test("a peer may differ from row to row", () => {
  const vsJs = { heading: "vs JS", subjectFor: (subject: string) => subject.replace(/,.*/u, ", JS") };
  const results = [
    row("a, JS", 10, "ns"),
    row("a, native", 5, "ns"),
    row("b, JS", 8, "ns"),
    row("b, native", 16, "ns"),
  ];
  const ratios = cellsOf(renderTable(results, [vsJs])).map((cells) => cells.at(-1));
  expect(ratios).toEqual(["vs JS", "", "2.00x", "", "0.50x"]);
});

test("more is better in records/s and MB/s, less is better in ns and us", () => {
  expect(speedRatio(row("ours", 30, "MB/s"), row("peer", 10, "MB/s"))).toBe(3);
  expect(speedRatio(row("ours", 30, "records/s"), row("peer", 10, "records/s"))).toBe(3);
  expect(speedRatio(row("ours", 5, "ns"), row("peer", 10, "ns"))).toBe(2);
  expect(speedRatio(row("ours", 5, "us"), row("peer", 10, "us"))).toBe(2);
});

test("values have three digits that count", () => {
  expect([1.234, 12.34, 123.4, 1234.5, 1_234_567].map((value) => formatValue(value))).toEqual([
    "1.23",
    "12.3",
    "123",
    "1,230",
    "1,230,000",
  ]);
  expect(formatValue(Number.POSITIVE_INFINITY)).toBe("-");
});

test("ratios far below one keep two digits that count", () => {
  expect([12.4, 1.5, 0.25, 0.0312].map((ratio) => formatRatio(ratio))).toEqual(["12x", "1.50x", "0.25x", "0.031x"]);
});

test("a long text is broken between words and loses none", () => {
  const text = Array.from({ length: 60 }, (_, at) => `word${at}`).join(" ");
  const lines = wrapText(text).split("\n");
  expect(lines.length).toBeGreaterThan(1);
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(110);
  expect(lines.join(" ")).toBe(text);
});
