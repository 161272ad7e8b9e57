import { execFile } from "node:child_process";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { toLeaderEpoch } from "@tidemark/base";
import { COMPRESSION_CODECS } from "@tidemark/wire";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { GOLDEN_BATCHES } from "../golden/vectors.ts";
import { headerOf, joinBytes, randomBatch } from "./batches.ts";
import { complaintsIn, fieldOf, withoutFirstOffsets } from "./dump-output.ts";
import { dumpLogSegments, makeScratchDirectory } from "./kafka.ts";
import { openLog } from "./open-log.ts";
import { SeededRandom } from "./random.ts";

const BATCHES = 400;

let scratch: string;
let directory: string;
let written: { readonly batches: readonly Uint8Array[]; readonly recordsCount: number };

beforeAll(async () => {
  scratch = await makeScratchDirectory();
  directory = join(scratch, "orders-0");
  written = await writeLog(directory);
});

afterAll(() => rm(scratch, { recursive: true, force: true }));

describe("Kafka's dump tool on a directory that our log wrote", () => {
  test("reads every batch and record of the segments, and finds every CRC right", async () => {
    const logs = await filesOf(".log");
    expect(logs.length).toBeGreaterThan(5);
    const { exitCode, stdout, stderr } = await dumpLogSegments(logs, ["--deep-iteration", "--print-data-log"]);
    expect({ exitCode, stderr: withoutFirstOffsets(stderr) }).toEqual({ exitCode: 0, stderr: "" });
    expect(complaintsIn(stdout)).toEqual([]);
    const batchLines = stdout.split("\n").filter((line) => line.startsWith("baseOffset:"));
    expect(batchLines).toHaveLength(written.batches.length);
    expect(batchLines.filter((line) => line.includes("isvalid: true"))).toHaveLength(written.batches.length);
    expect(batchLines.map((line) => fieldOf(line, "crc"))).toEqual(written.batches.map((batch) => headerOf(batch).crc));
    const offsets = stdout.split("\n").flatMap((line) => (line.startsWith("| offset:") ? fieldOf(line, "offset") : []));
    expect(offsets).toEqual(Array.from({ length: written.recordsCount }, (_, offset) => offset));
    const codecs = new Set(batchLines.map((line) => / compresscodec: (\w+)/u.exec(line)?.[1]));
    expect(codecs).toEqual(new Set(COMPRESSION_CODECS));
  });

  test("reads every snapshot of producers, and what it says of them is what was written", async () => {
    const snapshots = await filesOf(".snapshot");
    expect(snapshots.length).toBeGreaterThan(5);
    const { exitCode, stdout, stderr } = await dumpLogSegments(snapshots, []);
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
    expect(complaintsIn(stdout)).toEqual([]);
    const last = stdout.slice(stdout.lastIndexOf("Dumping "));
    const producers = last.split("\n").filter((line) => line.startsWith("producerId:"));
    const idempotent = written.batches.map((batch) => headerOf(batch)).filter(({ producerId }) => producerId >= 0);
    expect(producers.map((line) => fieldOf(line, "producerId")).sort((a, b) => a - b)).toEqual(
      idempotent.map(({ producerId }) => producerId).sort((a, b) => a - b),
    );
  });

  test("finds every index entry at a batch of its segment", async () => {
    const indexes = await filesOf(".index");
    const entries = await Promise.all(indexes.map(async (path) => (await readFile(path)).length / 8));
    expect(Math.max(...entries)).toBeGreaterThan(5);
    const { exitCode, stdout, stderr } = await dumpLogSegments(indexes, ["--verify-index-only"]);
    expect({ exitCode, stderr: withoutFirstOffsets(stderr) }).toEqual({ exitCode: 0, stderr: "" });
    expect(complaintsIn(stdout)).toEqual([]);
    for (const path of indexes) expect(stdout).toContain(`Dumping ${path}`);
  });

  test("finds every entry of the time indexes at a batch with that timestamp, and no larger one before it", async () => {
    const indexes = await filesOf(".timeindex");
    const entries = await Promise.all(indexes.map(async (path) => (await readFile(path)).length / 12));
    expect(Math.min(...entries)).toBeGreaterThan(0);
    expect(Math.max(...entries)).toBeGreaterThan(3);
    const { exitCode, stdout, stderr } = await dumpLogSegments(indexes, ["--verify-index-only", "--deep-iteration"]);
    expect({ exitCode, stderr: withoutFirstOffsets(stderr) }).toEqual({ exitCode: 0, stderr: "" });
    expect(complaintsIn(stdout)).toEqual([]);
    for (const path of indexes) expect(stdout).toContain(`Dumping ${path}`);
  });
});

