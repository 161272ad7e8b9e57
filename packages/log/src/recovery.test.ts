import { encodeUtf8, decodeUtf8, toLeaderEpoch, toOffset } from "@tidemark/base";
import { encodeLeaderEpochCheckpoint } from "@tidemark/epoch-cache";
import { describe, expect, test } from "vitest";
import type { LogError } from "./error.ts";
import { batchOf, concat, DIRECTORY, LogFixture, recordsOf, storedBatch } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";
import { segmentFileName } from "./file-names.ts";

const FIRST_LOG = segmentFileName(toOffset(0), ".log");

async function appendEach(log: PartitionLog, ...values: readonly string[][]): Promise<void> {
  for (const batch of values) await log.append(batchOf(batch), { origin: "local" });
}

function flipBit(bytes: Uint8Array, at: number): void {
  bytes[at] = (bytes[at] ?? 0) ^ 1;
}

function epochsOf(log: PartitionLog): string {
  return log.epochEntries.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
}

describe("messages of before Kafka 0.11", () => {
  const OLD = new Uint8Array(
    Buffer.from("00000000000000010000001ba584f50801000000018bcfe56800ffffffff0000000576616c7565", "hex"),
  );

  test.each([
    ["above the recovery point, where damage would be cut", false],
    ["below it, where damage would be served around", true],
  ])("%s: the log does not open, says where and why, and its bytes stay", async (_, isBelow) => {
    const fixture = new LogFixture();
    const log = await fixture.open({ epoch: 0 });
    await appendEach(log, ["a"], ...(isBelow ? [["b"], ["c"]] : []));
    await log.close();
    const [first, ...rest] = splitBatches(await fixture.readFile(FIRST_LOG));
    if (first === undefined) throw new Error("there is a batch");
    const bytes = concat(first, OLD, ...rest.slice(1));
    await fixture.writeFile(FIRST_LOG, bytes);
    await expect(fixture.open()).rejects.toMatchObject({
      code: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
      type: { magic: 1, path: `${DIRECTORY}/${FIRST_LOG}`, positionBytes: first.length },
    });
    expect(await fixture.readFile(FIRST_LOG)).toEqual(bytes);
  });

  test("one whose CRC does not fit is damage like any other", async () => {
    const fixture = new LogFixture();
    await appendEach(await fixture.open({ epoch: 0 }), ["a"]);
    fixture.kill();
    const bytes = concat(await fixture.readFile(FIRST_LOG), OLD);
    flipBit(bytes, bytes.length - 1);
    await fixture.writeFile(FIRST_LOG, bytes);
    expect(await recordsOf(await fixture.open())).toEqual(["0:a"]);
  });

  function splitBatches(bytes: Uint8Array): Uint8Array[] {
    const parts: Uint8Array[] = [];
    for (let at = 0; at < bytes.length;) {
      const sizeBytes = 12 + new DataView(bytes.buffer, bytes.byteOffset).getInt32(at + 8);
      parts.push(bytes.slice(at, at + sizeBytes));
      at += sizeBytes;
    }
    return parts;
  }
});

