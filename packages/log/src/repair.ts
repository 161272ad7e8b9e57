import { fail, joinPath, readFileIfPresent, toOffset } from "@tidemark/base";
import type { Environment, FileSystem, Offset, State } from "@tidemark/base";
import { takeCleanShutdownMarker, readCleanShutdownMarker } from "./clean-shutdown.ts";
import { DEFAULT_LOG_CONFIG } from "./config.ts";
import { DirectoryCheckpoints, isAsStateLeftIt, isTakingOver } from "./directory-checkpoints.ts";
import { LogError } from "./error.ts";
import { CLEANED_SUFFIX, LOG_SUFFIX, parseSegmentFileName, segmentFileName, SWAP_SUFFIX } from "./file-names.ts";
import { finishSwaps } from "./finish-swaps.ts";
import { readEpochs, removeLeftovers } from "./load-log.ts";
import { lockDirectory, storageError } from "./log-directory.ts";
import { LogState } from "./log-state.ts";
import { surveyLog } from "./log-survey.ts";
import type { LogSurvey } from "./log-survey.ts";
import { NOTHING_TRUSTED } from "./log-trust.ts";
import { decodeMetaProperties, META_PROPERTIES_FILE, openMetaProperties } from "./meta-properties.ts";
import { LOG_START_CHECKPOINT, readOffsetCheckpoint, RECOVERY_POINT_CHECKPOINT } from "./offset-checkpoint.ts";
import { ProducerReplay } from "./producer-replay.ts";
import type { DamagedRange } from "./recovery-report.ts";
import { LogSegment } from "./segment.ts";
import type { SegmentSettings } from "./segment.ts";
import { copyRanges } from "./segment-copy.ts";
import { removeIfPresent } from "./segment-files.ts";
import { listLogDirectory } from "./topic-loading.ts";
import type { PartitionDirectory } from "./topic-loading.ts";

export interface RepairOptions {
  readonly environment: Pick<Environment, "files" | "clock" | "random">;
  /** Called once, when the lock is held. `repairDirectory` closes what it returns. */
  readonly openState: () => Promise<State>;
  /** Kafka's log directory. */
  readonly directory: string;
  /** False: nothing is changed, what would be given up is told. */
  readonly acceptsLoss: boolean;
  /** `none`: the caller answers for there being one writer. Default `fcntl`. */
  readonly lock?: "fcntl" | "none" | undefined;
  /** Asked between partitions; what it throws ends the work. */
  readonly checkCancelled?: (() => void) | undefined;
}

/** A partition that is read-only around damage. */
export interface DamagedPartition {
  readonly topic: string;
  readonly partition: number;
  readonly directory: string;
  /** What was durable and cannot be read any more, in order. */
  readonly lost: readonly DamagedRange[];
}

export interface RepairReport {
  readonly directory: string;
  /** Those that are damaged, or were. */
  readonly partitions: readonly DamagedPartition[];
  readonly partitionsRead: number;
  /** Whether they can be appended to again. */
  readonly isRepaired: boolean;
}

/**
 * Makes the partitions of a log directory writable again that are read-only around damage, by giving up what cannot be read: reads pass over
 * those offsets from then on, as after compaction, and no later record gets one of them.
 *
 * Every batch is read, with its CRC. Only what lies below the recovery point is damage: what lies above, the next open cuts by itself. Sound
 * batches stay, byte for byte. Nothing is changed unless there is damage and `acceptsLoss`.
 *
 * A crash at any moment leaves a directory that opens, and of which each damaged part is repaired or not: the next call goes on. A damaged
 * segment is replaced as a compaction does it: a copy without the damage, `.cleaned` until it is on the disk, `.swap` until the old files are
 * gone.
 * @throws LogError UNKNOWN_DIRECTORY, META_PROPERTIES_INVALID for what is no log directory; LOG_DIRECTORY_LOCKED,
 *   LOG_DIRECTORY_LOCK_UNSUPPORTED; UNSUPPORTED_FOR_MESSAGE_FORMAT; KAFKA_STORAGE_ERROR
 */
