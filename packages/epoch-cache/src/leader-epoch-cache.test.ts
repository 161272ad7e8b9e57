import { InvariantError, toLeaderEpoch, toOffset } from "@tidemark/base";
import type { LeaderEpoch, Offset } from "@tidemark/base";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { EpochEntry } from "./epoch-entry.ts";
import { LeaderEpochCache } from "./leader-epoch-cache.ts";

// Ids EC-… are the conformance table's: what Apache Kafka 4.3.1's LeaderEpochFileCache answers. EC-02, EC-03 and EC-35
// to EC-40 are about the file and stand in leader-epoch-file-cache.test.ts.

describe("field cases", () => {
  test("BR-028 entries rise in both columns, and a question below, between, at the last or above is answered by its rule", () => {
    const conflicting = cacheOf("1@0 4@15");
    assign(conflicting, 3, 20);
    expect(show(conflicting)).toBe("1@0 3@20");
    expect(end(cacheOf("5@10"), 4, 30)).toEqual([4, 10]);
    expect([3, 5, 9].map((epoch) => end(cacheOf("2@0 5@10"), epoch, 30))).toEqual([
      [2, 10],
      [5, 30],
      [-1, -1],
    ]);
    const raised = cacheOf("2@6 3@8 4@11");
    raised.truncateFromStart(9);
    expect(show(raised)).toBe("3@9 4@11");
    const moved = cacheOf("2@0");
    for (const offset of [10, 10, 8]) assign(moved, 5, offset);
    expect(show(moved)).toBe("2@0 5@8");
  });

  test("BR-030 the answer names the epoch that it speaks of: the largest that the leader knows", () => {
    expect(end(cacheOf("1@0 3@20"), 2, 30)).toEqual([1, 20]);
    expect(end(cacheOf("1@0 4@10"), 3, 20)).toEqual([1, 10]);
  });
});

describe("assign", () => {
  test("EC-04 the latest epoch at a lower offset moves down", () => {
    const cache = cacheOf("3@40");
    expect(assign(cache, 3, 38)).toBe(true);
    expect(show(cache)).toBe("3@38");
  });

  // Kafka also says whether it logs a warning (EC-05 none, EC-07 one). A library prints nothing: whoever wants to know
  // what an assign dropped compares the snapshots before and after.
  test("EC-05 a new epoch at the same offset replaces the epoch that wrote nothing", () => {
    const cache = cacheOf("3@40");
    expect(assign(cache, 5, 40)).toBe(true);
    expect(show(cache)).toBe("5@40");
  });

  test("EC-06 a new epoch replaces only the latest of several when it begins where that one does", () => {
    const cache = cacheOf("3@40 5@52");
    assign(cache, 6, 52);
    expect(show(cache)).toBe("3@40 6@52");
  });

  test("EC-07 a lower epoch at a higher offset drops the higher epoch", () => {
    const cache = cacheOf("3@40 5@52");
    const before = cache.entries;
    expect(assign(cache, 4, 60)).toBe(true);
    expect(show(cache)).toBe("3@40 4@60");
    expect(showEntries(before)).toBe("3@40 5@52");
  });

  test("EC-08 a higher epoch at a lower offset drops every epoch that begins at or above it", () => {
    const cache = cacheOf("3@40 5@52 7@70");
    assign(cache, 8, 50);
    expect(show(cache)).toBe("3@40 8@50");
  });

  test("EC-09 an epoch below all others drops them all", () => {
    const cache = cacheOf("3@40 5@52");
    assign(cache, 2, 60);
    expect(show(cache)).toBe("2@60");
  });

  test("EC-10 a new epoch before the only entry replaces it", () => {
    const cache = cacheOf("3@40");
    assign(cache, 4, 39);
    expect(show(cache)).toBe("4@39");
  });

  test("EC-11 the latest epoch moved down onto its predecessor's start drops the predecessor", () => {
    const cache = cacheOf("5@11 6@12 7@13");
    assign(cache, 7, 12);
    expect(show(cache)).toBe("5@11 7@12");
    expect(end(cache, 5, 20)).toEqual([5, 12]);
    expect(end(cache, 6, 20)).toEqual([5, 12]);
  });

  // Kafka throws IllegalArgumentException; here the types refuse it, and a caller that gets around them is a bug.
  test("EC-12 a negative epoch or offset is refused and nothing changes", () => {
    for (const entries of ["", "3@40 5@52"]) {
      const cache = cacheOf(entries);
      expect(() => cache.assign(-1 as LeaderEpoch, toOffset(4))).toThrow(InvariantError);
      expect(() => cache.assign(toLeaderEpoch(2), -1 as Offset)).toThrow(InvariantError);
      expect(show(cache)).toBe(entries);
    }
  });

  test("the latest epoch at its own or a higher offset is no news", () => {
    const cache = cacheOf("3@40 5@52");
    const before = cache.entries;
    expect(assign(cache, 5, 52)).toBe(false);
    expect(assign(cache, 5, 90)).toBe(false);
    expect(cache.entries).toBe(before);
  });

  test("an earlier epoch is not ignored at its own offset: it drops what came after", () => {
    const cache = cacheOf("3@40 5@52");
    expect(assign(cache, 3, 40)).toBe(true);
    expect(show(cache)).toBe("3@40");
  });

  test("a snapshot of the entries cannot be written to", () => {
    const cache = cacheOf("3@40");
    const writable = cache.entries as EpochEntry[];
    expect(() => writable.push({ epoch: toLeaderEpoch(4), startOffset: toOffset(50) })).toThrow(TypeError);
    expect(() => Object.assign(writable[0] ?? {}, { epoch: 9 })).toThrow(TypeError);
    expect(show(cache)).toBe("3@40");
  });
});

