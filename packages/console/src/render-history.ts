import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { PAGE_STYLE } from "./page-style.ts";
import type { RecordedHistory } from "./recorded-history.ts";
import { shortenHistory } from "./shorten-history.ts";

/** The modules of the page's script, by their whole names so that a packer finds them: what one imports stands before it. */
const PAGE_MODULES = [
  "./page/element.js",
  "./page/timeline.js",
  "./page/lanes.js",
  "./page/events.js",
  "./page/explanation.js",
  "./page/player.js",
  "./page/main.js",
] as const;

const PAGE_SCRIPT = joinModules(PAGE_MODULES.map((path) => readFileSync(new URL(path, import.meta.url), "utf8")));

/**
 * The page that plays a history: one HTML document that asks nothing of any other place, for any current browser, from a file too.
 *
 * Everything in the history is data: it is put into the page as JSON and shown as text. The page's policy lets no other script run.
 * A long history is shortened, and the page says so.
 */
export function renderHistory(history: RecordedHistory): string {
  const hash = createHash("sha256").update(PAGE_SCRIPT).digest("base64");
  const policy = `default-src 'none'; script-src 'sha256-${hash}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'`;
  const [violation] = history.violations;
  const verdict =
    violation === undefined ? "No rule was broken." : `Rule ${violation.id} was broken: ${violation.text}`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="color-scheme" content="light dark">
<meta name="description" content="${escapeHtml(verdict)}">
<title>${escapeHtml(history.title)}</title>
<link rel="icon" href="data:,">
<style>${PAGE_STYLE}</style>
</head>
<body>
<noscript><h1>${escapeHtml(history.title)}</h1><p>${escapeHtml(verdict)}</p><p>This page plays the history with a script of its own.</p></noscript>
<div id="page"></div>
<script type="application/json" id="history">${escapeJson(shortenHistory(history))}</script>
<script type="module">${PAGE_SCRIPT}</script>
</body>
</html>
`;
}

/**
 * One script of several modules, without a bundler: their names are one scope then, so that no two modules may declare the same. They
 * import each other by name only, and nothing else.
 */
function joinModules(sources: readonly string[]): string {
  return sources
    .map((source) => source.replaceAll(/^import [^;]*;\n/gmu, "").replaceAll(/^export (?=function|const|class)/gmu, ""))
    .join("\n");
}

/** JSON inside a script element: no `<`, so that neither an end tag nor a comment can begin. */
function escapeJson(value: unknown): string {
  return JSON.stringify(value).replaceAll("<", "\\u003c");
}

function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
