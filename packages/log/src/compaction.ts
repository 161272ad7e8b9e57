import type { Offset, WorkerPool } from "@tidemark/base";
import { fail, readFully, toOffset, WorkerError } from "@tidemark/base";
import {
  checkCrc,
  codecId,
  compressionCodec,
  decompressBatch,
  deleteHorizonMs,
  emptyBatch,
  endTransactionMarkerOf,
  IN_POOL_BYTES_MIN,
  isControlBatch,
  rawRecords,
  rebuildBatch,
  recordsSection,
  scanBatch,
  WireError,
  withCompressedPayload,
} from "@tidemark/wire";
import type { BatchHeader, RawRecord } from "@tidemark/wire";
import { SEGMENT_BYTES_MAX } from "./config.ts";
import type { LogConfig } from "./config.ts";
import { LogError } from "./error.ts";
import { CLEANED_SUFFIX } from "./file-names.ts";
import { OFFSET_INDEX_ENTRY_BYTES } from "./offset-index.ts";
import { OffsetMap } from "./offset-map.ts";
import type { ProducerState } from "./producer-state.ts";
import { LogSegment } from "./segment.ts";
import type { SegmentSettings } from "./segment.ts";
import { TIME_INDEX_ENTRY_BYTES } from "./time-index.ts";
import { TransactionCleaning } from "./transaction-cleaning.ts";
import type { AbortedTransaction } from "./transaction-index.ts";

/**
 * Read and written at a time; a larger batch is read whole. What is done with a window holds up the event loop: some ms, and between two of
 * them others have their turn.
 */
const WINDOW_BYTES = 128 * 1024;
const RELATIVE_OFFSET_MAX = 2 ** 31 - 1;
/** A batch may decompress to so many times the largest that a leader takes. */
const DECOMPRESSED_BYTES_FACTOR = 64;

export interface Compaction {
  readonly workers: WorkerPool;
  readonly settings: SegmentSettings;
  readonly config: LogConfig;
  /** Sealed ones, ascending, from the log start on; all whose base offset lies below `firstUncleanableOffset`. */
  readonly segments: readonly LogSegment[];
  /** Below it keys are known to be single, but for later ones. */
  readonly firstDirtyOffset: Offset;
  /** The base offset of a segment, or the log's end. */
  readonly firstUncleanableOffset: Offset;
  readonly deleteRetentionMs: number;
  /** Of the map of keys. */
  readonly mapBytes: number;
  /** Of the whole log: the marker of a transaction may lie behind what is cleaned. */
  readonly abortedTransactions: readonly AbortedTransaction[];
  producers(): ProducerState["entries"];
  /** Throws when the log was cut, closed or failed meanwhile. */
  checkAborted(): void;
  /** Puts a cleaned segment, whose files are on the disk, in the place of its sources; removes it when the log was cut meanwhile. */
  swap(sources: readonly LogSegment[], cleaned: LogSegment): Promise<void>;
}

export interface CompactionResult {
  /** Up to here the log is clean now: where the next pass begins. */
  readonly cleanedEndOffset: Offset;
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  readonly keys: number;
}

/**
 * One pass over a log: of each key the last value stays, tombstones and markers go when their time has come.
 *
 * Reads the dirty part twice and the rest once. Memory: the map, two windows, the largest batch decompressed.
 * @throws LogError CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE for a batch that cannot be read; WORKER_FAILED. Then nothing of its group
 * is changed
 * Source: apache/kafka storage/.../internals/log/Cleaner.java
 */
export async function compactSegments(compaction: Compaction): Promise<CompactionResult> {
  const { segments } = compaction;
  const known = await mapKeys(compaction);
  const cleanedEndOffset = toOffset(known.latestOffset + 1);
  const pass: Pass = {
    ...known,
    nowMs: compaction.settings.clock.wallMs(),
    transactions: new TransactionCleaning(compaction.abortedTransactions, segments[0]?.baseOffset ?? 0),
  };
  let bytesAfter = 0;
  let bytesBefore = 0;
  for (const group of await groupSegments(segments, cleanedEndOffset, compaction)) {
    const cleaned = await cleanGroup(compaction, group, pass);
    bytesBefore += group.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    bytesAfter += cleaned.sizeBytes;
    await compaction.swap(group, cleaned);
  }
  return { cleanedEndOffset, bytesBefore, bytesAfter, keys: known.map.size };
}

