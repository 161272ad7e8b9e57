import { appendFile, readFile, writeFile } from "node:fs/promises";
import { renderHistory } from "@tidemark/console";
import {
  breaksRule,
  encodePlan,
  median,
  parseFailure,
  parsePlan,
  PlanFileError,
  planOf,
  recordPlan,
  SeedTally,
  shrink,
  simulate,
  TRACE_LEGEND,
  traceOf,
} from "@tidemark/simulation";
import type { Plan, SeedReport } from "@tidemark/simulation";

import { CommandError, EXIT_FOUND_PROBLEMS, EXIT_OK } from "./errors.ts";
import { formatCount, plural } from "./format.ts";
import { printLine, Progress, styled } from "./terminal.ts";
import { VERSION } from "./version.ts";

/** CPU time that shrinking one plan may take. */
const SHRINK_CPU_MS_MAX = 60_000;

/** What to run. */
export type SimulateWhat =
  | { readonly type: "seeds"; readonly first: number; readonly last: number }
  | { readonly type: "minutes"; readonly first: number; readonly minutes: number }
  | { readonly type: "plan"; readonly path: string };

export interface SimulateOptions {
  readonly what: SimulateWhat;
  /** Write the page of the one run here. */
  readonly htmlPath: string | undefined;
  /** Print every step of the one run. */
  readonly trace: boolean;
  /** Write the smallest plan found that breaks the same rule here. */
  readonly shrinkPath: string | undefined;
  /** Append one line of JSON about these runs here. */
  readonly ledgerPath: string | undefined;
}

/**
 * Runs clusters of the engine under a simulated clock, network and disk, with the faults that seeds decide.
 * @returns EXIT_FOUND_PROBLEMS when a rule was broken
 * @throws CommandError when a plan cannot be read, or an option is for one run and there are several
 */
export async function runSimulate(options: SimulateOptions, signal: AbortSignal): Promise<number> {
  const { what } = options;
  const isOne = what.type === "plan" || (what.type === "seeds" && what.first === what.last);
  if (!isOne && (options.trace || options.htmlPath !== undefined || options.shrinkPath !== undefined))
    throw new CommandError("--trace, --html and --shrink are for one run: --seed N or --plan FILE");
  const totals = new Totals();
  if (what.type === "minutes") await runForMinutes(what, totals, signal);
  else if (what.type === "plan") totals.add(await runOne(await readPlan(what.path), options));
  else if (isOne) totals.add(await runOne(planOf(what.first), options));
  else await runSeeds(what, totals, signal);
  signal.throwIfAborted();
  totals.print();
  if (options.ledgerPath !== undefined) await appendFile(options.ledgerPath, `${totals.ledgerLine()}\n`);
  return totals.failed > 0 ? EXIT_FOUND_PROBLEMS : EXIT_OK;
}

async function readPlan(path: string): Promise<Plan> {
  try {
    return parsePlan(await readFile(path, "utf8"));
  } catch (error) {
    if (error instanceof PlanFileError) throw new CommandError(`${path} ${error.message}`, { cause: error });
    throw error;
  }
}

async function runSeeds(
  { first, last }: { readonly first: number; readonly last: number },
  totals: Totals,
  signal: AbortSignal,
): Promise<void> {
  const progress = new Progress("simulate", last - first + 1, "seeds");
  for (let seed = first; seed <= last && !signal.aborted; seed += 1) {
    const report = await totals.timed(() => simulate(seed));
    if (report.failure === undefined) totals.add(report);
    else progress.interrupt(() => totals.add(report));
    progress.update(seed - first + 1);
    // One turn of the event loop: a signal is heard between two runs.
    await new Promise((resolve) => setImmediate(resolve));
  }
  progress.stop();
}

