import { BufferPool, toLeaderEpoch, toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG, LogDirectory, PartitionLog } from "@tidemark/log";
import type { BatchOrigin, FlushMode } from "@tidemark/log";
import { LmdbState, openEnvironment } from "@tidemark/runtime-node";
import { BATCH_BYTES_DEFAULT, Tidemark } from "@tidemark/server";
import type { Topic } from "@tidemark/server";
import { checkCrc, decodeRecords, encodeBatch, recordsSection, scanBatch, stampBatch } from "@tidemark/wire";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Budget } from "./budget.ts";
import { eventText, filledBatch, records } from "./content.ts";
import type { FilledBatch } from "./content.ts";
import { InFlight } from "./in-flight.ts";
import type { LatencyRecorder } from "./latency.ts";
import { sampleGets } from "./peer-subjects.ts";
import type { Subject } from "./workload.ts";

const CHUNK_RECORDS = 1000;
const CHUNKS_IN_FLIGHT = 16;
const ARRAYS_IN_FLIGHT = 8;
const BATCHES_IN_FLIGHT = 8;
const TO_PARTITION_0 = { partition: 0 };

/** Records that are appended through the embedding API. */
export interface ApiAppend {
  readonly flush: FlushMode;
  readonly valueBytes: number;
  /** Records of one call, or of one `Promise.all`. */
  readonly chunkRecords: number;
  /** What `Tidemark.open` is told. */
  readonly batchBytes: number;
}

type AppendLoop = (topic: Topic, value: Uint8Array, budget: Budget, latencies: LatencyRecorder) => Promise<number>;

/** Records/s through the embedding API. Every append has been answered when the clock stops. */
function apiAppend(name: string, options: Omit<ApiAppend, "chunkRecords">, appendRecords: AppendLoop): Subject {
  const { flush, valueBytes, batchBytes } = options;
  return {
    name,
    open: async (directory) => {
      const tidemark = await Tidemark.open({ directory, batchBytes });
      const topic = await tidemark.topic("bench", { flush });
      const value = eventText(valueBytes);
      return {
        sample: async (budget, latencies) => budget.rate(await appendRecords(topic, value, budget, latencies)),
        close: () => tidemark.close(),
      };
    },
  };
}

export function appendNotAwaited(options: ApiAppend): Subject {
  const { valueBytes, chunkRecords } = options;
  return apiAppend("tidemark, one by one, not awaited", options, async (topic, value, budget) => {
    const chunks = new InFlight(CHUNKS_IN_FLIGHT);
    let count = 0;
    while (!budget.isSpent(count * valueBytes)) {
      const appends: Promise<unknown>[] = [];
      for (let at = 0; at < chunkRecords; at += 1) appends.push(topic.append({ value }, TO_PARTITION_0));
      count += chunkRecords;
      await chunks.add(Promise.all(appends));
    }
    await chunks.drain();
    return count;
  });
}

export function appendArrays(options: ApiAppend): Subject {
  const { valueBytes, chunkRecords } = options;
  const name = `tidemark, arrays of ${chunkRecords.toLocaleString("en-US")}`;
  return apiAppend(name, options, async (topic, value, budget) => {
    const arrays = new InFlight(ARRAYS_IN_FLIGHT);
    let count = 0;
    while (!budget.isSpent(count * valueBytes)) {
      const records = Array.from({ length: chunkRecords }, () => ({ value }));
      count += chunkRecords;
      await arrays.add(topic.append(records, TO_PARTITION_0));
    }
    await arrays.drain();
    return count;
  });
}

/** No promise for each record. Looks at the budget as often as the others do. */
export function appendByAppender(options: ApiAppend): Subject {
  const { valueBytes, chunkRecords } = options;
  return apiAppend("tidemark, appender", options, async (topic, value, budget) => {
    const appender = topic.appender(TO_PARTITION_0);
    let count = 0;
    while (!budget.isSpent(count * valueBytes)) {
      for (let at = 0; at < chunkRecords; at += 1) if (!appender.append({ value })) await appender.drain();
      count += chunkRecords;
    }
    await appender.flush();
    return count;
  });
}

export function appendAwaited(flush: FlushMode, valueBytes: number): Subject {
  const options = { flush, valueBytes, batchBytes: BATCH_BYTES_DEFAULT };
  return apiAppend("tidemark", options, async (topic, value, budget, latencies) => {
    let count = 0;
    for (; !budget.isSpent(count * valueBytes); count += 1) {
      const startMs = performance.now();
      await topic.append({ value }, TO_PARTITION_0);
      latencies.recordSince(startMs);
    }
    return count;
  });
}

/** Records/s of a `fetch` from begin to end, again and again. */
export function fetchApi(batch: FilledBatch): Subject {
  return {
    name: "tidemark, fetch",
    open: async (directory, { quick }) => {
      const tidemark = await Tidemark.open({ directory });
      const topic = await tidemark.topic("bench", { flush: "none" });
      const count = storedRecords(batch, quick);
      await appendCount(topic, count);
      return {
        sample: async (budget) => {
          let fetched = 0;
          while (!budget.isSpent()) {
            for await (const record of topic.fetch({ partition: 0, follow: false })) {
              if (record.value !== null) fetched += 1;
              if (fetched % CHUNK_RECORDS === 0 && budget.isSpent()) break;
            }
          }
          return budget.rate(fetched);
        },
        close: () => tidemark.close(),
      };
    },
  };
}

