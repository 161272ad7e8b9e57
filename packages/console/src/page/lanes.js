import { childrenOf, element, place, setAttributes, svgElement } from "./element.js";

/** @typedef {import("../recorded-history.ts").RecordedHistory} RecordedHistory */
/** @typedef {import("../recorded-history.ts").ReplicaView} ReplicaView */
/** @typedef {import("../recorded-history.ts").ControllerView} ControllerView */
/** @typedef {import("../recorded-history.ts").HistoryMessage} HistoryMessage */
/** @typedef {import("../recorded-history.ts").HistoryViolation} HistoryViolation */

/**
 * Everybody as they are after a step.
 *
 * @typedef {object} Frame
 * @property {Readonly<Record<string, ReplicaView>>} replicas
 * @property {ControllerView | undefined} controller
 * @property {readonly string[]} cuts
 * @property {readonly string[]} acknowledged
 * @property {readonly HistoryMessage[]} messages
 */

/** Offsets that are drawn, `[fromOffset, toOffset)`. @typedef {{ fromOffset: number, toOffset: number }} Window */

/** Logs up to this length are drawn record by record, and stand still. */
const CELLS_MAX = 24;
/** Offsets by which the window of a longer log moves. */
const WINDOW_STEP = 8;
/** Colours of leader epochs; the style has as many. */
const EPOCH_COLORS = 8;
const ARROWS_MAX = 10;

/**
 * @param {RecordedHistory} history
 * @returns {Frame[]}
 */
export function framesOf(history) {
  /** @type {Frame} */
  let frame = { replicas: {}, controller: undefined, cuts: [], acknowledged: [], messages: [] };
  return history.steps.map((step) => {
    frame = {
      replicas: step.replicas === undefined ? frame.replicas : { ...frame.replicas, ...step.replicas },
      controller: step.controller ?? frame.controller,
      cuts: step.cuts ?? frame.cuts,
      acknowledged: step.acknowledged ?? frame.acknowledged,
      messages: step.messages ?? [],
    };
    return frame;
  });
}

/**
 * The lanes: the controller, the replicas, the clients.
 *
 * @param {RecordedHistory} history
 * @param {readonly Frame[]} frames
 */
export function makeLanes(history, frames) {
  const lengthMax = Math.max(0, ...frames.flatMap(({ replicas }) => Object.values(replicas).map(endOf)));
  const isShort = lengthMax <= CELLS_MAX;
  const hasClients = frames.some(({ acknowledged }) => acknowledged.length > 0);
  const controller = makeController(history);
  const axis = element("div", { class: "axis", "aria-hidden": "true" });
  const lanes = history.brokers.map((brokerId) => makeLane(brokerId, isShort));
  const clients = makeClients();
  const arrows = svgElement("svg", { class: "arrows", "aria-hidden": "true" });
  const messages = element("ul", { class: "messages", "aria-label": "Messages since the step before" });
  const root = element("section", { class: "lanes", "aria-label": "Replicas" }, [
    arrows,
    controller.root,
    element("div", { class: "axis-row" }, [axis]),
    ...lanes.map((lane) => lane.root),
    ...(hasClients ? [clients.root] : []),
    messages,
  ]);
  /** @type {Map<number, HTMLElement>} */
  const laneOf = new Map([
    [history.controllerId, controller.root],
    [history.clientId, hasClients ? clients.root : messages],
    ...history.brokers.map((id, at) => /** @type {const} */ ([id, lanes[at]?.root ?? root])),
  ]);
  return {
    root,
    /** @param {number} at */
    show(at) {
      const frame = frames[at];
      if (frame === undefined) return;
      const broken = history.violations.filter(({ step }) => step <= at);
      const current = history.violations.filter(({ step }) => step === at);
      const window = isShort ? shortWindow(lengthMax) : windowOf(frame, current);
      controller.show(frame);
      showAxis(axis, window);
      for (const lane of lanes) lane.show(frame, window, broken, current.length > 0);
      clients.show(frame);
      showMessages(messages, frame, history);
      showArrows(arrows, frame.messages, laneOf, root);
    },
  };
}

