import { decodeUtf8, encodeUtf8, toOffset } from "@tidemark/base";
import { compressPayload, decodeRecords, decompressBatchNow, encodeBatch, withCompressedPayload } from "@tidemark/wire";
import type { DecodedRecord } from "@tidemark/wire";
import { NODE_CODECS } from "@tidemark/codecs";
import { describe, expect, test } from "vitest";
import { DEFAULT_LOG_CONFIG } from "./config.ts";
import { batchesIn, batchOf, DIRECTORY, LogFixture } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

const T = 1_767_225_600_000;
const DAY_MS = 24 * 60 * 60 * 1000;

/** `key=value`, and `key` alone for a tombstone. */
function keyed(...pairs: readonly string[]): Parameters<typeof encodeBatch>[0] {
  return pairs.map((pair, at) => {
    const [key = "", value] = pair.split("=");
    return {
      key: key === "" ? null : encodeUtf8(key),
      value: value === undefined ? null : encodeUtf8(value),
      timestamp: T + at,
      headers: [{ key: "h", value: encodeUtf8(pair) }],
    };
  });
}

async function write(log: PartitionLog, ...pairs: readonly string[]): Promise<void> {
  await log.append(encodeBatch(keyed(...pairs)), { origin: "client" });
}

async function batches(log: PartitionLog, fixture: LogFixture) {
  const found: { base: number; last: number; records: DecodedRecord[]; attributes: number; baseTimestamp: number }[] =
    [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 });
    const [header] = batchesIn(bytes);
    if (header === undefined) break;
    const payload = decompressBatchNow(fixture.environment.workers, bytes, header, 1 << 20);
    found.push({
      base: header.baseOffset,
      last: header.lastOffset,
      records: [...decodeRecords(header, payload)],
      attributes: header.attributes,
      baseTimestamp: header.baseTimestamp,
    });
    next = header.lastOffset + 1;
  }
  return found;
}

/** `offset:key=value` of what is left. */
async function left(log: PartitionLog, fixture: LogFixture): Promise<string[]> {
  return (await batches(log, fixture)).flatMap(({ records }) =>
    records.map(({ offset, key, value }) => {
      const text = (bytes: Uint8Array | null): string => (bytes === null ? "" : decodeUtf8(bytes));
      return `${offset}:${text(key)}${value === null ? "" : `=${text(value)}`}`;
    }),
  );
}