interface KnownKeys {
  readonly map: OffsetMap;
  /** Of the last record that the map takes into account; one below the first dirty offset when it takes none. */
  readonly latestOffset: number;
}

interface Pass extends KnownKeys {
  readonly nowMs: number;
  readonly transactions: TransactionCleaning;
}

/** The last offset of each key of the dirty part, up to where the map is full. Aborted data does not count. */
async function mapKeys(compaction: Compaction): Promise<KnownKeys> {
  const { segments, firstDirtyOffset, firstUncleanableOffset } = compaction;
  const map = new OffsetMap(compaction.mapBytes);
  const dirty = segments.filter(
    (_segment, at) => (segments[at + 1]?.baseOffset ?? firstUncleanableOffset) > firstDirtyOffset,
  );
  const transactions = new TransactionCleaning(compaction.abortedTransactions, dirty[0]?.baseOffset ?? 0);
  let latestOffset = firstDirtyOffset - 1;
  for (const segment of dirty) {
    for await (const { header, bytes } of batchesOf(segment)) {
      compaction.checkAborted();
      if (isControlBatch(header)) {
        transactions.marker(header, endTransactionMarkerOf(bytes, header));
      } else if (!transactions.isAborted(header) && header.lastOffset >= firstDirtyOffset) {
        for (const record of await recordsOf(compaction, header, bytes)) {
          if (record.offset < firstDirtyOffset || record.key === null) continue;
          if (!map.put(record.key, record.offset)) return { map, latestOffset };
          latestOffset = record.offset;
        }
      }
      if (header.lastOffset > latestOffset) latestOffset = header.lastOffset;
    }
  }
  return { map, latestOffset: Math.max(latestOffset, firstUncleanableOffset - 1) };
}

/** Neighbours that together make one segment: by bytes, index entries and the reach of relative offsets. */
async function groupSegments(
  segments: readonly LogSegment[],
  endOffset: Offset,
  { config, firstUncleanableOffset }: Compaction,
): Promise<LogSegment[][]> {
  const groups: LogSegment[][] = [];
  let [bytes, offsets, times] = [0, 0, 0];
  for (const [at, segment] of segments.entries()) {
    if (segment.baseOffset >= endOffset) break;
    await segment.loadIndexes();
    const entries = { offsets: segment.index.count, times: segment.indexes.times.count };
    segment.unloadIndexes();
    const group = groups.at(-1);
    const lastOffsetMax = (segments[at + 1]?.baseOffset ?? firstUncleanableOffset) - 1;
    const fits =
      group !== undefined &&
      bytes + segment.sizeBytes <= config.segmentBytes &&
      (offsets + entries.offsets) * OFFSET_INDEX_ENTRY_BYTES <= config.segmentIndexBytes &&
      (times + entries.times) * TIME_INDEX_ENTRY_BYTES <= config.segmentIndexBytes &&
      (segment.sizeBytes === 0 || lastOffsetMax - (group[0]?.baseOffset ?? 0) <= RELATIVE_OFFSET_MAX);
    if (fits) {
      group.push(segment);
    } else {
      groups.push([segment]);
      [bytes, offsets, times] = [0, 0, 0];
    }
    bytes += segment.sizeBytes;
    offsets += entries.offsets;
    times += entries.times;
  }
  return groups;
}