/** @param {ReplicaView} view */
function endOf(view) {
  return Math.max(view.logEndOffset, view.highWatermark);
}

/** @param {number} lengthMax */
function shortWindow(lengthMax) {
  return { fromOffset: 0, toOffset: Math.max(4, lengthMax + 1) };
}

/**
 * What is going on lies between the lowest high watermark and the highest end; when a rule is broken, where it is.
 *
 * @param {Frame} frame
 * @param {readonly HistoryViolation[]} current
 * @returns {Window}
 */
function windowOf(frame, current) {
  const views = Object.values(frame.replicas);
  const broken = current.flatMap(({ range }) => (range === undefined ? [] : [range]));
  const ends = broken.length > 0 ? broken.map(([, to]) => to + WINDOW_STEP) : views.map(endOf);
  const lows =
    broken.length > 0
      ? broken.map(([from]) => from - WINDOW_STEP / 2)
      : views.flatMap((view) => (view.highWatermark < 0 ? [endOf(view)] : [view.highWatermark, endOf(view)]));
  const toOffset = Math.ceil((Math.max(0, ...ends) + 2) / WINDOW_STEP) * WINDOW_STEP;
  const low = Math.floor((Math.min(toOffset, ...lows) - 2) / WINDOW_STEP) * WINDOW_STEP;
  return { fromOffset: Math.max(0, Math.min(low, toOffset - CELLS_MAX)), toOffset };
}

/**
 * @param {HTMLElement} axis
 * @param {Window} window
 */
function showAxis(axis, { fromOffset, toOffset }) {
  const count = toOffset - fromOffset;
  const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].find((step) => count / step <= 13) ?? 1024;
  const first = Math.ceil(fromOffset / every) * every;
  const ticks = Array.from({ length: Math.ceil((toOffset - first) / every) }, (_, at) => first + at * every);
  const shown = childrenOf(axis, ticks.length, () => element("span"));
  for (const [at, tick] of shown.entries()) {
    const offset = ticks[at] ?? 0;
    tick.textContent = String(offset);
    place(tick, (offset + 0.5 - fromOffset) / count);
  }
}

/** @param {RecordedHistory} history */
function makeController(history) {
  const badge = element("span", { class: "badge" });
  const members = history.brokers.map((id) => element("span", { class: "member" }, [String(id)]));
  const isr = element("span", { class: "isr" }, ["ISR", ...members]);
  const cuts = element("span", { class: "cuts" });
  const root = element("section", { class: "lane control", "aria-label": "Controller" }, [
    element("div", { class: "lane-head" }, [element("h3", {}, ["Controller"]), badge, isr, cuts]),
  ]);
  return {
    root,
    /** @param {Frame} frame */
    show({ controller, cuts: cutLinks }) {
      const { isUp = false, leader = -1, leaderEpoch = -1, isr: inSync = [] } = controller ?? {};
      badge.textContent =
        controller === undefined
          ? "no partition yet"
          : isUp
            ? leader < 0
              ? `no leader, epoch ${leaderEpoch}`
              : `leader: broker ${leader}, epoch ${leaderEpoch}`
            : "down";
      setAttributes(root, { "data-leader": leader, "data-epoch": leaderEpoch, "data-isr": inSync.join(" ") });
      for (const [at, member] of members.entries()) {
        const isIn = inSync.includes(history.brokers[at] ?? -1);
        setAttributes(member, { "data-in": isIn, title: isIn ? "in sync" : "not in the ISR" });
      }
      cuts.textContent =
        cutLinks.length === 0
          ? ""
          : `✕ network: ${cutLinks.map((link) => nameLink(link, history)).join(", ")} carry nothing`;
    },
  };
}

/** @param {string} link @param {RecordedHistory} history */
function nameLink(link, history) {
  const [ends = "", kind] = link.split("/");
  const names = ends.split(">").map((id) => shortName(Number(id), history));
  return `${names.join("→")}${kind === undefined ? "" : ` (${kind})`}`;
}

