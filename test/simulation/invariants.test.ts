import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { toOffset } from "@tidemark/base";
import type { Plan } from "@tidemark/simulation";
import {
  Checker,
  checkFinalFiles,
  checkFinalLog,
  Cluster,
  ClientHistory,
  ExcusedStall,
  Liveness,
  NAME,
  parseFailure,
  planOf,
  simulate,
  textBatch,
  Violation,
} from "@tidemark/simulation";
import type { ClusterOptions } from "@tidemark/simulation";
import { SimulatedRandom } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";

/** A state that breaks a rule: what is done to a cluster, and what the checker has to say to it. */
interface Proof {
  readonly says: RegExp;
  readonly options?: Partial<ClusterOptions>;
  /** May break the rule at once, or leave it to the next event. */
  readonly spoil: (cluster: Cluster, checker: Checker) => Promise<void> | void;
}

/** Makes an object say something else from now on: a bug of whoever keeps that state. */
function tells<Subject extends object>(subject: Subject, name: keyof Subject, value: unknown): void {
  Object.defineProperty(subject, name, { get: () => value, configurable: true });
}

type Registration = NonNullable<Cluster["controller"]>["state"]["brokers"][number];

/** A batch as a leader of that epoch would have it at that offset. */
function stamped(value: string, baseOffset: number, leaderEpoch: number): Uint8Array {
  const batch = textBatch([value]);
  const view = new DataView(batch.buffer, batch.byteOffset);
  view.setBigInt64(0, BigInt(baseOffset));
  view.setInt32(12, leaderEpoch);
  return batch;
}

/** Broker 1 leads and has one record, at offset 5, that 2 has too and 3 has not: nobody counts it as committed. */
async function oneUncommitted(cluster: Cluster): Promise<void> {
  cluster.node(3).manager?.pauseFetching();
  await cluster.wait(600);
  await cluster.produce(1, ["uncommitted"], { acks: 1 });
  await cluster.until("broker 2 has it", () => cluster.node(2).log?.logEndOffset === 6);
}

/** Nobody but broker 1, which leads, has the record at offset 5. */
async function oneOnlyAtTheLeader(cluster: Cluster): Promise<void> {
  for (const brokerId of [2, 3]) cluster.node(brokerId).manager?.pauseFetching();
  await cluster.wait(600);
  await cluster.produce(1, ["only here"], { acks: 1 });
}

function leading(cluster: Cluster): NonNullable<ReturnType<Cluster["partition"]>["leaderState"]> {
  const { leaderState } = cluster.partition(1);
  if (leaderState === undefined) throw new Error("broker 1 leads in these tests");
  return leaderState;
}

function decided(cluster: Cluster): NonNullable<Cluster["decided"]> {
  if (cluster.decided === undefined) throw new Error("the controller has decided by then");
  return cluster.decided;
}

function logOf(cluster: Cluster, brokerId: number): ReturnType<Cluster["partition"]>["log"] {
  const { log } = cluster.node(brokerId);
  if (log === undefined) throw new Error(`broker ${brokerId} has a log by then`);
  return log;
}

