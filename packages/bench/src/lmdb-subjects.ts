import type { FlushMode } from "@tidemark/log";
import { valuesOf } from "./peer-subjects.ts";
import { InFlight } from "./in-flight.ts";
import { openLmdbDatabase } from "./peer-kinds.ts";
import type { Subject } from "./workload.ts";

const CHUNKS_IN_FLIGHT = 16;

/** Records/s of puts without `await`: lmdb-js collects those of a turn into transactions on a thread of its own. */
export function lmdbPutNotAwaited(flush: FlushMode, valueBytes: number, chunkRecords: number): Subject {
  return {
    name: "lmdb, one by one, not awaited",
    open: async (directory) => {
      const database = openLmdbDatabase(directory, flush);
      const chunk = valuesOf(chunkRecords, valueBytes);
      return {
        sample: async (budget) => {
          const chunks = new InFlight(CHUNKS_IN_FLIGHT);
          let count = 0;
          while (!budget.isSpent(count * valueBytes)) {
            await chunks.add(Promise.all(chunk.map((value, at) => database.put(count + at, value))));
            count += chunkRecords;
          }
          await chunks.drain();
          if (flush === "always") await database.flushed;
          return budget.rate(count);
        },
        close: () => database.close(),
      };
    },
  };
}
