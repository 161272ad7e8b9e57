import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";

import { toLeaderEpoch } from "@tidemark/base";
import { verifyDirectory } from "@tidemark/log";
import { NODE_JOBS, NodeFileSystem } from "@tidemark/runtime-node";
import {
  checkCrc,
  COMPRESSION_CODECS,
  compressionCodec,
  decodeRecords,
  decompressBatchNow,
  encodeBatch,
  isLogAppendTime,
  recordsSection,
  withCompressedPayload,
} from "@tidemark/wire";
import type { CompressionCodec } from "@tidemark/wire";
import { NODE_CODECS } from "@tidemark/codecs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { headerOf, randomRecords } from "./batches.ts";
import { makeScratchDirectory, runJavaFile } from "./kafka.ts";
import { openLog } from "./open-log.ts";
import { SeededRandom } from "./random.ts";

/** A record as Codecs.java prints it. */
interface Line {
  readonly offset: number;
  readonly timestamp: number;
  readonly type: "CreateTime" | "LogAppendTime";
  readonly sequence: number;
  readonly codec: CompressionCodec;
  readonly key: string | null;
  readonly value: string | null;
  readonly headers: readonly (readonly [string, string | null])[];
}

const BATCHES = 160;
const OUTPUT_BYTES_MAX = 64 * 1024 ** 2;

let scratch: string;

/** Logs that Kafka writes, by the name of their topic: what the rows below say of them, and their configuration. */
const WRITTEN_BY_KAFKA = [
  ["as producers sent them", "plain", []],
  ["with log append time", "stamped", ["message.timestamp.type=LogAppendTime"]],
  ["recompressed by the broker", "again", ["compression.type=zstd"]],
] as const;

beforeAll(async () => {
  scratch = await makeScratchDirectory();
  await writeLog(join(scratch, "ours-0"));
  const directories = ["plain", "stamped", "again", "ours"].map((name) => join(scratch, `${name}-0`));
  const writes = WRITTEN_BY_KAFKA.map(([, name, config]) => {
    const options = ["internal.segment.bytes=1048576", ...config];
    return ["write", join(scratch, `${name}-0`), "7", String(BATCHES), ...options];
  });
  // One Java for all: starting it costs more than the work.
  const commands = [...writes, ...directories.map((directory) => ["read", directory])];
  await runJavaFile(
    "Codecs.java",
    commands
      .map((words) => words.join(" "))
      .join(" -- ")
      .split(" "),
  );
});

afterAll(() => rm(scratch, { recursive: true, force: true }));

describe("segments that Kafka's log class wrote", () => {
  test.each(WRITTEN_BY_KAFKA)(
    "with batches of every codec at every level, %s, give the same records",
    async (_, name) => {
      const directory = join(scratch, `${name}-0`);
      const theirs = await linesOf(directory);
      expect(theirs.length).toBeGreaterThan(BATCHES * 4);
      const codecs = new Set(theirs.map(({ codec }) => codec));
      expect([...codecs].sort()).toEqual(name === "again" ? ["zstd"] : [...COMPRESSION_CODECS].sort());
      expect(theirs.every(({ type }) => (type === "LogAppendTime") === (name === "stamped"))).toBe(true);
      expectSameLines(await readDirectory(directory), theirs);
      const report = await verifyDirectory({ files: new NodeFileSystem(), workers: NODE_JOBS, directory });
      expect(report.errors.map(({ kind }) => kind)).toEqual([]);
      expect(report.records).toBe(theirs.length);
    },
  );
});

describe("segments that our log wrote", () => {
  test("with batches of every codec, snappy in one bare block and several members of gzip too, give Kafka the same records", async () => {
    const directory = join(scratch, "ours-0");
    const ours = await readDirectory(directory);
    expect(new Set(ours.map(({ codec }) => codec))).toEqual(new Set(COMPRESSION_CODECS));
    expectSameLines(ours, await linesOf(directory));
  });
});

/** What Kafka read. */
async function linesOf(directory: string): Promise<Line[]> {
  const output = await readFile(`${directory}.jsonl`, "utf8");
  return output
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Line);
}

/** One difference is told, not ten thousand. */
function expectSameLines(ours: readonly Line[], theirs: readonly Line[]): void {
  for (const [at, line] of theirs.entries()) {
    if (JSON.stringify(line) !== JSON.stringify(ours[at])) expect(ours[at]).toEqual(line);
  }
  expect(ours).toHaveLength(theirs.length);
}

async function readDirectory(directory: string): Promise<Line[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith(".log")).sort();
  const lines: Line[] = [];
  for (const name of names) {
    const bytes = new Uint8Array(await readFile(join(directory, name)));
    for (let at = 0; at < bytes.length;) {
      const header = headerOf(bytes, at);
      expect(checkCrc(bytes, header)).toBe(true);
      const payload = decompressBatchNow(NODE_JOBS, bytes, header, OUTPUT_BYTES_MAX);
      const type = isLogAppendTime(header) ? "LogAppendTime" : "CreateTime";
      for (const { offset, timestamp, sequence, key, value, headers } of decodeRecords(header, payload)) {
        const codec = compressionCodec(header);
        lines.push({
          offset,
          timestamp,
          type,
          sequence,
          codec,
          key: base64(key),
          value: base64(value),
          headers: headers.map((each) => [each.key, base64(each.value)] as const),
        });
      }
      at += header.sizeInBytes;
    }
  }
  return lines;
}

function base64(bytes: Uint8Array | null): string | null {
  return bytes === null ? null : Buffer.from(bytes).toString("base64");
}

/** Every codec in turn, at its levels, and what other clients send. */
async function writeLog(directory: string): Promise<void> {
  const log = await openLog(directory, { config: { segmentBytes: 200_000 } });
  await log.becomeLeader(toLeaderEpoch(5));
  const random = new SeededRandom(11);
  const ways = compressions();
  for (let at = 0; at < BATCHES; at += 1) {
    const shape = { recordsMax: at % 10 === 0 ? 400 : 8, valueBytesMax: 300 };
    const producer = random.oneIn(4) ? { producerId: 1000 + at, producerEpoch: 0, baseSequence: 0 } : {};
    const batch = encodeBatch(randomRecords(random, shape), producer);
    const way = ways[at % ways.length];
    await log.append(way === undefined ? batch : way(batch), { origin: "client" });
  }
  await log.close();
}

function compressions(): ((batch: Uint8Array) => Uint8Array)[] {
  const compressed = (codec: "gzip" | "snappy" | "lz4" | "zstd", level?: number) => (batch: Uint8Array) => {
    const payload = recordsSection(batch, headerOf(batch));
    return withCompressedPayload(batch, codec, NODE_JOBS.runNow("compress", { codec, payload, level }));
  };
  const gzip = (payload: Uint8Array) => NODE_JOBS.runNow("compress", { codec: "gzip", payload, level: undefined });
  return [
    (batch) => batch,
    compressed("gzip"),
    compressed("gzip", 1),
    compressed("gzip", 9),
    compressed("snappy"),
    compressed("lz4"),
    compressed("zstd"),
    compressed("zstd", -3),
    compressed("zstd", 19),
    (batch) => {
      const block = NODE_CODECS.compressSnappyBlock(recordsSection(batch, headerOf(batch)));
      return withCompressedPayload(batch, "snappy", block);
    },
    (batch) => {
      const payload = recordsSection(batch, headerOf(batch));
      const members = [gzip(payload.subarray(0, 20)), gzip(payload.subarray(20))];
      return withCompressedPayload(batch, "gzip", new Uint8Array(Buffer.concat(members)));
    },
  ];
}
