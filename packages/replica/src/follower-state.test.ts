import { toLeaderEpoch, toOffset } from "@tidemark/base";
import type { PeerErrorCode } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { FETCH_BACKOFF_MS, FollowerState } from "./follower-state.ts";
import type { FollowerEffect, FollowerInput, FollowerRequest, LogFacts } from "./follower-state.ts";
import { commonPrefix, entries, EpochLog, settle, textOf } from "./histories.fixture.ts";

function facts(end: number, epochs: string, start = 0): LogFacts {
  return {
    logStartOffset: toOffset(start),
    logEndOffset: toOffset(end),
    flushedEndOffset: toOffset(end),
    epochs: entries(epochs),
  };
}

function followerOf(log: LogFacts, highWatermark = 0, leaderEpoch = 9): FollowerState {
  return new FollowerState({ leaderId: 1, leaderEpoch, log, highWatermark: toOffset(highWatermark) });
}

/** Asks what the state wants to ask. */
function ask<Type extends FollowerRequest["type"]>(
  state: FollowerState,
  type: Type,
  nowMs = 0,
): FollowerRequest & { type: Type } {
  const request = state.nextRequest(nowMs);
  if (request?.type !== type) throw new Error(`asks ${JSON.stringify(request)}, not ${type}`);
  state.step({ type: "sent", request }, []);
  return request as FollowerRequest & { type: Type };
}

function step(state: FollowerState, input: FollowerInput): FollowerEffect[] {
  const effects: FollowerEffect[] = [];
  state.step(input, effects);
  return effects;
}

function fetchAnswer(
  request: FollowerRequest,
  answer: Partial<Extract<FollowerInput, { type: "fetchAnswer" }>> = {},
): FollowerInput {
  return {
    type: "fetchAnswer",
    request,
    error: "NONE",
    highWatermark: 0,
    logStartOffset: 0,
    logEndOffset: 0,
    divergingEpoch: -1,
    divergingEndOffset: -1,
    bytes: new Uint8Array(0),
    nowMs: 0,
    ...answer,
  };
}

function epochAnswer(
  request: FollowerRequest,
  leaderEpoch: number,
  endOffset: number,
  more: Partial<Extract<FollowerInput, { type: "epochAnswer" }>> = {},
): FollowerInput {
  return {
    type: "epochAnswer",
    request,
    error: "NONE",
    leaderEpoch,
    endOffset,
    logStartOffset: 0,
    logEndOffset: 1000,
    nowMs: 0,
    ...more,
  };
}

