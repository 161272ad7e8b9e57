import { encodeUtf8, toOffset } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import { compressPayload, encodeBatch, recordsSection, scanBatch, withCompressedPayload } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { append, CONFIG, DATA, lead, ManagerFixture } from "./log-manager.fixture.ts";
import { verifyDirectory } from "./verify.ts";

/** Bytes of a batch of one record of `append`, with a value of 40 characters. */
const BATCH_BYTES = 108;
const VALUE = "v".repeat(40);
const FIRST_LOG = "orders-0/00000000000000000000.log";

/** Three segments of up to 4 KiB, with index entries, in two leader epochs. */
async function filledDirectory(): Promise<ManagerFixture> {
  const fixture = new ManagerFixture();
  const manager = await fixture.open();
  await manager.createTopic("orders", 1, { ...CONFIG, indexIntervalBytes: 500 });
  const log = await lead(manager, "orders");
  for (let record = 0; record < 50; record += 1) await append(log, VALUE);
  await lead(manager, "orders");
  for (let record = 50; record < 100; record += 1) await append(log, VALUE);
  await manager.close();
  return fixture;
}

async function patch(
  fixture: ManagerFixture,
  path: string,
  positionBytes: number,
  ...bytes: readonly number[]
): Promise<void> {
  const file = await fixture.files.open(`${DATA}/${path}`, "write");
  await file.writeAt(Uint8Array.from(bytes), positionBytes);
  await file.close();
}

async function cut(fixture: ManagerFixture, path: string, bytes: number): Promise<void> {
  const file = await fixture.files.open(`${DATA}/${path}`, "write");
  await file.truncate((await file.size()) - bytes);
  await file.close();
}

const verify = ({ files, environment: { workers } }: ManagerFixture, path = "") =>
  verifyDirectory({ files, workers, directory: path === "" ? DATA : `${DATA}/${path}` });
const verifyWithState = ({ files, environment: { workers }, state }: ManagerFixture) =>
  verifyDirectory({ files, workers, directory: DATA, state });
const kindsOf = (findings: readonly { readonly kind: string }[]) => findings.map(({ kind }) => kind);

