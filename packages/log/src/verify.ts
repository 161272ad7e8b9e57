import { directoryOf, FileError, isDirectory, joinPath, readFileIfPresent } from "@tidemark/base";
import type { FileSystem, State, WorkerPool } from "@tidemark/base";
import {
  CheckpointError,
  decodeLeaderEpochCheckpoint,
  LEADER_EPOCH_CHECKPOINT,
  LeaderEpochCache,
} from "@tidemark/epoch-cache";
import type { EpochEntry } from "@tidemark/epoch-cache";
import { readCleanShutdownMarker } from "./clean-shutdown.ts";
import { isAsStateLeftIt, isTakingOver } from "./directory-checkpoints.ts";
import { LogError } from "./error.ts";
import {
  LOG_SUFFIX,
  OFFSET_INDEX_SUFFIX,
  parseSegmentFileName,
  segmentFileName,
  TIME_INDEX_SUFFIX,
} from "./file-names.ts";
import { decodeMetaProperties, META_PROPERTIES_FILE } from "./meta-properties.ts";
import {
  CLEANER_CHECKPOINT,
  LOG_START_CHECKPOINT,
  readOffsetCheckpoint,
  RECOVERY_POINT_CHECKPOINT,
  REPLICATION_CHECKPOINT,
} from "./offset-checkpoint.ts";
import { OFFSET_INDEX_ENTRY_BYTES } from "./offset-index.ts";
import type { OffsetIndexEntry } from "./offset-index.ts";
import { parseDirectoryName, readPartitionMetadata } from "./partition-directory.ts";
import { beginOffsetOf, reportHoles } from "./verify-borders.ts";
import type { BorderHole } from "./verify-borders.ts";
import { VerifyFindings } from "./verify-report.ts";
import type { PartitionVerification, SegmentVerification, VerifyReport } from "./verify-report.ts";
import { verifySegment } from "./verify-segment.ts";
import { TimeIndexVerifier } from "./verify-time-index.ts";
import { verifySnapshots, verifyTransactionIndex } from "./verify-side-files.ts";

export interface VerifyOptions {
  readonly files: FileSystem;
  /** Decompresses. */
  readonly workers: Pick<WorkerPool, "runNow">;
  /** A Kafka log directory, or one partition's directory in it. */
  readonly directory: string;
  /** Whether a running node holds the directory, if the caller knows: then its end may be growing. Default: not known. */
  readonly isInUse?: boolean | undefined;
  /** The node's own, which is read only: it knows where the log rightly leaves offsets out between two segments. Default: not known. */
  readonly state?: Pick<State, "get"> | undefined;
  /** Called after each segment with what was read so far. */
  readonly onProgress?: ((progress: { readonly bytes: number; readonly path: string }) => void) | undefined;
  /** Asked between segments; what it throws ends the work. */
  readonly checkCancelled?: (() => void) | undefined;
}

interface VerifyContext {
  readonly files: FileSystem;
  readonly workers: Pick<WorkerPool, "runNow">;
  readonly findings: VerifyFindings;
  /** Whether the end of a log may be torn or growing. */
  readonly mayBeTorn: boolean;
  /** By the name of the partition's directory. */
  readonly logStarts: ReadonlyMap<string, number>;
  /** A cleaner worked on them, by the names of their directories. */
  readonly compacted: ReadonlySet<string>;
  /** `undefined` when there is none, or another program wrote here since: it speaks of other files then. */
  readonly state: Pick<State, "get"> | undefined;
  readonly onSegment: (segment: SegmentVerification) => void;
}

/**
 * Reads everything in a log directory and says what is wrong: every segment, batch, CRC, record, offset and leader epoch, every
 * index entry, epoch file and checkpoint file. Never writes, takes no lock; works on a directory that was closed, killed or is
 * in use. Damage is a finding, not an error.
 * @throws FileError when the directory itself cannot be read
 * Cost: reads all of it; one window of 1 MiB, or the largest batch, in memory
 */
