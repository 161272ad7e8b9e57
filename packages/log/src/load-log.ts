import { joinPath, toOffset } from "@tidemark/base";
import type { Clock, FileSystem, Offset, Random, State } from "@tidemark/base";
import { CheckpointError, LeaderEpochFileCache } from "@tidemark/epoch-cache";
import type { EpochEntry } from "@tidemark/epoch-cache";
import { segmentMsOf } from "./config.ts";
import type { LogConfig } from "./config.ts";
import { finishSwaps } from "./finish-swaps.ts";
import {
  LEFTOVER_SUFFIXES,
  LOG_SUFFIX,
  parseSegmentFileName,
  segmentFileName,
  SIDE_FILE_SUFFIXES,
} from "./file-names.ts";
import { LogState } from "./log-state.ts";
import { NOTHING_TRUSTED, replayTrusted, trustSealed } from "./log-trust.ts";
import type { Trusted } from "./log-trust.ts";
import { surveyLog } from "./log-survey.ts";
import type { LogSurvey, SeenEpoch } from "./log-survey.ts";
import { ProducerReplay } from "./producer-replay.ts";
import { ProducerSnapshots } from "./producer-snapshots.ts";
import type { LoadedSnapshot, SnapshotFinding } from "./producer-snapshots.ts";
import type { ProducerState } from "./producer-state.ts";
import type { DamagedRange, RecoveryReport } from "./recovery-report.ts";
import { LogSegment } from "./segment.ts";
import type { SegmentSettings } from "./segment.ts";
import { splitOverflowing } from "./split-overflow.ts";
import { removeIfPresent } from "./segment-files.ts";

/** Segment files looked at at a time, for their sizes. */
const SIZES_AT_A_TIME = 8;

/** What is drawn at once: 49 days. */
const JITTER_MS_MAX = 2 ** 32;

export interface LoadOptions {
  readonly files: FileSystem;
  readonly clock: Clock;
  readonly random: Random;
  readonly state: State;
  readonly directory: string;
  readonly topic: string;
  readonly partition: number;
  readonly config: LogConfig;
  readonly wasCleanShutdown: boolean;
  /** False when another program wrote here: its segments may leave offsets out where we noted nothing. Default true. */
  readonly areGapsRecorded?: boolean;
  /** A producer of whom nothing was heard for so long is forgotten. Kafka: producer.id.expiration.ms. */
  readonly producerIdExpirationMs: number;
}

export interface LoadedLog {
  readonly segments: LogSegment[];
  readonly segmentSettings: SegmentSettings;
  readonly epochs: LeaderEpochFileCache;
  readonly producers: ProducerState;
  readonly snapshots: ProducerSnapshots;
  readonly state: LogState;
  readonly logStartOffset: Offset;
  readonly logEndOffset: Offset;
  readonly flushedEndOffset: Offset;
  readonly recoveryPoint: Offset;
  /** Of batches above the recovery point. */
  readonly unflushedBytes: number;
  /** Segments with a lower base offset are synced with their indexes. */
  readonly sealedBelow: number;
  readonly damaged: readonly DamagedRange[];
  readonly report: RecoveryReport;
}

/**
 * Opens the files of a partition and makes a log of what a crash left.
 *
 * Order: survey without changing anything, then cut, then (after an unclean stop in `always` mode) copy what may be in the
 * page cache only, then the epoch file, and the recovery point last. A crash in between leaves a directory from which the
 * next open does the same again, for the recovery point still says how far to look.
 * @throws FileError when the disk refuses; LogError for files that this version cannot take over
 * Source: apache/kafka storage/.../internals/log/LogLoader.java
 */
