import { fail, joinPath, readFileIfPresent, writeFileAtomically } from "@tidemark/base";
import type { FileSystem, LeaderEpoch, Offset } from "@tidemark/base";

import type { EpochEndOffset, EpochEntry } from "./epoch-entry.ts";
import { LeaderEpochCache } from "./leader-epoch-cache.ts";
import {
  decodeLeaderEpochCheckpoint,
  encodeLeaderEpochCheckpoint,
  LEADER_EPOCH_CHECKPOINT,
} from "./leader-epoch-checkpoint.ts";

/**
 * The epoch cache of one partition and its `leader-epoch-checkpoint` file.
 *
 * After a crash the file may hold entries too many (at or above the log end, below the log start), never one too few:
 * `assign` is durable before it resolves, so before any batch of the epoch is written, while truncation changes memory
 * at once and the file at the next `flush` or `assign`. Loading a log trims the surplus.
 *
 * Calls that change entries come from the partition's queue, one at a time; a `flush` may run beside a truncation.
 * Source: apache/kafka storage/.../internals/epoch/LeaderEpochFileCache.java
 */
export class LeaderEpochFileCache {
  readonly #files: FileSystem;
  #directory: string;
  readonly #cache: LeaderEpochCache;
  /** The snapshot that the file is known to hold; `undefined` = not known. Compared by identity: snapshots never change. */
  #writtenEntries: readonly EpochEntry[] | undefined;
  /** Settles when the last write did; writes go one after another because they share one temporary file. */
  #lastWrite: Promise<unknown> = Promise.resolve();
  #assignsInFlight = 0;

  private constructor(files: FileSystem, directory: string, entries: readonly EpochEntry[]) {
    this.#files = files;
    this.#directory = directory;
    this.#cache = new LeaderEpochCache(entries);
  }

  /**
   * Reads the file in the partition's `directory`; absent or empty = no entries, and nothing is created.
   *
   * Entries that do not increase are healed by the assign rules in memory, which leaves the cache dirty. A leftover
   * `.tmp` of a crash is ignored, the next write replaces it.
   * @throws CheckpointError when the file is malformed: the caller rebuilds it from the batches
   * @throws FileError
   */
  static async open(files: FileSystem, directory: string): Promise<LeaderEpochFileCache> {
    const path = joinPath(directory, LEADER_EPOCH_CHECKPOINT);
    const bytes = await readFileIfPresent(files, path);
    const fromFile = bytes === undefined ? [] : decodeLeaderEpochCheckpoint(bytes, path);
    const cache = new LeaderEpochFileCache(files, directory, fromFile);
    if (haveSameEntries(fromFile, cache.entries)) cache.#writtenEntries = cache.entries;
    return cache;
  }

  /** A cache of `entries` whose file is not written yet, whatever it holds now: `flush` writes it. */
  static rebuilt(files: FileSystem, directory: string, entries: readonly EpochEntry[]): LeaderEpochFileCache {
    return new LeaderEpochFileCache(files, directory, entries);
  }

  /** Whether the file may differ from memory. */
  get isDirty(): boolean {
    return this.#writtenEntries !== this.#cache.entries;
  }

  /** See `LeaderEpochCache.entries`. */
  get entries(): readonly EpochEntry[] {
    return this.#cache.entries;
  }

  get latest(): EpochEntry | undefined {
    return this.#cache.latest;
  }

  /** See `LeaderEpochCache.endOffsetFor`. */
  endOffsetFor(requestedEpoch: number, logEndOffset: Offset): EpochEndOffset {
    return this.#cache.endOffsetFor(requestedEpoch, logEndOffset);
  }

  /** See `LeaderEpochCache.epochForOffset`. */
  epochForOffset(offset: Offset): LeaderEpoch | undefined {
    return this.#cache.epochForOffset(offset);
  }

  /** See `LeaderEpochCache.previousEpoch`. */
  previousEpoch(epoch: number): LeaderEpoch | undefined {
    return this.#cache.previousEpoch(epoch);
  }