describe("what survives", () => {
  test("flush always: every answered append survives a power cut", async () => {
    const fixture = new LogFixture({ segmentBytes: 200 });
    const log = await fixture.open();
    for (let at = 0; at < 10; at += 1) {
      await log.append(batchOf([`r${at}`]), { origin: "local" });
      expect(log.flushedEndOffset).toBe(at + 1);
    }
    fixture.powerCut();
    expect(await recordsOf(await fixture.open())).toEqual(Array.from({ length: 10 }, (_, at) => `${at}:r${at}`));
  });

  test("flush none: a power cut may lose what was not flushed, a killed process nothing", async () => {
    const fixture = new LogFixture({ flush: "none" });
    let log = await fixture.open();
    await appendEach(log, ["a"], ["b"]);
    expect([log.logEndOffset, log.flushedEndOffset]).toEqual([2, 0]);
    await log.flush();
    expect(log.flushedEndOffset).toBe(2);
    await appendEach(log, ["c"]);
    fixture.kill();
    log = await fixture.open();
    expect(await recordsOf(log)).toEqual(["0:a", "1:b", "2:c"]);
    await appendEach(log, ["d"]);
    fixture.powerCut();
    log = await fixture.open();
    // The open after the kill has synced the last segment.
    expect(await recordsOf(log)).toEqual(["0:a", "1:b", "2:c"]);
  });

  test("flush none: what a killed process wrote is synced before the next one calls it durable", async () => {
    for (const segmentBytes of [200, 1 << 20]) {
      const fixture = new LogFixture({ flush: "none", segmentBytes });
      const values = Array.from({ length: 10 }, (_, at) => `r${at}`);
      await appendEach(await fixture.open(), ...values.map((value) => [value]));
      fixture.kill();
      const log = await fixture.open();
      expect(log.flushedEndOffset).toBeLessThan(10);
      await log.flush();
      expect([log.flushedEndOffset, log.recoveryPoint]).toEqual([10, 10]);
      fixture.powerCut();
      const after = await fixture.open();
      expect(after.damaged).toEqual([]);
      expect(await recordsOf(after)).toEqual(values.map((value, offset) => `${offset}:${value}`));
    }
  });

  test("a flush that syncs a segment in the middle of a write leaves the rest of it to the next one", async () => {
    const fixture = new LogFixture({ flush: "none", segmentBytes: 100 });
    const log = await fixture.open();
    await log.append(batchOf(["a"]), { origin: "local" });
    // The roll begins a flush, which waits at the first segment; the write behind it takes two calls and waits at the second one.
    const sync = fixture.disk.stall({ operation: "sync", path: /\.log$/u });
    const write = fixture.disk.stall({ operation: "write", path: /\.log$/u });
    fixture.disk.limits.shortTransferOneIn = 1;
    const appended = log.append(batchOf(["b"]), { origin: "local" });
    await new Promise(setImmediate);
    sync.release();
    await new Promise(setImmediate);
    write.release();
    await appended;
    await log.flush();
    expect(log.recoveryPoint).toBe(2);
    fixture.powerCut();
    const after = await fixture.open();
    expect(after.damaged).toEqual([]);
    expect(await recordsOf(after)).toEqual(["0:a", "1:b"]);
  });

  test("a flush that syncs the directory while a roll makes the next segment leaves its name to the next one", async () => {
    const fixture = new LogFixture({ flush: "none", segmentBytes: 100 });
    const log = await fixture.open();
    await log.append(batchOf(["a"]), { origin: "local" });
    const sync = fixture.disk.stall({ operation: "sync", path: /\.log$/u });
    await log.flushInBackground();
    const { disk } = fixture;
    const open = disk.open.bind(disk);
    disk.open = async (path, mode) => {
      if (path.endsWith("1.log")) {
        sync.release();
        await new Promise(setImmediate);
      }
      return open(path, mode);
    };
    await log.append(batchOf(["b"]), { origin: "local" });
    disk.open = open;
    await log.flush();
    expect(log.recoveryPoint).toBe(2);
    fixture.powerCut();
    const after = await fixture.open();
    expect([await recordsOf(after), after.damaged]).toEqual([["0:a", "1:b"], []]);
  });

  test("a flush in the background makes durable what was written, and appends go on beside it", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open();
    await appendEach(log, ["a"], ["b"]);
    await log.flushInBackground();
    await appendEach(log, ["c"]);
    await new Promise((resolve) => setTimeout(resolve, 1));
    expect(log.flushedEndOffset).toBeGreaterThanOrEqual(2);
    fixture.powerCut();
    expect((await recordsOf(await fixture.open())).slice(0, 2)).toEqual(["0:a", "1:b"]);
  });

  test("a clean close and open keeps everything and scans nothing", async () => {
    const fixture = new LogFixture({ segmentBytes: 200, indexIntervalBytes: 0 });
    let log = await fixture.open();
    for (let at = 0; at < 10; at += 1) await appendEach(log, [`r${at}`]);
    const segments = log.segments;
    expect(await log.close()).toBe(true);
    fixture.powerCut();
    log = await fixture.open({ clean: true, epoch: "none" });
    expect(log.segments.map(({ baseOffset, sizeBytes }) => [baseOffset, sizeBytes])).toEqual(
      segments.map(({ baseOffset, sizeBytes }) => [baseOffset, sizeBytes]),
    );
    expect(log.recovery.segmentsTrusted).toBe(segments.length);
    expect([log.logEndOffset, log.recoveryPoint, log.recovery.segmentsScanned, log.recovery.indexesRebuilt]).toEqual([
      10, 10, 0, 0,
    ]);
  });

  test("an unclean open in always mode copies what may be in the page cache only, before it tells the end", async () => {
    const fixture = new LogFixture();
    let log = await fixture.open();
    await appendEach(log, ["a"]);
    fixture.disk.inject({ operation: "sync", path: ".log", code: "EIO", pages: "new" });
    await expect(log.append(batchOf(["b"]), { origin: "local" })).rejects.toThrow("SYNC_FAILED");
    fixture.kill();
    log = await fixture.open();
    expect(log.recovery.segmentsCopied).toBe(1);
    expect(await recordsOf(log)).toEqual(["0:a", "1:b"]);
    expect(log.flushedEndOffset).toBe(2);
    // What was told is on the disk now, although the sync that covered it had failed.
    fixture.powerCut();
    expect(await recordsOf(await fixture.open())).toEqual(["0:a", "1:b"]);
  });

  test("the recovery point rises with each roll, and only segments from it up are scanned", async () => {
    const fixture = new LogFixture({ segmentBytes: 200 });
    let log = await fixture.open();
    for (let at = 0; at < 10; at += 1) await appendEach(log, [`r${at}`]);
    expect(log.recoveryPoint).toBe(log.segments.at(-1)?.baseOffset);
    fixture.kill();
    log = await fixture.open();
    expect(log.recovery.segmentsScanned).toBe(1);
    expect(log.recovery.segmentCount).toBe(5);
  });

  test("LL-08 damage below the recovery point but in its segment is found, in an earlier segment it is not looked for", async () => {
    const fixture = new LogFixture({ segmentBytes: 200 });
    const log = await fixture.open();
    for (let at = 0; at < 3; at += 1) await appendEach(log, [`r${at}`]);
    fixture.kill();
    const sealed = await fixture.readFile(FIRST_LOG);
    flipBit(sealed, sealed.length - 2);
    await fixture.writeFile(FIRST_LOG, sealed);
    const again = await fixture.open();
    expect([again.recovery.segmentsScanned, again.recovery.damaged.length]).toEqual([1, 0]);
  });
});

