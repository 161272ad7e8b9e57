import type { LineSummary } from "../lines.ts";
import { VERSION } from "../version.ts";
import type { DemoDirectory } from "./demo-directory.ts";
import type { DemoOptions } from "./demo-options.ts";
import { inputName, type InputSource } from "./input.ts";
import type { RunReport } from "./report.ts";

/** What a batch of one record without key and headers takes at most beyond its value: 61 + 21 bytes and their lengths. */
export const BATCH_OVERHEAD_BYTES = 128;

/** All that a run needs to know before it begins. */
export interface DemoContext {
  readonly options: DemoOptions;
  readonly source: InputSource;
  readonly summary: LineSummary;
  readonly lineBytesMax: number;
  readonly directory: DemoDirectory;
  readonly signal: AbortSignal;
}

export function maxMessageBytesOf({ lineBytesMax }: DemoContext): number {
  return lineBytesMax + BATCH_OVERHEAD_BYTES;
}

/** The part of the report that every run has. */
export function runReportOf(
  context: DemoContext,
  run: {
    readonly topic: string;
    readonly problems: readonly string[];
    readonly problemCount: number;
    readonly ingestMs: number;
    readonly verifyMs: number;
  },
): RunReport {
  const { options, source, summary, directory } = context;
  const { topic, problems, problemCount, ingestMs, verifyMs } = run;
  const perSecond = (count: number) => (ingestMs === 0 ? 0 : (count * 1000) / ingestMs);
  return {
    verdict: problems.length === 0 ? "ok" : "failed",
    problems,
    problemCount,
    version: VERSION,
    node: process.version,
    seed: options.seed,
    input: {
      name: inputName(source),
      lines: summary.lineCount,
      bytes: summary.lineBytes,
      longestLineBytes: summary.longestLineBytes,
      endsWithNewline: summary.endsWithNewline,
    },
    directory: directory.path,
    topic,
    partition: 0,
    segmentBytes: options.segmentBytes,
    maxMessageBytes: maxMessageBytesOf(context),
    throughput: {
      records: summary.lineCount,
      bytes: summary.lineBytes,
      ingestMs,
      verifyMs,
      recordsPerSecond: perSecond(summary.lineCount),
      bytesPerSecond: perSecond(summary.lineBytes),
    },
  };
}
