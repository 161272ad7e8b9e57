import { toOffset } from "@tidemark/base";
import type { OffsetSpec } from "@tidemark/log";
import { encodeBatch } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { CONSUMER_ID, DEBUGGING_ID } from "./list-offset.ts";
import type { ListOffsetRequest } from "./list-offset.ts";
import { leader, stateOf } from "./partition.fixture.ts";
import type { Replica } from "./partition.fixture.ts";

const FOLLOWER_ID = 2;
const EPOCH = 5;
const NEXT_EPOCH = 6;
const NONE = "NONE -1";

/** Record `n` is made at `1000 + n` ms. */
function timed(offset: number, producer: Parameters<typeof encodeBatch>[1] = {}): Uint8Array {
  return encodeBatch(
    [{ key: null, value: new TextEncoder().encode(`r${offset}`), timestamp: 1000 + offset }],
    producer,
  );
}

async function append(
  replica: Replica,
  offset: number,
  producer: Parameters<typeof encodeBatch>[1] = {},
): Promise<void> {
  const options = { acks: 1, timeoutMs: 1000, origin: "local" } as const;
  expect(await replica.partition.produce(timed(offset, producer), options)).toMatchObject({ baseOffset: offset });
}

/** `error offset`, and `@epoch` where one is told. */
async function ask(replica: Replica, spec: OffsetSpec, more: Partial<ListOffsetRequest> = {}): Promise<string> {
  const answer = await replica.partition.listOffset({ spec, currentLeaderEpoch: -1, replicaId: CONSUMER_ID, ...more });
  return `${answer.error} ${answer.offset}${answer.leaderEpoch === -1 ? "" : `@${answer.leaderEpoch}`}`;
}

/** A leader with LEO 5 whose follower has fetched up to 2, as its high watermark says. */
async function leaderAtTwo(): Promise<Replica> {
  const replica = await leader([], { leaderEpoch: EPOCH });
  for (let offset = 0; offset < 5; offset += 1) await append(replica, offset);
  await fetchUpTo(replica, 2);
  expect([replica.log.logEndOffset, replica.partition.highWatermark]).toEqual([5, 2]);
  return replica;
}

async function fetchUpTo(replica: Replica, fetchOffset: number, currentLeaderEpoch = EPOCH): Promise<void> {
  expect((await replica.fetch({ fetchOffset, lastFetchedEpoch: EPOCH, currentLeaderEpoch })).error).toBe("NONE");
}

async function reelect(replica: Replica, isr: readonly number[] = [1, 2]): Promise<void> {
  await replica.partition.applyState(stateOf({ leaderEpoch: NEXT_EPOCH, partitionEpoch: 2, isr: [...isr] }));
}

