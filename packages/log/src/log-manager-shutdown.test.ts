import { decodeUtf8 } from "@tidemark/base";
import { SimulatedDisk } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { append, CONFIG, DATA, lead, ManagerFixture } from "./log-manager.fixture.ts";

const MARKER = ".kafka_cleanshutdown";
const RECOVERY_POINTS = "recovery-point-offset-checkpoint";

/** A directory with one topic of three records, closed cleanly. */
async function closedDirectory(): Promise<ManagerFixture> {
  const fixture = new ManagerFixture();
  const manager = await fixture.open();
  await manager.createTopic("orders", 1, CONFIG);
  await append(await lead(manager, "orders"), "a", "b", "c");
  expect(await manager.close()).toEqual({ isClean: true, reason: undefined });
  return fixture;
}

describe("a clean stop", () => {
  test("writes Kafka's checkpoint files and, last of all, the marker", async () => {
    const fixture = await closedDirectory();
    expect(await fixture.read(RECOVERY_POINTS)).toBe("0\n1\norders 0 3\n");
    expect(await fixture.read("replication-offset-checkpoint")).toBe("0\n1\norders 0 3\n");
    expect(await fixture.read("log-start-offset-checkpoint")).toBe("0\n0\n");
    expect(await fixture.read(MARKER)).toBe('{"version":0,"brokerEpoch":-1}');
    const paths = fixture.files.history.map(({ path }) => path);
    const markerAt = paths.indexOf(`${DATA}/${MARKER}`);
    expect(new Set(paths.slice(markerAt))).toEqual(new Set([`${DATA}/${MARKER}`, DATA]));
  });

  test("is believed by the next open, which takes the marker away and empties the recovery points", async () => {
    const fixture = await closedDirectory();
    const manager = await fixture.open();
    expect(manager.report).toMatchObject({ wasCleanShutdown: true, checkpoints: { source: "state", problems: [] } });
    expect(manager.partition("orders", 0)?.recovery).toMatchObject({
      wasCleanShutdown: true,
      segmentsScanned: 0,
      recoveryPoint: 3,
    });
    expect(await fixture.read(MARKER)).toBeUndefined();
    expect(await fixture.read(RECOVERY_POINTS)).toBe("0\n0\n");
  });

  test("BR-020 the marker is gone durably before anything in a partition is touched", async () => {
    const fixture = await closedDirectory();
    const before = fixture.files.operationCount;
    await fixture.open();
    const paths = fixture.files.history.slice(before).map(({ type, path }) => `${type} ${path}`);
    const goneAt = paths.indexOf(`syncDirectory ${DATA}`, paths.indexOf(`unlink ${DATA}/${MARKER}`));
    expect(goneAt).toBeGreaterThan(0);
    expect(paths.slice(0, goneAt).filter((path) => path.includes("orders-0") || path.includes("commit"))).toEqual([]);
  });

  test("BR-020 after a crash at any point of the start the tail is scanned, unless nothing had begun", async () => {
    const fixture = await closedDirectory();
    const before = fixture.files.operationCount;
    await fixture.open();
    let uncleanCount = 0;
    for (const point of [...fixture.files.crashPoints()].filter(({ number }) => number >= before)) {
      const next = ManagerFixture.atProcessCrash(point);
      const hadMarker = (await next.read(MARKER)) !== undefined;
      const manager = await next.open();
      expect(manager.report.wasCleanShutdown).toBe(hadMarker);
      expect(manager.report.checkpoints.source).toBe("state");
      expect(manager.partition("orders", 0)?.logEndOffset).toBe(3);
      uncleanCount += hadMarker ? 0 : 1;
    }
    expect(uncleanCount).toBeGreaterThan(3);
  });

  test("BR-021 no marker for a directory in which a log did not load", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("orders", 10, CONFIG);
    for (let partition = 0; partition < 10; partition += 1) await append(await lead(manager, "orders", partition), "a");
    fixture.kill();
    const fault = fixture.files.inject({ operation: "read", path: /orders-3\/.*\.log$/, code: "EIO" });
    await expect(fixture.open()).rejects.toMatchObject({ code: "KAFKA_STORAGE_ERROR" });
    expect(fault.hits).toBe(1);
    expect(await fixture.read(MARKER)).toBeUndefined();
    const reopened = await fixture.open();
    for (let partition = 0; partition < 10; partition += 1) {
      expect(reopened.partition("orders", partition)?.recovery).toMatchObject({
        wasCleanShutdown: false,
        logEndOffset: 1,
      });
    }
  });

  test("no marker after a flush that failed", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("orders", 1, { ...CONFIG, flush: "none" });
    await append(await lead(manager, "orders"), "a");
    fixture.files.inject({ operation: "sync", path: /orders-0\/.*\.log$/, code: "EIO" });
    expect(await manager.close()).toMatchObject({ isClean: false });
    expect(manager.directory.isOnline).toBe(false);
    expect(await fixture.read(MARKER)).toBeUndefined();
    expect((await fixture.open()).report.wasCleanShutdown).toBe(false);
  });

  test("no marker while a directory of a partition is gone; the others are served", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("orders", 2, CONFIG);
    await append(await lead(manager, "orders", 0), "a");
    await manager.close();
    await fixture.files.rename(`${DATA}/orders-1`, "elsewhere");
    const reopened = await fixture.open();
    expect(reopened.partition("orders", 1)).toBeUndefined();
    expect(reopened.partition("orders", 0)?.logEndOffset).toBe(1);
    expect(await reopened.close()).toEqual({ isClean: false, reason: "the directory of a partition is gone" });
    expect(await fixture.read(MARKER)).toBeUndefined();
  });

  test("no marker over a damaged log", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("orders", 1, CONFIG);
    const log = await lead(manager, "orders");
    for (let record = 0; record < 200; record += 1) await append(log, "x");
    const last = log.segments.at(-1);
    await manager.close();
    await fixture.files.unlink(`${DATA}/${MARKER}`);
    await fixture.files.unlink(`${DATA}/orders-0/${String(last?.baseOffset).padStart(20, "0")}.log`);
    const reopened = await fixture.open();
    expect(reopened.partition("orders", 0)?.damaged).toHaveLength(1);
    expect(await reopened.close()).toEqual({ isClean: false, reason: "orders-0 is damaged" });
    expect(await fixture.read(MARKER)).toBeUndefined();
  });

  test("close twice is close once", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const [first, second] = await Promise.all([manager.close(), manager.close()]);
    expect(first).toBe(second);
    await expect(manager.createTopic("late", 1, CONFIG)).rejects.toMatchObject({ code: "LOG_CLOSED" });
  });
});

