import { toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { LeaderEpochCache } from "@tidemark/epoch-cache";
import type { EpochEntry } from "@tidemark/epoch-cache";
import { endTransactionMarkerOf } from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import { OFFSET_INDEX_SUFFIX, segmentFileName, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX } from "./file-names.ts";
import { printOf } from "./log-seal.ts";
import type { LogState } from "./log-state.ts";
import type { ProducerReplay } from "./producer-replay.ts";
import type { LogSegment } from "./segment.ts";
import { walkSegment } from "./segment-walk.ts";
import { TransactionIndex } from "./transaction-index.ts";

/**
 * Bytes of batches in front of a snapshot of producers that are looked at for what it leaves out: all but the last batch of each producer.
 * Whoever repeats a batch that was sent before so many others is refused, as Kafka refuses it after any restart.
 */
const RECALLED_BYTES = 1024 ** 2;

/** What of a log's files is taken as it was left. */
export interface Trusted {
  /** So many segments from the first on. */
  readonly count: number;
  /** Where their batches end. */
  readonly endOffset: number;
  /** The epochs that began below. */
  readonly epochs: readonly EpochEntry[];
  /** After a clean stop: whether the whole log is as the stop left it. */
  readonly isStop: boolean;
  readonly indexesRebuilt: number;
}

export const NOTHING_TRUSTED: Trusted = { count: 0, endOffset: 0, epochs: [], isStop: false, indexesRebuilt: 0 };

export interface FoundLog {
  readonly segments: readonly LogSegment[];
  readonly fileBytes: readonly number[];
  /** Of the files in the directory. */
  readonly names: readonly string[];
  readonly state: LogState;
  readonly recoveryPoint: Offset;
  readonly logStartOffset: number;
  /** As the epoch file has them. */
  readonly epochs: readonly EpochEntry[];
  readonly wasCleanShutdown: boolean;
}

/**
 * Holds the files against what the state vouches for: their names, sizes, epochs and numbers of aborted transactions. Where all of it is as
 * it says, the segments below the first one that it does not speak of are taken as they were left; after a clean stop, that one too.
 *
 * Reads transaction indexes, and after a clean stop the end of the last segment: a constant amount for each segment at most. An index file
 * that is gone is made anew from its segment. Otherwise nothing is trusted, and nothing has changed.
 * @throws FileError
 */
export async function trustSealed(found: FoundLog): Promise<Trusted> {
  const { segments, fileBytes, state, recoveryPoint, logStartOffset, epochs } = found;
  const { seal } = state;
  if (seal === undefined) return NOTHING_TRUSTED;
  const { endBaseOffset } = seal;
  // Whoever lowered the recovery point wants to have looked at what lies above.
  if (recoveryPoint < (state.endBeforeGap(toOffset(endBaseOffset)) ?? endBaseOffset)) return NOTHING_TRUSTED;
  const transactionIndexes = await readTransactionIndexes(found);
  if (transactionIndexes === undefined) return NOTHING_TRUSTED;
  const sealed = segments.map(({ baseOffset }, at) => ({
    baseOffset,
    sizeBytes: fileBytes[at] ?? 0,
    transactionIndex: transactionIndexes[at] ?? new TransactionIndex(baseOffset),
  }));
  const covered = sealed.filter(({ baseOffset }) => baseOffset < endBaseOffset);
  if (printOf(covered, epochs, { logStartOffset, endOffset: endBaseOffset }) !== seal.print) return NOTHING_TRUSTED;
  // A crash may have taken the one behind them, or it was never made: then the last of them is the one that batches were appended to.
  const count = Math.min(covered.length, segments.length - 1);
  const next = segments[count];
  if (next === undefined) return NOTHING_TRUSTED;
  const nextBaseOffset = count < covered.length ? next.baseOffset : toOffset(endBaseOffset);
  let indexesRebuilt = 0;
  for (const [at, segment] of segments.slice(0, count).entries()) {
    segment.trust(fileBytes[at] ?? 0, segments[at + 1]?.baseOffset ?? endBaseOffset);
    segment.adoptTransactionIndex(sealed[at]?.transactionIndex ?? new TransactionIndex(segment.baseOffset), true);
    if (areIndexesThere(segment, found.names)) continue;
    await segment.rebuildIndexes();
    if (segment.damaged.length > 0) return NOTHING_TRUSTED;
    indexesRebuilt += 1;
  }
  const cache = new LeaderEpochCache(epochs);
  cache.truncateFromStart(logStartOffset);
  const last = sealed[count];
  const isStop =
    found.wasCleanShutdown &&
    last !== undefined &&
    count === segments.length - 1 &&
    last.baseOffset === endBaseOffset &&
    last.sizeBytes === seal.stop?.activeBytes &&
    printOf([last], epochs, { logStartOffset, endOffset: recoveryPoint }) === seal.stop.print &&
    (await trustActive(next, last, recoveryPoint));
  cache.truncateFromEnd(isStop ? recoveryPoint : nextBaseOffset);
  const endOffset = isStop ? recoveryPoint : (state.endBeforeGap(nextBaseOffset) ?? nextBaseOffset);
  return {
    count: isStop ? segments.length : count,
    endOffset,
    epochs: cache.entries,
    isStop,
    indexesRebuilt: indexesRebuilt + (isStop && next.indexes.areProven && next.sizeBytes > 0 ? 1 : 0),
  };
}

/** Of each segment; `undefined` when one of the files is no transaction index. */
async function readTransactionIndexes({
  segments,
  names,
}: FoundLog): Promise<readonly (TransactionIndex | undefined)[] | undefined> {
  const present = new Set(names);
  const indexes: (TransactionIndex | undefined)[] = [];
  for (const segment of segments) {
    if (!present.has(segmentFileName(segment.baseOffset, TRANSACTION_INDEX_SUFFIX))) {
      indexes.push(undefined);
      continue;
    }
    const index = await segment.readTransactionIndexFile();
    if (!(index instanceof TransactionIndex)) return undefined;
    indexes.push(index);
  }
  return indexes;
}

function areIndexesThere({ baseOffset }: LogSegment, names: readonly string[]): boolean {
  return [OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX].every((suffix) =>
    names.includes(segmentFileName(baseOffset, suffix)),
  );
}

/** Takes the last segment as a clean stop left it, if its batches end just where the log did. Its indexes are in memory then. */
async function trustActive(
  segment: LogSegment,
  { sizeBytes, transactionIndex }: { readonly sizeBytes: number; readonly transactionIndex: TransactionIndex },
  endOffset: Offset,
): Promise<boolean> {
  segment.trust(sizeBytes, endOffset);
  segment.adoptTransactionIndex(transactionIndex, true);
  await segment.loadIndexes();
  let lastEndOffset: number = segment.baseOffset;
  const end = await segment.walk(segment.index.lastEntry?.positionBytes ?? 0, undefined, ({ lastOffset }) => {
    lastEndOffset = lastOffset + 1;
  });
  if (end.type !== "end" || lastEndOffset !== endOffset || segment.damaged.length > 0) {
    segment.reset();
    return false;
  }
  await segment.firstTimestamp();
  return true;
}

/**
 * Brings the producers' state from its snapshot to the end of trusted segments, by the headers of their batches. A few batches in front of the
 * snapshot are looked at too, for what it leaves out.
 * @returns false when what should be batches is none
 * @throws FileError
 */
export async function replayTrusted(
  segments: readonly LogSegment[],
  endOffset: number,
  replay: ProducerReplay,
): Promise<boolean> {
  const isAtEnd = replay.startOffset >= endOffset;
  const from = isAtEnd
    ? segments.length
    : Math.max(
        segments.findLastIndex(({ baseOffset }) => baseOffset <= replay.startOffset),
        0,
      );
  return walkFrom(segments, await placesToBegin(segments, from, replay.hasProducers ? RECALLED_BYTES : 0), replay);
}

/** Where to begin in each segment: at its start from number `from` on, and before that so that `bytes` are seen; `undefined`: not at all. */
async function placesToBegin(
  segments: readonly LogSegment[],
  from: number,
  bytes: number,
): Promise<(number | undefined)[]> {
  const places: (number | undefined)[] = segments.map((_segment, at) => (at >= from ? 0 : undefined));
  let wantedBytes = bytes;
  for (let at = from - 1; at >= 0 && wantedBytes > 0; at -= 1) {
    const segment = segments[at];
    if (segment === undefined) break;
    if (segment.sizeBytes > wantedBytes) {
      await segment.loadIndexes();
      places[at] = segment.index.entryAtOrBefore(segment.sizeBytes - wantedBytes)?.positionBytes ?? 0;
    } else places[at] = 0;
    wantedBytes -= segment.sizeBytes;
  }
  return places;
}

async function walkFrom(
  segments: readonly LogSegment[],
  places: readonly (number | undefined)[],
  replay: ProducerReplay,
): Promise<boolean> {
  for (const [at, segment] of segments.entries()) {
    const fromBytes = places[at];
    if (fromBytes === undefined) continue;
    const end = await segment.use((file) =>
      walkSegment({
        io: segment.io,
        file,
        fromBytes,
        toBytes: segment.sizeBytes,
        verifyCrc: false,
        readsControlBatches: true,
        onBatch: (header: BatchHeader, _positionBytes: number, bytes: Uint8Array) => {
          replay.batch(header, endTransactionMarkerOf(bytes, header));
          return undefined;
        },
      }),
    );
    if (end.type !== "end") return false;
  }
  return true;
}
