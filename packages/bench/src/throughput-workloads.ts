import type { FlushMode } from "@tidemark/log";
import type { Budget } from "./budget.ts";
import { filledBatch } from "./content.ts";
import type { FilledBatch } from "./content.ts";
import { putAwaited, putNotAwaited, putTransactions, rangeAll } from "./lmdb-subjects.ts";
import { rawRead, rawWrite } from "./raw-file-subjects.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import {
  appendAnswers,
  appendArrays,
  appendAwaited,
  appendBatches,
  appendNotAwaited,
  fetchApi,
  readSlices,
} from "./tidemark-subjects.ts";
import { peer } from "./workload.ts";
import type { Subject, Workload } from "./workload.ts";

const MEBIBYTE = 1024 ** 2;
const BATCH_BYTES = 128 * 1024;
const RAW_MEBIBYTE = "raw file, 1 MiB";
const RAW_MEBIBYTE_CRC = "raw file, 1 MiB + CRC-32C";
const RAW_BATCH = "raw file, the same bytes";

const SIZES = [
  { name: "100 B", valueBytes: 100 },
  { name: "1 KiB", valueBytes: 1024 },
] as const;
const FLUSH_MODES: readonly FlushMode[] = ["none", "always"];

export function throughputWorkloads(): readonly Workload[] {
  return [
    ...FLUSH_MODES.flatMap((flush) => SIZES.map(({ name, valueBytes }) => appendWorkload(flush, name, valueBytes))),
    ...FLUSH_MODES.map(awaitedWorkload),
    ...FLUSH_MODES.map(batchWorkload),
    fetchWorkload(),
    readWorkload(),
  ];
}

/** What "durable" adds to the text of a workload. */
function durability(flush: FlushMode): string {
  return flush === "none"
    ? "Nobody syncs (lmdb: noSync)."
    : "Durable: every append is on the disk when it is answered; raw: fdatasync after each write; lmdb: flushed.";
}

function appendWorkload(flush: FlushMode, name: string, valueBytes: number): Workload {
  const batch = filledBatch(valueBytes, BATCH_BYTES);
  return roundsWorkload({
    name: `append ${name} records, flush ${flush}`,
    unit: "records/s",
    explanation:
      `Records with a value of ${name} into one partition; raw: the same batches, encoded before. ${durability(flush)} ` +
      "Not awaited: 16 times 1,000 in flight; arrays: 8 in flight.",
    subjects: [
      appendNotAwaited(flush, valueBytes),
      appendArrays(flush, valueBytes),
      putNotAwaited(flush, valueBytes),
      putTransactions(flush, valueBytes),
      ...rawMebibyteWrites(flush, batch, recordsPerSecond(batch)),
    ],
    peers: [
      peer("vs lmdb", "lmdb, transactions of 1,000"),
      peer("vs raw", RAW_MEBIBYTE),
      peer("vs raw + CRC", RAW_MEBIBYTE_CRC),
    ],
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
      putAwaited(flush, 100),
      rawWrite(RAW_BATCH, { bytes: one.bytes, withSync: flush === "always", toValue: recordsPerSecond(one) }),
    ],
    peers: [peer("vs lmdb", "lmdb"), peer("vs raw", RAW_BATCH)],
    opensForEachSample: true,
  });
}

function batchWorkload(flush: FlushMode): Workload {
  const batch = filledBatch(100, BATCH_BYTES);
  return roundsWorkload({
    name: `append 128 KiB batches, flush ${flush}`,
    unit: "MB/s",
    explanation:
      `Encoded batches of ${batch.recordsCount.toLocaleString("en-US")} records of 100 B, 8 in flight. ` +
      `Origin local: header and CRC are checked; client: the records are walked too. ` +
      `As follower: answers of up to 1 MiB, one at a time. ${durability(flush)}`,
    subjects: [
      appendBatches("local", flush, batch),
      appendBatches("client", flush, batch),
      appendAnswers(flush, batch, MEBIBYTE),
      ...rawMebibyteWrites(flush, batch, megabytesPerSecond),
    ],
    peers: [peer("vs raw", RAW_MEBIBYTE), peer("vs raw + CRC", RAW_MEBIBYTE_CRC)],
    opensForEachSample: true,
  });
}

function fetchWorkload(): Workload {
  const batch = filledBatch(100, BATCH_BYTES);
  return roundsWorkload({
    name: "fetch 100 B records",
    unit: "records/s",
    explanation:
      "All records of a partition in order, from memory (page cache), as objects; raw: only the bytes of as many.",
    subjects: [
      fetchApi(batch),
      rangeAll(batch),
      rawRead(RAW_MEBIBYTE, {
        batch,
        readBytes: MEBIBYTE,
        withFreshMemory: true,
        toValue: recordsPerSecond(batch),
      }),
    ],
    peers: [peer("vs lmdb", "lmdb, range"), peer("vs raw", RAW_MEBIBYTE)],
    opensForEachSample: false,
  });
}

function readWorkload(): Workload {
  const batch = filledBatch(100, BATCH_BYTES);
  const raw = { batch, readBytes: MEBIBYTE, toValue: megabytesPerSecond };
  return roundsWorkload({
    name: "read 1 MiB slices",
    unit: "MB/s",
    explanation: "Whole batches as bytes, in order, from memory (page cache): what a follower fetches.",
    subjects: [
      readSlices(batch, MEBIBYTE),
      rawRead(RAW_MEBIBYTE, { ...raw, withFreshMemory: true }),
      rawRead("raw file, 1 MiB into the same memory", { ...raw, withFreshMemory: false }),
    ],
    peers: [peer("vs raw", RAW_MEBIBYTE)],
    opensForEachSample: false,
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
