import { describe, expect, test } from "vitest";
import { historyOf } from "./history.fixture.ts";
import { COARSE_STEPS_MAX, DETAILED_STEPS_MAX, shortenHistory } from "./shorten-history.ts";

const VIOLATION = { id: "S1", rule: "r", meaning: "m", text: "t", replicas: [1], range: undefined } as const;

describe("a long history is shortened", () => {
  test("one within the bounds stays as it is", () => {
    const history = historyOf(DETAILED_STEPS_MAX + COARSE_STEPS_MAX);
    expect(shortenHistory(history)).toBe(history);
  });

  test("the steps before the end stay one by one, of the others so many as the bound says, the weighty ones first", () => {
    const history = historyOf(5000);
    const { steps, omitted } = shortenHistory(history);
    expect(steps.length).toBe(DETAILED_STEPS_MAX + 1 + COARSE_STEPS_MAX);
    expect(steps.slice(-DETAILED_STEPS_MAX - 1)).toEqual(history.steps.slice(-DETAILED_STEPS_MAX - 1));
    const faults = steps.filter(({ kind }) => kind === "fault").map(({ text }) => text);
    expect(faults).toEqual(Array.from({ length: 50 }, (_, at) => `step ${at * 100 + 50}`));
    expect(omitted).toContain("4249 of 5000 steps are left out");
  });

  test("a violation keeps its step, what is before it and what comes of it", () => {
    const violations = [
      { ...VIOLATION, step: 2000 },
      { ...VIOLATION, id: "S4", step: 4000 },
    ];
    const { steps, violations: moved } = shortenHistory(historyOf(5000, { violations }));
    expect(moved.map(({ id, step }) => [id, steps[step]?.text])).toEqual([
      ["S1", "step 2000"],
      ["S4", "step 4000"],
    ]);
    const first = moved[0]?.step ?? 0;
    expect(steps.slice(first - DETAILED_STEPS_MAX, first).map(({ text }) => text)).toEqual(
      Array.from({ length: DETAILED_STEPS_MAX }, (_, at) => `step ${1500 + at}`),
    );
    expect(steps.at(-1)?.text).toBe("step 4999");
  });

  test("what a step that goes had changed is in the next one that stays", () => {
    const history = historyOf(2000);
    const changed = history.steps.map((step, at) =>
      at === 701 ? { ...step, cuts: ["1>2"], acknowledged: ["0:a"], replicas: { 2: step.replicas?.[1] } } : step,
    ) as typeof history.steps;
    const { steps } = shortenHistory({ ...history, steps: changed });
    const next = steps.find(({ timeUs }) => timeUs >= 701_000);
    expect(next?.timeUs).toBeGreaterThan(701_000);
    expect(next).toMatchObject({ cuts: ["1>2"], acknowledged: ["0:a"] });
    expect(next?.replicas?.[2]?.logEndOffset).toBe(701);
    expect(`${next?.replicas?.[1]?.logEndOffset}`).toBe(next?.text.slice("step ".length));
  });
});