describe("verification of a directory", () => {
  test("a damaged snapshot of producers and a damaged transaction index are found", async () => {
    const fixture = await filledDirectory();
    await patch(fixture, "orders-0/00000000000000000100.snapshot", 5, 1);
    const index = await fixture.files.open(`${DATA}/orders-0/00000000000000000000.txnindex`, "create");
    await index.writeAt(new Uint8Array(33), 0);
    await index.close();
    const { errors } = await verify(fixture);
    expect(kindsOf(errors)).toEqual(["snapshot-damaged", "transaction-index-damaged"]);
  });

  test.each([[20], [50], [70], [100]])(
    "batches below the log start %i are deleted, and nothing is amiss with them",
    async (start) => {
      const fixture = new ManagerFixture();
      const manager = await fixture.open();
      await manager.createTopic("orders", 1, { ...CONFIG, segmentBytes: 100_000 });
      const log = await lead(manager, "orders");
      for (let record = 0; record < 50; record += 1) await append(log, VALUE);
      await lead(manager, "orders");
      for (let record = 50; record < 100; record += 1) await append(log, VALUE);
      await log.deleteRecords(toOffset(start));
      expect(log.segments).toHaveLength(1);
      await manager.close();
      const { errors, notes } = await verify(fixture);
      expect([errors, notes]).toEqual([[], []]);
    },
  );

  test("a directory that was closed has no findings, and is not written to", async () => {
    const fixture = await filledDirectory();
    const operations = fixture.files.operationCount;
    const report = await verify(fixture);
    expect(report).toMatchObject({
      wasCleanShutdown: true,
      isSound: true,
      errors: [],
      notes: [],
      segments: 3,
      batches: 100,
      records: 100,
      bytes: 100 * BATCH_BYTES,
    });
    expect(report.indexEntries).toBeGreaterThan(10);
    expect(report.partitions).toMatchObject([
      {
        topic: "orders",
        partition: 0,
        firstOffset: 0,
        endOffset: 100,
        epochs: [
          { epoch: 0, startOffset: 0 },
          { epoch: 1, startOffset: 50 },
        ],
      },
    ]);
    expect(fixture.files.operationCount).toBe(operations);
    expect(fixture.files.openFileCount).toBe(0);
  });

  test("a directory in use, and one whose node was killed, have no errors", async () => {
    const fixture = await filledDirectory();
    const manager = await fixture.open();
    await append(await lead(manager, "orders"), VALUE);
    const inUse = await verifyDirectory({
      files: fixture.files,
      workers: fixture.environment.workers,
      directory: DATA,
      isInUse: true,
    });
    expect(inUse).toMatchObject({ isInUse: true, wasCleanShutdown: false, errors: [], records: 101 });
    fixture.kill();
    expect(await verify(fixture)).toMatchObject({
      isInUse: undefined,
      wasCleanShutdown: false,
      errors: [],
      records: 101,
    });
  });

  test("one partition's directory can be verified alone", async () => {
    const report = await verify(await filledDirectory(), "orders-0");
    expect(report).toMatchObject({ wasCleanShutdown: true, isSound: true, records: 100 });
    expect(report.partitions[0]?.topic).toBeUndefined();
  });

  test("any flipped byte of a batch is one error that names file, place and offset, and the rest is still read", async () => {
    for (let byte = 0; byte < BATCH_BYTES; byte += 1) {
      // Base offset and leader epoch lie outside the CRC: they are held against their neighbours and the epoch file.
      const fixture = await filledDirectory();
      await patch(fixture, FIRST_LOG, 5 * BATCH_BYTES + byte, 0xa5);
      const report = await verify(fixture);
      expect([byte, report.isSound]).toEqual([byte, false]);
      expect(report.errors[0]).toMatchObject({ path: `${DATA}/${FIRST_LOG}`, positionBytes: 5 * BATCH_BYTES });
      expect(report.partitions[0]?.endOffset).toBeGreaterThanOrEqual(100);
    }
  });

  test("a damaged batch in the middle is told once, with the batches behind it counted", async () => {
    const fixture = await filledDirectory();
    await patch(fixture, FIRST_LOG, 5 * BATCH_BYTES + 80, 1, 2, 3);
    const report = await verify(fixture);
    expect(report).toMatchObject({ errorCount: 1, batches: 99, records: 99 });
    expect(report.errors[0]).toMatchObject({ kind: "batch-damaged", positionBytes: 5 * BATCH_BYTES, offset: 5 });
  });

  test("a torn end is a note after a kill, an error after a clean stop", async () => {
    for (const isClean of [false, true]) {
      const fixture = await filledDirectory();
      const last = (await verify(fixture)).partitions[0]?.segments.at(-1);
      if (!isClean) await fixture.files.unlink(`${DATA}/.kafka_cleanshutdown`);
      await cut(fixture, `orders-0/${String(last?.baseOffset).padStart(20, "0")}.log`, 7);
      const report = await verify(fixture);
      // Without the marker the checkpoint still says 100: the data is gone in either case.
      expect(kindsOf(report.errors)).toEqual(
        isClean
          ? ["batch-damaged", "index-entry-wrong", "checkpoint-ahead", "checkpoint-ahead"]
          : ["checkpoint-ahead", "checkpoint-ahead"],
      );
      expect(kindsOf(report.notes)).toEqual(isClean ? [] : ["tail-torn", "index-stale"]);
    }
  });

  test("a segment that is missing between others is an error", async () => {
    const fixture = await filledDirectory();
    const second = (await verify(fixture)).partitions[0]?.segments[1];
    await fixture.files.unlink(second?.path ?? "");
    expect(kindsOf((await verify(fixture)).errors)).toEqual(["offsets-missing"]);
    expect(kindsOf((await verifyWithState(fixture)).errors)).toEqual(["offsets-missing"]);
  });

  describe("a hole between two segments that compaction left", () => {
    /** Values of one key; the second half is the latest, and of the first nothing is left but the end of the log before it. */
    async function compactedDirectory(batchRecords: number): Promise<ManagerFixture> {
      const fixture = new ManagerFixture();
      const manager = await fixture.open();
      await manager.createTopic("orders", 1, { ...CONFIG, segmentBytes: 1500 });
      const log = await lead(manager, "orders");
      for (let at = 0; at < 60; at += 1) {
        const keys = Array.from({ length: batchRecords }, (_, record) => `k${at}-${record}`);
        // The last of each ten have one key, and go.
        const records = keys.map((key) => ({ key: encodeUtf8(at % 10 < 5 ? key : "same"), value: encodeUtf8(VALUE) }));
        await log.append(encodeBatch(records.map((record) => ({ ...record, timestamp: 1 }))), { origin: "local" });
      }
      await log.roll();
      await log.compact();
      const borders = log.segments.map(({ baseOffset }) => baseOffset);
      expect(borders.length).toBeGreaterThan(2);
      await manager.close();
      return fixture;
    }

    test.each([1, 3])("is none: the node has noted it (batches of %i)", async (batchRecords) => {
      const { errors, notes } = await verifyWithState(await compactedDirectory(batchRecords));
      expect([errors, new Set(kindsOf(notes))]).toEqual([[], new Set(["segment-base-differs", "offsets-missing"])]);
      expect(notes.some(({ detail }) => detail.includes("has noted"))).toBe(true);
    });

    test("is none without the state, as batches leave offsets out elsewhere", async () => {
      const { errors, notes } = await verify(await compactedDirectory(3));
      expect([errors, new Set(kindsOf(notes))]).toEqual([[], new Set(["segment-base-differs", "offsets-missing"])]);
    });

    test("is none where Kafka's cleaner names the partition", async () => {
      const fixture = await filledDirectory();
      await fixture.files.unlink((await verify(fixture)).partitions[0]?.segments[1]?.path ?? "");
      await fixture.write("cleaner-offset-checkpoint", "0\n1\norders 0 90\n");
      const { errors, notes } = await verify(fixture);
      expect([errors, kindsOf(notes)]).toEqual([[], ["offsets-missing"]]);
    });

    test.each([0, 1])("a lost segment (number %i) beside it is an error to who knows the state", async (at) => {
      const fixture = await compactedDirectory(3);
      const lost = (await verify(fixture)).partitions[0]?.segments[at];
      await fixture.files.unlink(lost?.path ?? "");
      const { errors } = await verifyWithState(fixture);
      expect(kindsOf(errors)).toEqual(["offsets-missing"]);
      expect(errors[0]?.offset).toBeLessThanOrEqual(lost?.baseOffset ?? -1);
    });

    test("the state has no say where another program wrote since", async () => {
      const fixture = await compactedDirectory(3);
      const [, second] = (await verify(fixture)).partitions[0]?.segments ?? [];
      await fixture.files.unlink(second?.path ?? "");
      await fixture.write("log-start-offset-checkpoint", "0\n1\norders 0 1\n");
      expect((await verifyWithState(fixture)).errors).toEqual([]);
    });
  });

  test("a torn end of a segment that is not the last is an error even after a kill", async () => {
    const fixture = await filledDirectory();
    await fixture.files.unlink(`${DATA}/.kafka_cleanshutdown`);
    await cut(fixture, FIRST_LOG, 7);
    expect(kindsOf((await verify(fixture)).errors)).toContain("batch-damaged");
  });

  test("BR-019 an index entry off by one is exactly one error, with both offsets", async () => {
    const fixture = await filledDirectory();
    const path = "orders-0/00000000000000000000.index";
    const index = await fixture.files.open(`${DATA}/${path}`, "write");
    const bytes = new Uint8Array(await index.size());
    await index.readAt(bytes, 0);
    const view = new DataView(bytes.buffer);
    const offset = view.getInt32(8);
    await patch(fixture, path, 8 + 3, offset + 1);
    const report = await verify(fixture);
    expect(report.errorCount).toBe(1);
    expect(report.errors[0]).toMatchObject({ kind: "index-entry-wrong", path: `${DATA}/${path}`, offset: offset + 1 });
    expect(report.errors[0]?.detail).toContain(`ends at offset ${offset}`);
    expect(report.errors[0]?.detail).toContain("entry 1 ");
  });

  test("an index entry that points into a batch, and one past the end, are errors", async () => {
    const fixture = await filledDirectory();
    await patch(fixture, "orders-0/00000000000000000000.index", 7, 3);
    expect(kindsOf((await verify(fixture)).errors)).toContain("index-entry-wrong");
  });

  test("a preallocated index with a tail of zeros has no findings", async () => {
    const fixture = await filledDirectory();
    const last = (await verify(fixture)).partitions[0]?.segments.at(-1)?.path.replace(/log$/, "index") ?? "";
    const file = await fixture.files.open(last, "write");
    await file.truncate(10 * 1024 ** 2);
    await file.close();
    expect(await verify(fixture)).toMatchObject({ errors: [], notes: [] });
  });

  test.each([
    ["0\n1\n0 0\n", "epoch-mismatch"],
    ["0\n2\n0 0\n1 49\n", "epoch-mismatch"],
    ["0\n2\n0 0\n1 51\n", "epoch-mismatch"],
    ["0\n2\n1 50\n0 0\n", "epoch-order"],
    ["0\n3\n0 0\n", "checkpoint-damaged"],
  ])("epoch file %j is an error: %s", async (text, kind) => {
    const fixture = await filledDirectory();
    await fixture.write("orders-0/leader-epoch-checkpoint", text);
    expect(kindsOf((await verify(fixture)).errors)).toContain(kind);
  });

  test("the epoch of a batch in which the log begins is that of the log start", async () => {
    const fixture = new ManagerFixture();
    const manager = await fixture.open();
    await manager.createTopic("orders", 1, CONFIG);
    const log = await lead(manager, "orders");
    const records = ["a", "b", "c"].map((value) => ({ key: null, value: encodeUtf8(value), timestamp: 1 }));
    await log.append(encodeBatch(records), { origin: "client" });
    await manager.deleteRecords("orders", 0, toOffset(1));
    await manager.close();
    expect(await fixture.read("orders-0/leader-epoch-checkpoint")).toBe("0\n1\n0 1\n");
    expect(await verify(fixture)).toMatchObject({ errors: [], notes: [] });
  });

  test("epochs that begin above the first batch are no error where a crash may have kept the log start from its checkpoint", async () => {
    const fixture = await filledDirectory();
    await fixture.write("orders-0/leader-epoch-checkpoint", "0\n2\n0 20\n1 50\n");
    expect(kindsOf((await verify(fixture)).errors)).toEqual(["epoch-mismatch"]);
    await fixture.files.unlink(`${DATA}/.kafka_cleanshutdown`);
    expect(await verify(fixture)).toMatchObject({ errors: [], notes: [{ kind: "epoch-mismatch" }] });
  });

  test("surplus epochs behind the end of the log are no error", async () => {
    const fixture = await filledDirectory();
    await fixture.write("orders-0/leader-epoch-checkpoint", "0\n3\n0 0\n1 50\n4 100\n");
    expect((await verify(fixture)).errors).toEqual([]);
  });

  test("a leader epoch that falls is an error", async () => {
    const fixture = await filledDirectory();
    await patch(fixture, FIRST_LOG, 3 * BATCH_BYTES + 15, 9);
    expect(kindsOf((await verify(fixture)).errors)).toContain("epoch-order");
  });

  test("offsets that repeat are an error", async () => {
    const fixture = await filledDirectory();
    await patch(fixture, FIRST_LOG, 6 * BATCH_BYTES + 7, 5);
    expect(kindsOf((await verify(fixture)).errors)).toContain("offsets-overlap");
  });

  test("BR-022 a recovery point beyond the data is an error", async () => {
    const fixture = await filledDirectory();
    await fixture.write("recovery-point-offset-checkpoint", "0\n1\norders 0 500\n");
    expect((await verify(fixture)).errors).toMatchObject([{ kind: "checkpoint-ahead", offset: 100 }]);
  });

  test.each([
    ["meta.properties", "rubbish", "meta-properties-damaged"],
    ["orders-0/partition.metadata", "rubbish", "partition-metadata-damaged"],
    ["replication-offset-checkpoint", "7\n0\n", "checkpoint-damaged"],
  ])("a bad %s is an error", async (path, text, kind) => {
    const fixture = await filledDirectory();
    await fixture.write(path, text);
    expect(kindsOf((await verify(fixture)).errors)).toEqual([kind]);
  });

  test("records that do not read although the CRC matches are an error", async () => {
    const batch = encodeBatch([{ key: null, value: encodeUtf8(VALUE), timestamp: 1 }], {
      baseOffset: 0,
      partitionLeaderEpoch: 0,
    });
    const scan = scanBatch(batch, 0);
    if (scan.type !== "batch") throw new Error("our own batch");
    const payload = recordsSection(batch, scan.header);
    const fixture = new ManagerFixture();
    await fixture.files.makeDirectory(`${DATA}/t-0`);
    for (const [content, kinds] of [
      [compressPayload(NODE_CODECS, "gzip", payload), []],
      [compressPayload(NODE_CODECS, "gzip", payload.subarray(1)), ["records-damaged"]],
      [encodeUtf8("no gzip"), ["records-damaged"]],
    ] as const) {
      const file = await fixture.files.open(`${DATA}/t-0/00000000000000000000.log`, "truncate");
      await file.writeAt(withCompressedPayload(batch, "gzip", content), 0);
      await file.close();
      expect(kindsOf((await verify(fixture)).errors)).toEqual(kinds);
    }
  });

  test("a directory that does not belong there is an error, one that waits for its removal a note", async () => {
    const fixture = await filledDirectory();
    await fixture.files.makeDirectory(`${DATA}/lost+found`);
    await fixture.files.makeDirectory(`${DATA}/t-0.0123456789abcdef0123456789abcdef-delete`);
    const report = await verify(fixture);
    expect([kindsOf(report.errors), kindsOf(report.notes)]).toEqual([["directory-unknown"], ["directory-doomed"]]);
  });

  test("a file that cannot be read is an error, and the rest is still read", async () => {
    const fixture = await filledDirectory();
    fixture.files.inject({ operation: "read", path: FIRST_LOG, code: "EIO" });
    const report = await verify(fixture);
    expect(kindsOf(report.errors)).toContain("file-unreadable");
    expect(report.segments).toBe(2);
  });

  test("a directory that is not there is a FileError", async () => {
    const { files, environment } = new ManagerFixture();
    await expect(verifyDirectory({ files, workers: environment.workers, directory: "nowhere" })).rejects.toMatchObject({
      code: "ENOENT",
    });
  });
});