export async function loadLog(options: LoadOptions): Promise<LoadedLog> {
  const { files, directory, config } = options;
  const state = new LogState(options.state, options.topic, options.partition);
  const knownRecoveryPoint = state.recoveryPoint;
  const knownStart = state.logStartOffset ?? toOffset(0);
  const segmentSettings = settingsOf(options);
  const swapsFinished = await finishSwaps(segmentSettings, state);
  const { names: namesFound, leftoversRemoved } = await removeLeftovers(files, directory, knownStart);
  // Only another program may have written what needs that.
  const segmentsSplit =
    options.areGapsRecorded === false
      ? await splitOverflowing(segmentSettings, state, segmentBaseOffsets(namesFound))
      : [];
  const names = segmentsSplit.length === 0 ? namesFound : [...(await files.list(directory))].sort();
  const baseOffsets = segmentBaseOffsets(names);

  const snapshots = new ProducerSnapshots(files, directory, names);

  let segments = baseOffsets.map((baseOffset) => new LogSegment(segmentSettings, baseOffset));
  const fileBytes = await sizesOf(segments);
  const epochFile = await readEpochs(files, directory);
  const trusted = await trustedOf(options, { segments, fileBytes, names, state, epochFile });

  const fileEpochs = epochFile.epochs?.entries ?? [];
  const found = { segments, fileBytes, state, knownRecoveryPoint, trusted, fileEpochs };
  const { surveyed, snapshotsDamaged } = await surveyFromSnapshot(options, found, snapshots);
  const recoveryPointBefore = knownRecoveryPoint ?? toOffset(0);
  // From here on what is not noted is a loss.
  for (const { baseOffset, endOffset } of surveyed.gapsBelieved) await state.saveGapBefore(baseOffset, endOffset);
  if (surveyed.isGapless === true) await state.noteGapless();
  else if (options.areGapsRecorded === false) await state.forgetGapless();
  const { damaged, cut } = surveyed;
  let { logEndOffset } = surveyed;
  let cutReport: RecoveryReport["cut"];
  if (cut !== undefined) {
    const bytesBefore = fileBytes.reduce((sum, bytes) => sum + bytes, 0);
    const path = segments[cut.segmentAt]?.path ?? directory;
    const segmentsBefore = segments.length;
    await state.forgetGapsAbove(segments[cut.segmentAt]?.baseOffset ?? -1);
    segments = await cutLog(files, directory, segments, cut);
    const bytesAfter = segments.reduce((sum, segment) => sum + segment.sizeBytes, 0);
    cutReport = {
      offset: cut.offset,
      path,
      positionBytes: cut.positionBytes,
      bytesCut: bytesBefore - bytesAfter,
      segmentsRemoved: segmentsBefore - segments.length,
      reason: cut.reason,
    };
  }
  if (segments.length === 0) {
    // Where a lost log ended is known from the recovery point; a new one begins at its start.
    logEndOffset = toOffset(Math.max(knownStart, recoveryPointBefore));
    segments.push(await LogSegment.create(segmentSettings, logEndOffset));
    await files.syncDirectory(directory);
  }
  const logStartOffset = toOffset(Math.min(Math.max(knownStart, surveyed.beginOffset), logEndOffset));

  const isAllDurable = surveyed.isTrusted || config.flush === "always";
  let areNamesChanged = snapshotsDamaged.length > 0;
  if (await bringSnapshotsInLine(snapshots, surveyed, { segments, logStartOffset, logEndOffset, isAllDurable }))
    areNamesChanged = true;
  const segmentsCopied = isAllDurable && !surveyed.isTrusted ? await copyUnsynced(segments, recoveryPointBefore) : 0;
  if (!surveyed.isTrusted) {
    // What the process before wrote, cut or removed may be known to the page cache only. In `none` mode contents stay so until a
    // flush, which must then not pass over them; names are few, and are synced now. So is the last segment, which a truncation may
    // have cut: were the cut lost after the next roll, what was cut would lie between what was kept and what came after it.
    if (!isAllDurable) {
      for (const segment of segmentsFrom(segments, recoveryPointBefore)) segment.isDirty = true;
      await segments.at(-1)?.sync();
    }
  }
  const recoveryPoint = isAllDurable ? logEndOffset : toOffset(Math.min(recoveryPointBefore, logEndOffset));
  const unflushedBytes = isAllDurable ? 0 : bytesAbove(segments, recoveryPoint);
  // An index that was rebuilt is put right at once: what a crash left of the file is nobody's to read. Where the next flush has the contents to
  // sync before the state may vouch for them, it syncs the indexes too.
  const isLeftToFlush = new Set(isAllDurable ? [] : segmentsFrom(segments, recoveryPoint));
  for (const [at, segment] of segments.entries()) {
    segment.damaged = damaged.filter(({ path }) => path === segment.path);
    // It was the active one when the point was raised to its end, and sealed since: its indexes were written, and perhaps not synced.
    const reachesPoint = (segments[at + 1]?.baseOffset ?? Number.POSITIVE_INFINITY) >= recoveryPointBefore;
    if (!surveyed.isTrusted && reachesPoint) segment.indexes.noteUnsynced();
    if (isLeftToFlush.has(segment)) await segment.writeIndexes();
    else areNamesChanged = (await segment.persistIndexes()) || areNamesChanged;
    if (segment !== segments.at(-1)) segment.unloadIndexes();
  }
  await segments.at(-1)?.loadIndexes();
  await segments.at(-1)?.firstTimestamp();
  // A snapshot that went may not come back: the log could grow past its offset with other batches.
  if (!surveyed.isTrusted || areNamesChanged) await files.syncDirectory(directory);

  const opened = await openEpochs(files, directory, epochFile, {
    survey: surveyed,
    recoveryPoint: recoveryPointBefore,
    logStartOffset,
    logEndOffset,
  });
  if (knownRecoveryPoint === undefined || state.logStartOffset !== logStartOffset) {
    // Durable before the first append. While nothing is known, a lost file would be taken for a border that leaves offsets out. And
    // `truncateFullyAndStartAt` leaves another start in the middle: above the log's end it would hide what is appended, below its first
    // segment it would speak of a loss once the recovery point is raised.
    await state.saveStart(logStartOffset, damaged.length === 0 ? recoveryPoint : recoveryPointBefore);
  } else if (damaged.length === 0 && recoveryPoint !== knownRecoveryPoint)
    await state.raiseRecoveryPoint(recoveryPoint);

  return {
    segments,
    segmentSettings,
    epochs: opened.epochs,
    producers: surveyed.producers,
    snapshots,
    state,
    logStartOffset,
    logEndOffset,
    flushedEndOffset: isAllDurable ? logEndOffset : recoveryPoint,
    recoveryPoint,
    unflushedBytes,
    sealedBelow: segmentsFrom(segments, recoveryPoint)[0]?.baseOffset ?? 0,
    damaged,
    report: {
      wasCleanShutdown: options.wasCleanShutdown,
      recoveryPoint: knownRecoveryPoint,
      segmentCount: segments.length,
      segmentsTrusted: surveyed.segmentsTrusted,
      segmentsScanned: surveyed.segmentsScanned,
      bytesScanned: surveyed.bytesScanned,
      cut: cutReport,
      damaged,
      indexesRebuilt: surveyed.indexesRebuilt,
      transactionIndexProblems: surveyed.transactionIndexProblems,
      snapshotsDamaged,
      epochsRebuilt: opened.rebuilt,
      epochFileProblem: opened.problem,
      segmentsCopied,
      leftoversRemoved,
      swapsFinished,
      segmentsSplit,
      logEndOffset,
    },
  };
}

