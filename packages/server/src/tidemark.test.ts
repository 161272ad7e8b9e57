import { spawn } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { FetchedRecord } from "./fetch.ts";
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

const text = (bytes: Uint8Array | null) => (bytes === null ? null : Buffer.from(bytes).toString());

async function readAll(topic: Topic, partition = 0): Promise<FetchedRecord[]> {
  const records: FetchedRecord[] = [];
  for await (const record of topic.fetch({ partition, from: "earliest", follow: false })) records.push(record);
  return records;
}

const valuesOf = (records: readonly FetchedRecord[]) => records.map(({ value }) => text(value));

describe("the example", () => {
  test("append, and fetch what was appended", async () => {
    const order = { id: 42 };
    const stop = new AbortController();
    const { signal } = stop;
    const handled: unknown[] = [];
    await using log = await Tidemark.open({ directory });
    const orders = await log.topic("orders", { partitions: 3 });
    const { offset, partition } = await orders.append({ key: "42", value: JSON.stringify(order) });
    const iteration = (async () => {
      for await (const record of orders.fetch({ partition, from: "earliest", signal })) {
        handled.push(JSON.parse(text(record.value) ?? ""));
        stop.abort(new Error("seen enough"));
      }
    })();
    await expect(iteration).rejects.toThrow("seen enough");
    expect([offset, handled]).toEqual([0, [order]]);
  });
});

describe("what was appended", () => {
  test("is there after a close and a reopen, with keys, headers, nulls and timestamps", async () => {
    const value = Uint8Array.of(0, 255, 128);
    {
      await using log = await Tidemark.open({ directory });
      const topic = await log.topic("t");
      await topic.append([
        { key: null, value: "text ä", timestamp: 5 },
        { key: new Uint8Array(0), value, headers: { a: "1", b: null }, timestamp: 3 },
        {
          key: "k",
          value: null,
          headers: [
            { key: "x", value: Uint8Array.of(1) },
            { key: "x", value: "" },
          ],
          timestamp: 4,
        },
      ]);
      value.fill(7); // The caller's memory is the caller's again.
    }
    await using log = await Tidemark.open({ directory });
    const records = await readAll(await log.topic("t"));
    expect(records).toEqual(
      [
        { topic: "t", partition: 0, offset: 0, timestamp: 5, key: null, value: Buffer.from("text ä"), headers: [] },
        {
          topic: "t",
          partition: 0,
          offset: 1,
          timestamp: 3,
          key: new Uint8Array(0),
          value: Uint8Array.of(0, 255, 128),
          headers: [
            { key: "a", value: Buffer.from("1") },
            { key: "b", value: null },
          ],
        },
        {
          topic: "t",
          partition: 0,
          offset: 2,
          timestamp: 4,
          key: Buffer.from("k"),
          value: null,
          headers: [
            { key: "x", value: Uint8Array.of(1) },
            { key: "x", value: new Uint8Array(0) },
          ],
        },
      ].map((record) => ({
        ...record,
        key: record.key && new Uint8Array(record.key),
        value: record.value && new Uint8Array(record.value),
        headers: record.headers.map((header) => ({ ...header, value: header.value && new Uint8Array(header.value) })),
      })),
    );
  });

  test.each(["none", "gzip", "snappy", "lz4", "zstd"] as const)(
    "20,000 unawaited appends are there once, in order, with compression %s",
    async (compression) => {
      await using log = await Tidemark.open({ directory });
      const topic = await log.topic("t", { compression, segmentBytes: 256 * 1024 });
      const results = await Promise.all(
        Array.from({ length: 20_000 }, (_, index) => topic.append({ value: `record ${index}` })),
      );
      expect(results.every(({ offset }, index) => offset === index)).toBe(true);
      const records = await readAll(topic);
      expect(records.length).toBe(20_000);
      expect(records.every(({ offset, value }, index) => offset === index && text(value) === `record ${index}`)).toBe(
        true,
      );
      const report = await verifyDirectory(directory);
      expect(report).toMatchObject({ isInUse: true, isSound: true, records: 20_000 });
      expect(report.batches).toBeLessThan(200);
    },
  );

  test("each open leads in a new epoch with a new producer id", async () => {
    const producerIds = new Set<number>();
    for (let open = 0; open < 3; open += 1) {
      await using log = await Tidemark.open({ directory });
      producerIds.add(log.producerId);
      const topic = await log.topic("t");
      await topic.append({ value: `${open}` });
      expect(topic.partition(0).leaderEpoch).toBe(open);
      expect(topic.partition(0).epochEntries.map(({ startOffset }) => startOffset)).toEqual(
        [0, 1, 2].slice(0, open + 1),
      );
    }
    expect(producerIds.size).toBe(3);
  });
});