describe("torn tails", () => {
  test("BR-001 a batch cut short by any number of bytes is cut away, and the next append lands in its place", async () => {
    const tail = batchOf(["g", "h", "i"]).length;
    for (let cut = 1; cut < tail; cut += 1) {
      const fixture = new LogFixture({ flush: "none" });
      await appendEach(await fixture.open(), ["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]);
      fixture.kill();
      const bytes = await fixture.readFile(FIRST_LOG);
      await fixture.writeFile(FIRST_LOG, bytes.subarray(0, bytes.length - cut));
      const log = await fixture.open();
      expect(log.logEndOffset).toBe(6);
      expect(log.recovery.cut?.bytesCut).toBe(tail - cut);
      expect(await fixture.readFile(FIRST_LOG)).toHaveLength(bytes.length - tail);
      await appendEach(log, ["new"]);
      expect((await recordsOf(log)).at(-1)).toBe("6:new");
    }
  });

  test("BR-001 after a clean stop a torn tail was durable: it is reported as damage, not cut", async () => {
    const fixture = new LogFixture();
    const before = await fixture.open();
    await appendEach(before, ["a", "b", "c"], ["d", "e", "f"]);
    await before.close();
    fixture.kill();
    const bytes = await fixture.readFile(FIRST_LOG);
    await fixture.writeFile(FIRST_LOG, bytes.subarray(0, bytes.length - 1));
    const log = await fixture.open({ clean: true, epoch: "none" });
    expect(log.logEndOffset).toBe(6);
    expect(log.damaged.map(({ fromOffset, toOffset }) => [fromOffset, toOffset])).toEqual([[3, 6]]);
    expect(log.refusal).toMatchObject({ type: { code: "KAFKA_STORAGE_ERROR", failure: "DAMAGED" } });
    await expect(log.read({ fromOffset: toOffset(4), maxBytes: 100 })).rejects.toThrow("CORRUPT_MESSAGE");
    expect(await recordsOf(log, 0).catch(() => "damage")).toBe("damage");
  });

  test("BR-002 zeros behind the last batch are cut, however many; the scan ends at zeros and does not look behind them", async () => {
    for (const zeros of [1, 16, 17, 61, 4096, 1 << 20]) {
      for (const behind of [new Uint8Array(0), storedBatch(["later"], 6, 0)]) {
        const fixture = new LogFixture({ flush: "none" });
        await appendEach(await fixture.open(), ["a", "b", "c"], ["d", "e", "f"]);
        fixture.kill();
        const bytes = await fixture.readFile(FIRST_LOG);
        await fixture.writeFile(FIRST_LOG, concat(bytes, new Uint8Array(zeros), behind));
        const log = await fixture.open();
        expect(log.logEndOffset).toBe(6);
        expect(log.recovery.cut?.bytesCut).toBe(zeros + behind.length);
      }
    }
  });

  test("BR-003 a batch that begins below the end of the one before it ends the log, and the good part is kept", async () => {
    const fixture = new LogFixture({ flush: "none" });
    await (await fixture.open({ epoch: "none" })).close();
    fixture.kill();
    const ten = Array.from({ length: 10 }, () => "x");
    const bytes = concat(
      storedBatch(ten, 0, 0),
      storedBatch(ten, 10, 0),
      storedBatch([...ten, ...ten, "x"], 5, 0),
      storedBatch(["y"], 26, 0),
    );
    await fixture.writeFile(FIRST_LOG, bytes);
    const log = await fixture.open();
    expect(log.logEndOffset).toBe(20);
    expect(log.recovery.cut).toMatchObject({
      offset: 20,
      positionBytes: 2 * storedBatch(ten, 0, 0).length,
      reason: "offset 5 after 19",
    });
  });

  test("a leader epoch that is none ends the log: the CRC does not cover it", async () => {
    const fixture = new LogFixture({ flush: "none" });
    await (await fixture.open({ epoch: "none" })).close();
    fixture.kill();
    await fixture.writeFile(FIRST_LOG, concat(storedBatch(["a"], 0, 1), storedBatch(["b"], 1, -7)));
    const log = await fixture.open({ epoch: "none" });
    expect([log.logEndOffset, epochsOf(log), log.recovery.cut?.reason]).toEqual([1, "1@0", "leader epoch -7"]);
  });

  test("a falling leader epoch ends the log", async () => {
    const fixture = new LogFixture({ flush: "none" });
    await (await fixture.open({ epoch: "none" })).close();
    fixture.kill();
    await fixture.writeFile(
      FIRST_LOG,
      concat(storedBatch(["a"], 0, 1), storedBatch(["b"], 1, 3), storedBatch(["c"], 2, 2)),
    );
    const log = await fixture.open({ epoch: "none" });
    expect([log.logEndOffset, epochsOf(log)]).toEqual([2, "1@0 3@1"]);
  });

  test("LL-06 a bad batch ends the log: later segments and epochs that begin behind it go", async () => {
    const size = batchOf(["x"]).length;
    const fixture = new LogFixture({ flush: "none", segmentBytes: 5 * size });
    const before = await fixture.open();
    for (let at = 0; at < 20; at += 1) {
      if (at % 6 === 0) await before.becomeLeader(toLeaderEpoch(at));
      await appendEach(before, ["x"]);
    }
    fixture.environment.state
      .commit([{ key: "recovery-point/orders-0", value: new Uint8Array(8) }], { sync: true })
      .catch(() => undefined);
    fixture.kill();
    const name = segmentFileName(toOffset(10), ".log");
    const bytes = await fixture.readFile(name);
    flipBit(bytes, 3 * size + 30);
    await fixture.writeFile(name, bytes);
    const log = await fixture.open({ epoch: "none" });
    expect(log.logEndOffset).toBe(13);
    expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 5, 10]);
    expect(await fixture.fileNames()).not.toContain(segmentFileName(toOffset(15), ".log"));
    expect(epochsOf(log)).toBe("0@0 6@6 12@12");
  });

  test("a segment that vanished above the recovery point ends the log where it was, no hole is left", async () => {
    const size = batchOf(["x"]).length;
    const fixture = new LogFixture({ flush: "none", segmentBytes: 5 * size });
    const before = await fixture.open();
    for (let at = 0; at < 20; at += 1) await appendEach(before, ["x"]);
    await fixture.environment.state.commit(
      [{ key: "recovery-point/orders-0", value: new Uint8Array([0, 0, 0, 0, 0, 0, 0, 3]) }],
      { sync: true },
    );
    fixture.kill();
    await fixture.disk.unlink(`${DIRECTORY}/${segmentFileName(toOffset(5), ".log")}`);
    const log = await fixture.open();
    expect(log.logEndOffset).toBe(5);
    expect(log.segments.map(({ baseOffset }) => baseOffset)).toEqual([0]);
  });

  test("a gap that a follower's log rightly has between two segments survives an unclean open", async () => {
    const fixture = new LogFixture();
    const before = await fixture.open({ epoch: "none" });
    await before.appendAsFollower(storedBatch(["a"], 0, 1));
    await before.roll();
    await before.appendAsFollower(storedBatch(["b"], 1, 1));
    await before.appendAsFollower(storedBatch(["c"], 2 ** 31 + 10, 1));
    expect(before.segments.map(({ baseOffset }) => baseOffset)).toEqual([0, 1, 2 ** 31 + 10]);
    fixture.powerCut();
    expect(await recordsOf(await fixture.open())).toEqual(["0:a", "1:b", `${2 ** 31 + 10}:c`]);
  });
});

