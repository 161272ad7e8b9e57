import { element, formatTime, setAttributes, svgElement } from "./element.js";
import { isTurningPoint } from "./timeline.js";

/** @typedef {import("../recorded-history.ts").RecordedHistory} RecordedHistory */

/** Steps a second. */
const SPEEDS = /** @type {const} */ ([0.5, 1, 2, 4, 8, 16, 32, 64]);
const SPEED_DEFAULT = 2;
/** The player may stand so far down the window, as a part of it, before it is brought to its top. */
const TOP_SHARE = 8;

/** Paths in a box of 24 by 24: no font has all of these signs. */
const ICONS = {
  toStart: "M5 5h2.5v14H5z M19 5v14l-10-7z",
  turnBack: "M12 5v14l-9-7z M21 5v14l-9-7z",
  back: "M17 5v14l-10-7z",
  play: "M7 4v16l13-8z",
  pause: "M6 5h4v14H6z M14 5h4v14h-4z",
  on: "M7 5v14l10-7z",
  turnOn: "M3 5v14l9-7z M12 5v14l9-7z",
  toEnd: "M5 5v14l10-7z M16.500 5H19v14h-2.500z",
};

/**
 * Where the page stands in the history, and how it moves: by buttons, keys, time, and the address (`#t=STEP`).
 *
 * @param {RecordedHistory} history
 * @param {(step: number, isPlaying: boolean) => void} onShow called for every step shown
 */
export function makePlayer(history, onShow) {
  const last = history.steps.length - 1;
  let at = 0;
  /** @type {number} */
  let speed = SPEED_DEFAULT;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const toggle = control("play", "Play", () => (timer === undefined ? play() : pause()));
  toggle.id = "toggle";
  const position = element("output", { id: "position" });
  const speedChoice = element(
    "select",
    { id: "speed", "aria-label": "Speed" },
    SPEEDS.map((value) => element("option", { value: String(value) }, [`${value} steps/s`])),
  );
  speedChoice.value = String(speed);
  speedChoice.addEventListener("change", () => setSpeed(Number(speedChoice.value)));
  const caption = element("p", { id: "caption", "aria-live": "polite" });
  const root = element("div", { class: "controls", role: "group", "aria-label": "Player" }, [
    control("toStart", "To the start (Home)", () => seek(0)),
    control("turnBack", "Turning point before (Shift and left arrow)", () => turn(-1)),
    control("back", "Step back (left arrow)", () => seek(at - 1)),
    toggle,
    control("on", "Step on (right arrow)", () => seek(at + 1)),
    control("turnOn", "Next turning point (Shift and right arrow)", () => turn(1)),
    control("toEnd", "To the end (End)", () => seek(last)),
    element("label", { class: "speed" }, ["Speed ", speedChoice]),
    position,
  ]);

  /** @param {number} step */
  function show(step) {
    at = Math.min(last, Math.max(0, Number.isFinite(step) ? Math.trunc(step) : 0));
    const { timeUs = 0, text = "", kind = "note" } = history.steps[at] ?? {};
    position.textContent = `step ${at} of ${last} · ${formatTime(timeUs)}`;
    caption.textContent = text;
    setAttributes(caption, { "data-kind": kind, "data-step": at });
    globalThis.history.replaceState(null, "", `#t=${at}`);
    onShow(at, timer !== undefined);
  }

  /** Goes somewhere by hand: what plays stops. @param {number} step */
  function seek(step) {
    pause();
    show(step);
  }

  /** @param {1 | -1} direction */
  function turn(direction) {
    for (let step = at + direction; step >= 0 && step <= last; step += direction)
      if (isTurningPoint(history.steps[step]?.kind ?? "")) return seek(step);
    seek(direction < 0 ? 0 : last);
  }

  /** Brings player and lanes in sight, for who reads above them. */
  function reveal() {
    const main = root.closest("main");
    if (main !== null && main.getBoundingClientRect().top > innerHeight / TOP_SHARE) main.scrollIntoView();
  }

  function play() {
    if (at >= last) show(0);
    schedule();
    showPlaying();
  }

  function pause() {
    clearTimeout(timer);
    timer = undefined;
    showPlaying();
  }

  function schedule() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (at + 1 >= last) {
        seek(last);
        return;
      }
      schedule();
      show(at + 1);
    }, 1000 / speed);
  }

  function showPlaying() {
    const isPlaying = timer !== undefined;
    toggle.replaceChildren(makeIcon(isPlaying ? "pause" : "play"));
    setAttributes(toggle, {
      "aria-label": isPlaying ? "Pause" : "Play",
      title: `${isPlaying ? "Pause" : "Play"} (space)`,
    });
    setAttributes(root, { "data-playing": isPlaying });
    // Read aloud step by step only when somebody steps.
    setAttributes(caption, { "aria-live": isPlaying ? "off" : "polite" });
  }

  /** @param {number} value */
  function setSpeed(value) {
    speed = value;
    speedChoice.value = String(value);
    if (timer !== undefined) schedule();
  }

  /** @param {1 | -1} direction */
  function changeSpeed(direction) {
    const place = SPEEDS.findIndex((value) => value === speed);
    setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, place + direction))] ?? SPEED_DEFAULT);
  }

  /** @param {string} hash */
  function stepOf(hash) {
    const [, step] = /^#t=(\d+)$/u.exec(hash) ?? [];
    return step === undefined ? undefined : Number(step);
  }

  /** @type {Readonly<Record<string, () => void>>} */
  const keys = {
    " ": () => (timer === undefined ? play() : pause()),
    ArrowLeft: () => seek(at - 1),
    ArrowRight: () => seek(at + 1),
    "shift ArrowLeft": () => turn(-1),
    "shift ArrowRight": () => turn(1),
    Home: () => seek(0),
    End: () => seek(last),
    "+": () => changeSpeed(1),
    "=": () => changeSpeed(1),
    "-": () => changeSpeed(-1),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target instanceof Element ? event.target : document.body;
    // Those use the same keys for themselves.
    if (target.matches("select, summary, pre")) return;
    if (event.key === " " && target.matches("button:not([data-step]), a")) return;
    const isTurn = event.shiftKey && event.key.startsWith("Arrow");
    const act = keys[isTurn ? `shift ${event.key}` : event.key];
    if (act === undefined) return;
    event.preventDefault();
    reveal();
    act();
  });
  globalThis.addEventListener("hashchange", () => {
    const step = stepOf(location.hash);
    if (step !== undefined && step !== at) seek(step);
  });

  return {
    root,
    caption,
    seek,
    /** @param {number} step */
    reveal(step) {
      reveal();
      seek(step);
    },
    /** @param {number} step */
    playFrom(step) {
      reveal();
      seek(step);
      play();
    },
    start() {
      const [violation] = history.violations;
      showPlaying();
      show(stepOf(location.hash) ?? violation?.step ?? last);
    },
  };
}

/** @param {keyof typeof ICONS} name */
function makeIcon(name) {
  const icon = svgElement("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" });
  icon.append(svgElement("path", { d: ICONS[name] }));
  return icon;
}

/**
 * @param {keyof typeof ICONS} icon
 * @param {string} name
 * @param {() => void} act
 */
function control(icon, name, act) {
  const made = element("button", { type: "button", "aria-label": name, title: name }, [makeIcon(icon)]);
  made.addEventListener("click", act);
  return made;
}
