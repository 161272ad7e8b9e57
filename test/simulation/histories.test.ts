import { mutantOf } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { Checker } from "@tidemark/simulation";
import { Cluster, CONTROLLER_ID, NAME } from "@tidemark/simulation";
import type { ClusterOptions } from "@tidemark/simulation";
import { withMutant } from "./mutated.ts";
import { STORIES } from "@tidemark/simulation";
import type { Outcome } from "@tidemark/simulation";

/** Runs a history with the checker looking on, between any two events. */
async function history(options: Omit<ClusterOptions, "seed">, body: (cluster: Cluster) => Promise<void>) {
  const cluster = new Cluster({ seed: 7, ...options });
  const checker = new Checker(cluster);
  await cluster.run(async () => {
    await cluster.startAll();
    await body(cluster);
  });
  expect(checker.checks).toBeGreaterThan(0);
  return checker;
}

function withBug(id: string, story: keyof typeof STORIES): Promise<Outcome> {
  return withMutant(mutantOf(id), "stories.ts", (module) => (module as { STORIES: typeof STORIES }).STORIES[story]());
}

function view(cluster: Cluster, brokerId: number): string {
  const { partition, log } = cluster.node(brokerId);
  return `${partition?.highWatermark}/${log?.logEndOffset}`;
}

function remoteEnd(cluster: Cluster, leader: number, brokerId: number): number | undefined {
  const replicas = cluster.partition(leader).leaderState?.replicas ?? [];
  return replicas.find((replica) => replica.brokerId === brokerId)?.logEndOffset;
}

async function acknowledged(cluster: Cluster, brokerId: number, ...values: string[]): Promise<void> {
  for (const value of values) expect((await cluster.produce(brokerId, [value])).error).toBe("NONE");
}

async function expectLogs(cluster: Cluster, values: readonly string[]): Promise<void> {
  const expected = values.map((value, offset) => `${offset}:${value}`);
  for (const brokerId of cluster.nodes.keys()) expect(await cluster.records(brokerId)).toEqual(expected);
}

/** Fetches that wait at a leader are answered by then, and no new ones come. */
async function holdBack(cluster: Cluster, ...brokerIds: number[]): Promise<void> {
  for (const brokerId of brokerIds) cluster.node(brokerId).manager?.pauseFetching();
  await cluster.wait(1000);
}