describe("damage below the recovery point", () => {
  async function damagedFixture(): Promise<{ fixture: LogFixture; size: number }> {
    const size = batchOf(["x"]).length;
    const fixture = new LogFixture({ segmentBytes: 10 * size });
    const log = await fixture.open();
    for (let at = 0; at < 25; at += 1) await appendEach(log, ["x"]);
    await log.close();
    fixture.kill();
    return { fixture, size };
  }

  test("BR-026 a broken header in a sealed segment is served around: a typed error inside, records before and behind", async () => {
    const { fixture, size } = await damagedFixture();
    const bytes = await fixture.readFile(FIRST_LOG);
    bytes[4 * size + 8] = 0x7f;
    await fixture.writeFile(FIRST_LOG, bytes);
    // Nobody vouches for the segment: it is looked at.
    await fixture.environment.state.commit([{ key: "segment-seal/orders-0", value: undefined }], { sync: true });
    for (const clean of [true, false]) {
      const log = await fixture.open({ clean, epoch: "none" });
      expect(log.damaged).toMatchObject([{ fromOffset: 4, toOffset: 5, fromBytes: 4 * size, toBytes: 5 * size }]);
      expect((await log.read({ fromOffset: toOffset(0), maxBytes: 1 << 20 })).bytes).toHaveLength(4 * size);
      await expect(log.read({ fromOffset: toOffset(4), maxBytes: 1 << 20 })).rejects.toThrow("CORRUPT_MESSAGE");
      expect(await recordsOf(log, 5)).toHaveLength(20);
      expect(log.logEndOffset).toBe(25);
      expect(await fixture.readFile(FIRST_LOG)).toEqual(bytes);
      await expect(log.append(batchOf(["y"]), { origin: "local" })).rejects.toThrow("DAMAGED");
      expect(await log.close()).toBe(false);
    }
  });

  test.each([true, false])(
    "BR-026 a broken header in a segment that the open trusted is met by a read, which goes around it, and stops appends from the next open on (clean %s)",
    async (clean) => {
      const { fixture, size } = await damagedFixture();
      const bytes = await fixture.readFile(FIRST_LOG);
      bytes[4 * size + 8] = 0x7f;
      await fixture.writeFile(FIRST_LOG, bytes);
      const log = await fixture.open({ clean });
      expect([log.damaged, log.recovery.segmentsTrusted]).toEqual([[], clean ? 3 : 2]);
      for (let times = 0; times < 2; times += 1)
        await expect(log.read({ fromOffset: toOffset(4), maxBytes: 1 << 20 })).rejects.toMatchObject({
          type: { code: "CORRUPT_MESSAGE", positionBytes: 4 * size, fromOffset: 4, toOffset: 5 },
        });
      expect((await log.read({ fromOffset: toOffset(0), maxBytes: 1 << 20 })).bytes).toHaveLength(4 * size);
      for (let offset = 5; offset < 25; offset += 1)
        expect((await log.read({ fromOffset: toOffset(offset), maxBytes: 1 })).startOffset).toBe(offset);
      await appendEach(log, ["y"]);
      expect(await log.close()).toBe(true);
      expect(await fixture.readFile(FIRST_LOG)).toEqual(bytes);
      const again = await fixture.open({ clean, epoch: "none" });
      expect(again.damaged).toMatchObject([{ fromOffset: 4, toOffset: 5 }]);
      expect(await recordsOf(again, 5)).toHaveLength(21);
      await expect(again.append(batchOf(["z"]), { origin: "local" })).rejects.toThrow("DAMAGED");
    },
  );

  test("damage at the end of a trusted segment is met by a read, and ends with the segment", async () => {
    const { fixture, size } = await damagedFixture();
    await fixture.writeFile(FIRST_LOG, new Uint8Array(size), 9 * size);
    const log = await fixture.open({ clean: true, epoch: "none" });
    await expect(log.read({ fromOffset: toOffset(9), maxBytes: 1 })).rejects.toMatchObject({
      type: { code: "CORRUPT_MESSAGE", positionBytes: 9 * size, fromOffset: 9, toOffset: 10 },
    });
    expect(await recordsOf(log, 10)).toHaveLength(15);
  });

  test("a segment that is gone between two others below the recovery point is damage, and what lies behind is served", async () => {
    const { fixture } = await damagedFixture();
    await fixture.disk.unlink(`${DIRECTORY}/${segmentFileName(toOffset(10), ".log")}`);
    for (const clean of [true, false]) {
      const log = await fixture.open({ clean, epoch: "none" });
      expect(log.damaged).toMatchObject([{ fromOffset: 10, toOffset: 20, reason: "missing" }]);
      await expect(log.read({ fromOffset: toOffset(15), maxBytes: 100 })).rejects.toThrow("CORRUPT_MESSAGE");
      expect(await recordsOf(log, 20)).toHaveLength(5);
      expect(await log.close()).toBe(false);
    }
  });

  test.each([0, 3])(
    "a first segment that is gone below the recovery point is damage from the log start %i on",
    async (start) => {
      const { fixture } = await damagedFixture();
      if (start > 0) {
        const before = await fixture.open({ clean: true, epoch: "none" });
        await before.deleteRecords(toOffset(start));
        await before.close();
      }
      await fixture.disk.unlink(`${DIRECTORY}/${FIRST_LOG}`);
      for (const clean of [true, false]) {
        const log = await fixture.open({ clean, epoch: "none" });
        expect(log.damaged).toMatchObject([{ fromOffset: start, toOffset: 10, reason: "missing" }]);
        expect([log.logStartOffset, log.logEndOffset]).toEqual([start, 25]);
        await expect(log.read({ fromOffset: toOffset(start), maxBytes: 100 })).rejects.toThrow("CORRUPT_MESSAGE");
        expect(await recordsOf(log, 10)).toHaveLength(15);
        expect(await log.close()).toBe(false);
      }
    },
  );

  test("a first segment that is gone above the log start is believed where another program wrote, or nothing is known", async () => {
    for (const how of ["another program", "state lost"] as const) {
      const { fixture } = await damagedFixture();
      await fixture.disk.unlink(`${DIRECTORY}/${FIRST_LOG}`);
      if (how === "state lost")
        await fixture.environment.state.commit([{ key: "recovery-point/orders-0", value: undefined }], { sync: true });
      for (const areGapsRecorded of [how === "state lost", true]) {
        const log = await fixture.open({ epoch: "none", areGapsRecorded });
        expect([how, log.damaged, log.logStartOffset, log.logEndOffset]).toEqual([how, [], 10, 25]);
        fixture.kill();
      }
    }
  });

  test("holes in another program's log, or when nothing is known, are believed once and noted", async () => {
    for (const how of ["another program", "state lost"] as const) {
      const { fixture } = await damagedFixture();
      await fixture.disk.unlink(`${DIRECTORY}/${segmentFileName(toOffset(10), ".log")}`);
      if (how === "state lost")
        await fixture.environment.state.commit([{ key: "recovery-point/orders-0", value: undefined }], { sync: true });
      const log = await fixture.open({ epoch: "none", areGapsRecorded: how === "state lost" });
      expect([how, log.damaged, log.logEndOffset]).toEqual([how, [], 25]);
      fixture.kill();
      const again = await fixture.open({ epoch: "none" });
      expect([how, again.damaged, again.logEndOffset]).toEqual([how, [], 25]);
      expect(await recordsOf(again)).toHaveLength(15);
    }
  });

  test("a segment file that is gone below the recovery point is damage, and nothing is appended over the loss", async () => {
    const { fixture } = await damagedFixture();
    await fixture.disk.unlink(`${DIRECTORY}/${segmentFileName(toOffset(20), ".log")}`);
    const log = await fixture.open({ epoch: "none" });
    expect(log.logEndOffset).toBe(25);
    expect(log.damaged).toMatchObject([{ fromOffset: 20, toOffset: 25, reason: "missing" }]);
    await expect(log.append(batchOf(["y"]), { origin: "local" })).rejects.toThrow("DAMAGED");
    expect(await recordsOf(log).catch((error: LogError) => error.code)).toBe("CORRUPT_MESSAGE");
  });
});

