import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { describeDirectories } from "./describe.ts";
import { Tidemark } from "./tidemark.ts";

let directory = "";
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemark-describe-test-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

/** Every file: its path, its times, its bytes. */
async function snapshot(path: string): Promise<ReadonlyMap<string, string>> {
  const files = new Map<string, string>();
  for (const entry of await readdir(path, { withFileTypes: true, recursive: true })) {
    const file = join(entry.parentPath, entry.name);
    const { mtimeMs, ctimeMs } = await stat(file);
    files.set(file, `${mtimeMs} ${ctimeMs} ${entry.isFile() ? (await readFile(file)).toString("latin1") : ""}`);
  }
  return files;
}

test("a directory in use, killed, and stopped cleanly: the same offsets and epochs, and nothing is touched", async () => {
  const live = join(directory, "live");
  const killed = join(directory, "killed");
  const log = await Tidemark.open({ directory: live });
  const orders = await log.topic("orders", { segmentBytes: 4096 });
  for (let index = 0; index < 40; index += 1) await orders.append({ value: "x".repeat(300) });
  const expected = {
    topic: "orders",
    partition: 0,
    brokerId: 1,
    logStartOffset: 0,
    logEndOffset: 40,
    epochs: [{ epoch: 0, startOffset: 0 }],
    controller: undefined,
    problems: [],
  };
  const before = await snapshot(live);
  expect(await describeDirectories([live])).toMatchObject([{ ...expected, status: "in use" }]);
  expect(await snapshot(live)).toEqual(before);
  await cp(live, killed, { recursive: true });
  await log.close();
  expect(await describeDirectories([killed])).toMatchObject([{ ...expected, status: "not stopped cleanly" }]);
  const closed = await snapshot(live);
  expect(await describeDirectories([join(live, "log")])).toMatchObject([
    { ...expected, status: "stopped cleanly", highWatermark: 40 },
  ]);
  expect(await snapshot(live)).toEqual(closed);
});

test("of several brokers and their controller: sorted, with leader and ISR; a torn end and bad files are problems", async () => {
  for (const name of ["broker-2", "broker-1"]) {
    await using log = await Tidemark.open({ directory: join(directory, name) });
    await (await log.topic("orders")).append({ value: "x" });
  }
  const state = { topic: "orders", partition: 0, replicas: [1, 2], isr: [1], leader: 1, leaderEpoch: 7 };
  await mkdir(join(directory, "controller"));
  const stateFile = join(directory, "controller", "controller-state.json");
  await writeFile(stateFile, JSON.stringify({ version: 1, state: { partitions: [state] } }));
  const second = join(directory, "broker-2", "log", "orders-0");
  const segment = join(second, "00000000000000000000.log");
  await writeFile(segment, Buffer.concat([await readFile(segment), Buffer.alloc(100, 7)]));
  await writeFile(join(second, "leader-epoch-checkpoint"), "nonsense\n");
  const [first, other] = await describeDirectories([directory]);
  expect(first).toMatchObject({
    directory: join(directory, "broker-1", "log", "orders-0"),
    controller: state,
    problems: [],
  });
  expect(other).toMatchObject({ logEndOffset: 1, epochs: [], controller: state });
  expect(other?.problems).toEqual([
    expect.stringContaining("leader-epoch-checkpoint"),
    expect.stringMatching(/100 bytes from byte \d+ are no whole batch/u),
  ]);
  await writeFile(stateFile, "{}");
  await expect(describeDirectories([directory])).rejects.toMatchObject({ code: "UNKNOWN_DIRECTORY" });
});

test("a compacted topic: cleaner offset and dirty bytes, in use, killed, and stopped cleanly", async () => {
  const live = join(directory, "live");
  const killed = join(directory, "killed");
  const log = await Tidemark.open({ directory: live, cleanerBackoffMs: 1 });
  const topic = await log.topic("t", { cleanupPolicy: "compact", segmentBytes: 1000, minCleanableDirtyRatio: 0 });
  await log.topic("u");
  for (let index = 0; index < 30; index += 1) await topic.append({ key: `${index % 3}`, value: "x".repeat(100) });
  const cleaner = () => log.describe().topics[0]?.partitions[0]?.cleaner;
  while (cleaner()?.dirtyBytes !== 0 || cleaner()?.isCleaning === true) await setTimeout(1);
  const active = topic.partition(0).segments.at(-1)?.baseOffset;
  const expected = { topic: "t", cleaner: { firstDirtyOffset: active, dirtyBytes: 0 } };
  expect(cleaner()).toMatchObject({ ...expected.cleaner, uncleanable: undefined });
  expect(log.describe().topics[1]?.partitions[0]?.cleaner).toBeUndefined();
  expect(await describeDirectories([live])).toMatchObject([expected, { topic: "u", cleaner: undefined }]);
  await cp(live, killed, { recursive: true });
  await log.close();
  for (const path of [killed, live, join(live, "log")])
    expect(await describeDirectories([path]), path).toMatchObject([expected, { cleaner: undefined }]);
  // What was never compacted is dirty from its start on.
  const other = await Tidemark.open({ directory: join(directory, "other") });
  const fresh = await other.topic("t", { cleanupPolicy: "compact", segmentBytes: 200 });
  for (let index = 0; index < 3; index += 1) await fresh.append({ key: "k", value: "x".repeat(90) });
  const dirtyBytes = fresh.partition(0).segments[0]?.sizeBytes ?? 0;
  expect(await describeDirectories([join(directory, "other")])).toMatchObject([
    { cleaner: { firstDirtyOffset: 0, dirtyBytes: 2 * dirtyBytes } },
  ]);
  await other.close();
});

test("a path that is missing, a file, or no log of anybody", async () => {
  await writeFile(join(directory, "file"), "x");
  await mkdir(join(directory, "inner"));
  for (const [path, code] of [
    ["missing", "KAFKA_STORAGE_ERROR"],
    ["file", "KAFKA_STORAGE_ERROR"],
    [".", "UNKNOWN_DIRECTORY"],
  ] as const) {
    await expect(describeDirectories([join(directory, path)]), path).rejects.toMatchObject({ code });
  }
});