describe("endOffsetFor", () => {
  test("EC-01 an empty cache knows no epoch", () => {
    const cache = cacheOf("");
    expect(cache.latest).toBeUndefined();
    expect(cache.previousEpoch(7)).toBeUndefined();
    expect(end(cache, 7, 0)).toEqual([-1, -1]);
    expect(end(cache, -1, 73)).toEqual([-1, -1]);
  });

  test("EC-13 the latest epoch ends at the log end offset", () => {
    expect(end(cacheOf("3@40 5@52"), 5, 66)).toEqual([5, 66]);
  });

  test("EC-14 an earlier epoch ends where the next begins", () => {
    expect(end(cacheOf("3@40 5@52"), 3, 66)).toEqual([3, 52]);
  });

  test("EC-15 an unknown epoch between two is answered by the one below", () => {
    expect(end(cacheOf("3@40 5@52"), 4, 66)).toEqual([3, 52]);
  });

  test("EC-16 an epoch below the earliest is echoed with the earliest start", () => {
    expect(end(cacheOf("3@40 5@52"), 1, 66)).toEqual([1, 40]);
    expect(end(cacheOf("3@40 5@52"), -5, 66)).toEqual([-5, 40]); // Only -1 means undefined.
  });

  test("EC-17 an epoch above the latest is undefined", () => {
    expect(end(cacheOf("3@40 5@52"), 6, 66)).toEqual([-1, -1]);
  });

  test("EC-18 the undefined epoch is undefined", () => {
    expect(end(cacheOf("3@40 5@52"), -1, 66)).toEqual([-1, -1]);
  });

  test("EC-19 every epoch around [2@0 4@17 9@30] with log end offset 44", () => {
    const cache = cacheOf("2@0 4@17 9@30");
    const answers = [0, 1, 2, 3, 4, 5, 8, 9, 10].map((epoch) => end(cache, epoch, 44).join(","));
    expect(answers).toEqual(["0,0", "1,0", "2,17", "2,17", "4,30", "4,30", "4,30", "9,44", "-1,-1"]);
  });

  test("EC-20 a latest epoch without records ends at the log end offset", () => {
    const cache = cacheOf("2@0 9@30");
    expect(end(cache, 9, 30)).toEqual([9, 30]);
    expect(end(cache, 2, 30)).toEqual([2, 30]);
  });

  test("EC-21 a leader of an empty log replaces the epoch before it", () => {
    const cache = cacheOf("0@0");
    assign(cache, 1, 0);
    expect(show(cache)).toBe("1@0");
    expect(end(cache, 1, 0)).toEqual([1, 0]);
    expect(end(cache, 0, 0)).toEqual([0, 0]);
  });

  test("EC-22 a follower that gets epochs 0,0,0,1,1,1,2,2,2 at offsets 0..8 enters the first offset of each", () => {
    const cache = cacheOf("");
    [0, 0, 0, 1, 1, 1, 2, 2, 2].forEach((epoch, offset) => assign(cache, epoch, offset));
    expect(show(cache)).toBe("0@0 1@3 2@6");
    expect([0, 1, 2].map((epoch) => end(cache, epoch, 9))).toEqual([
      [0, 3],
      [1, 6],
      [2, 9],
    ]);
  });
});

