import { expect, test } from "vitest";
import { formatRatio, formatValue, renderLatencies, renderTable, speedRatio, wrapText } from "./table.ts";
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
  expect(cellsOf(renderTable({ results: results, skipped: [] }, [peer("vs raw", "raw")]))).toEqual([
    ["", "median records/s", "min", "max", "vs raw"],
    ["ours", "1,000,000", "500,000", "2,000,000", "0.25x"],
    ["raw", "4,000,000", "2,000,000", "8,000,000", ""],
  ]);
});

test("a peer that was not measured has no column", () => {
  const [head] = cellsOf(renderTable({ results: [row("ours", 1, "MB/s")], skipped: [] }, [peer("vs raw", "raw")]));
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
  const ratios = cellsOf(renderTable({ results: results, skipped: [] }, [vsJs])).map((cells) => cells.at(-1));
  expect(ratios).toEqual(["vs JS", "", "2.00x", "", "0.50x"]);
});

test("a row without figures says why, across all columns", () => {
  const skipped = [{ workload: "w", subject: "theirs", reason: "Java is not on the PATH" }];
  const rows = cellsOf(
    renderTable({ results: [row("ours", 1, "MB/s"), row("raw", 2, "MB/s")], skipped }, [peer("vs raw", "raw")]),
  );
  expect(rows.at(-1)).toEqual(["theirs", "not measured: Java is not on the PATH"]);
});

test("latencies have a row for each subject", () => {
  const latencies = { unit: "us", count: 12_345, p50: 1.234, p99: 20, p999: 300, max: 4567, curve: [] } as const;
  expect(cellsOf(renderLatencies([{ workload: "w", subject: "ours", ...latencies }]))).toEqual([
    ["latency in us", "p50", "p99", "p99.9", "max", "operations"],
    ["ours", "1.23", "20.0", "300", "4,570", "12,345"],
  ]);
});

test("more is better in records/s and MB/s, less is better in ns, us, ms and MiB", () => {
  expect(speedRatio(row("ours", 30, "MB/s"), row("peer", 10, "MB/s"))).toBe(3);
  expect(speedRatio(row("ours", 30, "records/s"), row("peer", 10, "records/s"))).toBe(3);
  expect(speedRatio(row("ours", 5, "ns"), row("peer", 10, "ns"))).toBe(2);
  expect(speedRatio(row("ours", 5, "us"), row("peer", 10, "us"))).toBe(2);
  expect(speedRatio(row("ours", 5, "ms"), row("peer", 10, "ms"))).toBe(2);
  expect(speedRatio(row("ours", 5, "MiB"), row("peer", 10, "MiB"))).toBe(2);
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