describe("settling with a new leader", () => {
  test("a follower with epochs asks about its latest one before it fetches; a log without batches fetches at once (FR-02, FR-03: ours asks, and never cuts at a high watermark)", () => {
    expect(followerOf(facts(3, "0@0 2@1")).nextRequest(0)).toEqual({ type: "epoch", leaderEpoch: 2 });
    expect(followerOf(facts(0, ""), 0).nextRequest(0)).toMatchObject({
      type: "fetch",
      fetchOffset: 0,
      lastFetchedEpoch: -1,
    });
    expect(followerOf(facts(3, ""), 2).nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 3 });
  });

  test("FT-16 FT-18 after a final answer it cuts and fetches from there in the epoch that is left", () => {
    const state = followerOf(facts(30, "1@0 4@6 7@15"));
    expect(step(state, epochAnswer(ask(state, "epoch"), 7, 22))).toEqual([
      { type: "truncate", offset: 22, cause: "epochAnswer" },
    ]);
    expect(state.nextRequest(0)).toBeUndefined();
    step(state, { type: "truncated", log: facts(22, "1@0 4@6 7@15"), nowMs: 0 });
    expect(state.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 22, lastFetchedEpoch: 7 });

    const emptied = followerOf(facts(30, "1@0 4@6 7@15"));
    step(emptied, epochAnswer(ask(emptied, "epoch"), 0, 3));
    step(emptied, { type: "truncated", log: facts(0, ""), nowMs: 0 });
    expect(emptied.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 0, lastFetchedEpoch: -1 });
  });

  test("FT-17 after an answer that is not final it asks again, about the epoch that is left", () => {
    const state = followerOf(facts(30, "1@0 4@6 7@15"));
    expect(step(state, epochAnswer(ask(state, "epoch"), 5, 20))).toEqual([
      { type: "truncate", offset: 15, cause: "epochAnswer" },
    ]);
    step(state, { type: "truncated", log: facts(15, "1@0 4@6"), nowMs: 0 });
    expect(state.nextRequest(0)).toEqual({ type: "epoch", leaderEpoch: 4 });
  });

  test("nothing to cut: it fetches at its log end", () => {
    const state = followerOf(facts(30, "1@0 4@6 7@15"));
    expect(step(state, epochAnswer(ask(state, "epoch"), 7, 35))).toEqual([]);
    expect(state.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 30, lastFetchedEpoch: 7 });
  });

  test("the leader's end below ours in the same epoch is a cause of its own", () => {
    const state = followerOf(facts(30, "1@0 4@6 7@15"));
    expect(step(state, epochAnswer(ask(state, "epoch"), 7, 22, { logEndOffset: 22 }))).toEqual([
      { type: "truncate", offset: 22, cause: "leaderEndOffset" },
    ]);
  });

  test("an undefined answer cuts nothing (FR-07): the leader is behind, the question is asked again after a back-off", () => {
    const state = followerOf(facts(30, "1@0 4@6 7@15"), 8);
    expect(step(state, epochAnswer(ask(state, "epoch"), -1, -1))).toMatchObject([{ type: "backOff" }]);
    expect(state.nextRequest(FETCH_BACKOFF_MS - 1)).toBeUndefined();
    expect(state.nextRequest(FETCH_BACKOFF_MS)).toEqual({ type: "epoch", leaderEpoch: 7 });
  });

  test("OR-02 OR-06 the leader's start above our end empties the log there, and the next fetch names no epoch", () => {
    const state = followerOf(facts(1, "0@0"));
    expect(step(state, epochAnswer(ask(state, "epoch"), 0, 2, { logStartOffset: 2, logEndOffset: 3 }))).toEqual([
      { type: "truncateFully", offset: 2, cause: "leaderLogStart" },
    ]);
    expect(step(state, { type: "truncated", log: facts(2, "", 2), nowMs: 0 })).toEqual([
      { type: "highWatermark", offset: 2 },
    ]);
    expect(state.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 2, lastFetchedEpoch: -1 });
  });
});

describe("OR-02 what agrees with the leader nowhere above its start begins anew there: nobody knows whether the rest is the same", () => {
  const leader = { logStartOffset: 11, logEndOffset: 17 };
  const anew = { type: "truncateFully", offset: 11, cause: "leaderLogStart" };

  test.each([
    ["its end above the start, the epoch that is asked about ends there", facts(27, "0@0"), 0, 11],
    ["its end at the start", facts(11, "0@0"), 0, 11],
    ["the leader names an epoch that it lacks", facts(27, "2@0 5@9"), 3, 14],
  ])("%s", (_name, log, epoch, endOffset) => {
    const state = followerOf(log);
    expect(step(state, epochAnswer(ask(state, "epoch"), epoch, endOffset, leader))).toEqual([anew]);
    step(state, { type: "truncated", log: facts(11, "", 11), nowMs: 0 });
    expect(state.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 11, lastFetchedEpoch: -1 });
  });

  test("so does a fetch that diverges at the start", () => {
    const state = followerOf(facts(27, "0@0 3@13"), 4);
    step(state, epochAnswer(ask(state, "epoch"), 3, 30, { ...leader, logEndOffset: 40 }));
    const answer = { divergingEpoch: 0, divergingEndOffset: 11, highWatermark: 12, ...leader };
    expect(step(state, fetchAnswer(ask(state, "fetch"), answer))).toEqual([anew]);
  });

  test("what agrees up to a batch above the start is kept, and so is a log that begins no lower", () => {
    const above = followerOf(facts(27, "0@0"));
    expect(step(above, epochAnswer(ask(above, "epoch"), 0, 12, leader))).toEqual([
      { type: "truncate", offset: 12, cause: "epochAnswer" },
    ]);
    const asHigh = followerOf(facts(11, "0@11", 11));
    expect(step(asHigh, epochAnswer(ask(asHigh, "epoch"), 0, 11, leader))).not.toContainEqual(anew);
  });
});

