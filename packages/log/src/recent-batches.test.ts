import { expect, test } from "vitest";
import { RecentBatches } from "./recent-batches.ts";

test("finds the first batch that reaches an offset, among the last 64; what may lie before them it does not know", () => {
  const recent = new RecentBatches();
  expect(recent.find(0)).toBeUndefined();
  const all: { lastOffset: number; positionBytes: number }[] = [];
  let offset = 100;
  for (let at = 0; at < 200; at += 1) {
    offset += 1 + (at % 3) * 2; // Of one, three and five records; every seventh behind a hole.
    if (at % 7 === 0) offset += 4;
    const batch = { lastOffset: offset, positionBytes: at * 1000 };
    recent.note(batch.lastOffset, batch.positionBytes);
    all.push(batch);
    const known = all.slice(-64);
    for (let sought = 90; sought <= offset + 3; sought += 1) {
      const first = known.findIndex(({ lastOffset }) => lastOffset >= sought);
      expect(recent.find(sought)).toBe(first > 0 ? known[first]?.positionBytes : undefined);
    }
  }
  recent.clear();
  expect(recent.find(offset)).toBeUndefined();
  recent.note(5, 77);
  recent.note(6, 88);
  expect([recent.find(5), recent.find(6), recent.find(7)]).toEqual([undefined, 88, undefined]);
});