export async function repairDirectory(options: RepairOptions): Promise<RepairReport> {
  const { directory } = options;
  const { files } = options.environment;
  try {
    await requireLogDirectory(files, directory);
    const { partitions } = await listLogDirectory(files, directory);
    const lock = options.lock === "none" ? undefined : await lockDirectory(files, directory);
    try {
      const state = await options.openState();
      try {
        return await repair({ ...options, partitions, state });
      } finally {
        await state.close();
      }
    } finally {
      await lock?.release();
    }
  } catch (error) {
    throw storageError(error, directory);
  }
}

interface Repair extends RepairOptions {
  readonly partitions: readonly PartitionDirectory[];
  readonly state: State;
}

async function requireLogDirectory(files: FileSystem, directory: string): Promise<void> {
  const path = joinPath(directory, META_PROPERTIES_FILE);
  if (!(await files.list(directory)).includes(META_PROPERTIES_FILE))
    throw new LogError({ code: "UNKNOWN_DIRECTORY", path: directory, reason: `holds no ${META_PROPERTIES_FILE}` });
  decodeMetaProperties((await readFileIfPresent(files, path)) ?? new Uint8Array(0), path);
}

async function repair(options: Repair): Promise<RepairReport> {
  const { directory, partitions, acceptsLoss } = options;
  const { files } = options.environment;
  const wasClean = (await readCleanShutdownMarker(files, directory)) !== undefined;
  const offsets = await knownOffsets(options);
  const damaged: DamagedPartition[] = [];
  let isTaken = false;
  for (const found of partitions) {
    options.checkCancelled?.();
    const log = await openFiles(options, found, offsets);
    // A crash, perhaps of another repair, may have left work half done. A clean stop leaves none.
    if (acceptsLoss && !wasClean) await finishWork(log);
    const survey = await surveyPartition(log);
    if (survey.damaged.length === 0) continue;
    damaged.push({ ...found, lost: survey.damaged });
    if (!acceptsLoss) continue;
    if (!isTaken) await takeDirectory(options);
    isTaken = true;
    await giveUp(log, survey.damaged);
    const after = await surveyPartition(log);
    if (after.damaged.length > 0) fail("a repaired partition has no damage", { directory: found.directory });
  }
  return {
    directory,
    partitions: damaged,
    partitionsRead: partitions.length,
    isRepaired: acceptsLoss || damaged.length === 0,
  };
}

/** From here on the files are ours: no clean stop is remembered, and the state knows what another program may have written. */
async function takeDirectory({ environment: { files, random }, directory, state }: Repair): Promise<void> {
  const { directoryId } = await openMetaProperties(files, random, directory, {
    nodeId: undefined,
    clusterId: undefined,
  });
  await takeCleanShutdownMarker(files, directory);
  await DirectoryCheckpoints.open(files, state, directory, directoryId);
}

/** What is known of partitions by their names: from the state, or from the files where another program wrote them since. */
interface KnownOffsets {
  readonly areGapsRecorded: boolean;
  readonly recoveryPoint: (log: LogState, partition: PartitionDirectory) => Offset | undefined;
  readonly logStart: (log: LogState, partition: PartitionDirectory) => Offset | undefined;
}

async function knownOffsets({ environment: { files }, directory, state }: Repair): Promise<KnownOffsets> {
  if (await isAsStateLeftIt(files, state, directory))
    return {
      areGapsRecorded: !isTakingOver(state),
      recoveryPoint: (log) => log.recoveryPoint,
      logStart: (log) => log.logStartOffset,
    };
  const points = await readOffsetCheckpoint(files, joinPath(directory, RECOVERY_POINT_CHECKPOINT));
  const starts = await readOffsetCheckpoint(files, joinPath(directory, LOG_START_CHECKPOINT));
  const find =
    ({ entries }: typeof points) =>
    (_log: LogState, { topic, partition }: PartitionDirectory): Offset | undefined =>
      entries.find((entry) => entry.topic === topic && entry.partition === partition)?.offset;
  return { areGapsRecorded: false, recoveryPoint: find(points), logStart: find(starts) };
}

