import { fail, toOffset } from "@tidemark/base";
import type { BufferPool, Offset } from "@tidemark/base";
import { readBatchHeader, RECORD_BATCH_OVERHEAD } from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import type { BatchPlace } from "./batch-places.ts";
import { LogError } from "./error.ts";
import { readMemory } from "./read-memory.ts";
import { refuseDamage } from "./recovery-report.ts";
import type { DamagedRange } from "./recovery-report.ts";
import type { LogSegment } from "./segment.ts";
import type { AbortedTransaction } from "./transaction-index.ts";

export interface ReadOptions {
  /** Where to begin: the slice starts with the batch that holds this offset, or with the next one if none does. */
  readonly fromOffset: Offset;
  /** The slice has at most this many bytes; its end may cut a batch. */
  readonly maxBytes: number;
  /** Batches that reach this offset are left out. Default: the log end. */
  readonly limitOffset?: Offset;
  /** Makes the slice hold the first batch whole, however large. Default true. */
  readonly minOneBatch?: boolean;
  /**
   * `read_committed` sees nothing at or above the last stable offset, and is told which transactions of what it got were aborted.
   * Default `read_uncommitted`.
   */
  readonly isolation?: "read_uncommitted" | "read_committed";
  /** Where the memory of the slice comes from; the caller may give it back. Default: fresh memory. */
  readonly pool?: BufferPool;
}

export interface ReadResult {
  /** Nobody else's memory, though small results lie in one `buffer` (`readMemory`). Empty when there is nothing to read yet. */
  readonly bytes: Uint8Array;
  /** Base offset of the first batch; `fromOffset` when there is none. */
  readonly startOffset: Offset;
  /**
   * With `read_committed`: transactions that were aborted and may have records in the slice, by their markers' order. A reader drops a producer's
   * records from the first offset on, until it meets the producer's abort marker.
   */
  readonly abortedTransactions?: readonly AbortedTransaction[];
}

/** What a read sees: one moment of the log. */
export interface LogView {
  readonly segments: readonly LogSegment[];
  readonly logStartOffset: Offset;
  readonly logEndOffset: Offset;
  readonly damaged: readonly DamagedRange[];
}

/**
 * Reads a slice of one segment, as Kafka does.
 * @throws LogError OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE inside a damaged range; KAFKA_STORAGE_ERROR
 * @throws FileError
 * Source: apache/kafka storage/.../internals/log/{LocalLog,LogSegment}.java, read
 */
export async function readLog(view: LogView, options: ReadOptions): Promise<ReadResult> {
  return (
    (await readView(view, options, "placed")) ?? (await readView(view, options, "found")) ?? fail("found is read", {})
  );
}

/**
 * @param way `placed`: where lookups have met the place before, it is believed until its header has been read; `found`: it is looked for
 * @returns `undefined` when another batch lies there
 */
async function readView(view: LogView, options: ReadOptions, way: "placed" | "found"): Promise<ReadResult | undefined> {
  const { fromOffset } = options;
  const { logEndOffset, segments } = view;
  const limitOffset = limitOf(view, options);
  const empty: ReadResult = { bytes: new Uint8Array(0), startOffset: fromOffset };
  if (fromOffset >= limitOffset) return empty;
  // Taken together with the log end: an append that comes while this reads must not move the end of the slice.
  const active = segments.at(-1);
  const activeBytes = active?.sizeBytes ?? 0;
  refuseDamage(view.damaged, fromOffset);

  for (let at = floorSegment(segments, fromOffset); at < segments.length; at += 1) {
    const segment = segments[at];
    if (segment === undefined) break;
    const place = way === "placed" ? segment.placeOf(fromOffset) : undefined;
    const fromBytes = place?.positionBytes ?? (await segment.positionOf(fromOffset));
    if (fromBytes === undefined) continue;
    let toBytes = segment === active ? activeBytes : segment.sizeBytes;
    const isLimitBehind =
      limitOffset === logEndOffset || (segments[at + 1]?.baseOffset ?? limitOffset + 1) <= limitOffset;
    if (!isLimitBehind) toBytes = (await segment.positionOf(limitOffset)) ?? toBytes;
    for (const range of segment.damaged) if (range.fromBytes >= fromBytes) toBytes = Math.min(toBytes, range.fromBytes);
    if (fromBytes >= toBytes) return empty;
    const result = await readSlice(segment, { fromBytes, toBytes, place }, options);
    if (result === undefined) return undefined;
    if (options.isolation !== "read_committed") return result;
    const endBytes = fromBytes + result.bytes.length;
    const indexed = await segment.indexedOffsetAtOrAbove(endBytes);
    return { ...result, abortedTransactions: abortedIn(view, at, result.startOffset, indexed) };
  }
  return empty;
}