describe("a pass", () => {
  test("keeps the last value of each key below the active segment, with its offset, time and headers", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await write(log, "a=1", "b=1", "c=1");
    await write(log, "a=2");
    await log.roll();
    await write(log, "b=2", "b=3");
    await log.roll();
    await write(log, "c=2", "a=3");
    const { cleanedEndOffset, keys } = await log.compact();
    expect([cleanedEndOffset, keys]).toEqual([6, 3]);
    // What the active segment holds does not count.
    expect(await left(log, fixture)).toEqual(["2:c=1", "3:a=2", "5:b=3", "6:c=2", "7:a=3"]);
    const [first] = await batches(log, fixture);
    expect(first).toMatchObject({ base: 0, last: 2, baseTimestamp: T + 2 });
    expect(first?.records[0]).toMatchObject({ timestamp: T + 2, headers: [{ key: "h", value: encodeUtf8("c=1") }] });
    expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 6]);
  });

  test("drops records without a key, and batches of which nothing is left but the one before the dirty end", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await log.append(batchOf(["no key"]), { origin: "local" });
    await write(log, "a=1");
    await log.append(batchOf(["no key"]), { origin: "local" });
    await log.roll();
    await write(log, "z=1");
    await log.compact();
    expect((await batches(log, fixture)).map(({ base, records }) => [base, records.length])).toEqual([
      [1, 1],
      [2, 0],
      [3, 1],
    ]);
    expect(log.logEndOffset).toBe(4);
  });

  test("leaves untouched batches as they are, byte for byte", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    for (const pair of ["a=1", "b=1", "c=1"]) await write(log, pair);
    const before = (await log.read({ fromOffset: toOffset(0), maxBytes: 9999 })).bytes;
    await log.roll();
    await write(log, "d=1");
    await log.compact();
    expect(await fixture.readFile("00000000000000000000.log")).toEqual(before);
  });

  test.each(["gzip", "snappy", "lz4", "zstd"] as const)(
    "gives what is left of a batch its codec again: %s",
    async (codec) => {
      const fixture = new LogFixture();
      const log = await fixture.open();
      const plain = encodeBatch(keyed("a=1", "b=1", "a=2", "c=1"));
      const payload = compressPayload(NODE_CODECS, codec, plain.subarray(61));
      await log.append(withCompressedPayload(plain, codec, payload), { origin: "client" });
      await log.roll();
      await write(log, "d=1");
      await log.compact();
      expect(await left(log, fixture)).toEqual(["1:b=1", "2:a=2", "3:c=1", "4:d=1"]);
      expect((await batches(log, fixture))[0]?.attributes).toBe(
        ["none", "gzip", "snappy", "lz4", "zstd"].indexOf(codec),
      );
    },
  );

  test("that finds a damaged batch says where, and changes nothing", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await write(log, "a=1");
    await write(log, "a=2");
    await log.roll();
    await write(log, "b=1");
    const bytes = await fixture.readFile("00000000000000000000.log");
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
    await fixture.writeFile("00000000000000000000.log", bytes);
    await expect(log.compact()).rejects.toMatchObject({ code: "CORRUPT_MESSAGE", type: { reason: "CRC" } });
    expect((await fixture.fileNames()).filter((name) => name.includes("cleaned"))).toEqual([]);
    await write(log, "b=2");
  });

  test("with a full map goes as far as it knows the keys, and the next one goes on there", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    for (let number = 0; number < 40; number += 1) await write(log, `k${number % 20}=${number}`);
    await log.roll();
    await write(log, "z=1");
    const first = await log.compact({ mapBytes: 16 * 24 });
    expect(first).toMatchObject({ cleanedEndOffset: 14, keys: 14 });
    let firstDirtyOffset = first.cleanedEndOffset;
    for (let pass = 0; pass < 3; pass += 1)
      firstDirtyOffset = (await log.compact({ firstDirtyOffset, mapBytes: 16 * 24 })).cleanedEndOffset;
    expect(firstDirtyOffset).toBe(40);
    expect(await left(log, fixture)).toEqual([
      ...Array.from({ length: 20 }, (_, at) => `${20 + at}:k${at}=${20 + at}`),
      "40:z=1",
    ]);
  });

  test("joins segments up to the size of one", async () => {
    const size = encodeBatch(keyed("k0=00")).length;
    const fixture = new LogFixture({ segmentBytes: 3 * size });
    const log = await fixture.open();
    for (let number = 10; number < 34; number += 1) await write(log, `k${number % 4}=${number}`);
    expect(log.segments).toHaveLength(8);
    const { cleanedEndOffset } = await log.compact();
    expect(cleanedEndOffset).toBe(21);
    const again = await log.compact({ firstDirtyOffset: cleanedEndOffset });
    expect(again.bytesAfter).toBe(again.bytesBefore);
    expect(log.segments.every(({ sizeBytes }) => sizeBytes <= 3 * size)).toBe(true);
    expect(await left(log, fixture)).toEqual([
      "17:k3=27",
      "18:k0=28",
      "19:k1=29",
      "20:k2=30",
      "21:k3=31",
      "22:k0=32",
      "23:k1=33",
    ]);
  });
});