const STORED_BYTES = 64 * 1024 ** 2;
const STORED_BYTES_QUICK = 8 * 1024 ** 2;

/** Batches that the logs of the fetch workloads hold. */
export function storedBatches(batch: FilledBatch, quick: boolean): number {
  return Math.ceil((quick ? STORED_BYTES_QUICK : STORED_BYTES) / batch.bytes.length);
}

function storedRecords(batch: FilledBatch, quick: boolean): number {
  return storedBatches(batch, quick) * batch.recordsCount;
}

/** Bytes that they have. */
export function storedBytes(batch: FilledBatch, quick: boolean): number {
  return storedBatches(batch, quick) * batch.bytes.length;
}

/** A partition log on its own, leader of epoch 0. */
async function openPartitionLog(
  directory: string,
  flush: FlushMode,
): Promise<{ log: PartitionLog; close: () => Promise<void> }> {
  const environment = openEnvironment();
  const state = await LmdbState.open(join(directory, "state"));
  const partitionDirectory = join(directory, "bench-0");
  mkdirSync(partitionDirectory);
  const { files, clock, random, workers } = environment;
  const log = await PartitionLog.open({
    files,
    state,
    clock,
    random,
    workers,
    directory: partitionDirectory,
    topic: "bench",
    partition: 0,
    config: { ...DEFAULT_LOG_CONFIG, flush },
    wasCleanShutdown: false,
    logDirectory: new LogDirectory(directory),
  });
  await log.becomeLeader(toLeaderEpoch(0));
  return {
    log,
    close: async () => {
      await log.close();
      await state.close();
      await environment.close();
    },
  };
}

/** MB/s of encoded batches into a partition log. */
export function appendBatches(origin: BatchOrigin, flush: FlushMode, batch: FilledBatch): Subject {
  return {
    name: `tidemark, PartitionLog.append, origin ${origin}`,
    open: async (directory) => {
      const { log, close } = await openPartitionLog(directory, flush);
      return {
        sample: async (budget) => {
          const appends = new InFlight(BATCHES_IN_FLIGHT);
          let bytes = 0;
          for (; !budget.isSpent(bytes); bytes += batch.bytes.length)
            await appends.add(log.append(batch.bytes, { origin }));
          await appends.drain();
          return budget.megabytesPerSecond(bytes);
        },
        close,
      };
    },
  };
}

/** Records/s of batches that are appended one after the other, or several at a time. */
export function appendBatchesAsRecords(flush: FlushMode, batch: FilledBatch, inFlight: number): Subject {
  return {
    name: `tidemark, PartitionLog.append, ${inFlight === 1 ? "one at a time" : `${inFlight} in flight`}`,
    open: async (directory) => {
      const { log, close } = await openPartitionLog(directory, flush);
      return {
        sample: async (budget, latencies) => {
          const appends = new InFlight(inFlight);
          let bytes = 0;
          for (; !budget.isSpent(bytes); bytes += batch.bytes.length) {
            const startMs = performance.now();
            await appends.add(log.append(batch.bytes, { origin: "local" }));
            if (inFlight === 1) latencies.recordSince(startMs);
          }
          await appends.drain();
          return budget.rate(bytes / batch.bytesPerRecord);
        },
        close,
      };
    },
  };
}

/** Records/s of batches that are encoded, record by record, and appended: no accumulator, as with Kafka's class. */
export function encodeAndAppend(flush: FlushMode, valueBytes: number, batch: FilledBatch): Subject {
  return {
    name: "tidemark, encodeBatch and PartitionLog.append",
    open: async (directory) => {
      const { log, close } = await openPartitionLog(directory, flush);
      const content = records(batch.recordsCount, valueBytes);
      return {
        sample: async (budget) => {
          const appends = new InFlight(BATCHES_IN_FLIGHT);
          let bytes = 0;
          for (; !budget.isSpent(bytes); bytes += batch.bytes.length)
            await appends.add(log.append(encodeBatch(content), { origin: "local" }));
          await appends.drain();
          return budget.rate(bytes / batch.bytesPerRecord);
        },
        close,
      };
    },
  };
}

/** MB/s of fetch answers into a follower's log, each of `answerBytes` at most, one after another. */
export function appendAnswers(flush: FlushMode, batch: FilledBatch, answerBytes: number): Subject {
  return {
    name: "tidemark, PartitionLog.appendAsFollower",
    open: async (directory) => {
      const { log, close } = await openPartitionLog(directory, flush);
      await log.becomeFollower();
      const count = Math.max(1, Math.floor(answerBytes / batch.bytes.length));
      const answer = new Uint8Array(count * batch.bytes.length);
      for (let at = 0; at < answer.length; at += batch.bytes.length) answer.set(batch.bytes, at);
      return {
        sample: async (budget) => {
          let bytes = 0;
          for (; !budget.isSpent(bytes); bytes += answer.length) {
            let baseOffset: number = log.logEndOffset;
            // Offset and epoch lie outside the CRC.
            for (let at = 0; at < answer.length; at += batch.bytes.length) {
              stampBatch(answer, at, baseOffset, 0);
              baseOffset += batch.recordsCount;
            }
            await log.appendAsFollower(answer);
          }
          return budget.megabytesPerSecond(bytes);
        },
        close,
      };
    },
  };
}