/** The files of a partition. */
interface PartitionFiles {
  readonly settings: SegmentSettings;
  readonly state: LogState;
  readonly areGapsRecorded: boolean;
  readonly recoveryPoint: Offset | undefined;
  readonly logStartOffset: Offset | undefined;
}

async function openFiles(
  { environment: { files, clock }, state }: Repair,
  partition: PartitionDirectory,
  offsets: KnownOffsets,
): Promise<PartitionFiles> {
  const logState = new LogState(state, partition.topic, partition.partition);
  const { segmentIndexBytes, indexIntervalBytes } = DEFAULT_LOG_CONFIG;
  return {
    settings: {
      files,
      clock,
      directory: partition.directory,
      indexBytesMax: segmentIndexBytes,
      indexIntervalBytes,
      drawRollMs: () => Number.MAX_SAFE_INTEGER,
    },
    state: logState,
    areGapsRecorded: offsets.areGapsRecorded,
    recoveryPoint: offsets.recoveryPoint(logState, partition),
    logStartOffset: offsets.logStart(logState, partition),
  };
}

async function finishWork({ settings, state, logStartOffset }: PartitionFiles): Promise<void> {
  await finishSwaps(settings, state);
  await removeLeftovers(settings.files, settings.directory, logStartOffset ?? toOffset(0));
}

/** Reads every batch. Changes nothing. */
async function surveyPartition(log: PartitionFiles): Promise<LogSurvey> {
  const segments = await segmentsOf(log);
  const fileEpochs = (await readEpochs(log.settings.files, log.settings.directory)).epochs?.entries ?? [];
  const fileBytes: number[] = [];
  for (const segment of segments) fileBytes.push(await segment.use((file) => file.size()));
  return surveyLog({
    segments,
    fileBytes,
    trusted: NOTHING_TRUSTED,
    state: log.state,
    logStartOffset: log.logStartOffset,
    recoveryPoint: log.recoveryPoint ?? toOffset(0),
    isRecoveryPointKnown: log.recoveryPoint !== undefined,
    areGapsRecorded: log.areGapsRecorded,
    fileEpochs,
    isTrusted: false,
    checksAll: true,
    indexIntervalBytes: log.settings.indexIntervalBytes,
    producers: new ProducerReplay(undefined),
  });
}

/** Those that are not wholly below the log start. */
async function segmentsOf({ settings, logStartOffset }: PartitionFiles): Promise<LogSegment[]> {
  const names = await settings.files.list(settings.directory);
  const baseOffsets = names.flatMap((name) => parseSegmentFileName(name, LOG_SUFFIX) ?? []).sort((a, b) => a - b);
  return baseOffsets
    .filter((_baseOffset, at) => (baseOffsets[at + 1] ?? Number.POSITIVE_INFINITY) > (logStartOffset ?? 0))
    .map((baseOffset) => new LogSegment(settings, baseOffset));
}

/**
 * Takes the damage out of the files and notes each border that leaves offsets out from then on. The log goes on where it would have: what was
 * lost at its end is not given to other records.
 */
