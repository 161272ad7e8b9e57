import { appendFile, mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { encodeBatch, withCompressedPayload } from "@tidemark/wire";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { verifyRecords, type RecordsVerdict } from "./verify-records.ts";

const encoder = new TextEncoder();
const FIRST = "00000000000000000000.log";
const SECOND = "00000000000000000004.log";

/** Lines of every awkward kind: empty, with CR, not UTF-8, long. */
const LINES: readonly Uint8Array[] = [
  encoder.encode("one"),
  new Uint8Array(0),
  encoder.encode("three\r"),
  Uint8Array.of(0xff, 0xfe, 0x00, 0x80),
  encoder.encode("x".repeat(3000)),
  encoder.encode("six"),
];

function batch(baseOffset: number, values: readonly Uint8Array[], partitionLeaderEpoch = 0): Uint8Array {
  const records = values.map((value) => ({ key: null, value, timestamp: 1000 }));
  return encodeBatch(records, { baseOffset, partitionLeaderEpoch });
}

describe("verification of a partition's files against the input", () => {
  let directory = "";

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "tidemark-verify-records-"));
    await write(FIRST, batch(0, LINES.slice(0, 2)), batch(2, LINES.slice(2, 4), 1));
    await write(SECOND, batch(4, LINES.slice(4), 1));
    await writeFile(join(directory, "00000000000000000000.index"), new Uint8Array(16));
  });
  afterEach(() => rm(directory, { recursive: true }));

  async function write(name: string, ...batches: readonly Uint8Array[]): Promise<void> {
    await writeFile(join(directory, name), Buffer.concat(batches));
  }

  function verdictOn(lines: readonly Uint8Array[] = LINES): Promise<RecordsVerdict> {
    async function* chunks() {
      for (const line of lines) yield Buffer.concat([line, Buffer.from("\n")]);
    }
    return verifyRecords({
      partitionDirectory: directory,
      chunks: chunks(),
      lineCount: lines.length,
      lineBytesMax: 10_000,
      onProgress: () => {},
      signal: new AbortController().signal,
    });
  }

  async function flipByte(name: string, positionBytes: number): Promise<void> {
    const bytes = await readFile(join(directory, name));
    bytes.writeUInt8(bytes.readUInt8(positionBytes) ^ 1, positionBytes);
    await writeFile(join(directory, name), bytes);
  }

  test("whole files pass, with figures for each segment", async () => {
    const verdict = await verdictOn();
    expect(verdict.problems).toEqual([]);
    expect(verdict).toMatchObject({
      problemCount: 0,
      recordCount: 6,
      batchCount: 3,
      logEndOffset: 6,
      valueBytes: 3016,
    });
    expect(verdict.segments).toMatchObject([
      { baseOffset: 0, records: 4, batches: 2, indexEntries: 2 },
      { baseOffset: 4, records: 2, batches: 1, indexEntries: 0 },
    ]);
  });

  test("a batch of gzip is unpacked and compared too", async () => {
    const plain = batch(4, LINES.slice(4), 1);
    await write(SECOND, withCompressedPayload(plain, "gzip", (await import("node:zlib")).gzipSync(plain.subarray(61))));
    expect((await verdictOn()).problems).toEqual([]);
  });

  test.each([0, 5, 16, 20, 40, 61, 70, 120])(
    "a flipped bit at byte %i of a segment is found",
    async (positionBytes) => {
      await flipByte(FIRST, positionBytes);
      expect((await verdictOn()).problemCount).toBeGreaterThan(0);
    },
  );

  test("a record with other bytes and a good CRC is found, with both excerpts", async () => {
    await write(SECOND, batch(4, [LINES[4] ?? new Uint8Array(0), encoder.encode("sax")], 1));
    expect((await verdictOn()).problems).toEqual([
      'record 5 is not line 6: 3 bytes instead of 3, from byte 1 on "ax" instead of "ix"',
    ]);
  });

  test("a record that is there twice is found", async () => {
    await write(SECOND, batch(4, LINES.slice(4), 1), batch(6, LINES.slice(5), 1));
    expect((await verdictOn()).problems).toContain("1 records more than the 6 lines");
  });

  test("two records in the wrong order are found", async () => {
    await write(SECOND, batch(4, LINES.slice(4).toReversed(), 1));
    expect((await verdictOn()).problemCount).toBe(2);
  });

  test("a missing last record is found", async () => {
    await write(SECOND, batch(4, LINES.slice(4, 5), 1));
    expect((await verdictOn()).problems).toEqual(["1 of 6 lines are not in the log, it ends before line 6"]);
  });

  test("a missing segment is found, and the records behind it are still compared with their own lines", async () => {
    await rm(join(directory, FIRST));
    expect((await verdictOn()).problems).toEqual([
      "00000000000000000004.log: begins where offset 0 was expected",
      "00000000000000000004.log at byte 0: base offset 4, expected 0",
      "4 of 6 lines are not in the log",
    ]);
  });

  test("a gap in the offsets is found", async () => {
    await write(SECOND, batch(4, LINES.slice(4, 5), 1), batch(6, LINES.slice(5), 1));
    expect((await verdictOn()).problems[0]).toMatch(/base offset 6, expected 5$/u);
  });

  test("bytes that are no whole batch are found: a cut batch, zeros, garbage after the last one", async () => {
    const whole = batch(4, LINES.slice(4), 1).length;
    await truncate(join(directory, SECOND), whole - 1);
    expect((await verdictOn()).problems[0]).toMatch(/bytes from byte 0 are no whole batch/u);
    await write(SECOND, batch(4, LINES.slice(4), 1), new Uint8Array(20));
    expect((await verdictOn()).problems[0]).toMatch(/20 bytes from byte \d+ are no whole batch/u);
    await write(SECOND, batch(4, LINES.slice(4), 1));
    await appendFile(join(directory, SECOND), "x");
    expect((await verdictOn()).problems[0]).toMatch(/1 bytes from byte \d+ are no whole batch/u);
  });

  test("a falling leader epoch is found", async () => {
    await write(SECOND, batch(4, LINES.slice(4), 0));
    expect((await verdictOn()).problems).toEqual([`${SECOND} at byte 0: leader epoch 0 after 1`]);
  });

  test("an input that has become longer or shorter is found", async () => {
    expect((await verdictOn([...LINES, encoder.encode("more")])).problemCount).toBe(1);
    expect((await verdictOn(LINES.slice(0, 5))).problemCount).toBe(2);
  });
});
