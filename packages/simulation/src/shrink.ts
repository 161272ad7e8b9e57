import type { Fault, Plan } from "./plan.ts";
import { RunEnded } from "./process.ts";
import { parseFailure } from "./rules.ts";
import { simulate } from "./simulate.ts";

/** Runs of a plan that a shrinking may take, unless told otherwise. */
const REPLAYS_MAX = 500;

/** A smaller plan may break the rule so much later than the one that it comes from; what comes then is not looked at. */
const LATER_MS_MAX = 10_000;

export interface Shrunk {
  readonly plan: Plan;
  readonly replays: number;
}

export interface ShrinkOptions {
  /** When, in virtual time, a plan breaks the same rule; `undefined`: not up to `untilMs`. */
  readonly breaks: (plan: Plan, untilMs: number) => Promise<number | undefined>;
  /** When the plan that is to be shrunk breaks it. */
  readonly brokeAtMs: number;
  readonly replaysMax?: number;
  /** Looked at before each replay: true ends the search with what was found so far. */
  readonly isOver?: () => boolean;
}

/** For `ShrinkOptions`: runs plans, no further than it has to. @param id of the rule, as `parseFailure` gives it */
export function breaksRule(id: string): ShrinkOptions["breaks"] {
  return async (plan, untilMs) => {
    const { failure, virtualMs } = await simulate(plan.cluster.seed, plan, ({ kernel }) => {
      kernel.endUs = untilMs * 1000;
    });
    if (failure === undefined || failure.startsWith(RunEnded.name)) return undefined;
    return parseFailure(failure).id === id ? virtualMs : undefined;
  };
}

/**
 * The smallest plan found that still breaks the same rule: fewer faults first, then fewer clients, then simpler numbers.
 *
 * Draws are numbered by site, so that leaving something out does not change what the rest draws. Each step is kept only if the plan
 * still breaks the rule, and all steps are tried again until none helps: the result is a local minimum.
 */
export async function shrink(plan: Plan, options: ShrinkOptions): Promise<Shrunk> {
  const search = new Search(plan, options);
  await search.cutToBreak();
  for (let size = -1; size !== sizeOf(search.plan) && !search.isOver;) {
    size = sizeOf(search.plan);
    await search.dropFaults();
    await search.dropProducers();
    for (const simpler of SIMPLER_PLANS) await search.tryAll(simpler);
    await search.simplifyFaults();
  }
  return { plan: search.plan, replays: search.replays };
}

/** Falls with every step that is kept. */
function sizeOf(plan: Plan): number {
  return JSON.stringify(plan).length * 1e9 + sumOf(plan);
}

function sumOf(value: unknown): number {
  if (typeof value === "number") return Math.abs(value);
  if (typeof value !== "object" || value === null) return 0;
  return Object.values(value).reduce((sum: number, part) => sum + sumOf(part), 0);
}

class Search {
  plan: Plan;
  replays = 0;
  readonly #options: ShrinkOptions;
  readonly #refused = new Set<string>();
  #brokeAtMs: number;

  constructor(plan: Plan, options: ShrinkOptions) {
    this.plan = plan;
    this.#options = options;
    this.#brokeAtMs = options.brokeAtMs;
  }

