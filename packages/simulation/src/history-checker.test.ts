import { SimulatedRandom } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { CORRUPTIONS, validHistory } from "./histories.fixture.ts";
import { checkHistory } from "./history-checker.ts";
import { ANOMALIES, ANOMALIES_WITHOUT_SUBJECT } from "./history.ts";
import type { AnomalyId, History, HistoryEvent } from "./history.ts";

const VALID = 200;
const CORRUPTED = 50;
/** Some histories have no place for a corruption. */
const SEEDS_MAX = 5000;

const IDS = Object.keys(ANOMALIES) as AnomalyId[];

function idsOf(history: History): readonly AnomalyId[] {
  return [...new Set(checkHistory(history).map(({ id }) => id))];
}

test(`${VALID} valid histories pass`, () => {
  for (let seed = 1; seed <= VALID; seed += 1) expect([seed, checkHistory(validHistory(seed))]).toEqual([seed, []]);
});

test("the valid histories have all that can happen to a send in them, and records that a change of leaders took", () => {
  const seen = new Map<string, number>();
  const count = (name: string): void => void seen.set(name, (seen.get(name) ?? 0) + 1);
  for (let seed = 1; seed <= VALID; seed += 1) {
    const { events } = validHistory(seed);
    const final = new Set(
      events.flatMap((event) => (event.type === "polled" ? event.records : [])).map(({ value }) => value),
    );
    for (const event of events) {
      if (event.type !== "sent") continue;
      const send = events.find((other) => other.type === "send" && other.op === event.op);
      const isThere = send?.type === "send" && send.values.every((value) => final.has(value));
      count(`${event.outcome.type}, ${isThere ? "there" : "not there"}`);
      count(event.tries);
      if (send?.type === "send" && event.outcome.type === "ok" && !isThere) count(`lost with acks ${send.acks}`);
    }
  }
  for (const name of ["ok, there", "unknown, there", "unknown, not there", "fail, not there", "lost with acks 1"])
    expect([name, (seen.get(name) ?? 0) > CORRUPTED]).toEqual([name, true]);
  for (const tries of ["once", "idempotent", "repeated"]) expect(seen.get(tries)).toBeGreaterThan(CORRUPTED);
  expect([seen.get("fail, there"), seen.get("lost with acks -1")]).toEqual([undefined, undefined]);
});

test("sends of one producer that are under way together may end in any order, and lie in the order in which they were begun", () => {
  const begun = [1, 2, 3].map((op): HistoryEvent => ({
    type: "send",
    op,
    client: "p",
    acks: -1,
    values: [`value ${op}`],
  }));
  const ended = (op: number, baseOffset: number): HistoryEvent => ({
    type: "sent",
    op,
    tries: "idempotent",
    outcome: { type: "ok", baseOffset },
  });
  const idsAfter = (...ends: HistoryEvent[]): readonly AnomalyId[] =>
    idsOf({ mayReplay: false, events: [...begun, ...ends] });
  expect(idsAfter(ended(3, 2), ended(1, 0), ended(2, 1))).toEqual([]);
  expect(idsAfter(ended(3, 1), ended(1, 0), ended(2, 2))).toEqual(["C9"]);
  expect(idsAfter(ended(2, 0), ended(1, 1), ended(3, 2))).toEqual(["C9"]);
});

describe("a history that is wrong in one way is said to be wrong in that way and no other", () => {
  test.each(IDS)("%s", (id) => {
    const found: string[] = [];
    for (let seed = 1; seed <= SEEDS_MAX && found.length < CORRUPTED; seed += 1) {
      const random = new SimulatedRandom(seed);
      const corrupted = CORRUPTIONS[id](validHistory(seed), (site, bound) => random.below(`corrupt.${site}`, bound));
      if (corrupted !== undefined) found.push(`seed ${seed}: ${idsOf(corrupted).join()}`);
    }
    expect(found).toHaveLength(CORRUPTED);
    expect(found.filter((line) => !line.endsWith(`: ${id}`))).toEqual([]);
  });
});

test("every category of the list is judged, or has a reason why it cannot be", () => {
  const all = [...IDS, ...Object.keys(ANOMALIES_WITHOUT_SUBJECT)];
  expect(new Set(all)).toEqual(new Set(Array.from({ length: 15 }, (_, index) => `C${index + 1}`)));
});

describe("what acks 1 does not promise", () => {
  const history = (events: readonly HistoryEvent[], mayReplay = false): History => ({ mayReplay, events });
  const sent = (op: number, client: string, values: readonly string[], baseOffset: number): readonly HistoryEvent[] => [
    { type: "send", op, client, acks: 1, values },
    { type: "sent", op, tries: "once", outcome: { type: "ok", baseOffset } },
  ];
  const read = (op: number, values: readonly string[]): readonly HistoryEvent[] => [
    { type: "poll", op, client: "final", fromOffset: 0, isAssigned: true },
    { type: "polled", op, records: values.map((value, offset) => ({ offset, value })) },
  ];

  test("a record may be lost, and its place taken by another", () => {
    const events = [
      ...sent(1, "p", ["a"], 0),
      ...sent(2, "p", ["b"], 0),
      { type: "quiet", logStartOffset: 0 } as const,
      ...read(3, ["b"]),
    ];
    expect(idsOf(history(events))).toEqual([]);
  });

  test("what a consumer has read is not lost with it", () => {
    const events = [
      ...sent(1, "p", ["a"], 0),
      ...read(2, ["a"]),
      { type: "quiet", logStartOffset: 0 } as const,
      ...read(3, []),
    ];
    expect(idsOf(history(events))).toEqual(["C1"]);
  });

  test("it does not come back elsewhere, unless the network says things twice", () => {
    const events = [
      ...sent(1, "p", ["a"], 0),
      ...sent(2, "p", ["b"], 0),
      { type: "quiet", logStartOffset: 0 } as const,
      ...read(3, ["b", "a"]),
    ];
    expect(idsOf(history(events))).toEqual(["C3"]);
    expect(idsOf(history(events, true))).toEqual([]);
  });
});

test("while faults last a leader may not know its high watermark yet; at rest it does", () => {
  const before: HistoryEvent[] = [
    { type: "send", op: 1, client: "p", acks: -1, values: ["a", "b"] },
    { type: "sent", op: 1, tries: "once", outcome: { type: "ok", baseOffset: 0 } },
  ];
  const asked: HistoryEvent[] = [
    { type: "askEnd", op: 2, client: "e" },
    { type: "toldEnd", op: 2, logEndOffset: 2, highWatermark: 1 },
  ];
  const idsWith = (...events: HistoryEvent[]): readonly AnomalyId[] =>
    checkHistory({ mayReplay: false, events: [...before, ...events] })
      .map(({ id }) => id)
      .filter((id) => id !== "C10");
  expect(idsWith(...asked)).toEqual([]);
  expect(idsWith({ type: "quiet", logStartOffset: 0 }, ...asked)).toEqual(["C13"]);
});