describe("how a record becomes committed", () => {
  test("T0 to T3: log end, remote log end and high watermark of a leader and its follower, step by step", async () => {
    await history({ brokers: 2, minInsyncReplicas: 1 }, async (cluster) => {
      await cluster.until("the follower has fetched", () => remoteEnd(cluster, 1, 2) === 0);
      const held = cluster.network.hold({ from: 1, to: 2, kind: "fetch", type: "response" });
      await cluster.wait(600);
      const table: string[] = [];
      const note = (step: string): void => {
        table.push(`${step} leader ${view(cluster, 1)}/${remoteEnd(cluster, 1, 2)} follower ${view(cluster, 2)}`);
      };
      note("T0");
      held.release();
      await cluster.wait(10);
      const answer = cluster.network.hold({ from: 1, to: 2, kind: "fetch", type: "response" });
      const produced = cluster.produce(1, ["m0"]);
      await cluster.wait(50);
      note("T1");
      cluster.node(2).manager?.pauseFetching();
      answer.release();
      await cluster.wait(50);
      note("T2");
      cluster.node(2).manager?.resumeFetching();
      expect((await produced).error).toBe("NONE");
      note("T3");
      await cluster.until("the follower is told", () => view(cluster, 2) === "1/1");
      note("T4");
      expect(table).toEqual([
        "T0 leader 0/0/0 follower 0/0",
        "T1 leader 0/1/0 follower 0/0",
        "T2 leader 0/1/0 follower 0/1",
        // The high watermark moves with the fetch that proves it, and the follower learns it from the answer.
        "T3 leader 1/1/1 follower 0/1",
        "T4 leader 1/1/1 follower 1/1",
      ]);
    });
  });

  test("three replicas take writes, and all of them hold the same", async () => {
    await history({}, async (cluster) => {
      const values = Array.from({ length: 20 }, (_, at) => `r${at}`);
      await acknowledged(cluster, cluster.leader() ?? 0, ...values);
      await cluster.converged();
      await expectLogs(cluster, values);
      expect(cluster.truncations).toEqual([]);
    });
  });

  test("min.insync.replicas: with too few in the ISR acks all is refused, acks 1 is taken and stays invisible", async () => {
    await history({ minInsyncReplicas: 2 }, async (cluster) => {
      await acknowledged(cluster, 1, "a");
      await cluster.kill(2);
      await cluster.kill(3);
      await cluster.until("the ISR is the leader alone", () => cluster.partition(1).leaderState?.isr.length === 1);
      expect(await cluster.produce(1, ["b"])).toMatchObject({ error: "NOT_ENOUGH_REPLICAS", baseOffset: -1 });
      expect(await cluster.produce(1, ["c"], { acks: 1 })).toMatchObject({ error: "NONE", baseOffset: 1 });
      await cluster.wait(30_000);
      expect(view(cluster, 1)).toBe("1/2");
      await cluster.start(2);
      await cluster.until("it is committed with two", () => view(cluster, 1) === "2/2");
      await cluster.start(3);
      await acknowledged(cluster, 1, "d");
      await cluster.converged();
      await expectLogs(cluster, ["a", "c", "d"]);
    });
  });

  test("a follower that lags leaves the ISR, holds nobody up then, and rejoins when it has caught up", async () => {
    await history({ replicaLagTimeMaxMs: 4000 }, async (cluster) => {
      await acknowledged(cluster, 1, "a");
      await holdBack(cluster, 3);
      const waiting = cluster.produce(1, ["b"], { timeoutMs: 20_000 });
      await cluster.wait(300);
      expect([view(cluster, 1), cluster.decided?.isr]).toEqual(["1/2", [1, 2, 3]]);
      expect((await waiting).error).toBe("NONE");
      expect(cluster.decided).toMatchObject({ isr: [1, 2], leader: 1, leaderEpoch: 0, partitionEpoch: 1 });
      await acknowledged(cluster, 1, "c");
      cluster.node(3).manager?.resumeFetching();
      await cluster.converged();
      expect(cluster.decided).toMatchObject({ isr: [1, 2, 3], leaderEpoch: 0, partitionEpoch: 2 });
      await expectLogs(cluster, ["a", "b", "c"]);
    });
  });
});

describe("a follower cuts by epochs, never by its high watermark", () => {
  test("KIP-101 scenario 1, with epochs: a record acknowledged before two failovers is there after them", async () => {
    const { acknowledged, logs, truncations } = await STORIES.lossAfterTwoFailovers();
    expect(acknowledged).toEqual(["0:m0", "1:m1", "2:m2"]);
    expect(logs).toEqual([acknowledged, acknowledged, acknowledged]);
    expect(truncations).toEqual([]);
  });

  test("KIP-101 scenario 1, with high-watermark truncation (M01): the acknowledged record is lost", async () => {
    const { acknowledged, logs } = await withBug("M01", "lossAfterTwoFailovers");
    expect(acknowledged).toEqual(["0:m0", "1:m1", "1:m2"]);
    expect(logs).toEqual([
      ["0:m0", "1:m2"],
      ["0:m0", "1:m2"],
      ["0:m0", "1:m2"],
    ]);
  });

  test("KIP-101 scenario 2, with epochs: the logs agree after one replica lost its unsynced tail and led", async () => {
    const { logs, truncations } = await STORIES.divergenceAfterPowerLoss();
    expect(logs).toEqual([
      ["0:m0", "1:mY"],
      ["0:m0", "1:mY"],
    ]);
    expect(truncations).toEqual(["1: 2 -> 1 (epochAnswer)"]);
  });

  test("KIP-101 scenario 2, with high-watermark truncation (M01): offset 1 differs for ever", async () => {
    const { logs } = await withBug("M01", "divergenceAfterPowerLoss");
    expect(logs).toEqual([
      ["0:m0", "1:m1"],
      ["0:m0", "1:mY"],
    ]);
  });

  test("KIP-279 fast failover, with rounds: an epoch that the leader never had goes, to the last common record", async () => {
    const { logs, truncations } = await STORIES.fastFailover();
    const expected = ["0:a0", "1:a1", "2:x2", "3:x3", "4:z4", "5:z5"];
    expect(logs).toEqual([expected, expected]);
    expect(truncations).toEqual(["2: 4 -> 2 (epochAnswer)"]);
  });

  test("KIP-279 fast failover, when a leader answers its log end for an epoch that it lacks (M02): the logs differ", async () => {
    const { logs } = await withBug("M02", "fastFailover");
    expect(logs).toEqual([
      ["0:a0", "1:a1", "2:x2", "3:x3", "4:z4", "5:z5"],
      ["0:a0", "1:a1", "2:y2", "3:y3", "4:z4", "5:z5"],
    ]);
  });
});

