import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { HistoryStep, RecordedHistory, ReplicaView } from "@tidemark/console";
import { renderHistory } from "@tidemark/console";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { recordMutant } from "../simulation/write-seed-page.ts";
import { laneOf, PageOpener, stepOf } from "./page.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PAGES = fileURLToPath(new URL("../../docs/histories/", import.meta.url));
/** Seeds that a planted bug gets to be noticed in. */
const SEEDS_MAX = 60;

let opener: PageOpener;

beforeAll(async () => {
  opener = await PageOpener.start();
});

afterAll(() => opener.stop());

function example(name: string): string {
  return readFileSync(`${PAGES}${name}.html`, "utf8");
}

/** Opens a page at its end. */
async function openAtEnd(name: string): Promise<Page> {
  const { page } = await opener.open(example(name));
  await page.keyboard.press("End");
  return page;
}

function view(change: Partial<ReplicaView>): ReplicaView {
  return {
    process: "up",
    role: "leader",
    leader: 1,
    leaderEpoch: 0,
    logStartOffset: 0,
    highWatermark: 0,
    flushedEndOffset: 0,
    logEndOffset: 0,
    isr: [1],
    ranges: [],
    values: [],
    ...change,
  };
}

function historyWith(steps: readonly HistoryStep[], change: Partial<RecordedHistory> = {}): RecordedHistory {
  return {
    title: "t",
    summary: "s",
    seed: 1,
    command: "c",
    facts: [],
    brokers: [1],
    controllerId: 100,
    clientId: 0,
    steps,
    violations: [],
    omitted: "",
    ...change,
  };
}

describe("a stranger opens an example", () => {
  test.each([
    ["loss-by-high-watermark", "Rule S8 was broken: a replica cuts only what its leader lacks"],
    ["loss-cured-by-epochs", "No rule was broken"],
    ["divergence-by-high-watermark", "Rule S1 was broken: a committed record stays"],
    ["divergence-cured-by-epochs", "No rule was broken"],
  ])("%s: the verdict is there, nothing on the console, no request to anywhere", async (name, verdict) => {
    const { page, disturbances } = await opener.open(example(name));
    expect(await page.locator(".verdict h2").textContent()).toContain(verdict);
    await page.keyboard.press("Home");
    for (let step = 0; step < 60; step += 1) await page.keyboard.press("ArrowRight");
    await page.keyboard.press("End");
    expect(disturbances).toEqual([]);
  });

  test("the loss: what was cut where, that it was lost by it, and the logs that are left", async () => {
    const { page } = await opener.open(example("loss-by-high-watermark"));
    const banner = await page.locator(".verdict").textContent();
    expect(banner).toContain(
      "Broker 3 cut m1 (epoch 0) at offset 1 from its log, though its leader, broker 2, has it too.",
    );
    expect(banner).toContain("Where. Offset 1 on broker 3");
    expect(await page.locator(".aftermath").textContent()).toContain(
      "which was committed and acknowledged: it is lost.",
    );
    // It opens at the moment itself, with the place outlined.
    expect(await page.locator("#caption").getAttribute("data-kind")).toBe("violation");
    expect((await laneOf(page, 3)).wrong).toEqual(["S8 1 2"]);
    expect((await laneOf(page, 2)).wrong).toEqual([]);
    expect(await page.locator(`.acknowledged [data-value="m1"]`).getAttribute("data-gone")).toBeNull();
    await page.keyboard.press("End");
    for (const brokerId of [1, 2, 3])
      expect(await laneOf(page, brokerId)).toMatchObject({
        values: "m0 m2",
        bars: ["0 0 1", "2 1 2"],
        hw: "2",
        leo: "2",
      });
    expect(await page.locator(`.acknowledged [data-value="m1"]`).textContent()).toBe("m1 at 1: not on the leader");
  });

  test("its cure: nothing is cut, and the record is on all replicas", async () => {
    const page = await openAtEnd("loss-cured-by-epochs");
    for (const brokerId of [1, 2, 3])
      expect(await laneOf(page, brokerId)).toMatchObject({ values: "m0 m1 m2", bars: ["0 0 2", "2 2 3"], wrong: [] });
    expect(await page.locator(".acknowledged [data-gone]").count()).toBe(0);
    expect(await page.locator(`.mark[data-kind="truncation"]`).count()).toBe(0);
  });

  test("the divergence: the same offset holds two records of two epochs, both outlined", async () => {
    const page = await openAtEnd("divergence-by-high-watermark");
    expect(await laneOf(page, 1)).toMatchObject({ values: "m0 m1", bars: ["0 0 2"], wrong: ["S1 1 2"] });
    expect(await laneOf(page, 2)).toMatchObject({ values: "m0 mY", bars: ["0 0 1", "2 1 2"], wrong: ["S1 1 2"] });
  });

  test("its cure: exactly the record that the leader lacks is cut", async () => {
    const page = await openAtEnd("divergence-cured-by-epochs");
    for (const brokerId of [1, 2])
      expect(await laneOf(page, brokerId)).toMatchObject({ values: "m0 mY", bars: ["0 0 1", "2 1 2"], wrong: [] });
    expect(await page.locator(`.timeline .strip .mark[data-kind="truncation"]`).count()).toBe(1);
  });

  test("its buttons bring the picture in sight, at the moment itself and playing up to it", async () => {
    const { page } = await opener.open(example("loss-by-high-watermark"), "#t=0", {
      viewport: { width: 1280, height: 800 },
    });
    const isLaneInSight = () =>
      page.locator(`.lane[data-broker="3"]`).evaluate((lane) => lane.getBoundingClientRect().bottom <= innerHeight);
    expect(await isLaneInSight()).toBe(false);
    await page.locator(".verdict button", { hasText: "Show that moment" }).click();
    expect([await isLaneInSight(), await stepOf(page)]).toEqual([true, 34]);
    await page.locator(".aftermath button").click();
    expect(await stepOf(page)).toBe(41);
    await page.locator(".verdict button", { hasText: "10 steps before" }).click();
    expect(await page.locator(".controls").getAttribute("data-playing")).toBe("");
    expect(await stepOf(page)).toBeLessThan(34);
  });

  test("the words that one needs are explained before the picture", async () => {
    const { page } = await opener.open(example("loss-by-high-watermark"));
    const terms = await page.locator(".terms").textContent();
    for (const term of ["Log end offset (LEO)", "High watermark (HW)", "In-sync replicas (ISR)", "Leader epoch"])
      expect(terms).toContain(term);
  });
});

