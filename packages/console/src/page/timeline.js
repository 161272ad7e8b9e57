import { element, formatTime, place, setAttributes } from "./element.js";

/** @typedef {import("../recorded-history.ts").RecordedHistory} RecordedHistory */

/** Kinds with a mark of their own, in the order in which they are drawn over each other, and what the legend calls them. */
const MARKS = /** @type {const} */ ([
  ["network", "network cut or healed"],
  ["note", "the story"],
  ["decision", "leader or ISR decided"],
  ["truncation", "log cut"],
  ["fault", "fault, or its end"],
  ["violation", "rule broken"],
]);

/** Where shift and an arrow go. */
const TURNING_POINTS = new Set(["note", "fault", "decision", "truncation", "violation"]);

/** @param {string} kind */
export function isTurningPoint(kind) {
  return TURNING_POINTS.has(kind);
}

/**
 * The line of all steps, with marks, and the scrubber on it.
 *
 * @param {RecordedHistory} history
 * @param {(step: number) => void} onSeek
 */
export function makeTimeline(history, onSeek) {
  const last = Math.max(1, history.steps.length - 1);
  const marks = element("div", { class: "marks", "aria-hidden": "true" });
  for (const [kind] of MARKS) {
    for (const [at, step] of history.steps.entries()) {
      if (step.kind !== kind) continue;
      const mark = element("i", { class: "mark", "data-kind": kind, "data-step": at });
      place(mark, at / last);
      marks.append(mark);
    }
  }
  const input = element("input", {
    type: "range",
    id: "scrubber",
    min: 0,
    max: history.steps.length - 1,
    step: 1,
    value: 0,
    "aria-label": "Step of the history",
  });
  input.addEventListener("input", () => onSeek(Number(input.value)));
  const used = MARKS.filter(([kind]) => history.steps.some((step) => step.kind === kind));
  const legend = element(
    "ul",
    { class: "mark-legend", "aria-label": "Marks on the timeline" },
    used.map(([kind, name]) =>
      element("li", {}, [element("i", { class: "mark", "data-kind": kind, "aria-hidden": "true" }), name]),
    ),
  );
  const root = element("div", { class: "timeline" }, [element("div", { class: "strip" }, [marks, input]), legend]);
  return {
    root,
    /** @param {number} at */
    show(at) {
      const step = history.steps[at];
      input.value = String(at);
      setAttributes(input, { "aria-valuetext": `step ${at}, ${formatTime(step?.timeUs ?? 0)}: ${step?.text ?? ""}` });
    },
  };
}