async function giveUp(log: PartitionFiles, damaged: readonly DamagedRange[]): Promise<void> {
  const { settings, state, recoveryPoint } = log;
  const { files, directory } = settings;
  // Nobody vouches for files that change.
  await state.saveSeal({ endBaseOffset: 0, print: 0, stop: undefined });
  const segments = await segmentsOf(log);
  /** Where what is kept ends, before the segment at hand; before the first one, where the log begins. */
  let endOffset = log.logStartOffset;
  for (const [at, segment] of segments.entries()) {
    const next = segments[at + 1]?.baseOffset;
    const { baseOffset } = segment;
    if (endOffset !== undefined && endOffset < baseOffset && state.endBeforeGap(baseOffset) !== endOffset)
      await state.saveGapBefore(baseOffset, endOffset);
    const ranges = damaged.filter(({ path, toBytes, fromBytes }) => path === segment.path && toBytes > fromBytes);
    if (ranges.length === 0) {
      endOffset = (await endOf(segment)) ?? baseOffset;
      continue;
    }
    const copy = await copyWithout(settings, segment, ranges);
    if (copy === undefined) {
      // Nothing in it is sound. The border behind is noted before it goes.
      if (next !== undefined && endOffset !== undefined) await state.saveGapBefore(next, endOffset);
      await segment.remove();
      await files.syncDirectory(directory);
      continue;
    }
    await putInPlace(log, segment, { ...copy, endBaseOffset: next ?? copy.endOffset });
    endOffset = copy.endOffset;
  }
  if (recoveryPoint === undefined || (endOffset !== undefined && endOffset >= recoveryPoint)) return;
  if (endOffset !== undefined) await state.saveGapBefore(recoveryPoint, endOffset);
  const last = await LogSegment.create(settings, recoveryPoint);
  await last.close();
  await files.syncDirectory(directory);
}

/** Where the batches of a segment end; `undefined` when there is none. */
async function endOf(segment: LogSegment): Promise<Offset | undefined> {
  let endOffset: Offset | undefined;
  segment.sizeBytes = await segment.use((file) => file.size());
  await segment.walk(0, undefined, ({ lastOffset }) => {
    endOffset = toOffset(lastOffset + 1);
  });
  return endOffset;
}

/** Writes a segment's `.cleaned` file, without the damage; `undefined` when nothing would be in it. On the disk when it resolves. */
async function copyWithout(
  settings: SegmentSettings,
  segment: LogSegment,
  ranges: readonly DamagedRange[],
): Promise<{ readonly endOffset: Offset } | undefined> {
  const { files, directory } = settings;
  const sizeBytes = await segment.use((file) => file.size());
  const path = joinPath(directory, segmentFileName(segment.baseOffset, LOG_SUFFIX) + CLEANED_SUFFIX);
  const kept = [...ranges, { fromBytes: sizeBytes, toBytes: sizeBytes }].map(({ fromBytes }, at) => ({
    fromBytes: ranges[at - 1]?.toBytes ?? 0,
    toBytes: fromBytes,
  }));
  await copyRanges(files, segment, kept, path);
  await files.syncDirectory(directory);
  const cleaned = new LogSegment({ ...settings, nameSuffix: CLEANED_SUFFIX }, segment.baseOffset);
  const endOffset = await endOf(cleaned);
  if (endOffset !== undefined) return { endOffset };
  await removeIfPresent(files, path);
  return undefined;
}

/** As a compaction swaps: a crash leaves the old segment, or the new one under its `.swap` name, with which the next open goes on. */
async function putInPlace(
  { settings, state }: PartitionFiles,
  segment: LogSegment,
  { endOffset, endBaseOffset }: { readonly endOffset: Offset; readonly endBaseOffset: Offset },
): Promise<void> {
  const { files, directory } = settings;
  const { baseOffset } = segment;
  const path = joinPath(directory, segmentFileName(baseOffset, LOG_SUFFIX));
  const announced = { baseOffset, endBaseOffset, endOffset };
  await state.announceSwap(announced, { endBaseOffset: 0, print: 0, stop: undefined });
  await files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX);
  await files.syncDirectory(directory);
  await segment.makeWay();
  await files.syncDirectory(directory);
  await state.noteSwap(announced);
  await files.rename(path + SWAP_SUFFIX, path);
  await files.syncDirectory(directory);
  await state.forgetSwap(baseOffset);
}
