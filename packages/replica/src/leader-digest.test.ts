import { expect, test } from "vitest";
import { broker, Leader } from "./leader.fixture.ts";

/** ISR {1, 2}; broker 3 proposed. */
function proposing(): Leader {
  const leader = new Leader({ isr: [1, 2], logEndOffset: 10, epochStartOffset: 0, nowMs: 1000 });
  leader.fetch(3, 10);
  return leader;
}

test("equal histories have equal digests", () => {
  expect(proposing().state.digest()).toBe(proposing().state.digest());
});

test.each<{ what: string; change: (leader: Leader) => unknown }>([
  { what: "time", change: (leader) => leader.tick(1001) },
  { what: "the log's end", change: (leader) => leader.append(11, 10) },
  { what: "the flushed end", change: (leader) => leader.append(10, 9) },
  { what: "the log's start, and the high watermark with it", change: (leader) => leader.moveStart(1) },
  { what: "a replica's end", change: (leader) => leader.fetch(2, 0) },
  { what: "a replica's flushed end", change: (leader) => leader.fetch(3, 10, { flushedEndOffset: 8 }) },
  { what: "a replica's broker epoch", change: (leader) => leader.fetch(3, 10, { brokerEpoch: 500 }) },
  { what: "a broker", change: (leader) => leader.brokers(broker(1), broker(2, { isFenced: true }), broker(3)) },
  {
    what: "a broker beside the assignment",
    change: (leader) => leader.brokers(...[1, 2, 3, 4].map((id) => broker(id))),
  },
  {
    what: "the own broker epoch",
    change: (leader) => leader.brokers(broker(1, { brokerEpoch: 900 }), broker(2), broker(3)),
  },
  { what: "a produce that waits", change: (leader) => leader.produce(1, 9) },
  { what: "an attempt that failed", change: (leader) => leader.answer("NETWORK_EXCEPTION") },
  { what: "that no answer is waited for", change: (leader) => leader.answer("INVALID_UPDATE_VERSION") },
  { what: "that the proposal is over", change: (leader) => leader.answer("INELIGIBLE_REPLICA") },
  { what: "the partition epoch", change: (leader) => leader.metadata({ isr: [1, 2], partitionEpoch: 2 }) },
  { what: "the end of the leadership", change: (leader) => leader.state.abandonAll("NOT_LEADER_OR_FOLLOWER", []) },
])("the digest shows $what", ({ change }) => {
  const leader = proposing();
  const before = leader.state.digest();
  change(leader);
  expect(leader.state.digest()).not.toBe(before);
});

test("the digest shows how many proposals there were, as their numbers go on", () => {
  const once = proposing();
  once.answer("INELIGIBLE_REPLICA");
  const twice = proposing();
  twice.answer("INELIGIBLE_REPLICA");
  twice.fetch(3, 10);
  twice.answer("INELIGIBLE_REPLICA");
  expect(twice.state.digest()).not.toBe(once.state.digest());
});
