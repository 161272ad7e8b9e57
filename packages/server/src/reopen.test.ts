import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Tidemark } from "./tidemark.ts";

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemark-"));
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

test("an append that is refused gives its room back: any number of them fails, none waits for good", async () => {
  {
    await using log = await Tidemark.open({ directory });
    await (await log.topic("t")).append({ value: "a" });
  }
  // The base offset's first byte, below the recovery point: the partition takes no appends any more.
  const path = join(directory, "log", "t-0", "00000000000000000000.log");
  await writeFile(path, Buffer.from([0x7f]), { flag: "r+" });
  await using log = await Tidemark.open({ directory, bufferMemoryBytes: 1000 });
  const topic = await log.topic("t");
  const value = new Uint8Array(300);
  for (let attempt = 0; attempt < 10; attempt += 1) {
    const expected = { code: "KAFKA_STORAGE_ERROR", kind: "restore-data" };
    await expect(topic.append({ value })).rejects.toMatchObject(expected);
    await expect(topic.append([{ value }, { value }])).rejects.toMatchObject(expected);
    await expect(topic.append({ value }, { signal: AbortSignal.timeout(60_000) })).rejects.toMatchObject(expected);
  }
});

test("every open leads in a higher epoch, also when the log itself forgot the last one", async () => {
  const epochs: unknown[] = [];
  for (let opening = 0; opening < 3; opening += 1) {
    const log = await Tidemark.open({ directory });
    await log.topic("t");
    epochs.push(log.describe().topics[0]?.partitions[0]?.leaderEpoch);
    await log.close();
    await rm(join(directory, "log", "t-0", "leader-epoch-checkpoint"));
  }
  expect(epochs).toEqual([0, 1, 2]);
});
