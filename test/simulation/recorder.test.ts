import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { RecordedHistory } from "@tidemark/console";
import { renderHistory } from "@tidemark/console";
import { describe, expect, test } from "vitest";
import { EXAMPLES, recordExample } from "./example-histories.ts";
import { recordSeed } from "@tidemark/simulation";
import { parseFailure, RULES } from "@tidemark/simulation";
import { simulate } from "@tidemark/simulation";
import { wordsOfViolation } from "@tidemark/simulation";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PAGES = fileURLToPath(new URL("../../docs/histories/", import.meta.url));

function committedPage(file: string): { readonly page: string; readonly history: RecordedHistory } {
  const page = readFileSync(`${PAGES}${file}`, "utf8");
  const [, json = ""] = /<script type="application\/json" id="history">(.*?)<\/script>/su.exec(page) ?? [];
  return { page, history: JSON.parse(json) as RecordedHistory };
}

/** What a history is about: which rules are broken and where, what is cut, and what the logs are at the end. */
function factsOf({ steps, violations, brokers }: RecordedHistory) {
  const last = brokers.map((brokerId) => {
    const step = steps.findLast(({ replicas }) => replicas?.[brokerId] !== undefined);
    const { values, ranges, highWatermark } = step?.replicas?.[brokerId] ?? {};
    return { brokerId, values, ranges, highWatermark };
  });
  const texts = (kind: string): string[] => steps.filter((step) => step.kind === kind).map(({ text }) => text);
  return {
    broken: violations.map(({ id, text, replicas, range }) => ({ id, text, replicas, range: range?.join() })),
    told: texts("note"),
    cut: texts("truncation"),
    acknowledged: steps.findLast(({ acknowledged }) => acknowledged !== undefined)?.acknowledged,
    last,
  };
}

describe("watching a run changes nothing", () => {
  test.each([8, 31])(
    "seed %i: the order of all events, the counts and the logs are those of a run alone",
    async (seed) => {
      const alone = await simulate(seed);
      const { report, history } = await recordSeed(seed);
      expect(report).toEqual(alone);
      expect(history.steps.length).toBeGreaterThan(100);
    },
  );

  test("the last state of every replica is what the run ended with", async () => {
    const { report, history } = await recordSeed(8);
    const ends = factsOf(history).last.map(({ ranges }) => ranges?.at(-1)?.[1]);
    expect(new Set(ends).size).toBe(1);
    expect(ends.length).toBe(report.logDigests.length);
    expect(ends[0]).toBeGreaterThanOrEqual(report.acknowledged);
  });
});

describe("the pages of docs/histories", () => {
  test.each(EXAMPLES)("$file tells what the engine does today (else: npm run histories)", async (example) => {
    const { page, history } = committedPage(example.file);
    expect(factsOf(await recordExample(example))).toEqual(factsOf(history));
    expect(renderHistory(history)).toBe(page);
    expect(page.length).toBeLessThan(300_000);
  });

  test("are these, and no others", () => {
    const pages = readdirSync(PAGES).filter((name) => name.endsWith(".html"));
    expect(pages.toSorted()).toEqual(EXAMPLES.map(({ file }) => file).toSorted());
  });

  test("high-watermark truncation loses an acknowledged record; with epochs it stays", () => {
    const [loss, cure] = EXAMPLES.slice(0, 2).map(({ file }) => factsOf(committedPage(file).history));
    expect(loss?.broken.map(({ id, replicas, range }) => [id, replicas, range])).toEqual([
      ["S8", [3], "1,2"],
      ["S1", [3], "1,2"],
    ]);
    expect(loss?.acknowledged).toContain("1:m1");
    expect(loss?.last.map(({ values }) => values)).toEqual([1, 2, 3].map(() => ["m0", "m2"]));
    expect(cure?.broken).toEqual([]);
    expect(cure?.cut).toEqual([]);
    expect(cure?.last.map(({ values }) => values)).toEqual([1, 2, 3].map(() => ["m0", "m1", "m2"]));
  });

  test("high-watermark truncation leaves logs that differ; with epochs they agree", () => {
    const [divergence, cure] = EXAMPLES.slice(2).map(({ file }) => factsOf(committedPage(file).history));
    expect(divergence?.broken.map(({ id, replicas, range }) => [id, replicas, range])).toEqual([["S1", [1, 2], "1,2"]]);
    expect(divergence?.last.map(({ values }) => values)).toEqual([
      ["m0", "m1"],
      ["m0", "mY"],
    ]);
    expect(cure?.broken).toEqual([]);
    expect(cure?.cut.length).toBe(1);
    expect(cure?.last.map(({ values, ranges }) => [values, ranges])).toEqual(
      [1, 2].map(() => [
        ["m0", "mY"],
        [
          [0, 1, 0],
          [1, 2, 2],
        ],
      ]),
    );
  });
});

describe("rules in words", () => {
  const sources = ["checker.ts", "simulate.ts", "final-files.ts", "final-log.ts", "liveness.ts"]
    .map((name) => readFileSync(`${HERE}../../packages/simulation/src/${name}`, "utf8"))
    .join("\n");

  test("every rule that can be broken has its meaning, and no other has", () => {
    const thrown = [...sources.matchAll(/(?:new Violation|#within)\(\s*"([SL]\d+)"/gu)].map(([, id = ""]) => id);
    expect([...RULES.keys()].toSorted()).toEqual([...new Set(thrown)].toSorted());
  });

  test("a failure is taken apart: a rule's, and one that is none", () => {
    expect(parseFailure("S7: broker 3 cut to 5, below its high watermark 7")).toMatchObject({
      id: "S7",
      what: "broker 3 cut to 5, below its high watermark 7",
      rule: RULES.get("S7"),
    });
    expect(parseFailure("Error: never: the replicas agree\n    at …")).toMatchObject({
      id: "liveness",
      what: "Error: never: the replicas agree",
    });
  });

  test("messages become sentences", () => {
    expect(wordsOfViolation("broker 3 cut to 5, below its high watermark 7")).toBe(
      "Broker 3 cut its log back to 5, though it knew that everything below 7 is committed.",
    );
    expect(wordsOfViolation("broker 2 holds 5@1 behind epoch 3")).toBe(
      "Broker 2 holds offset 5 of epoch 1 behind epoch 3.",
    );
  });
});