/** @param {number} id @param {RecordedHistory} history */
function shortName(id, history) {
  if (id === history.controllerId) return "controller";
  return id === history.clientId ? "client" : String(id);
}

/**
 * @param {number} brokerId
 * @param {boolean} isShort
 */
function makeLane(brokerId, isShort) {
  const badge = element("span", { class: "badge" });
  const facts = element("span", { class: "lane-facts" });
  const ranges = element("div", { class: "ranges" });
  const cells = element("div", { class: "cells" });
  const uncommitted = element("div", { class: "uncommitted" });
  const wrong = element("div", { class: "wrongs" });
  const end = element("div", { class: "flag leo" }, [element("b")]);
  const high = element("div", { class: "flag hw" }, [element("b")]);
  const overview = element("div", { class: "overview" });
  const root = element("section", { class: "lane replica", "data-broker": brokerId }, [
    element("div", { class: "lane-head" }, [element("h3", {}, [`Broker ${brokerId}`]), badge, facts]),
    element("div", { class: "bar" }, [
      element("div", { class: "track" }, [ranges, uncommitted, cells, wrong]),
      end,
      high,
    ]),
    ...(isShort ? [] : [overview]),
  ]);
  return {
    root,
    /**
     * @param {Frame} frame
     * @param {Window} window
     * @param {readonly HistoryViolation[]} broken
     * @param {boolean} isBreaking
     */
    show(frame, window, broken, isBreaking) {
      const view = frame.replicas[brokerId];
      if (view === undefined) return;
      const { fromOffset, toOffset } = window;
      const count = toOffset - fromOffset;
      /** @param {number} offset */
      const at = (offset) => Math.min(1, Math.max(0, (offset - fromOffset) / count));
      showLaneState(root, badge, facts, view);
      const concerning = broken.filter(({ replicas }) => replicas.includes(brokerId));
      setAttributes(root, { "data-concerned": concerning.length > 0 });
      showRanges(ranges, view, at);
      if (!isShort) showOverview(overview, frame, view, window);
      const committedTo = view.highWatermark < 0 ? view.logEndOffset : view.highWatermark;
      place(uncommitted, at(committedTo), Math.max(0, at(view.logEndOffset) - at(committedTo)));
      showCells(cells, isShort ? view : undefined, at);
      showFlag(end, "LEO", view.logEndOffset, window);
      showFlag(high, "HW", view.highWatermark, window);
      showWrong(wrong, view.logEndOffset, concerning, at, isBreaking);
    },
  };
}

/**
 * @param {HTMLElement} root
 * @param {HTMLElement} badge
 * @param {HTMLElement} facts
 * @param {ReplicaView} view
 */
function showLaneState(root, badge, facts, view) {
  const { process, role, leader, leaderEpoch, logEndOffset, highWatermark, flushedEndOffset, logStartOffset } = view;
  setAttributes(root, {
    "data-process": process,
    "data-role": role,
    "data-leader-epoch": leaderEpoch,
    "data-hw": highWatermark,
    "data-leo": logEndOffset,
    "data-epochs": view.ranges.map(([from, to, epoch]) => `${epoch}@${from}-${to}`).join(" "),
    "data-values": view.values.join(" "),
  });
  const roles = {
    leader: `leads, epoch ${leaderEpoch}`,
    follower: `follows ${leader}, epoch ${leaderEpoch}`,
    failed: "gave up",
    none: leaderEpoch < 0 ? "no role yet" : "between two roles",
  };
  const processes = { down: "down", starting: "starting", paused: `paused; ${roles[role]}`, up: roles[role] };
  badge.textContent = processes[process];
  const start = logStartOffset > 0 ? `log start ${logStartOffset} · ` : "";
  const flushed = `${start}${flushedEndOffset} of ${logEndOffset} flushed to disk`;
  facts.textContent = process === "down" ? "its disk, as last seen" : flushed;
}