function settingsOf({ files, clock, random, directory, config }: LoadOptions): SegmentSettings {
  const { segmentJitterMs, indexIntervalBytes } = config;
  const segmentMs = segmentMsOf(config);
  // Any of it is one that Kafka may draw; but a limit near nothing would make a segment of each batch.
  const jitterMsMax = Math.min(segmentJitterMs, Math.floor(segmentMs / 2), JITTER_MS_MAX);
  const drawRollMs = (): number =>
    jitterMsMax === 0 ? segmentMs : segmentMs - random.below("segment-jitter", jitterMsMax);
  return { files, clock, directory, indexBytesMax: config.segmentIndexBytes, indexIntervalBytes, drawRollMs };
}

/** A few at a time: there may be more segments than a process may open files. */
async function sizesOf(segments: readonly LogSegment[]): Promise<number[]> {
  const sizes: number[] = [];
  let next = 0;
  const runners = Array.from({ length: Math.min(SIZES_AT_A_TIME, segments.length) }, async () => {
    for (let at = next++; at < segments.length; at = next++)
      sizes[at] = (await segments[at]?.use((file) => file.size())) ?? 0;
  });
  const results = await Promise.allSettled(runners);
  for (const result of results) if (result.status === "rejected") throw result.reason;
  return sizes;
}

/** Nothing where another program wrote, or nothing is known, or the epoch file is none. */
async function trustedOf(
  options: LoadOptions,
  found: {
    segments: readonly LogSegment[];
    fileBytes: readonly number[];
    names: readonly string[];
    state: LogState;
    epochFile: EpochFile;
  },
): Promise<Trusted> {
  const { segments, state, epochFile } = found;
  const { recoveryPoint } = state;
  if (options.areGapsRecorded === false || recoveryPoint === undefined || epochFile.epochs === undefined)
    return NOTHING_TRUSTED;
  const logStartOffset = Math.max(state.logStartOffset ?? 0, segments[0]?.baseOffset ?? 0);
  const { wasCleanShutdown } = options;
  const epochs = epochFile.epochs.entries;
  const trusted = await trustSealed({ ...found, recoveryPoint, logStartOffset, epochs, wasCleanShutdown });
  if (trusted.count === 0) for (const segment of segments) segment.reset();
  return trusted;
}

