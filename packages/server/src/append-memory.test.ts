import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { FetchedRecord } from "./fetch.ts";
import { Tidemark } from "./tidemark.ts";

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemark-"));
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

test.each([
  { when: "while there is room", bufferMemoryBytes: 1024 ** 2 },
  { when: "while all but the first wait for room", bufferMemoryBytes: 1 },
])("the caller's memory may be used again as soon as append returns: $when", async ({ bufferMemoryBytes }) => {
  await using log = await Tidemark.open({ directory, bufferMemoryBytes });
  const topic = await log.topic("t", { flush: "none" });
  const bytes = new Uint8Array(20);
  const appends = [1, 2, 3].map((number) => {
    bytes.fill(number);
    const part = bytes.subarray(0, 10);
    return topic.append({ key: part, value: part, headers: { h: part } }, { partition: 0 });
  });
  bytes.fill(0);
  await Promise.all(appends);
  const records: FetchedRecord[] = [];
  for await (const record of topic.fetch({ partition: 0, follow: false })) records.push(record);
  const filled = (number: number) => new Uint8Array(10).fill(number);
  expect(records.map(({ key, value, headers }) => [key, value, headers])).toEqual(
    [1, 2, 3].map((number) => [filled(number), filled(number), [{ key: "h", value: filled(number) }]]),
  );
});