/**
 * As `readLog`, at once, for the usual case: nothing is damaged, the first segment with the offset has its batch, its file is open, and the
 * event-loop policy lets it be read directly.
 * @returns `undefined` when it is another case
 * @throws LogError OFFSET_OUT_OF_RANGE
 * @throws FileError
 */
export function readLogNow(view: LogView, options: ReadOptions): ReadResult | undefined {
  const { fromOffset } = options;
  const { segments } = view;
  const limitOffset = limitOf(view, options);
  if (fromOffset >= limitOffset) return { bytes: new Uint8Array(0), startOffset: fromOffset };
  const at = floorSegment(segments, fromOffset);
  const segment = segments[at];
  if (segment === undefined || view.damaged.length > 0) return undefined;
  let toBytes = segment.sizeBytes;
  if (limitOffset < view.logEndOffset && (segments[at + 1]?.baseOffset ?? limitOffset + 1) > limitOffset) {
    const limit = segment.findBatchNow(limitOffset);
    if (limit === undefined) return undefined;
    toBytes = limit.positionBytes;
  }
  const slice = readPlaceNow(segment, toBytes, options) ?? findAndReadNow(segment, toBytes, options);
  if (slice === undefined) return undefined;
  const { bytes, startOffset, positionBytes } = slice;
  if (options.isolation !== "read_committed" || bytes.length === 0) return { bytes, startOffset };
  const indexed = segment.index.offsetAtOrAbove(positionBytes + bytes.length);
  return { bytes, startOffset, abortedTransactions: abortedIn(view, at, startOffset, indexed) };
}

/** A slice, and where it lies. */
interface SliceNow extends ReadResult {
  readonly positionBytes: number;
}

/** A slice whose place lookups have met before: its bytes are the only ones that are read. `undefined` when it cannot be had like that. */
function readPlaceNow(segment: LogSegment, toBytes: number, options: ReadOptions): SliceNow | undefined {
  const place = segment.placeOf(options.fromOffset);
  if (place === undefined) return undefined;
  const { positionBytes } = place;
  const sizeBytes = sliceBytes(place, toBytes - positionBytes, options);
  if (sizeBytes < RECORD_BATCH_OVERHEAD) return undefined;
  const bytes = takeMemory(sizeBytes, options);
  const header = segment.readNow(bytes, positionBytes) ? headerOf(place, bytes) : undefined;
  if (header !== undefined) return { bytes, startOffset: toOffset(header.baseOffset), positionBytes };
  options.pool?.giveBack(bytes);
  return undefined;
}

function findAndReadNow(segment: LogSegment, toBytes: number, options: ReadOptions): SliceNow | undefined {
  const { fromOffset } = options;
  const first = segment.findBatchNow(fromOffset);
  if (first === undefined) return undefined;
  const { header, positionBytes } = first;
  const sizeBytes = sliceBytes(header, toBytes - positionBytes, options);
  if (sizeBytes <= 0) return { bytes: new Uint8Array(0), startOffset: fromOffset, positionBytes };
  const bytes = takeMemory(sizeBytes, options);
  if (sizeBytes <= first.bytes.length) bytes.set(first.bytes.subarray(0, sizeBytes));
  else if (!segment.readNow(bytes, positionBytes)) {
    options.pool?.giveBack(bytes);
    return undefined;
  }
  // As `readLog`, which knows no more than the slice.
  return {
    bytes,
    startOffset: sizeBytes < RECORD_BATCH_OVERHEAD ? fromOffset : toOffset(header.baseOffset),
    positionBytes,
  };
}

/** How much is read of so many bytes from the begin of a batch on. */
function sliceBytes(
  { sizeInBytes }: Pick<BatchPlace, "sizeInBytes">,
  availableBytes: number,
  { maxBytes, minOneBatch = true }: ReadOptions,
): number {
  return Math.min(availableBytes, Math.max(maxBytes, minOneBatch ? sizeInBytes : 0));
}

function takeMemory(bytes: number, { pool }: ReadOptions): Uint8Array {
  return pool?.take(bytes) ?? readMemory(bytes);
}

