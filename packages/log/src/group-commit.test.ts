import { toOffset } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import { batchOf, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";

describe("a group that cannot be written", () => {
  test("leaves its producers as they were before it, however many batches of one were in it", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    const batches = [0, 1, 2, 3].map((sequence) => batchOf([`r${sequence}`], { id: 7, sequence }));
    const append = (at: number) => log.append(batches[at] as Uint8Array, { origin: "client" });
    await append(0);
    const fault = fixture.disk.inject({ operation: "write", path: ".log", code: "ENOSPC", count: 1 });
    const refused = await Promise.allSettled([append(1), append(2), append(3)]);
    expect(refused.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
    fault.cancel();
    expect(log.nextSequence(7)).toBe(1);
    const again = await Promise.all([append(1), append(2), append(3)]);
    expect(again.map(({ baseOffset, duplicate }) => [baseOffset, duplicate])).toEqual([
      [1, false],
      [2, false],
      [3, false],
    ]);
    expect(await recordsOf(log)).toEqual(["0:r0", "1:r1", "2:r2", "3:r3"]);
  });
});

describe("a group whose sync fails", () => {
  test("acknowledges no repetition either: the batch that it repeats is not safe", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    const batch = batchOf(["a"], { id: 7, sequence: 0 });
    fixture.disk.inject({ operation: "sync", path: ".log", code: "EIO" });
    const answers = await Promise.allSettled([
      log.append(batch, { origin: "client" }),
      log.append(batch, { origin: "client" }),
    ]);
    expect(answers.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  });

  test("is not synced again by the group behind it, and its records stay out of sight", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await log.append(batchOf(["a"]), { origin: "local" });
    const fault = fixture.disk.inject({ operation: "sync", path: ".log", code: "EIO" });
    const first = log.append(batchOf(["b"]), { origin: "local" });
    // A task between them keeps the second out of the first one's group.
    const task = log.flushInBackground();
    const second = log.append(batchOf(["c"]), { origin: "local" });
    const syncsBefore = fixture.disk.history.filter(({ type }) => type === "sync").length;
    const answers = await Promise.allSettled([first, task, second]);
    expect(answers.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
    expect(fault.hits).toBe(1);
    expect(fixture.disk.history.filter(({ type }) => type === "sync")).toHaveLength(syncsBefore);
    expect([log.flushedEndOffset, log.visibleEndOffset]).toEqual([1, 1]);
  });
});

describe("the entry of an epoch", () => {
  test("comes back with the leader's next batch when a truncation took it", async () => {
    const log = await new LogFixture().open({ epoch: 3 });
    await log.append(batchOf(["a"]), { origin: "local" });
    await log.truncateTo(toOffset(0));
    expect(log.epochEntries).toEqual([]);
    await log.append(batchOf(["b"]), { origin: "local" });
    expect(log.epochEntries).toEqual([{ epoch: 3, startOffset: 0 }]);
  });

  test("is on the disk before a follower writes the epoch's first batch", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open({ epoch: "none" });
    await log.appendAsFollower(storedBatch(["a"], 0, 1));
    const before = fixture.disk.history.length;
    await log.appendAsFollower(storedBatch(["b"], 1, 2));
    const steps = fixture.disk.history.slice(before).flatMap(({ type, ...rest }) => {
      const path = "path" in rest ? rest.path : "";
      if (type === "rename") return ["epochs"];
      return type === "syncDirectory" || (type === "write" && path.endsWith(".log")) ? [type] : [];
    });
    expect(steps).toEqual(["epochs", "syncDirectory", "write"]);
  });
});