describe("CV convergence", () => {
  test.each([
    ["CV-01", "0 0 1 1 3 3", "5@6", "0 0 2 2 2 4", "", [5, 2]],
    ["CV-02", "1 3 5", "6@3", "0 2 4", "", [2, 1, 0]],
    ["CV-03", "0 2 5", "", "0 2 4", "", [2]],
    ["CV-04", "0 0 2 5 5", "", "0 0 2 4 4 4", "", [3]],
    ["CV-05", "1 1 2 2 2 6", "7@6", "1 1 2 2 3 3 4 5", "", [4]],
    ["CV-06", "1 1 1", "3@3", "1 1 1 1 1", "", [3]],
    ["CV-07", "1 1 4 4 4", "", "1 1 2 3 3", "", [2]],
    ["CV-08", "7", "", "2 2 2", "", [0]],
    ["CV-09", "5 5", "8@2", "5 5", "7@2", [2]],
  ] as const)(
    "%s leader %s [%s], follower %s [%s]: cut at %j",
    (_id, leaderRecords, leaderEmpty, followerRecords, followerEmpty, expected) => {
      for (const first of ["asking", "fetching"] as const) {
        const leader = new EpochLog(leaderRecords, leaderEmpty);
        const follower = new EpochLog(followerRecords, followerEmpty);
        const state = followerOf(follower.facts);
        if (first === "fetching") skipAsking(state);
        expect([first, settle(state, follower, leader).truncations]).toEqual([first, expected]);
        expect(follower.records).toEqual(leader.records);
      }
    },
  );

  test("CV-10 CV-11 each round that is not final takes at least one epoch away", () => {
    const state = followerOf(facts(200, "1@0 2@119 3@129 4@140 5@149"));
    const cuts: number[] = [];
    skipAsking(state);
    for (const [epoch, end, left] of [
      [4, 140, facts(140, "1@0 2@119 3@129")],
      [3, 130, facts(130, "1@0 2@119 3@129")],
      [2, 120, facts(120, "1@0 2@119")],
    ] as const) {
      const effects = step(state, fetchAnswer(ask(state, "fetch"), { divergingEpoch: epoch, divergingEndOffset: end }));
      cuts.push(...effects.flatMap((effect) => (effect.type === "truncate" ? [effect.offset] : [])));
      step(state, { type: "truncated", log: left, nowMs: 0 });
    }
    expect(cuts).toEqual([140, 130, 120]);
  });

  test("CV-12 random histories: either guard alone, and both, find exactly the longest common prefix", () => {
    let seed = 12;
    const draw = (bound: number): number => {
      seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
      return (seed >>> 8) % bound;
    };
    let histories = 0;
    let roundsMost = 0;
    while (histories < 100_000) {
      const replicas = randomReplicas(draw);
      const elected = draw(replicas.length);
      const leader = replicas[elected];
      if (leader === undefined) continue;
      // Whoever is elected enters its epoch, above all others, before anybody asks.
      const epochs = replicas.flatMap(({ cache }) => cache.entries.map(({ epoch }) => epoch));
      leader.cache.assign(toLeaderEpoch(Math.max(0, ...epochs) + 1), toOffset(leader.endOffset));
      for (const replica of replicas) {
        if (replica === leader) continue;
        const prefix = commonPrefix(leader.records, replica.records);
        for (const guard of ["epochs", "fetch"] as const) {
          const follower = copyOf(replica);
          const state = followerOf(follower.facts);
          if (guard === "fetch") skipAsking(state);
          const { truncations, requests } = settle(state, follower, leader);
          roundsMost = Math.max(roundsMost, requests);
          const lowest = Math.min(replica.endOffset, ...truncations);
          if (lowest !== Math.min(prefix, replica.endOffset))
            throw new Error(
              `${guard}: leader ${leader.records.join(" ")}, follower ${replica.records.join(" ")}: cut at ${lowest}, not ${prefix}`,
            );
          if (follower.records.join(" ") !== leader.records.join(" ")) throw new Error("the logs differ");
        }
        histories += 1;
      }
    }
    expect(histories).toBeGreaterThanOrEqual(100_000);
    expect(roundsMost).toBeGreaterThan(3);
  });
});

