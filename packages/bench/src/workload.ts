import type { Budget, BudgetLimits } from "./budget.ts";
import type { TemporaryDirectories } from "./temporary-directories.ts";

/** `ns`, `us`: time for one of what the workload names, less is better. The others: more is better. */
export type Unit = "ns" | "us" | "records/s" | "MB/s";

/** One row of a report. `median`, `min` and `max` are over the rounds (micro: over the samples of benchmark.js). */
export interface Result {
  readonly workload: string;
  readonly subject: string;
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly unit: Unit;
}

/** A column of ratios: how many times as fast as `subjectFor(row)` a row is. */
export interface Peer {
  readonly heading: string;
  /** The row to compare with, `undefined` for none. */
  readonly subjectFor: (subject: string) => string | undefined;
}

export interface Measurement {
  readonly quick: boolean;
  /** Counted rounds; one that is not counted goes before them. */
  readonly rounds: number;
  readonly sampleLimits: BudgetLimits;
  readonly directories: TemporaryDirectories;
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
  measure(measurement: Measurement): Promise<Result[]>;
}

/** Something that is ready to be measured again and again. */
export interface OpenSubject {
  /** One sample, in the workload's unit. */
  sample(budget: Budget): Promise<number>;
  close(): Promise<void>;
}

/** One way of doing the work. */
export interface Subject {
  readonly name: string;
  /** Gets ready, in an empty directory of its own. Not measured. */
  open(directory: string, measurement: Measurement): Promise<OpenSubject>;
}

export function isLessBetter(unit: Unit): boolean {
  return unit === "ns" || unit === "us";
}

/** Compares every row with one of them. */
export function peer(heading: string, subject: string): Peer {
  return { heading, subjectFor: () => subject };
}