/** Writes the `.cleaned` files of a group and syncs them. @throws as `compactSegments` */
async function cleanGroup(compaction: Compaction, group: readonly LogSegment[], pass: Pass): Promise<LogSegment> {
  const { settings, config } = compaction;
  const baseOffset = group[0]?.baseOffset ?? toOffset(0);
  const cleaned = await LogSegment.create({ ...settings, nameSuffix: CLEANED_SUFFIX }, baseOffset);
  let pending: Uint8Array[] = [];
  let pendingBytes = 0;
  const flush = async (): Promise<void> => {
    if (pendingBytes === 0) return;
    const joined = new Uint8Array(pendingBytes);
    let at = 0;
    for (const bytes of pending) {
      joined.set(bytes, at);
      at += bytes.length;
    }
    if (cleaned.sizeBytes + pendingBytes > SEGMENT_BYTES_MAX)
      throw new LogError({
        code: "RECORD_LIST_TOO_LARGE",
        sizeBytes: cleaned.sizeBytes + pendingBytes,
        limitBytes: SEGMENT_BYTES_MAX,
      });
    await cleaned.write(joined);
    for (const bytes of pending) cleaned.noteBatch(headerOf(bytes), config.indexIntervalBytes);
    pending = [];
    pendingBytes = 0;
  };
  try {
    for (const segment of group) {
      const producers = compaction.producers();
      for await (const { header, bytes } of batchesOf(segment)) {
        compaction.checkAborted();
        const retained = await retain(compaction, { header, bytes }, pass, producers, (aborted) =>
          cleaned.transactionIndex.append(aborted),
        );
        if (retained === undefined) continue;
        // What was read is in a window that moves on.
        pending.push(retained === bytes ? bytes.slice() : retained);
        pendingBytes += retained.length;
        if (pendingBytes >= WINDOW_BYTES) await flush();
      }
    }
    await flush();
    cleaned.isDirty = true;
    await cleaned.sync();
    cleaned.indexes.noteEnd();
    await cleaned.persistIndexes();
    return cleaned;
  } catch (error) {
    await discardCleaned(cleaned);
    throw error;
  }
}

/** Removes a segment that did not come to its place. What stays of it, the next open removes. */
export async function discardCleaned(cleaned: LogSegment): Promise<void> {
  await cleaned.close();
  await cleaned.remove().catch(() => undefined);
}

/** What stays of a batch: its own bytes, others, or nothing. */
async function retain(
  compaction: Compaction,
  { header, bytes }: { readonly header: BatchHeader; readonly bytes: Uint8Array },
  pass: Pass,
  producers: ProducerState["entries"],
  keepAborted: Parameters<TransactionCleaning["marker"]>[2],
): Promise<Uint8Array | undefined> {
  const isControl = isControlBatch(header);
  const horizon = deleteHorizonMs(header);
  const isDiscardable = isControl
    ? pass.transactions.marker(header, endTransactionMarkerOf(bytes, header), keepAborted)
    : pass.transactions.isAborted(header);
  const discardsRecords = isDiscardable && (!isControl || (horizon !== undefined && horizon <= pass.nowMs));
  const keepsHeader =
    isLastOfProducer(header, producers) || header.lastOffset + 1 === compaction.firstUncleanableOffset;
  let kept: readonly RawRecord[] = [];
  let isWhole = false;
  if (!discardsRecords) {
    const records = await recordsOf(compaction, header, bytes);
    kept = isControl
      ? records
      : records.filter((record) => isRetained(record, pass, horizon === undefined || pass.nowMs < horizon));
    isWhole = kept.length === records.length;
  }
  if (kept.length === 0) return keepsHeader ? emptyBatch(header) : undefined;
  const hasTombstone = kept.some(({ hasValue }) => !hasValue);
  const getsHorizon = horizon === undefined && (hasTombstone || (isControl && isDiscardable));
  if (isWhole && !getsHorizon) return bytes;
  const rebuilt = rebuildBatch(header, kept, getsHorizon ? pass.nowMs + compaction.deleteRetentionMs : horizon);
  return compressLike(compaction, header, rebuilt);
}

/** Kafka's rule for one record: the last of its key, and not a tombstone whose time has come. */
function isRetained(record: RawRecord, pass: Pass, retainsTombstones: boolean): boolean {
  if (record.offset > pass.latestOffset) return true;
  if (record.key === null) return false;
  return record.offset >= pass.map.get(record.key) && (record.hasValue || retainsTombstones);
}

/** The batch without which a log that is read again would not know the producer's sequence, or its epoch. */
function isLastOfProducer(header: BatchHeader, producers: ProducerState["entries"]): boolean {
  const entry = header.producerId < 0 ? undefined : producers.get(header.producerId);
  if (entry === undefined) return false;
  const last = entry.batches.at(-1);
  if (last !== undefined) return header.lastOffset === last.lastOffset;
  return isControlBatch(header) && header.producerEpoch === entry.producerEpoch;
}

