import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { encodeUtf8, toLeaderEpoch } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG, LogDirectory, PartitionLog } from "@tidemark/log";
import type { LogConfig } from "@tidemark/log";
import { LmdbState, openEnvironment } from "@tidemark/runtime-node";
import { compressBatch, encodeBatch, scanBatch } from "@tidemark/wire";
import type { RecordInput } from "@tidemark/wire";
import { eventText } from "./content.ts";
import { InFlight } from "./in-flight.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import type { Subject, Workload } from "./workload.ts";

const MEBIBYTE = 1024 ** 2;
const LOG_BYTES = 64 * MEBIBYTE;
const LOG_BYTES_QUICK = 2 * MEBIBYTE;
const SEGMENTS = 8;
const VALUE_BYTES = 100;
const RECORDS_PER_BATCH = 1000;
const BATCHES_IN_FLIGHT = 8;
/** Fills a log for each sample. */
const ROUNDS_MAX = 5;

/** What is compacted. */
interface Content {
  readonly name: string;
  /** Each key comes so often, spread over the whole log. */
  readonly valuesPerKey: number;
  readonly codec: "none" | "zstd";
}

const CONTENTS: readonly Content[] = [
  { name: "one record in 10 stays", valuesPerKey: 10, codec: "none" },
  { name: "every record stays", valuesPerKey: 1, codec: "none" },
  { name: "one record in 10 stays, zstd", valuesPerKey: 10, codec: "zstd" },
];

export function compactionWorkloads(): readonly Workload[] {
  return [
    roundsWorkload({
      name: "compaction",
      unit: "MB/s",
      explanation:
        "One pass over a log of 64 MiB (with --quick 2) of records of 100 B with keys of 12, in 8 segments of batches of 1,000: the bytes that " +
        "it goes through, as they were before compression. It reads them twice, and writes and syncs what stays.",
      subjects: CONTENTS.map(compactionSubject),
      opensForEachSample: true,
      roundsMax: ROUNDS_MAX,
    }),
  ];
}

function compactionSubject(content: Content): Subject {
  return {
    name: `tidemark, ${content.name}`,
    open: async (directory, { quick }) => {
      const { log, plainBytes, close } = await filledLog(directory, content, quick ? LOG_BYTES_QUICK : LOG_BYTES);
      return {
        sample: async () => {
          const startMs = performance.now();
          await log.compact();
          return plainBytes / 1000 / (performance.now() - startMs);
        },
        close,
      };
    },
  };
}

/** A log of which all but an empty active segment is dirty. */
async function filledLog(directory: string, content: Content, logBytes: number) {
  const environment = openEnvironment();
  const state = await LmdbState.open(join(directory, "state"));
  const partition = join(directory, "bench-0");
  mkdirSync(partition);
  const config: LogConfig = {
    ...DEFAULT_LOG_CONFIG,
    cleanupPolicy: "compact",
    flush: "none",
    segmentBytes: logBytes / SEGMENTS,
  };
  const { files, clock, random, workers } = environment;
  const log = await PartitionLog.open({
    files,
    state,
    clock,
    random,
    workers,
    directory: partition,
    topic: "bench",
    partition: 0,
    config,
    wasCleanShutdown: false,
    logDirectory: new LogDirectory(directory),
  });
  await log.becomeLeader(toLeaderEpoch(0));
  const appends = new InFlight(BATCHES_IN_FLIGHT);
  const batchCount = Math.ceil(logBytes / (RECORDS_PER_BATCH * (VALUE_BYTES + KEY_BYTES)));
  const keyCount = Math.ceil((batchCount * RECORDS_PER_BATCH) / content.valuesPerKey);
  let plainBytes = 0;
  for (let at = 0; at < batchCount; at += 1) {
    const plain = encodeBatch(recordsFrom(at * RECORDS_PER_BATCH, keyCount));
    plainBytes += plain.length;
    const scan = scanBatch(plain, 0);
    const isPlain = content.codec === "none" || scan.type !== "batch";
    const batch = isPlain ? plain : await compressBatch(workers, plain, scan.header, content.codec, undefined);
    await appends.add(log.append(batch, { origin: "local" }));
  }
  await appends.drain();
  await log.roll();
  await log.flush();
  const close = async (): Promise<void> => {
    await log.close();
    await state.close();
    await environment.close();
  };
  return { log, plainBytes, close };
}

const KEY_BYTES = 12;

function recordsFrom(first: number, keyCount: number): RecordInput[] {
  return Array.from({ length: RECORDS_PER_BATCH }, (_, at) => ({
    key: encodeUtf8(`key ${String((first + at) % keyCount).padStart(KEY_BYTES - 4, "0")}`),
    value: VALUE,
    timestamp: 1_700_000_000_000,
  }));
}

const VALUE = eventText(VALUE_BYTES);
