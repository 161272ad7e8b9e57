import { Violation } from "./checker.ts";
import type { Acknowledged, ProducerOptions } from "./client.ts";

/** A producer, and what it was told. */
export interface Told {
  readonly options: Pick<ProducerOptions, "id" | "acks" | "isNameless">;
  readonly acknowledged: readonly Pick<Acknowledged, "baseOffset" | "values">[];
}

function numberOf({ values }: Told["acknowledged"][number]): number {
  return Number(values[0]?.split(":", 2)[1] ?? 0);
}

/**
 * Compares a leader's whole log, as its files have it, with what producers were told.
 * @param records `offset:value`; a value is `producer:number:filler`
 * @param logStartOffset what was acknowledged below it may have been deleted
 * @throws Violation S17 for what is there twice, or not in a producer's order; S1 for what was acknowledged and is not there
 */
export function checkFinalLog(records: readonly string[], producers: readonly Told[], logStartOffset = 0): void {
  const idempotent = producers.filter(({ options }) => options.acks === -1 && !options.isNameless);
  const idempotentIds = new Set(idempotent.map(({ options }) => `${options.id}`));
  const stored = new Set<string>();
  const seen = new Set<string>();
  for (const record of records) {
    const [offset = "", producer = "", number = ""] = record.split(":", 3);
    const id = `${producer}:${number}`;
    if (seen.has(id) && idempotentIds.has(producer)) throw new Violation("S17", `${id} is twice in the log`);
    seen.add(id);
    stored.add(`${offset}:${id}`);
  }
  for (const { acknowledged } of producers) {
    let last = -1;
    // In the order of the sends: the answers may have come in another.
    for (const { baseOffset, values } of acknowledged.toSorted((one, other) => numberOf(one) - numberOf(other))) {
      for (const [delta, value] of values.entries()) {
        const place = `${baseOffset + delta}:${value.split(":", 2).join(":")}`;
        if (baseOffset + delta >= logStartOffset && !stored.has(place))
          throw new Violation("S1", `${value} was acknowledged at ${place}, and is not there`);
      }
      if (baseOffset <= last) throw new Violation("S17", `acknowledged at ${baseOffset} after ${last}`);
      last = baseOffset;
    }
  }
}