test("the compiled package makes a page that works as well", async () => {
  const compiler = `${ROOT}node_modules/typescript/bin/tsc`;
  execFileSync(process.execPath, [compiler, "-b", "packages/console/tsconfig.page.json"], { cwd: ROOT });
  const compiled: unknown = await import(`${ROOT}packages/console/dist/index.js`);
  const step = { timeUs: 0, kind: "note", text: "compiled", replicas: { 1: view({}) } } as const;
  const html = (compiled as { renderHistory: typeof renderHistory }).renderHistory(historyWith([step]));
  const { page, disturbances } = await opener.open(html);
  expect(await page.locator("#caption").textContent()).toBe("compiled");
  expect(disturbances).toEqual([]);
});

test("the page of a failing seed names the rule, the records and the replica", async () => {
  for (let seed = 1; seed <= SEEDS_MAX; seed += 1) {
    const { report, history } = await recordMutant(seed, "M10");
    if (report.failure === undefined) continue;
    const [, id, message] = /^(S\d+): (.*)/u.exec(report.failure) ?? [];
    const { page, disturbances } = await opener.open(renderHistory(history));
    const [, brokerId = ""] = /broker (\d+)/u.exec(message ?? "") ?? [];
    expect(await page.locator(".verdict").getAttribute("data-violation")).toBe(id);
    expect(await page.locator(".verdict h2").textContent()).toContain(`Rule ${id} was broken`);
    expect(await page.locator(".verdict .where").textContent()).toMatch(
      new RegExp(`Offsets? \\d+.* on brokers? ${brokerId}`, "u"),
    );
    const { wrong } = await laneOf(page, Number(brokerId));
    expect(wrong).toEqual([expect.stringMatching(new RegExp(`^${id} \\d+ \\d+$`, "u"))]);
    expect(await page.locator(".events [aria-current]").getAttribute("data-kind")).toBe("violation");
    expect(disturbances).toEqual([]);
    return;
  }
  throw new Error("the planted bug was not noticed");
});

