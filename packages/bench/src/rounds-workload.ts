import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Budget } from "./budget.ts";
import type { BudgetLimits } from "./budget.ts";
import { summarize } from "./statistics.ts";
import type { Measurement, OpenSubject, Peer, Result, Subject, Unit, Workload } from "./workload.ts";

export interface RoundsWorkloadOptions {
  readonly name: string;
  readonly unit: Unit;
  readonly explanation: string;
  readonly subjects: readonly Subject[];
  readonly peers?: readonly Peer[];
  /** Opens every subject anew, in an empty directory, for each of its samples; otherwise once. For work that leaves files. */
  readonly opensForEachSample: boolean;
}

/** How long a sample goes on. */
export const SAMPLE_LIMITS: BudgetLimits = { durationMs: 400, bytesMax: 64 * 1024 ** 2 };
export const SAMPLE_LIMITS_QUICK: BudgetLimits = { durationMs: 80, bytesMax: 16 * 1024 ** 2 };

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

async function measureRounds(options: RoundsWorkloadOptions, measurement: Measurement): Promise<Result[]> {
  const { sampleLimits, rounds, onProgress } = measurement;
  const runs = options.subjects
    .filter(({ name }) => measurement.includes(name))
    .map((subject) => new SubjectRun(subject, options.opensForEachSample, measurement));
  try {
    for (let round = 0; round <= rounds; round += 1) {
      onProgress(round === 0 ? `${options.name}: warm-up` : `${options.name}: round ${round} of ${rounds}`);
      for (const run of shuffled(runs, round)) {
        const value = await run.sample(new Budget(sampleLimits));
        if (round > 0) run.samples.push(value);
      }
    }
  } finally {
    for (const run of runs) await run.close();
  }
  return runs.map(({ subject, samples }) => ({
    workload: options.name,
    subject: subject.name,
    ...summarize(samples),
    unit: options.unit,
  }));
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
  readonly #isFreshEachTime: boolean;
  readonly #measurement: Measurement;
  #open: { readonly subject: OpenSubject; readonly directory: string } | undefined;

  constructor(subject: Subject, isFreshEachTime: boolean, measurement: Measurement) {
    this.subject = subject;
    this.#isFreshEachTime = isFreshEachTime;
    this.#measurement = measurement;
  }

  async sample(budget: Budget): Promise<number> {
    if (this.#open === undefined) {
      const directory = this.#measurement.directories.create();
      this.#open = { subject: await this.subject.open(directory, this.#measurement), directory };
    }
    collectGarbage(); // Of the subject before.
    budget.start();
    const value = await this.#open.subject.sample(budget);
    if (this.#isFreshEachTime) await this.close();
    return value;
  }

  async close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    await open?.subject.close();
    if (open !== undefined) this.#measurement.directories.remove(open.directory);
  }
}

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;
