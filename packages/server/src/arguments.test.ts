import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Tidemark } from "./tidemark.ts";

let directory: string;
let log: Tidemark;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemark-arguments-"));
  log = await Tidemark.open({ directory });
});

afterEach(async () => {
  await log.close();
  await rm(directory, { recursive: true, force: true });
});

/** What a program without types may pass. */
function untyped(value: unknown): never {
  return value as never;
}

describe("arguments of the wrong type are refused by a typed error, and harm nothing", () => {
  test("a partition that is no number", async () => {
    const topic = await log.topic("orders");
    for (const partition of ["0", 0.5, {}]) {
      await expect(topic.append({ value: "a" }, { partition: untyped(partition) })).rejects.toMatchObject({
        code: "INVALID_REQUEST",
      });
      expect(() => topic.fetch({ partition: untyped(partition) })).toThrow("is not a number");
    }
    for (let at = 0; at < 7; at += 1) expect((await topic.append({ value: "b" })).offset).toBe(at);
  });

  test("options, a topic's name, and a signal that are none", async () => {
    const topic = await log.topic("orders");
    await expect(Tidemark.open(untyped(undefined))).rejects.toThrow("directory is missing");
    await expect(log.topic(untyped(undefined))).rejects.toMatchObject({ code: "INVALID_TOPIC_EXCEPTION" });
    expect(() => topic.fetch(untyped(undefined))).toThrow("fetch takes options");
    await expect(topic.append({ value: "a" }, { signal: untyped({}) })).rejects.toMatchObject({
      code: "INVALID_REQUEST",
    });
  });

  test("more buffer memory than a partition takes", async () => {
    const opened = Tidemark.open({ directory, bufferMemoryBytes: 65 * 1024 ** 2 });
    await expect(opened).rejects.toThrow("bufferMemoryBytes");
  });
});

test("records in front of a damaged one are handed over before the error, and those behind it can be had", async () => {
  const topic = await log.topic("orders");
  for (const value of ["first", "second", "third"]) await topic.append({ value });
  await log.close();
  const path = join(directory, "log/orders-0/00000000000000000000.log");
  const bytes = await readFile(path);
  const at = bytes.indexOf("second");
  bytes[at] = 0x53;
  await writeFile(path, bytes);
  log = await Tidemark.open({ directory });
  const again = await log.topic("orders");
  const seen: string[] = [];
  const read = async (from: number): Promise<void> => {
    for await (const { offset, value } of again.fetch({ partition: 0, from, follow: false }))
      seen.push(`${offset}:${Buffer.from(value ?? []).toString()}`);
  };
  await expect(read(0)).rejects.toMatchObject({ code: "CORRUPT_MESSAGE", offset: 1 });
  await read(2);
  expect(seen).toEqual(["0:first", "2:third"]);
});
