import type { FlushMode } from "@tidemark/log";
import type { Budget } from "./budget.ts";
import { batchOf, filledBatch } from "./content.ts";
import type { FilledBatch } from "./content.ts";
import { kafkaAppend } from "./kafka-subjects.ts";
import { lmdbPutNotAwaited } from "./lmdb-subjects.ts";
import { PEER_KINDS } from "./peer-kinds.ts";
import { peerAppendMany, peerAppendOne } from "./peer-subjects.ts";
import { rawWrite } from "./raw-file-subjects.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import {
  appendAnswers,
  appendArrays,
  appendAwaited,
  appendBatches,
  appendBatchesAsRecords,
  appendByAppender,
  appendNotAwaited,
  encodeAndAppend,
} from "./tidemark-subjects.ts";
import { peer } from "./workload.ts";
import type { Subject, Workload } from "./workload.ts";

const MEBIBYTE = 1024 ** 2;
const BATCH_BYTES = 128 * 1024;
const RAW_MEBIBYTE = "raw file, 1 MiB";
const RAW_MEBIBYTE_CRC = "raw file, 1 MiB + CRC-32C";
const RAW_BATCH = "raw file, the same bytes";
const KAFKA = "Kafka's log class";
const KAFKA_ENCODING = "Kafka's log class, encoded and appended";

const SIZES = [
  { name: "100 B", valueBytes: 100, chunkRecords: 1000 },
  { name: "1 KiB", valueBytes: 1024, chunkRecords: 1000 },
  { name: "10 KiB", valueBytes: 10 * 1024, chunkRecords: 100 },
] as const;
type Size = (typeof SIZES)[number];
const OTHER_BATCHES = [
  { name: "16 KiB", batchBytes: 16 * 1024 },
  { name: "1 MiB", batchBytes: MEBIBYTE },
] as const;
const FLUSH_MODES: readonly FlushMode[] = ["none", "always"];
const DURABLE_BATCH_RECORDS = 100;
const BATCHES_IN_FLIGHT = 8;

export function appendWorkloads(): readonly Workload[] {
  return [
    ...FLUSH_MODES.flatMap((flush) => SIZES.map((size) => recordsWorkload(flush, size))),
    ...OTHER_BATCHES.flatMap((batch) => SIZES.map((size) => batchSizeWorkload(batch, size))),
    ...FLUSH_MODES.map(awaitedWorkload),
    ...FLUSH_MODES.map(hundredsWorkload),
    ...FLUSH_MODES.map(batchWorkload),
  ];
}

/** What "durable" adds to the text of a workload. */
function durability(flush: FlushMode): string {
  return flush === "none"
    ? "Nobody syncs (lmdb: noSync; SQLite: synchronous OFF), but async-append-only-log, which always does."
    : "Durable: every append is on the disk when it is answered; raw: fdatasync after each write; Kafka: flush after each batch; " +
        "lmdb: flushed; SQLite: synchronous FULL; classic-level: sync. Peers that cannot are left out.";
}

function peersFor(flush: FlushMode) {
  return PEER_KINDS.filter(({ flushModes }) => flushModes.includes(flush));
}

function recordsWorkload(flush: FlushMode, { name, valueBytes, chunkRecords }: Size): Workload {
  const batch = filledBatch(valueBytes, BATCH_BYTES);
  const api = { flush, valueBytes, chunkRecords, batchBytes: BATCH_BYTES };
  return roundsWorkload({
    name: `append ${name} records, flush ${flush}`,
    unit: "records/s",
    explanation:
      `Records with a value of ${name} into one partition, in batches of 128 KiB; raw: the same batches, encoded before. ` +
      `${durability(flush)} Not awaited: 16 times ${chunkRecords.toLocaleString("en-US")} in flight; arrays and batches: 8 in flight.`,
    subjects: [
      appendNotAwaited(api),
      appendArrays(api),
      appendByAppender(api),
      encodeAndAppend(flush, valueBytes, batch),
      kafkaAppend({ way: "records", flush, valueBytes, batch, counted: "records" }),
      lmdbPutNotAwaited(flush, valueBytes, chunkRecords),
      ...peersFor(flush).map((kind) => peerAppendMany(kind, flush, valueBytes, chunkRecords)),
      ...rawMebibyteWrites(flush, batch, recordsPerSecond(batch)),
    ],
    peers: [
      peer("vs Kafka", KAFKA_ENCODING),
      peer("vs lmdb", `lmdb, transactions of ${chunkRecords.toLocaleString("en-US")}`),
      peer("vs raw", RAW_MEBIBYTE),
      peer("vs raw + CRC", RAW_MEBIBYTE_CRC),
    ],
    opensForEachSample: true,
  });
}

