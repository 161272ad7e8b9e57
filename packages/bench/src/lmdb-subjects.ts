import type { FlushMode } from "@tidemark/log";
import { open } from "lmdb";
import type { RootDatabase } from "lmdb";
import { join } from "node:path";
import type { Budget } from "./budget.ts";
import { eventText } from "./content.ts";
import type { FilledBatch } from "./content.ts";
import { InFlight } from "./in-flight.ts";
import { storedRecords } from "./tidemark-subjects.ts";
import type { Subject } from "./workload.ts";

const CHUNK_RECORDS = 1000;
const CHUNKS_IN_FLIGHT = 16;
/** Keys only grow. */
const AT_THE_END = { append: true };

type Database = RootDatabase<Buffer, number>;
type PutLoop = (database: Database, value: Buffer, budget: Budget) => Promise<number>;

/** A number as key, bytes as value: what a log would be in lmdb. */
function openDatabase(directory: string, flush: FlushMode): Database {
  return open<Buffer, number>({
    path: join(directory, "lmdb"),
    noSubdir: false,
    encoding: "binary",
    keyEncoding: "uint32",
    mapSize: 2 ** 31,
    ...(flush === "none" ? { noSync: true } : {}),
  });
}

function puts(name: string, flush: FlushMode, valueBytes: number, putRecords: PutLoop): Subject {
  return {
    name,
    open: async (directory) => {
      const database = openDatabase(directory, flush);
      const value = Buffer.from(eventText(valueBytes));
      return {
        sample: async (budget) => budget.rate(await putRecords(database, value, budget)),
        close: () => database.close(),
      };
    },
  };
}

/** lmdb-js batches the puts of a turn into transactions on a thread of its own. */
export function putNotAwaited(flush: FlushMode, valueBytes: number): Subject {
  return puts("lmdb, one by one, not awaited", flush, valueBytes, async (database, value, budget) => {
    const chunks = new InFlight(CHUNKS_IN_FLIGHT);
    let count = 0;
    while (!budget.isSpent(count * valueBytes)) {
      const commits: Promise<unknown>[] = [];
      for (let at = 0; at < CHUNK_RECORDS; at += 1) commits.push(database.put(count + at, value));
      count += CHUNK_RECORDS;
      await chunks.add(Promise.all(commits));
    }
    await chunks.drain();
    if (flush === "always") await database.flushed;
    return count;
  });
}

export function putTransactions(flush: FlushMode, valueBytes: number): Subject {
  return puts("lmdb, transactions of 1,000", flush, valueBytes, async (database, value, budget) => {
    let count = 0;
    while (!budget.isSpent(count * valueBytes)) {
      const first = count;
      database.transactionSync(() => {
        for (let at = 0; at < CHUNK_RECORDS; at += 1) database.putSync(first + at, value, AT_THE_END);
      });
      count += CHUNK_RECORDS;
    }
    return count;
  });
}

export function putAwaited(flush: FlushMode, valueBytes: number): Subject {
  return puts("lmdb", flush, valueBytes, async (database, value, budget) => {
    let count = 0;
    for (; !budget.isSpent(count * valueBytes); count += 1) {
      await database.put(count, value);
      if (flush === "always") await database.flushed;
    }
    return count;
  });
}

/** Records/s of a range over everything, again and again. */
export function rangeAll(batch: FilledBatch): Subject {
  return {
    name: "lmdb, range",
    open: async (directory, { quick }) => {
      const database = openDatabase(directory, "none");
      const value = Buffer.from(eventText(100));
      const count = storedRecords(batch, quick);
      database.transactionSync(() => {
        for (let key = 0; key < count; key += 1) database.putSync(key, value, AT_THE_END);
      });
      return {
        sample: async (budget) => {
          let fetched = 0;
          while (!budget.isSpent()) {
            for (const entry of database.getRange()) {
              if (entry.value.length > 0) fetched += 1;
              if (fetched % CHUNK_RECORDS === 0 && budget.isSpent()) break;
            }
          }
          return budget.rate(fetched);
        },
        close: () => database.close(),
      };
    },
  };
}