describe("tombstones", () => {
  test("stay for delete.retention.ms after the first pass that met them, then go", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    const { clock, kernel } = fixture.environment;
    await write(log, "a=1", "b=1");
    await write(log, "a");
    await log.roll();
    await write(log, "z=1");
    await log.compact();
    expect(await left(log, fixture)).toEqual(["1:b=1", "2:a", "3:z=1"]);
    const horizon = clock.wallMs() + DEFAULT_LOG_CONFIG.deleteRetentionMs;
    expect((await batches(log, fixture))[1]).toMatchObject({ attributes: 0x40, baseTimestamp: horizon });
    await kernel.runFor((DAY_MS - 1) * 1000);
    await log.compact({ firstDirtyOffset: toOffset(3) });
    expect(await left(log, fixture)).toEqual(["1:b=1", "2:a", "3:z=1"]);
    await kernel.runFor(1000);
    await log.compact({ firstDirtyOffset: toOffset(3) });
    expect(await left(log, fixture)).toEqual(["1:b=1", "3:z=1"]);
  });
});

describe("transactions", () => {
  const txn = (id: number, sequence: number, pair: string): Uint8Array =>
    encodeBatch(keyed(pair), { producerId: id, producerEpoch: 0, baseSequence: sequence, transactional: true });
  const end = (log: PartitionLog, type: "abort" | "commit", producerId: number) =>
    log.endTransaction({ type, producerId, producerEpoch: 0, coordinatorEpoch: 0, transactionVersion: 0 });

  test("aborted data goes at once, its marker and index entry when nothing is left and the time has come", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await write(log, "a=1"); // 0
    await log.append(txn(7, 0, "a=aborted"), { origin: "local" }); // 1
    await end(log, "abort", 7); // 2
    await log.append(txn(8, 0, "a=2"), { origin: "local" }); // 3
    await end(log, "commit", 8); // 4
    await log.append(txn(7, 1, "b=1"), { origin: "local" }); // 5
    await end(log, "commit", 7); // 6
    await log.append(txn(8, 1, "c=1"), { origin: "local" }); // 7
    await end(log, "commit", 8); // 8
    await log.roll();
    await write(log, "z=1"); // 9
    const bases = async (): Promise<number[]> => (await batches(log, fixture)).map(({ base }) => base);
    await log.compact();
    // The marker of the abort stays with its entry: its data was met in this pass.
    expect(await bases()).toEqual([2, 3, 4, 5, 6, 7, 8, 9]);
    expect((await fixture.readFile("00000000000000000000.txnindex")).length).toBe(34);
    await log.compact();
    expect((await batches(log, fixture))[0]).toMatchObject({ base: 2, attributes: 0x70 });
    expect(await fixture.fileNames()).not.toContain("00000000000000000000.txnindex");
    await fixture.environment.kernel.runFor(DAY_MS * 1000);
    await log.compact();
    expect(await bases()).toEqual([3, 4, 5, 6, 7, 8, 9]);
  });

  test("nothing at or above the last stable offset is looked at", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    await write(log, "a=1");
    await write(log, "a=2");
    await log.roll();
    await log.append(txn(7, 0, "a=3"), { origin: "local" });
    await log.roll();
    await write(log, "a=4");
    await log.roll();
    await write(log, "z=1");
    expect(await log.compactionRange()).toMatchObject({ firstUncleanableOffset: 2 });
    await log.compact();
    expect(await left(log, fixture)).toEqual(["1:a=2", "2:a=3", "3:a=4", "4:z=1"]);
  });

  test("the last batch of a producer stays, empty, so that its sequence is known after any restart", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    const idempotent = (sequence: number): Uint8Array =>
      encodeBatch(keyed("a=1"), { producerId: 7, producerEpoch: 0, baseSequence: sequence });
    for (const sequence of [0, 1, 2]) await log.append(idempotent(sequence), { origin: "client" });
    await write(log, "a=2");
    await log.roll();
    await write(log, "z=1");
    await log.compact();
    expect((await batches(log, fixture)).map(({ base, records }) => [base, records.length])).toEqual([
      [2, 0],
      [3, 1],
      [4, 1],
    ]);
    fixture.kill();
    for (const name of await fixture.fileNames())
      if (name.endsWith(".snapshot")) await fixture.disk.unlink(`${DIRECTORY}/${name}`);
    expect((await fixture.open()).nextSequence(7)).toBe(3);
  });
});