function batchSizeWorkload({ name: batchName, batchBytes }: (typeof OTHER_BATCHES)[number], size: Size): Workload {
  const { name, valueBytes, chunkRecords } = size;
  const flush = "none";
  const batch = filledBatch(valueBytes, batchBytes);
  const api = { flush, valueBytes, chunkRecords, batchBytes } as const;
  return roundsWorkload({
    name: `append ${name} records, batches of ${batchName}, flush none`,
    unit: "records/s",
    explanation: `As "append ${name} records, flush none", in batches of up to ${batchName}.`,
    subjects: [
      appendNotAwaited(api),
      appendArrays(api),
      appendByAppender(api),
      encodeAndAppend(flush, valueBytes, batch),
      kafkaAppend({ way: "records", flush, valueBytes, batch, counted: "records" }),
      ...rawMebibyteWrites(flush, batch, recordsPerSecond(batch)),
    ],
    peers: [peer("vs Kafka", KAFKA_ENCODING), peer("vs raw", RAW_MEBIBYTE), peer("vs raw + CRC", RAW_MEBIBYTE_CRC)],
    opensForEachSample: true,
  });
}

function awaitedWorkload(flush: FlushMode): Workload {
  const one = filledBatch(100, 0);
  return roundsWorkload({
    name: `append one 100 B record at a time, flush ${flush}`,
    unit: "records/s",
    explanation: `The next append begins when the one before was answered; raw: the batch of one record. ${durability(flush)}`,
    subjects: [
      appendAwaited(flush, 100),
      kafkaAppend({ way: "records", flush, valueBytes: 100, batch: one, counted: "records", hasLatencies: true }),
      ...peersFor(flush).map((kind) => peerAppendOne(kind, flush, 100)),
      rawWrite(RAW_BATCH, { bytes: one.bytes, withSync: flush === "always", toValue: recordsPerSecond(one) }),
    ],
    peers: [
      peer("vs Kafka", KAFKA_ENCODING),
      peer("vs lmdb", "lmdb"),
      peer("vs SQLite", "better-sqlite3"),
      peer("vs raw", RAW_BATCH),
    ],
    opensForEachSample: true,
  });
}

function hundredsWorkload(flush: FlushMode): Workload {
  const batch = batchOf(DURABLE_BATCH_RECORDS, 1024);
  return roundsWorkload({
    name: `append batches of 100 records of 1 KiB, flush ${flush}`,
    unit: "records/s",
    explanation: `Encoded batches, appended one at a time, and ${BATCHES_IN_FLIGHT} in flight, which share syncs. ${durability(flush)}`,
    subjects: [
      appendBatchesAsRecords(flush, batch, 1),
      appendBatchesAsRecords(flush, batch, BATCHES_IN_FLIGHT),
      kafkaAppend({ way: "encoded", flush, valueBytes: 1024, batch, counted: "records", hasLatencies: true }),
      ...peersFor(flush).map((kind) => peerAppendMany(kind, flush, 1024, DURABLE_BATCH_RECORDS)),
      rawWrite(RAW_BATCH, { bytes: batch.bytes, withSync: flush === "always", toValue: recordsPerSecond(batch) }),
    ],
    peers: [peer("vs Kafka", KAFKA), peer("vs lmdb", "lmdb, transactions of 100"), peer("vs raw", RAW_BATCH)],
    opensForEachSample: true,
  });
}

function batchWorkload(flush: FlushMode): Workload {
  const batch = filledBatch(100, BATCH_BYTES);
  return roundsWorkload({
    name: `append 128 KiB batches, flush ${flush}`,
    unit: "MB/s",
    explanation:
      `Encoded batches of ${batch.recordsCount.toLocaleString("en-US")} records of 100 B, ${BATCHES_IN_FLIGHT} in flight (Kafka: one). ` +
      `Origin local: header and CRC are checked; client: the records are walked too. ` +
      `As follower: answers of up to 1 MiB, one at a time. ${durability(flush)}`,
    subjects: [
      appendBatches("local", flush, batch),
      appendBatches("client", flush, batch),
      appendAnswers(flush, batch, MEBIBYTE),
      kafkaAppend({ way: "encoded", flush, valueBytes: 100, batch, counted: "bytes" }),
      ...rawMebibyteWrites(flush, batch, megabytesPerSecond),
    ],
    peers: [peer("vs Kafka", KAFKA), peer("vs raw", RAW_MEBIBYTE), peer("vs raw + CRC", RAW_MEBIBYTE_CRC)],
    opensForEachSample: true,
  });
}

function rawMebibyteWrites(
  flush: FlushMode,
  batch: FilledBatch,
  toValue: (budget: Budget, bytes: number) => number,
): Subject[] {
  const bytes = repeatedTo(batch.bytes, MEBIBYTE);
  const withSync = flush === "always";
  return [
    rawWrite(RAW_MEBIBYTE, { bytes, withSync, toValue }),
    rawWrite(RAW_MEBIBYTE_CRC, { bytes, withSync, withCrc: true, toValue }),
  ];
}

function repeatedTo(bytes: Uint8Array, sizeBytes: number): Uint8Array {
  const result = new Uint8Array(sizeBytes);
  for (let at = 0; at < sizeBytes; at += bytes.length) result.set(bytes.subarray(0, sizeBytes - at), at);
  return result;
}

function recordsPerSecond(batch: FilledBatch): (budget: Budget, bytes: number) => number {
  return (budget, bytes) => budget.rate(bytes / batch.bytesPerRecord);
}

function megabytesPerSecond(budget: Budget, bytes: number): number {
  return budget.megabytesPerSecond(bytes);
}
