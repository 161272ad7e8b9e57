export interface Summary {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** Of an even number the median is the mean of the two in the middle. @throws RangeError without samples */
export function summarize(samples: readonly number[]): Summary {
  const sorted = [...samples].sort((a, b) => a - b);
  const [min] = sorted;
  const max = sorted.at(-1);
  const upper = sorted[sorted.length >>> 1];
  const lower = sorted[(sorted.length - 1) >>> 1];
  if (min === undefined || max === undefined || upper === undefined || lower === undefined) {
    throw new RangeError("a summary needs at least one sample");
  }
  return { median: (lower + upper) / 2, min, max };
}
