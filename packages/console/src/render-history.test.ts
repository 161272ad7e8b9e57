import { Script } from "node:vm";
import { describe, expect, test } from "vitest";
import { historyIn, historyOf } from "./history.fixture.ts";
import { renderHistory } from "./render-history.ts";
import { COARSE_STEPS_MAX, DETAILED_STEPS_MAX } from "./shorten-history.ts";

describe("the page of a history", () => {
  test("holds the history as it is, whatever its texts are", () => {
    const hostile = "</script><script>alert(1)</script><!--<script>\u2028\u0000\"'&";
    const steps = [{ timeUs: 0, kind: "note", text: hostile, replicas: {} }] as const;
    const history = historyOf(0, { title: hostile, summary: hostile, command: hostile, steps });
    const page = renderHistory(history);
    expect(historyIn(page)).toEqual(history);
    expect(page.match(/<script/gu)?.length).toBe(2);
    expect(page.match(/<\/script/gu)?.length).toBe(2);
  });

  test("names no other place: no address, no import, no source", () => {
    const page = renderHistory(historyOf(3));
    expect(page.replaceAll("http://www.w3.org/2000/svg", "")).not.toMatch(/https?:|\bsrc=|@import|url\(|\bfetch\(/u);
  });

  test("its script is one that an engine can compile, without imports and exports", () => {
    const [, script = ""] = /<script type="module">(.*)<\/script>/su.exec(renderHistory(historyOf(1))) ?? [];
    expect(() => new Script(script)).not.toThrow();
    expect(script).not.toMatch(/^(import|export) /mu);
  });

  test("a long history makes a page of bounded size, and the page says so", () => {
    const { steps, omitted } = historyIn(renderHistory(historyOf(20_000)));
    expect(steps.length).toBe(DETAILED_STEPS_MAX + 1 + COARSE_STEPS_MAX);
    expect(omitted).not.toBe("");
  });
});
