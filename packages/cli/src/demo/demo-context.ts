import type { LineSummary } from "../lines.ts";
import type { DemoDirectory } from "./demo-directory.ts";
import type { DemoOptions } from "./demo-options.ts";
import { inputName, type InputSource } from "./input.ts";
import type { ReportInput } from "./report.ts";

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

export function reportInputOf({ source, summary }: DemoContext): ReportInput {
  return {
    name: inputName(source),
    lines: summary.lineCount,
    bytes: summary.lineBytes,
    longestLineBytes: summary.longestLineBytes,
    endsWithNewline: summary.endsWithNewline,
  };
}