describe("moving through a history", () => {
  test("by keys: a step, a turning point, start, end", async () => {
    const { page } = await opener.open(example("loss-by-high-watermark"), "#t=10");
    expect(await stepOf(page)).toBe(10);
    await page.keyboard.press("ArrowRight");
    expect(await stepOf(page)).toBe(11);
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    expect(await stepOf(page)).toBe(9);
    await page.keyboard.press("Shift+ArrowLeft");
    expect([await stepOf(page), await page.locator("#caption").getAttribute("data-kind")]).toEqual([8, "decision"]);
    await page.keyboard.press("Shift+ArrowRight");
    expect([await stepOf(page), await page.locator("#caption").getAttribute("data-kind")]).toEqual([13, "note"]);
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowLeft");
    expect(await stepOf(page)).toBe(0);
    await page.keyboard.press("End");
    const last = await stepOf(page);
    await page.keyboard.press("ArrowRight");
    expect(await stepOf(page)).toBe(last);
    expect(last).toBeGreaterThan(50);
  });

  test("by time: space plays and pauses, from the end on it begins anew, and it stops at the end", async () => {
    const { page } = await opener.open(example("loss-by-high-watermark"), "#t=3");
    const speed = page.locator("#speed");
    for (let press = 0; press < 9; press += 1) await page.keyboard.press("+");
    expect(await speed.inputValue()).toBe("64");
    await page.keyboard.press("-");
    expect(await speed.inputValue()).toBe("32");
    await page.keyboard.press("Space");
    await page.waitForFunction(() => Number(document.querySelector<HTMLElement>("#caption")?.dataset["step"]) >= 6);
    await page.keyboard.press("Space");
    expect(await page.locator(".controls").getAttribute("data-playing")).toBeNull();
    const paused = await stepOf(page);
    await page.locator("#toggle").click();
    await page.waitForFunction(() => document.querySelector(".controls[data-playing]") === null);
    const last = Number(await page.locator("#scrubber").getAttribute("max"));
    expect([await stepOf(page), paused < last]).toEqual([last, true]);
    await page.keyboard.press("Space");
    await page.waitForFunction(
      (end) => Number(document.querySelector<HTMLElement>("#caption")?.dataset["step"]) < end,
      last,
    );
  });

  test("by the scrubber, with its words for those who cannot see it", async () => {
    const { page } = await opener.open(example("loss-by-high-watermark"), "#t=0");
    const scrubber = page.locator("#scrubber");
    await scrubber.fill("31");
    expect(await stepOf(page)).toBe(31);
    expect(await scrubber.getAttribute("aria-valuetext")).toContain("Broker 1 is killed");
    expect((await laneOf(page, 1)).process).toBe("down");
    await scrubber.focus();
    await page.keyboard.press("ArrowRight");
    expect(await stepOf(page)).toBe(32);
  });

  test("by the list, which follows and keeps the present step in sight", async () => {
    const { page } = await opener.open(example("loss-by-high-watermark"), "#t=0");
    await page.locator(`.events [data-step="40"]`).click();
    expect(await stepOf(page)).toBe(40);
    await page.keyboard.press("End");
    const current = page.locator(".events [aria-current]");
    expect(await current.getAttribute("data-step")).toBe(String(await stepOf(page)));
    const isInSight = await current.evaluate((item) => {
      const [box, list] = [item.getBoundingClientRect(), item.closest(".events")?.getBoundingClientRect()];
      return list !== undefined && box.top >= list.top - 1 && box.bottom <= list.bottom + 1;
    });
    expect(isInSight).toBe(true);
    await page.locator("#shown").selectOption("turning");
    expect(await page.locator(`.events li:not([hidden]) [data-kind="append"]`).count()).toBe(0);
    expect(await page.locator(`.events li:not([hidden]) [data-kind="fault"]`).count()).toBeGreaterThan(5);
  });

  test("by the address: it says the step, and a link to a step opens there", async () => {
    const { page } = await opener.open(example("divergence-cured-by-epochs"), "#t=20");
    expect(await stepOf(page)).toBe(20);
    await page.keyboard.press("ArrowRight");
    expect(new URL(page.url()).hash).toBe("#t=21");
    await page.evaluate(() => {
      location.hash = "#t=5";
    });
    await page.waitForFunction(() => document.querySelector<HTMLElement>("#caption")?.dataset["step"] === "5");
    const { page: beyond } = await opener.open(example("divergence-cured-by-epochs"), "#t=99999");
    expect(await stepOf(beyond)).toBe(Number(await beyond.locator("#scrubber").getAttribute("max")));
  });

  test("a button that has the focus keeps the space bar for itself", async () => {
    const { page } = await opener.open(example("loss-by-high-watermark"), "#t=20");
    await page.locator(".verdict button", { hasText: "Show that moment" }).focus();
    await page.keyboard.press("Space");
    expect(await page.locator("#caption").getAttribute("data-kind")).toBe("violation");
    expect(await page.locator(".controls").getAttribute("data-playing")).toBeNull();
  });
});

