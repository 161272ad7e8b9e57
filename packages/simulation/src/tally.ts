import type { SeedReport } from "./simulate.ts";

/** What a report counts beside faults. */
const NO_FAULTS: ReadonlySet<string> = new Set(["skipped", "excused stall", "unclean election", "deleteRecords"]);

/** What befell single messages: there are thousands where they are on. */
const MESSAGE_FAULTS: ReadonlySet<string> = new Set(["dropped", "overflowed", "replayed", "corrupted"]);

/** One class of faults over several seeds. */
export interface FaultClass {
  readonly name: string;
  readonly count: number;
  /** In which it came at least once. */
  readonly seeds: number;
}

/** What several seeds had in them, whether or not something was wrong. */
export class SeedTally {
  readonly #classes = new Map<string, { count: number; seeds: number }>();
  readonly #operations: number[] = [];
  readonly #faults: number[] = [];
  /** Seeds in which a machine came back without its tail, and would have been elected (`SeedReport.lostTailReturns`). */
  lostTailSeeds = 0;

  add(report: SeedReport): void {
    this.#operations.push(report.operations);
    if (report.lostTailReturns > 0) this.lostTailSeeds += 1;
    let made = 0;
    for (const [name, count] of Object.entries(report.faults)) {
      if (NO_FAULTS.has(name) || count === 0) continue;
      if (!MESSAGE_FAULTS.has(name)) made += count;
      const known = this.#classes.get(name) ?? { count: 0, seeds: 0 };
      this.#classes.set(name, { count: known.count + count, seeds: known.seeds + 1 });
    }
    this.#faults.push(made);
  }

  get seeds(): number {
    return this.#operations.length;
  }

  /** The most widespread first. */
  get classes(): readonly FaultClass[] {
    return [...this.#classes]
      .map(([name, { count, seeds }]) => ({ name, count, seeds }))
      .toSorted((one, other) => other.seeds - one.seeds || other.count - one.count);
  }

  /** Of all client operations of a seed. */
  get operationsMedian(): number {
    return median(this.#operations);
  }

  /** Of the faults of a seed that were made, without those of single messages. */
  get faultsMedian(): number {
    return median(this.#faults);
  }
}

/** The upper one of two in the middle; 0 of none. */
export function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[values.length >> 1] ?? 0;
}
