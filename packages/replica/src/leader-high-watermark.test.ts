import { describe, expect, test } from "vitest";
import { broker, Leader, proposed } from "./leader.fixture.ts";

// Ids HW-… are the conformance table's. Those of the log, the follower, fetch serving and the checkpoint stand elsewhere:
// docs/conformance.md.

describe("at the beginning of a leadership", () => {
  test("HW-01 a new log has high watermark 0, and appends alone do not move it while others are in the ISR", () => {
    const leader = new Leader();
    expect(leader.highWatermark).toBe(0);
    expect(leader.append(3)).toEqual([]);
    expect(leader.highWatermark).toBe(0);
  });

  test("HW-02 a high watermark above the log's end is brought down to it", () => {
    expect(new Leader({ logEndOffset: 3, highWatermark: 1 }).highWatermark).toBe(1);
    expect(new Leader({ logEndOffset: 3, highWatermark: 5 }).highWatermark).toBe(3);
  });

  test("HW-03 led again after a truncation from 6 to 3, it stays 3 while new records come", () => {
    const leader = new Leader({ logEndOffset: 3, highWatermark: 6 });
    leader.append(6);
    expect(leader.highWatermark).toBe(3);
  });

  test("HW-04 BR-032 promoted right after a full truncation to 100, with high watermark 0 remembered, it is 100", () => {
    const leader = new Leader({ isr: [1], logStartOffset: 100, logEndOffset: 100, highWatermark: 0 });
    expect(leader.highWatermark).toBe(100);
    expect(leader.append(101)).toEqual([{ type: "highWatermark", offset: 101 }]);
  });

  test("HW-09 the checkpoint's offset is where it starts", () => {
    expect(new Leader({ logEndOffset: 6, highWatermark: 4 }).highWatermark).toBe(4);
  });

  test.each([
    { checkpoint: 9, expected: 6 },
    { checkpoint: 1, expected: 2 },
  ])("HW-10 a checkpoint of $checkpoint is brought into [2, 6]: $expected", ({ checkpoint, expected }) => {
    const leader = new Leader({ logStartOffset: 2, logEndOffset: 6, highWatermark: checkpoint });
    expect(leader.highWatermark).toBe(expected);
  });

  test("HW-11 without a checkpoint it is the log start", () => {
    expect(new Leader({ logStartOffset: 3, logEndOffset: 6 }).highWatermark).toBe(3);
  });

  test("BR-033 all checkpoints lost: it starts at the log start 500 and two fetches at 900 bring it back", () => {
    const leader = new Leader({ logStartOffset: 500, logEndOffset: 900 });
    expect(leader.highWatermark).toBe(500);
    leader.fetch(2, 900);
    leader.fetch(3, 900);
    expect(leader.highWatermark).toBe(900);
  });

  test("an ISR of the leader alone commits its log at once", () => {
    expect(new Leader({ isr: [1], logEndOffset: 6, highWatermark: 4 }).highWatermark).toBe(6);
  });

  test("HW-28 offsets stay what they are, on a batch boundary or not", () => {
    expect(new Leader({ logEndOffset: 18, highWatermark: 7 }).highWatermark).toBe(7);
    expect(new Leader({ logEndOffset: 18, highWatermark: 3 }).highWatermark).toBe(3);
  });

  test("HW-29 without a checkpoint, a log start of 5 inside a batch is the high watermark, not the batch's base 4", () => {
    const leader = new Leader({ replicas: [1, 2], logStartOffset: 5, logEndOffset: 9 });
    expect(leader.highWatermark).toBe(5);
  });
});

