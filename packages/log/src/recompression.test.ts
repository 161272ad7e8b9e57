import { decodeUtf8, encodeUtf8, toLeaderEpoch, toOffset } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import {
  COMPRESSION_CODECS,
  compressionCodec,
  compressPayload,
  decodeRecords,
  decompressBatchNow,
  encodeBatch,
  isControlBatch,
  RECORD_BATCH_OVERHEAD,
  stampMaxTimestamp,
  withCompressedPayload,
} from "@tidemark/wire";
import type { CompressionCodec } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { batchesIn, batchOf, LogFixture, NOON } from "./log.fixture.ts";
import { GROUP_CONVERSIONS_MAX } from "./partition-queue.ts";
import type { PartitionLog } from "./partition-log.ts";

const CLIENT = { origin: "client" } as const;

/** A batch as a client sends it. */
function compressed(codec: CompressionCodec, batch: Uint8Array): Uint8Array {
  if (codec === "none") return batch;
  return withCompressedPayload(
    batch,
    codec,
    compressPayload(NODE_CODECS, codec, batch.subarray(RECORD_BATCH_OVERHEAD)),
  );
}

const compressible = (text: string): string => `${text} `.repeat(50);

/** The batches of a log, with what readers see of their records. */
async function batches(log: PartitionLog, fixture: LogFixture) {
  const found = [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 });
    const [header] = batchesIn(bytes);
    if (header === undefined) throw new Error(`no batch at ${next}`);
    const payload = decompressBatchNow(fixture.environment.workers, bytes, header, 1 << 24);
    const records = isControlBatch(header) ? [] : [...decodeRecords(header, payload)];
    found.push({
      header,
      codec: compressionCodec(header),
      values: records.map(({ offset, value }) => `${offset}:${decodeUtf8(value ?? new Uint8Array()).split(" ")[0]}`),
      timestamps: records.map(({ timestamp }) => timestamp),
    });
    next = header.lastOffset + 1;
  }
  return found;
}

describe("a topic's codec", () => {
  test.each(COMPRESSION_CODECS)(
    "%s is what every client's batch has in the log, whatever it came with",
    async (target) => {
      const fixture = new LogFixture({ compressionType: target });
      const log = await fixture.open({ epoch: 4 });
      const values = ["a", "b"].map(compressible);
      for (const [at, source] of COMPRESSION_CODECS.entries()) {
        const batch = batchOf(
          values,
          { id: 7, epoch: 2, sequence: 2 * at },
          (value) => NOON + (value.startsWith("a") ? 9 : 3),
        );
        expect(await log.append(compressed(source, batch), CLIENT)).toMatchObject({
          baseOffset: 2 * at,
          duplicate: false,
        });
      }
      for (const [at, { header, codec, values: found, timestamps }] of (await batches(log, fixture)).entries()) {
        expect([codec, found]).toEqual([target, [`${2 * at}:a`, `${2 * at + 1}:b`]]);
        expect(timestamps).toEqual([NOON + 9, NOON + 3]);
        expect(header).toMatchObject({
          partitionLeaderEpoch: toLeaderEpoch(4),
          producerId: 7,
          producerEpoch: 2,
          baseSequence: 2 * at,
          maxTimestamp: NOON + 9,
        });
      }
      expect(log.nextSequence(7)).toBe(10);
      const again = batchOf(
        values,
        { id: 7, epoch: 2, sequence: 8 },
        (value) => NOON + (value.startsWith("a") ? 9 : 3),
      );
      expect(await log.append(compressed("gzip", again), CLIENT)).toMatchObject({ baseOffset: 8, duplicate: true });
    },
  );

  test("is producer by default: batches stay byte for byte what they were", async () => {
    const fixture = new LogFixture();
    const log = await fixture.open();
    const sent = COMPRESSION_CODECS.map((codec) => compressed(codec, batchOf([compressible("a")])));
    for (const batch of sent) await log.append(batch, CLIENT);
    const { bytes } = await log.read({ fromOffset: toOffset(0), maxBytes: 1 << 20 });
    let atBytes = 0;
    for (const batch of sent) {
      // But for base offset and leader epoch, in front of the CRC.
      expect(bytes.subarray(atBytes + 17, atBytes + batch.length)).toEqual(batch.subarray(17));
      atBytes += batch.length;
    }
    expect(bytes).toHaveLength(atBytes);
  });

  test("leaves our own producers' batches alone, which have it already, and the markers of transactions", async () => {
    const fixture = new LogFixture({ compressionType: "zstd" });
    const log = await fixture.open();
    await log.append(batchOf(["x"]), { origin: "local" });
    const marker = {
      type: "commit",
      producerId: 7,
      producerEpoch: 0,
      coordinatorEpoch: 0,
      transactionVersion: 0,
    } as const;
    await log.endTransaction(marker);
    expect((await batches(log, fixture)).map(({ codec }) => codec)).toEqual(["none", "none"]);
  });

  test("at a level", async () => {
    const words = ["alpha", "beta", "gamma", "delta", "epsilon"];
    const value = Array.from({ length: 5000 }, (_, at) => words[(at * at * 7 + (at >> 3)) % 5]).join(" ");
    const sizes = [];
    for (const compressionLevel of [1, 9]) {
      const log = await new LogFixture({ compressionType: "gzip", compressionLevel }).open();
      await log.append(batchOf([value]), CLIENT);
      sizes.push(log.segments[0]?.sizeBytes ?? 0);
    }
    expect(sizes[1]).toBeLessThan(sizes[0] ?? 0);
  });
});

