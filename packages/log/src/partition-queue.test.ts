import { toOffset } from "@tidemark/base";
import { scanBatch } from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import { expect, test } from "vitest";
import { QUEUED_BYTES_MAX } from "./config.ts";
import { batchOf } from "./log.fixture.ts";
import { PartitionQueue } from "./partition-queue.ts";
import type { AppendGroup } from "./partition-queue.ts";

function headerOf(batch: Uint8Array): BatchHeader {
  const scan = scanBatch(batch, 0);
  if (scan.type !== "batch") throw new Error(scan.type);
  return scan.header;
}

function answerAll(group: AppendGroup): void {
  for (const { resolve } of group.entries)
    resolve({ baseOffset: toOffset(0), lastOffset: toOffset(0), duplicate: false });
}

const LOCAL = { origin: "local" } as const;

test("a group's buffer is nobody else's until the group is committed, and is used again then", async () => {
  const seen: { readonly buffer: Uint8Array; readonly before: string; readonly after: string }[] = [];
  const queue = new PartitionQueue(async (group) => {
    const { buffer, usedBytes } = group;
    const bytes = () => Buffer.from(buffer.subarray(0, usedBytes)).toString("hex");
    const before = bytes();
    await new Promise((resolve) => setTimeout(resolve, 1));
    seen.push({ buffer, before, after: bytes() });
    answerAll(group);
  });
  const append = (value: string) => {
    const batch = batchOf([value]);
    return queue.append(batch, headerOf(batch), LOCAL, undefined);
  };
  const first = append("first");
  await Promise.resolve();
  await Promise.resolve(); // The first group is being committed and takes nobody any more.
  await Promise.all([first, append("second"), append("other")]);
  await append("third");
  expect(seen).toHaveLength(3);
  for (const { before, after } of seen) expect(after).toBe(before);
  expect(seen[1]?.buffer).not.toBe(seen[0]?.buffer);
  expect([seen[0]?.buffer, seen[1]?.buffer]).toContain(seen[2]?.buffer);
});

test("bytes count as queued until they are answered, and no longer: the bound is on what waits, not on what passed", async () => {
  const queue = new PartitionQueue(async (group) => answerAll(group));
  const batch = batchOf(["x".repeat(1_000_000)]);
  const header = headerOf(batch);
  for (let bytes = 0; bytes <= 2 * QUEUED_BYTES_MAX; bytes += batch.length) {
    const answer = queue.append(batch, header, LOCAL, undefined);
    expect(queue.queuedBytes).toBe(batch.length);
    await answer;
    await Promise.resolve();
  }
  await new Promise((resolve) => setTimeout(resolve, 1));
  expect(queue.queuedBytes).toBe(0);
  const count = Math.ceil(QUEUED_BYTES_MAX / batch.length) + 1;
  const answers = await Promise.allSettled(
    Array.from({ length: count }, () => queue.append(batch, header, LOCAL, undefined)),
  );
  expect(answers.map(({ status }) => status)).toContain("rejected");
});