interface TrustedSurvey extends LogSurvey {
  readonly isTrusted: boolean;
  readonly segmentsTrusted: number;
}

interface Found {
  readonly segments: readonly LogSegment[];
  readonly fileBytes: readonly number[];
  readonly state: LogState;
  readonly knownRecoveryPoint: Offset | undefined;
  readonly trusted: Trusted;
  readonly fileEpochs: readonly EpochEntry[];
}

/**
 * The survey, from the newest snapshot of producers that it can begin with. Where the log turns out to end below that one, it is looked at again
 * from an older one: a crash of the machine may keep a snapshot and lose batches that it knows of.
 */
async function surveyFromSnapshot(
  options: LoadOptions,
  found: Found,
  snapshots: ProducerSnapshots,
): Promise<{ surveyed: TrustedSurvey; snapshotsDamaged: readonly SnapshotFinding[] }> {
  const snapshotsDamaged: SnapshotFinding[] = [];
  const { trusted } = found;
  // Where the walk begins inside of the log, producers must be known as they were there.
  const isWithin = trusted.count > 0 && !trusted.isStop;
  let limit = toOffset(isWithin ? trusted.endOffset : Number.MAX_SAFE_INTEGER);
  for (;;) {
    const snapshot = await snapshots.load(limit, snapshotsDamaged);
    const surveyed = await survey(options, found, snapshot);
    if (surveyed === undefined) {
      for (const segment of found.segments) segment.reset();
      const all = await surveyFromSnapshot(options, { ...found, trusted: NOTHING_TRUSTED }, snapshots);
      return { ...all, snapshotsDamaged: [...snapshotsDamaged, ...all.snapshotsDamaged] };
    }
    if ((snapshot?.offset ?? 0) <= surveyed.logEndOffset) return { surveyed, snapshotsDamaged };
    limit = surveyed.logEndOffset;
    for (const segment of found.segments.slice(trusted.count)) segment.reset();
  }
}

/**
 * Removes the snapshots that Kafka removes: above the log's end, at or below its start, and those of no segment, but for the newest. One of the
 * end is written if there is none.
 * @returns whether the caller has to sync the directory
 */
async function bringSnapshotsInLine(
  snapshots: ProducerSnapshots,
  surveyed: LogSurvey,
  log: { segments: readonly LogSegment[]; logStartOffset: Offset; logEndOffset: Offset; isAllDurable: boolean },
): Promise<boolean> {
  const { logStartOffset, logEndOffset } = log;
  const bases = new Set(log.segments.map(({ baseOffset }) => baseOffset));
  const newest = snapshots.offsets.findLast((offset) => offset <= logEndOffset);
  const isNewestOfEnd = newest !== undefined && newest >= (log.segments.at(-1)?.baseOffset ?? 0);
  const isAnyRemoved = await snapshots.removeUnless(
    (offset) =>
      offset > logStartOffset && offset <= logEndOffset && (bases.has(offset) || (isNewestOfEnd && offset === newest)),
  );
  if (logEndOffset <= (snapshots.offsets.at(-1) ?? logStartOffset)) return isAnyRemoved;
  await snapshots.write(logEndOffset, surveyed.producers, log.isAllDurable);
  return true;
}

/**
 * Believes a clean stop only if the log ends just where the stop said; otherwise looks at it as after a crash.
 * @returns `undefined` when what was to be trusted has no batches where they should be: then all is to be looked at
 */
async function survey(
  options: LoadOptions,
  found: Found,
  snapshot: LoadedSnapshot | undefined,
): Promise<TrustedSurvey | undefined> {
  const { knownRecoveryPoint, trusted } = found;
  const expiry = { nowMs: options.clock.wallMs(), expirationMs: options.producerIdExpirationMs };
  const trustedSegments = found.segments.slice(0, trusted.count);
  const replayed = async (): Promise<ProducerReplay | undefined> => {
    const replay = new ProducerReplay(snapshot, expiry);
    return (await replayTrusted(trustedSegments, trusted.endOffset, replay)) ? replay : undefined;
  };
  const common = {
    trusted,
    segments: found.segments,
    fileBytes: found.fileBytes,
    state: found.state,
    logStartOffset: found.state.logStartOffset,
    recoveryPoint: knownRecoveryPoint ?? toOffset(0),
    isRecoveryPointKnown: knownRecoveryPoint !== undefined,
    areGapsRecorded: options.areGapsRecorded ?? true,
    fileEpochs: found.fileEpochs,
    indexIntervalBytes: options.config.indexIntervalBytes,
  };
  const segmentsTrusted = trusted.count;
  if (options.wasCleanShutdown && knownRecoveryPoint !== undefined) {
    const producers = await replayed();
    if (producers === undefined) return undefined;
    const asLeft = await surveyLog({ ...common, producers, isTrusted: true });
    const isAsLeft =
      asLeft.cut === undefined && asLeft.damaged.length === 0 && asLeft.logEndOffset === knownRecoveryPoint;
    if (isAsLeft) return { ...asLeft, isTrusted: true, segmentsTrusted };
    for (const segment of found.segments.slice(trusted.count)) segment.reset();
  }
  const producers = await replayed();
  if (producers === undefined) return undefined;
  const surveyed = await surveyLog({ ...common, producers, isTrusted: false });
  return { ...surveyed, isTrusted: false, segmentsTrusted };
}