describe("what counts", () => {
  test("HW-05 a fetch above the leader's own end does not lift the high watermark over it", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 3 });
    leader.fetch(2, 4);
    expect(leader.highWatermark).toBe(3);
  });

  test("HW-12 HW-13 it waits for every member of the ISR to fetch in this leadership, then is the lowest end", () => {
    const leader = new Leader({ logEndOffset: 10, highWatermark: 4 });
    expect(leader.fetch(2, 10)).toEqual([]);
    expect(leader.highWatermark).toBe(4);
    leader.fetch(3, 7);
    leader.fetch(2, 10);
    expect(leader.highWatermark).toBe(7);
  });

  test("HW-14 a replica outside the ISR that never fetched does not hold it", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1] });
    expect(leader.append(12)).toEqual([{ type: "highWatermark", offset: 12 }]);
  });

  test("HW-14 nor does one that fetched far behind, when the clock starts at 0 and 0 is within the lag limit", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1], logEndOffset: 10, nowMs: 0 });
    leader.fetch(2, 3);
    leader.append(12);
    expect(leader.highWatermark).toBe(12);
  });

  test("HW-15 a replica that the controller took out of the ISR, caught up and unfenced, still counts", () => {
    const leader = caughtUpAt10LeaderAt20();
    leader.metadata({ isr: [1], partitionEpoch: 2 });
    expect(leader.isr).toEqual([1]);
    expect(leader.highWatermark).toBe(10);
  });

  test.each([
    { why: "fenced", brokers: [broker(1), broker(2, { isFenced: true })] },
    { why: "not alive", brokers: [broker(1)] },
    { why: "alive under another broker epoch", brokers: [broker(1), broker(2, { brokerEpoch: 200 })] },
  ])("HW-16 one that is $why does not", ({ brokers }) => {
    const leader = caughtUpAt10LeaderAt20();
    leader.brokers(...brokers);
    leader.metadata({ isr: [1], partitionEpoch: 2 });
    expect(leader.highWatermark).toBe(20);
  });

  test("HW-16 a replica about to join that is fenced later lets it go in that step, not at the next append", () => {
    const leader = caughtUpAt10LeaderAt20();
    leader.metadata({ isr: [1], partitionEpoch: 2 });
    expect(leader.brokers(broker(1), broker(2, { isFenced: true }))).toEqual([{ type: "highWatermark", offset: 20 }]);
  });

  test("a replica about to join that falls silent lets it go when the lag limit has passed", () => {
    const leader = caughtUpAt10LeaderAt20();
    leader.metadata({ isr: [1], partitionEpoch: 2 });
    expect(leader.tick(30_000)).toEqual([]);
    expect(leader.tick(30_001)).toEqual([{ type: "highWatermark", offset: 20 }]);
  });

  test("HW-17 it stands while the committed ISR is under min ISR, also when the pending one is not", () => {
    const leader = new Leader({ isr: [1, 2], logEndOffset: 10, epochStartOffset: 0, minIsr: 3 });
    leader.fetch(2, 10);
    expect(proposed(leader.fetch(3, 10))).toBe("1@101 2@102 3@103");
    expect(leader.maximalIsr).toEqual([1, 2, 3]);
    expect(leader.highWatermark).toBe(0);
    expect(leader.answer("NONE", { isr: [1, 2, 3] })).toEqual([
      { type: "isrChanged", isr: [1, 2, 3] },
      { type: "highWatermark", offset: 10 },
    ]);
  });

  test("HW-18 a member that may have joined counts before the controller has answered", () => {
    const leader = new Leader({ isr: [1, 2], logEndOffset: 8, epochStartOffset: 0, nowMs: 50_000 });
    leader.fetch(2, 8);
    expect(proposed(leader.fetch(3, 8))).toBe("1@101 2@102 3@103");
    leader.append(10);
    // Not by being caught up: it is silent for longer than the limit.
    leader.fetch(2, 10, { atMs: 100_000 });
    expect(leader.highWatermark).toBe(8);
    leader.brokers(broker(1), broker(2), broker(3, { isFenced: true }));
    expect(leader.highWatermark).toBe(8);
  });

  test("HW-19 a member that may have left counts until it has", () => {
    const leader = new Leader({ logEndOffset: 10 });
    leader.fetch(3, 5);
    leader.fetch(2, 10, { atMs: 30_001 });
    expect(leader.highWatermark).toBe(5);
    expect(proposed(leader.tick(30_001))).toBe("1@101 2@102");
    leader.fetch(2, 10);
    expect(leader.highWatermark).toBe(5);
    expect(leader.answer("NONE", { isr: [1, 2] })).toEqual([
      { type: "isrChanged", isr: [1, 2] },
      { type: "highWatermark", offset: 10 },
    ]);
  });

  test("HW-20 a refused shrink changes nothing: who was to leave still counts", () => {
    const leader = new Leader({ logEndOffset: 10 });
    leader.fetch(3, 5);
    leader.fetch(2, 10, { atMs: 30_001 });
    leader.tick(30_001);
    expect(leader.answer("INVALID_UPDATE_VERSION")).toEqual([]);
    expect(leader.state.isrState).toEqual({ type: "pendingShrink", isr: [1, 2, 3], removing: [3] });
    leader.fetch(2, 10);
    expect(leader.highWatermark).toBe(5);
  });

  test("HW-22 the fetch that proves a replica has the records moves it and completes the produce", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 2 });
    leader.produce(7, 1);
    // The answer to this fetch carries what highWatermark was before the step: 0.
    expect(leader.highWatermark).toBe(0);
    expect(leader.fetch(2, 2)).toEqual([
      { type: "highWatermark", offset: 2 },
      { type: "completeProduce", id: 7, error: "NONE" },
    ]);
  });

  test("HW-30 fetches at 5, 16 and 18, beside batch boundaries: never above what the replica holds", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 18 });
    for (const fetchOffset of [5, 16, 18]) {
      leader.fetch(2, fetchOffset);
      expect(leader.replica(2)?.logEndOffset).toBe(fetchOffset);
      expect(leader.highWatermark).toBe(fetchOffset);
    }
  });

  test("a replica that truncated fetches lower: its end goes down, the high watermark does not", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10 });
    leader.fetch(2, 8);
    leader.fetch(2, 5);
    expect(leader.replica(2)?.logEndOffset).toBe(5);
    expect(leader.highWatermark).toBe(8);
    leader.fetch(2, 9);
    expect(leader.highWatermark).toBe(9);
  });

  test("a log start above it takes it along", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10 });
    leader.fetch(2, 4);
    expect(leader.moveStart(6)).toEqual([{ type: "highWatermark", offset: 6 }]);
  });
});