describe("where records go", () => {
  test("keys go to Kafka's partition, an array's results come in its order, each partition keeps the order", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { partitions: 7 });
    const keys = ["21", "foobar", "abc", "21", "foobar", "abc"];
    const results = await topic.append(keys.map((key, index) => ({ key, value: `${index}` })));
    const expected = { "21": (-973932308 & 0x7fffffff) % 7, foobar: (-790332482 & 0x7fffffff) % 7, abc: 479470107 % 7 };
    expect(results.map(({ partition }) => partition)).toEqual(
      keys.map((key) => expected[key as keyof typeof expected]),
    );
    for (const partition of new Set(Object.values(expected))) {
      const records = await readAll(topic, partition);
      const sent = results.flatMap((result, index) => (result.partition === partition ? [`${index}`] : []));
      expect(valuesOf(records)).toEqual(sent);
    }
  });

  test("a named partition wins over the key", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { partitions: 3 });
    for (let partition = 0; partition < 3; partition += 1) {
      expect(await topic.append({ key: "same", value: "x" }, { partition })).toMatchObject({ partition, offset: 0 });
    }
    await expect(topic.append({ value: "x" }, { partition: 3 })).rejects.toMatchObject({
      code: "UNKNOWN_TOPIC_OR_PARTITION",
    });
  });

  test("an empty array appends nothing", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    expect(await topic.append([])).toEqual([]);
    expect(topic.offsets(0)).toEqual({ earliest: 0, latest: 0 });
  });
});

describe("refusals before anything is appended", () => {
  test("a record above maxMessageBytes, alone or in an array: MESSAGE_TOO_LARGE", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { maxMessageBytes: 1000 });
    const tooLarge = { value: new Uint8Array(1000 - 61 - 8) };
    const fits = { value: new Uint8Array(1000 - 61 - 9) };
    await expect(topic.append(tooLarge)).rejects.toMatchObject({
      code: "MESSAGE_TOO_LARGE",
      kind: "fix-call",
      topic: "t",
    });
    await expect(topic.append([fits, fits, tooLarge])).rejects.toMatchObject({ code: "MESSAGE_TOO_LARGE" });
    expect(topic.offsets(0).latest).toBe(0);
    expect(await topic.append(fits)).toMatchObject({ offset: 0 });
  });

  test.each([
    [{ value: undefined }, "INVALID_REQUEST"],
    [{ value: 7 }, "INVALID_REQUEST"],
    [{ key: {}, value: "x" }, "INVALID_REQUEST"],
    [{ value: "x", headers: { h: 1 } }, "INVALID_REQUEST"],
    [{ value: "x", timestamp: -1 }, "INVALID_TIMESTAMP"],
    [{ value: "x", timestamp: 1.5 }, "INVALID_TIMESTAMP"],
    [null, "INVALID_REQUEST"],
  ])("append(%j): %s", async (record, code) => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    await expect(topic.append(record as never)).rejects.toMatchObject({ code });
    await expect(topic.append([{ value: "good" }, record as never])).rejects.toMatchObject({ code });
    expect(topic.offsets(0).latest).toBe(0);
  });

  test("of topics and options", async () => {
    await using log = await Tidemark.open({ directory });
    await log.topic("t", { partitions: 2 });
    await expect(log.topic("bad name")).rejects.toMatchObject({ code: "INVALID_TOPIC_EXCEPTION", kind: "fix-call" });
    await expect(log.topic("t", { partitions: 3 })).rejects.toMatchObject({ code: "INVALID_PARTITIONS" });
    await expect(log.topic("t", { segmentBytes: 5000 })).rejects.toMatchObject({ code: "INVALID_CONFIG" });
    await expect(log.topic("u", { segmentBytes: 1 })).rejects.toMatchObject({ code: "INVALID_CONFIG" });
    await expect(log.topic("u", { compression: "lzma" as never })).rejects.toMatchObject({ code: "INVALID_CONFIG" });
    await expect(log.deleteTopic("nope")).rejects.toMatchObject({ code: "UNKNOWN_TOPIC_OR_PARTITION" });
    await expect(Tidemark.open({ directory: "" })).rejects.toMatchObject({ code: "INVALID_REQUEST" });
    expect(log.topics()).toEqual(["t"]);
  });
});

