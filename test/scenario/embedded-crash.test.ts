import { verifyDirectory } from "@tidemark/log";
import { NODE_JOBS } from "@tidemark/runtime-node";
import { Tidemark } from "@tidemark/server";
import type { Topic } from "@tidemark/server";
import { LOSS_RULES, SimulatedDisk, SimulatedEnvironment, SimulatedState } from "@tidemark/simulator";
import type { LossRule } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";

const DIRECTORY = "node";

/** One process on a simulated machine, with the embedding API over it. */
class Machine {
  readonly environment: SimulatedEnvironment;

  constructor(seed: number, disk?: SimulatedDisk) {
    this.environment = new SimulatedEnvironment({ seed }, disk);
  }

  get disk(): SimulatedDisk {
    return this.environment.files;
  }

  open(options: { readonly flush?: "none" | "always" } = {}): Promise<Tidemark> {
    const { environment } = this;
    const openState = () => Promise.resolve(new SimulatedState(environment.files));
    return Tidemark.open({ ...options, directory: DIRECTORY, batchBytes: 400, parts: { environment, openState } });
  }

  powerCut(seed: number, rule: LossRule): Machine {
    const images = [...this.disk.enumerateCrashImages(rule, { outcomesMax: 64, seed })];
    this.environment.crashProcess();
    const image = images[seed % images.length];
    if (image === undefined) throw new Error("a crash leaves an image");
    return new Machine(seed, SimulatedDisk.fromImage(image));
  }
}

/** What was acknowledged: offset -> value, by partition. */
type Acknowledged = ReadonlyMap<number, Map<number, string>>;

/** Appends from three callers at a time, records of all sizes, until the machine is gone. Never resolves then. */
async function workload(log: Tidemark, acknowledged: Acknowledged, label: string): Promise<void> {
  const topic = await log.topic("t", { partitions: 2, segmentBytes: 1500 });
  const callers = [0, 1, 2].map(async (caller) => {
    for (let round = 0; round < 12; round += 1) {
      const value = `${label}/${caller}/${round}/`.padEnd(20 + ((caller * 7 + round) % 5) * 60, "x");
      const records = Array.from({ length: 1 + (round % 3) }, (_, index) => ({ value: `${value}${index}` }));
      const results = await topic.append(records, { partition: (caller + round) % 2 });
      for (const [index, { partition, offset }] of results.entries())
        acknowledged.get(partition)?.set(offset, `${value}${index}`);
    }
  });
  await Promise.all(callers);
}

/**
 * Lets promises run until the work is done or the machine has crashed. What a process says that is gone, nobody hears: a write without waiting
 * cannot wait for ever, and fails.
 * @returns whether it is done
 */
async function runUntilCrash(machine: Machine, work: Promise<void>): Promise<boolean> {
  const progress: { isDone: boolean; failure?: unknown } = { isDone: false };
  const run = async (): Promise<void> => {
    try {
      await work;
      progress.isDone = true;
    } catch (error) {
      progress.failure = error;
    }
  };
  void run();
  while (!progress.isDone && progress.failure === undefined && !machine.disk.isCrashed)
    await new Promise((resolve) => setImmediate(resolve));
  if (progress.failure !== undefined && !machine.disk.isCrashed) throw progress.failure;
  return progress.isDone;
}

async function valuesOf(topic: Topic, partition: number): Promise<Map<number, string>> {
  const values = new Map<number, string>();
  for await (const { offset, value } of topic.fetch({ partition, follow: false })) {
    values.set(offset, Buffer.from(value ?? []).toString());
  }
  return values;
}

const emptyBook = (): Acknowledged =>
  new Map([
    [0, new Map<number, string>()],
    [1, new Map<number, string>()],
  ]);

