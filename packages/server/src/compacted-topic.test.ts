import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Tidemark } from "./tidemark.ts";
import type { Topic } from "./topic.ts";
import { verifyDirectory } from "./verify.ts";

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemark-"));
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

const text = (bytes: Uint8Array | null): string | null => (bytes === null ? null : new TextDecoder().decode(bytes));

async function readFrom(topic: Topic, from: "earliest" | number): Promise<string[]> {
  const records: string[] = [];
  for await (const { offset, key, value } of topic.fetch({ partition: 0, from, follow: false }))
    records.push(`${offset}:${text(key)}=${text(value)?.slice(0, 4)}`);
  return records;
}

async function cleaned(log: Tidemark): Promise<void> {
  const cleaner = () => log.describe().topics[0]?.partitions[0]?.cleaner;
  while (cleaner()?.dirtyBytes !== 0 || cleaner()?.isCleaning === true) await setTimeout(1);
}

test.each(["none", "zstd"] as const)(
  "BR-050: what compaction left of a topic is fetched from any offset, by those who follow too, and after a reopen: %s",
  async (compression) => {
    const options = { directory, cleanerBackoffMs: 1 };
    const filler = "x".repeat(100);
    const ends: string[] = [];
    {
      await using log = await Tidemark.open(options);
      const settings = {
        cleanupPolicy: "compact",
        minCleanableDirtyRatio: 0,
        segmentBytes: 2000,
        compression,
      } as const;
      const topic = await log.topic("t", settings);
      // Batches of which nothing is left, and of which only the first or the last record is.
      const followed: number[] = [];
      const stop = new AbortController();
      const follower = (async () => {
        for await (const { offset } of topic.fetch({ partition: 0, from: "earliest", signal: stop.signal }))
          followed.push(offset);
      })().catch(() => undefined);
      await topic.append([{ key: "first", value: "only" }]);
      for (let round = 0; round < 60; round += 1)
        await topic.append([
          { key: `a${round % 3}`, value: `${round} ${filler}` },
          { key: `b${round % 7}`, value: round % 2 === 0 ? `${round} ${filler}` : null },
          { key: round % 20 === 0 ? `c${round}` : "c", value: `${round} ${filler}` },
        ]);
      while (followed.at(-1) !== 180) await setTimeout(1);
      await cleaned(log);
      stop.abort();
      await follower;
      const all = await readFrom(topic, "earliest");
      expect(all.length).toBeLessThan(60);
      expect(all[0]).toBe("0:first=only");
      for (let from = 0; from <= 181; from += 1)
        expect(await readFrom(topic, from), `from ${from}`).toEqual(
          all.filter((record) => Number.parseInt(record, 10) >= from),
        );
      expect(topic.offsets(0)).toEqual({ earliest: 0, latest: 181 });
      ends.push(...all);
    }
    expect((await verifyDirectory(directory)).errors).toEqual([]);
    await using log = await Tidemark.open(options);
    const topic = await log.topic("t");
    expect(await readFrom(topic, "earliest")).toEqual(ends);
    expect(await topic.append({ key: "first", value: "last" })).toMatchObject({ offset: 181 });
  },
);
