import { PiscinaWorkerPool } from "@tidemark/runtime-node";
import type { CodecName } from "@tidemark/base";
import { IN_POOL_BYTES_MIN } from "@tidemark/wire";
import type { Budget } from "./budget.ts";
import { eventText } from "./content.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import type { Subject, Workload } from "./workload.ts";

const SIZES_KIB = [4, 16, 64, 256, 1024];

/** `hold`: how long the event loop was busy with a job that the pool did. */
type Way = "inline" | "pool" | "pool, hold";
const WAYS: readonly Way[] = ["inline", "pool", "pool, hold"];

type Job = (way: Way, payload: Uint8Array, pool: PiscinaWorkerPool) => Promise<unknown>;

const CODECS: readonly CodecName[] = ["gzip", "snappy", "lz4", "zstd"];

/** What the engine's own batches never reach. */
const OUTPUT_BYTES_MAX = 2 ** 26;

const compress =
  (codec: CodecName): Job =>
  async (way, payload, pool) => {
    if (way === "inline") return pool.runNow("compress", { codec, payload, level: undefined });
    // A copy, as the engine makes one: what is handed over is gone.
    return pool.run("compress", { codec, payload: payload.slice(), level: undefined });
  };

const decompress =
  (codec: CodecName): Job =>
  async (way, payload, pool) => {
    if (way === "inline") return pool.runNow("decompress", { codec, payload, outputBytesMax: OUTPUT_BYTES_MAX });
    return pool.run("decompress", { codec, payload: payload.slice(), outputBytesMax: OUTPUT_BYTES_MAX });
  };

const checksum: Job = async (way, payload, pool) =>
  way === "inline" ? pool.runNow("crc32c", { payload }) : pool.run("crc32c", { payload: payload.slice() });

/** Where a worker thread begins to pay: the engine's own choices are named in the explanation. */
export function poolWorkloads(): readonly Workload[] {
  const ways =
    "Inline: on the event loop. Pool: until the answer is there. Hold: how long the loop was busy with that hand-over.";
  return [
    ...CODECS.flatMap((codec) => [
      poolWorkload(
        `${codec} compress, inline or pool`,
        `One payload of that size. ${ways} The engine uses the pool from ${kib(IN_POOL_BYTES_MIN[codec].compress)} on (IN_POOL_BYTES_MIN).`,
        compress(codec),
        (content) => content,
      ),
      poolWorkload(
        `${codec} decompress, inline or pool`,
        `A payload that becomes that size. ${ways} The engine uses the pool from ${kib(IN_POOL_BYTES_MIN[codec].decompress)} of ` +
          "compressed bytes on (IN_POOL_BYTES_MIN).",
        decompress(codec),
        (content, pool) => pool.runNow("compress", { codec, payload: content, level: undefined }),
      ),
    ]),
    poolWorkload(
      "crc32c, inline or pool",
      `One CRC-32C. ${ways} The engine never hands over a CRC alone: there is no size at which it would pay.`,
      checksum,
      (content) => content,
    ),
  ];
}

type MakePayload = (content: Uint8Array, pool: PiscinaWorkerPool) => Uint8Array;

function poolWorkload(name: string, explanation: string, job: Job, payloadOf: MakePayload): Workload {
  const shared = new SharedPool();
  return roundsWorkload({
    name,
    unit: "us",
    explanation,
    subjects: SIZES_KIB.flatMap((sizeKib) => WAYS.map((way) => poolSubject(shared, sizeKib, way, job, payloadOf))),
    peers: [{ heading: "vs inline", subjectFor: (subject) => subject.replace(/,.*$/u, ", inline") }],
    opensForEachSample: false,
  });
}

/** One pool for all rows of a workload, from the first that opens to the last that closes: a thread takes its time to start. */
class SharedPool {
  #pool: PiscinaWorkerPool | undefined;
  #users = 0;

  take(): PiscinaWorkerPool {
    this.#users += 1;
    this.#pool ??= new PiscinaWorkerPool({ threads: 1, idleMs: 600_000 });
    return this.#pool;
  }

  async giveBack(): Promise<void> {
    this.#users -= 1;
    if (this.#users > 0) return;
    const pool = this.#pool;
    this.#pool = undefined;
    await pool?.close();
  }
}

function poolSubject(shared: SharedPool, sizeKib: number, way: Way, job: Job, payloadOf: MakePayload): Subject {
  return {
    name: `${sizeKib} KiB, ${way}`,
    open: async () => {
      const pool = shared.take();
      const payload = payloadOf(eventText(sizeKib * 1024), pool);
      if (way !== "inline") await job(way, payload, pool); // Starts the thread.
      return {
        sample: (budget) => sampleJobs(budget, way, () => job(way, payload, pool)),
        close: () => shared.giveBack(),
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
