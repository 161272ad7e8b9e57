import type { HistoryStep, RecordedHistory } from "./recorded-history.ts";

/** Steps before the first violation, or else before the end, that are kept one by one. */
export const DETAILED_STEPS_MAX = 500;
/** Steps kept of all that came earlier. */
export const COARSE_STEPS_MAX = 250;
/** Steps kept after the first violation: of a run that goes on to show what comes of it. */
const STEPS_AFTER_MAX = 500;

/** What a person looks for first when not everything can be kept. */
const WEIGHTY: ReadonlySet<string> = new Set(["note", "fault", "decision", "truncation", "violation"]);

/**
 * The history with a bounded number of steps: everything shortly before the first violation and after it, and before that faults, decisions
 * and truncations first, then samples at even distances. What a step that goes had changed comes with the next one that stays.
 */
export function shortenHistory(history: RecordedHistory): RecordedHistory {
  const { steps, violations } = history;
  const focus = violations[0]?.step ?? steps.length - 1;
  const detailedFrom = Math.max(0, focus - DETAILED_STEPS_MAX);
  const coarse = sampleOf(steps, detailedFrom);
  const violated = new Set(violations.map(({ step }) => step));
  const kept: HistoryStep[] = [];
  const places = new Map<number, number>();
  let pending: HistoryStep | undefined;
  for (const [at, step] of steps.entries()) {
    const isLate = at > focus + STEPS_AFTER_MAX && at !== steps.length - 1;
    const isKept = violated.has(at) || (at < detailedFrom ? coarse.has(at) : !isLate);
    const merged: HistoryStep = pending === undefined ? step : merge(pending, step);
    if (!isKept) {
      pending = merged;
      continue;
    }
    places.set(at, kept.length);
    kept.push(merged);
    pending = undefined;
  }
  const goneCount = steps.length - kept.length;
  if (goneCount === 0) return history;
  const omitted = `${goneCount} of ${steps.length} steps are left out: all of the ${DETAILED_STEPS_MAX} before ${violations.length > 0 ? "the violation" : "the end"} are here, and ${coarse.size} of those before them (at most ${COARSE_STEPS_MAX}).`;
  const moved = violations.map((violation) => ({ ...violation, step: places.get(violation.step) ?? 0 }));
  return { ...history, steps: kept, violations: moved, omitted };
}

/** Indexes in `[0, toIndex)` that stay. */
function sampleOf(steps: readonly HistoryStep[], toIndex: number): ReadonlySet<number> {
  const all = Array.from({ length: toIndex }, (_, at) => at);
  if (all.length <= COARSE_STEPS_MAX) return new Set(all);
  // The first step holds the state of everybody, and stays in any case.
  const weighty = all.slice(1).filter((at) => WEIGHTY.has(steps[at]?.kind ?? ""));
  const rest = all.slice(1).filter((at) => !WEIGHTY.has(steps[at]?.kind ?? ""));
  const sample = new Set([0, ...evenly(weighty, COARSE_STEPS_MAX - 1)]);
  for (const at of evenly(rest, COARSE_STEPS_MAX - sample.size)) sample.add(at);
  return sample;
}

function evenly(values: readonly number[], count: number): readonly number[] {
  if (values.length <= count) return values;
  return Array.from({ length: count }, (_, at) => values[Math.floor((at * values.length) / count)] ?? 0);
}

/** What the earlier step changed, unless the later one changed it again. */
function merge(earlier: HistoryStep, later: HistoryStep): HistoryStep {
  const { replicas, controller, cuts, acknowledged } = earlier;
  return {
    ...(controller === undefined ? {} : { controller }),
    ...(cuts === undefined ? {} : { cuts }),
    ...(acknowledged === undefined ? {} : { acknowledged }),
    ...later,
    ...(replicas === undefined ? {} : { replicas: { ...replicas, ...later.replicas } }),
  };
}
