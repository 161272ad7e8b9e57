import { toOffset } from "@tidemark/base";
import type { BufferPool, Offset } from "@tidemark/base";
import { readBatchHeader, RECORD_BATCH_OVERHEAD } from "@tidemark/wire";
import { LogError } from "./error.ts";
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
  /** Nobody else's memory: it aliases nothing. Empty when there is nothing to read yet. */
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
    const fromBytes = await segment.positionOf(fromOffset);
    if (fromBytes === undefined) continue;
    let toBytes = segment === active ? activeBytes : segment.sizeBytes;
    const isLimitBehind =
      limitOffset === logEndOffset || (segments[at + 1]?.baseOffset ?? limitOffset + 1) <= limitOffset;
    if (!isLimitBehind) toBytes = (await segment.positionOf(limitOffset)) ?? toBytes;
    for (const range of segment.damaged) if (range.fromBytes >= fromBytes) toBytes = Math.min(toBytes, range.fromBytes);
    if (fromBytes >= toBytes) return empty;
    const result = await readSlice(segment, { fromBytes, toBytes }, options);
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
  const first = segment.findBatchNow(fromOffset);
  if (first === undefined) return undefined;
  const { header, positionBytes } = first;
  const minBytes = (options.minOneBatch ?? true) ? header.sizeInBytes : 0;
  const sizeBytes = Math.min(toBytes - positionBytes, Math.max(options.maxBytes, minBytes));
  if (sizeBytes <= 0) return { bytes: new Uint8Array(0), startOffset: fromOffset };
  const bytes = options.pool?.take(sizeBytes) ?? new Uint8Array(sizeBytes);
  if (sizeBytes <= first.bytes.length) bytes.set(first.bytes.subarray(0, sizeBytes));
  else if (!segment.readNow(bytes, positionBytes)) {
    options.pool?.giveBack(bytes);
    return undefined;
  }
  // As `readLog`, which knows no more than the slice.
  const startOffset = sizeBytes < RECORD_BATCH_OVERHEAD ? fromOffset : toOffset(header.baseOffset);
  if (options.isolation !== "read_committed") return { bytes, startOffset };
  const endBytes = positionBytes + sizeBytes;
  return {
    bytes,
    startOffset,
    abortedTransactions: abortedIn(view, at, startOffset, segment.index.offsetAtOrAbove(endBytes)),
  };
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

async function readSlice(
  segment: LogSegment,
  range: { fromBytes: number; toBytes: number },
  options: ReadOptions,
): Promise<ReadResult> {
  const { fromBytes } = range;
  const availableBytes = range.toBytes - fromBytes;
  const minOneBatch = options.minOneBatch ?? true;
  const wantedBytes = Math.min(
    availableBytes,
    minOneBatch ? Math.max(options.maxBytes, RECORD_BATCH_OVERHEAD) : options.maxBytes,
  );
  if (wantedBytes <= 0) return { bytes: new Uint8Array(0), startOffset: options.fromOffset };
  const take = (count: number): Uint8Array => options.pool?.take(count) ?? new Uint8Array(count);
  return segment.use(async (file) => {
    const bytes = take(wantedBytes);
    await fill(bytes, 0);
    const first = readBatchHeader(bytes, 0);
    const startOffset = first.type === "batch" ? toOffset(first.header.baseOffset) : options.fromOffset;
    if (!minOneBatch || first.type !== "batch") return { bytes, startOffset };
    const sizeBytes = Math.min(availableBytes, Math.max(options.maxBytes, first.header.sizeInBytes));
    if (sizeBytes === bytes.length) return { bytes, startOffset };
    if (sizeBytes < bytes.length) return { bytes: bytes.subarray(0, sizeBytes), startOffset };
    const whole = take(sizeBytes);
    whole.set(bytes);
    options.pool?.giveBack(bytes);
    await fill(whole, wantedBytes);
    return { bytes: whole, startOffset };

    async function fill(target: Uint8Array, filledBytes: number): Promise<void> {
      const rest = target.subarray(filledBytes);
      const count = await segment.io.read(file, rest, fromBytes + filledBytes);
      // Short data must never look like the end of the log.
      if (count < rest.length)
        throw new LogError({ code: "KAFKA_STORAGE_ERROR", failure: "IO_ERROR", path: segment.path, operation: "read" });
    }
  });
}