/** Goes on as if the round of questions had found nothing: the diverging epoch is the only guard then. */
function skipAsking(state: FollowerState): void {
  if (state.phase !== "asking") return;
  const request = ask(state, "epoch");
  state.step(
    epochAnswer(request, request.leaderEpoch, Number.MAX_SAFE_INTEGER, { logEndOffset: Number.MAX_SAFE_INTEGER }),
    [],
  );
}

function copyOf(log: EpochLog): EpochLog {
  const copy = new EpochLog(log.records.join(" "));
  for (const { epoch, startOffset } of log.cache.entries) copy.cache.assign(epoch, startOffset);
  return copy;
}

/** 2 to 5 replicas that led in turn, each epoch once, copying from each other a part of what the leader had. */
function randomReplicas(draw: (bound: number) => number): EpochLog[] {
  const replicas = Array.from({ length: 2 + draw(4) }, () => new EpochLog(""));
  let epoch = 0;
  for (let turn = 0; turn < 1 + draw(6); turn += 1) {
    epoch += 1 + draw(2);
    const leader = replicas[draw(replicas.length)];
    if (leader === undefined) continue;
    leader.cache.assign(toLeaderEpoch(epoch), toOffset(leader.endOffset));
    for (let count = draw(4); count > 0; count -= 1) leader.append(String(epoch));
    for (const follower of replicas) {
      if (follower === leader || draw(2) === 0) continue;
      follower.truncateTo(commonPrefix(leader.records, follower.records));
      for (const record of leader.records.slice(follower.endOffset, follower.endOffset + draw(5)))
        follower.append(record);
    }
  }
  return replicas;
}