describe("over flushed ends", () => {
  const options = { replicas: [1, 2], countsFlushedEnds: true } as const;

  test("the leader's own unsynced records do not count", () => {
    const leader = new Leader({ ...options, isr: [1] });
    expect(leader.append(10, 4)).toEqual([{ type: "highWatermark", offset: 4 }]);
    expect(leader.append(10, 10)).toEqual([{ type: "highWatermark", offset: 10 }]);
  });

  test("a replica's unsynced records do not count", () => {
    const leader = new Leader({ ...options, logEndOffset: 10 });
    leader.fetch(2, 10, { flushedEndOffset: 6 });
    expect(leader.highWatermark).toBe(6);
    leader.fetch(2, 10, { flushedEndOffset: 10 });
    expect(leader.highWatermark).toBe(10);
  });

  test("a flushed end that a replica does not tell keeps it where it is", () => {
    const leader = new Leader({ ...options, logEndOffset: 10, highWatermark: 3 });
    leader.fetch(2, 10, { flushedEndOffset: -1 });
    expect(leader.highWatermark).toBe(3);
  });

  test("a flushed end above the replica's own end is cut to that", () => {
    const leader = new Leader({ ...options, logEndOffset: 10 });
    leader.fetch(2, 5, { flushedEndOffset: 9 });
    expect(leader.highWatermark).toBe(5);
  });

  test("a replica joins only when what it has synced reaches high watermark and epoch start", () => {
    const leader = new Leader({ ...options, isr: [1], logEndOffset: 10, epochStartOffset: 10 });
    expect(leader.highWatermark).toBe(10);
    expect(proposed(leader.fetch(2, 10, { flushedEndOffset: 9 }))).toBeUndefined();
    expect(proposed(leader.fetch(2, 10, { flushedEndOffset: -1 }))).toBeUndefined();
    expect(proposed(leader.fetch(2, 10, { flushedEndOffset: 10 }))).toBe("1@101 2@102");
  });

  test("without flush: always flushed ends do not matter", () => {
    const leader = new Leader({ replicas: [1, 2] });
    leader.append(10, 0);
    leader.fetch(2, 10, { flushedEndOffset: -1 });
    expect(leader.highWatermark).toBe(10);
  });
});

describe("what the log tells", () => {
  test.each([
    { why: "ends lower", ends: [0, 9, 9], message: "never shrinks" },
    { why: "starts lower", ends: [1, 10, 10], message: "log start never falls" },
    { why: "is synced above its end", ends: [2, 10, 11], message: "flushed end <= log end offset" },
    { why: "starts above its end", ends: [11, 10, 10], message: "high watermark <= log end offset" },
  ])("a log that $why is a bug", ({ ends: [start = 0, end = 0, flushed = 0], message }) => {
    const leader = new Leader({ logStartOffset: 2, logEndOffset: 10 });
    leader.logStartOffset = start;
    expect(() => leader.append(end, flushed)).toThrow(message);
  });

  test("effects come in the order ISR, proposal, high watermark, completions", () => {
    const leader = new Leader({ isr: [1, 2], logEndOffset: 5, epochStartOffset: 0 });
    leader.fetch(3, 5);
    leader.answer("INELIGIBLE_REPLICA");
    leader.append(10);
    leader.produce(1, 9);
    leader.fetch(2, 10);
    expect(leader.highWatermark).toBe(5); // 3 was at the leader's end not long ago.
    expect(leader.fetch(3, 10).map(({ type }) => type)).toEqual(["alterPartition", "highWatermark", "completeProduce"]);
  });

  test("effects come in the order ISR, high watermark, completions", () => {
    const leader = new Leader({ isr: [1], logEndOffset: 10, epochStartOffset: 0, minIsr: 2 });
    leader.produce(1, 9);
    leader.fetch(2, 10);
    const effects = leader.answer("NONE", { isr: [1, 2] });
    expect(effects.map(({ type }) => type)).toEqual(["isrChanged", "highWatermark", "completeProduce"]);
  });
});

/** Broker 2 was at the leader's end when that was 10, at time 0; the leader has gone on to 20. */
function caughtUpAt10LeaderAt20(): Leader {
  const leader = new Leader({ replicas: [1, 2], logEndOffset: 10 });
  leader.fetch(2, 10);
  leader.append(20);
  return leader;
}
