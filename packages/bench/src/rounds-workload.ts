import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Budget } from "./budget.ts";
import type { BudgetLimits } from "./budget.ts";
import { LatencyRecorder } from "./latency.ts";
import { PeerUnavailableError } from "./peers.ts";
import { summarize } from "./statistics.ts";
import type { Measured, Measurement, OpenSubject, Peer, Subject, Unit, Workload } from "./workload.ts";

export interface RoundsWorkloadOptions {
  readonly name: string;
  readonly unit: Unit;
  readonly explanation: string;
  readonly subjects: readonly Subject[];
  readonly peers?: readonly Peer[];
  /** Opens every subject anew, in an empty directory, for each of its samples; otherwise once. For work that leaves files. */
  readonly opensForEachSample: boolean;
  /** Rounds that count at most, for what takes long. Default: as many as are asked for. */
  readonly roundsMax?: number;
}

/** How long a sample goes on. */
export const SAMPLE_LIMITS: BudgetLimits = { durationMs: 400, bytesMax: 64 * 1024 ** 2 };
export const SAMPLE_LIMITS_QUICK: BudgetLimits = { durationMs: 20, bytesMax: 4 * 1024 ** 2 };

/**
 * A workload measured in rounds: each round takes one sample of every subject, so that what else happens on the machine
 * meets all of them. The first round is not counted, and each round has another order.
 */
export function roundsWorkload(options: RoundsWorkloadOptions): Workload {
  return {
    name: options.name,
    unit: options.unit,
    explanation: options.explanation,
    subjects: options.subjects.map(({ name }) => name),
    peers: options.peers ?? [],
    measure: (measurement) => measureRounds(options, measurement),
  };
}

async function measureRounds(options: RoundsWorkloadOptions, measurement: Measurement): Promise<Measured> {
  const { sampleLimits, hasWarmUp, onProgress } = measurement;
  const rounds = Math.min(measurement.rounds, options.roundsMax ?? measurement.rounds);
  const runs = options.subjects
    .filter(({ name }) => measurement.includes(name))
    .map((subject) => new SubjectRun(subject, options.opensForEachSample, measurement));
  try {
    for (let round = hasWarmUp ? 0 : 1; round <= rounds; round += 1) {
      for (const run of shuffled(runs, round)) {
        onProgress(`${options.name}: ${round === 0 ? "warm-up" : `round ${round} of ${rounds}`}, ${run.subject.name}`);
        await run.takeSample(new Budget(sampleLimits), round > 0);
      }
    }
  } finally {
    for (const run of runs) await run.close();
  }
  const measured = runs.filter(({ skipReason }) => skipReason === undefined);
  const nameOf = (run: SubjectRun) => ({ workload: options.name, subject: run.subject.name });
  return {
    results: measured.map((run) => ({ ...nameOf(run), ...summarize(run.samples), unit: options.unit })),
    skipped: runs.flatMap((run) => (run.skipReason === undefined ? [] : [{ ...nameOf(run), reason: run.skipReason }])),
    latencies: measured
      .filter(({ latencies }) => latencies.count > 0)
      .map((run) => ({ ...nameOf(run), ...run.latencies.summarize() })),
  };
}

/**
 * `items` in another order for each `round`, the same in every run. Not only rotated: what runs right after a subject that left
 * many pages behind is slower for it, and that must not always be the same one.
 */
export function shuffled<Item>(items: readonly Item[], round: number): Item[] {
  const rest = [...items];
  const order: Item[] = [];
  let state = Math.imul(round + 1, 2_654_435_761) >>> 0;
  while (rest.length > 0) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    order.push(...rest.splice(Math.floor((state / 2 ** 32) * rest.length), 1));
  }
  return order;
}

class SubjectRun {
  readonly subject: Subject;
  readonly samples: number[] = [];
  /** Of the rounds that count. */
  readonly latencies = new LatencyRecorder();
  readonly #isFreshEachTime: boolean;
  readonly #measurement: Measurement;
  #open: { readonly subject: OpenSubject | undefined; readonly directory: string } | undefined;
  #skipReason: string | undefined;

  constructor(subject: Subject, isFreshEachTime: boolean, measurement: Measurement) {
    this.subject = subject;
    this.#isFreshEachTime = isFreshEachTime;
    this.#measurement = measurement;
  }

  /** Why there are no figures, or `undefined`. */
  get skipReason(): string | undefined {
    return this.#skipReason;
  }

  /** One more sample, unless it is known that there are none. */
  async takeSample(budget: Budget, doesCount: boolean): Promise<void> {
    if (this.#skipReason !== undefined) return;
    try {
      const value = await this.#sample(budget, doesCount ? this.latencies : new LatencyRecorder());
      if (doesCount) this.samples.push(value);
      if (this.#isFreshEachTime) await this.close();
    } catch (error) {
      if (!(error instanceof PeerUnavailableError) && this.subject.isPeer !== true) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      this.#skipReason = error instanceof PeerUnavailableError ? reason : `failed: ${reason}`;
    }
  }

  async #sample(budget: Budget, latencies: LatencyRecorder): Promise<number> {
    if (this.#open === undefined) {
      const directory = this.#measurement.directories.create();
      this.#open = { subject: undefined, directory };
      this.#open = { subject: await this.subject.open(directory, this.#measurement), directory };
    }
    collectGarbage(); // Of the subject before.
    budget.start();
    return (await this.#open.subject?.sample(budget, latencies)) ?? Number.NaN;
  }

  async close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    try {
      await open?.subject?.close();
    } catch (error) {
      if (this.subject.isPeer !== true) throw error; // A peer that failed may not be able to.
    } finally {
      if (open !== undefined) this.#measurement.directories.remove(open.directory);
    }
  }
}

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;
