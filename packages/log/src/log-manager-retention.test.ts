import { toOffset } from "@tidemark/base";
import { expect, test } from "vitest";
import { append, CONFIG, lead, ManagerFixture } from "./log-manager.fixture.ts";
import type { LogManager } from "./log-manager.ts";

const SECOND_US = 1_000_000;
const HOUR = 3_600_000;
/** Batches of one record of one character: each fills a segment. */
const SMALL = { ...CONFIG, segmentBytes: 70 };
const EXPIRING = { ...SMALL, retentionMs: HOUR };

const starts = (manager: LogManager): (number | undefined)[] =>
  ["t", "u"].map((topic) => manager.partition(topic, 0)?.logStartOffset);

test("looks at every log half a minute after the start, then every five minutes", async () => {
  const fixture = new ManagerFixture();
  const { kernel } = fixture.environment;
  const manager = await fixture.open();
  await manager.createTopic("t", 1, EXPIRING);
  await manager.createTopic("u", 1, SMALL);
  for (const topic of ["t", "u"]) await append(await lead(manager, topic), "a", "b");
  await kernel.runFor(29 * SECOND_US);
  expect(starts(manager)).toEqual([0, 0]);
  await kernel.runFor(2 * SECOND_US);
  expect(starts(manager)).toEqual([2, 0]);
  await append(await lead(manager, "t"), "c");
  await kernel.runFor(298 * SECOND_US);
  expect(starts(manager)).toEqual([2, 0]);
  await kernel.runFor(2 * SECOND_US);
  expect(starts(manager)).toEqual([3, 0]);
  expect((await manager.close()).isClean).toBe(true);
});

test("no timer runs while no log has a limit, and none after the close", async () => {
  const fixture = new ManagerFixture();
  const manager = await fixture.open();
  await manager.createTopic("t", 1, SMALL);
  expect(fixture.environment.kernel.pendingCount).toBe(0);
  await manager.configureTopic("t", EXPIRING);
  expect(fixture.environment.kernel.pendingCount).toBe(1);
  await manager.close();
  expect(fixture.environment.kernel.pendingCount).toBe(0);
});

test("nothing above the high watermark goes, and a log that fails does not keep the others from their turn", async () => {
  const fixture = new ManagerFixture();
  const manager = await fixture.open({
    highWatermark: (topic) => (topic === "t" ? toOffset(1) : undefined),
    retention: { initialDelayMs: 0, intervalMs: 1000 },
  });
  for (const topic of ["t", "u"]) {
    await manager.createTopic(topic, 1, EXPIRING);
    await append(await lead(manager, topic), "a", "b");
  }
  await fixture.environment.kernel.runFor(SECOND_US / 2);
  expect(starts(manager)).toEqual([1, 2]);
});

test("M51: the start that delete-records made survives a kill, a clean stop and the loss of the state", async () => {
  for (const stop of ["kill", "close", "lose the state"]) {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("t", 1, { ...CONFIG, segmentBytes: 1000 });
    await append(await lead(manager, "t"), "a", "b", "c");
    expect(await manager.deleteRecords("t", 0, toOffset(2))).toBe(2);
    expect(await fixture.read("log-start-offset-checkpoint")).toBe("0\n1\nt 0 2\n");
    if (stop === "close") await manager.close();
    else fixture.kill();
    if (stop === "lose the state") await fixture.loseState();
    const reopened = await fixture.open();
    expect([stop, reopened.partition("t", 0)?.logStartOffset]).toEqual([stop, 2]);
    expect(reopened.report.checkpoints.source).toBe(stop === "lose the state" ? "files" : "state");
  }
});

test("delete-records of what is not there, or above the high watermark, is refused by Kafka's name", async () => {
  const manager = await new ManagerFixture().open({ highWatermark: () => toOffset(1) });
  await manager.createTopic("t", 1, CONFIG);
  await append(await lead(manager, "t"), "a", "b");
  await expect(manager.deleteRecords("t", 0, toOffset(2))).rejects.toMatchObject({ code: "OFFSET_OUT_OF_RANGE" });
  await expect(manager.deleteRecords("t", 1, toOffset(0))).rejects.toMatchObject({
    code: "UNKNOWN_TOPIC_OR_PARTITION",
  });
});
