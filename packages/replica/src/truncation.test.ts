import { toOffset } from "@tidemark/base";
import { LeaderEpochCache } from "@tidemark/epoch-cache";
import { describe, expect, test } from "vitest";
import { entries } from "./histories.fixture.ts";
import { checkDivergence, truncationPoint } from "./truncation.ts";

describe("FT the follower's truncation point (epochs 1@0 4@6 7@15, log end 30)", () => {
  test.each([
    // FT-01 to FT-03: Kafka falls back to the high watermark, or takes an offset without its epoch. Neither is a reason to cut.
    ["FT-01", [-1, -1], undefined],
    ["FT-02", [-1, 18], undefined],
    ["FT-03", [-1, 44], undefined],
    ["FT-04", [7, 22], [22, true]],
    ["FT-05", [7, 35], [30, true]],
    ["FT-06", [4, 20], [15, true]],
    ["FT-07", [4, 11], [11, true]],
    ["FT-08", [5, 20], [15, false]],
    ["FT-09", [6, 30], [15, false]],
    ["FT-10", [3, 9], [6, false]],
    ["FT-11", [2, 6], [6, false]],
    ["FT-12", [1, 4], [4, true]],
    ["FT-13", [0, 3], [0, true]],
    ["FT-14", [9, 12], [12, true]],
  ] as const)("%s answer %j -> %j", (_id, [epoch, endOffset], expected) => {
    const point = truncationPoint({ epoch, endOffset }, entries("1@0 4@6 7@15"), toOffset(30));
    expect(point === undefined ? undefined : [point.offset, point.isFinal]).toEqual(expected);
  });

  test("FT-15 a log without epochs is cut at the leader's end", () => {
    expect(truncationPoint({ epoch: 5, endOffset: 12 }, [], toOffset(30))).toEqual({ offset: 12, isFinal: true });
  });
});

test("BR-030 a follower that had a leader of its own cuts to where both have the leader's epoch", () => {
  const ends = { epoch: 1, endOffset: 20 };
  expect(truncationPoint(ends, entries("1@0 2@20"), toOffset(40))).toMatchObject({ offset: 20 });
  expect(truncationPoint({ epoch: 1, endOffset: 10 }, entries("1@0 2@8 3@12"), toOffset(20))).toMatchObject({
    offset: 8,
  });
});

describe("FD the leader's divergence check (epochs 1@0 4@6 5@20 9@21 12@26, log end 26)", () => {
  const check = (lastFetchedEpoch: number, fetchOffset: number, logStartOffset = 0): string => {
    const cache = new LeaderEpochCache(entries("1@0 4@6 5@20 9@21 12@26"));
    cache.truncateFromStart(logStartOffset);
    const epochEnd = (epoch: number): { epoch: number; endOffset: number } => cache.endOffsetFor(epoch, toOffset(26));
    const answer = checkDivergence({ fetchOffset, lastFetchedEpoch }, { epochEnd, logStartOffset, logEndOffset: 26 });
    return answer.type === "diverging" ? `diverging ${answer.epoch},${answer.endOffset}` : answer.type;
  };

  test.each([
    ["FD-01", 1, 6, "same"],
    ["FD-02", 1, 9, "diverging 1,6"],
    ["FD-03", 2, 9, "diverging 1,6"],
    ["FD-04", 3, 4, "diverging 1,6"],
    ["FD-05", 4, 20, "same"],
    ["FD-06", 4, 21, "diverging 4,20"],
    ["FD-07", 7, 21, "diverging 5,21"],
    ["FD-08", 9, 26, "same"],
    ["FD-08", 12, 26, "same"],
    ["FD-09", 12, 27, "diverging 12,26"],
    ["FD-10", 13, 5, "outOfRange"],
    ["FD-11", -1, 26, "same"],
    ["FD-11", -1, 27, "outOfRange"],
    ["FD-12", 0, 0, "same"],
    ["FD-12", 0, 3, "diverging 0,0"],
    ["FD-21", -1, 5, "same"],
  ] as const)("%s epoch %i, offset %i -> %s", (_id, epoch, offset, expected) => {
    expect(check(epoch, offset)).toBe(expected);
  });

  test.each([
    ["FD-13", 3, 12, "diverging 3,10"],
    ["FD-14", 1, 10, "same"],
    ["FD-14", 4, 15, "same"],
    ["FD-15", 1, 8, "outOfRange"],
    ["FD-15", 7, 8, "outOfRange"],
    ["FD-16", 0, 11, "diverging 0,10"],
    ["FD-23", 13, 8, "outOfRange"],
    ["FD-23", -1, 9, "outOfRange"],
  ] as const)("%s with the start raised to 10: epoch %i, offset %i -> %s", (_id, epoch, offset, expected) => {
    expect(check(epoch, offset, 10)).toBe(expected);
  });
});