describe("truncateFromEnd", () => {
  test("EC-23 an epoch that begins at the new end goes, with those above it", () => {
    const cache = cacheOf("3@40 5@52 8@61");
    expect(cache.truncateFromEnd(52)).toBe(true);
    expect(show(cache)).toBe("3@40");
  });

  test("EC-24 an epoch that the new end lies inside of stays", () => {
    const cache = cacheOf("3@40 5@52 8@61");
    cache.truncateFromEnd(55);
    expect(show(cache)).toBe("3@40 5@52");
  });

  test("EC-25 the last start is the border between a change and none", () => {
    const atStart = cacheOf("3@40 5@52 8@61");
    expect(atStart.truncateFromEnd(61)).toBe(true);
    expect(show(atStart)).toBe("3@40 5@52");
    const above = cacheOf("3@40 5@52 8@61");
    expect(above.truncateFromEnd(62)).toBe(false);
    expect(show(above)).toBe("3@40 5@52 8@61");
  });

  test("EC-26 the first start and zero empty the cache, a negative offset changes nothing", () => {
    for (const [offset, left] of [
      [40, ""],
      [0, ""],
      [-1, "3@40 5@52 8@61"],
    ] as const) {
      const cache = cacheOf("3@40 5@52 8@61");
      expect(cache.truncateFromEnd(offset)).toBe(left === "");
      expect(show(cache)).toBe(left);
    }
  });
});

describe("truncateFromStart", () => {
  test("EC-27 an epoch that begins at the new start stays as it is", () => {
    const cache = cacheOf("3@40 5@52 8@61");
    expect(cache.truncateFromStart(52)).toBe(true);
    expect(show(cache)).toBe("5@52 8@61");
  });

  test("EC-28 the epoch that covers the new start begins there", () => {
    const cache = cacheOf("3@40 5@52 8@61");
    cache.truncateFromStart(57);
    expect(show(cache)).toBe("5@57 8@61");
  });

  // At exactly the first start Kafka counts the rewritten entry as a change and schedules a flush; the content is the
  // same, so here it is none.
  test("EC-29 nothing changes before or at the first start, or for a negative offset", () => {
    for (const offset of [10, 40, -1]) {
      const cache = cacheOf("3@40 5@52 8@61");
      expect(cache.truncateFromStart(offset)).toBe(false);
      expect(show(cache)).toBe("3@40 5@52 8@61");
    }
  });

  test("EC-30 past everything the latest epoch stays, moved up", () => {
    const atLast = cacheOf("3@40 5@52 8@61");
    atLast.truncateFromStart(61);
    expect(show(atLast)).toBe("8@61");
    const past = cacheOf("3@40 5@52 8@61");
    past.truncateFromStart(90);
    expect(show(past)).toBe("8@90");
  });

  test("EC-31 an empty cache has nothing to truncate", () => {
    const cache = cacheOf("");
    expect(cache.truncateFromStart(7)).toBe(false);
    expect(cache.truncateFromEnd(7)).toBe(false);
    expect(show(cache)).toBe("");
  });

  test("an offset that is none is a bug of the caller", () => {
    const cache = cacheOf("3@40");
    expect(() => cache.truncateFromStart(Number.NaN)).toThrow(InvariantError);
    expect(() => cache.truncateFromEnd(40.5)).toThrow(InvariantError);
    expect(show(cache)).toBe("3@40");
  });
});