describe("a leader is lost", () => {
  test("a leader killed while it holds what nobody else has: exactly that is cut when it returns, twice in a row", async () => {
    await history({}, async (cluster) => {
      await acknowledged(cluster, 1, "a", "b");
      await cluster.converged();
      await holdBack(cluster, 2, 3);
      for (const value of ["only 1", "only 1 too"])
        expect((await cluster.produce(1, [value], { acks: 1 })).error).toBe("NONE");
      await cluster.kill(1);
      for (const brokerId of [2, 3]) cluster.node(brokerId).manager?.resumeFetching();
      await cluster.leads(2);
      await acknowledged(cluster, 2, "c");
      await cluster.start(1);
      await cluster.converged();
      await expectLogs(cluster, ["a", "b", "c"]);

      await holdBack(cluster, 1, 3);
      await cluster.produce(2, ["only 2"], { acks: 1 });
      await cluster.kill(2);
      for (const brokerId of [1, 3]) cluster.node(brokerId).manager?.resumeFetching();
      await cluster.leads(1);
      await acknowledged(cluster, 1, "d");
      await cluster.start(2);
      await cluster.converged();
      await expectLogs(cluster, ["a", "b", "c", "d"]);
      expect(cluster.truncations).toMatchObject([
        { brokerId: 1, fromOffset: 4, toOffset: 2, cause: "epochAnswer" },
        { brokerId: 2, fromOffset: 4, toOffset: 3, cause: "epochAnswer" },
      ]);
      expect(cluster.epochs(3)).toBe("0@0 1@2 2@3");
    });
  });

  test("a zombie leader, cut off, takes acks 1 and acknowledges no acks all; it wakes, is fenced, and loses exactly its tail", async () => {
    await history({ sessionTimeoutMs: 3000 }, async (cluster) => {
      await acknowledged(cluster, 1, "a", "b");
      await cluster.converged();
      for (const other of [2, 3, CONTROLLER_ID]) cluster.network.partition(1, other);
      const zombieAcks = cluster.produce(1, ["zombie all"], { timeoutMs: 30_000 });
      expect((await cluster.produce(1, ["zombie one"], { acks: 1 })).error).toBe("NONE");
      await cluster.leads(2);
      await acknowledged(cluster, 2, "c", "d", "e", "f");
      expect(await cluster.produce(1, ["zombie two"], { acks: 1 })).toMatchObject({ error: "NONE", baseOffset: 4 });
      expect(await cluster.produce(1, ["zombie all too"], { timeoutMs: 500 })).toMatchObject({
        error: "REQUEST_TIMED_OUT",
      });
      expect([cluster.partition(1).role, cluster.partition(1).leaderEpoch, view(cluster, 1)]).toEqual([
        "leader",
        0,
        "2/6",
      ]);
      cluster.network.heal();
      expect((await zombieAcks).error).toBe("NOT_LEADER_OR_FOLLOWER");
      await cluster.converged();
      await expectLogs(cluster, ["a", "b", "c", "d", "e", "f"]);
      expect(cluster.truncations).toMatchObject([{ brokerId: 1, fromOffset: 6, toOffset: 2, highWatermark: 2 }]);
    });
  });

  test("a zombie leader that stood still: its overdue time-outs fire, its ISR changes are refused, nothing is acknowledged", async () => {
    await history({ sessionTimeoutMs: 3000, replicaLagTimeMaxMs: 2000 }, async (cluster) => {
      await acknowledged(cluster, 1, "a");
      await cluster.converged();
      await holdBack(cluster, 2, 3);
      const waiting = cluster.produce(1, ["zombie"], { timeoutMs: 20_000 });
      await cluster.wait(50);
      cluster.pause(1);
      await cluster.leads(2);
      for (const brokerId of [2, 3]) cluster.node(brokerId).manager?.resumeFetching();
      await acknowledged(cluster, 2, "b");
      await cluster.wait(10_000);
      cluster.resume(1);
      expect((await waiting).error).toMatch(/^(NOT_LEADER_OR_FOLLOWER|REQUEST_TIMED_OUT)$/u);
      await cluster.converged();
      await expectLogs(cluster, ["a", "b"]);
      expect(cluster.truncations).toMatchObject([{ brokerId: 1, fromOffset: 2, toOffset: 1 }]);
    });
  });

  test("a fetch that waits at the leader counts as a sign of life once, when it came, and not again when it is answered", async () => {
    await history({ replicaLagTimeMaxMs: 60_000, manager: { fetchMaxWaitMs: 10_000 } }, async (cluster) => {
      await acknowledged(cluster, 1, "a");
      await cluster.converged(30_000);
      const fetchedMs = (): number | undefined =>
        cluster.partition(1).leaderState?.replicas.find(({ brokerId }) => brokerId === 3)?.lastFetchMs;
      const before = fetchedMs();
      await cluster.kill(3, { isTold: false });
      await cluster.wait(300);
      // The dead process's fetch still waits at the leader; this answers it.
      await cluster.produce(1, ["b"], { acks: 1 });
      await cluster.wait(100);
      expect(view(cluster, 1)).toBe("1/2");
      expect(fetchedMs()).toBe(before);
      await cluster.start(3);
      await cluster.converged();
    });
  });

  test("a follower that restarts cuts nothing, catches up and rejoins", async () => {
    await history({}, async (cluster) => {
      await acknowledged(cluster, 1, "a", "b");
      await cluster.kill(3);
      await acknowledged(cluster, 1, "c");
      await cluster.start(3);
      await cluster.converged();
      await cluster.shutDown(2);
      await acknowledged(cluster, 1, "d");
      await cluster.start(2);
      await cluster.converged();
      await expectLogs(cluster, ["a", "b", "c", "d"]);
      expect(cluster.truncations).toEqual([]);
      expect(cluster.decided).toMatchObject({ leader: 1, leaderEpoch: 0 });
    });
  });
});

