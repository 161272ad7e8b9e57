import { PiscinaWorkerPool } from "@tidemark/runtime-node";
import { COMPRESS_IN_POOL_BYTES_MIN, DECOMPRESS_IN_POOL_BYTES_MIN } from "@tidemark/server";
import { runWorkerJob } from "@tidemark/wire";
import type { Budget } from "./budget.ts";
import { eventText } from "./content.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import type { Subject, Workload } from "./workload.ts";

const SIZES_KIB = [4, 16, 64, 256, 1024];

/** `hold`: how long the event loop was busy with a job that the pool did. */
type Way = "inline" | "pool" | "pool, hold";
const WAYS: readonly Way[] = ["inline", "pool", "pool, hold"];

type Job = (way: Way, payload: Uint8Array, pool: PiscinaWorkerPool) => Promise<unknown>;

const compress: Job = async (way, payload, pool) => {
  if (way === "inline") return runWorkerJob("compress", { codec: "gzip", payload, level: undefined });
  // A copy, as the engine makes one: what is handed over is gone.
  return pool.run("compress", { codec: "gzip", payload: payload.slice(), level: undefined });
};

const checksum: Job = async (way, payload, pool) =>
  way === "inline" ? runWorkerJob("crc32c", { payload }) : pool.run("crc32c", { payload: payload.slice() });

/** Where a worker thread begins to pay: the engine's own choices are named in the explanation. */
export function poolWorkloads(): readonly Workload[] {
  const ways =
    "Inline: on the event loop. Pool: until the answer is there. Hold: how long the loop was busy with that hand-over.";
  return [
    poolWorkload(
      "gzip, inline or pool",
      `One payload compressed. ${ways} The engine compresses in the pool from ${kib(COMPRESS_IN_POOL_BYTES_MIN)} ` +
        `(COMPRESS_IN_POOL_BYTES_MIN) and decompresses there from ${kib(DECOMPRESS_IN_POOL_BYTES_MIN)} (DECOMPRESS_IN_POOL_BYTES_MIN) on.`,
      compress,
    ),
    poolWorkload(
      "crc32c, inline or pool",
      `One CRC-32C. ${ways} The engine never hands over a CRC alone: there is no size at which it would pay.`,
      checksum,
    ),
  ];
}

function poolWorkload(name: string, explanation: string, job: Job): Workload {
  return roundsWorkload({
    name,
    unit: "us",
    explanation,
    subjects: SIZES_KIB.flatMap((sizeKib) => WAYS.map((way) => poolSubject(sizeKib, way, job))),
    peers: [{ heading: "vs inline", subjectFor: (subject) => subject.replace(/,.*$/u, ", inline") }],
    opensForEachSample: false,
  });
}

function poolSubject(sizeKib: number, way: Way, job: Job): Subject {
  return {
    name: `${sizeKib} KiB, ${way}`,
    open: async () => {
      const pool = new PiscinaWorkerPool({ threads: 1, idleMs: 600_000 });
      const payload = eventText(sizeKib * 1024);
      if (way !== "inline") await job(way, payload, pool); // Starts the thread.
      return {
        sample: (budget) => sampleJobs(budget, way, () => job(way, payload, pool)),
        close: () => pool.close(),
      };
    },
  };
}

/** us for one job, awaited one after the other; for `hold` only the time in which the event loop was busy. */
async function sampleJobs(budget: Budget, way: Way, run: () => Promise<unknown>): Promise<number> {
  const before = performance.eventLoopUtilization();
  let count = 0;
  do {
    await run();
    count += 1;
  } while (!budget.isSpent());
  const busyMs = performance.eventLoopUtilization(before).active;
  return ((way === "pool, hold" ? busyMs : budget.elapsedMs) / count) * 1000;
}

function kib(bytes: number): string {
  return `${bytes / 1024} KiB`;
}