describe("fetch", () => {
  test("waits for new records, from the latest too, and ends with break", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    await topic.append({ value: "before" });
    const records = topic.fetch({ partition: 0, from: "latest" });
    const seen: (string | null)[] = [];
    const reading = (async () => {
      for await (const { value } of records) {
        seen.push(text(value));
        if (seen.length === 3) break;
      }
    })();
    await topic.append([{ value: "a" }, { value: "b" }]);
    await topic.append({ value: "c" });
    await reading;
    expect(seen).toEqual(["a", "b", "c"]);
  });

  test("begins and ends inside batches, in slices smaller than a batch", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { segmentBytes: 4096 });
    for (let batch = 0; batch < 20; batch += 1) {
      await topic.append(Array.from({ length: 10 }, (_, index) => ({ value: `${batch * 10 + index}`.padEnd(30) })));
    }
    for (const [from, to, maxBytes] of [
      [0, 200, 1],
      [15, 187, 700],
      [199, 200, 5000],
      [60, 60, 100],
    ] as const) {
      const offsets: number[] = [];
      for await (const { offset } of topic.fetch({ partition: 0, from, to, maxBytes })) offsets.push(offset);
      expect(offsets).toEqual(Array.from({ length: to - from }, (_, index) => from + index));
    }
  });

  test("refuses what is not there, when it is called", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    await topic.append({ value: "x" });
    for (const from of [-1, 2, 0.5, Number.NaN]) {
      expect(() => topic.fetch({ partition: 0, from })).toThrow(
        expect.objectContaining({ code: "OFFSET_OUT_OF_RANGE" }),
      );
    }
    expect(() => topic.fetch({ partition: 1 })).toThrow(
      expect.objectContaining({ code: "UNKNOWN_TOPIC_OR_PARTITION" }),
    );
    expect(() => topic.fetch({ partition: 0, maxBytes: 0 })).toThrow(
      expect.objectContaining({ code: "INVALID_REQUEST" }),
    );
  });

  test("rejects with the reason when it is aborted: before, while it waits, between records", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    const reason = new Error("enough");
    await expect(topic.fetch({ partition: 0, signal: AbortSignal.abort(reason) }).next()).rejects.toBe(reason);
    const waiting = new AbortController();
    const next = topic.fetch({ partition: 0, signal: waiting.signal }).next();
    setImmediate(() => waiting.abort(reason));
    await expect(next).rejects.toBe(reason);
    await topic.append([{ value: "a" }, { value: "b" }]);
    const between = new AbortController();
    const records = topic.fetch({ partition: 0, signal: between.signal });
    expect((await records.next()).done).toBe(false);
    between.abort(reason);
    await expect(records.next()).rejects.toBe(reason);
  });

  test("return() ends a next() that waits", async () => {
    await using log = await Tidemark.open({ directory });
    const records = (await log.topic("t")).fetch({ partition: 0 });
    const next = records.next();
    await records.return?.();
    expect(await next).toEqual({ done: true, value: undefined });
  });

  test("overlapping calls of next() get every record once", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    const records = topic.fetch({ partition: 0 });
    const nexts = Array.from({ length: 5 }, () => records.next());
    await topic.append(Array.from({ length: 5 }, (_, index) => ({ value: `${index}` })));
    expect((await Promise.all(nexts)).map(({ value }) => value?.offset ?? -1).sort((a, b) => a - b)).toEqual([
      0, 1, 2, 3, 4,
    ]);
    await records.return?.();
  });

  test("finds damage by its CRC: CORRUPT_MESSAGE with the offset", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    for (const value of ["a", "b", "c"]) await topic.append({ value });
    const path = join(directory, "log", "t-0", "00000000000000000000.log");
    await writeFile(path, Buffer.from([0xee]), { flag: "r+" }); // The base offset's first byte: no offset of ours.
    const records = topic.fetch({ partition: 0 });
    await expect(records.next()).rejects.toMatchObject({ code: "CORRUPT_MESSAGE", kind: "restore-data", partition: 0 });
  });
});

