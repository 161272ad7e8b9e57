import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { PAGE_STYLE } from "./report-page-style.ts";
import { speedRatio } from "./table.ts";
import { isLessBetter } from "./workload.ts";
import type { Latencies, Measured, Result, Skipped, Unit, Workload } from "./workload.ts";

export interface PageRow extends Result {
  /** How many times as fast as each peer of the headings; `null` without one. */
  readonly ratios: readonly (number | null)[];
}

/** One workload. */
export interface PageSection {
  readonly name: string;
  readonly explanation: string;
  readonly unit: Unit;
  readonly isLessBetter: boolean;
  readonly ratioHeadings: readonly string[];
  readonly rows: readonly PageRow[];
  readonly skipped: readonly Skipped[];
  readonly latencies: readonly Latencies[];
}

/** What the page shows. */
export interface PageReport {
  readonly title: string;
  /** Machine, versions and settings. */
  readonly heading: readonly string[];
  readonly sections: readonly PageSection[];
}

/** What was measured of a workload, with its ratios. */
export function pageSection(
  { name, explanation, unit, peers }: Pick<Workload, "name" | "explanation" | "unit" | "peers">,
  { results, skipped, latencies }: Measured,
): PageSection {
  const find = (subject: string | undefined) => results.find((row) => row.subject === subject);
  const columns = peers.filter(({ subjectFor }) => results.some((row) => find(subjectFor(row.subject)) !== undefined));
  const rows = results.map((row) => ({
    ...row,
    ratios: columns.map(({ subjectFor }) => {
      const other = find(subjectFor(row.subject));
      return other === undefined || other === row ? null : speedRatio(row, other);
    }),
  }));
  const ratioHeadings = columns.map(({ heading }) => heading);
  return { name, explanation, unit, isLessBetter: isLessBetter(unit), ratioHeadings, rows, skipped, latencies };
}

/**
 * A report as one HTML document with plots, which asks nothing of any other place, for any current browser, from a file too.
 *
 * What was measured is data: it is put into the page as JSON and shown as text. The page's policy lets no script run but those of
 * the page: D3 and Observable Plot, whole, and our own.
 */
export function renderReportPage(report: PageReport): string {
  const d3 = packageDirectory("d3");
  const plot = packageDirectory("@observablehq/plot");
  const scripts = [
    readFileSync(join(d3, "dist/d3.min.js"), "utf8"),
    readFileSync(join(plot, "dist/plot.umd.min.js"), "utf8"),
    // From the sources, compiled or not: it is no module of Node's.
    readFileSync(new URL("../src/page/main.js", import.meta.url), "utf8"),
  ];
  const licences = [d3, plot].map((directory) => readFileSync(join(directory, "LICENSE"), "utf8"));
  const hashes = scripts.map((script) => `'sha256-${createHash("sha256").update(script).digest("base64")}'`).join(" ");
  const policy = `default-src 'none'; script-src ${hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(report.title)}</title>
<link rel="icon" href="data:,">
<style>${PAGE_STYLE}</style>
</head>
<body>
<noscript><h1>${escapeHtml(report.title)}</h1><p>This page draws its plots with scripts of its own.</p></noscript>
<div id="page"></div>
<footer><details><summary>Drawn with D3 and Observable Plot</summary><pre>${licences.map(escapeHtml).join("\n")}</pre></details></footer>
<script type="application/json" id="report">${JSON.stringify(report).replaceAll("<", "\\u003c")}</script>
${scripts.map((script) => `<script>${script}</script>`).join("\n")}
</body>
</html>
`;
}

function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/** Neither package lets its script be imported by name: found from its entry upwards. */
function packageDirectory(name: string): string {
  let directory = dirname(createRequire(import.meta.url).resolve(name));
  for (; dirname(directory) !== directory; directory = dirname(directory)) {
    if (nameIn(directory) === name) return directory;
  }
  throw new Error(`the package ${name} has no directory`);
}

function nameIn(directory: string): string | undefined {
  try {
    return (JSON.parse(readFileSync(join(directory, "package.json"), "utf8")) as { readonly name?: string }).name;
  } catch {
    return undefined;
  }
}
