import type { Budget, BudgetLimits } from "./budget.ts";
import type { LatencyRecorder, LatencySummary } from "./latency.ts";
import type { Peers } from "./peers.ts";
import type { TemporaryDirectories } from "./temporary-directories.ts";

/**
 * `ns`, `us`, `ms`: time for one of what the workload names; `MiB`: memory; less is better. Of the others more is better. `s/s`: simulated
 * seconds in a second of CPU time.
 */
export type Unit = "ns" | "us" | "ms" | "MiB" | "records/s" | "MB/s" | "s/s";

/** One row of a report. `median`, `min` and `max` are over the rounds (micro: over the samples of benchmark.js). */
export interface Result {
  readonly workload: string;
  readonly subject: string;
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly unit: Unit;
}

/** A row that has no figures. */
export interface Skipped {
  readonly workload: string;
  readonly subject: string;
  /** Why, in a few words. */
  readonly reason: string;
}

/** How long the single operations of a row took, over all rounds that count. */
export interface Latencies extends LatencySummary {
  readonly workload: string;
  readonly subject: string;
}

/** What came of a workload. Each subject that was asked for is in `results` or in `skipped`. */
export interface Measured {
  readonly results: readonly Result[];
  readonly skipped: readonly Skipped[];
  readonly latencies: readonly Latencies[];
}

/** A column of ratios: how many times as fast as `subjectFor(row)` a row is. */
export interface Peer {
  readonly heading: string;
  /** The row to compare with, `undefined` for none. */
  readonly subjectFor: (subject: string) => string | undefined;
}

export interface Measurement {
  readonly quick: boolean;
  /** Counted rounds. */
  readonly rounds: number;
  /** Whether a round that is not counted goes before them. */
  readonly hasWarmUp: boolean;
  readonly sampleLimits: BudgetLimits;
  readonly directories: TemporaryDirectories;
  readonly peers: Peers;
  /** Which of the workload's subjects to measure. */
  readonly includes: (subject: string) => boolean;
  readonly onProgress: (what: string) => void;
}

/** Things that do the same work, measured together. */
export interface Workload {
  readonly name: string;
  readonly unit: Unit;
  /** What one sample does, printed below the name. */
  readonly explanation: string;
  readonly subjects: readonly string[];
  readonly peers: readonly Peer[];
  measure(measurement: Measurement): Promise<Measured>;
}

/** Something that is ready to be measured again and again. */
export interface OpenSubject {
  /** One sample, in the workload's unit. `latencies` takes those of single operations, where the workload is about them. */
  sample(budget: Budget, latencies: LatencyRecorder): Promise<number>;
  close(): Promise<void>;
}

/** One way of doing the work. */
export interface Subject {
  readonly name: string;
  /** Whether its failure is told in its row, and stops nothing else. Our own failures end the run. */
  readonly isPeer?: boolean;
  /** Gets ready, in an empty directory of its own. Not measured. @throws PeerUnavailableError */
  open(directory: string, measurement: Measurement): Promise<OpenSubject>;
}

export function isLessBetter(unit: Unit): boolean {
  return unit === "ns" || unit === "us" || unit === "ms" || unit === "MiB";
}

/** Compares every row with one of them. */
export function peer(heading: string, subject: string): Peer {
  return { heading, subjectFor: () => subject };
}
