/** @typedef {import("../report-page.ts").PageReport} PageReport */
/** @typedef {import("../report-page.ts").PageSection} PageSection */
/** @typedef {import("../report-page.ts").PageRow} PageRow */

/** From the script before this one. @type {typeof import("@observablehq/plot")} */
const Plot = Reflect.get(globalThis, "Plot");

const LABEL_WIDTH = 330;
const BAR_HEIGHT = 22;
/** Percentiles named on the axis of latencies. */
const PERCENTILES = [0, 50, 90, 99, 99.9, 99.99, 99.999];

/**
 * An element with children. Text is always text: nothing of a report is ever parsed as HTML.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Readonly<Record<string, string>>} [attributes]
 * @param {readonly (Node | string)[]} [children]
 * @returns {HTMLElementTagNameMap[Tag]}
 */
function element(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Three digits that count. @param {number} value */
function format(value) {
  if (value >= 1000) return Math.round(Number(value.toPrecision(3))).toLocaleString("en-US");
  return Number(value.toPrecision(3)).toString();
}

/** @param {number} ratio */
function formatRatio(ratio) {
  return `${ratio >= 10 ? Math.round(ratio).toLocaleString("en-US") : ratio.toPrecision(ratio >= 0.1 ? 3 : 2)}x`;
}

/**
 * Ours, peers, and what the disk gives. Where nothing has our name, all is ours: functions.
 *
 * @param {PageSection} section
 * @param {string} subject
 */
function kindOf({ rows }, subject) {
  if (subject.startsWith("tidemark") || !rows.some((row) => row.subject.startsWith("tidemark"))) return "ours";
  return subject.startsWith("raw file") ? "raw" : "peer";
}

/**
 * Medians as bars from 0, or as dots on a logarithmic scale, where a bar has no begin; a line from minimum to maximum.
 *
 * @param {PageSection} section
 * @param {boolean} isLogarithmic
 */
function plotRows(section, isLogarithmic) {
  const { rows, unit } = section;
  const values = { x: "median", y: "subject", fill: (/** @type {PageRow} */ row) => kindOf(section, row.subject) };
  const title = (/** @type {PageRow} */ { subject, median, min, max }) =>
    `${subject}\n${format(median)} ${unit}\n${format(min)} to ${format(max)}`;
  return Plot.plot({
    width: 1000,
    height: 70 + rows.length * BAR_HEIGHT,
    marginBottom: 44,
    marginLeft: LABEL_WIDTH,
    marginRight: 80,
    x: {
      type: isLogarithmic ? "log" : "linear",
      label: `${unit}, ${section.isLessBetter ? "less" : "more"} is better`,
      grid: true,
    },
    y: { label: null, domain: rows.map(({ subject }) => subject) },
    color: { domain: ["ours", "peer", "raw"], range: ["var(--ours)", "var(--peer)", "var(--raw)"] },
    marks: [
      isLogarithmic
        ? Plot.dot(rows, { ...values, r: 5, title, className: "median" })
        : Plot.barX(rows, { ...values, insetTop: 3, insetBottom: 3, title, className: "median" }),
      Plot.ruleY(rows, {
        x1: "min",
        x2: "max",
        y: "subject",
        stroke: "var(--ink)",
        strokeWidth: 1.5,
        className: "spread",
      }),
      Plot.text(rows, {
        x: "max",
        y: "subject",
        text: (/** @type {PageRow} */ row) => format(row.median),
        textAnchor: "start",
        dx: 6,
        className: "value",
      }),
    ],
  });
}

/**
 * How many nines a percentile has: 90 is 1, 99 is 2. The maximum is where one operation of all is.
 *
 * @param {number} percentile
 * @param {number} count
 */
function ninesOf(percentile, count = Infinity) {
  return -Math.log10(Math.max(1 - percentile / 100, 1 / Math.max(count, 1)));
}

/** @param {PageSection} section */
function plotLatencies({ latencies }) {
  const points = latencies.flatMap(({ subject, count, curve }) =>
    curve.map(([percentile, value]) => ({ subject, nines: ninesOf(percentile, count), percentile, value })),
  );
  return Plot.plot({
    width: 1000,
    height: 330,
    marginLeft: 60,
    marginBottom: 44,
    x: {
      label: "percentile",
      ticks: PERCENTILES.map((percentile) => ninesOf(percentile)),
      tickFormat: (/** @type {number} */ nines) => `${Number((100 * (1 - 10 ** -nines)).toFixed(3))}`,
    },
    y: { type: "log", label: "us", grid: true, tickFormat: (/** @type {number} */ value) => format(value) },
    color: { legend: true, domain: latencies.map(({ subject }) => subject), scheme: "Observable10" },
    marks: [
      Plot.line(points, { x: "nines", y: "value", stroke: "subject", strokeWidth: 2, className: "curve" }),
      Plot.dot(points, {
        x: "nines",
        y: "value",
        fill: "subject",
        r: 2.5,
        title: ({ subject, percentile, value }) =>
          `${subject}\n${percentile === 100 ? "max" : percentile}: ${format(value)} us`,
      }),
    ],
  });
}

/** @param {PageSection} section */
function tableOf(section) {
  const { rows, skipped, unit, ratioHeadings } = section;
  const head = ["", `median ${unit}`, "min", "max", ...ratioHeadings];
  return element("table", {}, [
    element("thead", {}, [
      element(
        "tr",
        {},
        head.map((text) => element("th", {}, [text])),
      ),
    ]),
    element("tbody", {}, [
      ...rows.map(({ subject, median, min, max, ratios }) =>
        element("tr", { "data-kind": kindOf(section, subject) }, [
          element("th", {}, [subject]),
          ...[median, min, max].map((value) => element("td", {}, [format(value)])),
          ...ratios.map((ratio) =>
            ratio === null
              ? element("td")
              : element("td", { "data-ratio": ratio >= 1 ? "faster" : "slower" }, [formatRatio(ratio)]),
          ),
        ]),
      ),
      ...skipped.map(({ subject, reason }) =>
        element("tr", { class: "skipped" }, [
          element("th", {}, [subject]),
          element("td", { colspan: String(head.length - 1) }, [`not measured: ${reason}`]),
        ]),
      ),
    ]),
  ]);
}

/** @param {PageSection} section */
function latencyTable({ latencies }) {
  const head = ["latency in us", "p50", "p99", "p99.9", "max", "operations"];
  return element("table", {}, [
    element("thead", {}, [
      element(
        "tr",
        {},
        head.map((text) => element("th", {}, [text])),
      ),
    ]),
    element(
      "tbody",
      {},
      latencies.map(({ subject, p50, p99, p999, max, count }) =>
        element("tr", {}, [
          element("th", {}, [subject]),
          ...[p50, p99, p999, max].map((value) => element("td", {}, [format(value)])),
          element("td", {}, [count.toLocaleString("en-US")]),
        ]),
      ),
    ),
  ]);
}

/** @param {PageSection} section @param {number} index */
function sectionOf(section, index) {
  const figure = element("figure", { class: "bars" });
  const made = element("section", { id: `w${index}` }, [
    element("h2", {}, [section.name]),
    element("p", {}, [section.explanation]),
    ...(section.rows.length > 0 ? [figure] : []),
    tableOf(section),
    ...(section.latencies.length > 0
      ? [element("figure", { class: "latencies" }, [plotLatencies(section)]), latencyTable(section)]
      : []),
  ]);
  return {
    made,
    draw: (/** @type {boolean} */ isLogarithmic) => figure.replaceChildren(plotRows(section, isLogarithmic)),
  };
}

function startPage() {
  /** @type {PageReport} */
  const report = JSON.parse(document.querySelector("#report")?.textContent ?? "");
  const sections = report.sections.map(sectionOf);
  const scale = element("input", { type: "checkbox", id: "logarithmic" });
  const draw = () => {
    for (const { draw } of sections) draw(scale.checked);
  };
  scale.addEventListener("change", draw);
  const legend = /** @type {const} */ (["ours", "peer", "raw"]).map((kind) =>
    element("span", { class: "key", "data-kind": kind }, [
      { ours: "tidemark", peer: "peers", raw: "plain files" }[kind],
    ]),
  );
  document.querySelector("#page")?.append(
    element("h1", {}, [report.title]),
    ...report.heading.map((line) => element("p", { class: "heading" }, [line])),
    element("p", { class: "controls" }, [
      ...legend,
      " A bar is a median, its line goes from minimum to maximum. ",
      element("label", {}, [scale, " logarithmic"]),
    ]),
    element(
      "nav",
      {},
      report.sections.map(({ name }, index) => element("a", { href: `#w${index}` }, [name])),
    ),
    ...sections.map(({ made }) => made),
  );
  draw();
}

startPage();
