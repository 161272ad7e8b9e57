import type { RecoveryReport } from "@tidemark/log";

import type { InputSource } from "./input.ts";

/** What the parent hands to the ingesting process, as one JSON argument. */
export interface IngestTask {
  readonly directory: string;
  readonly topic: string;
  readonly source: InputSource;
  readonly segmentBytes: number;
  readonly maxMessageBytes: number;
  readonly lineBytesMax: number;
  /** An append takes at most so many records and so many bytes of lines (one longer line goes alone). */
  readonly appendRecordsMax: number;
  readonly appendBytesMax: number;
  /** Append lines [log end offset, appendUpTo). Then close, or wait to be killed. */
  readonly appendUpTo: number;
  readonly thenClose: boolean;
}

export interface PartitionOffsets {
  readonly logStartOffset: number;
  readonly logEndOffset: number;
  readonly flushedEndOffset: number;
  readonly recoveryPoint: number;
}

/** The log is open and recovered. */
export interface OpenedMessage {
  readonly type: "opened";
  readonly offsets: PartitionOffsets;
  readonly recovery: RecoveryReport;
  readonly openMs: number;
}

/** What the ingesting process tells its parent, in this order: opened, acknowledged any number of times, closed. */
export type IngestMessage =
  | OpenedMessage
  /** Every record below `count` is acknowledged: its append has resolved. */
  | { readonly type: "acknowledged"; readonly count: number }
  | { readonly type: "closed"; readonly offsets: PartitionOffsets }
  /** The process cannot go on: `line` says why, for people. It exits after this. */
  | { readonly type: "failed"; readonly line: string };

/** Name of the hidden command that the ingesting process runs. */
export const INGEST_COMMAND = "demo-ingest";