describe("back-pressure", () => {
  test("an append waits for room; aborted while it waits it was not appended", async () => {
    await using log = await Tidemark.open({ directory, bufferMemoryBytes: 3000 });
    const topic = await log.topic("t");
    const value = new Uint8Array(1000);
    const first = [topic.append({ value }), topic.append({ value })];
    const stop = new AbortController();
    const aborted = topic.append({ value }, { signal: stop.signal });
    const behind = topic.append({ value: "behind" });
    stop.abort(new Error("too slow"));
    await expect(aborted).rejects.toThrow("too slow");
    expect((await Promise.all([...first, behind])).map(({ offset }) => offset)).toEqual([0, 1, 2]);
    expect(topic.offsets(0).latest).toBe(3);
    await expect(topic.append({ value }, { signal: AbortSignal.abort(new Error("at once")) })).rejects.toThrow(
      "at once",
    );
    expect(topic.offsets(0).latest).toBe(3);
  });

  test("one append larger than the whole buffer goes through", async () => {
    await using log = await Tidemark.open({ directory, bufferMemoryBytes: 1000 });
    const topic = await log.topic("t");
    const results = await topic.append(Array.from({ length: 50 }, () => ({ value: new Uint8Array(100) })));
    expect(results.at(-1)?.offset).toBe(49);
    expect(await topic.append({ value: "and on" })).toMatchObject({ offset: 50 });
  });

  test("records stay in the order of the calls though some had to wait", async () => {
    await using log = await Tidemark.open({ directory, bufferMemoryBytes: 5000 });
    const topic = await log.topic("t");
    const signal = new AbortController().signal;
    const results = await Promise.all(
      Array.from({ length: 2000 }, (_, index) =>
        topic.append({ value: `${index}` }, index % 3 === 0 ? { signal } : {}),
      ),
    );
    expect(results.map(({ offset }) => offset)).toEqual(Array.from({ length: 2000 }, (_, index) => index));
  });
});

describe("one writer", () => {
  test("a second open in this process gets LOG_DIRECTORY_LOCKED, and the first goes on", async () => {
    await using log = await Tidemark.open({ directory });
    await expect(Tidemark.open({ directory })).rejects.toMatchObject({
      code: "LOG_DIRECTORY_LOCKED",
      retriable: false,
      kind: "reopen",
    });
    const topic = await log.topic("t");
    expect(await topic.append({ value: "x" })).toMatchObject({ offset: 0 });
  });

  test("another process's lock is respected, and goes with it", async () => {
    await (await Tidemark.open({ directory })).close();
    const lock = join(directory, "log", ".lock");
    const holder = spawn("python3", [
      "-c",
      `import fcntl,sys\nf=open(${JSON.stringify(lock)},"r+")\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint("held",flush=True)\nsys.stdin.read()`,
    ]);
    await new Promise((resolve) => holder.stdout.once("data", resolve));
    try {
      await expect(Tidemark.open({ directory })).rejects.toMatchObject({ code: "LOG_DIRECTORY_LOCKED" });
      expect((await verifyDirectory(directory)).isInUse).toBe(true);
    } finally {
      holder.kill("SIGKILL");
    }
    await new Promise((resolve) => holder.once("close", resolve));
    await (await Tidemark.open({ directory })).close();
  });
});