describe("times", () => {
  test("of the log are written over those of a batch that is compressed anew", async () => {
    const fixture = new LogFixture({ compressionType: "lz4", timestampType: "LogAppendTime" });
    const log = await fixture.open();
    const { logAppendTime } = await log.append(batchOf([compressible("a"), "b"]), CLIENT);
    const [batch] = await batches(log, fixture);
    expect(batch).toMatchObject({ codec: "lz4", timestamps: [logAppendTime, logAppendTime] });
    expect(logAppendTime).toBe(Math.floor(fixture.environment.clock.wallMs()));
  });

  test("that a producer's header has wrong are set right", async () => {
    const fixture = new LogFixture({ compressionType: "zstd" });
    const log = await fixture.open();
    const batch = batchOf(["a", "b"], {}, (value) => NOON + (value === "a" ? 5 : 1));
    const [header] = batchesIn(batch);
    if (header !== undefined) stampMaxTimestamp(batch, header, "CreateTime", NOON + 77);
    await log.append(batch, CLIENT);
    expect((await batches(log, fixture))[0]?.header.maxTimestamp).toBe(NOON + 5);
  });
});

describe("a batch that cannot be converted", () => {
  test("is refused by itself, and takes no offset", async () => {
    const fixture = new LogFixture({ compressionType: "none", maxMessageBytes: 2000, cleanupPolicy: "compact" });
    const log = await fixture.open();
    const keyed = (...values: readonly string[]): Uint8Array =>
      encodeBatch(values.map((value) => ({ key: encodeUtf8("k"), value: encodeUtf8(value), timestamp: NOON })));
    const garbled = compressed("gzip", keyed(compressible("x")));
    const other = withCompressedPayload(keyed("y"), "gzip", garbled.subarray(RECORD_BATCH_OVERHEAD));
    const old = encodeBatch([{ key: encodeUtf8("k"), value: null, timestamp: NOON * 10 }]);
    const sent = [
      compressed("zstd", keyed("first")),
      compressed("zstd", keyed("x".repeat(3000))),
      compressed("lz4", batchOf(["no key"])),
      withCompressedPayload(keyed("y"), "gzip", Uint8Array.of(1, 2, 3)),
      compressed("snappy", old),
      other,
      compressed("gzip", keyed("second")),
      keyed("third"),
      compressed("lz4", keyed("fourth")),
    ];
    const answers = await Promise.all(
      sent.map((batch) =>
        log.append(batch, CLIENT).then(
          ({ baseOffset }) => baseOffset,
          (error: { code: string }) => error.code,
        ),
      ),
    );
    expect(answers).toEqual([
      0,
      "MESSAGE_TOO_LARGE",
      "INVALID_RECORD",
      "CORRUPT_MESSAGE",
      "INVALID_TIMESTAMP",
      1,
      2,
      3,
      4,
    ]);
    expect((await batches(log, fixture)).flatMap(({ values }) => values)).toEqual([
      "0:first",
      "1:x",
      "2:second",
      "3:third",
      "4:fourth",
    ]);
  });

  test("for want of a worker fails alone, and may be sent again", async () => {
    const fixture = new LogFixture({ compressionType: "zstd" });
    const log = await fixture.open();
    const large = batchOf([compressible("x").repeat(400)]);
    fixture.environment.workers.failNext(1);
    const [first, second] = await Promise.allSettled([log.append(large, CLIENT), log.append(large, CLIENT)]);
    expect(first).toMatchObject({ status: "rejected", reason: { code: "WORKER_FAILED", retriable: true } });
    expect(second).toMatchObject({ status: "fulfilled", value: { baseOffset: 0 } });
  });
});