describe("a replica that lost its tail is found out (D15)", () => {
  test("its machine lost what was not synced: it leaves the ISR before anybody is elected, though it is the last member", async () => {
    let checker: Checker | undefined;
    await history({}, async (cluster) => {
      checker = new Checker(cluster);
      await cluster.kill(3);
      await acknowledged(cluster, 1, "a", "b", "c");
      checker.crashes(2, true);
      await cluster.powerCut(2, "all", { isTold: false });
      checker.crashes(1, false);
      await cluster.kill(1);
      // As far as the controller knows 2 lives, and holds everything.
      expect(cluster.decided).toMatchObject({ leader: 2, isr: [2] });
      await cluster.start(2);
      await cluster.until("2 is registered", () => (cluster.node(2).manager?.brokerEpoch ?? -1) > 0);
      expect(cluster.decided).toMatchObject({ leader: -1, isr: [] });
      await cluster.wait(20_000);
      expect([cluster.decided?.leader, cluster.node(2).partition?.role, view(cluster, 2)]).toEqual([-1, "none", "0/0"]);
      expect((await cluster.produce(2, ["lost"], { acks: 1 })).error).toBe("NOT_LEADER_OR_FOLLOWER");
      // Broker 1 has everything, and somebody says so.
      await cluster.start(1);
      await cluster.until("1 is registered", () => (cluster.node(1).manager?.brokerEpoch ?? -1) > 0);
      await cluster.controller?.electUncleanly(NAME, 1);
      await cluster.leads(1);
      await cluster.start(3);
      await cluster.converged();
      await expectLogs(cluster, ["a", "b", "c"]);
    });
  });

  test("only its process died: as the last member of the ISR it leads again, with everything", async () => {
    await history({ minInsyncReplicas: 1 }, async (cluster) => {
      await acknowledged(cluster, 1, "a", "b", "c");
      for (const brokerId of [2, 3, 1]) await cluster.kill(brokerId);
      expect(cluster.decided).toMatchObject({ leader: -1, isr: [1] });
      for (const brokerId of [3, 2]) await cluster.start(brokerId);
      await cluster.wait(5000);
      expect(cluster.decided).toMatchObject({ leader: -1, isr: [1] });
      await cluster.start(1);
      await cluster.leads(1);
      await cluster.converged();
      await expectLogs(cluster, ["a", "b", "c"]);
    });
  });

  test("it stopped cleanly before its machine was switched off: nothing can be lost, and it leads again", async () => {
    await history({ minInsyncReplicas: 1 }, async (cluster) => {
      await acknowledged(cluster, 1, "a", "b", "c");
      await cluster.kill(2);
      await cluster.kill(3);
      await cluster.shutDown(1);
      await cluster.powerCut(1, "all");
      expect(cluster.decided).toMatchObject({ leader: -1, isr: [1] });
      await cluster.start(1);
      await cluster.leads(1);
      expect(await cluster.records(1)).toEqual(["0:a", "1:b", "2:c"]);
      for (const brokerId of [2, 3]) await cluster.start(brokerId);
      await cluster.converged();
    });
  });
});

