import type { Plan } from "./plan.ts";

/** What the file says that it is. Grows when a plan of before would mean something else. */
const FORMAT = "tidemark simulation plan 2";

/** A plan that may not be one: what a person sent. */
export class PlanFileError extends Error {
  override readonly name = "PlanFileError";
}

/** As a file that a person can read and edit. */
export function encodePlan(plan: Plan): string {
  // A setting that is switched off is not one at its default.
  const withNulls = (_key: string, value: unknown): unknown => (value === undefined ? null : value);
  return `${JSON.stringify({ format: FORMAT, ...plan }, withNulls, 2)}\n`;
}

/**
 * Looks at the outline only: a plan with wrong settings inside fails when it is run.
 * @throws PlanFileError when the text is no plan, or one of another version
 */
export function parsePlan(text: string): Plan {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new PlanFileError("is not JSON", { cause: error });
  }
  if (typeof value !== "object" || value === null) throw new PlanFileError("is not a plan");
  const { format, ...plan } = value as Partial<Plan> & { readonly format?: unknown };
  if (format !== FORMAT) throw new PlanFileError(`is not a plan of this version (${FORMAT})`);
  const { cluster, durationMs, phases, producers, faults, hasMessageFaults } = plan;
  const isPlan =
    typeof cluster === "object" &&
    Number.isSafeInteger(cluster.seed) &&
    Number.isSafeInteger(durationMs) &&
    typeof hasMessageFaults === "boolean" &&
    Array.isArray(phases) &&
    Array.isArray(producers) &&
    Array.isArray(faults);
  if (!isPlan) throw new PlanFileError("lacks a part of a plan, or has one of the wrong type");
  return { ...(plan as Plan), cluster: { ...cluster, manager: withoutNulls(cluster.manager ?? {}) } };
}

function withoutNulls(settings: object): object {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, value ?? undefined]));
}