function segmentBaseOffsets(names: readonly string[]): Offset[] {
  return names.flatMap((name) => parseSegmentFileName(name, LOG_SUFFIX) ?? []).sort((a, b) => a - b);
}

/**
 * Removes what a crash left of work that was not finished, and segments that lie below the log start: a deletion may have got as far as to
 * take some of them away, which would look like a hole.
 */
export async function removeLeftovers(
  files: FileSystem,
  directory: string,
  logStartOffset: Offset,
): Promise<{ names: readonly string[]; leftoversRemoved: string[] }> {
  const names = [...(await files.list(directory))].sort();
  const baseOffsets = segmentBaseOffsets(names);
  const kept = baseOffsets.filter((_base, at) => (baseOffsets[at + 1] ?? Number.POSITIVE_INFINITY) > logStartOffset);
  const bases = new Set(kept.map((baseOffset) => segmentFileName(baseOffset, "")));
  const isOrphan = (name: string): boolean =>
    [LOG_SUFFIX, ...SIDE_FILE_SUFFIXES].some(
      (suffix) =>
        suffix !== ".snapshot" &&
        parseSegmentFileName(name, suffix) !== undefined &&
        !bases.has(name.slice(0, -suffix.length)),
    );
  const leftoversRemoved = names.filter(
    (name) => LEFTOVER_SUFFIXES.some((suffix) => name.endsWith(suffix)) || isOrphan(name),
  );
  // The segment that they lie below may be known to the page cache only: it may not go where they do.
  if (leftoversRemoved.some((name) => name.endsWith(LOG_SUFFIX))) await files.syncDirectory(directory);
  for (const name of leftoversRemoved) await removeIfPresent(files, joinPath(directory, name));
  return { names: names.filter((name) => !leftoversRemoved.includes(name)), leftoversRemoved };
}

/** Later segments go first, newest first, so that a crash leaves a log without holes; the cut itself comes last. Durable when it resolves. */
async function cutLog(
  files: FileSystem,
  directory: string,
  segments: readonly LogSegment[],
  cut: { segmentAt: number; positionBytes: number; offset: Offset; keepsEmptySegment: boolean },
): Promise<LogSegment[]> {
  const kept = segments.slice(0, cut.segmentAt + 1);
  const isWhollyCut = cut.positionBytes === 0 && cut.segmentAt > 0 && !cut.keepsEmptySegment;
  if (isWhollyCut) kept.pop();
  const removed = segments.slice(kept.length).reverse();
  for (const segment of removed) await segment.remove();
  if (removed.length > 0) await files.syncDirectory(directory);
  if (!isWhollyCut) await kept.at(-1)?.truncateAt(cut.positionBytes, cut.offset);
  return kept;
}

/** After an unclean stop a sync may have failed before it: what the page cache shows is written anew before anybody hears of it. */
async function copyUnsynced(segments: readonly LogSegment[], recoveryPoint: Offset): Promise<number> {
  // Empty ones too: they may have been cut by a truncation that only the page cache knows of.
  const unsynced = segmentsFrom(segments, recoveryPoint);
  for (const segment of unsynced) await segment.copyAfresh();
  return unsynced.length;
}

/** Segments that may hold something at or above the recovery point. */
function segmentsFrom(segments: readonly LogSegment[], recoveryPoint: Offset): readonly LogSegment[] {
  return segments.filter((_segment, at) => (segments[at + 1]?.baseOffset ?? recoveryPoint + 1) > recoveryPoint);
}

