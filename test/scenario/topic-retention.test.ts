import { SimulatedEnvironment } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { Tidemark } from "@tidemark/server";

const HOUR = 3_600_000;
const SECOND_US = 1_000_000;

async function openLog() {
  const environment = new SimulatedEnvironment({ seed: 1 });
  const parts = { environment, openState: () => Promise.resolve(environment.state) };
  return { log: await Tidemark.open({ directory: "data", parts }), environment };
}

test("offsets are listed by time, by the largest one, and by where records begin and end", async () => {
  const { log } = await openLog();
  const topic = await log.topic("t");
  await topic.append([10, 30, 20].map((timestamp) => ({ value: "v", timestamp })));
  expect(await topic.listOffset(0, { timestamp: 11 })).toEqual({ offset: 1, timestamp: 30, leaderEpoch: 0 });
  expect(await topic.listOffset(0, "max-timestamp")).toMatchObject({ offset: 1, timestamp: 30 });
  expect(await topic.listOffset(0, "latest")).toEqual({ offset: 3, timestamp: -1, leaderEpoch: 0 });
  expect(await topic.listOffset(0, "earliest")).toMatchObject({ offset: 0 });
  expect(await topic.listOffset(0, { timestamp: 31 })).toBeUndefined();
  for (const spec of ["newest", { timestamp: -1 }, { timestamp: 1.5 }, null])
    await expect(topic.listOffset(0, spec as never)).rejects.toMatchObject({ code: "INVALID_REQUEST" });
  await expect(topic.listOffset(1, "latest")).rejects.toMatchObject({ code: "UNKNOWN_TOPIC_OR_PARTITION" });
  await log.close();
});

test("records are deleted up to an offset, and no fetch finds them any more", async () => {
  const { log } = await openLog();
  const topic = await log.topic("t");
  await topic.append(["a", "b", "c"].map((value) => ({ value })));
  expect(await topic.deleteRecords(0, 2)).toBe(2);
  expect(topic.offsets(0)).toEqual({ earliest: 2, latest: 3 });
  expect(() => topic.fetch({ partition: 0, from: 1 })).toThrow(
    expect.objectContaining({ code: "OFFSET_OUT_OF_RANGE" }),
  );
  await expect(topic.deleteRecords(0, 4)).rejects.toMatchObject({ code: "OFFSET_OUT_OF_RANGE" });
  await expect(topic.deleteRecords(0, -1)).rejects.toMatchObject({ code: "INVALID_REQUEST" });
  await log.close();
});

test("a topic's old records go without being asked, where it says so", async () => {
  const { log, environment } = await openLog();
  const timestamp = environment.clock.wallMs() - 2 * HOUR;
  const expiring = await log.topic("expiring", { retentionMs: HOUR });
  const kept = await log.topic("kept");
  for (const topic of [expiring, kept]) await topic.append({ value: "old", timestamp });
  await environment.kernel.runFor(31 * SECOND_US);
  expect([expiring.offsets(0).earliest, kept.offsets(0).earliest]).toEqual([1, 0]);
  await log.close();
});

test("a record more than an hour ahead of the clock is INVALID_TIMESTAMP", async () => {
  const { log, environment } = await openLog();
  const topic = await log.topic("t");
  const timestamp = environment.clock.wallMs() + 2 * HOUR;
  await expect(topic.append({ value: "v", timestamp })).rejects.toMatchObject({ code: "INVALID_TIMESTAMP" });
  await log.close();
});