describe("topics", () => {
  test("options of an existing topic hold at its first call after an open", async () => {
    {
      await using log = await Tidemark.open({ directory });
      await (await log.topic("t")).append({ value: "x" });
    }
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { segmentBytes: 2000, compression: "gzip" });
    expect(await topic.append({ value: "y".repeat(500) })).toMatchObject({ offset: 1 });
    expect(topic.config).toMatchObject({ segmentBytes: 2000, compression: "gzip", flush: "always" });
    expect(await log.topic("t")).toBe(topic);
    expect(valuesOf(await readAll(topic))).toEqual(["x", "y".repeat(500)]);
  });

  test("a deleted topic answers UNKNOWN_TOPIC_OR_PARTITION, its readers end, and its name is free", async () => {
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t", { partitions: 2 });
    await topic.append({ value: "x" }, { partition: 1 });
    const waiting = topic.fetch({ partition: 0 }).next();
    await Promise.all([
      log.deleteTopic("t"),
      expect(waiting).rejects.toMatchObject({ code: "UNKNOWN_TOPIC_OR_PARTITION" }),
    ]);
    await expect(topic.append({ value: "y" })).rejects.toMatchObject({ code: "UNKNOWN_TOPIC_OR_PARTITION" });
    expect((await readdir(join(directory, "log"))).filter((name) => name.startsWith("t-"))).toEqual([]);
    const anew = await log.topic("t");
    expect([anew.partitions, anew.offsets(0)]).toEqual([1, { earliest: 0, latest: 0 }]);
  });

  test("describe tells of segments, epochs, offsets and recovery", async () => {
    {
      await using log = await Tidemark.open({ directory });
      await (await log.topic("t", { partitions: 2 })).append({ value: "x" }, { partition: 1 });
    }
    await using log = await Tidemark.open({ directory });
    const described = log.describe();
    expect(described).toMatchObject({ directory, nodeId: 1, isOnline: true, opened: { wasCleanShutdown: true } });
    expect(described.topics).toMatchObject([
      {
        name: "t",
        partitions: [
          { partition: 0, logEndOffset: 0 },
          {
            partition: 1,
            logEndOffset: 1,
            leaderEpoch: 1,
            segments: [{ baseOffset: 0 }],
            recovery: { wasCleanShutdown: true },
          },
        ],
      },
    ]);
  });
});

describe("close", () => {
  test("waits for appends under way, is idempotent, and everything answers CLOSED after it", async () => {
    const log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    const appends = Array.from({ length: 100 }, (_, index) => topic.append({ value: `${index}` }));
    const waiting = topic.fetch({ partition: 0, from: "latest" });
    const iteration = (async () => {
      for await (const record of waiting) void record;
    })();
    const closes = [log.close(), log.close()];
    await Promise.all([
      expect(iteration).rejects.toMatchObject({ code: "CLOSED" }),
      expect(topic.append({ value: "late" })).rejects.toMatchObject({ code: "CLOSED" }),
    ]);
    expect((await Promise.all(appends)).at(-1)?.offset).toBe(99);
    await Promise.all(closes);
    await expect(log.topic("t")).rejects.toMatchObject({ code: "CLOSED" });
    expect(() => log.describe()).toThrow(expect.objectContaining({ code: "CLOSED" }));
    expect(() => topic.offsets(0)).toThrow(expect.objectContaining({ code: "CLOSED" }));
    await using reopened = await Tidemark.open({ directory });
    expect(reopened.describe().opened.wasCleanShutdown).toBe(true);
    expect((await readAll(await reopened.topic("t"))).length).toBe(100);
  });
});

describe("a damaged node", () => {
  test("a state database that is none is put aside, and no record is lost", async () => {
    {
      await using log = await Tidemark.open({ directory });
      await (await log.topic("t", { segmentBytes: 5000 })).append({ value: "kept" });
    }
    await writeFile(join(directory, "state", "data.mdb"), "rubbish".repeat(4096));
    await using log = await Tidemark.open({ directory });
    expect(log.describe().opened.stateMovedTo).toBe(join(directory, "state.damaged-1"));
    expect(valuesOf(await readAll(await log.topic("t")))).toEqual(["kept"]);
  });

  test("a partition whose directory is gone answers KAFKA_STORAGE_ERROR, kind restore-data; the others work", async () => {
    {
      await using log = await Tidemark.open({ directory });
      await log.topic("t", { partitions: 2 });
    }
    await rm(join(directory, "log", "t-0"), { recursive: true });
    await using log = await Tidemark.open({ directory });
    const topic = await log.topic("t");
    await expect(topic.append({ value: "x" }, { partition: 0 })).rejects.toMatchObject({
      code: "KAFKA_STORAGE_ERROR",
      kind: "restore-data",
      partition: 0,
    });
    expect(await topic.append({ value: "x" }, { partition: 1 })).toMatchObject({ offset: 0 });
  });

  test("a file where the directory should be is one clear error", async () => {
    const path = join(directory, "file");
    await writeFile(path, "");
    await expect(Tidemark.open({ directory: path })).rejects.toMatchObject({
      name: "TidemarkError",
      code: "KAFKA_STORAGE_ERROR",
      message: expect.stringContaining(path) as string,
    });
  });
});