describe("lookups", () => {
  test("EC-32 an offset belongs to the last epoch that begins at or below it", () => {
    const cache = cacheOf("0@10 4@25 5@33");
    const epochs = [9, 10, 24, 25, 32, 33, 900].map((offset) => cache.epochForOffset(toOffset(offset)));
    expect(epochs).toEqual([undefined, 0, 0, 4, 4, 5, 5]);
  });

  test("EC-33 previous and next epoch are strictly below and above", () => {
    const cache = cacheOf("0@10 4@25 5@33");
    expect([5, 3, 0].map((epoch) => cache.previousEpoch(epoch))).toEqual([4, 0, undefined]);
    expect([-1, 0, 5].map((epoch) => cache.nextEpoch(epoch))).toEqual([0, 4, undefined]);
  });

  test("EC-34 entries in a range are those of a log cut to it, and the cache stays whole", () => {
    const cache = cacheOf("0@10 4@25 5@33");
    expect(showEntries(cache.entriesInRange(20, 30))).toBe("0@20 4@25");
    expect(showEntries(cache.entriesInRange(-1, 30))).toBe("0@10 4@25");
    expect(show(cache)).toBe("0@10 4@25 5@33");
  });

  test("clear leaves no entry", () => {
    const cache = cacheOf("0@10 4@25");
    cache.clear();
    expect(show(cache)).toBe("");
    expect(cache.latest).toBeUndefined();
  });
});

// ---- Against a model that is slow and plain: a sorted map and the sentences of the rules, scanned entry by entry.

class EpochModel {
  startOffsets = new Map<number, number>();

  assign(epoch: number, startOffset: number): void {
    const latest = Math.max(...this.startOffsets.keys());
    if (epoch === latest && startOffset >= (this.startOffsets.get(latest) ?? 0)) return;
    for (const [e, s] of this.startOffsets) if (e >= epoch || s >= startOffset) this.startOffsets.delete(e);
    this.startOffsets.set(epoch, startOffset);
  }

  end(requested: number, logEndOffset: number): [number, number] {
    if (requested === -1) return [-1, -1];
    const known = [...this.startOffsets.keys()];
    if (known.length > 0 && requested === Math.max(...known)) return [requested, logEndOffset];
    const higher = known.filter((epoch) => epoch > requested);
    if (higher.length === 0) return [-1, -1];
    const lower = known.filter((epoch) => epoch <= requested);
    const epoch = lower.length === 0 ? requested : Math.max(...lower);
    return [epoch, this.startOffsets.get(Math.min(...higher)) ?? Number.NaN];
  }

  truncateFromEnd(offset: number): void {
    if (offset < 0) return;
    for (const [epoch, start] of this.startOffsets) if (start >= offset) this.startOffsets.delete(epoch);
  }

  truncateFromStart(offset: number): void {
    const reached = [...this.startOffsets].filter(([, start]) => start <= offset).map(([epoch]) => epoch);
    for (const epoch of reached) this.startOffsets.delete(epoch);
    if (reached.length > 0) this.startOffsets.set(Math.max(...reached), offset);
  }

  show(): string {
    const ascending = [...this.startOffsets].sort(([a], [b]) => a - b);
    return ascending.map(([epoch, start]) => `${epoch}@${start}`).join(" ");
  }
}