export async function verifyDirectory(options: VerifyOptions): Promise<VerifyReport> {
  const { files, workers, directory, isInUse } = options;
  const findings = new VerifyFindings();
  const names = [...(await files.list(directory))].sort();
  const isPartition = names.some((name) => parseSegmentFileName(name, LOG_SUFFIX) !== undefined);
  const home = isPartition ? directoryOf(directory) : directory;
  const wasCleanShutdown = isInUse !== true && (await readCleanShutdownMarker(files, home)) !== undefined;
  const starts = await readOffsetCheckpoint(files, joinPath(home, LOG_START_CHECKPOINT));
  const cleaned = await readOffsetCheckpoint(files, joinPath(home, CLEANER_CHECKPOINT));
  const { state } = options;
  const isStateOfThese = state !== undefined && !isTakingOver(state) && (await isAsStateLeftIt(files, state, home));
  const figures = { segments: 0, batches: 0, records: 0, bytes: 0, indexEntries: 0 };
  const context: VerifyContext = {
    files,
    workers,
    findings,
    mayBeTorn: !wasCleanShutdown,
    logStarts: new Map(starts.entries.map(({ topic, partition, offset }) => [`${topic}-${partition}`, offset])),
    compacted: new Set(cleaned.entries.map(({ topic, partition }) => `${topic}-${partition}`)),
    state: isStateOfThese ? state : undefined,
    onSegment: (segment) => {
      figures.segments += 1;
      figures.batches += segment.batches;
      figures.records += segment.records;
      figures.bytes += segment.sizeBytes;
      figures.indexEntries += segment.indexEntries;
      options.onProgress?.({ bytes: figures.bytes, path: segment.path });
      options.checkCancelled?.();
    },
  };
  const partitions = isPartition
    ? [await verifyPartition(context, directory, undefined)]
    : await verifyLogDirectory(context, directory, names);
  const { errors, notes, errorCount, noteCount } = findings;
  const isSound = errorCount === 0;
  return {
    directory,
    isInUse,
    wasCleanShutdown,
    isSound,
    partitions,
    errors,
    notes,
    errorCount,
    noteCount,
    ...figures,
  };
}

async function verifyLogDirectory(
  context: VerifyContext,
  directory: string,
  names: readonly string[],
): Promise<PartitionVerification[]> {
  const { files, findings } = context;
  await verifyMetaProperties(context, directory);
  const partitions: PartitionVerification[] = [];
  for (const name of names) {
    const path = joinPath(directory, name);
    if (!(await isDirectory(files, path))) continue;
    const parsed = parseDirectoryName(name);
    switch (parsed.type) {
      case "partition":
        partitions.push(await verifyPartition(context, path, parsed));
        break;
      case "delete":
        findings.add("note", "directory-doomed", path, "waits for its removal");
        break;
      case "ignored":
        findings.add("note", "directory-ignored", path, "not a partition of this node: not looked at");
        break;
      case "unknown":
        findings.add("error", "directory-unknown", path, parsed.reason);
        break;
      default:
        parsed satisfies never;
    }
  }
  await verifyCheckpoints(context, directory, partitions);
  return partitions;
}

async function verifyMetaProperties({ files, findings }: VerifyContext, directory: string): Promise<void> {
  const path = joinPath(directory, META_PROPERTIES_FILE);
  try {
    const bytes = await readFileIfPresent(files, path);
    if (bytes === undefined) findings.add("note", "meta-properties-missing", path, "there is none");
    else decodeMetaProperties(bytes, path);
  } catch (error) {
    findings.add("error", "meta-properties-damaged", path, reasonOf(error));
  }
}

