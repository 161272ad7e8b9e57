import { toOffset } from "@tidemark/base";
import { decodeLeaderEpochCheckpoint, LEADER_EPOCH_CHECKPOINT } from "@tidemark/epoch-cache";
import { CLEAN_SHUTDOWN_FILE } from "@tidemark/log";
import type { PartitionLog, ReadResult } from "@tidemark/log";
import type { SimulatedDisk } from "@tidemark/simulator";
import { checkCrc, endTransactionMarkerOf, isControlBatch, isTransactional, scanBatch } from "@tidemark/wire";
import { concat, LogModel, PRODUCER_ID } from "./log-model.ts";
import type { ModelAborted, ModelBatch, ModelEpoch } from "./log-model.ts";
import type { Obligation } from "./history.ts";

const OFFSET_INDEX_ENTRY_BYTES = 8;
const TIME_INDEX_ENTRY_BYTES = 12;
const TRANSACTION_INDEX_ENTRY_BYTES = 34;
const NOTHING = new Uint8Array(0);

/** A segment as its file shows it, by the wire format alone. */
interface SegmentOnDisk {
  readonly baseOffset: number;
  readonly bytes: Uint8Array;
  readonly batches: readonly (ModelBatch & { readonly positionBytes: number; readonly maxTimestamp: number })[];
  readonly index: Uint8Array | undefined;
  readonly timeIndex: Uint8Array | undefined;
  readonly transactionIndex: Uint8Array;
}

/** What is wrong; thrown by the checks below, caught by the explorer, which knows the crash that led there. */
export class Violation extends Error {
  override readonly name = "Violation";
}

/** @param invariant id in the list of safety invariants, in front of the message */
export function demand(condition: boolean, invariant: string, message: () => string): asserts condition {
  if (!condition) throw new Violation(`${invariant}: ${message()}`);
}

/** The segment files of a partition directory. @throws Violation unless they are whole batches, CRC-valid, in order, without overlap */
export function readSegments(files: ReadonlyMap<string, Uint8Array>, directory: string): SegmentOnDisk[] {
  const segments: SegmentOnDisk[] = [];
  for (const [path, bytes] of [...files].sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (!path.startsWith(`${directory}/`) || !path.endsWith(".log")) continue;
    const baseOffset = Number(path.slice(directory.length + 1, -".log".length));
    const stem = path.slice(0, -".log".length);
    const [index, timeIndex] = [files.get(`${stem}.index`), files.get(`${stem}.timeindex`)];
    const transactionIndex = files.get(`${stem}.txnindex`) ?? NOTHING;
    segments.push({ baseOffset, bytes, batches: readBatches(path, bytes), index, timeIndex, transactionIndex });
  }
  let endOffset = segments[0]?.baseOffset ?? 0;
  for (const { baseOffset, batches } of segments) {
    demand(
      baseOffset >= endOffset,
      "S11",
      () => `segment ${baseOffset} overlaps the one before it, which ends at ${endOffset}`,
    );
    endOffset = baseOffset;
    for (const batch of batches) {
      demand(batch.baseOffset >= endOffset, "S13", () => `batch ${batch.baseOffset} after offset ${endOffset - 1}`);
      endOffset = batch.lastOffset + 1;
    }
  }
  return segments;
}

function readBatches(path: string, bytes: Uint8Array): SegmentOnDisk["batches"] {
  const batches: SegmentOnDisk["batches"][number][] = [];
  for (let at = 0; at < bytes.length;) {
    const scan = scanBatch(bytes, at);
    demand(scan.type === "batch", "S13", () => `${path}: no whole batch at byte ${at} of ${bytes.length}`);
    const { header } = scan;
    demand(checkCrc(bytes, header), "S13", () => `${path}: CRC of the batch at byte ${at}`);
    batches.push({
      baseOffset: header.baseOffset,
      lastOffset: header.lastOffset,
      epoch: header.partitionLeaderEpoch,
      bytes: bytes.subarray(at, at + header.sizeInBytes),
      producerId: header.producerId,
      isTransactional: isTransactional(header),
      marker: isControlBatch(header) ? endTransactionMarkerOf(bytes, header)?.type : undefined,
      nextSequence: header.baseSequence + header.recordsCount,
      positionBytes: at,
      maxTimestamp: header.maxTimestamp,
    });
    at += header.sizeInBytes;
  }
  return batches;
}