describe("checkpoint files and State", () => {
  test("after a crash State knows how far the log was flushed, and the text file says nothing", async () => {
    const fixture = await closedDirectory();
    await fixture.open();
    fixture.kill();
    expect(await fixture.read(RECOVERY_POINTS)).toBe("0\n0\n");
    const manager = await fixture.open();
    expect(manager.report.checkpoints.source).toBe("state");
    expect(manager.partition("orders", 0)?.recovery.recoveryPoint).toBe(3);
  });

  test("if another program changed a file, the files win over State", async () => {
    const fixture = await closedDirectory();
    await fixture.write(RECOVERY_POINTS, "0\n1\norders 0 2\n");
    const manager = await fixture.open();
    expect(manager.report.checkpoints.source).toBe("files");
    expect(manager.partition("orders", 0)?.recovery.recoveryPoint).toBe(2);
  });

  test("a crash at any moment of the takeover: what the other program left out of its logs is believed, not taken for a loss", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const topics = ["orders", "other"];
    for (const topic of topics) {
      await manager.createTopic(topic, 1, CONFIG);
      const log = await lead(manager, topic);
      for (const value of ["a", "b", "c"]) {
        await append(log, value);
        await log.roll();
      }
    }
    await manager.close();
    for (const topic of topics) await fixture.files.unlink(`${DATA}/${topic}-0/00000000000000000001.log`);
    await fixture.write(RECOVERY_POINTS, "0\n2\nother 0 3\norders 0 3\n");
    const before = fixture.files.operationCount;
    await fixture.open();
    let opens = 0;
    for (const point of [...fixture.files.crashPoints()].filter(({ number }) => number >= before)) {
      opens += 1;
      const next = ManagerFixture.atProcessCrash(point);
      for (let again = 0; again < 2; again += 1) {
        const opened = await next.open();
        for (const topic of topics) {
          const log = opened.partition(topic, 0);
          expect([opens, log?.damaged, log?.logEndOffset]).toEqual([opens, [], 3]);
        }
        next.kill();
      }
    }
    expect(opens).toBeGreaterThan(20);
  });

  test("a partition that the other program's file leaves out is scanned from its start", async () => {
    const fixture = await closedDirectory();
    await fixture.files.unlink(`${DATA}/${MARKER}`);
    await fixture.write(RECOVERY_POINTS, "0\n0\n");
    const manager = await fixture.open();
    expect(manager.report.checkpoints.source).toBe("files");
    expect(manager.partition("orders", 0)?.recovery).toMatchObject({ bytesScanned: 207 });
    expect(manager.partition("orders", 0)?.logEndOffset).toBe(3);
  });

  test("BR-031 a bad recovery-point file counts as empty and is reported", async () => {
    const fixture = await closedDirectory();
    await fixture.write(RECOVERY_POINTS, "0\n7\norders 0 3\n");
    const manager = await fixture.open();
    expect(manager.report.checkpoints).toEqual({
      source: "files",
      problems: [expect.stringContaining(RECOVERY_POINTS)],
    });
    expect(manager.partition("orders", 0)?.recovery.recoveryPoint).toBeUndefined();
  });

  test("State lost after a crash: everything is scanned", async () => {
    const fixture = await closedDirectory();
    await fixture.open();
    fixture.kill();
    await fixture.loseState();
    const manager = await fixture.open();
    expect(manager.report.checkpoints.source).toBe("files");
    expect(manager.partition("orders", 0)?.recovery.bytesScanned).toBe(207);
  });

  test("State of another directory is not believed", async () => {
    const fixture = await closedDirectory();
    const meta = (await fixture.read("meta.properties")) ?? "";
    await fixture.write("meta.properties", meta.replace(/directory\.id=.*/, "directory.id=4fZpfoS1QiyS3j7ZVMzKJg"));
    expect((await fixture.open()).report.checkpoints.source).toBe("files");
  });

  test("our own writes never pass for another program's, wherever a crash of the machine strikes", async () => {
    const fixture = new ManagerFixture();
    const first = await fixture.open();
    await first.createTopic("orders", 1, CONFIG);
    await append(await lead(first, "orders"), "a");
    await first.close();
    const before = fixture.files.operationCount;
    const second = await fixture.open();
    await append(await lead(second, "orders"), "b");
    await second.close();
    let images = 0;
    for (const point of [...fixture.files.crashPoints()].filter(({ number }) => number >= before)) {
      for (const rule of ["ordered-prefix", "any-subset", "missing-directory-entry"] as const) {
        const disk = SimulatedDisk.afterProcessCrash(point);
        for (const image of disk.enumerateCrashImages(rule, { outcomesMax: 24 })) {
          images += 1;
          const next = new ManagerFixture(SimulatedDisk.fromImage(image));
          const manager = await next.open();
          expect(manager.report.checkpoints).toEqual({ source: "state", problems: [] });
          expect(manager.partition("orders", 0)?.logEndOffset).toBeGreaterThanOrEqual(1);
        }
      }
    }
    expect(images).toBeGreaterThan(100);
  });

  test("the marker does not speak for a directory that was put here while nothing ran", async () => {
    const source = await closedDirectory();
    const fixture = new ManagerFixture();
    await (await fixture.open()).close();
    await fixture.files.makeDirectory(`${DATA}/orders-0`);
    for (const name of await source.files.list(`${DATA}/orders-0`)) {
      await fixture.write(`orders-0/${name}`, (await source.read(`orders-0/${name}`)) ?? "");
    }
    const manager = await fixture.open();
    expect(manager.report).toMatchObject({ wasCleanShutdown: true, topicsRebuilt: ["orders"] });
    expect(manager.partition("orders", 0)?.recovery.wasCleanShutdown).toBe(false);
  });

  test("what State knew of a partition whose directory is gone is not kept for the next of its name", async () => {
    const fixture = await closedDirectory();
    for (const name of await fixture.files.list(`${DATA}/orders-0`))
      await fixture.files.unlink(`${DATA}/orders-0/${name}`);
    await fixture.files.removeDirectory(`${DATA}/orders-0`);
    const manager = await fixture.open();
    await manager.deleteTopic("orders");
    await manager.createTopic("orders", 1, CONFIG);
    expect(manager.partition("orders", 0)?.logEndOffset).toBe(0);
    expect(decodeUtf8(fixture.state.get("topic/orders") ?? new Uint8Array(0))).toContain('"status":"ready"');
  });
});
