import { describe, expect, test } from "vitest";
import { completed, Leader } from "./leader.fixture.ts";

// Ids MI-… are the conformance table's; what needs a log or a timer stands elsewhere: docs/conformance.md.

describe("before the append", () => {
  test("MI-01 under min ISR acks -1 is refused, 1 and 0 are not", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1], minIsr: 2 });
    expect(leader.state.judgeProduce(-1)).toBe("NOT_ENOUGH_REPLICAS");
    expect(leader.state.judgeProduce(1)).toBe("NONE");
    expect(leader.state.judgeProduce(0)).toBe("NONE");
  });

  test("MI-01 a member that is about to join does not help", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1], minIsr: 2 });
    leader.fetch(2, 0);
    expect(leader.maximalIsr).toEqual([1, 2]);
    expect(leader.state.judgeProduce(-1)).toBe("NOT_ENOUGH_REPLICAS");
  });

  test("MI-02 a min ISR above the number of replicas means all of them", () => {
    expect(new Leader({ minIsr: 5 }).state.judgeProduce(-1)).toBe("NONE");
    expect(new Leader({ minIsr: 5, isr: [1, 2] }).state.judgeProduce(-1)).toBe("NOT_ENOUGH_REPLICAS");
  });

  test.each([2, -2, 0.5, Number.NaN])("MI-03 acks %s is refused", (acks) => {
    expect(new Leader().state.judgeProduce(acks)).toBe("INVALID_REQUIRED_ACKS");
  });

  test("MI-10 at and under min ISR", () => {
    const atMin = new Leader({ replicas: [1, 2], isr: [1] }).state;
    expect([atMin.isAtMinIsr, atMin.isUnderMinIsr]).toEqual([true, false]);
    const under = new Leader({ replicas: [1, 2], isr: [1], minIsr: 2 }).state;
    expect([under.isAtMinIsr, under.isUnderMinIsr]).toEqual([false, true]);
    const above = new Leader().state;
    expect([above.isAtMinIsr, above.isUnderMinIsr]).toEqual([false, false]);
  });
});

describe("after the append", () => {
  test("MI-04 a batch at 10 to 12 is complete at high watermark 13, not at 12", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10 });
    leader.append(13);
    expect(leader.produce(1, 12)).toEqual([]);
    leader.fetch(2, 12);
    expect(leader.highWatermark).toBe(12);
    expect(leader.state.waitingProduceCount).toBe(1);
    expect(completed(leader.fetch(2, 13))).toEqual(["1:NONE"]);
    expect(leader.state.waitingProduceCount).toBe(0);
  });

  test("a duplicate of a batch that is committed is complete at once", () => {
    const leader = new Leader({ isr: [1], logEndOffset: 13 });
    expect(leader.produce(1, 12)).toEqual([{ type: "completeProduce", id: 1, error: "NONE" }]);
  });

  test("MI-05 the ISR fell under the minimum after the high watermark had passed", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 5, minIsr: 2 });
    leader.fetch(2, 5);
    leader.metadata({ isr: [1], partitionEpoch: 2 });
    expect(completed(leader.produce(1, 4))).toEqual(["1:NOT_ENOUGH_REPLICAS_AFTER_APPEND"]);
  });

  test("MI-05 a member that is about to join is enough, as what was acknowledged is in the maximal ISR", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 5, minIsr: 2 });
    leader.fetch(2, 5);
    leader.metadata({ isr: [1], partitionEpoch: 2 });
    leader.fetch(2, 5);
    expect(leader.maximalIsr).toEqual([1, 2]);
    expect(completed(leader.produce(1, 4))).toEqual(["1:NONE"]);
  });

  test("MI-06 with the high watermark held by min ISR it waits; given up, it is not completed when that moves on", () => {
    const leader = new Leader({ replicas: [1, 2], isr: [1], minIsr: 2 });
    leader.append(3);
    expect(leader.produce(1, 2)).toEqual([]);
    expect(leader.produce(2, 2)).toEqual([]);
    expect(leader.step({ type: "abandon", id: 1 })).toEqual([]);
    leader.fetch(2, 3);
    expect(completed(leader.answer("NONE", { isr: [1, 2] }))).toEqual(["2:NONE"]);
    expect(leader.step({ type: "abandon", id: 1 })).toEqual([]);
  });

  test.each(["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR"] as const)(
    "MI-07 MI-08 BR-040 the leadership ends with %s: whoever waits hears it, lowest offset first, and nobody hears success",
    (error) => {
      const leader = new Leader({ replicas: [1, 2], logEndOffset: 10 });
      leader.produce(1, 9);
      leader.produce(2, 4);
      const effects: Parameters<typeof leader.state.abandonAll>[1] = [];
      leader.state.abandonAll(error, effects);
      expect(completed(effects)).toEqual([`2:${error}`, `1:${error}`]);
      // Held-back answers of the old leadership come in now.
      expect(leader.fetch(2, 10)).toEqual([]);
      expect(leader.highWatermark).toBe(0);
      expect(leader.append(12)).toEqual([]);
      expect(leader.tick(100_000)).toEqual([]);
      // An append that was under way when the leadership ended.
      expect(completed(leader.produce(3, 11))).toEqual([`3:${error}`]);
      expect(leader.state.judgeProduce(-1)).toBe(error);
      expect(leader.state.judgeFetch({ replicaId: 2, brokerEpoch: 102, hasLeaderEpoch: true })).toBe(error);
      effects.length = 0;
      leader.state.abandonAll("NOT_LEADER_OR_FOLLOWER", effects);
      expect(effects).toEqual([]);
    },
  );

  test("they are completed by offset, equal offsets as they came, whatever order they came in", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 10 });
    for (const [id, lastOffset] of [
      [1, 7],
      [2, 3],
      [3, 9],
      [4, 3],
      [5, 7],
    ] as const)
      leader.produce(id, lastOffset);
    expect(completed(leader.fetch(2, 4))).toEqual(["2:NONE", "4:NONE"]);
    leader.produce(6, 4);
    expect(completed(leader.fetch(2, 8))).toEqual(["6:NONE", "1:NONE", "5:NONE"]);
    expect(completed(leader.fetch(2, 10))).toEqual(["3:NONE"]);
  });

  test("many wait, some give up, all others are completed once and in order", () => {
    const leader = new Leader({ replicas: [1, 2], logEndOffset: 1000 });
    for (let id = 0; id < 1000; id += 1) leader.produce(id, id);
    for (let id = 0; id < 1000; id += 3) leader.step({ type: "abandon", id });
    const seen: string[] = [];
    for (let end = 0; end <= 1000; end += 7) seen.push(...completed(leader.fetch(2, end)));
    seen.push(...completed(leader.fetch(2, 1000)));
    expect(seen).toEqual(
      Array.from({ length: 1000 }, (_, id) => id)
        .filter((id) => id % 3 !== 0)
        .map((id) => `${id}:NONE`),
    );
    expect(leader.state.waitingProduceCount).toBe(0);
  });

  test("an id that waits twice is a bug", () => {
    const leader = new Leader({ logEndOffset: 10 });
    leader.produce(1, 9);
    expect(() => leader.produce(1, 9)).toThrow("a produce waits once");
  });
});
