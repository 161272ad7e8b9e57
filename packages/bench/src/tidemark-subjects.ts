import { toLeaderEpoch, toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG, LogDirectory, PartitionLog } from "@tidemark/log";
import type { BatchOrigin, FlushMode } from "@tidemark/log";
import { LmdbState, openEnvironment } from "@tidemark/runtime-node";
import { Tidemark } from "@tidemark/server";
import type { Topic } from "@tidemark/server";
import { scanBatch, stampBatch } from "@tidemark/wire";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Budget } from "./budget.ts";
import { eventText } from "./content.ts";
import type { FilledBatch } from "./content.ts";
import { InFlight } from "./in-flight.ts";
import type { Subject } from "./workload.ts";

const CHUNK_RECORDS = 1000;
const CHUNKS_IN_FLIGHT = 16;
const ARRAYS_IN_FLIGHT = 8;
const BATCHES_IN_FLIGHT = 8;
const TO_PARTITION_0 = { partition: 0 };

type AppendLoop = (topic: Topic, value: Uint8Array, budget: Budget) => Promise<number>;

/** Records/s through the embedding API. Every append has been answered when the clock stops. */
function apiAppend(name: string, flush: FlushMode, valueBytes: number, appendRecords: AppendLoop): Subject {
  return {
    name,
    open: async (directory) => {
      const tidemark = await Tidemark.open({ directory });
      const topic = await tidemark.topic("bench", { flush });
      const value = eventText(valueBytes);
      return {
        sample: async (budget) => budget.rate(await appendRecords(topic, value, budget)),
        close: () => tidemark.close(),
      };
    },
  };
}

export function appendNotAwaited(flush: FlushMode, valueBytes: number): Subject {
  return apiAppend("tidemark, one by one, not awaited", flush, valueBytes, async (topic, value, budget) => {
    const chunks = new InFlight(CHUNKS_IN_FLIGHT);
    let count = 0;
    while (!budget.isSpent(count * valueBytes)) {
      const appends: Promise<unknown>[] = [];
      for (let at = 0; at < CHUNK_RECORDS; at += 1) appends.push(topic.append({ value }, TO_PARTITION_0));
      count += CHUNK_RECORDS;
      await chunks.add(Promise.all(appends));
    }
    await chunks.drain();
    return count;
  });
}

export function appendArrays(flush: FlushMode, valueBytes: number): Subject {
  return apiAppend("tidemark, arrays of 1,000", flush, valueBytes, async (topic, value, budget) => {
    const arrays = new InFlight(ARRAYS_IN_FLIGHT);
    let count = 0;
    while (!budget.isSpent(count * valueBytes)) {
      const records = Array.from({ length: CHUNK_RECORDS }, () => ({ value }));
      count += CHUNK_RECORDS;
      await arrays.add(topic.append(records, TO_PARTITION_0));
    }
    await arrays.drain();
    return count;
  });
}

export function appendAwaited(flush: FlushMode, valueBytes: number): Subject {
  return apiAppend("tidemark", flush, valueBytes, async (topic, value, budget) => {
    let count = 0;
    for (; !budget.isSpent(count * valueBytes); count += 1) await topic.append({ value }, TO_PARTITION_0);
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
      const value = eventText(100);
      const arrays = new InFlight(ARRAYS_IN_FLIGHT);
      for (let at = 0; at < count; at += CHUNK_RECORDS) {
        const records = Array.from({ length: Math.min(CHUNK_RECORDS, count - at) }, () => ({ value }));
        await arrays.add(topic.append(records, TO_PARTITION_0));
      }
      await arrays.drain();
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

export function storedRecords(batch: FilledBatch, quick: boolean): number {
  return storedBatches(batch, quick) * batch.recordsCount;
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
  const { files, clock, workers } = environment;
  const log = await PartitionLog.open({
    files,
    state,
    clock,
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

/** MB/s of slices of a partition log, from begin to end, again and again. */
export function readSlices(batch: FilledBatch, sliceBytes: number): Subject {
  return {
    name: "tidemark, PartitionLog.read",
    open: async (directory, { quick }) => {
      const { log, close } = await openPartitionLog(directory, "none");
      const appends = new InFlight(BATCHES_IN_FLIGHT);
      for (let at = storedBatches(batch, quick); at > 0; at -= 1)
        await appends.add(log.append(batch.bytes, { origin: "local" }));
      await appends.drain();
      return {
        sample: async (budget) => {
          let bytesRead = 0;
          let fromOffset = log.logStartOffset;
          while (!budget.isSpent()) {
            const { bytes } = await log.read({ fromOffset, maxBytes: sliceBytes });
            bytesRead += bytes.length;
            fromOffset = endOfSlice(bytes) ?? log.logStartOffset;
            if (fromOffset >= log.logEndOffset) fromOffset = log.logStartOffset;
          }
          return budget.megabytesPerSecond(bytesRead);
        },
        close,
      };
    },
  };
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