/**
 * What an open log holds, read from its files and from its own answers, which must agree.
 * @throws Violation
 */
export async function readLog(log: PartitionLog, disk: SimulatedDisk): Promise<LogModel> {
  const segments = readSegments(disk.image().files(), log.directory);
  const batches = segments.flatMap((segment) => segment.batches);
  const remembered = log.nextSequence(PRODUCER_ID);
  const model = new LogModel(log.logStartOffset, log.logEndOffset, batches, log.epochEntries, remembered);
  demand(log.damaged.length === 0, "S13", () => `damaged: ${JSON.stringify(log.damaged)}`);
  demand(
    log.segments.map(({ baseOffset, sizeBytes }) => `${baseOffset}:${sizeBytes}`).join() ===
      segments.map(({ baseOffset, bytes }) => `${baseOffset}:${bytes.length}`).join(),
    "S11",
    () => `segments in memory ${JSON.stringify(log.segments)}, on disk ${segments.map((s) => s.baseOffset).join()}`,
  );
  demand(
    model.endOffset >= model.batchesEndOffset,
    "S6",
    () => `LEO ${model.endOffset} below ${model.batchesEndOffset}`,
  );
  demand(
    log.recoveryPoint <= log.logEndOffset,
    "S6",
    () => `recovery point ${log.recoveryPoint} > LEO ${log.logEndOffset}`,
  );
  demand(
    log.logStartOffset <= log.logEndOffset,
    "S6",
    () => `log start ${log.logStartOffset} > LEO ${log.logEndOffset}`,
  );
  if (log.config.flush === "always") {
    demand(
      log.flushedEndOffset === log.logEndOffset,
      "S12",
      () => `flushed end ${log.flushedEndOffset}, LEO ${log.logEndOffset}`,
    );
  }
  checkEpochs(model);
  checkProducer(log, model);
  await checkTransactions(log, model);
  await checkReads(log, model);
  return model;
}

/**
 * As `readLog`, for a log that was just opened: an open has put indexes and epoch file right on the disk too.
 * @throws Violation
 */
export async function readOpenedLog(log: PartitionLog, disk: SimulatedDisk): Promise<LogModel> {
  const model = await readLog(log, disk);
  checkSideFiles(disk.image().files(), log.directory, model);
  return model;
}

/** The log goes on with its producer where its last batch ends; without one it may remember it, and then where all that it had ended. */
function checkProducer(log: PartitionLog, model: LogModel): void {
  const next = log.nextSequence(PRODUCER_ID);
  const isEmpty = model.batches.length === 0;
  demand(!isEmpty || next === undefined || next <= log.logEndOffset, "S17", () => `next sequence ${next} of none`);
  demand(next === model.nextSequence, "S17", () => `next sequence ${next} in place of ${model.nextSequence}`);
}

/** The last stable offset is where the oldest open transaction begins, and a reader is told of every abort that concerns it. */
async function checkTransactions(log: PartitionLog, model: LogModel): Promise<void> {
  const { aborted, firstOpenOffset } = model.transactions;
  const stable = log.lastStableOffset(log.logEndOffset);
  const wanted = firstOpenOffset ?? model.endOffset;
  demand(stable === wanted, "S18", () => `last stable offset ${stable} in place of ${wanted}`);
  for (const { producerId, firstOffset } of aborted) {
    const told = (await readAt(log, firstOffset, "read_committed")).abortedTransactions ?? [];
    const isTold = told.some((entry) => entry.producerId === producerId && entry.firstOffset === firstOffset);
    demand(isTold, "S18", () => `a reader of ${firstOffset} is not told that ${producerId} aborted`);
  }
}