async function expectKept(machine: Machine, acknowledged: Acknowledged): Promise<void> {
  const log = await machine.open();
  if (log.topics().length === 0) {
    expect([...acknowledged.values()].map(({ size }) => size)).toEqual([0, 0]);
    await log.close();
    return;
  }
  const topic = await log.topic("t");
  for (const [partition, book] of acknowledged) {
    const values = await valuesOf(topic, partition);
    expect([...values.keys()]).toEqual(Array.from({ length: values.size }, (_, index) => index));
    for (const [offset, value] of book)
      expect([partition, offset, values.get(offset)]).toEqual([partition, offset, value]);
    expect(new Set(values.values()).size).toBe(values.size); // Nothing twice.
  }
  await log.close();
  const report = await verifyDirectory({ files: machine.disk, workers: NODE_JOBS, directory: `${DIRECTORY}/log` });
  expect([report.errors, report.notes]).toEqual([[], []]);
}

async function operationsOfWorkload(): Promise<number> {
  const machine = new Machine(1);
  expect(
    await runUntilCrash(
      machine,
      machine.open().then((log) => workload(log, emptyBook(), "a")),
    ),
  ).toBe(true);
  return machine.disk.operationCount;
}

describe("a crash of the machine loses no acknowledged record", () => {
  test.each(LOSS_RULES)(
    "under loss rule %s, at places from the first operation to the last, twice in a row",
    async (rule) => {
      const operations = await operationsOfWorkload();
      let crashes = 0;
      for (let at = 3; at < operations; at += 17) {
        const acknowledged = emptyBook();
        let machine = new Machine(at);
        machine.disk.crashAfter(at);
        if (
          await runUntilCrash(
            machine,
            machine.open().then((log) => workload(log, acknowledged, "a")),
          )
        )
          break;
        machine = machine.powerCut(at, rule);
        // The next process gets as far as it gets, and dies as well.
        machine.disk.crashAfter(at % 61);
        const work = machine.open().then((log) => workload(log, acknowledged, "b"));
        if (!(await runUntilCrash(machine, work))) machine = machine.powerCut(at + 1, rule);
        await expectKept(machine, acknowledged);
        crashes += 1;
      }
      expect(crashes).toBeGreaterThan(5);
    },
  );

  test("and this test sees a loss: with flush none, acknowledged records are gone", async () => {
    const machine = new Machine(1);
    const acknowledged = emptyBook();
    const work = async (): Promise<void> => {
      const log = await machine.open({ flush: "none" });
      await workload(log, acknowledged, "a");
      // A flush that a new segment began may have covered all of it by now; what comes behind it is covered by none.
      await new Promise((resolve) => setImmediate(resolve));
      const last = await (await log.topic("t")).append({ value: "last" }, { partition: 0 });
      acknowledged.get(0)?.set(last.offset, "last");
    };
    expect(await runUntilCrash(machine, work())).toBe(true);
    const [allLost] = machine.disk.enumerateCrashImages("ordered-prefix");
    machine.environment.crashProcess();
    if (allLost === undefined) throw new Error("a crash leaves an image");
    await expect(expectKept(new Machine(2, SimulatedDisk.fromImage(allLost)), acknowledged)).rejects.toThrow(
      /expected .* to deeply equal/,
    );
  });

  test("a crash of the process alone loses nothing even with flush none", async () => {
    const machine = new Machine(1);
    const acknowledged = emptyBook();
    const work = machine.open({ flush: "none" }).then((log) => workload(log, acknowledged, "a"));
    expect(await runUntilCrash(machine, work)).toBe(true);
    await expectKept(new Machine(3, machine.environment.crashProcess().files), acknowledged);
  });

  test("the same seed gives the same operations, in the same order", async () => {
    const histories = [];
    for (let run = 0; run < 2; run += 1) {
      const machine = new Machine(7);
      const log = await machine.open();
      await workload(log, emptyBook(), "a");
      await log.close();
      histories.push(machine.disk.history.map(({ type, path }) => `${type} ${path}`).join("\n"));
    }
    expect(histories[0]).toBe(histories[1]);
  });
});

