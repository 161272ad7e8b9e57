import { InvariantError } from "@tidemark/base";
import { SimulatedDisk } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { append, CONFIG, DATA, lead, ManagerFixture } from "./log-manager.fixture.ts";

describe("one log directory, one writer", () => {
  test("a second open is refused with LOG_DIRECTORY_LOCKED and changes nothing", async () => {
    const fixture = new ManagerFixture();
    const first = await fixture.open();
    const operations = fixture.files.operationCount;
    await expect(fixture.open()).rejects.toMatchObject({ type: { code: "LOG_DIRECTORY_LOCKED", directory: DATA } });
    expect(fixture.files.history.slice(operations).every(({ type }) => type === "syncDirectory")).toBe(true);
    await first.close();
    await (await fixture.open()).close();
  });

  test("a failed open gives the lock back", async () => {
    const fixture = new ManagerFixture();
    fixture.files.inject({ operation: "write", path: "meta.properties.tmp", code: "EIO" });
    await expect(fixture.open()).rejects.toMatchObject({ code: "KAFKA_STORAGE_ERROR" });
    await (await fixture.open()).close();
  });

  test("where locks cannot be had it is refused, unless the caller answers for it", async () => {
    const fixture = new ManagerFixture();
    fixture.files.inject({ operation: "lock", code: "ENOTSUP", count: Number.POSITIVE_INFINITY });
    await expect(fixture.open()).rejects.toMatchObject({ code: "LOG_DIRECTORY_LOCK_UNSUPPORTED" });
    await (await fixture.open({ lock: "none" })).close();
  });
});

describe("what lies in a log directory", () => {
  test("BR-061 a directory that Kafka would refuse is refused by its name, and the clean marker stays", async () => {
    const fixture = new ManagerFixture();
    await (await fixture.open()).close();
    await fixture.files.makeDirectory(`${DATA}/lost+found`);
    await expect(fixture.open()).rejects.toMatchObject({
      type: { code: "UNKNOWN_DIRECTORY", path: `${DATA}/lost+found` },
    });
    await fixture.files.removeDirectory(`${DATA}/lost+found`);
    const manager = await fixture.open();
    expect(manager.report.wasCleanShutdown).toBe(true);
  });

  test("BR-061 plain files and directories that Kafka sets aside are left alone", async () => {
    const fixture = new ManagerFixture();
    await fixture.files.makeDirectory(`${DATA}/__cluster_metadata-0`);
    await fixture.write("notes", "mine");
    const manager = await fixture.open();
    expect(manager.report.ignored).toEqual(["__cluster_metadata-0"]);
    expect([...manager.topics.keys()]).toEqual([]);
    expect(await fixture.read("notes")).toBe("mine");
  });

  test("two directories of one partition are refused", async () => {
    const fixture = new ManagerFixture();
    await fixture.files.makeDirectory(`${DATA}/t-1`);
    await fixture.files.makeDirectory(`${DATA}/t-01`);
    await expect(fixture.open()).rejects.toMatchObject({ code: "UNKNOWN_DIRECTORY" });
  });

  test("a partition that waits for its removal is removed, with everything in it", async () => {
    const fixture = new ManagerFixture();
    const doomed = `${DATA}/t-0.0123456789abcdef0123456789abcdef-delete`;
    await fixture.files.makeDirectory(`${doomed}/deep`);
    await (await fixture.files.open(`${doomed}/00000000000000000000.log`, "create")).close();
    await fixture.open();
    expect(await fixture.names()).toEqual([".lock", "meta.properties"]);
  });
});

