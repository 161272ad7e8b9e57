import Benchmark from "benchmark";
import { summarize } from "./statistics.ts";
import type { Measurement, Peer, Result, Workload } from "./workload.ts";

/** A function to be timed. */
export interface MicroSubject {
  readonly name: string;
  /** How often `run` does what the row counts: a call of nanoseconds is repeated inside, or the loop would be what is measured. */
  readonly callsPerRun: number;
  /** Synchronous. Its result is kept, so that the work cannot be left out. */
  readonly run: () => number;
}

export interface MicroWorkloadOptions {
  readonly name: string;
  readonly explanation: string;
  readonly subjects: readonly string[];
  readonly peers?: readonly Peer[];
  /** Makes the subjects, in the order of their names. */
  readonly prepare: () => readonly MicroSubject[] | Promise<readonly MicroSubject[]>;
}

const SECONDS_MAX = 1;
const SECONDS_MAX_QUICK = 0.1;
const SAMPLES_MIN = 10;
const SAMPLES_MIN_QUICK = 5;

/** Where results go: read by nobody, but the optimiser cannot know. */
const sink = { value: 0 };

/** A workload of pure functions, timed by benchmark.js: ns for one call. */
export function microWorkload(options: MicroWorkloadOptions): Workload {
  return {
    name: options.name,
    unit: "ns",
    explanation: options.explanation,
    subjects: options.subjects,
    peers: options.peers ?? [],
    async measure(measurement) {
      const results: Result[] = [];
      const subjects = await options.prepare();
      for (const subject of subjects.filter(({ name }) => measurement.includes(name))) {
        measurement.onProgress(`${options.name}: ${subject.name}`);
        const samples = await sampleNs(subject, measurement);
        results.push({ workload: options.name, subject: subject.name, ...summarize(samples), unit: "ns" });
      }
      return { results, skipped: [], latencies: [] };
    },
  };
}

/** ns for one call, one value for each cycle of benchmark.js. */
function sampleNs({ name, callsPerRun, run }: MicroSubject, { quick }: Measurement): Promise<number[]> {
  return new Promise((resolve, reject) => {
    const benchmark = new Benchmark(
      name,
      () => {
        sink.value = run();
      },
      {
        maxTime: quick ? SECONDS_MAX_QUICK : SECONDS_MAX,
        minSamples: quick ? SAMPLES_MIN_QUICK : SAMPLES_MIN,
        // In quick mode a sample is shorter than the 1 % of error that benchmark.js would otherwise ask for.
        ...(quick ? { minTime: 0.01 } : {}),
        async: true, // Signals are handled between cycles.
        onError: () => reject(benchmark.error),
        onComplete: () => resolve(benchmark.stats.sample.map((seconds) => (seconds / callsPerRun) * 1e9)),
      },
    );
    benchmark.run();
  });
}