describe("a disk that fails", () => {
  test.each(["nothing", "part"] as const)(
    "full (%s of the write got there): a retriable error, nothing appended, and on it goes when there is space",
    async (written) => {
      const machine = new Machine(1);
      const log = await machine.open();
      const topic = await log.topic("t");
      await topic.append({ value: "before" });
      const fault = machine.disk.inject({
        operation: "write",
        path: /\.log$/,
        code: "ENOSPC",
        written,
        count: Number.POSITIVE_INFINITY,
      });
      // More than one batch in flight, so that some are refused for the gap that the failed one leaves.
      const failed = Array.from({ length: 10 }, (_, index) => topic.append({ value: `lost ${index}`.padEnd(250) }));
      for (const result of await Promise.allSettled(failed)) {
        expect(result).toMatchObject({
          status: "rejected",
          reason: { code: "KAFKA_STORAGE_ERROR", retriable: true, kind: "retry", topic: "t" },
        });
      }
      expect(topic.offsets(0).latest).toBe(1);
      fault.cancel();
      const after = await Promise.all(
        Array.from({ length: 10 }, (_, index) => topic.append({ value: `after ${index}` })),
      );
      expect(after.map(({ offset }) => offset)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
      expect([...(await valuesOf(topic, 0)).values()]).toEqual([
        "before",
        ...Array.from({ length: 10 }, (_, index) => `after ${index}`),
      ]);
      await log.close();
      expect(
        await verifyDirectory({ files: machine.disk, workers: NODE_JOBS, directory: `${DIRECTORY}/log` }),
      ).toMatchObject({
        errors: [],
        notes: [],
      });
      const reopened = await machine.open();
      expect(reopened.describe().opened.wasCleanShutdown).toBe(true);
    },
  );

  test("a failed sync: no acknowledgement after it, kind reopen; the reopened log has all that was acknowledged", async () => {
    const machine = new Machine(1);
    const log = await machine.open();
    const topic = await log.topic("t");
    await topic.append({ value: "kept" });
    machine.disk.inject({ operation: "sync", path: /\.log$/, code: "EIO" });
    const failed = Array.from({ length: 5 }, () => topic.append({ value: "unknown".padEnd(250) }));
    for (const result of await Promise.allSettled(failed)) {
      expect(result).toMatchObject({
        status: "rejected",
        reason: { code: "KAFKA_STORAGE_ERROR", retriable: false, kind: "reopen" },
      });
    }
    await expect(topic.append({ value: "later" })).rejects.toMatchObject({
      code: "KAFKA_STORAGE_ERROR",
      kind: "reopen",
    });
    await expect(log.topic("other")).rejects.toMatchObject({ code: "KAFKA_STORAGE_ERROR" });
    expect(log.describe().isOnline).toBe(false);
    await log.close();
    const reopened = await machine.open();
    expect(reopened.describe().opened.wasCleanShutdown).toBe(false);
    expect([...(await valuesOf(await reopened.topic("t"), 0)).values()][0]).toBe("kept");
  });

  test("a failed flush at close is told with flush none", async () => {
    const machine = new Machine(1);
    const log = await machine.open({ flush: "none" });
    await (await log.topic("t")).append({ value: "x" });
    machine.disk.inject({ operation: "sync", path: /\.log$/, code: "EIO" });
    await expect(log.close()).rejects.toMatchObject({ code: "KAFKA_STORAGE_ERROR", kind: "reopen" });
  });

  test("a full disk at open is one retriable error, and leaves nothing locked", async () => {
    const machine = new Machine(1);
    const fault = machine.disk.inject({ operation: "write", code: "ENOSPC", count: Number.POSITIVE_INFINITY });
    await expect(machine.open()).rejects.toMatchObject({ code: "KAFKA_STORAGE_ERROR", kind: "retry" });
    fault.cancel();
    await (await machine.open()).close();
  });

  test("a read-only directory is one error that says so", async () => {
    const machine = new Machine(1);
    await (await machine.open()).close();
    machine.disk.inject({
      operation: ["open", "lock", "unlink", "rename", "makeDirectory"],
      code: "EROFS",
      count: Number.POSITIVE_INFINITY,
    });
    await expect(machine.open()).rejects.toMatchObject({
      code: "KAFKA_STORAGE_ERROR",
      message: expect.stringContaining("read-only") as string,
    });
  });
});