describe("a disk fails", () => {
  const failSync = (cluster: Cluster, brokerId: number): void => {
    const { files } = cluster.node(brokerId).environment;
    files.inject({ operation: "sync", path: /\.log$/u, code: "EIO", pages: "old" });
  };

  test("under a leader: another leads at once, though its process goes on; started again it is in sync again", async () => {
    await history({ sessionTimeoutMs: 60_000, manager: { flushIntervalMs: 1000 } }, async (cluster) => {
      await acknowledged(cluster, 1, "a");
      await cluster.converged();
      await acknowledged(cluster, 1, "b");
      failSync(cluster, 1);
      await cluster.until("another leads", () => cluster.leader() === 2, 3000);
      await acknowledged(cluster, 2, "c");
      // At the end of the log of its leader, where it needs no disk, it would be taken for in sync.
      await cluster.wait(20_000);
      expect(cluster.decided).toMatchObject({ leader: 2, isr: [2, 3] });
      await cluster.kill(1);
      await cluster.start(1);
      await cluster.converged();
      await expectLogs(cluster, ["a", "b", "c"]);
    });
  });

  test("under the last in-sync replica, and its process is started again: it is not trusted with what others may have whole", async () => {
    const cluster = new Cluster({ seed: 7, manager: { flushIntervalMs: 1000 } });
    await cluster.run(async () => {
      await cluster.startAll();
      await acknowledged(cluster, 1, "a", "b");
      failSync(cluster, 1);
      await cluster.kill(3);
      await cluster.kill(2);
      expect(cluster.decided).toMatchObject({ leader: 1, isr: [1] });
      await cluster.until("nobody is trusted", () => cluster.decided?.isr.length === 0, 3000);
      await cluster.kill(1);
      await cluster.start(1);
      await cluster.wait(5000);
      expect([cluster.decided?.leader, await cluster.records(1)]).toEqual([-1, []]);
      for (const brokerId of [2, 3]) await cluster.start(brokerId);
      await cluster.until("2 is registered", () => (cluster.node(2).manager?.brokerEpoch ?? -1) > 0);
      await cluster.controller?.electUncleanly(NAME, 2);
      await cluster.converged();
      await expectLogs(cluster, ["a", "b"]);
    });
  });
});

