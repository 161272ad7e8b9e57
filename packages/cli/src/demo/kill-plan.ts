import { mulberry32 } from "./seeded-random.ts";

/** One planned kill of the ingesting process. */
export interface PlannedKill {
  /** Kill once at least this many records are acknowledged. */
  readonly atAcknowledged: number;
  /**
   * The process that is to be killed appends records [.., appendUpTo) at most and then waits, so that however fast it is, the
   * kill falls between two records of the input. `atAcknowledged <= appendUpTo`.
   */
  readonly appendUpTo: number;
}

export const KILL_COUNT = 2;

/**
 * Where the demo kills: two acknowledged counts in two different thirds of the input, the same for the same seed. Of an input
 * of one record only one kill can be made, of none none.
 */
export function planKills(recordCount: number, seed: number): readonly PlannedKill[] {
  const thresholds = killThresholds(recordCount, seed);
  return thresholds.map((atAcknowledged, index) => {
    const next = thresholds[index + 1] ?? recordCount;
    return { atAcknowledged, appendUpTo: Math.max(atAcknowledged, next - 1) };
  });
}

function killThresholds(recordCount: number, seed: number): readonly number[] {
  if (recordCount <= KILL_COUNT) return Array.from({ length: recordCount }, (_unused, index) => index + 1);
  const random = mulberry32(seed);
  const third = (index: number) => Math.floor((index * recordCount) / 3);
  // (from, to]; the last one ends a record early, so that something is left for the process that is not killed.
  const thirds = [
    { from: 0, to: third(1) },
    { from: third(1), to: third(2) },
    { from: third(2), to: recordCount - 1 },
  ].filter(({ from, to }) => to > from);
  while (thirds.length > KILL_COUNT) thirds.splice(Math.floor(random() * thirds.length), 1);
  return thirds.map(({ from, to }) => from + 1 + Math.floor(random() * (to - from)));
}