async function recordsOf(compaction: Compaction, header: BatchHeader, bytes: Uint8Array): Promise<RawRecord[]> {
  const outputBytesMax = compaction.config.maxMessageBytes * DECOMPRESSED_BYTES_FACTOR;
  try {
    return rawRecords(header, await decompressBatch(compaction.workers, bytes, header, outputBytesMax));
  } catch (error) {
    throw readError(error, compaction, header);
  }
}

/** What is told of a batch whose records cannot be had, or not now. */
function readError(error: unknown, { settings }: Compaction, header: BatchHeader): unknown {
  if (!(error instanceof WireError || error instanceof WorkerError)) return error;
  const options = { cause: error };
  switch (error.code) {
    case "UNSUPPORTED_COMPRESSION_TYPE":
      return new LogError({ code: "UNSUPPORTED_COMPRESSION_TYPE", codecId: codecId(header) }, options);
    case "CLOSED":
    case "QUEUE_FULL":
    case "REQUEST_TIMED_OUT":
    case "WORKER_FAILED":
      return new LogError({ code: "WORKER_FAILED", reason: error.code }, options);
    default:
      return new LogError(
        {
          code: "CORRUPT_MESSAGE",
          path: settings.directory,
          positionBytes: 0,
          fromOffset: header.baseOffset,
          toOffset: header.lastOffset + 1,
          reason: error.message,
        },
        options,
      );
  }
}

/** A rebuilt batch with the codec of the one it was made of, even where that makes it larger: it may be read by its header. */
async function compressLike(compaction: Compaction, header: BatchHeader, batch: Uint8Array): Promise<Uint8Array> {
  const { workers } = compaction;
  const codec = compressionCodec(header);
  if (codec === "none") return batch;
  const payload = recordsSection(batch, headerOf(batch)).slice();
  const input = { codec, payload, level: undefined };
  const isSmall = payload.length < IN_POOL_BYTES_MIN[codec].compress;
  try {
    const compressed = isSmall ? workers.runNow("compress", input) : await workers.run("compress", input);
    return withCompressedPayload(batch, codec, compressed);
  } catch (error) {
    throw readError(error, compaction, header);
  }
}

/** Of a batch that was read or made here. */
function headerOf(batch: Uint8Array): BatchHeader {
  const scan = scanBatch(batch, 0);
  return scan.type === "batch" ? scan.header : fail("a batch that is kept is one", { reason: scan.type });
}

/** The batches of a segment, whole, in memory that moves on with the next one. @throws LogError CORRUPT_MESSAGE @throws FileError */
async function* batchesOf(segment: LogSegment): AsyncGenerator<{ header: BatchHeader; bytes: Uint8Array }> {
  const corrupt = (positionBytes: number, reason: string): LogError =>
    new LogError({
      code: "CORRUPT_MESSAGE",
      path: segment.path,
      positionBytes,
      fromOffset: undefined,
      toOffset: undefined,
      reason,
    });
  let window = new Uint8Array(Math.min(WINDOW_BYTES, segment.sizeBytes));
  for (let positionBytes = 0; positionBytes < segment.sizeBytes;) {
    const asked = Math.min(window.length, segment.sizeBytes - positionBytes);
    const from = positionBytes;
    // Through the pool, however small it is and wherever it lies: a pass that never waited would hold up the event loop to its end.
    const count = await segment.use((file) => readFully(file, window.subarray(0, asked), from));
    if (count < asked) throw corrupt(positionBytes, "incomplete");
    let at = 0;
    while (at < count) {
      const scan = scanBatch(window, at, count);
      if (scan.type === "corrupt") throw corrupt(positionBytes + at, scan.reason);
      if (scan.type === "incomplete") {
        if (positionBytes + at + scan.neededBytes > segment.sizeBytes) throw corrupt(positionBytes + at, "incomplete");
        if (scan.neededBytes > window.length) window = new Uint8Array(scan.neededBytes);
        break;
      }
      const { header } = scan;
      if (!checkCrc(window, header)) throw corrupt(positionBytes + at, "CRC");
      const bytes = window.subarray(at, at + header.sizeInBytes);
      yield { header: { ...header, positionBytes: 0 }, bytes };
      at += header.sizeInBytes;
    }
    positionBytes += at;
  }
}