/**
 * @param {HTMLElement} container
 * @param {ReplicaView} view
 * @param {(offset: number) => number} at
 */
function showRanges(container, view, at) {
  const visible = view.ranges.filter(([from, to]) => at(to) > at(from));
  const blocks = childrenOf(container, visible.length, () => element("div", { class: "range" }, [element("b")]));
  for (const [index, [from, to, epoch]] of visible.entries()) {
    const block = blocks[index];
    if (block === undefined) continue;
    place(block, at(from), at(to) - at(from));
    setAttributes(block, {
      "data-epoch": epoch,
      "data-color": epoch % EPOCH_COLORS,
      "data-from": from,
      "data-to": to,
      title: `[${from}, ${to}) of leader epoch ${epoch}`,
    });
    const label = block.firstElementChild;
    if (label !== null) label.textContent = `epoch ${epoch}`;
  }
}

/**
 * @param {HTMLElement} container
 * @param {Frame} frame
 * @param {ReplicaView} view
 * @param {Window} window
 */
function showOverview(container, frame, view, window) {
  const length = Math.max(window.toOffset, ...Object.values(frame.replicas).map(endOf));
  const blocks = childrenOf(container, view.ranges.length + 1, () => element("i"));
  for (const [index, [from, to, epoch]] of view.ranges.entries()) {
    const block = blocks[index];
    if (block === undefined) continue;
    block.className = "";
    setAttributes(block, { "data-color": epoch % EPOCH_COLORS });
    place(block, from / length, (to - from) / length);
  }
  const frameBlock = blocks.at(-1);
  if (frameBlock === undefined) return;
  frameBlock.className = "window";
  setAttributes(frameBlock, { "data-color": undefined });
  place(frameBlock, window.fromOffset / length, (window.toOffset - window.fromOffset) / length);
}

/**
 * @param {HTMLElement} container
 * @param {ReplicaView | undefined} view
 * @param {(offset: number) => number} at
 */
function showCells(container, view, at) {
  const values = view === undefined ? [] : view.values.slice(0, view.logEndOffset);
  const cells = childrenOf(container, values.length, () => element("span", { class: "cell" }, [element("b")]));
  for (const [offset, cell] of cells.entries()) {
    place(cell, at(offset), at(offset + 1) - at(offset));
    const label = cell.firstElementChild;
    if (label !== null) label.textContent = values[offset] ?? "";
    setAttributes(cell, { "data-offset": offset, title: `offset ${offset}: ${values[offset] ?? ""}` });
  }
}

/**
 * One that lies outside stands at the edge and says so.
 *
 * @param {HTMLElement} flag
 * @param {string} name
 * @param {number} offset -1: not known
 * @param {Window} window
 */
function showFlag(flag, name, offset, { fromOffset, toOffset }) {
  const left = Math.min(1, Math.max(0, (offset - fromOffset) / (toOffset - fromOffset)));
  const [before, after] = [offset < fromOffset ? "‹ " : "", offset > toOffset ? " ›" : ""];
  flag.hidden = offset < 0;
  place(flag, left);
  setAttributes(flag, {
    "data-side": left < 0.08 ? "start" : left > 0.92 ? "end" : "middle",
    "data-beyond": before !== "" || after !== "",
  });
  const label = flag.firstElementChild;
  if (label !== null) label.textContent = `${before}${name} ${offset}${after}`;
}

/**
 * @param {HTMLElement} container
 * @param {number} logEndOffset
 * @param {readonly HistoryViolation[]} broken
 * @param {(offset: number) => number} at
 * @param {boolean} isBreaking
 */
