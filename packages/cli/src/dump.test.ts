import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";

import { NODE_CODECS } from "@tidemark/codecs";
import { compressPayload, encodeBatch, withCompressedPayload } from "@tidemark/wire";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { controlRecordText } from "./control-record.ts";
import { dumpFiles } from "./dump.ts";
import { Output } from "./output.ts";

const encoder = new TextEncoder();

describe("dump", () => {
  let directory = "";
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "tidemark-dump-"));
  });
  afterEach(() => rm(directory, { recursive: true }));

  /** Writes the file, dumps it, and gives back what was printed below the line that names it. */
  async function dump(name: string, content: Uint8Array | string, records = false) {
    const path = join(directory, name);
    await writeFile(path, content);
    const chunks: Buffer[] = [];
    const stream = new Writable({
      write(chunk: Buffer, _encoding, done) {
        chunks.push(chunk);
        done();
      },
    });
    const before = await stat(path);
    const exitCode = await dumpFiles([path], { records }, new Output(stream));
    expect((await stat(path)).mtimeMs).toBe(before.mtimeMs);
    const [head, ...lines] = Buffer.concat(chunks).toString("utf8").trimEnd().split("\n");
    expect(head).toBe(`Dumping ${path}`);
    return { exitCode, lines };
  }

  const records = [
    { key: encoder.encode("k"), value: encoder.encode("a\nb"), timestamp: 1000, headers: [{ key: "h", value: null }] },
    { key: null, value: Uint8Array.of(0xff, 0x00), timestamp: 1001 },
    { key: null, value: null, timestamp: 1002 },
  ];
  const batch = encodeBatch(records, { baseOffset: 42, partitionLeaderEpoch: 3 });

  test("a segment: one line a batch, in the words of Kafka's tool", async () => {
    const { exitCode, lines } = await dump("00000000000000000042.log", batch);
    expect(exitCode).toBe(0);
    expect(lines[0]).toBe("Log starting offset: 42");
    expect(lines[1]).toMatch(
      /^baseOffset: 42 lastOffset: 44 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1002 size: \d+ magic: 2 compresscodec: none crc: \d+ isvalid: true$/u,
    );
    expect(lines).toHaveLength(2);
  });

  test.each(["gzip", "snappy", "lz4", "zstd"] as const)(
    "the records of a batch of %s are shown as those of a plain one",
    async (codec) => {
      const payload = compressPayload(NODE_CODECS, codec, batch.subarray(61));
      const compressed = await dump("00000000000000000042.log", withCompressedPayload(batch, codec, payload), true);
      expect(compressed.exitCode).toBe(0);
      expect(compressed.lines[1]).toContain(`compresscodec: ${codec} `);
      expect(compressed.lines.slice(2)).toEqual((await dump("00000000000000000042.log", batch, true)).lines.slice(2));
      const damaged = await dump(
        "00000000000000000042.log",
        withCompressedPayload(batch, codec, payload.subarray(5)),
        true,
      );
      expect([damaged.exitCode, damaged.lines.at(-1)]).toEqual([1, expect.stringContaining("CORRUPT_MESSAGE")]);
    },
  );

  test("control records: what they say, in the words of Kafka's tool; a type that is not known as bytes", () => {
    const hex = (digits: string) => new Uint8Array(Buffer.from(digits, "hex"));
    const said = (key: string, value: string) => controlRecordText(hex(key), hex(value));
    expect(said("00000000", "000000000009")).toBe("endTxnMarker: ABORT coordinatorEpoch: 9");
    expect(said("00000001", "000000000009")).toBe("endTxnMarker: COMMIT coordinatorEpoch: 9");
    expect(said("00000005", "0000000100")).toBe('KRaftVersion {"version":0,"kRaftVersion":1}');
    for (const [key, value] of [
      ["00000009", "0000"],
      ["0000", "000000000009"],
      ["00000001", "0000"],
      ["00000002", "000000000001ffffffff0f"],
      ["00000006", "0000ffffffff0f"],
    ] as const) {
      expect([key, said(key, value)]).toEqual([key, undefined]);
    }
    expect(controlRecordText(null, null)).toBeUndefined();
  });

  test("a snapshot of producers and a transaction index: one line an entry, none of what is damaged", async () => {
    const snapshot = Buffer.from(
      "000192e5d56d000000010000000000000fa000010000000100000000000000c9000000010000018bcfe56800ffffffff00000000000000c8",
      "hex",
    );
    expect(await dump("00000000000000000202.snapshot", snapshot)).toEqual({
      exitCode: 0,
      lines: [
        "producerId: 4000 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: 200 " +
          "lastTimestamp: 1700000000000 lastSequence: 1 lastOffset: 201 offsetDelta: 1",
      ],
    });
    const cut = await dump("00000000000000000202.snapshot", snapshot.subarray(1));
    expect([cut.exitCode, cut.lines.length]).toEqual([1, 1]);
    const index = Buffer.from("00000000000000000fa000000000000000c800000000000000cd00000000000000ce", "hex");
    expect(await dump("00000000000000000150.txnindex", index)).toEqual({
      exitCode: 0,
      lines: ["version: 0 producerId: 4000 firstOffset: 200 lastOffset: 205 lastStableOffset: 206"],
    });
    expect((await dump("00000000000000000150.txnindex", index.subarray(1))).exitCode).toBe(1);
  });

  test("its records: text with escapes, other bytes in hexadecimal, null without a payload", async () => {
    const { lines } = await dump("00000000000000000042.log", batch, true);
    expect(lines.slice(2)).toEqual([
      "| offset: 42 CreateTime: 1000 keySize: 1 valueSize: 3 sequence: -1 headerKeys: [h] key: k payload: a\\nb",
      "| offset: 43 CreateTime: 1001 keySize: -1 valueSize: 2 sequence: -1 headerKeys: [] payload: 0xff00",
      "| offset: 44 CreateTime: 1002 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []",
    ]);
  });

  test("a wrong CRC is said at its batch, the others are still shown", async () => {
    const damaged = Uint8Array.from(batch);
    damaged[damaged.length - 1] = 1;
    const next = encodeBatch(records, { baseOffset: 45, partitionLeaderEpoch: 3 });
    const { exitCode, lines } = await dump("00000000000000000042.log", Buffer.concat([damaged, next]));
    expect(exitCode).toBe(1);
    expect(lines[1]).toMatch(/isvalid: false$/u);
    expect(lines[2]).toMatch(/^baseOffset: 45 .*isvalid: true$/u);
  });

  test.each([1, 12, 40, 61])("a tail of %i bytes of a batch is said", async (tailBytes) => {
    const { exitCode, lines } = await dump(
      "00000000000000000042.log",
      Buffer.concat([batch, batch.subarray(0, tailBytes)]),
    );
    expect(exitCode).toBe(1);
    expect(lines[2]).toMatch(new RegExp(`^Found ${tailBytes} invalid bytes at the end of 0+42.log`, "u"));
  });

  test("an index: its entries, and the one that points to no such batch", async () => {
    const second = encodeBatch(records, { baseOffset: 45, partitionLeaderEpoch: 3 });
    await writeFile(join(directory, "00000000000000000042.log"), Buffer.concat([batch, second]));
    const entries = (...pairs: [number, number][]) => {
      const bytes = Buffer.alloc(pairs.length * 8);
      for (const [index, [relative, position]] of pairs.entries()) {
        bytes.writeInt32BE(relative, index * 8);
        bytes.writeInt32BE(position, index * 8 + 4);
      }
      return bytes;
    };
    const good = await dump("00000000000000000042.index", entries([2, 0], [5, batch.length], [0, 0]));
    expect(good).toEqual({ exitCode: 0, lines: ["offset: 44 position: 0", `offset: 47 position: ${batch.length}`] });
    const bad = await dump("00000000000000000042.index", entries([3, 0]));
    expect(bad.exitCode).toBe(1);
    expect(bad.lines.at(-1)).toBe("  Index offset: 45, log offset: 44");
    expect((await dump("00000000000000000042.index", entries([2, 99_999]))).exitCode).toBe(1);
  });

  test("checkpoints and metadata: their lines, and where a bad one is", async () => {
    expect(await dump("leader-epoch-checkpoint", "0\n2\n0 0\n3 45\n")).toEqual({
      exitCode: 0,
      lines: ["epoch: 0 startOffset: 0", "epoch: 3 startOffset: 45"],
    });
    expect((await dump("recovery-point-offset-checkpoint", "0\n1\nflights 0 77\n")).lines).toEqual([
      "topic: flights partition: 0 offset: 77",
    ]);
    expect((await dump("partition.metadata", "version: 0\ntopic_id: abc")).lines).toEqual([
      "version: 0",
      "topic_id: abc",
    ]);
    const bad = await dump("leader-epoch-checkpoint", "0\n1\nx 0\n");
    expect(bad.exitCode).toBe(1);
    expect(bad.lines[0]).toMatch(/^Malformed: line 3 of /u);
  });

  test("a file of another kind, a directory and a missing file are refused", async () => {
    await expect(dumpFiles([join(directory, "x.txt")], { records: false })).rejects.toThrow(
      /not a file that dump knows/u,
    );
    await expect(dumpFiles([join(directory, "x.log")], { records: false })).rejects.toThrow(/ENOENT/u);
  });
});