describe("when a pass is due", () => {
  test("by the ratio of dirty bytes, by age, and not for records that are too young", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open({ config: { minCleanableDirtyRatio: 0.7 } });
    for (const pair of ["a=1", "b=1", "c=1"]) {
      await write(log, pair);
      await log.roll();
    }
    expect(await log.compactionRange()).toMatchObject({ dirtyRatio: 1, isDue: true, firstUncleanableOffset: 3 });
    const third = { firstDirtyOffset: toOffset(1) };
    expect(await log.compactionRange(third)).toMatchObject({ dirtyRatio: 2 / 3, isDue: false });
    // A checkpoint of another log, or of one that was cut.
    expect(await log.compactionRange({ firstDirtyOffset: toOffset(9) })).toMatchObject({ firstDirtyOffset: 0 });
    await log.close();
    const lags = { minCleanableDirtyRatio: 1, maxCompactionLagMs: DAY_MS };
    const old = await fixture.open({ clean: true, config: lags });
    expect((await old.compactionRange()).isDue).toBe(false);
    await fixture.environment.kernel.runFor((DAY_MS + 1) * 1000);
    expect((await old.compactionRange()).isDue).toBe(true);
    await old.close();
    const log2 = await fixture.open({ clean: true, config: { minCompactionLagMs: 2 * DAY_MS } });
    expect(await log2.compactionRange()).toMatchObject({ dirtyBytes: 0, isDue: false, firstUncleanableOffset: 0 });
  });
});

describe("beside a pass", () => {
  test("a truncation ends it, and what it wrote is gone", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    for (const pair of ["a=1", "a=2", "b=1"]) await write(log, pair);
    await log.roll();
    await write(log, "z=1");
    const pass = log.compact();
    const cut = log.truncateTo(toOffset(1));
    await expect(pass).rejects.toMatchObject({ code: "COMPACTION_ABORTED" });
    await cut;
    expect(await left(log, fixture)).toEqual(["0:a=1"]);
  });

  test("an abort ends it, however far a truncation has come that it waits for", async () => {
    const outcomes = new Set<string>();
    for (let turns = 0; turns < 60; turns += 1) {
      const log = await new LogFixture().open();
      for (const pair of ["a=1", "a=2"]) await write(log, pair);
      await log.roll();
      await write(log, "z=1");
      const cut = log.truncateTo(toOffset(3));
      for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
      const pass = log.compact().then(
        () => "over",
        (error: { code: string }) => error.code,
      );
      await Promise.all([log.abortCompaction(), cut]);
      outcomes.add(await pass);
    }
    expect([...outcomes]).toEqual(["COMPACTION_ABORTED"]);
  });

  test("others have their turn: no read of it is made on the event loop", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    for (const pair of ["a=1", "a=2"]) await write(log, pair);
    await log.roll();
    const reads = fixture.disk.stall({ operation: "read", path: /\.log$/u });
    let isOver = false;
    const pass = log.compact().finally(() => (isOver = true));
    await new Promise(setImmediate);
    expect(isOver).toBe(false);
    await write(log, "b=1");
    reads.release();
    await pass;
    expect(await left(log, fixture)).toEqual(["1:a=2", "2:b=1"]);
  });

  test("appends, reads and the close go on", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    for (let number = 0; number < 50; number += 1) await write(log, `k${number % 5}=${number}`);
    await log.roll();
    const pass = log.compact();
    await Promise.all([write(log, "z=1"), write(log, "z=2"), left(log, fixture)]);
    await pass;
    expect(await left(log, fixture)).toEqual([
      "45:k0=45",
      "46:k1=46",
      "47:k2=47",
      "48:k3=48",
      "49:k4=49",
      "50:z=1",
      "51:z=2",
    ]);
    const last = log.compact({ firstDirtyOffset: toOffset(0) }).catch((error: { code: string }) => error.code);
    expect(await log.close()).toBe(true);
    await last;
  });
});