/** Bytes of the batches at or above the recovery point, or a few more: as exact as the index of a segment that was just scanned. */
function bytesAbove(segments: readonly LogSegment[], recoveryPoint: Offset): number {
  const above = segmentsFrom(segments, recoveryPoint);
  const belowBytes = above[0]?.index.entryOf(recoveryPoint)?.positionBytes ?? 0;
  return above.reduce((sum, { sizeBytes }) => sum + sizeBytes, -belowBytes);
}

/** The cache that the file makes, or why it makes none. */
type EpochFile =
  | { readonly epochs: LeaderEpochFileCache; readonly problem: undefined }
  | { readonly epochs: undefined; readonly problem: string };

/** @throws FileError */
export async function readEpochs(files: FileSystem, directory: string): Promise<EpochFile> {
  try {
    return { epochs: await LeaderEpochFileCache.open(files, directory), problem: undefined };
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    return { epochs: undefined, problem: error.message };
  }
}

async function openEpochs(
  files: FileSystem,
  directory: string,
  file: EpochFile,
  log: { survey: TrustedSurvey; recoveryPoint: Offset; logStartOffset: Offset; logEndOffset: Offset },
): Promise<{ epochs: LeaderEpochFileCache; rebuilt: boolean; problem: string | undefined }> {
  const { seenEpochs, isTrusted } = log.survey;
  let { problem } = file;
  let epochs = file.epochs ?? LeaderEpochFileCache.rebuilt(files, directory, seenEpochs);
  if (problem === undefined) {
    if (!isTrusted) epochs = withScannedEpochs(files, directory, epochs.entries, log);
    problem = epochProblem(epochs.entries, seenEpochs, log);
    if (problem !== undefined) epochs = LeaderEpochFileCache.rebuilt(files, directory, seenEpochs);
    problem ??= log.survey.epochFileProblem;
  }
  epochs.truncateFromEnd(log.logEndOffset);
  epochs.truncateFromStart(log.logStartOffset);
  await epochs.flush();
  return { epochs, rebuilt: problem !== undefined, problem };
}

/** The file's entries below the recovery point, and what the scan saw from there up. */
function withScannedEpochs(
  files: FileSystem,
  directory: string,
  entries: readonly EpochEntry[],
  log: { survey: LogSurvey; recoveryPoint: Offset },
): LeaderEpochFileCache {
  // Deleted batches, which all were on the disk before the start was raised, speak for the entry of their epoch.
  const below = entries.filter(
    ({ epoch, startOffset }) => startOffset < log.recoveryPoint || log.survey.deletedEpochs.has(epoch),
  );
  const latest = below.at(-1)?.epoch ?? -1;
  const scanned = log.survey.seenEpochs.filter((seen) => seen.epoch > latest && seen.startOffset >= log.recoveryPoint);
  // The file may rightly begin an epoch before its first batch, where the leader took over.
  const above = scanned.map(
    (seen) =>
      entries.find(
        (entry) =>
          entry.epoch === seen.epoch &&
          entry.startOffset >= seen.earliestStartOffset &&
          entry.startOffset <= seen.startOffset,
      ) ?? seen,
  );
  const merged = [...below, ...above].map(({ epoch, startOffset }) => ({ epoch, startOffset }));
  return LeaderEpochFileCache.rebuilt(files, directory, merged);
}

/** Why the entries cannot be those of this log, or `undefined`: they must name every epoch of its batches, from where it begins. */
function epochProblem(
  entries: readonly EpochEntry[],
  seenEpochs: readonly SeenEpoch[],
  log: { logStartOffset: Offset; logEndOffset: Offset },
): string | undefined {
  const first = entries[0];
  for (const seen of seenEpochs) {
    const entry = entries.find(({ epoch }) => epoch === seen.epoch);
    if (entry === undefined) return `lacks epoch ${seen.epoch}`;
    const latestStart = Math.max(seen.startOffset, log.logStartOffset);
    if (entry.startOffset > latestStart)
      return `begins epoch ${seen.epoch} at ${entry.startOffset}, its first batch is at ${seen.startOffset}`;
    if (entry.startOffset < seen.earliestStartOffset && entry !== first)
      return `begins epoch ${seen.epoch} at ${entry.startOffset}, before the end of the epoch below it`;
    const above = entries.find(({ epoch, startOffset }) => epoch > seen.epoch && startOffset <= seen.lastOffset);
    if (above !== undefined)
      return `begins epoch ${above.epoch} at ${above.startOffset}, where epoch ${seen.epoch} goes on to ${seen.lastOffset}`;
  }
  return undefined;
}