describe("the controller stands still", () => {
  test("for several sessions: records are committed meanwhile, and when it wakes nobody is fenced and nobody elected", async () => {
    await history({ sessionTimeoutMs: 3000 }, async (cluster) => {
      await acknowledged(cluster, 1, "a");
      await cluster.converged();
      const before = cluster.decided;
      cluster.pauseController();
      await cluster.wait(20_000);
      await acknowledged(cluster, 1, "b");
      await cluster.resumeController();
      await cluster.wait(10_000);
      expect(cluster.decided).toEqual(before);
      expect(cluster.controller?.state.brokers.map(({ isFenced }) => isFenced)).toEqual([false, false, false]);
      await acknowledged(cluster, 1, "c");
      await cluster.converged();
      await expectLogs(cluster, ["a", "b", "c"]);
    });
  });

  test("and a leader dies meanwhile: it is fenced a session after the controller woke, and what was committed is led on", async () => {
    await history({ sessionTimeoutMs: 3000 }, async (cluster) => {
      await acknowledged(cluster, 1, "a");
      await cluster.converged();
      cluster.pauseController();
      await cluster.kill(1, { isTold: false });
      await cluster.wait(20_000);
      await cluster.resumeController();
      await cluster.wait(2500);
      expect(cluster.decided).toMatchObject({ leader: 1, leaderEpoch: 0 });
      await cluster.wait(2000);
      expect(cluster.decided).toMatchObject({ leader: 2, leaderEpoch: 1, isr: [2, 3] });
      await acknowledged(cluster, 2, "b");
      await cluster.start(1);
      await cluster.converged();
      await expectLogs(cluster, ["a", "b"]);
    });
  });
});

describe("the controller's answers are lost or late", () => {
  test("the answer to a shrink is lost: the leader asks again, and what it did not know it learns", async () => {
    await history({ replicaLagTimeMaxMs: 1000, manager: { requestTimeoutMs: 500 } }, async (cluster) => {
      await acknowledged(cluster, 1, "a");
      await holdBack(cluster, 3);
      // Neither the answer nor the stream tells it for a while.
      const lost = cluster.network.drop({ from: CONTROLLER_ID, to: 1 });
      const waiting = cluster.produce(1, ["b"], { timeoutMs: 20_000 });
      await cluster.until("the controller has shrunk the ISR", () => cluster.decided?.isr.length === 2);
      await cluster.wait(1000);
      // It may be in force or not: the high watermark waits for all three.
      expect([view(cluster, 1), cluster.partition(1).leaderState?.isrState.type]).toEqual(["1/2", "pendingShrink"]);
      lost.cancel();
      expect((await waiting).error).toBe("NONE");
      expect(cluster.partition(1).leaderState?.isr).toEqual([1, 2]);
      cluster.node(3).manager?.resumeFetching();
      await cluster.converged();
    });
  });

  test("the answer to an expansion is late: until it comes the high watermark already waits for the new member", async () => {
    await history({ replicaLagTimeMaxMs: 1000, manager: { requestTimeoutMs: 30_000 } }, async (cluster) => {
      await acknowledged(cluster, 1, "a");
      await holdBack(cluster, 3);
      await acknowledged(cluster, 1, "b");
      await cluster.until("3 has left", () => cluster.partition(1).leaderState?.isr.length === 2);
      const late = [
        cluster.network.hold({ from: CONTROLLER_ID, to: 1, kind: "alterPartition" }),
        cluster.network.hold({ from: CONTROLLER_ID, to: 1, kind: "clusterState" }),
      ];
      cluster.node(3).manager?.resumeFetching();
      await cluster.until("the controller has taken 3 in", () => cluster.decided?.isr.length === 3);
      expect(cluster.partition(1).leaderState?.isrState).toEqual({ type: "pendingExpand", isr: [1, 2], adding: 3 });
      await holdBack(cluster, 3);
      await cluster.wait(2000);
      const waiting = cluster.produce(1, ["c"], { timeoutMs: 3000 });
      expect(await waiting).toMatchObject({ error: "REQUEST_TIMED_OUT" });
      expect(view(cluster, 1)).toBe("2/3");
      for (const held of late) held.release();
      cluster.node(3).manager?.resumeFetching();
      await cluster.converged();
      await expectLogs(cluster, ["a", "b", "c"]);
    });
  });
});

test("a broker that is killed while it opens its logs starts again", async () => {
  await history({}, async (cluster) => {
    await acknowledged(cluster, 1, "m0");
    for (const crash of [() => cluster.kill(3), () => cluster.powerCut(3, "all")]) {
      await cluster.kill(3);
      void cluster.start(3);
      await crash();
      await cluster.start(3);
    }
    await cluster.converged();
    expect(cluster.node(3).incarnation).toBe(5);
    await expectLogs(cluster, ["m0"]);
    expect(cluster.failures).toEqual([]);
  });
});
