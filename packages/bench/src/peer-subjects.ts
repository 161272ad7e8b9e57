import type { FlushMode } from "@tidemark/log";
import type { Budget } from "./budget.ts";
import { eventText } from "./content.ts";
import type { PeerKind, PeerLog } from "./peer-log.ts";
import type { Measurement, Subject } from "./workload.ts";

const SCAN_CHECK_RECORDS = 1000;
const STORE_CHUNK_RECORDS = 1000;

/** Records/s of arrays of `chunkRecords`, one after the other. */
export function peerAppendMany(kind: PeerKind, flush: FlushMode, valueBytes: number, chunkRecords: number): Subject {
  return {
    name: `${kind.name}, ${kind.batchName} of ${chunkRecords.toLocaleString("en-US")}`,
    isPeer: true,
    open: async (directory, { peers }) => {
      const log = await kind.open(directory, flush, peers);
      const chunk = valuesOf(chunkRecords, valueBytes);
      return {
        sample: async (budget) => {
          let count = 0;
          for (; !budget.isSpent(count * valueBytes); count += chunkRecords) await log.appendMany(chunk);
          return budget.rate(count);
        },
        close: () => log.close(),
      };
    },
  };
}

/** Records/s of single appends, each after the one before. */
export function peerAppendOne(kind: PeerKind, flush: FlushMode, valueBytes: number): Subject {
  return {
    name: kind.name,
    isPeer: true,
    open: async (directory, { peers }) => {
      const log = await kind.open(directory, flush, peers);
      const value = Buffer.from(eventText(valueBytes));
      return {
        sample: async (budget, latencies) => {
          let count = 0;
          for (; !budget.isSpent(count * valueBytes); count += 1) {
            const startMs = performance.now();
            const pending = log.appendOne(value);
            if (pending !== undefined) await pending;
            latencies.recordSince(startMs);
          }
          return budget.rate(count);
        },
        close: () => log.close(),
      };
    },
  };
}

/** Records/s of everything in order, again and again. */
export function peerScan(kind: PeerKind, valueBytes: number): Subject {
  return {
    name: `${kind.name}, all in order`,
    isPeer: true,
    open: async (directory, measurement) => {
      const { log } = await openFilled(kind, directory, valueBytes, measurement);
      return {
        sample: async (budget) => {
          let count = 0;
          while (!budget.isSpent()) {
            await log.scan((value) => {
              if (value.length > 0) count += 1;
              return count % SCAN_CHECK_RECORDS !== 0 || !budget.isSpent();
            });
          }
          return budget.rate(count);
        },
        close: () => log.close(),
      };
    },
  };
}

/** Records/s of single reads, each after the one before. */
export function peerGet(kind: PeerKind, valueBytes: number): Subject {
  return {
    name: `${kind.name}, get`,
    isPeer: true,
    open: async (directory, measurement) => {
      const { log, count } = await openFilled(kind, directory, valueBytes, measurement);
      await log.prepareGets?.();
      return {
        sample: (budget) =>
          sampleGets(budget, count, (sequence) => {
            const value = log.get(sequence);
            return value instanceof Promise ? value : checkFound(value);
          }),
        close: () => log.close(),
      };
    },
  };
}

/** Records/s of reads in a random order, the same in every run; whether a value comes with a promise or at once. */
export async function sampleGets(budget: Budget, count: number, get: (sequence: number) => unknown): Promise<number> {
  let done = 0;
  for (let state = 1; !budget.isSpent(); done += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const value = get(Math.floor((state / 2 ** 32) * count));
    if (value instanceof Promise) checkFound(await value);
  }
  return budget.rate(done);
}

function checkFound(value: unknown): void {
  if (value === undefined || value === null) throw new Error("a value that was stored is not found");
}

export function valuesOf(count: number, valueBytes: number): Buffer[] {
  const value = Buffer.from(eventText(valueBytes));
  return Array.from({ length: count }, () => value);
}

async function openFilled(
  kind: PeerKind,
  directory: string,
  valueBytes: number,
  { peers, quick }: Measurement,
): Promise<{ log: PeerLog; count: number }> {
  const log = await kind.open(directory, "none", peers);
  const count = quick ? kind.storedMax.quick : kind.storedMax.full;
  const chunk = valuesOf(STORE_CHUNK_RECORDS, valueBytes);
  for (let at = 0; at < count; at += STORE_CHUNK_RECORDS) await log.appendMany(chunk);
  return { log, count };
}
