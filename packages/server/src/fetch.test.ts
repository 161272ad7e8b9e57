import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { toOffset } from "@tidemark/base";
import type { PartitionLog } from "@tidemark/log";
import { encodeBatch } from "@tidemark/wire";
import { expect, test } from "vitest";
import { RecordIterator } from "./fetch.ts";
import { Tidemark } from "./tidemark.ts";

test("a record of which one bit changed is CORRUPT_MESSAGE with its offset, and is not handed out", async () => {
  const directory = await mkdtemp(join(tmpdir(), "tidemark-"));
  try {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    for (const value of ["first", "second", "third"]) await topic.append({ value });
    const path = join(directory, "log", "t-0", "00000000000000000000.log");
    const bytes = await readFile(path);
    // The record stays well formed: only the CRC knows.
    const position = bytes.indexOf("second");
    await writeFile(path, Buffer.from(bytes.map((byte, at) => (at === position ? byte ^ 1 : byte))));
    const values: (string | undefined)[] = [];
    const reading = (async () => {
      for await (const { value } of topic.fetch({ partition: 0, follow: false }))
        values.push(value === null ? undefined : Buffer.from(value).toString());
    })();
    await expect(reading).rejects.toMatchObject({ code: "CORRUPT_MESSAGE", kind: "restore-data", offset: 1 });
    expect(values.every((value) => value === "first")).toBe(true);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

test("a read is limited to the visible end: what is written and not synced yet is not handed out", async () => {
  const bytes = encodeBatch([{ key: null, value: Buffer.from("synced"), timestamp: 1 }], {});
  const limits: unknown[] = [];
  const log: Partial<PartitionLog> = {
    visibleEndOffset: toOffset(1),
    logEndOffset: toOffset(2),
    read: ({ limitOffset }) => {
      limits.push(limitOffset);
      return Promise.resolve({ bytes, startOffset: toOffset(0) });
    },
  };
  const workers = { run: () => Promise.reject(new Error("nothing is compressed here")) };
  const source = {
    topic: "t",
    partition: 0,
    log: log as PartitionLog,
    workers: workers as never,
    refusal: () => undefined,
  };
  const offsets: number[] = [];
  for await (const { offset } of new RecordIterator(source, toOffset(0), { follow: false })) offsets.push(offset);
  expect([offsets, limits]).toEqual([[0], [1]]);
});

test.each([
  { maxBytes: undefined, asked: [16, 64, 256, 1024, 1024].map((kibibytes) => kibibytes * 1024) },
  { maxBytes: 100_000, asked: [16 * 1024, 64 * 1024, 100_000, 100_000, 100_000] },
  { maxBytes: 1000, asked: [1000, 1000, 1000, 1000, 1000] },
])("reads grow up to maxBytes ($maxBytes): who wants one record pays for few", async ({ maxBytes, asked }) => {
  const reads: number[] = [];
  const log: Partial<PartitionLog> = {
    visibleEndOffset: toOffset(asked.length),
    logEndOffset: toOffset(asked.length),
    read: ({ fromOffset, maxBytes: wanted }) => {
      reads.push(wanted);
      const record = { key: null, value: null, timestamp: 1 };
      return Promise.resolve({ bytes: encodeBatch([record], { baseOffset: fromOffset }), startOffset: fromOffset });
    },
  };
  const source = { topic: "t", partition: 0, log: log as PartitionLog, workers: {} as never, refusal: () => undefined };
  const options = maxBytes === undefined ? { follow: false } : { follow: false, maxBytes };
  const offsets: number[] = [];
  for await (const { offset } of new RecordIterator(source, toOffset(0), options)) offsets.push(offset);
  expect([offsets, reads]).toEqual([[0, 1, 2, 3, 4], asked]);
});