  /** See `LeaderEpochCache.nextEpoch`. */
  nextEpoch(epoch: number): LeaderEpoch | undefined {
    return this.#cache.nextEpoch(epoch);
  }

  /** See `LeaderEpochCache.entriesInRange`. */
  entriesInRange(fromOffset: number, toOffset: number): readonly EpochEntry[] {
    return this.#cache.entriesInRange(fromOffset, toOffset);
  }

  /**
   * As `LeaderEpochCache.assign`, durable once it resolves: the file first, memory only after it succeeded. Writes
   * truncations that are not flushed yet along with it. When nothing changes no file is touched.
   * @returns whether anything changed
   * @throws FileError and then memory is as before; the file holds the old content or the new one
   * @throws InvariantError when epoch or offset is out of its range
   */
  async assign(epoch: LeaderEpoch, startOffset: Offset): Promise<boolean> {
    this.#assignsInFlight++;
    try {
      return await this.#afterLastWrite(async () => {
        const next = new LeaderEpochCache(this.#cache.entries);
        if (!next.assign(epoch, startOffset)) return false;
        await this.#write(next.entries);
        this.#cache.assign(epoch, startOffset);
        this.#writtenEntries = this.#cache.entries;
        return true;
      });
    } finally {
      this.#assignsInFlight--;
    }
  }

  /** As `LeaderEpochCache.truncateFromEnd`; the file follows at the next `flush` or `assign`. */
  truncateFromEnd(offset: number): boolean {
    this.#failDuringAssign();
    return this.#cache.truncateFromEnd(offset);
  }

  /** As `LeaderEpochCache.truncateFromStart`; the file follows at the next `flush` or `assign`. */
  truncateFromStart(offset: number): boolean {
    this.#failDuringAssign();
    return this.#cache.truncateFromStart(offset);
  }

  /**
   * Writes the present content if the file may differ; durable once it resolves.
   * @throws FileError and then the cache stays dirty; ENOENT when the directory is gone
   */
  async flush(): Promise<void> {
    await this.#afterLastWrite(async () => {
      const entries = this.#cache.entries;
      if (entries === this.#writtenEntries) return;
      await this.#write(entries);
      this.#writtenEntries = entries; // A truncation that came meanwhile has swapped the snapshot: still dirty.
    });
  }

  /** Drops all entries and writes the file, even when there were none. @throws FileError and then the cache stays dirty */
  async clearAndFlush(): Promise<void> {
    this.#failDuringAssign();
    this.#cache.clear();
    this.#writtenEntries = undefined;
    await this.flush();
  }

  /**
   * The partition's directory was renamed to `directory`: later writes go there. Memory is the truth; the file, which
   * may miss a truncation, is not read again (EC-40).
   */
  moveTo(directory: string): void {
    this.#directory = directory;
  }

  async #write(entries: readonly EpochEntry[]): Promise<void> {
    // Whether a failed write left the old file or the new one depends on the step that failed: not known until the next.
    this.#writtenEntries = undefined;
    const path = joinPath(this.#directory, LEADER_EPOCH_CHECKPOINT);
    await writeFileAtomically(this.#files, path, encodeLeaderEpochCheckpoint(entries));
  }

  #afterLastWrite<Result>(write: () => Promise<Result>): Promise<Result> {
    const result = this.#lastWrite.then(write);
    this.#lastWrite = result.catch(() => undefined); // Its caller hears of the failure; the next write is tried anew.
    return result;
  }

  /** Which of the two came first would be anybody's guess. */
  #failDuringAssign(): void {
    if (this.#assignsInFlight > 0) fail("no truncation while an assign is in flight", { directory: this.#directory });
  }
}

function haveSameEntries(a: readonly EpochEntry[], b: readonly EpochEntry[]): boolean {
  return (
    a.length === b.length &&
    a.every(({ epoch, startOffset }, i) => b[i]?.epoch === epoch && b[i].startOffset === startOffset)
  );
}
