import { pageSection, renderReportPage } from "@tidemark/bench";
import type { Latencies, PageReport, Result } from "@tidemark/bench";
import { afterAll, beforeAll, expect, test } from "vitest";
import { PageOpener } from "./page.ts";

const HOSTILE = '</script><script>alert(1)</script><img src="x" onerror="alert(2)"><!--';

let opener: PageOpener;

beforeAll(async () => {
  opener = await PageOpener.start();
});

afterAll(() => opener.stop());

function row(subject: string, median: number): Result {
  return { workload: "w", subject, median, min: median * 0.9, max: median * 1.2, unit: "records/s" };
}

function latenciesOf(subject: string, us: number): Latencies {
  const curve = [0, 50, 90, 99, 99.9, 100].map((percentile, at) => [percentile, us * (at + 1)] as const);
  return {
    workload: "w",
    subject,
    unit: "us",
    count: 5000,
    p50: 2 * us,
    p99: 4 * us,
    p999: 5 * us,
    max: 6 * us,
    curve,
  };
}

function report(name: string, subjects: readonly string[]): PageReport {
  const [ours = "", theirs = "", missing = ""] = subjects;
  const peers = [{ heading: `vs ${theirs}`, subjectFor: () => theirs }];
  const measured = {
    results: [row(ours, 2_000_000), row(theirs, 500_000), row("raw file, 1 MiB", 20_000_000)],
    skipped: [{ workload: "w", subject: missing, reason: `${missing} is not here` }],
    latencies: [latenciesOf(ours, 3), latenciesOf(theirs, 40)],
  };
  const workload = { name, explanation: "What one sample does.", unit: "records/s", peers } as const;
  const functions = { ...workload, name: "functions", unit: "ns", peers: [] } as const;
  const times = { results: [{ ...row("64 B, JS", 77), unit: "ns" as const }], skipped: [], latencies: [] };
  return {
    title: "Benchmarks of one machine",
    heading: ["A processor, 2 cores", "Node 20"],
    sections: [pageSection(workload, measured), pageSection(functions, times)],
  };
}

test("plots, ratios, latencies and what was not measured; nothing on the console, no request to anywhere", async () => {
  const { page, disturbances } = await opener.open(renderReportPage(report("append", ["tidemark", "lmdb", "Kafka"])));
  const section = page.locator("section").first();
  expect(await page.locator("h1").textContent()).toBe("Benchmarks of one machine");
  expect(await section.locator("h2").textContent()).toBe("append");

  const bars = section.locator(".bars .median rect");
  const widths = await bars.evaluateAll((all) => all.map((bar) => Number(bar.getAttribute("width"))));
  expect(widths).toHaveLength(3);
  expect((widths[0] ?? 0) / (widths[1] ?? 1)).toBeCloseTo(4, 0);
  expect((widths[2] ?? 0) / (widths[0] ?? 1)).toBeCloseTo(10, 0);
  const fills = await bars.evaluateAll((all) => all.map((bar) => bar.getAttribute("fill")));
  expect(fills).toEqual(["var(--ours)", "var(--peer)", "var(--raw)"]);
  const spread = await section
    .locator(".bars .spread line")
    .evaluateAll((all) => all.map((line) => Number(line.getAttribute("x2")) - Number(line.getAttribute("x1"))));
  expect(spread).toHaveLength(3);
  expect(spread.every((length) => length > 0)).toBe(true);
  expect(await section.locator(".bars .value text").allTextContents()).toEqual(["2,000,000", "500,000", "20,000,000"]);

  const cells = (index: number) => section.locator("table").first().locator("tbody tr").nth(index).locator("th, td");
  expect(await cells(0).allTextContents()).toEqual(["tidemark", "2,000,000", "1,800,000", "2,400,000", "4.00x"]);
  expect(await cells(0).last().getAttribute("data-ratio")).toBe("faster");
  expect(await cells(3).allTextContents()).toEqual(["Kafka", "not measured: Kafka is not here"]);

  expect(await section.locator(".latencies .curve path").count()).toBe(2);
  expect(await section.locator("table").last().locator("tbody tr").first().locator("td").allTextContents()).toEqual([
    "6",
    "12",
    "15",
    "18",
    "5,000",
  ]);
  expect(await page.locator("section").last().locator(".bars .median rect").getAttribute("fill")).toBe("var(--ours)");
  expect(disturbances).toEqual([]);
});

test("on a logarithmic scale a median is a dot, and the slowest can be told from nothing", async () => {
  const { page, disturbances } = await opener.open(renderReportPage(report("append", ["tidemark", "lmdb", "Kafka"])));
  const section = page.locator("section").first();
  await page.locator("#logarithmic").check();
  expect(await section.locator(".bars .median rect").count()).toBe(0);
  const places = await section
    .locator(".bars .median circle")
    .evaluateAll((all) => all.map((dot) => Number(dot.getAttribute("cx"))));
  const [ours = 0, theirs = 0, raw = 0] = places;
  expect((raw - ours) / (ours - theirs)).toBeCloseTo(Math.log(10) / Math.log(4), 1);
  await page.locator("#logarithmic").uncheck();
  expect(await section.locator(".bars .median rect").count()).toBe(3);
  expect(disturbances).toEqual([]);
});

test("names and reasons are shown as text, whatever they hold", async () => {
  const hostile = report(HOSTILE, [HOSTILE, `a ${HOSTILE}`, `b ${HOSTILE}`]);
  const { page, disturbances } = await opener.open(
    renderReportPage({ ...hostile, title: HOSTILE, heading: [HOSTILE] }),
  );
  expect(await page.locator("h1").textContent()).toBe(HOSTILE);
  expect(await page.locator("section h2").first().textContent()).toBe(HOSTILE);
  expect(await page.locator("#page img, #page script").count()).toBe(0);
  expect(disturbances).toEqual([]);
});
