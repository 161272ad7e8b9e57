import type { Offset } from "@tidemark/base";
import { LogError } from "./error.ts";

/** Offsets `[fromOffset, toOffset)` that were durable and cannot be read any more. */
export interface DamagedRange {
  readonly fromOffset: Offset;
  readonly toOffset: Offset;
  /** Where in which file; `undefined` when the file is not there at all. */
  readonly path: string | undefined;
  readonly fromBytes: number;
  readonly toBytes: number;
  readonly reason: string;
}

/** @throws LogError CORRUPT_MESSAGE when the offset lies in one of the ranges */
export function refuseDamage(damaged: readonly DamagedRange[], offset: number): void {
  const range = damaged.find(({ fromOffset, toOffset }) => offset >= fromOffset && offset < toOffset);
  if (range === undefined) return;
  throw new LogError({
    code: "CORRUPT_MESSAGE",
    path: range.path,
    positionBytes: range.fromBytes,
    fromOffset: range.fromOffset,
    toOffset: range.toOffset,
    reason: range.reason,
  });
}

/** What an open found and did. */
export interface RecoveryReport {
  readonly wasCleanShutdown: boolean;
  /** As it was before; `undefined` when the state did not know the log. */
  readonly recoveryPoint: Offset | undefined;
  readonly segmentCount: number;
  /** Segments that were taken as they were left, by their names, sizes and what the state notes of them: nothing in them was read. */
  readonly segmentsTrusted: number;
  /** Segments whose batches were checked by CRC, and their bytes. */
  readonly segmentsScanned: number;
  readonly bytesScanned: number;
  /** Where the log was cut, or `undefined`. */
  readonly cut:
    | {
        readonly offset: Offset;
        readonly path: string;
        readonly positionBytes: number;
        readonly bytesCut: number;
        readonly segmentsRemoved: number;
        readonly reason: string;
      }
    | undefined;
  readonly damaged: readonly DamagedRange[];
  readonly indexesRebuilt: number;
  /** Transaction indexes below the recovery point that were not what the batches say. They were rebuilt. */
  readonly transactionIndexProblems: readonly { readonly path: string; readonly reason: string }[];
  /** Snapshots of producers that were none. They were removed, and the state taken from an older one or from the log. */
  readonly snapshotsDamaged: readonly { readonly path: string; readonly reason: string }[];
  readonly epochsRebuilt: boolean;
  /** Why the epoch file could not be used, if so. */
  readonly epochFileProblem: string | undefined;
  /** Segments that were copied afresh, as their bytes may not have reached the disk. */
  readonly segmentsCopied: number;
  readonly leftoversRemoved: readonly string[];
  /** Names of segments of a compaction that a crash had left before they were in place. */
  readonly swapsFinished: readonly string[];
  /** Names of segments of another program's whose offsets or bytes lay too far apart for an index: they were cut up. */
  readonly segmentsSplit: readonly string[];
  readonly logEndOffset: Offset;
}