describe("epochs at load", () => {
  async function reopenWith(
    file: string | Uint8Array,
    options: { epochs: number[]; clean: boolean; startOffset?: number; areGapsRecorded?: boolean },
  ): Promise<PartitionLog> {
    const fixture = new LogFixture();
    const before = await fixture.open({ epoch: "none" });
    if (options.startOffset !== undefined) await before.truncateFullyAndStartAt(toOffset(options.startOffset));
    for (const [at, epoch] of options.epochs.entries())
      await before.appendAsFollower(storedBatch(["x"], (options.startOffset ?? 0) + at, epoch));
    await before.close();
    fixture.kill();
    await fixture.writeFile("leader-epoch-checkpoint", typeof file === "string" ? encodeUtf8(file) : file);
    if (!options.clean)
      await fixture.environment.state.commit([{ key: "recovery-point/orders-0", value: new Uint8Array(8) }], {
        sync: true,
      });
    const { clean, areGapsRecorded = true } = options;
    const log = await fixture.open({ clean, areGapsRecorded, epoch: "none" });
    expect(decodeUtf8(await fixture.readFile("leader-epoch-checkpoint"))).toBe(
      decodeUtf8(encodeLeaderEpochCheckpoint(log.epochEntries)),
    );
    return log;
  }

  test("LL-01 an unclean open learns the epochs of another program's batches that it scans; of ours each is in the file before", async () => {
    const batches = { epochs: [1, 2, 2, 3], clean: false };
    const theirs = await reopenWith("0\n2\n1 0\n2 1\n", { ...batches, areGapsRecorded: false });
    expect([epochsOf(theirs), theirs.logEndOffset]).toEqual(["1@0 2@1 3@3", 4]);
    const ours = await reopenWith("0\n2\n1 0\n2 1\n", batches);
    expect([epochsOf(ours), ours.recovery.cut?.reason]).toEqual([
      "1@0 2@1",
      "leader epoch 3, where the epoch file has 2",
    ]);
    expect(epochsOf(await reopenWith("0\n2\n1 0\n2 1\n", { epochs: [1, 2, 2, 3, 3], clean: false }))).toBe(
      "1@0 2@1 3@3",
    );
  });

  test("an entry of another program's that its batches go on behind is none", async () => {
    for (const clean of [true, false])
      expect(
        epochsOf(await reopenWith("0\n2\n1 0\n7 2\n", { epochs: [1, 1, 1, 1], clean, areGapsRecorded: false })),
      ).toBe("1@0");
  });

  test("LL-12 BR-029 a clean open that finds an epoch of a batch missing rebuilds the file (Kafka leaves it out)", async () => {
    const log = await reopenWith("0\n2\n1 0\n2 1\n", { epochs: [1, 2, 2, 3], clean: true });
    expect([epochsOf(log), log.recovery.epochsRebuilt]).toEqual(["1@0 2@1 3@3", true]);
    expect(epochsOf(await reopenWith("0\n1\n9 5\n", { epochs: [1, 2, 3, 4, 5, 9], clean: true }))).toBe(
      "1@0 2@1 3@2 4@3 5@4 9@5",
    );
  });

  test("LL-02 LL-04 entries at or above the log end go", async () => {
    expect(epochsOf(await reopenWith("0\n3\n1 0\n2 2\n3 5\n", { epochs: [1, 1, 2, 2], clean: true }))).toBe("1@0 2@2");
    expect(epochsOf(await reopenWith("0\n2\n1 0\n4 4\n", { epochs: [1, 1, 1, 1], clean: true }))).toBe("1@0");
    expect(epochsOf(await reopenWith("0\n2\n1 0\n4 4\n", { epochs: [1, 1, 1, 1], clean: false }))).toBe("1@0");
  });

  test("an epoch that a leader entered before its first batch keeps its start", async () => {
    const fixture = new LogFixture();
    const before = await fixture.open({ epoch: 1 });
    await appendEach(before, ["a"]);
    await before.becomeLeader(toLeaderEpoch(2));
    await before.becomeLeader(toLeaderEpoch(3));
    await appendEach(before, ["b"]);
    fixture.kill();
    const log = await fixture.open({ epoch: "none" });
    expect([epochsOf(log), log.recovery.epochsRebuilt]).toEqual(["1@0 3@1", false]);
  });

  test("an epoch whose first batches are gone, left out or damaged, keeps its start", async () => {
    for (const how of ["left out", "damaged"] as const) {
      const size = batchOf(["x"]).length;
      const fixture = new LogFixture({ segmentBytes: size });
      const before = await fixture.open({ epoch: 1 });
      await before.append(batchOf(["a"]), { origin: "local" });
      await before.becomeLeader(toLeaderEpoch(2));
      if (how === "damaged")
        for (const value of ["b", "c", "d"]) await before.append(batchOf([value]), { origin: "local" });
      // As a follower of a leader that compacted.
      else await before.appendAsFollower(storedBatch(["d"], 3, 2));
      expect(epochsOf(before)).toBe("1@0 2@1");
      await before.close();
      if (how === "damaged")
        for (const base of [1, 2]) await fixture.writeFile(segmentFileName(toOffset(base), ".log"), new Uint8Array(3));
      for (const clean of [true, false]) {
        fixture.kill();
        const log = await fixture.open({ clean, epoch: "none" });
        expect([how, clean, epochsOf(log), log.recovery.epochsRebuilt]).toEqual([how, clean, "1@0 2@1", false]);
      }
    }
  });

  test.each([
    ["another version", "1\n1\n1 0\n"],
    ["a count that is wrong", "0\n3\n1 0\n2 3\n"],
    ["no number", "0\n1\nx 0\n"],
    ["binary", new Uint8Array([0, 255, 254, 1])],
    ["an entry above its first batch", "0\n2\n1 0\n2 5\n"],
    ["an entry inside the epoch below", "0\n2\n1 0\n2 1\n"],
    ["a first entry above the log start", "0\n2\n1 1\n2 3\n"],
    ["nothing", ""],
  ])("BR-031 an epoch file with %s is rebuilt from the batches and said so", async (_name, file) => {
    for (const clean of [true, false]) {
      const log = await reopenWith(file, { epochs: [1, 1, 1, 2, 2, 2], clean });
      expect([epochsOf(log), log.logEndOffset]).toEqual(["1@0 2@3", 6]);
      if (clean) expect(log.recovery.epochsRebuilt).toBe(true);
    }
  });
});