describe("an open after a pass", () => {
  test.each(["closed", "killed", "without power"] as const)("finds the log as it was: %s", async (how) => {
    const size = encodeBatch(keyed("k0=00")).length;
    const fixture = new LogFixture({ segmentBytes: 3 * size });
    const before = await fixture.open();
    for (let number = 10; number < 40; number += 1) await write(before, `k${(number * 7) % 5}=${number}`);
    await before.compact();
    const records = await left(before, fixture);
    const segments = before.segments;
    if (how === "closed") await before.close();
    else if (how === "killed") fixture.kill();
    else fixture.powerCut();
    const log = await fixture.open({ clean: how === "closed" });
    expect([log.damaged, log.recovery.cut]).toEqual([[], undefined]);
    expect(await left(log, fixture)).toEqual(records);
    expect(log.segments.map(({ baseOffset, sizeBytes }) => [baseOffset, sizeBytes])).toEqual(
      segments.map(({ baseOffset, sizeBytes }) => [baseOffset, sizeBytes]),
    );
  });
});

describe("a topic that is compacted", () => {
  test.each(["none", "gzip", "zstd"] as const)(
    "refuses a batch with a record without a key, and says how many there are: %s",
    async (codec) => {
      const fixture = new LogFixture({ cleanupPolicy: "compact" });
      const log = await fixture.open();
      const encoded = (pairs: readonly string[]): Uint8Array => {
        const plain = encodeBatch(keyed(...pairs));
        if (codec === "none") return plain;
        return withCompressedPayload(plain, codec, compressPayload(NODE_CODECS, codec, plain.subarray(61)));
      };
      await expect(log.append(encoded(["a=1", "=2", "=3"]), { origin: "client" })).rejects.toMatchObject({
        code: "INVALID_RECORD",
        type: { reason: "2 records without a key, in a topic that is compacted" },
      });
      await log.append(encoded(["a=1", "b"]), { origin: "client" });
      expect(await left(log, fixture)).toEqual(["0:a=1", "1:b"]);
    },
  );

  test("a time that is wrong counts more than a missing key, as in Kafka", async () => {
    const log = await new LogFixture({ cleanupPolicy: "compact", timestampBeforeMaxMs: 0 }).open();
    const old = encodeBatch([{ key: null, value: null, timestamp: 1 }]);
    await expect(log.append(old, { origin: "client" })).rejects.toMatchObject({ code: "INVALID_TIMESTAMP" });
  });

  test("loses nothing for its age or size, unless both policies hold", async () => {
    const limits = { segmentBytes: 100, retentionBytes: 0, retentionMs: 0 };
    const fixture = new LogFixture({ cleanupPolicy: "compact", ...limits });
    const log = await fixture.open();
    for (const pair of ["a=1", "b=1"]) await write(log, pair);
    await fixture.environment.kernel.runFor(1000);
    expect((await log.deleteOldSegments()).deleted).toEqual([]);
    await log.deleteRecords(toOffset(1));
    expect(log.logStartOffset).toBe(1);
    await log.close();
    const both = await fixture.open({ clean: true, config: { cleanupPolicy: "compact,delete" } });
    expect((await both.deleteOldSegments()).deleted).toHaveLength(1);
  });

  test("a segment takes records for no longer than max.compaction.lag.ms: only sealed ones are compacted", async () => {
    for (const [cleanupPolicy, segments] of [
      ["compact", 2],
      ["delete", 1],
    ] as const) {
      const log = await new LogFixture({ cleanupPolicy, maxCompactionLagMs: DAY_MS }).open();
      for (const timestamp of [T - 2 * DAY_MS, T - DAY_MS + 1])
        await log.append(encodeBatch([{ key: encodeUtf8("k"), value: null, timestamp }]), { origin: "local" });
      expect(log.segments, cleanupPolicy).toHaveLength(segments);
    }
  });
});
