/** The longest line that the demo's topic takes, unless smaller segments make it shorter: 1.5 MiB. */
export const LINE_BYTES_MAX = 1.5 * 1024 * 1024;
export const DEFAULT_SEGMENT_BYTES = 2 * 1024 * 1024;
export const SEGMENT_BYTES_MIN = 4096;

export interface DemoOptions {
  /** `undefined`: the flights. */
  readonly inputPath: string | undefined;
  /** `undefined`: a temporary one. */
  readonly directory: string | undefined;
  /** 1: a log embedded in a process. 3: brokers, each a process of its own. */
  readonly nodes: 1 | 3;
  /** Leave the temporary directory; a named one always stays. */
  readonly keep: boolean;
  readonly reportPath: string | undefined;
  readonly seed: number;
  readonly segmentBytes: number;
}