test("our dump of Kafka's own batches, control records and codecs among them, is line for line that of its tool", async () => {
  const path = join(scratch, "00000000000000000000.log");
  await writeFile(path, joinBytes(GOLDEN_BATCHES.map(({ bytes }) => bytes)));
  const theirs = await dumpLogSegments([path], ["--deep-iteration", "--print-data-log"]);
  const command = fileURLToPath(new URL("../../packages/cli/dist/main.js", import.meta.url));
  const { stdout: ours } = await promisify(execFile)(process.execPath, [command, "dump", "--records", path]);
  expect(ours.split("\n").length).toBeGreaterThan(GOLDEN_BATCHES.length * 2);
  expect(ours.trimEnd().split("\n")).toEqual(theirs.stdout.trimEnd().split("\n"));
});

describe("Kafka's dump tool on a damaged copy", () => {
  test("a flipped bit in a record, and an index entry beside its batch, are complained of", async () => {
    const [log = "", index = ""] = [(await filesOf(".log"))[1], (await filesOf(".index"))[1]];
    const copyDirectory = join(scratch, "damaged-0");
    await mkdir(copyDirectory);
    const [logCopy, indexCopy] = [log, index].map((path) => path.replace("orders-0", "damaged-0"));
    if (logCopy === undefined || indexCopy === undefined) throw new Error("there is a second segment");
    await writeFile(logCopy, flipBit(await readFile(log), 80));
    await writeFile(indexCopy, await readFile(index));
    const dumped = await dumpLogSegments([logCopy], ["--deep-iteration", "--print-data-log"]);
    expect(complaintsIn(dumped.stdout + dumped.stderr)).not.toEqual([]);

    await writeFile(logCopy, await readFile(log));
    await writeFile(indexCopy, flipBit(await readFile(index), 3));
    const verified = await dumpLogSegments([indexCopy], ["--verify-index-only"]);
    expect(complaintsIn(verified.stdout + verified.stderr)).not.toEqual([]);
  });
});

/** Appends plain, compressed and idempotent batches in three leader epochs, and closes cleanly. */
async function writeLog(directory: string): Promise<typeof written> {
  const log = await openLog(directory, { config: { segmentBytes: 20_000, indexIntervalBytes: 500 } });
  const random = new SeededRandom(7);
  const batches: Uint8Array[] = [];
  let recordsCount = 0;
  for (let i = 0; i < BATCHES; i++) {
    if (i % 150 === 0) await log.becomeLeader(toLeaderEpoch(i / 50));
    const isIdempotent = random.oneIn(4);
    const producer = isIdempotent ? { producerId: 1000 + i, producerEpoch: 0, baseSequence: 0 } : {};
    const batch = randomBatch(random, { recordsMax: 8, valueBytesMax: 100, compressed: random.oneIn(3) }, producer);
    await log.append(batch, { origin: "client" });
    batches.push(batch);
    recordsCount += headerOf(batch).recordsCount;
  }
  await log.close();
  return { batches, recordsCount };
}

async function filesOf(suffix: string): Promise<string[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith(suffix)).sort();
  return names.map((name) => join(directory, name));
}

function flipBit(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[at] = (copy[at] ?? 0) ^ 1;
  return copy;
}