/** The header that the bytes begin with, if it is the one that was met there. */
function headerOf(place: BatchPlace, bytes: Uint8Array): BatchHeader | undefined {
  const scan = readBatchHeader(bytes, 0);
  if (scan.type !== "batch") return undefined;
  const { lastOffset, sizeInBytes } = scan.header;
  return lastOffset === place.lastOffset && sizeInBytes === place.sizeInBytes ? scan.header : undefined;
}

/** Batches that reach it are left out. @throws LogError OFFSET_OUT_OF_RANGE when the read begins outside of the log */
function limitOf({ logStartOffset, logEndOffset }: LogView, { fromOffset, limitOffset }: ReadOptions): number {
  if (fromOffset < logStartOffset || fromOffset > logEndOffset) {
    throw new LogError({ code: "OFFSET_OUT_OF_RANGE", fetchOffset: fromOffset, logStartOffset, logEndOffset });
  }
  return Math.min(limitOffset ?? logEndOffset, logEndOffset);
}

/**
 * The aborted transactions of a slice, and some that lie a little behind it: the index knows its end only about.
 * Source: apache/kafka storage/.../internals/log/LocalLog.java, addAbortedTransactions
 */
function abortedIn(
  view: LogView,
  segmentAt: number,
  startOffset: Offset,
  indexedOffset: number | undefined,
): AbortedTransaction[] {
  const { segments, logEndOffset } = view;
  const upperBound = indexedOffset ?? segments[segmentAt + 1]?.baseOffset ?? logEndOffset;
  const found: AbortedTransaction[] = [];
  for (const { transactionIndex } of segments.slice(segmentAt))
    if (transactionIndex.collect(startOffset, upperBound, found)) break;
  return found;
}

/** The last segment with base offset <= `offset`; 0 when the first one begins above it. */
export function floorSegment(segments: readonly LogSegment[], offset: number): number {
  let low = 0;
  let high = segments.length - 1;
  while (low <= high) {
    const middle = (low + high) >>> 1;
    if ((segments[middle]?.baseOffset ?? 0) <= offset) low = middle + 1;
    else high = middle - 1;
  }
  return Math.max(high, 0);
}

/** @returns `undefined` when another batch than that of the place lies there */
async function readSlice(
  segment: LogSegment,
  range: { readonly fromBytes: number; readonly toBytes: number; readonly place: BatchPlace | undefined },
  options: ReadOptions,
): Promise<ReadResult | undefined> {
  const { fromBytes, place } = range;
  const availableBytes = range.toBytes - fromBytes;
  const minOneBatch = options.minOneBatch ?? true;
  const sizeInBytes = place?.sizeInBytes ?? RECORD_BATCH_OVERHEAD;
  const wantedBytes = sliceBytes({ sizeInBytes }, availableBytes, options);
  if (wantedBytes <= 0) return { bytes: new Uint8Array(0), startOffset: options.fromOffset };
  return segment.use(async (file) => {
    const bytes = takeMemory(wantedBytes, options);
    const isFull = await fill(bytes, 0);
    if (place !== undefined && (!isFull || headerOf(place, bytes) === undefined)) {
      options.pool?.giveBack(bytes);
      return undefined;
    }
    // Short data must never look like the end of the log.
    if (!isFull) throw cutShort(segment);
    const first = readBatchHeader(bytes, 0);
    const startOffset = first.type === "batch" ? toOffset(first.header.baseOffset) : options.fromOffset;
    if (!minOneBatch || first.type !== "batch") return { bytes, startOffset };
    const sizeBytes = sliceBytes(first.header, availableBytes, options);
    if (sizeBytes === bytes.length) return { bytes, startOffset };
    if (sizeBytes < bytes.length) return { bytes: bytes.subarray(0, sizeBytes), startOffset };
    const whole = takeMemory(sizeBytes, options);
    whole.set(bytes);
    options.pool?.giveBack(bytes);
    if (!(await fill(whole, wantedBytes))) throw cutShort(segment);
    return { bytes: whole, startOffset };

    async function fill(target: Uint8Array, filledBytes: number): Promise<boolean> {
      const rest = target.subarray(filledBytes);
      return (await segment.io.read(file, rest, fromBytes + filledBytes)) === rest.length;
    }
  });
}

function cutShort({ path }: LogSegment): LogError {
  return new LogError({ code: "KAFKA_STORAGE_ERROR", failure: "IO_ERROR", path, operation: "read" });
}
