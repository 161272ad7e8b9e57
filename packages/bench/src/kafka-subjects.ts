import type { FlushMode } from "@tidemark/log";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Budget } from "./budget.ts";
import type { FilledBatch } from "./content.ts";
import type { LatencyRecorder } from "./latency.ts";
import type { KafkaLogProcess } from "./peers.ts";
import type { Measurement, Subject } from "./workload.ts";

const NAME = "Kafka's log class";
/** What Java compiles, it compiles while it runs: each kind of work goes on for so long before it is measured. */
const WARM_UP_MS = 1500;
const WARM_UP_MS_QUICK = 30;
const WARM_UP_BYTES_MAX = 256 * 1024 ** 2;

type AppendWay = "encoded" | "records";
type Counted = "records" | "bytes";

export interface KafkaAppend {
  /** `encoded`: the batch is there; `records`: it is encoded anew each time. */
  readonly way: AppendWay;
  readonly flush: FlushMode;
  readonly valueBytes: number;
  /** As ours are filled. */
  readonly batch: Pick<FilledBatch, "recordsCount">;
  readonly counted: Counted;
  readonly hasLatencies?: boolean;
}

/** Records/s or MB/s of appends as leader, one after the other: its log has no queue. */
export function kafkaAppend(options: KafkaAppend): Subject {
  const { way, flush, valueBytes, batch, counted, hasLatencies = false } = options;
  const work = `append ${way} ${flush} ${valueBytes} ${batch.recordsCount}`;
  return {
    name: way === "encoded" ? NAME : `${NAME}, encoded and appended`,
    isPeer: true,
    open: async (directory, measurement) => {
      const kafka = await measurement.peers.kafka();
      const warmUpMs = measurement.quick ? WARM_UP_MS_QUICK : WARM_UP_MS;
      if (kafka.isCold(work)) {
        await openLog(kafka, directory);
        await kafka.run(`${work} ${warmUpMs} ${WARM_UP_BYTES_MAX}`);
        await closeLog(kafka, directory);
      }
      return {
        sample: async (budget, latencies) => {
          // Opened here, since one log is open at a time, and closed before the next subject.
          await openLog(kafka, directory);
          try {
            const limits = `${budget.durationMs} ${budget.bytesMax}`;
            const answer = await kafka.run(`${work} ${limits}${hasLatencies ? " latency" : ""}`);
            const [nanoseconds = 0, batches = 0, batchBytes = 0] = answer.slice(0, 3).map(Number);
            recordLatencies(answer.slice(3), latencies);
            const seconds = nanoseconds / 1e9;
            return (counted === "bytes" ? (batches * batchBytes) / 1e6 : batches * batch.recordsCount) / seconds;
          } finally {
            await closeLog(kafka, directory);
          }
        },
        close: async () => undefined,
      };
    },
  };
}

function recordLatencies(pairs: readonly string[], latencies: LatencyRecorder): void {
  for (const pair of pairs) {
    const [nanoseconds = 0, count = 0] = pair.split(":").map(Number);
    latencies.recordNs(nanoseconds, count);
  }
}

export interface KafkaRead {
  readonly name: string;
  /** The command, up to its limit of time. */
  readonly command: string;
  readonly valueBytes: number;
  readonly batch: FilledBatch;
  readonly storedBytes: (quick: boolean) => number;
  /** From what was counted a second. */
  readonly toValue: (perSecond: number) => number;
}

/** Reads of a log that was filled before, again and again. */
export function kafkaRead({ name, command, valueBytes, batch, storedBytes, toValue }: KafkaRead): Subject {
  return {
    name: `${NAME}${name}`,
    isPeer: true,
    open: async (directory, { peers, quick }: Measurement) => {
      const kafka = await peers.kafka();
      const partition = join(directory, "bench-0");
      mkdirSync(partition);
      await kafka.run(`open 0 clean ${partition}`);
      await kafka.run(`append encoded none ${valueBytes} ${batch.recordsCount} 0 ${storedBytes(quick)}`);
      const sample = async (durationMs: number): Promise<number> => {
        const [nanoseconds = 0, count = 0] = (await kafka.run(`${command} ${durationMs}`)).map(Number);
        return toValue(count / (nanoseconds / 1e9));
      };
      if (kafka.isCold(command)) await sample(quick ? WARM_UP_MS_QUICK : WARM_UP_MS);
      await kafka.run("close");
      return {
        sample: async (budget: Budget) => {
          await kafka.run(`open 0 clean ${partition}`);
          try {
            return await sample(budget.durationMs);
          } finally {
            await kafka.run("close");
          }
        },
        close: async () => undefined,
      };
    },
  };
}

async function openLog(kafka: KafkaLogProcess, directory: string): Promise<void> {
  const partition = join(directory, "bench-0");
  mkdirSync(partition);
  await kafka.run(`open 0 clean ${partition}`);
}

async function closeLog(kafka: KafkaLogProcess, directory: string): Promise<void> {
  await kafka.run("close");
  rmSync(join(directory, "bench-0"), { recursive: true });
}