describe("fetching", () => {
  const fetching = (end: number, epochs: string, highWatermark = 0): FollowerState => {
    const state = followerOf(facts(end, epochs), highWatermark);
    skipAsking(state);
    return state;
  };

  test("FR-01 HW-08 bytes are appended, then the high watermark is the leader's, at most the own log end", () => {
    const state = fetching(40, "1@0", 10);
    const bytes = new Uint8Array(5);
    expect(step(state, fetchAnswer(ask(state, "fetch"), { bytes, highWatermark: 80 }))).toEqual([
      { type: "append", bytes },
    ]);
    expect(state.nextRequest(0)).toBeUndefined();
    expect(step(state, { type: "appended", log: facts(50, "1@0"), nowMs: 0 })).toEqual([
      { type: "highWatermark", offset: 50 },
    ]);
    expect(state.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 50, lastFetchedEpoch: 1 });
  });

  test("HW-07 FR-19 an answer without records moves the high watermark only, down too, and keeps the fetched epoch", () => {
    const state = fetching(100, "1@0", 90);
    expect(step(state, fetchAnswer(ask(state, "fetch"), { highWatermark: 70 }))).toEqual([
      { type: "highWatermark", offset: 70 },
    ]);
    expect(state.nextRequest(0)).toMatchObject({ fetchOffset: 100, lastFetchedEpoch: 1 });
    expect(step(state, fetchAnswer(ask(state, "fetch"), { highWatermark: 70 }))).toEqual([]);
  });

  test("HW-06 the high watermark changes with the answers and never passes the log end", () => {
    const state = fetching(100, "1@0");
    const seen = [99, 99, 100, 100, 101].map(
      (highWatermark) => step(state, fetchAnswer(ask(state, "fetch"), { highWatermark })).length,
    );
    expect([seen, state.highWatermark]).toEqual([[1, 0, 1, 0, 0], 100]);
  });

  test("HW-24 FR-26 BR-035 a diverging answer cuts and nothing else: its high watermark and bytes do not count", () => {
    const state = fetching(150, "4@0", 130);
    const answer = { divergingEpoch: 4, divergingEndOffset: 140, highWatermark: 160, bytes: new Uint8Array(9) };
    expect(step(state, fetchAnswer(ask(state, "fetch"), answer))).toEqual([
      { type: "truncate", offset: 140, cause: "divergingEpoch" },
    ]);
    expect(step(state, { type: "truncated", log: facts(140, "4@0"), nowMs: 0 })).toEqual([]);
    expect(state.highWatermark).toBe(130);
  });

  test("OR-07 the leader's log start is taken after its high watermark, and never beyond what is committed here", () => {
    const state = fetching(100, "1@0", 50);
    expect(step(state, fetchAnswer(ask(state, "fetch"), { highWatermark: 80, logStartOffset: 60 }))).toEqual([
      { type: "highWatermark", offset: 80 },
      { type: "raiseLogStart", offset: 60 },
    ]);
    expect(step(state, { type: "logMoved", log: facts(100, "1@60", 60) })).toEqual([]);
    expect(ask(state, "fetch")).toMatchObject({ fetchOffset: 100, logStartOffset: 60 });

    const behind = fetching(100, "1@0", 50);
    const bytes = new Uint8Array(5);
    step(behind, fetchAnswer(ask(behind, "fetch"), { bytes, highWatermark: 110, logStartOffset: 120 }));
    expect(step(behind, { type: "appended", log: facts(105, "1@0"), nowMs: 0 })).toEqual([
      { type: "highWatermark", offset: 105 },
      { type: "raiseLogStart", offset: 105 },
    ]);
  });

  test("a log start at or below the own one, an answer that is refused, and one that diverges raise nothing", () => {
    const raised = (answer: Parameters<typeof fetchAnswer>[1]): boolean => {
      const state = followerOf(facts(100, "1@10", 10), 100);
      skipAsking(state);
      const effects = step(state, fetchAnswer(ask(state, "fetch"), { highWatermark: 100, ...answer }));
      return effects.some(({ type }) => type === "raiseLogStart");
    };
    expect([9, 10, 11].map((logStartOffset) => raised({ logStartOffset }))).toEqual([false, false, true]);
    expect(raised({ logStartOffset: 50, error: "NOT_LEADER_OR_FOLLOWER" })).toBe(false);
    expect(raised({ logStartOffset: 50, divergingEpoch: 1, divergingEndOffset: 60 })).toBe(false);
    const refused = followerOf(facts(100, "1@10", 10), 100);
    skipAsking(refused);
    const bytes = new Uint8Array(5);
    step(refused, fetchAnswer(ask(refused, "fetch"), { bytes, highWatermark: 100, logStartOffset: 50 }));
    expect(step(refused, { type: "appendRefused", reason: "corrupt", nowMs: 0 })).toMatchObject([{ type: "backOff" }]);
  });

  test("BR-034 an answer of two moments, whose log start lies above its own records: they are appended, and nothing is emptied", () => {
    const state = fetching(0, "", 0);
    const bytes = new Uint8Array(5);
    const answer = { bytes, logStartOffset: 15, logEndOffset: 20, highWatermark: 15 };
    expect(step(state, fetchAnswer(ask(state, "fetch"), answer))).toEqual([{ type: "append", bytes }]);
    expect(step(state, { type: "appended", log: facts(10, "1@0"), nowMs: 0 })).toEqual([
      { type: "highWatermark", offset: 10 },
      { type: "raiseLogStart", offset: 10 },
    ]);
    expect(state.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 10, lastFetchedEpoch: 1 });
  });

  test("a cut below the high watermark takes it along", () => {
    const state = fetching(150, "4@0", 130);
    step(state, fetchAnswer(ask(state, "fetch"), { divergingEpoch: 4, divergingEndOffset: 120 }));
    expect(step(state, { type: "truncated", log: facts(120, "4@0"), nowMs: 0 })).toEqual([
      { type: "highWatermark", offset: 120 },
    ]);
  });

  test("a diverging answer that leaves nothing to cut backs off and says so", () => {
    const state = fetching(100, "4@0");
    expect(step(state, fetchAnswer(ask(state, "fetch"), { divergingEpoch: 4, divergingEndOffset: 100 }))).toMatchObject(
      [{ type: "backOff", reason: "diverging, but there is nothing to cut" }],
    );
  });

  test.each([
    "UNKNOWN_LEADER_EPOCH",
    "NOT_LEADER_OR_FOLLOWER",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "KAFKA_STORAGE_ERROR",
    "STALE_BROKER_EPOCH",
  ] as PeerErrorCode[])("FR-10 FR-17 %s: back off, then the same question again", (error) => {
    for (const type of ["epoch", "fetch"] as const) {
      const state = type === "fetch" ? fetching(10, "1@0") : followerOf(facts(10, "1@0"));
      const request = ask(state, type);
      const effects =
        type === "fetch"
          ? step(state, fetchAnswer(request, { error, nowMs: 5 }))
          : step(state, epochAnswer(request, 1, 10, { error, nowMs: 5 }));
      expect(effects).toEqual([{ type: "backOff", untilMs: 5 + FETCH_BACKOFF_MS, reason: error }]);
      expect(state.nextRequest(4 + FETCH_BACKOFF_MS)).toBeUndefined();
      expect(state.nextRequest(5 + FETCH_BACKOFF_MS)).toEqual(request);
    }
  });

  test("FR-09 OR-05 FENCED_LEADER_EPOCH ends the followership: nothing is asked, cut or appended any more", () => {
    for (const type of ["epoch", "fetch"] as const) {
      const state = type === "fetch" ? fetching(10, "1@0") : followerOf(facts(10, "1@0"));
      const request = ask(state, type);
      const answer =
        type === "fetch"
          ? fetchAnswer(request, { error: "FENCED_LEADER_EPOCH" })
          : epochAnswer(request, 0, 0, { error: "FENCED_LEADER_EPOCH" });
      expect(step(state, answer)).toEqual([{ type: "fenced", reason: "FENCED_LEADER_EPOCH" }]);
      expect(step(state, answer)).toEqual([]);
      expect([state.phase, state.nextRequest(1e9)]).toEqual(["fenced", undefined]);
    }
  });

  test("FR-11 FR-12 FR-20 an answer to anything but the outstanding request changes nothing", () => {
    const state = fetching(10, "1@0");
    const first = ask(state, "fetch");
    step(state, { type: "requestFailed", request: first, nowMs: 0 });
    const second = ask(state, "fetch", FETCH_BACKOFF_MS);
    const before = state.digest();
    for (const late of [
      fetchAnswer(first, { bytes: new Uint8Array(3) }),
      fetchAnswer({ ...second }, { divergingEpoch: 1, divergingEndOffset: 0 }),
      fetchAnswer(first, { error: "FENCED_LEADER_EPOCH" }),
      epochAnswer(first, 0, 0),
      { type: "requestFailed", request: first, nowMs: 0 } as const,
    ]) {
      expect(step(state, late)).toEqual([]);
      expect(state.digest()).toBe(before);
    }
    expect(step(state, fetchAnswer(second, { bytes: new Uint8Array(3) }))).toHaveLength(1);
  });

  test("FR-15 bytes that the log refuses are asked for again after a back-off", () => {
    const state = fetching(10, "1@0");
    const request = ask(state, "fetch");
    step(state, fetchAnswer(request, { bytes: new Uint8Array(3), highWatermark: 10 }));
    expect(step(state, { type: "appendRefused", reason: "CORRUPT_MESSAGE", nowMs: 7 })).toEqual([
      { type: "backOff", untilMs: 7 + FETCH_BACKOFF_MS, reason: "CORRUPT_MESSAGE" },
    ]);
    expect(state.nextRequest(7 + FETCH_BACKOFF_MS)).toEqual(request);
    expect(state.highWatermark).toBe(0);
  });

  test("FR-25 an append that took nothing leaves offset and epoch, and takes the high watermark", () => {
    const state = fetching(2, "1@0 2@1");
    step(state, fetchAnswer(ask(state, "fetch"), { bytes: new Uint8Array(3), highWatermark: 9 }));
    expect(step(state, { type: "appended", log: facts(2, "1@0 2@1"), nowMs: 0 })).toEqual([
      { type: "highWatermark", offset: 2 },
    ]);
    expect(state.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 2, lastFetchedEpoch: 2 });
  });
});