describe("topics", () => {
  test("the id of a partition is on the disk before its first append, and all of it survives a power cut", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const { topicId } = await manager.createTopic("orders", 2, CONFIG);
    for (const image of fixture.files.enumerateCrashImages("any-subset", { outcomesMax: 200 })) {
      const next = new ManagerFixture(SimulatedDisk.fromImage(image));
      expect(await next.read("orders-1/partition.metadata")).toBe(`version: 0\ntopic_id: ${topicId}`);
      const reopened = await next.open();
      expect(reopened.topics.get("orders")).toEqual({ name: "orders", topicId, partitions: 2, config: CONFIG });
    }
  });

  test("a crash at any point of making a topic leaves all of it or nothing", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const before = fixture.files.operationCount;
    await manager.createTopic("orders", 2, CONFIG);
    const outcomes = new Set<string>();
    for (const point of [...fixture.files.crashPoints()].filter(({ number }) => number >= before)) {
      const next = ManagerFixture.atProcessCrash(point);
      const reopened = await next.open();
      const directories = (await next.names()).filter((name) => name.startsWith("orders"));
      outcomes.add(`${reopened.topics.get("orders")?.partitions ?? 0} ${directories.join(" ")}`);
    }
    expect(outcomes).toEqual(new Set(["0 ", "2 orders-0 orders-1"]));
  });

  test("a crash at any point of removing a topic leaves all of it or nothing", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("orders", 2, CONFIG);
    await append(await lead(manager, "orders", 1), "a", "b");
    const before = fixture.files.operationCount;
    await manager.deleteTopic("orders");
    expect([...manager.topics.keys()]).toEqual([]);
    const outcomes = new Set<string>();
    for (const point of [...fixture.files.crashPoints()].filter(({ number }) => number >= before)) {
      const next = ManagerFixture.atProcessCrash(point);
      const reopened = await next.open();
      const directories = (await next.names()).filter((name) => name.startsWith("orders"));
      const { logEndOffset } = reopened.partition("orders", 1) ?? {};
      outcomes.add(`${reopened.topics.size} ${String(logEndOffset)} ${directories.join(" ")}`);
    }
    expect(outcomes).toEqual(new Set(["1 2 orders-0 orders-1", "0 undefined "]));
  });

  test("a topic of the same name begins anew at offset 0, with nothing remembered of the old one", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const { topicId } = await manager.createTopic("orders", 1, CONFIG);
    const log = await lead(manager, "orders");
    await append(log, "a", "b", "c");
    await log.flush();
    await manager.deleteTopic("orders");
    expect(fixture.state.keys("").filter((key) => key.includes("orders"))).toEqual([]);
    expect((await manager.createTopic("orders", 1, CONFIG)).topicId).not.toBe(topicId);
    const anew = await lead(manager, "orders");
    expect([anew.logStartOffset, anew.logEndOffset, anew.recoveryPoint]).toEqual([0, 0, 0]);
  });

  test("a topic whose making breaks an invariant leaves nothing behind, and the error is the invariant's", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const before = await fixture.names();
    await expect(manager.createTopic("orders", 1, { ...CONFIG, segmentBytes: 1 })).rejects.toThrow(InvariantError);
    expect(await fixture.names()).toEqual(before);
    expect(manager.directory.isOnline).toBe(true);
    await manager.createTopic("orders", 1, CONFIG);
    await append(await lead(manager, "orders"), "a");
  });

  test.each([
    ["orders", 1, "TOPIC_ALREADY_EXISTS"],
    ["a.b", 1, "INVALID_TOPIC_EXCEPTION"],
    ["a b", 1, "INVALID_TOPIC_EXCEPTION"],
    ["new", 0, "INVALID_PARTITIONS"],
    ["new", 1.5, "INVALID_PARTITIONS"],
    ["new", 1_000_000, "INVALID_PARTITIONS"],
  ])("createTopic(%j, %d) is refused beside orders and a_b: %s", async (name, partitions, code) => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("orders", 1, CONFIG);
    await manager.createTopic("a_b", 1, CONFIG);
    const names = await fixture.names();
    await expect(manager.createTopic(name, partitions, CONFIG)).rejects.toMatchObject({ code });
    expect(await fixture.names()).toEqual(names);
  });

  test("a topic for which there is no space is not there, and is made when there is space again", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const fault = fixture.files.inject({ operation: "write", path: "orders-1/partition.metadata.tmp", code: "ENOSPC" });
    await expect(manager.createTopic("orders", 3, CONFIG)).rejects.toMatchObject({
      code: "KAFKA_STORAGE_ERROR",
      retriable: true,
    });
    expect(fault.hits).toBe(1);
    expect((await fixture.names()).filter((name) => name.startsWith("orders"))).toEqual([]);
    expect((await manager.createTopic("orders", 3, CONFIG)).partitions).toBe(3);
    expect(manager.directory.isOnline).toBe(true);
  });

  test("with State lost a topic is rebuilt from its directories, with the default configuration", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    const { topicId } = await manager.createTopic("a-b", 2, { ...CONFIG, segmentBytes: 999 });
    await append(await lead(manager, "a-b", 1), "x");
    fixture.kill();
    await fixture.loseState();
    const reopened = await fixture.open();
    expect(reopened.topics.get("a-b")).toEqual({ name: "a-b", topicId, partitions: 2, config: CONFIG });
    expect(reopened.report.topicsRebuilt).toEqual(["a-b"]);
    expect(reopened.partition("a-b", 1)?.logEndOffset).toBe(1);
  });

  test("another configuration holds for the logs from then on, and after a reopen", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("orders", 1, CONFIG);
    await append(await lead(manager, "orders"), "a");
    await manager.configureTopic("orders", { ...CONFIG, segmentBytes: 1000 });
    expect(manager.partition("orders", 0)?.config.segmentBytes).toBe(1000);
    expect(manager.partition("orders", 0)?.logEndOffset).toBe(1);
    await manager.close();
    expect((await fixture.open()).partition("orders", 0)?.config.segmentBytes).toBe(1000);
  });

  test("directories of one topic with two topic ids are refused", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("orders", 2, CONFIG);
    await manager.close();
    await fixture.write("orders-1/partition.metadata", "version: 0\ntopic_id: 4fZpfoS1QiyS3j7ZVMzKJg");
    await expect(fixture.open()).rejects.toMatchObject({ code: "INCONSISTENT_TOPIC_ID" });
  });
});