/** One for each place of `checker.ts` that can throw. Three brokers; 1 leads in epoch 0; records 0 to 4 are committed everywhere. */
const PROOFS: readonly Proof[] = [
  {
    says: /^S1: acknowledged at 99, but not committed there/u,
    spoil: (_cluster, checker) => checker.acknowledged(textBatch(["never sent"]), 99),
  },
  {
    says: /^S1: broker 2: below its high watermark 6 lies what was not committed/u,
    spoil: async (cluster) => {
      await oneUncommitted(cluster);
      tells(cluster.partition(2), "highWatermark", 6);
    },
  },
  {
    says: /^S1: broker 3 leads and lacks committed records/u,
    options: { replicaLagTimeMaxMs: 500 },
    spoil: async (cluster) => {
      cluster.node(3).manager?.pauseFetching();
      await cluster.wait(600);
      await cluster.produce(1, ["without 3"]);
      const leaderEpoch = 7;
      tells(cluster.partition(3), "leaderEpoch", leaderEpoch);
      tells(cluster.partition(3), "leaderState", {
        leaderEpoch,
        partitionEpoch: 9,
        highWatermark: 5,
        isrState: { type: "committed", isr: [1, 2, 3] },
        effectiveMinIsr: 1,
        replicas: [],
      });
      tells(cluster, "decided", { ...decided(cluster), leaderEpoch });
    },
  },
  {
    says: /^S2: broker 2 holds 5@0 with another content or history/u,
    spoil: async (cluster) => {
      await oneOnlyAtTheLeader(cluster);
      await logOf(cluster, 2).appendAsFollower(stamped("another", 5, 0));
    },
  },
  {
    says: /^S2: broker 2 has a gap before 7@0/u,
    spoil: async (cluster) => {
      await oneOnlyAtTheLeader(cluster);
      await logOf(cluster, 2).appendAsFollower(stamped("too far", 7, 0));
    },
  },
  {
    says: /^S3: broker 3 holds 6@0 behind epoch 1/u,
    spoil: async (cluster, checker) => {
      await cluster.kill(1);
      await cluster.leads(2);
      for (const value of ["epoch 1", "epoch 1 too"]) await cluster.produce(2, [value]);
      const { environment, log } = cluster.node(3);
      const file = await environment.files.open(`${log?.directory}/00000000000000000000.log`, "write");
      // The batch at offset 6 says epoch 0; where it lies follows from the batches before, of one size but for their values.
      const sizes = ["r0", "r1", "r2", "r3", "r4", "epoch 1"].map((value) => textBatch([value]).length);
      const positionBytes = sizes.reduce((sum, size) => sum + size, 0);
      await file.writeAt(new Uint8Array(4), positionBytes + 12);
      await file.close();
      expect(checker.checks).toBeGreaterThan(0);
      new Checker(cluster).check();
    },
  },
  {
    says: /^S3: broker \d: epoch cache \[/u,
    spoil: async (cluster) => {
      const entries = [0, 0].map((epoch) => ({ epoch, startOffset: toOffset(0) }));
      for (const brokerId of [1, 2, 3]) tells(logOf(cluster, brokerId), "epochEntries", entries);
      await cluster.produce(1, ["next"]);
    },
  },
  {
    says: /^S3: broker 2: leader epoch fell/u,
    spoil: (cluster) => tells(cluster.partition(2), "leaderEpoch", -1),
  },
  {
    says: /^S3: epoch 0 is led by 1 and 2/u,
    spoil: (cluster) => tells(cluster.partition(2), "leaderState", leading(cluster)),
  },
  {
    says: /^S4: broker 3 is in the ISR and lacks committed records/u,
    options: { replicaLagTimeMaxMs: 500 },
    spoil: async (cluster) => {
      cluster.node(3).manager?.pauseFetching();
      await cluster.wait(600);
      await cluster.produce(1, ["without 3"]);
      tells(cluster, "decided", { ...decided(cluster), isr: [1, 2, 3] });
    },
  },
  {
    says: /^S5: broker 1: high watermark moved under min ISR/u,
    spoil: async (cluster) => {
      await oneOnlyAtTheLeader(cluster);
      tells(leading(cluster), "isrState", { type: "committed", isr: [1] });
      tells(leading(cluster), "isr", [1]);
      await cluster.wait(1);
      tells(leading(cluster), "highWatermark", 6);
    },
  },
  {
    says: /^S5: broker 1: high watermark 6, but 2 does not hold it/u,
    spoil: async (cluster) => {
      await oneOnlyAtTheLeader(cluster);
      tells(leading(cluster), "highWatermark", 6);
    },
  },
  {
    says: /^S6: broker 1: log end 6 is inside a batch/u,
    spoil: async (cluster) => {
      await cluster.produce(1, ["two", "in one"]);
      await cluster.converged();
      tells(logOf(cluster, 1), "logEndOffset", 6);
      new Checker(cluster).check();
    },
  },
  {
    says: /^S6: broker 2: 0 <= 6 <= 5/u,
    spoil: (cluster) => tells(cluster.partition(2), "highWatermark", 6),
  },
  {
    says: /^S6: broker 1: high watermark fell to 4/u,
    spoil: (cluster) => tells(leading(cluster), "highWatermark", 4),
  },
  {
    says: /^S6: broker 2: high watermark 6 is inside a batch/u,
    spoil: async (cluster) => {
      await cluster.produce(1, ["two", "in one"]);
      await cluster.converged();
      tells(cluster.partition(2), "highWatermark", 6);
    },
  },
  {
    says: /^S6: broker 2: log start fell from 3 to 1/u,
    spoil: async (cluster) => {
      await cluster.node(2).broker?.logs.deleteRecords(NAME.topic, NAME.partition, toOffset(3));
      await cluster.wait(50);
      tells(logOf(cluster, 2), "logStartOffset", 1);
    },
  },
  {
    says: /^S6: broker 2 had deleted everything below 4, and starts with 0/u,
    spoil: async (cluster, checker) => {
      // Somebody was told so, and nothing was done.
      checker.deletedRecords(2, 4);
      checker.crashes(2, false);
      await cluster.kill(2);
      await cluster.start(2);
    },
  },
  {
    says: /^S7: broker 2: its first batch is at 3, and no log start was above 0/u,
    spoil: async (cluster) => {
      tells(logOf(cluster, 2), "segments", [{ baseOffset: 3, sizeBytes: 0, indexEntries: 0 }]);
      await cluster.produce(1, ["more"]);
    },
  },
  {
    says: /^S7: broker 2 cut to 3, below its high watermark 5/u,
    spoil: (cluster) => logOf(cluster, 2).truncateTo(toOffset(3)),
  },
  {
    says: /^S8: broker 1 leads, and cut to 5/u,
    spoil: async (cluster) => {
      await oneOnlyAtTheLeader(cluster);
      await logOf(cluster, 1).truncateTo(toOffset(5));
    },
  },
  {
    says: /^S8: broker 2 cut 5@0, which its leader has/u,
    spoil: async (cluster) => {
      await oneUncommitted(cluster);
      await logOf(cluster, 2).truncateTo(toOffset(5));
    },
  },
  {
    says: /^S9: broker \d: the epoch cache says undefined for 5@0/u,
    spoil: async (cluster) => {
      for (const brokerId of [1, 2, 3]) tells(logOf(cluster, brokerId), "epochEntries", []);
      await cluster.produce(1, ["next"]);
    },
  },
  {
    says: /^S12: acknowledged at 0 with 0 durable copies/u,
    spoil: (cluster, checker) => {
      // Nothing here was ever synced; it is said to be.
      tells(cluster, "options", { ...cluster.options, log: { flush: "always" } });
      checker.acknowledged(textBatch(["r0"]), 0);
    },
  },
  {
    says: /^S13: broker 2 had everything below 5, and starts with 0/u,
    spoil: async (cluster, checker) => {
      // Only its process is said to die.
      checker.crashes(2, false);
      await cluster.powerCut(2, "all");
      await cluster.start(2);
    },
  },
  {
    says: /^S14: broker 2 appends up to 6, on a disk that has failed/u,
    spoil: async (cluster, checker) => {
      await oneOnlyAtTheLeader(cluster);
      tells(cluster.partition(2), "followerState", undefined);
      checker.diskFails(2, false);
      cluster.node(2).brokenDisk = "kept";
      await logOf(cluster, 2).appendAsFollower(stamped("only here", 5, 0));
    },
  },
  {
    says: /^S14: broker 2 is follower, on a disk that has failed/u,
    spoil: async (cluster, checker) => {
      cluster.node(2).manager?.pauseFetching();
      await cluster.wait(600);
      checker.diskFails(2, true);
      cluster.node(2).brokenDisk = "lost";
      await cluster.produce(1, ["next"], { acks: 1 });
    },
  },
  {
    says: /^S15: a consumer asked for 4, and was given 2 to 2 first/u,
    spoil: async (cluster, checker) => {
      const { bytes } = await logOf(cluster, 1).read({ fromOffset: toOffset(2), maxBytes: 1 });
      checker.consumed(bytes, 4, 5);
    },
  },
  {
    says: /^S15: a consumer asked for 4 of 5, and was given nothing/u,
    spoil: (_cluster, checker) => void checker.consumed(new Uint8Array(0), 4, 5),
  },
  {
    says: /^S16: a consumer read 0@-1, which is not committed/u,
    spoil: (_cluster, checker) => void checker.consumed(textBatch(["never sent"]), 0, 5),
  },
  {
    says: /^S19: broker 3 joins with 5, the epoch began at 100/u,
    spoil: (cluster, checker) => {
      const { partitionEpoch } = decided(cluster);
      tells(cluster, "decided", { ...decided(cluster), isr: [1, 2], partitionEpoch: partitionEpoch + 1 });
      checker.check();
      tells(leading(cluster), "epochStartOffset", 100);
      tells(cluster, "decided", { ...decided(cluster), isr: [1, 2, 3], partitionEpoch: partitionEpoch + 2 });
    },
  },
  {
    says: /^S22: broker 2 has 9 requests out/u,
    spoil: (cluster) => {
      const { peer } = cluster.node(2);
      if (peer !== undefined) tells(peer, "calls", new Set(Array.from({ length: 9 }, (_, at) => at)));
    },
  },
  {
    says: /^S22: broker 1: 7 appends wait, of 0 that were asked for/u,
    spoil: async (cluster, checker) => {
      checker.produceArrived(2);
      await cluster.wait(5000);
      tells(leading(cluster), "waitingProduceCount", 7);
    },
  },
  {
    says: /^S23: leader 1 is not in the ISR 2,3/u,
    spoil: (cluster) => tells(cluster, "decided", { ...decided(cluster), isr: [2, 3] }),
  },
  {
    says: /^S23: epochs fell/u,
    spoil: (cluster) => tells(cluster, "decided", { ...decided(cluster), partitionEpoch: -1 }),
  },
  {
    says: /^S25: 1 takes broker 2 to be at 99/u,
    spoil: (cluster) => {
      const { replicas } = leading(cluster);
      tells(
        leading(cluster),
        "replicas",
        replicas.map((replica) => (replica.brokerId === 2 ? { ...replica, logEndOffset: 99 } : replica)),
      );
      tells(cluster, "decided", { ...decided(cluster) });
    },
  },
];

/** What a spoiled cluster is found to be. */
async function verdictOn({ spoil, options }: Proof): Promise<string> {
  const cluster = new Cluster({ seed: 7, replicaLagTimeMaxMs: 60_000, ...options });
  const checker = new Checker(cluster);
  try {
    await cluster.run(async () => {
      await cluster.startAll();
      for (let at = 0; at < 5; at += 1) expect((await cluster.produce(1, [`r${at}`])).error).toBe("NONE");
      await cluster.converged();
      await spoil(cluster, checker);
      await cluster.wait(3000);
    });
  } catch (error) {
    if (error instanceof Violation) return error.message;
    throw error;
  }
  return "nothing was noticed";
}

describe("each rule of the checker is broken by a state that was made for it, and says so", () => {
  test.each(PROOFS.map((proof) => [proof.says.source, proof] as const))("%s", async (_name, proof) => {
    expect(await verdictOn(proof)).toMatch(proof.says);
  });

  test("without anything spoiled nothing is said", async () => {
    expect(await verdictOn({ says: /^/u, spoil: () => undefined })).toBe("nothing was noticed");
  });
});

describe("S5: a process that began anew does not hold what the leader counted on, and the controller has put it out of the ISR", () => {
  /** Its machine stays up; the leader has heard of neither. */
  const movesOver = (loses: (checker: Checker) => void): Promise<string> =>
    verdictOn({
      says: /^/u,
      spoil: async (cluster, checker) => {
        await oneOnlyAtTheLeader(cluster);
        loses(checker);
        tells(cluster, "decided", { ...decided(cluster), isr: [1] });
        await cluster.wait(1);
        const { manager } = cluster.node(2);
        if (manager === undefined) throw new Error("broker 2 runs in these tests");
        tells(manager, "brokerEpoch", 99);
        tells(leading(cluster), "isrState", { type: "committed", isr: [1, 2] });
        tells(leading(cluster), "highWatermark", 6);
      },
    });

  test("a sync that failed has lost it: the high watermark may move over it", async () => {
    expect(await movesOver((checker) => checker.diskFails(2, true))).toBe("nothing was noticed");
  });

  test("a write failed, and nothing is lost: it may not", async () => {
    expect(await movesOver((checker) => checker.diskFails(2, false))).toMatch(
      /^S5: broker 1: high watermark 6, but 2 does not hold it/u,
    );
  });
});

describe("S4: a sync of a member has failed, and the leader takes in the process that it was before", () => {
  const joins = (isToldOf: (registered: Registration) => Registration): Promise<string> =>
    verdictOn({
      says: /^/u,
      options: { replicaLagTimeMaxMs: 500 },
      spoil: async (cluster, checker) => {
        cluster.node(3).manager?.pauseFetching();
        await cluster.wait(600);
        await cluster.produce(1, ["without 3"]);
        checker.diskFails(3, true);
        const { controller } = cluster;
        if (controller === undefined) throw new Error("the controller runs in these tests");
        const { state } = controller;
        const brokers = state.brokers.map((broker) => (broker.brokerId === 3 ? isToldOf(broker) : broker));
        tells(controller, "state", { ...state, brokers });
        await cluster.wait(1);
        tells(cluster, "decided", { ...decided(cluster), isr: [1, 2, 3] });
      },
    });

  test("as long as no process has registered since, nobody could know", async () => {
    expect(await joins((broker) => broker)).toBe("nothing was noticed");
  });

  test("behind the registration that tells of it, it may not be a member", async () => {
    const after = (broker: Registration): Registration => ({
      ...broker,
      brokerEpoch: broker.brokerEpoch + 50,
      bootId: `${broker.bootId} after ${broker.incarnationId}`,
    });
    expect(await joins(after)).toMatch(/^S4: broker 3 is in the ISR and lacks committed records/u);
  });
});

describe("so is each rule about the end of a run", () => {
  const quiet: Plan = { ...planOf(1), faults: [], hasMessageFaults: false, durationMs: 1000 };
  const failureWith = async (spoil: (cluster: Cluster, checker: Checker) => void): Promise<string | undefined> =>
    (await simulate(1, quiet, spoil)).failure;

  test("S22", async () => {
    expect(
      await failureWith(({ failures }) => failures.push({ brokerId: 1, incarnation: 1, reason: "made up" })),
    ).toMatch(/^S22: /u);
  });

  test("L2: appends wait although nothing is amiss", async () => {
    const failure = await failureWith((cluster) => {
      cluster.produce = async () => ({
        error: "REQUEST_TIMED_OUT",
        baseOffset: -1,
        lastOffset: -1,
        leaderId: -1,
        leaderEpoch: -1,
      });
    });
    expect(failure).toMatch(/^L2: appends wait/u);
  });

  test("S24", async () => {
    expect(await failureWith((_cluster, checker) => (checker.chains = () => [1, 2]))).toMatch(/^S24: /u);
  });

  const options = { id: 1, acks: -1, isNameless: false } as const;
  const told = (...acknowledged: { baseOffset: number; values: string[] }[]) => [{ options, acknowledged }];

  test("S1", () => {
    expect(() => checkFinalLog(["0:1:0:x"], told({ baseOffset: 0, values: ["1:0:x"] }))).not.toThrow();
    expect(() => checkFinalLog(["0:1:0:x"], told({ baseOffset: 1, values: ["1:0:x"] }))).toThrow(/^S1: /u);
  });

  test("S17: twice", () => {
    expect(() => checkFinalLog(["0:1:0:x", "1:1:0:x"], told())).toThrow(/^S17: .* twice/u);
    expect(() =>
      checkFinalLog(["0:1:0:x", "1:1:0:x"], [{ options: { ...options, isNameless: true }, acknowledged: [] }]),
    ).not.toThrow();
  });

  test("S17: order", () => {
    const both = told({ baseOffset: 1, values: ["1:0:x"] }, { baseOffset: 0, values: ["1:1:x"] });
    expect(() => checkFinalLog(["0:1:1:x", "1:1:0:x"], both)).toThrow(/^S17: acknowledged at 0 after 1/u);
  });
});

/** What the files and logs of a cluster at rest are found to be. As `PROOFS`. */
const FILE_PROOFS: readonly Proof[] = [
  {
    says: /^S26: broker 1: its epochs begin at 0, its log at 2/u,
    spoil: async (cluster) => {
      await cluster.node(1).broker?.logs.deleteRecords(NAME.topic, NAME.partition, toOffset(2));
      tells(logOf(cluster, 1), "epochEntries", [{ epoch: 0, startOffset: 0 }]);
    },
  },
  {
    says: /^S26: broker 2: .*leader-epoch-checkpoint: .*checkpoint-damaged/u,
    spoil: async (cluster) => {
      const file = await cluster.node(2).environment.files.open("log/orders-0/leader-epoch-checkpoint", "truncate");
      await file.writeAt(new TextEncoder().encode("0\n1\n"), 0);
      await file.close();
    },
  },
  {
    says: /^S26: broker 3: offset \d is in \d, read is 99/u,
    spoil: (cluster) => {
      const log = logOf(cluster, 3);
      const read = log.read.bind(log);
      log.read = async (options) => {
        const result = await read(options);
        return options.maxBytes === 1 ? { ...result, startOffset: toOffset(99) } : result;
      };
    },
  },
  {
    says: /^S26: broker 1: time \d+ begins at \S+, told is \S+/u,
    spoil: (cluster) => {
      const log = logOf(cluster, 1);
      const listOffset = log.listOffset.bind(log);
      log.listOffset = async (spec) =>
        listOffset(typeof spec === "string" ? spec : { timestamp: spec.timestamp - 1e9 });
    },
  },
  {
    says: /^S27: broker 1: producer 77 has undefined, known is epoch 0, last offset 3/u,
    spoil: (cluster) => {
      const batch = { lastSequence: 0, lastOffset: 3, offsetDelta: 0, timestamp: 0 };
      const entry = { producerEpoch: 0, batches: [batch], lastTimestamp: 0, coordinatorEpoch: -1 };
      tells(logOf(cluster, 1), "producers", new Map([[77, { ...entry, transactionFirstOffset: undefined }]]));
    },
  },
];

describe("so is each rule about the files and logs of brokers at rest", () => {
  const verdict = (spoil: Proof["spoil"]): Promise<string> =>
    verdictOn({
      says: /^/u,
      spoil: async (cluster, checker) => {
        await spoil(cluster, checker);
        await checkFinalFiles(cluster, new SimulatedRandom(1));
      },
    });

  test.each(FILE_PROOFS.map(({ says, spoil }) => [says.source, says, spoil] as const))(
    "%s",
    async (_name, says, spoil) => {
      expect(await verdict(spoil)).toMatch(says);
    },
  );

  test("without anything spoiled nothing is said", async () => {
    expect(await verdict(() => undefined)).toBe("nothing was noticed");
  });
});

/** Of the end of a run, proven by the tests above. */
const END_PROOFS = ["S22", "S24", "S1", "S17", "S17"];

test("no rule is without its proof: as many places that throw, by id, as proofs", () => {
  const count = (ids: readonly string[]): Record<string, number> => {
    const counts: Record<string, number> = {};
    for (const id of ids) counts[id] = (counts[id] ?? 0) + 1;
    return counts;
  };
  const placesIn = (file: string): readonly string[] => {
    const source = readFileSync(
      fileURLToPath(new URL(`../../packages/simulation/src/${file}`, import.meta.url)),
      "utf8",
    );
    return [...source.matchAll(/new Violation\(\s*"(S\d+)"/gu)].map(([, id = ""]) => id);
  };
  const idsOf = (proofs: readonly Proof[]): readonly string[] =>
    proofs.map(({ says }) => /S\d+/u.exec(says.source)?.[0] ?? "");
  expect(count(idsOf(PROOFS))).toEqual(count(placesIn("checker.ts")));
  expect(count(idsOf(FILE_PROOFS))).toEqual(count(placesIn("final-files.ts")));
  expect(count(END_PROOFS)).toEqual(count([...placesIn("simulate.ts"), ...placesIn("final-log.ts")]));
});

describe("the demands of liveness", () => {
  const plan: Plan = {
    ...planOf(1),
    cluster: { seed: 1, brokers: 3, sessionTimeoutMs: 3000, replicaLagTimeMaxMs: 2000, minInsyncReplicas: 2 },
    faults: [],
    hasMessageFaults: false,
    durationMs: 1000,
    liveness: { frozen: [{ brokerId: 1, fault: "dead" }] },
  };
  const failureWith = async (spoil: (cluster: Cluster) => void): Promise<string | undefined> =>
    (await simulate(1, plan, spoil)).failure;
  /** Does it to the cluster every so often, from the time on when the faults are over. */
  const often = (cluster: Cluster, everyMs: number, act: () => void, fromMs = 1500): void => {
    const again = (): void => {
      act();
      cluster.kernel.schedule(everyMs * 1000, "test.often", again);
    };
    cluster.kernel.schedule(fromMs * 1000, "test.often", again);
  };

  test("they are met by a cluster with a dead leader", async () => {
    const { failure, faults } = await simulate(1, plan);
    expect([failure, faults["1 frozen"]]).toEqual([undefined, 1]);
  });

  test("L1: nobody is named in place of a dead leader", async () => {
    const failure = await failureWith((cluster) =>
      often(cluster, 1, () => {
        if (cluster.controller !== undefined) cluster.controller.brokerDied = async () => undefined;
      }),
    );
    expect(failure).toMatch(/^L1: /u);
  });

  test("L2: a leader answers no produce", async () => {
    const failure = await failureWith((cluster) => {
      cluster.send = async () => ({
        error: "REQUEST_TIMED_OUT",
        baseOffset: -1,
        lastOffset: -1,
        leaderId: -1,
        leaderEpoch: -1,
      });
    });
    expect(failure).toMatch(/^L2: /u);
  });

  test("L3: a member of the core fetches nothing", async () => {
    const longer = { ...plan, durationMs: 6000 };
    const { failure } = await simulate(1, longer, (cluster) => {
      // Out of the ISR, it is demanded back.
      often(cluster, 10, () => cluster.node(3).manager?.pauseFetching(), 500);
    });
    expect(failure).toMatch(/^L3: /u);
  });

  test("L4: a follower does not hear what is committed", async () => {
    const failure = await failureWith((cluster) =>
      often(cluster, 10, () => {
        const { partition } = cluster.node(3);
        if (partition?.role === "follower") tells(partition, "highWatermark", 0);
      }),
    );
    expect(failure).toMatch(/^L4: /u);
  });

  test("L5: elections for nothing", async () => {
    const failure = await failureWith((cluster) =>
      often(cluster, 30_000, () => {
        const leader = cluster.leader();
        if (leader !== undefined) void cluster.controller?.electUncleanly({ topic: "orders", partition: 0 }, leader);
      }),
    );
    expect(failure).toMatch(/^L5: leader epoch/u);
  });

  test("L5: an ISR that comes and goes", async () => {
    const failure = await failureWith((cluster) =>
      often(
        cluster,
        5000,
        () => {
          const state = cluster.decided;
          if (state === undefined) return;
          tells(cluster, "decided", { ...state, isr: state.isr.length === 2 ? [state.leader] : [2, 3] });
        },
        60_000,
      ),
    );
    expect(failure).toMatch(/^L5: the ISR changed/u);
  });

  test("L5: messages for nothing", async () => {
    const failure = await failureWith((cluster) =>
      often(cluster, 5, () => void cluster.request(2, { kind: "describe" }, 1000).catch(() => undefined)),
    );
    expect(failure).toMatch(/^L5: \d+ messages/u);
  });

  test("L6: timers are never cleared", async () => {
    const failure = await failureWith((cluster) =>
      often(cluster, 100, () => void cluster.kernel.schedule(1e12, "test.leak", () => undefined)),
    );
    expect(failure).toMatch(/^L6: idle, events/u);
  });

  test("L6: an append waits for ever", async () => {
    const failure = await failureWith((cluster) =>
      often(cluster, 100, () => {
        const leaderState = cluster.node(cluster.leader() ?? 1).partition?.leaderState;
        if (leaderState !== undefined) tells(leaderState, "waitingProduceCount", 1);
      }),
    );
    expect(failure).toMatch(/^L6: idle, .* appends wait/u);
  });

  test("L7: a core that stands still is excused when all of the ISR is frozen, and only then", async () => {
    for (const [isr, expected] of [
      [[1], ExcusedStall],
      [[1, 2], Violation],
    ] as const) {
      const cluster = new Cluster(plan.cluster);
      const checker = new Checker(cluster);
      const liveness = new Liveness(cluster, checker, new ClientHistory({ mayReplay: false }), {
        frozen: [{ brokerId: 1, fault: "dead" }],
      });
      const run = cluster.run(async () => {
        await cluster.startAll();
        await liveness.freeze();
        cluster.kernel.onEvent = undefined;
        tells(cluster, "decided", { ...decided(cluster), isr, leader: -1 });
        await liveness.demand(async () => undefined);
      });
      await expect(run).rejects.toBeInstanceOf(expected);
    }
  });
});

test("the canary: a run that must fail does, with the rule's name, or no run could", async () => {
  // The first producer's batches are acknowledged by all.
  const producers = planOf(3).producers.slice(0, 1);
  const { failure } = await simulate(3, { ...planOf(3), producers, faults: [], durationMs: 3000 }, (cluster) => {
    let count = 0;
    const send = cluster.send.bind(cluster);
    // A leader acknowledges a batch that it does not have.
    cluster.send = async (...asked) => {
      count += 1;
      const answer = await send(...asked);
      return count === 10 ? { ...answer, error: "NONE", baseOffset: 10_000, lastOffset: 10_000 } : answer;
    };
  });
  expect(parseFailure(failure ?? "no failure").id).toBe("S1");
});
