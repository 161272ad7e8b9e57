import { build } from "hdr-histogram-js";
import type { Histogram } from "hdr-histogram-js";

/** Of single operations, in us. */
export interface LatencySummary {
  readonly unit: "us";
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
  /** Percentile and value, ascending: what a plot needs. */
  readonly curve: readonly (readonly [percentile: number, value: number])[];
}

const NS_PER_MS = 1e6;
const NS_PER_US = 1000;
/** A longer one counts as this. */
const LATENCY_NS_MAX = 60e9;
/** To 0.1 %. */
const SIGNIFICANT_DIGITS = 3;
const CURVE_PERCENTILES = [0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100];

/** Latencies in an HdrHistogram. */
export class LatencyRecorder {
  readonly #histogram: Histogram = build({
    lowestDiscernibleValue: 1,
    highestTrackableValue: LATENCY_NS_MAX,
    numberOfSignificantValueDigits: SIGNIFICANT_DIGITS,
    bitBucketSize: 64,
    useWebAssembly: false,
  });

  /** @param startMs of `performance.now()` */
  recordSince(startMs: number): void {
    this.recordNs((performance.now() - startMs) * NS_PER_MS);
  }

  recordNs(nanoseconds: number, count = 1): void {
    const value = Math.min(Math.max(Math.round(nanoseconds), 1), LATENCY_NS_MAX);
    this.#histogram.recordValueWithCount(value, count);
  }

  get count(): number {
    return this.#histogram.totalCount;
  }

  /** us. */
  valueAt(percentile: number): number {
    return this.#histogram.getValueAtPercentile(percentile) / NS_PER_US;
  }

  summarize(): LatencySummary {
    // A percentile that fewer operations stand behind than one is the maximum again.
    const isKnown = (percentile: number) => percentile === 100 || this.count * (1 - percentile / 100) >= 1;
    return {
      unit: "us",
      count: this.count,
      p50: this.valueAt(50),
      p99: this.valueAt(99),
      p999: this.valueAt(99.9),
      max: this.#histogram.maxValue / NS_PER_US,
      curve: CURVE_PERCENTILES.filter(isKnown).map((percentile) => [percentile, this.valueAt(percentile)]),
    };
  }
}
