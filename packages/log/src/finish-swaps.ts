import { joinPath } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import {
  CLEANED_SUFFIX,
  LOG_SUFFIX,
  parseSegmentFileName,
  PRODUCER_SNAPSHOT_SUFFIX,
  SIDE_FILE_SUFFIXES,
  SWAP_SUFFIX,
} from "./file-names.ts";
import type { LogState } from "./log-state.ts";
import { LogSegment } from "./segment.ts";
import type { SegmentSettings } from "./segment.ts";
import { removeIfPresent } from "./segment-files.ts";
import { walkSegment } from "./segment-walk.ts";

interface SwapContext {
  readonly settings: SegmentSettings;
  readonly state: LogState;
}

const KINDS = [LOG_SUFFIX, ...SIDE_FILE_SUFFIXES];

/**
 * Goes on with a compaction that a crash interrupted, or undoes it.
 *
 * A `.swap` is whole unless a `.cleaned` of its base offset or a lower one is there: then some of its files never got that name, and all of it
 * goes. The others replace what they were made of: all segments up to the end that was announced, or up to their own last offset where a
 * broker left them. Every step is durable before the next, and may be repeated.
 * @returns names of the segments that were put in place
 * @throws FileError
 * Source: apache/kafka storage/.../internals/log/LogLoader.java, removeTempFilesAndCollectSwapFiles, load
 */
export async function finishSwaps(settings: SegmentSettings, state: LogState): Promise<string[]> {
  const { files, directory } = settings;
  const context = { settings, state };
  const names = [...(await files.list(directory))].sort();
  if (!names.some((name) => name.endsWith(SWAP_SUFFIX))) return [];
  // The name of a `.swap` may be known to the page cache only: what it replaces may not go before it is there to stay.
  await files.syncDirectory(directory);
  const swaps = await dropIncomplete(context, names);
  const logs = swaps.filter(({ kind }) => kind === LOG_SUFFIX);
  let endBaseOffset = 0;
  for (const { baseOffset } of logs) endBaseOffset = Math.max(endBaseOffset, await endOfSources(context, baseOffset));
  const firstBaseOffset = logs[0]?.baseOffset ?? Number.POSITIVE_INFINITY;
  for (const name of names) {
    const file = parseName(name, "");
    // A snapshot of what lies below the first of them is as right as before.
    const isKept = file?.kind === PRODUCER_SNAPSHOT_SUFFIX && file.baseOffset === firstBaseOffset;
    if (file === undefined || isKept) continue;
    if (file.baseOffset >= firstBaseOffset && file.baseOffset < endBaseOffset)
      await removeIfPresent(files, joinPath(directory, name));
  }
  await files.syncDirectory(directory);
  for (const { baseOffset } of logs) {
    const announced = context.state.announcedSwap(baseOffset);
    if (announced !== undefined) await context.state.noteSwap(announced);
  }
  const putInPlace = async ({ name }: SegmentFile): Promise<void> =>
    files.rename(joinPath(directory, name), joinPath(directory, name.slice(0, -SWAP_SUFFIX.length)));
  const sideFiles = swaps.filter(({ kind }) => kind !== LOG_SUFFIX);
  for (const file of sideFiles) await putInPlace(file);
  if (sideFiles.length > 0 && logs.length === 0) await files.syncDirectory(directory);
  // The log file last: as long as it is a `.swap` all of this can be done again. Of several the first one first, each durably: what is in place
  // must not lie behind one that is not.
  for (const file of logs) {
    await putInPlace(file);
    await files.syncDirectory(directory);
  }
  for (const { baseOffset } of logs) await context.state.forgetSwap(baseOffset);
  return logs.map(({ name }) => name);
}

interface SegmentFile {
  readonly name: string;
  readonly kind: string;
  readonly baseOffset: Offset;
}

/** Removes the `.swap` files that may be a part only, and after them, durably later, what says so. */
async function dropIncomplete({ settings }: SwapContext, names: readonly string[]): Promise<SegmentFile[]> {
  const { files, directory } = settings;
  const cleaned = names.flatMap((name) => parseName(name, CLEANED_SUFFIX) ?? []);
  const firstCleaned = Math.min(...cleaned.map(({ baseOffset }) => baseOffset));
  const swaps = names.flatMap((name) => parseName(name, SWAP_SUFFIX) ?? []);
  const dropped = swaps.filter(({ baseOffset }) => baseOffset >= firstCleaned);
  for (const { name } of dropped) await removeIfPresent(files, joinPath(directory, name));
  if (dropped.length > 0) await files.syncDirectory(directory);
  return swaps.filter((file) => !dropped.includes(file));
}

async function endOfSources(context: SwapContext, baseOffset: Offset): Promise<number> {
  const announced = context.state.announcedSwap(baseOffset);
  if (announced !== undefined) return announced.endBaseOffset;
  const segment = new LogSegment({ ...context.settings, nameSuffix: SWAP_SUFFIX }, baseOffset);
  let endOffset: number = baseOffset;
  await segment.use(async (file) =>
    walkSegment({
      io: segment.io,
      file,
      fromBytes: 0,
      toBytes: await file.size(),
      verifyCrc: false,
      onBatch: (header) => {
        endOffset = header.lastOffset + 1;
        return undefined;
      },
    }),
  );
  return endOffset;
}

/** What `00000000000000000042.log.swap` and the like stand for. */
function parseName(name: string, suffix: string): SegmentFile | undefined {
  if (!name.endsWith(suffix)) return undefined;
  const plain = name.slice(0, name.length - suffix.length);
  for (const kind of KINDS) {
    const baseOffset = parseSegmentFileName(plain, kind);
    if (baseOffset !== undefined) return { name, kind, baseOffset };
  }
  return undefined;
}