// Small ranges, so that equal epochs and equal offsets meet often.
const epochs = fc.integer({ min: 0, max: 12 });
const offsets = fc.integer({ min: 0, max: 20 });
const operations = fc.oneof(
  { weight: 4, arbitrary: fc.tuple(fc.constant("assign" as const), epochs, offsets) },
  { weight: 1, arbitrary: fc.tuple(fc.constant("end" as const), fc.integer({ min: -2, max: 21 }), fc.constant(0)) },
  { weight: 1, arbitrary: fc.tuple(fc.constant("start" as const), fc.integer({ min: -2, max: 21 }), fc.constant(0)) },
);

describe("against a model", () => {
  test("entries and every answer agree with the plain rules over random histories", () => {
    fc.assert(
      fc.property(fc.array(operations, { maxLength: 40 }), (history) => {
        const cache = new LeaderEpochCache();
        const model = new EpochModel();
        for (const [operation, first, second] of history) {
          const before = show(cache);
          const changed = applyOperation(cache, model, operation, first, second);
          expect(show(cache)).toBe(model.show());
          expect(changed).toBe(show(cache) !== before);
          expectIncreasing(cache.entries);
        }
        expectSameAnswers(cache, model);
      }),
      { numRuns: 500 },
    );
  });

  test("feeding a cache its own entries gives the same cache", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(epochs, offsets)), (assigned) => {
        const cache = new LeaderEpochCache();
        for (const [epoch, offset] of assigned) assign(cache, epoch, offset);
        expect(new LeaderEpochCache(cache.entries).entries).toEqual(cache.entries);
      }),
    );
  });
});

function applyOperation(
  cache: LeaderEpochCache,
  model: EpochModel,
  operation: "assign" | "end" | "start",
  first: number,
  second: number,
): boolean {
  if (operation === "assign") {
    model.assign(first, second);
    return assign(cache, first, second);
  }
  if (operation === "end") {
    model.truncateFromEnd(first);
    return cache.truncateFromEnd(first);
  }
  model.truncateFromStart(first);
  return cache.truncateFromStart(first);
}

function expectSameAnswers(cache: LeaderEpochCache, model: EpochModel): void {
  const known = [...model.startOffsets.keys()].sort((a, b) => a - b);
  for (let epoch = -2; epoch <= 13; epoch++) {
    expect(end(cache, epoch, 25)).toEqual(model.end(epoch, 25));
    expect(cache.previousEpoch(epoch)).toBe(known.findLast((e) => e < epoch));
    expect(cache.nextEpoch(epoch)).toBe(known.find((e) => e > epoch));
  }
  for (let offset = 0; offset <= 21; offset++) {
    const covering = known.findLast((epoch) => (model.startOffsets.get(epoch) ?? 0) <= offset);
    expect(cache.epochForOffset(toOffset(offset))).toBe(covering);
  }
}

function expectIncreasing(entries: readonly EpochEntry[]): void {
  entries.slice(1).forEach((entry, i) => {
    expect(entry.epoch).toBeGreaterThan(entries[i]?.epoch ?? -1);
    expect(entry.startOffset).toBeGreaterThan(entries[i]?.startOffset ?? -1);
  });
}

/** `cacheOf("3@40 5@52")`: epoch@startOffset. */
function cacheOf(entries: string): LeaderEpochCache {
  const cache = new LeaderEpochCache();
  for (const entry of entries.split(" ").filter((text) => text !== "")) {
    const [epoch, startOffset] = entry.split("@");
    assign(cache, Number(epoch), Number(startOffset));
  }
  expect(show(cache)).toBe(entries);
  return cache;
}

function assign(cache: LeaderEpochCache, epoch: number, startOffset: number): boolean {
  return cache.assign(toLeaderEpoch(epoch), toOffset(startOffset));
}

function end(cache: LeaderEpochCache, requestedEpoch: number, logEndOffset: number): [number, number] {
  const { epoch, endOffset } = cache.endOffsetFor(requestedEpoch, toOffset(logEndOffset));
  return [epoch, endOffset];
}

function show(cache: LeaderEpochCache): string {
  return showEntries(cache.entries);
}

function showEntries(entries: readonly EpochEntry[]): string {
  return entries.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
}
