/**
 * - `error`: data or metadata is damaged, missing or contradicts itself;
 * - `note`: worth knowing and no damage: what the next open puts right, or what another kind of log may have.
 */
export type VerifySeverity = "error" | "note";

/** What a finding is about; the details are in its text. */
export type VerifyKind =
  | "batch-damaged"
  | "checkpoint-damaged"
  | "checkpoint-ahead"
  | "codec-unknown"
  | "directory-doomed"
  | "directory-ignored"
  | "directory-unknown"
  | "epoch-order"
  | "epoch-mismatch"
  | "epoch-file-missing"
  | "file-unreadable"
  | "file-vanished"
  | "index-damaged"
  | "index-entry-wrong"
  | "index-missing"
  | "index-stale"
  | "meta-properties-damaged"
  | "meta-properties-missing"
  | "offsets-missing"
  | "offsets-overlap"
  | "partition-metadata-damaged"
  | "partition-metadata-missing"
  | "records-damaged"
  | "segment-base-differs"
  | "segments-missing"
  | "snapshot-damaged"
  | "tail-torn"
  | "transaction-index-damaged";

export interface VerifyFinding {
  readonly severity: VerifySeverity;
  readonly kind: VerifyKind;
  readonly path: string;
  /** Where in the file, if it is about one place. */
  readonly positionBytes: number | undefined;
  /** Which offset, if it is about one. */
  readonly offset: number | undefined;
  /** One line for people. */
  readonly detail: string;
}

export interface SegmentVerification {
  readonly path: string;
  readonly baseOffset: number;
  readonly sizeBytes: number;
  /** Whole, sound batches. */
  readonly batches: number;
  readonly records: number;
  readonly indexEntries: number;
}

export interface PartitionVerification {
  readonly directory: string;
  readonly topic: string | undefined;
  readonly partition: number | undefined;
  readonly segments: readonly SegmentVerification[];
  readonly epochs: readonly { readonly epoch: number; readonly startOffset: number }[];
  /** Base offset of the first segment. */
  readonly firstOffset: number;
  /** Behind the last sound batch. */
  readonly endOffset: number;
}

export interface VerifyReport {
  readonly directory: string;
  readonly isInUse: boolean | undefined;
  /** Whether the last stop was clean; `false` too while a node runs. */
  readonly wasCleanShutdown: boolean;
  /** No errors; there may be notes. */
  readonly isSound: boolean;
  readonly partitions: readonly PartitionVerification[];
  /** Errors first come first; cut off at `VERIFY_FINDINGS_MAX`. */
  readonly errors: readonly VerifyFinding[];
  readonly notes: readonly VerifyFinding[];
  /** All, also those cut off. */
  readonly errorCount: number;
  readonly noteCount: number;
  readonly segments: number;
  readonly batches: number;
  readonly records: number;
  readonly bytes: number;
  readonly indexEntries: number;
}

/** Findings of each severity that are kept. */
export const VERIFY_FINDINGS_MAX = 1000;

/** Where a verification collects what it finds. */
export class VerifyFindings {
  readonly errors: VerifyFinding[] = [];
  readonly notes: VerifyFinding[] = [];
  errorCount = 0;
  noteCount = 0;

  add(
    severity: VerifySeverity,
    kind: VerifyKind,
    path: string,
    detail: string,
    at: { readonly positionBytes?: number; readonly offset?: number } = {},
  ): void {
    const kept = severity === "error" ? this.errors : this.notes;
    if (severity === "error") this.errorCount += 1;
    else this.noteCount += 1;
    if (kept.length >= VERIFY_FINDINGS_MAX) return;
    kept.push({ severity, kind, path, positionBytes: at.positionBytes, offset: at.offset, detail });
  }
}