describe("OR out of range", () => {
  const outOfRange = (state: FollowerState, nowMs = 0): FollowerEffect[] =>
    step(state, fetchAnswer(ask(state, "fetch", nowMs), { error: "OFFSET_OUT_OF_RANGE", nowMs }));

  test("OR-01 the leader's log was emptied: confirmed by an epoch round, then cut", () => {
    const state = followerOf(facts(3, ""));
    expect(outOfRange(state)).toEqual([]);
    expect(step(state, epochAnswer(ask(state, "epoch"), -1, -1, { logEndOffset: 0 }))).toEqual([
      { type: "truncate", offset: 0, cause: "leaderEndOffset" },
    ]);
    step(state, { type: "truncated", log: facts(0, ""), nowMs: 0 });
    expect(state.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 0 });
  });

  test("OR-03 inside the leader's range nothing is cut", () => {
    const state = followerOf(facts(8, "1@0"));
    skipAsking(state);
    outOfRange(state);
    expect(
      step(state, epochAnswer(ask(state, "epoch"), 1, 20, { logStartOffset: 2, logEndOffset: 20 })).filter(
        ({ type }) => type !== "backOff",
      ),
    ).toEqual([]);
  });

  test("BR-038 out of range at 100 while the leader ended at 90, which has 105 when it is asked: cut by epochs, never emptied", () => {
    const state = followerOf(facts(100, "1@0 2@80"));
    skipAsking(state);
    outOfRange(state);
    const answer = { logStartOffset: 0, logEndOffset: 105 };
    expect(step(state, epochAnswer(ask(state, "epoch"), 2, 90, answer))).toEqual([
      { type: "truncate", offset: 90, cause: "epochAnswer" },
    ]);
    step(state, { type: "truncated", log: facts(90, "1@0 2@80"), nowMs: 0 });
    expect(state.nextRequest(0)).toMatchObject({ type: "fetch", fetchOffset: 90, lastFetchedEpoch: 2 });
  });

  test("OR-04 an error in the round is retried after a back-off", () => {
    const state = followerOf(facts(8, "1@0"));
    skipAsking(state);
    outOfRange(state);
    expect(step(state, epochAnswer(ask(state, "epoch"), 0, 0, { error: "UNKNOWN_LEADER_EPOCH" }))).toMatchObject([
      { type: "backOff" },
    ]);
    expect(state.nextRequest(FETCH_BACKOFF_MS)).toEqual({ type: "epoch", leaderEpoch: 1 });
  });

  test("out of range once more after a fetch that went well is asked about at once, not waited for", () => {
    const state = followerOf(facts(8, "1@0"));
    skipAsking(state);
    outOfRange(state);
    step(state, epochAnswer(ask(state, "epoch"), 1, 20, { logEndOffset: 20 }));
    const nowMs = FETCH_BACKOFF_MS;
    expect(step(state, fetchAnswer(ask(state, "fetch", nowMs), { logEndOffset: 20, nowMs }))).toEqual([]);
    expect(outOfRange(state, nowMs)).toEqual([]);
    expect(state.nextRequest(nowMs)).toMatchObject({ type: "epoch" });
  });

  test("OR-08 out of range again and again without a change does not spin: each turn waits", () => {
    const state = followerOf(facts(8, "1@0"));
    skipAsking(state);
    let nowMs = 0;
    let turns = 0;
    for (; nowMs < 10 * FETCH_BACKOFF_MS && turns < 100; turns += 1) {
      const request = state.nextRequest(nowMs);
      if (request === undefined) {
        nowMs = state.waitsUntilMs(nowMs) ?? nowMs + 1;
        continue;
      }
      step(state, { type: "sent", request });
      if (request.type === "fetch") step(state, fetchAnswer(request, { error: "OFFSET_OUT_OF_RANGE", nowMs }));
      else step(state, epochAnswer(request, 1, 20, { nowMs, logEndOffset: 20 }));
    }
    expect(turns).toBeLessThan(40);
  });
});

test("the same inputs give the same effects and the same digest", () => {
  const run = (): string[] => {
    const leader = new EpochLog("0 0 1 1 3 3", "5@6");
    const follower = new EpochLog("0 0 2 2 2 4");
    const state = followerOf(follower.facts);
    settle(state, follower, leader);
    return [state.digest(), textOf(follower.cache.entries)];
  };
  expect(run()).toEqual(run());
});
