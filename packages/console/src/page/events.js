import { element, formatTime, setAttributes } from "./element.js";
import { isTurningPoint } from "./timeline.js";

/** @typedef {import("../recorded-history.ts").RecordedHistory} RecordedHistory */

/** A longer history shows its turning points first. */
const ALL_SHOWN_MAX = 120;

const KIND_NAMES = {
  note: "story",
  violation: "rule broken",
  fault: "fault",
  network: "network",
  decision: "controller",
  role: "role",
  append: "append",
  truncation: "log cut",
  highWatermark: "HW",
  client: "client",
};

/**
 * What happened, in words; the current step is marked and kept in sight.
 *
 * @param {RecordedHistory} history
 * @param {(step: number) => void} onSeek
 */
export function makeEvents(history, onSeek) {
  const items = history.steps.map((step, at) => {
    const button = element("button", { type: "button", "data-step": at, "data-kind": step.kind }, [
      element("span", { class: "when" }, [formatTime(step.timeUs)]),
      element("span", { class: "kind" }, [KIND_NAMES[step.kind]]),
      element("span", { class: "what" }, [step.text]),
    ]);
    button.addEventListener("click", () => onSeek(at));
    return element("li", {}, [button]);
  });
  const list = element("ol", { class: "events", tabindex: -1, "aria-label": "What happened" }, items);
  const choice = element("select", { id: "shown", "aria-label": "Which steps the list shows" }, [
    element("option", { value: "all" }, ["every step"]),
    element("option", { value: "turning" }, ["turning points"]),
  ]);
  let current = 0;
  const filter = () => {
    const isAll = choice.value === "all";
    for (const [at, item] of items.entries())
      item.hidden = !isAll && at > 0 && !isTurningPoint(history.steps[at]?.kind ?? "");
    show(current);
  };
  choice.addEventListener("change", filter);
  /** @param {number} at */
  const show = (at) => {
    current = at;
    for (const item of list.querySelectorAll("[aria-current]")) item.removeAttribute("aria-current");
    const item = items.slice(0, at + 1).findLast(({ hidden }) => !hidden);
    if (item === undefined) return;
    setAttributes(item.firstElementChild ?? item, { "aria-current": "step" });
    // Within the list only: the page itself stays where it is.
    const middle = item.offsetTop - (list.clientHeight - item.offsetHeight) / 2;
    list.scrollTop = Math.max(0, middle);
  };
  choice.value = history.steps.length > ALL_SHOWN_MAX ? "turning" : "all";
  const root = element("section", { class: "happened", "aria-label": "What happened" }, [
    element("div", { class: "happened-head" }, [element("h2", {}, ["What happened"]), choice]),
    list,
  ]);
  return { root, show, filter };
}