describe("the queue", () => {
  test("keeps the order of all calls: converted batches, others, rolls, and the close", async () => {
    const fixture = new LogFixture({ compressionType: "gzip" });
    const log = await fixture.open();
    const calls: Promise<unknown>[] = [];
    for (let number = 0; number < 30; number += 1) {
      const large = number % 4 === 0 ? compressible("x").repeat(200) : "";
      const batch = batchOf([`${number} ${large}`]);
      calls.push(log.append(number % 3 === 0 ? compressed("gzip", batch) : batch, CLIENT));
      // Memory that is the caller's again.
      batch.fill(0);
      if (number % 10 === 9) calls.push(log.roll());
    }
    const closed = log.close();
    await Promise.all(calls);
    expect(await closed).toBe(true);
    const reopened = await fixture.open({ clean: true });
    const found = await batches(reopened, fixture);
    expect(found.flatMap(({ values }) => values)).toEqual(Array.from({ length: 30 }, (_, at) => `${at}:${at}`));
    expect(new Set(found.map(({ codec }) => codec))).toEqual(new Set(["gzip"]));
    expect(reopened.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 10, 20, 30]);
  });

  test("has the batches of two groups converted at a time, no more", async () => {
    const fixture = new LogFixture({ compressionType: "zstd" });
    const { workers } = fixture.environment;
    const log = await fixture.open();
    const waiting: (() => void)[] = [];
    const run = workers.run.bind(workers);
    let running = 0;
    let runningMax = 0;
    workers.run = async (name, input) => {
      running += 1;
      runningMax = Math.max(runningMax, running);
      await new Promise<void>((resolve) => waiting.push(resolve));
      running -= 1;
      return run(name, input);
    };
    const large = batchOf([compressible("x").repeat(400)]);
    const appends = Array.from({ length: 50 }, () => log.append(large, CLIENT));
    const answered: unknown[] = [];
    const all = Promise.all(appends.map(async (append) => answered.push(await append)));
    while (answered.length < appends.length) {
      // All of them that wait are let go; the next ones come when the group is written.
      for (const resume of waiting.splice(0)) resume();
      await new Promise(setImmediate);
    }
    await all;
    expect(runningMax).toBe(2 * GROUP_CONVERSIONS_MAX);
    expect(log.logEndOffset).toBe(50);
  });

  test("refuses what is too much, and takes more when that is written", async () => {
    const fixture = new LogFixture({ compressionType: "zstd", maxMessageBytes: 1 << 26, segmentBytes: 1 << 30 });
    const log = await fixture.open();
    const batch = batchOf(["x".repeat(24 << 20)]);
    const appends = Array.from({ length: 4 }, () => log.append(batch, CLIENT));
    const outcomes = await Promise.allSettled(appends);
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected", "rejected"]);
    expect(outcomes[2]).toMatchObject({ reason: { code: "QUEUE_FULL" } });
    expect((await log.append(batch, CLIENT)).baseOffset).toBe(2);
  });
});
