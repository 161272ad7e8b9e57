import { element } from "./element.js";
import { makeEvents } from "./events.js";
import { makeExplanation } from "./explanation.js";
import { framesOf, makeLanes } from "./lanes.js";
import { makePlayer } from "./player.js";
import { makeTimeline } from "./timeline.js";

/** @typedef {import("../recorded-history.ts").RecordedHistory} RecordedHistory */

const KEYS = /** @type {const} */ ([
  ["space", "play, pause"],
  ["← →", "a step"],
  ["shift ← →", "a turning point"],
  ["home end", "start, end"],
  ["+ −", "speed"],
]);

function startPage() {
  /** @type {RecordedHistory} */
  const history = JSON.parse(document.querySelector("#history")?.textContent ?? "");
  const lanes = makeLanes(history, framesOf(history));
  const player = makePlayer(history, (step) => {
    timeline.show(step);
    lanes.show(step);
    events.show(step);
  });
  const timeline = makeTimeline(history, player.seek);
  const events = makeEvents(history, player.seek);
  const keys = element(
    "p",
    { class: "keys" },
    KEYS.flatMap(([key, meaning]) => [element("kbd", {}, [key]), ` ${meaning} `]),
  );
  const page = document.querySelector("#page");
  page?.append(
    makeExplanation(history, player),
    element("main", {}, [
      element("section", { class: "player", "aria-label": "Player" }, [timeline.root, player.root, player.caption]),
      lanes.root,
      events.root,
      keys,
    ]),
  );
  events.filter();
  player.start();
  // Where the arrows go depends on where the lanes lie.
  globalThis.addEventListener("resize", () => lanes.show(Number(player.caption.dataset["step"] ?? 0)));
}

startPage();
