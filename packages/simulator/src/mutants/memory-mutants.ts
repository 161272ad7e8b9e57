import type { Mutant } from "./mutant.ts";

const PARTITION_QUEUE = "packages/log/src/partition-queue.ts";
const LEADER_FETCHER = "packages/replica/src/leader-fetcher.ts";

/** Known bugs with memory that changes hands: bytes of one request in the place of another's. Each has a probe that has to notice it. */
export const MEMORY_MUTANTS: readonly Mutant[] = [
  {
    id: "M42",
    title: "what workers make of batches is taken in the order in which they are done, not in that of the requests",
    edits: [
      {
        file: PARTITION_QUEUE,
        find: `    const results = await Promise.all(this.#results ?? []);`,
        replace: `    const results: (ConvertedBatch | LogError)[] = [];
    await Promise.all((this.#results ?? []).map(async (result) => results.push(await result)));`,
      },
    ],
  },
  {
    id: "M43",
    title: "a follower gives the memory of an answer back before its batches are written",
    edits: [
      {
        file: LEADER_FETCHER,
        find: `    await Promise.all(taken);
    giveBackBatches(`,
        replace: `    giveBackBatches(`,
      },
    ],
  },
];