describe("LO ListOffsets after an election", () => {
  test("LO-01 a leader with LEO 5 and HW 2, of a leadership that began at 0: a replica is told 5, a consumer 2", async () => {
    const replica = await leaderAtTwo();
    expect(await ask(replica, "latest", { replicaId: FOLLOWER_ID })).toBe("NONE 5@5");
    expect(await ask(replica, "latest")).toBe("NONE 2@5");
  });

  test("LO-02 LO-03 elected again at LEO 5 with HW 2: consumers are not told the end, replicas are, and the beginning all", async () => {
    const replica = await leaderAtTwo();
    await reelect(replica);
    expect(await ask(replica, "latest")).toBe("OFFSET_NOT_AVAILABLE -1");
    expect(await ask(replica, "latest", { isolation: "read_committed" })).toBe("OFFSET_NOT_AVAILABLE -1");
    expect(await ask(replica, "latest", { replicaId: FOLLOWER_ID })).toBe("NONE 5@6");
    expect(await ask(replica, "latest", { replicaId: DEBUGGING_ID })).toBe("NONE 5@6");
    for (const spec of ["earliest", "earliest-local"] as const) expect(await ask(replica, spec)).toBe("NONE 0@5");
  });

  test("LO-04 LO-05 then by time: a committed record is told; one behind, the largest time and none at all are to be asked for again", async () => {
    const replica = await leaderAtTwo();
    await reelect(replica);
    expect(await ask(replica, { timestamp: 1001 })).toBe("NONE 1@5");
    for (const timestamp of [1002, 1004, 9999])
      expect(await ask(replica, { timestamp })).toBe("OFFSET_NOT_AVAILABLE -1");
    expect(await ask(replica, "max-timestamp")).toBe("OFFSET_NOT_AVAILABLE -1");
    expect(await ask(replica, { timestamp: 1004 }, { replicaId: FOLLOWER_ID })).toBe("NONE 4@5");
    expect(await ask(replica, { timestamp: 9999 }, { replicaId: FOLLOWER_ID })).toBe(NONE);
  });

  test("LO-06 once the HW is 5: the end is told, and that there is no later record", async () => {
    const replica = await leaderAtTwo();
    await reelect(replica);
    await fetchUpTo(replica, 4, NEXT_EPOCH);
    expect([replica.partition.highWatermark, await ask(replica, "latest")]).toEqual([4, "OFFSET_NOT_AVAILABLE -1"]);
    await fetchUpTo(replica, 5, NEXT_EPOCH);
    expect(await ask(replica, "latest")).toBe("NONE 5@6");
    expect(await ask(replica, { timestamp: 9999 })).toBe(NONE);
    expect(await ask(replica, "max-timestamp")).toBe("NONE 4@5");
  });

  test("LO-07 an epoch that is lower, one that is higher, a follower; without one the leader answers", async () => {
    const replica = await leaderAtTwo();
    await reelect(replica);
    for (const spec of ["earliest", "latest", "max-timestamp", { timestamp: 0 }] as const) {
      expect(await ask(replica, spec, { currentLeaderEpoch: EPOCH })).toBe("FENCED_LEADER_EPOCH -1");
      expect(await ask(replica, spec, { currentLeaderEpoch: NEXT_EPOCH + 1 })).toBe("UNKNOWN_LEADER_EPOCH -1");
    }
    expect(await ask(replica, "earliest", { currentLeaderEpoch: NEXT_EPOCH })).toBe("NONE 0@5");
    await replica.partition.applyState(stateOf({ leader: 2, leaderEpoch: NEXT_EPOCH + 1, partitionEpoch: 3 }));
    for (const currentLeaderEpoch of [-1, NEXT_EPOCH + 1])
      expect(await ask(replica, "latest", { currentLeaderEpoch })).toBe("NOT_LEADER_OR_FOLLOWER -1");
    expect(await ask(replica, "latest", { currentLeaderEpoch: EPOCH })).toBe("FENCED_LEADER_EPOCH -1");
  });

  test("LO-07 who debugs asks any replica, up to its log end, and is fenced as others are", async () => {
    const replica = await leaderAtTwo();
    await replica.partition.applyState(stateOf({ leader: 2, leaderEpoch: NEXT_EPOCH, partitionEpoch: 2 }));
    const debugs = { replicaId: DEBUGGING_ID };
    expect(await ask(replica, "latest", debugs)).toBe("NONE 5@6");
    expect(await ask(replica, { timestamp: 1004 }, debugs)).toBe("NONE 4@5");
    expect(await ask(replica, "latest", { ...debugs, currentLeaderEpoch: EPOCH })).toBe("FENCED_LEADER_EPOCH -1");
  });
});

describe("what of the log a consumer is told", () => {
  test("in quiet times a record behind the HW is none, and a committed one has the epoch of its batch", async () => {
    const replica = await leaderAtTwo();
    expect(await ask(replica, { timestamp: 1002 })).toBe(NONE);
    expect(await ask(replica, "max-timestamp")).toBe(NONE);
    await fetchUpTo(replica, 5);
    await reelect(replica);
    await append(replica, 5);
    await fetchUpTo(replica, 5, NEXT_EPOCH);
    expect(await ask(replica, { timestamp: 1004 })).toBe("NONE 4@5");
    expect(await ask(replica, "latest")).toBe("NONE 5@6");
  });

  test("read_committed ends where the first open transaction begins; read_uncommitted at the HW", async () => {
    const replica = await leader([], { isr: [1], leaderEpoch: EPOCH });
    await append(replica, 0);
    await append(replica, 1, { producerId: 7, producerEpoch: 0, baseSequence: 0, transactional: true });
    await append(replica, 2);
    const committed = { isolation: "read_committed" } as const;
    expect([await ask(replica, "latest"), await ask(replica, "latest", committed)]).toEqual(["NONE 3@5", "NONE 1@5"]);
    expect(await ask(replica, { timestamp: 1001 }, committed)).toBe(NONE);
    expect(await ask(replica, { timestamp: 1001 })).toBe("NONE 1@5");
    expect(await ask(replica, { timestamp: 1000 }, committed)).toBe("NONE 0@5");
  });

  test("a deleted beginning moves `earliest`, and its epoch with it", async () => {
    const replica = await leaderAtTwo();
    await replica.log.deleteRecords(toOffset(2), toOffset(2));
    expect(await ask(replica, "earliest")).toBe("NONE 2@5");
    expect(await ask(replica, { timestamp: 0 })).toBe(NONE);
  });

  test("a lookup that the role changed beside is no answer", async () => {
    const replica = await leaderAtTwo();
    const asked = ask(replica, { timestamp: 1001 });
    await replica.partition.applyState(stateOf({ leader: 2, leaderEpoch: NEXT_EPOCH, partitionEpoch: 2 }));
    expect(await asked).toBe("NOT_LEADER_OR_FOLLOWER -1");
  });

  test("a disk that cannot be read is its error", async () => {
    const replica = await leaderAtTwo();
    replica.environment.files.inject({ operation: "read", path: ".log", code: "EIO", count: 99 });
    replica.environment.files.inject({ operation: "open", path: ".log", code: "EIO", count: 99 });
    expect(await ask(replica, { timestamp: 1001 })).toBe("KAFKA_STORAGE_ERROR -1");
  });
});