/** MB/s of slices of a partition log, from begin to end, again and again; each in fresh memory, or in that of the one before. */
export function readSlices(batch: FilledBatch, sliceBytes: number, memory: "fresh" | "pooled"): Subject {
  return {
    name: memory === "fresh" ? "tidemark, PartitionLog.read" : "tidemark, PartitionLog.read into the same memory",
    open: async (directory, { quick }) => {
      const { log, close } = await openPartitionLog(directory, "none");
      await fill(log, batch, quick);
      return {
        sample: async (budget) => {
          let bytesRead = 0;
          let fromOffset = log.logStartOffset;
          const pool = memory === "pooled" ? new BufferPool() : undefined;
          while (!budget.isSpent()) {
            const { bytes } = await log.read({
              fromOffset,
              maxBytes: sliceBytes,
              ...(pool === undefined ? {} : { pool }),
            });
            bytesRead += bytes.length;
            fromOffset = endOfSlice(bytes) ?? log.logStartOffset;
            pool?.giveBack(bytes);
            if (fromOffset >= log.logEndOffset) fromOffset = log.logStartOffset;
          }
          return budget.megabytesPerSecond(bytesRead);
        },
        close,
      };
    },
  };
}

async function fill(log: PartitionLog, batch: FilledBatch, quick: boolean): Promise<void> {
  const appends = new InFlight(BATCHES_IN_FLIGHT);
  for (let at = storedBatches(batch, quick); at > 0; at -= 1)
    await appends.add(log.append(batch.bytes, { origin: "local" }));
  await appends.drain();
}

/** Records/s of reads of one record each: its batch is read, checked and decoded up to it. */
export function pointReads(batchName: string, batch: FilledBatch): Subject {
  return {
    name: `tidemark, PartitionLog.read, batches of ${batchName}`,
    open: async (directory, { quick }) => {
      const { log, close } = await openPartitionLog(directory, "none");
      await fill(log, batch, quick);
      return {
        sample: (budget) => sampleGets(budget, log.logEndOffset, (offset) => readOne(log, toOffset(offset))),
        close,
      };
    },
  };
}

async function readOne(log: PartitionLog, offset: Offset): Promise<Uint8Array | null | undefined> {
  const { bytes } = await log.read({ fromOffset: offset, maxBytes: 1 });
  const scan = scanBatch(bytes, 0);
  if (scan.type !== "batch") throw new Error("a batch that was stored cannot be read");
  if (!checkCrc(bytes, scan.header)) throw new Error("a batch that was stored is damaged");
  for (const record of decodeRecords(scan.header, recordsSection(bytes, scan.header), offset))
    if (record.offset >= offset) return record.value;
  return undefined;
}

/** Records/s of `fetch` for one record each. */
export function pointFetches(batchName: string, batchBytes: number): Subject {
  return {
    name: `tidemark, fetch, batches of ${batchName}`,
    open: async (directory, { quick }) => {
      const tidemark = await Tidemark.open({ directory, batchBytes });
      const topic = await tidemark.topic("bench", { flush: "none" });
      const batch = filledBatch(100, batchBytes);
      const count = storedRecords(batch, quick);
      await appendCount(topic, count, batch.recordsCount);
      return {
        sample: (budget) =>
          sampleGets(budget, count, async (offset) => {
            const found = topic.fetch({ partition: 0, from: offset, to: offset + 1, maxBytes: 1, follow: false });
            for await (const record of found) return record.value;
            return undefined;
          }),
        close: () => tidemark.close(),
      };
    },
  };
}

/** Records of 100 B, in arrays, of which none is split: they decide how large the batches are. */
async function appendCount(topic: Topic, count: number, arrayRecords = CHUNK_RECORDS): Promise<void> {
  const value = eventText(100);
  const arrays = new InFlight(ARRAYS_IN_FLIGHT);
  for (let at = 0; at < count; at += arrayRecords) {
    const chunk = Array.from({ length: Math.min(arrayRecords, count - at) }, () => ({ value }));
    await arrays.add(topic.append(chunk, TO_PARTITION_0));
  }
  await arrays.drain();
}

/** The offset after the last whole batch of a slice, or `undefined` when it has none: where a reader goes on. */
function endOfSlice(bytes: Uint8Array): Offset | undefined {
  let endOffset: Offset | undefined;
  for (let at = 0; at < bytes.length;) {
    const scan = scanBatch(bytes, at);
    if (scan.type === "corrupt") throw new Error(`a batch cannot be read: ${scan.reason}`);
    if (scan.type === "incomplete") break;
    endOffset = toOffset(scan.header.lastOffset + 1);
    at += scan.header.sizeInBytes;
  }
  return endOffset;
}
