import { element, formatRange, formatTime } from "./element.js";

/** @typedef {import("../recorded-history.ts").RecordedHistory} RecordedHistory */
/** @typedef {import("../recorded-history.ts").HistoryViolation} HistoryViolation */

/** One sentence each, with what stands for it in the picture. */
const TERMS = /** @type {const} */ ([
  [
    "lane",
    "Replica",
    "each lane is one broker's copy of the same log, record after record from the left; the leader takes what producers write, the followers fetch it from there.",
  ],
  ["leo", "Log end offset (LEO)", "where a replica will put its next record: its log holds the offsets below it."],
  [
    "hw",
    "High watermark (HW)",
    "everything below it is committed: every in-sync replica has it, readers see it, it must never be lost; hatched records above it are not committed yet.",
  ],
  ["isr", "In-sync replicas (ISR)", "the replicas that must hold a record before it counts as committed."],
  [
    "epoch",
    "Leader epoch",
    "the number of a leader's reign: each record keeps the epoch in which it was written, and that is its colour here.",
  ],
]);

/** Steps that the second button of a violation goes back. */
const STEPS_BACK = 10;

/**
 * Title, verdict, and the words that a reader needs.
 *
 * @param {RecordedHistory} history
 * @param {{ reveal: (step: number) => void, playFrom: (step: number) => void }} player
 */
export function makeExplanation(history, player) {
  const facts = element(
    "dl",
    { class: "facts" },
    history.facts.map(([name, value]) => element("div", {}, [element("dt", {}, [name]), element("dd", {}, [value])])),
  );
  const terms = element(
    "dl",
    { class: "terms" },
    TERMS.map(([glyph, name, meaning]) =>
      element("div", {}, [element("dt", {}, [makeGlyph(glyph), name]), element("dd", {}, [meaning])]),
    ),
  );
  return element("header", { class: "explanation" }, [
    element("p", { class: "mark-line" }, ["Tidemark · a simulated history of one partition"]),
    element("h1", {}, [history.title]),
    element("p", { class: "summary" }, [history.summary]),
    makeVerdict(history, player),
    terms,
    element("details", { class: "run" }, [
      element("summary", {}, ["What was run, and how to run it again"]),
      facts,
      element("pre", {}, [history.command]),
      ...(history.omitted === "" ? [] : [element("p", { id: "omitted" }, [history.omitted])]),
    ]),
  ]);
}

/** @param {"lane" | "leo" | "hw" | "isr" | "epoch"} glyph */
function makeGlyph(glyph) {
  if (glyph === "isr")
    return element("span", { class: "glyph isr-glyph", "aria-hidden": "true" }, [
      element("span", { class: "member", "data-in": true }, ["1"]),
    ]);
  const children = glyph === "epoch" ? [0, 1, 2].map((color) => element("i", { "data-color": color })) : [];
  return element("span", { class: `glyph ${glyph}-glyph`, "aria-hidden": "true" }, children);
}

/**
 * @param {RecordedHistory} history
 * @param {{ reveal: (step: number) => void, playFrom: (step: number) => void }} player
 */
function makeVerdict(history, player) {
  const [first, ...others] = history.violations;
  const fromStart = button("▶ Play from the start", () => player.playFrom(0));
  if (first === undefined) {
    return element("section", { class: "verdict", "data-verdict": "good", role: "status" }, [
      element("h2", {}, ["✓ No rule was broken"]),
      element("p", {}, [
        `The rules were looked at after every event, up to ${formatTime(history.steps.at(-1)?.timeUs ?? 0)}.`,
      ]),
      element("p", { class: "actions" }, [fromStart]),
    ]);
  }
  const where = whereOf(first);
  return element(
    "section",
    { class: "verdict", "data-verdict": "broken", "data-violation": first.id, role: "status" },
    [
      element("h2", {}, [`✕ Rule ${first.id} was broken: ${first.rule}`]),
      element("p", { class: "wrong-text" }, [first.text]),
      element("p", {}, [element("b", {}, ["The rule. "]), first.meaning]),
      element("p", { class: "where" }, [
        element("b", {}, ["Where. "]),
        `${where === "" ? "" : `${where}, `}at ${formatTime(history.steps[first.step]?.timeUs ?? 0)}, step ${first.step}. It is outlined in red below.`,
      ]),
      ...(others.length === 0
        ? []
        : [
            element("p", { class: "aftermath-head" }, [element("b", {}, ["What came of it."])]),
            element(
              "ol",
              { class: "aftermath" },
              others.map((violation) => makeConsequence(violation, player)),
            ),
          ]),
      element("p", { class: "actions" }, [
        button("Show that moment", () => player.reveal(first.step)),
        button(`▶ Play from ${STEPS_BACK} steps before`, () => player.playFrom(Math.max(0, first.step - STEPS_BACK))),
        fromStart,
      ]),
    ],
  );
}

/**
 * @param {HistoryViolation} violation
 * @param {{ reveal: (step: number) => void }} player
 */
function makeConsequence(violation, player) {
  const show = button(`step ${violation.step}`, () => player.reveal(violation.step));
  show.className = "link";
  return element("li", { "data-violation": violation.id }, [`${violation.text} (rule ${violation.id}, `, show, ")"]);
}

/** @param {HistoryViolation} violation */
function whereOf({ range, replicas }) {
  const names = replicas.length === 0 ? "" : `broker${replicas.length > 1 ? "s" : ""} ${replicas.join(" and ")}`;
  const records = range === undefined ? "" : formatRange(range[0], range[1]);
  const place = [records, names].filter((part) => part !== "").join(" on ");
  return place.slice(0, 1).toUpperCase() + place.slice(1);
}

/**
 * @param {string} text
 * @param {() => void} act
 */
function button(text, act) {
  const made = element("button", { type: "button" }, [text]);
  made.addEventListener("click", act);
  return made;
}