async function runForMinutes(
  { first, minutes }: { readonly first: number; readonly minutes: number },
  totals: Totals,
  signal: AbortSignal,
): Promise<void> {
  const endMs = performance.now() + minutes * 60_000;
  for (let seed = first; performance.now() < endMs && !signal.aborted; seed += 1) {
    totals.add(await totals.timed(() => simulate(seed)));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** One run, looked at closely. */
async function runOne(plan: Plan, options: SimulateOptions): Promise<SeedReport> {
  const { seed } = plan.cluster;
  const { what, htmlPath, shrinkPath, trace } = options;
  const source = what.type === "plan" ? `--plan ${what.path}` : `--seed ${seed}`;
  const needsHistory = trace || htmlPath !== undefined;
  const run = needsHistory
    ? await recordPlan(plan, {
        name: what.type === "plan" ? `Plan ${what.path}` : `Seed ${seed}`,
        command: `tidemark simulate ${source} --html ${htmlPath ?? `seed-${seed}.html`}`,
      })
    : { report: await simulate(seed, plan), history: undefined };
  if (trace && run.history !== undefined)
    for (const line of [...TRACE_LEGEND, ...traceOf(run.history)]) printLine(line);
  printLine(`hash       ${run.report.traceHash.toString(16)} of the order of all events`);
  if (htmlPath !== undefined && run.history !== undefined) {
    await writeFile(htmlPath, renderHistory(run.history));
    printLine(`history    ${htmlPath}`);
  }
  if (shrinkPath !== undefined) await shrinkAndWrite(plan, run.report, shrinkPath);
  return run.report;
}

async function shrinkAndWrite(plan: Plan, { failure, virtualMs }: SeedReport, path: string): Promise<void> {
  if (failure === undefined) {
    printLine("shrink     no rule was broken: there is nothing to shrink");
    return;
  }
  const { id } = parseFailure(failure);
  const started = process.cpuUsage();
  const cpuMs = (): number => {
    const { user, system } = process.cpuUsage(started);
    return (user + system) / 1000;
  };
  const { plan: shrunk, replays } = await shrink(plan, {
    breaks: breaksRule(id),
    brokeAtMs: virtualMs,
    isOver: () => cpuMs() > SHRINK_CPU_MS_MAX,
  });
  await writeFile(path, encodePlan(shrunk));
  const counts = `${plural(plan.faults.length, "fault")} to ${shrunk.faults.length}`;
  printLine(`shrink     ${counts} in ${plural(replays, "replay")}; again with: tidemark simulate --plan ${path}`);
}

/** What several runs came to. */
class Totals {
  failed = 0;
  readonly #startedMs = performance.now();
  readonly #startCpu = process.cpuUsage();
  readonly #tally = new SeedTally();
  /** Simulated seconds a CPU second, of each seed that was timed. */
  readonly #speeds: number[] = [];
  #first: number | undefined;
  #last = 0;
  #virtualMs = 0;
  #events = 0;
  #acknowledged = 0;
  #truncations = 0;

  /** Runs one seed, and notes how long it takes. */
  async timed(run: () => Promise<SeedReport>): Promise<SeedReport> {
    const start = process.cpuUsage();
    const report = await run();
    const { user, system } = process.cpuUsage(start);
    this.#speeds.push((report.virtualMs * 1000) / Math.max(user + system, 1));
    return report;
  }

  add(report: SeedReport): void {
    this.#tally.add(report);
    this.#first ??= report.seed;
    this.#last = report.seed;
    this.#virtualMs += report.virtualMs;
    this.#events += report.events;
    this.#acknowledged += report.acknowledged;
    this.#truncations += report.truncations;
    if (report.failure !== undefined) this.#tellFailure(report.seed, report.failure);
  }

  #tellFailure(seed: number, failure: string): void {
    this.failed += 1;
    const { id, what, rule } = parseFailure(failure);
    printLine(`${styled("red", `seed ${seed} broke ${id}`)}, ${rule.rule}: ${what}`);
    printLine(`           again, with a page that shows it: tidemark simulate --seed ${seed} --html seed-${seed}.html`);
  }

  print(): void {
    const { user, system } = process.cpuUsage(this.#startCpu);
    const cpuSeconds = (user + system) / 1e6;
    const seconds = this.#virtualMs / 1000;
    const { seeds, classes, operationsMedian, faultsMedian, lostTailSeeds } = this.#tally;
    const made = classes.reduce((sum, { count }) => sum + count, 0);
    const share = (count: number): string => `${Math.round((100 * count) / Math.max(seeds, 1))} %`;
    printLine(
      `simulated  ${plural(seeds, "seed")} (${this.#first ?? 0} to ${this.#last}), ${(seconds / 3600).toFixed(2)} hours, ${formatCount(this.#events)} events, ${formatCount(this.#acknowledged)} acknowledged batches, ${plural(this.#truncations, "truncation")}`,
    );
    printLine(
      `cpu        ${cpuSeconds.toFixed(1)} s, ${(seconds / Math.max(cpuSeconds, 0.001)).toFixed(0)} simulated seconds each${this.#speeds.length === 0 ? "" : `, ${median(this.#speeds).toFixed(0)} in the median seed`}`,
    );
    printLine(
      `each seed  ${formatCount(operationsMedian)} client operations and ${formatCount(faultsMedian)} faults beside those of messages, in the median`,
    );
    const names = classes.map((one) => `${one.name} ${formatCount(one.count)} (${share(one.seeds)})`);
    printLine(
      `faults     ${formatCount(made)} of ${plural(classes.length, "kind")}, and the share of seeds with it: ${names.join(", ")}`,
    );
    printLine(
      `lost tail  in ${share(lostTailSeeds)} of seeds a machine came back without it while it was held for in sync`,
    );
    printLine(
      this.failed === 0
        ? styled("green", "OK         no rule was broken")
        : styled("red", `FAILED     ${plural(this.failed, "run")}`),
    );
  }

  /** For a file that says what was ever run. */
  ledgerLine(): string {
    const { user, system } = process.cpuUsage(this.#startCpu);
    return JSON.stringify({
      version: VERSION,
      firstSeed: this.#first,
      lastSeed: this.#last,
      seeds: this.#tally.seeds,
      failed: this.failed,
      simulatedSeconds: Math.round(this.#virtualMs / 1000),
      cpuSeconds: Math.round((user + system) / 1e6),
      wallSeconds: Math.round((performance.now() - this.#startedMs) / 1000),
      events: this.#events,
      operationsMedian: this.#tally.operationsMedian,
      faultsMedian: this.#tally.faultsMedian,
      lostTailSeeds: this.#tally.lostTailSeeds,
      faults: Object.fromEntries(this.#tally.classes.map(({ name, count, seeds }) => [name, { count, seeds }])),
    });
  }
}