describe("indexes at load", () => {
  test.each([
    ["missing", undefined],
    ["cut inside an entry", new Uint8Array(7)],
    ["zeros", new Uint8Array(80)],
    ["names no batch", new Uint8Array([0, 0, 0, 1, 0, 0, 0, 99])],
  ])(
    "an index that is %s is rebuilt when it is asked, after a clean stop too, and reads find every offset",
    async (_name, bytes) => {
      const size = batchOf(["x"]).length;
      const fixture = new LogFixture({ segmentBytes: 10 * size, indexIntervalBytes: size });
      const before = await fixture.open();
      for (let at = 0; at < 25; at += 1) await appendEach(before, ["x"]);
      await before.close();
      const name = segmentFileName(toOffset(10), ".index");
      const right = await fixture.readFile(name);
      fixture.kill();
      if (bytes === undefined) await fixture.disk.unlink(`${DIRECTORY}/${name}`);
      else await fixture.writeFile(name, bytes);
      const log = await fixture.open({ clean: true });
      expect([log.recovery.segmentsTrusted, log.recovery.indexesRebuilt]).toEqual([3, bytes === undefined ? 1 : 0]);
      for (let offset = 0; offset < 25; offset += 1)
        expect((await log.read({ fromOffset: toOffset(offset), maxBytes: 1 })).startOffset).toBe(offset);
      await log.close();
      expect(await fixture.readFile(name)).toEqual(right);
    },
  );

  test("leftovers of a crash are removed: temporary files, files to be deleted, indexes without a log", async () => {
    const fixture = new LogFixture();
    const before = await fixture.open();
    await appendEach(before, ["a"]);
    fixture.kill();
    const leftovers = [
      "00000000000000000000.log.deleted",
      "leader-epoch-checkpoint.tmp",
      "00000000000000000007.index",
      "00000000000000000007.log.cleaned",
    ];
    for (const name of leftovers) await fixture.writeFile(name, new Uint8Array(3));
    const log = await fixture.open();
    expect([...log.recovery.leftoversRemoved].sort()).toEqual([...leftovers].sort());
    expect(await fixture.fileNames()).toEqual([
      "00000000000000000000.index",
      "00000000000000000000.log",
      "00000000000000000000.timeindex",
      "00000000000000000001.snapshot",
      "leader-epoch-checkpoint",
    ]);
  });
});