describe("what is in a history is shown, never carried out", () => {
  const HOSTILE = '</script><script>alert(1)</script><img src="x" onerror="alert(2)"><!--<script>\u2028';

  test("in its texts, records, names of messages and rules", async () => {
    const violation = { step: 1, id: HOSTILE, rule: HOSTILE, meaning: HOSTILE, text: HOSTILE, replicas: [1] } as const;
    const steps: HistoryStep[] = [
      { timeUs: 0, kind: "note", text: HOSTILE, replicas: { 1: view({}) } },
      {
        timeUs: 1,
        kind: "violation",
        text: HOSTILE,
        replicas: { 1: view({ logEndOffset: 1, values: [HOSTILE], ranges: [[0, 1, 0]] }) },
        messages: [{ from: 0, to: 1, kind: HOSTILE, type: "request", fate: "delivered", count: 1 }],
        acknowledged: [`0:${HOSTILE}`],
        cuts: [`0>1/${HOSTILE}`],
      },
    ];
    const history = historyWith(steps, {
      title: HOSTILE,
      summary: HOSTILE,
      command: HOSTILE,
      facts: [[HOSTILE, HOSTILE]],
      omitted: HOSTILE,
      violations: [{ ...violation, range: [0, 1] }],
    });
    const { page, disturbances } = await opener.open(renderHistory(history));
    expect(await page.locator("h1").textContent()).toBe(HOSTILE);
    expect(await page.locator("#caption").textContent()).toBe(HOSTILE);
    expect(await page.locator("#page img, #page script").count()).toBe(0);
    expect(disturbances).toEqual([]);
  });

  test("its policy lets no script run but the page's own, even one that got in", async () => {
    const html = renderHistory(historyWith([{ timeUs: 0, kind: "note", text: "t", replicas: { 1: view({}) } }]));
    const { disturbances } = await opener.open(html.replace("<div id=", "<script>alert(1)</script><div id="));
    expect(disturbances.filter((line) => line.startsWith("dialog"))).toEqual([]);
    expect(disturbances.some((line) => line.includes("Content Security Policy"))).toBe(true);
  });
});

describe("on every screen", () => {
  test.each([
    [1280, "light"],
    [400, "light"],
    [1280, "dark"],
    [400, "dark"],
  ] as const)(
    "%i pixels wide, %s: nothing sticks out, and text stands out from its ground",
    async (width, colorScheme) => {
      const options = { viewport: { width, height: 850 }, colorScheme };
      const { page } = await opener.open(example("loss-by-high-watermark"), "", options);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const ink = await page.evaluate(() => getComputedStyle(document.body).color);
      const brightness = (color: string): number => Number(/\d+/u.exec(color)?.[0]);
      expect(brightness(ink) < brightness(ground)).toBe(colorScheme === "light");
      for (const brokerId of [1, 2, 3])
        expect(await page.locator(`.lane[data-broker="${brokerId}"]`).isVisible()).toBe(true);
    },
  );

  test("who wants little motion gets none", async () => {
    const motionOf = async (reducedMotion: "reduce" | "no-preference") => {
      const { page } = await opener.open(example("loss-by-high-watermark"), "", { reducedMotion });
      return page.evaluate(() =>
        [".wrong[data-now]", ".flag"].map((selector) => {
          const { animationName, transitionDuration } = getComputedStyle(document.querySelector(selector) as Element);
          return `${animationName} ${transitionDuration}`;
        }),
      );
    };
    expect(await motionOf("reduce")).toEqual(["none 0s", "none 0s"]);
    expect(await motionOf("no-preference")).toEqual(["pulse 0s", "none 0.16s, 0.16s"]);
  });

  test("the focus can be seen", async () => {
    const { page } = await opener.open(example("loss-by-high-watermark"));
    await page.keyboard.press("Tab");
    const style = await page.evaluate(() => getComputedStyle(document.activeElement as Element).outlineStyle);
    expect(style).toBe("solid");
  });

  test("a long log is drawn where things happen, its ends named where they lie outside", async () => {
    const long = view({
      logEndOffset: 5000,
      highWatermark: 4990,
      ranges: [
        [0, 3000, 0],
        [3000, 5000, 1],
      ],
    });
    const behind = view({
      ...long,
      role: "follower",
      logEndOffset: 4980,
      highWatermark: 4980,
      ranges: [
        [0, 3000, 0],
        [3000, 4980, 1],
      ],
    });
    const steps: HistoryStep[] = [
      { timeUs: 0, kind: "append", text: "far", replicas: { 1: long, 2: behind } },
      { timeUs: 1, kind: "violation", text: "here" },
    ];
    const violation = {
      id: "S1",
      rule: "r",
      meaning: "m",
      text: "t",
      replicas: [2],
      range: [100, 103],
      step: 1,
    } as const;
    const history = historyWith(steps, { brokers: [1, 2], violations: [violation] });
    const { page } = await opener.open(renderHistory(history), "#t=0");
    expect((await laneOf(page, 1)).bars).toEqual(["1 3000 5000"]);
    expect(await page.locator(`[data-broker="1"] .flag b`).allTextContents()).toEqual(["LEO 5000", "HW 4990"]);
    await page.keyboard.press("ArrowRight");
    expect((await laneOf(page, 1)).bars).toEqual(["0 0 3000"]);
    expect((await laneOf(page, 2)).wrong).toEqual(["S1 100 103"]);
    expect(await page.locator(`[data-broker="1"] .flag b`).allTextContents()).toEqual(["LEO 5000 ›", "HW 4990 ›"]);
  });
});
