import { mulberry32 } from "../seeded-random.ts";

/** One planned death of the leader. */
export interface PlannedFailover {
  /** Followers are held back once exactly so many records are acknowledged. */
  readonly atAcknowledged: number;
  /**
   * Records [atAcknowledged, sendUpTo) may be sent before the next one: the first of them the leader takes alone.
   * `atAcknowledged < sendUpTo`.
   */
  readonly sendUpTo: number;
  /** The dead broker is started again once so many records are acknowledged. `atAcknowledged < returnAt <= sendUpTo`. */
  readonly returnAt: number;
}

export const FAILOVER_COUNT = 2;

/**
 * When the leader dies: at two acknowledged counts in two different thirds of the input, the same for the same seed. Each leaves at
 * least one record for the leader to take alone, so an input of one record has one death, an empty one none.
 */
export function planFailovers(recordCount: number, seed: number): readonly PlannedFailover[] {
  const random = mulberry32(seed);
  const thresholds = failoverThresholds(recordCount, random);
  return thresholds.map((atAcknowledged, index) => {
    const sendUpTo = thresholds[index + 1] ?? recordCount;
    // In the first half, so that there is something to catch up with while more comes in.
    const half = Math.ceil((sendUpTo - atAcknowledged) / 2);
    return { atAcknowledged, sendUpTo, returnAt: atAcknowledged + 1 + Math.floor(random() * half) };
  });
}

function failoverThresholds(recordCount: number, random: () => number): readonly number[] {
  if (recordCount <= FAILOVER_COUNT) return Array.from({ length: recordCount }, (_unused, index) => index);
  const third = (index: number) => Math.floor((index * recordCount) / 3);
  const thirds = [0, 1, 2].map((index) => ({ from: third(index), to: third(index + 1) })); // [from, to)
  thirds.splice(Math.floor(random() * thirds.length), 1);
  return thirds.map(({ from, to }) => from + Math.floor(random() * (to - from)));
}