  get isOver(): boolean {
    return this.replays >= (this.#options.replaysMax ?? REPLAYS_MAX) || this.#options.isOver?.() === true;
  }

  /** Takes the candidate if it breaks the rule too. One that did not is not run again. */
  async take(candidate: Plan): Promise<boolean> {
    const text = JSON.stringify(candidate);
    if (this.isOver || this.#refused.has(text) || text === JSON.stringify(this.plan)) return false;
    this.replays += 1;
    const brokeAtMs = await this.#options.breaks(candidate, this.#brokeAtMs + LATER_MS_MAX);
    if (brokeAtMs === undefined) {
      this.#refused.add(text);
      return false;
    }
    this.plan = candidate;
    this.#brokeAtMs = brokeAtMs;
    return true;
  }

  /** Takes away what comes after the rule is broken: the history before it stays the same. */
  async cutToBreak(): Promise<void> {
    const { faults, durationMs } = this.plan;
    const endMs = Math.ceil(this.#brokeAtMs);
    if (endMs >= durationMs) return;
    await this.take({ ...this.plan, durationMs: endMs, faults: faults.filter(({ atMs }) => atMs <= endMs) });
  }

  /** Leaves out ever smaller parts of the faults (delta debugging, without its complements: they are the next round). */
  async dropFaults(): Promise<void> {
    for (let part = this.plan.faults.length; part >= 1; part = Math.floor(part / 2)) {
      for (let from = 0; from < this.plan.faults.length && !this.isOver;) {
        const faults = this.plan.faults.toSpliced(from, part);
        if (!(await this.take({ ...this.plan, faults }))) from += part;
      }
    }
  }

  async dropProducers(): Promise<void> {
    for (let at = this.plan.producers.length - 1; at >= 0 && this.plan.producers.length > 1; at -= 1)
      await this.take({ ...this.plan, producers: this.plan.producers.toSpliced(at, 1) });
  }

  async tryAll(simpler: (plan: Plan) => readonly Plan[]): Promise<void> {
    for (const candidate of simpler(this.plan)) if (await this.take(candidate)) return;
  }

  async simplifyFaults(): Promise<void> {
    for (let at = 0; at < this.plan.faults.length; at += 1) {
      for (const simpler of SIMPLER_FAULTS) {
        const fault = this.plan.faults[at];
        if (fault === undefined) break;
        const candidate = simpler(fault);
        if (candidate !== undefined) await this.take({ ...this.plan, faults: this.plan.faults.with(at, candidate) });
      }
    }
  }
}

/** Each gives candidates, the simplest first; the first that breaks the rule is taken. */
const SIMPLER_PLANS: readonly ((plan: Plan) => readonly Plan[])[] = [
  (plan) => (plan.hasMessageFaults ? [{ ...plan, hasMessageFaults: false }] : []),
  (plan) => {
    const last = Math.max(0, ...plan.faults.map(({ atMs }) => atMs));
    return [last + 500, last + 3000, Math.floor(plan.durationMs / 2)]
      .filter((durationMs) => durationMs < plan.durationMs)
      .map((durationMs) => ({ ...plan, durationMs }));
  },
  (plan) => (plan.phases.length > 0 ? [{ ...plan, phases: [] }] : []),
  (plan) => {
    const { brokers = 3 } = plan.cluster;
    const counts = [2, 3, 4].filter((count) => count < brokers);
    return counts.map((count) => ({ ...plan, cluster: { ...plan.cluster, brokers: count } }));
  },
  (plan) => leaveOut(plan, "log"),
  (plan) => leaveOut(plan, "manager"),
  (plan) => withProducers(plan, { recordsMax: 1 }),
  (plan) => withProducers(plan, { valueBytesMax: 1 }),
  (plan) => withProducers(plan, { inFlightMax: 1 }),
  (plan) => withProducers(plan, { pauseMsMax: 0 }),
  (plan) => withProducers(plan, { pauseMsMax: 1000 }),
];

function withProducers(plan: Plan, more: Partial<Plan["producers"][number]>): readonly Plan[] {
  return [{ ...plan, producers: plan.producers.map((producer) => ({ ...producer, ...more })) }];
}

/** With one setting of the cluster at its default, each in turn. */
function leaveOut(plan: Plan, part: "log" | "manager"): readonly Plan[] {
  const settings: object = plan.cluster[part] ?? {};
  return Object.keys(settings).map((name) => {
    const rest = Object.fromEntries(Object.entries(settings).filter(([other]) => other !== name));
    return { ...plan, cluster: { ...plan.cluster, [part]: rest } };
  });
}

const SIMPLER_FAULTS: readonly ((fault: Fault) => Fault | undefined)[] = [
  (fault) => (fault.type === "powerCut" && fault.loss !== "all" ? { ...fault, loss: "all" } : undefined),
  (fault) => ("isTold" in fault && !fault.isTold ? { ...fault, isTold: true } : undefined),
  (fault) => (fault.type === "cutOff" && fault.direction !== "both" ? { ...fault, direction: "both" } : undefined),
  (fault) => rounded(fault, "restartAfterMs"),
  (fault) => rounded(fault, "durationMs"),
  (fault) => rounded(fault, "heldMs"),
  (fault) => rounded(fault, "releasedAfterMs"),
  (fault) => rounded(fault, "atMs"),
];

function rounded(fault: Fault, name: string): Fault | undefined {
  const value: unknown = name in fault ? (fault as unknown as Record<string, unknown>)[name] : undefined;
  if (typeof value !== "number") return undefined;
  const step = value > 1000 ? 1000 : 100;
  const simpler = Math.floor(value / step) * step;
  return simpler === value ? undefined : { ...fault, [name]: simpler };
}