function showWrong(container, logEndOffset, broken, at, isBreaking) {
  const seen = new Set();
  const concerned = broken.flatMap(({ id, range }) => {
    const key = range?.join();
    if (range === undefined || seen.has(key) || at(range[1]) <= at(range[0])) return [];
    seen.add(key);
    return [{ id, range }];
  });
  const boxes = childrenOf(container, concerned.length, () => element("div", { class: "wrong" }, [element("b")]));
  for (const [index, { id, range }] of concerned.entries()) {
    const box = boxes[index];
    if (box === undefined) continue;
    place(box, at(range[0]), at(range[1]) - at(range[0]));
    setAttributes(box, {
      "data-violation": id,
      "data-from": range[0],
      "data-to": range[1],
      "data-now": isBreaking,
      title: `rule ${id}`,
    });
    const label = box.firstElementChild;
    if (label !== null) label.textContent = logEndOffset <= range[0] ? "not here" : "";
  }
}

function makeClients() {
  const records = element("ul", { class: "acknowledged" });
  const root = element("section", { class: "lane clients", "aria-label": "Clients" }, [
    element("div", { class: "lane-head" }, [
      element("h3", {}, ["Clients"]),
      element("span", { class: "lane-facts" }, ["were told that these records are safe:"]),
      records,
    ]),
  ]);
  return {
    root,
    /** @param {Frame} frame */
    show({ acknowledged, replicas, controller }) {
      const leader = replicas[String(controller?.leader ?? -1)];
      const isLed = leader?.role === "leader";
      const chips = childrenOf(records, acknowledged.length, () => element("li"));
      for (const [at, chip] of chips.entries()) {
        const [, offset = "", value = ""] = /^(\d+):(.*)$/su.exec(acknowledged[at] ?? "") ?? [];
        const isGone = isLed && leader.values[Number(offset)] !== value;
        chip.textContent = `${value} at ${offset}${isGone ? ": not on the leader" : ""}`;
        setAttributes(chip, { "data-gone": isGone, "data-offset": offset, "data-value": value });
      }
      setAttributes(root, { "data-count": acknowledged.length });
    },
  };
}

/**
 * @param {HTMLElement} container
 * @param {Frame} frame
 * @param {RecordedHistory} history
 */
function showMessages(container, frame, history) {
  const chips = childrenOf(container, frame.messages.length, () => element("li"));
  for (const [at, { from, to, kind, type, fate, count }] of frame.messages.entries()) {
    const chip = chips[at];
    if (chip === undefined) continue;
    const what = `${kind}${type === "response" ? " answer" : ""}`;
    const times = count > 1 ? ` ×${count}` : "";
    chip.textContent = `${fate === "lost" ? "✕ " : ""}${shortName(from, history)}→${shortName(to, history)} ${what}${times}`;
    setAttributes(chip, { "data-fate": fate });
  }
  setAttributes(container, { "data-count": frame.messages.length });
}

/**
 * Arrows beside the lanes, from sender to receiver.
 *
 * @param {SVGElement} arrows
 * @param {readonly HistoryMessage[]} messages
 * @param {ReadonlyMap<number, HTMLElement>} laneOf
 * @param {HTMLElement} root
 */
function showArrows(arrows, messages, laneOf, root) {
  arrows.replaceChildren();
  const top = root.getBoundingClientRect().top;
  for (const [index, { from, to, fate }] of messages.slice(0, ARROWS_MAX).entries()) {
    const [start, end] = [laneOf.get(from), laneOf.get(to)];
    if (start === undefined || end === undefined) continue;
    const [y1, y2] = [start, end].map((lane) => {
      const box = lane.getBoundingClientRect();
      return box.top - top + box.height / 2;
    });
    if (y1 === undefined || y2 === undefined) continue;
    // Beside each other, not on one another.
    const shift = (index - messages.length / 2) * 3;
    const bend = 40 - Math.min(34, 10 + Math.abs(y2 - y1) / 12);
    const path = `M 42 ${y1 + shift} C ${bend} ${y1 + shift}, ${bend} ${y2 + shift}, 42 ${y2 + shift}`;
    const tip = `M 36 ${y2 + shift - 4} L 43 ${y2 + shift} L 36 ${y2 + shift + 4}`;
    arrows.append(svgElement("path", { d: path, "data-fate": fate }));
    arrows.append(svgElement("path", { d: tip, "data-fate": fate, class: "tip" }));
  }
}