function decodeTransactionIndex(bytes: Uint8Array): ModelAborted[] {
  demand(bytes.length % TRANSACTION_INDEX_ENTRY_BYTES === 0, "S10", () => `transaction index of ${bytes.length} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const entries: ModelAborted[] = [];
  for (let at = 0; at < bytes.length; at += TRANSACTION_INDEX_ENTRY_BYTES) {
    const [producerId, firstOffset, lastOffset, lastStableOffset] = [2, 10, 18, 26].map((field) =>
      Number(view.getBigInt64(at + field)),
    ) as [number, number, number, number];
    entries.push({ producerId, firstOffset, lastOffset, lastStableOffset });
  }
  return entries;
}

/** Epochs rise, and each batch's own is the one that the entries give for its offset. */
function checkEpochs(model: LogModel): void {
  const { epochs } = model;
  const show = (): string => epochs.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
  for (const [at, entry] of epochs.entries()) {
    const before = epochs[at - 1];
    demand(
      before === undefined || (before.epoch < entry.epoch && before.startOffset < entry.startOffset),
      "S9",
      () => `epochs do not increase: ${show()}`,
    );
    demand(entry.startOffset <= model.endOffset, "S9", () => `epochs ${show()} above LEO ${model.endOffset}`);
  }
  let at = -1;
  for (const batch of model.batches) {
    if (batch.baseOffset < model.startOffset) continue; // Deleted: the epochs begin at the log start.
    while ((epochs[at + 1]?.startOffset ?? Number.POSITIVE_INFINITY) <= batch.baseOffset) at++;
    demand(
      epochs[at]?.epoch === batch.epoch,
      "S9",
      () => `batch ${batch.baseOffset} has epoch ${batch.epoch}, the entries are ${show()}`,
    );
  }
}

/** The reader gives every batch, found by its last offset, through whatever index there is. */
async function checkReads(log: PartitionLog, model: LogModel): Promise<void> {
  for (const batch of model.batches) {
    if (batch.lastOffset < log.logStartOffset) continue;
    const { bytes, startOffset } = await readAt(log, batch.lastOffset);
    demand(
      startOffset === batch.baseOffset && isEqual(bytes, batch.bytes),
      "S15",
      () => `read of offset ${batch.lastOffset} gave ${bytes.length} bytes from offset ${startOffset}`,
    );
  }
}

async function readAt(
  log: PartitionLog,
  offset: number,
  isolation: "read_committed" | "read_uncommitted" = "read_uncommitted",
): Promise<ReadResult> {
  try {
    return await log.read({ fromOffset: toOffset(offset), maxBytes: 1, isolation, limitOffset: log.logEndOffset });
  } catch (error) {
    throw new Violation(`S15: read of offset ${offset}: ${String(error)}`);
  }
}

/** @throws Violation unless the log is one that the crash may leave */
export function checkObligation(found: LogModel, { candidates, floorOffset }: Obligation): void {
  const match = candidates.find((model) => isPrefixOf(found, model));
  demand(
    match !== undefined,
    "S13",
    () => `batches are no prefix of ${candidates.map(describe).join(" or ")}: ${describe(found)}`,
  );
  const isOtherStart = found.startOffset !== match.startOffset;
  demand(
    !isOtherStart || candidates.some((model) => model.startOffset === found.startOffset),
    "S6",
    () => `log start ${found.startOffset} of ${describe(found)}`,
  );
  const safe = candidates.find((model) => isPrefixOf(found, model) && lacksNothingBelow(found, model, floorOffset));
  demand(
    safe !== undefined,
    "S12",
    () => `lost batches below ${floorOffset} of ${describe(match)}: ${describe(found)}`,
  );
  // Above the last batch the end may lie only where a truncation put it, or where the next batch leaves offsets out.
  const mayEndAt = (model: LogModel): boolean =>
    model.endOffset === found.endOffset ||
    found.endOffset <= (missingBatch(found, model)?.baseOffset ?? Number.NEGATIVE_INFINITY);
  demand(
    found.endOffset === found.batchesEndOffset || candidates.some(mayEndAt),
    "S13",
    () => `LEO ${found.endOffset} of ${describe(found)}`,
  );
  checkKnownEpochs(found, candidates);
}

/** Batches of both from where neither has deleted anything. */
function compared(found: LogModel, model: LogModel): readonly [readonly ModelBatch[], readonly ModelBatch[]] {
  const fromOffset = Math.max(found.startOffset, model.startOffset);
  return [found.batchesFrom(fromOffset), model.batchesFrom(fromOffset)];
}

function isPrefixOf(found: LogModel, model: LogModel): boolean {
  const [ours, wanted] = compared(found, model);
  return ours.length <= wanted.length && ours.every((batch, at) => isEqual(batch.bytes, wanted[at]?.bytes ?? NOTHING));
}

/** The batch that comes next in `model`, if `found` ends before it. */
function missingBatch(found: LogModel, model: LogModel): ModelBatch | undefined {
  const [ours, wanted] = compared(found, model);
  return wanted[ours.length];
}

function lacksNothingBelow(found: LogModel, model: LogModel, floorOffset: number): boolean {
  const missing = missingBatch(found, model);
  return missing === undefined || missing.baseOffset >= floorOffset;
}

/** No entry that nobody ever made: each is of a candidate, or begins with the first batch of its epoch, or at the log start above it. */
function checkKnownEpochs(found: LogModel, candidates: readonly LogModel[]): void {
  const isSame = (a: ModelEpoch, b: ModelEpoch): boolean => a.epoch === b.epoch && a.startOffset === b.startOffset;
  for (const entry of found.epochs) {
    const firstOffset = found.batches.find((batch) => batch.epoch === entry.epoch)?.baseOffset;
    const isKnown =
      candidates.some((model) => model.epochs.some((known) => isSame(known, entry))) ||
      (firstOffset !== undefined && Math.max(firstOffset, found.startOffset) === entry.startOffset);
    demand(isKnown, "S9", () => `epoch ${entry.epoch}@${entry.startOffset} was never begun`);
  }
}

/** @throws Violation unless batches, indexes and epoch file of a closed log are those of the model */
export function checkClosedFiles(disk: SimulatedDisk, directory: string, model: LogModel): void {
  const files = disk.image().files();
  const segments = checkSideFiles(files, directory, model);
  const visible = segments
    .flatMap((segment) => segment.batches)
    .filter((batch) => batch.lastOffset >= model.startOffset);
  const bytes = concat(visible.map((batch) => batch.bytes));
  demand(isEqual(bytes, model.bytes), "S15", () => `the files of the closed log hold ${bytes.length} bytes`);
  const leftovers = [...files.keys()].filter((name) => /\.(tmp|deleted|cleaned|swap)$/u.test(name));
  demand(leftovers.length === 0, "S13", () => `left over: ${leftovers.join()}`);
}

function checkSideFiles(files: ReadonlyMap<string, Uint8Array>, directory: string, model: LogModel): SegmentOnDisk[] {
  const segments = readSegments(files, directory);
  for (const segment of segments) {
    checkIndex(segment);
    checkTimeIndex(segment);
  }
  const written = segments.flatMap(({ transactionIndex }) => decodeTransactionIndex(transactionIndex));
  demand(
    JSON.stringify(written) === JSON.stringify(model.transactions.aborted),
    "S10",
    () => `transaction indexes hold ${JSON.stringify(written)}, not ${JSON.stringify(model.transactions.aborted)}`,
  );
  const entries = checkEpochFile(files, directory);
  demand(
    JSON.stringify(entries) === JSON.stringify(model.epochs),
    "S9",
    () => `epoch file holds ${JSON.stringify(entries)}, the log ${JSON.stringify(model.epochs)}`,
  );
  return segments;
}

/** A marker of a clean stop is there between the stop and the next start only. @throws Violation */
export function checkNoMarker(files: ReadonlyMap<string, Uint8Array>, directory: string): void {
  const path = `${directory}/${CLEAN_SHUTDOWN_FILE}`;
  demand(!files.has(path), "S13", () => "the marker of the clean stop before is still there");
}

/** The epoch file is replaced as a whole: also right after a crash it is absent or complete. @throws Violation, CheckpointError */
export function checkEpochFile(files: ReadonlyMap<string, Uint8Array>, directory: string): readonly ModelEpoch[] {
  const path = `${directory}/${LEADER_EPOCH_CHECKPOINT}`;
  const file = files.get(path);
  if (file === undefined) return [];
  demand(file.length > 0, "S9", () => "the epoch file is empty");
  return decodeLeaderEpochCheckpoint(file, path);
}

/** Each entry names a batch by its last offset and position, in rising order. Kafka: OffsetIndex.sanityCheck and more. */
function checkIndex({ baseOffset, index, batches }: SegmentOnDisk): void {
  demand(index !== undefined, "S10", () => `segment ${baseOffset} has no index`);
  demand(index.length % OFFSET_INDEX_ENTRY_BYTES === 0, "S10", () => `index of ${index.length} bytes`);
  const view = new DataView(index.buffer, index.byteOffset, index.byteLength);
  let lastPosition = -1;
  for (let at = 0; at < index.length; at += OFFSET_INDEX_ENTRY_BYTES) {
    const offset = baseOffset + view.getInt32(at);
    const positionBytes = view.getInt32(at + 4);
    const isBatch = batches.some((batch) => batch.lastOffset === offset && batch.positionBytes === positionBytes);
    demand(isBatch && positionBytes > lastPosition, "S10", () => `index entry ${offset} at byte ${positionBytes}`);
    lastPosition = positionBytes;
  }
}

/** Each entry names the batch that brought a timestamp above all before it, and the last one the largest of the segment. */
function checkTimeIndex({ baseOffset, timeIndex, batches }: SegmentOnDisk): void {
  demand(timeIndex !== undefined, "S10", () => `segment ${baseOffset} has no time index`);
  demand(timeIndex.length % TIME_INDEX_ENTRY_BYTES === 0, "S10", () => `time index of ${timeIndex.length} bytes`);
  const view = new DataView(timeIndex.buffer, timeIndex.byteOffset, timeIndex.byteLength);
  let lastTimestamp = -1;
  for (let at = 0; at < timeIndex.length; at += TIME_INDEX_ENTRY_BYTES) {
    const timestamp = Number(view.getBigInt64(at));
    const offset = baseOffset + view.getInt32(at + 8);
    const first = batches.find((batch) => batch.maxTimestamp >= timestamp);
    const isRight = first?.lastOffset === offset && first.maxTimestamp === timestamp && timestamp > lastTimestamp;
    demand(isRight, "S10", () => `time index entry ${timestamp} at offset ${offset}`);
    lastTimestamp = timestamp;
  }
  const largest = batches.reduce((max, batch) => Math.max(max, batch.maxTimestamp), -1);
  demand(lastTimestamp === largest, "S10", () => `time index ends at ${lastTimestamp}, its segment at ${largest}`);
}

function describe(model: LogModel): string {
  const batches = model.batches.map((batch) => `${batch.baseOffset}-${batch.lastOffset}`).join(" ");
  const epochs = model.epochs.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
  return `[${model.startOffset}, ${model.endOffset}) {${batches}} epochs {${epochs}}`;
}

function isEqual(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}