/** A recovery point or log start beyond the data says that data is gone. */
async function verifyCheckpoints(
  { files, findings }: VerifyContext,
  directory: string,
  partitions: readonly PartitionVerification[],
): Promise<void> {
  for (const name of [RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, REPLICATION_CHECKPOINT]) {
    const path = joinPath(directory, name);
    const { entries, problem } = await readOffsetCheckpoint(files, path);
    if (problem !== undefined) findings.add("error", "checkpoint-damaged", path, problem);
    for (const { topic, partition, offset } of entries) {
      const found = partitions.find((candidate) => candidate.topic === topic && candidate.partition === partition);
      if (found === undefined) {
        findings.add("error", "checkpoint-ahead", path, `names ${topic}-${partition}, which has no directory`);
      } else if (offset > found.endOffset) {
        const detail = `says ${offset} for ${topic}-${partition}, whose log ends at ${found.endOffset}`;
        findings.add("error", "checkpoint-ahead", path, detail, { offset: found.endOffset });
      }
    }
  }
}

async function verifyPartition(
  context: VerifyContext,
  directory: string,
  name: { readonly topic: string; readonly partition: number } | undefined,
): Promise<PartitionVerification> {
  const { files, findings } = context;
  // The epoch file before the segments: while a node runs, an epoch is in the file before it is in the log.
  const entries = await readEpochs(context, directory);
  await verifyPartitionMetadata(context, directory);
  const names = [...(await files.list(directory))].sort();
  await verifySnapshots(context, directory, names);
  const baseOffsets = names.flatMap((file) => parseSegmentFileName(file, LOG_SUFFIX) ?? []).sort((a, b) => a - b);
  if (baseOffsets.length === 0) findings.add("error", "segments-missing", directory, "there is no segment");
  const segments: SegmentVerification[] = [];
  let endOffset = beginOffsetOf(context.state, name, baseOffsets[0] ?? 0);
  let lastEpoch = -1;
  const directoryName = directory.slice(directory.lastIndexOf("/") + 1);
  const logStartOffset = context.logStarts.get(directoryName) ?? 0;
  const holes: BorderHole[] = [];
  let isSparse = context.compacted.has(directoryName);
  for (const [at, baseOffset] of baseOffsets.entries()) {
    const path = joinPath(directory, segmentFileName(baseOffset, LOG_SUFFIX));
    const indexPath = joinPath(directory, segmentFileName(baseOffset, OFFSET_INDEX_SUFFIX));
    if (baseOffset > endOffset) holes.push({ path, endOffset, baseOffset });
    else if (baseOffset < endOffset) {
      findings.add(
        "error",
        "offsets-overlap",
        path,
        `begins at ${baseOffset}, but the segment before it ends at ${endOffset}`,
      );
    }
    const isActive = at === baseOffsets.length - 1;
    try {
      const index = await readIndex(context, { indexPath, baseOffset, isActive });
      await verifyTransactionIndex(context, directory, { baseOffset, isActive });
      const { mayBeTorn } = context;
      const timeIndex = {
        path: joinPath(directory, segmentFileName(baseOffset, TIME_INDEX_SUFFIX)),
        baseOffset,
        isStaleExpected: isActive && mayBeTorn,
        mayBeTorn,
      };
      const times = await TimeIndexVerifier.open(files, timeIndex, findings);
      const figures = await verifySegment(
        files,
        context.workers,
        {
          path,
          baseOffset,
          isActive,
          mayBeTorn,
          previousEndOffset: endOffset,
          previousEpoch: lastEpoch,
          logStartOffset,
          epochs: entries === undefined ? undefined : new LeaderEpochCache(entries),
          indexPath,
          index,
          times,
        },
        findings,
      );
      const { sizeBytes, batches, records } = figures;
      endOffset = Math.max(figures.endOffset, baseOffset);
      ({ lastEpoch } = figures);
      isSparse ||= figures.isSparse;
      const verified = { path, baseOffset, sizeBytes, batches, records, indexEntries: index.length };
      segments.push(verified);
      context.onSegment(verified);
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      // While a node runs, a truncation or deletion may take a file away.
      const isVanished = error.code === "ENOENT" && context.mayBeTorn;
      findings.add(
        isVanished ? "note" : "error",
        isVanished ? "file-vanished" : "file-unreadable",
        error.path,
        error.message,
      );
    }
  }
  reportHoles(findings, holes, { name: directoryName, state: context.state, isSparse });
  return {
    directory,
    topic: name?.topic,
    partition: name?.partition,
    segments,
    epochs: entries ?? [],
    firstOffset: baseOffsets[0] ?? 0,
    endOffset,
  };
}

async function verifyPartitionMetadata({ files, findings }: VerifyContext, directory: string): Promise<void> {
  try {
    const topicId = await readPartitionMetadata(files, directory);
    if (topicId === undefined)
      findings.add("note", "partition-metadata-missing", directory, "there is no partition.metadata");
  } catch (error) {
    findings.add("error", "partition-metadata-damaged", directory, reasonOf(error));
  }
}

/** The entries of the epoch file, or `undefined` when it cannot be used. */
async function readEpochs(
  { files, findings }: VerifyContext,
  directory: string,
): Promise<readonly EpochEntry[] | undefined> {
  const path = joinPath(directory, LEADER_EPOCH_CHECKPOINT);
  try {
    const bytes = await readFileIfPresent(files, path);
    if (bytes === undefined) {
      findings.add("note", "epoch-file-missing", path, "there is none");
      return undefined;
    }
    const entries = decodeLeaderEpochCheckpoint(bytes, path);
    for (const [at, entry] of entries.entries()) {
      const previous = entries[at - 1];
      if (previous === undefined || (entry.epoch > previous.epoch && entry.startOffset > previous.startOffset))
        continue;
      const detail = `${entry.epoch}@${entry.startOffset} follows ${previous.epoch}@${previous.startOffset}`;
      findings.add("error", "epoch-order", path, detail, { offset: entry.startOffset });
    }
    return entries;
  } catch (error) {
    if (!(error instanceof CheckpointError || error instanceof FileError)) throw error;
    findings.add("error", "checkpoint-damaged", path, reasonOf(error));
    return undefined;
  }
}

/** The entries of an offset index, up to the zeros of a preallocated file. */
async function readIndex(
  { files, findings, mayBeTorn }: VerifyContext,
  {
    indexPath,
    baseOffset,
    isActive,
  }: { readonly indexPath: string; readonly baseOffset: number; readonly isActive: boolean },
): Promise<readonly OffsetIndexEntry[]> {
  const bytes = await readFileIfPresent(files, indexPath);
  if (bytes === undefined) {
    findings.add(
      isActive ? "note" : "error",
      "index-missing",
      indexPath,
      "there is no offset index: the next open makes it anew",
    );
    return [];
  }
  const severity = isActive && mayBeTorn ? "note" : "error";
  if (bytes.length % OFFSET_INDEX_ENTRY_BYTES !== 0) {
    findings.add(severity, "index-damaged", indexPath, `${bytes.length} bytes are no whole number of entries`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const entries: OffsetIndexEntry[] = [];
  for (let at = 0; at + OFFSET_INDEX_ENTRY_BYTES <= bytes.length; at += OFFSET_INDEX_ENTRY_BYTES) {
    const entry = { offset: baseOffset + view.getInt32(at), positionBytes: view.getInt32(at + 4) };
    // No entry is made for the first batch, so one of zeros is none.
    if (entry.offset === baseOffset && entry.positionBytes === 0 && bytes.subarray(at).every((byte) => byte === 0))
      break;
    const previous = entries.at(-1);
    if (previous !== undefined && !(entry.offset > previous.offset && entry.positionBytes > previous.positionBytes)) {
      const detail = `entry ${entries.length} (offset ${entry.offset}, byte ${entry.positionBytes}) does not follow the one before it`;
      findings.add(severity, "index-damaged", indexPath, detail, { offset: entry.offset });
      break;
    }
    entries.push(entry);
  }
  return entries;
}

function reasonOf(error: unknown): string {
  if (error instanceof LogError && "reason" in error.type) return error.type.reason;
  if (error instanceof CheckpointError || error instanceof FileError || error instanceof LogError) return error.message;
  throw error;
}
