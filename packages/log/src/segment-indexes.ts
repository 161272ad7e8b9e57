import { joinPath } from "@tidemark/base";
import type { FileSystem, Offset } from "@tidemark/base";
import type { BatchHeader } from "@tidemark/wire";
import { OFFSET_INDEX_SUFFIX, segmentFileName, TIME_INDEX_SUFFIX } from "./file-names.ts";
import { IndexFile } from "./index-file.ts";
import { OFFSET_INDEX_ENTRY_BYTES, OffsetIndex } from "./offset-index.ts";
import { NO_TIMESTAMP, TIME_INDEX_ENTRY_BYTES, TimeIndex } from "./time-index.ts";

/** What of a batch goes into the indexes of its segment. */
export type IndexedBatch = Pick<BatchHeader, "lastOffset" | "sizeInBytes" | "maxTimestamp">;

/**
 * The two indexes of a segment, their files, and what the headers of its batches say of time.
 *
 * Those of a sealed segment may be left in their files until somebody asks. `areProven` says whether all that is here comes from the headers
 * of all batches, or was held against them: only then may something be deleted for its age.
 * Source: apache/kafka storage/.../internals/log/LogSegment.java, append
 */
export class SegmentIndexes {
  offsets: OffsetIndex;
  times: TimeIndex;
  /** Largest timestamp of a batch, ms; -1 = none has one. */
  maxTimestamp = NO_TIMESTAMP;
  /** Max timestamp of the first batch; `undefined` while there is none. */
  firstTimestamp: number | undefined;
  /** Last offset of the earliest batch with `maxTimestamp`; means nothing while there is none. */
  maxTimestampOffset = 0;
  #bytesSinceLastEntry = 0;
  readonly #baseOffset: Offset;
  readonly #bytesMax: number;
  readonly #offsetFile: IndexFile;
  readonly #timeFile: IndexFile;
  /** Whether the entries of both files are in memory. */
  #areLoaded = true;
  #areProven = true;

  /** @param bytesMax of each file. Kafka: segment.index.bytes */
  constructor(files: FileSystem, directory: string, baseOffset: Offset, bytesMax: number, nameSuffix = "") {
    const path = (suffix: string): string => joinPath(directory, segmentFileName(baseOffset, suffix) + nameSuffix);
    this.#baseOffset = baseOffset;
    this.#bytesMax = bytesMax;
    this.#offsetFile = new IndexFile(files, path(OFFSET_INDEX_SUFFIX), OFFSET_INDEX_ENTRY_BYTES);
    this.#timeFile = new IndexFile(files, path(TIME_INDEX_SUFFIX), TIME_INDEX_ENTRY_BYTES);
    this.offsets = new OffsetIndex(baseOffset, bytesMax);
    this.times = new TimeIndex(baseOffset, bytesMax);
  }

  /** Makes both files, empty. @throws FileError */
  async create(): Promise<void> {
    await this.#offsetFile.create();
    await this.#timeFile.create();
  }

  get areLoaded(): boolean {
    return this.#areLoaded;
  }

  get areProven(): boolean {
    return this.#areProven;
  }

  /** Of the offset index; `undefined` while nobody has read it. */
  get entryCount(): number | undefined {
    return this.#areLoaded ? this.offsets.count : this.#offsetFile.entries;
  }

  get isFull(): boolean {
    return this.offsets.isFull || this.times.isFull;
  }

  /** Takes in the batch that begins at `positionBytes`. Kafka's rule: its entries are made before its own bytes count. */
  noteBatch(
    { lastOffset, sizeInBytes, maxTimestamp }: IndexedBatch,
    positionBytes: number,
    intervalBytes: number,
  ): void {
    this.firstTimestamp ??= maxTimestamp;
    this.noteTimestamp(maxTimestamp, lastOffset);
    if (this.#bytesSinceLastEntry > intervalBytes && !this.offsets.isFull) {
      this.offsets.append(lastOffset, positionBytes);
      this.times.maybeAppend(this.maxTimestamp, this.maxTimestampOffset);
      this.#bytesSinceLastEntry = 0;
    }
    this.#bytesSinceLastEntry += sizeInBytes;
  }

  /** A batch has this timestamp. Batches come in order. */
  noteTimestamp(maxTimestamp: number, lastOffset: number): void {
    if (maxTimestamp <= this.maxTimestamp) return;
    this.maxTimestamp = maxTimestamp;
    this.maxTimestampOffset = lastOffset;
  }

  /** The counter of the index rule starts anew, as in Kafka after an open or a truncation. */
  resetInterval(): void {
    this.#bytesSinceLastEntry = 0;
  }

  /** The segment ends here for now: the time index says its largest timestamp. */
  noteEnd(): void {
    if (this.maxTimestamp >= 0) this.times.appendEnd(this.maxTimestamp, this.maxTimestampOffset);
  }

  /** What the files hold; `undefined` what is absent or no index. @throws FileError */
  async readFiles(): Promise<{ readonly offsets: OffsetIndex | undefined; readonly times: TimeIndex | undefined }> {
    const [offsets, times] = [await this.#offsetFile.read(), await this.#timeFile.read()];
    return {
      offsets: offsets && OffsetIndex.decode(this.#baseOffset, offsets, this.#bytesMax),
      times: times && TimeIndex.decode(this.#baseOffset, times, this.#bytesMax),
    };
  }

  /** Takes over what was read from the files; `undefined`: what was noted batch by batch stands, and the file will be written whole. */
  adopt(found: { readonly offsets: OffsetIndex | undefined; readonly times: TimeIndex | undefined }): void {
    if (found.offsets === undefined) this.#offsetFile.noteUnknown();
    else {
      this.offsets = found.offsets;
      this.#offsetFile.noteHolds(found.offsets.count);
    }
    if (found.times === undefined) this.#timeFile.noteUnknown();
    else {
      this.times = found.times;
      this.#timeFile.noteHolds(found.times.count);
    }
  }

  /** Nothing is known yet but that the files were right when the segment was sealed. */
  leaveInFiles(): void {
    this.reset();
    this.#areLoaded = false;
    this.#areProven = false;
  }

  /** Takes in what the files hold, which was held against the end of the segment only. */
  load(found: { readonly offsets: OffsetIndex; readonly times: TimeIndex }): void {
    this.adopt(found);
    this.#areLoaded = true;
    if (this.#areProven) return;
    const last = found.times.lastEntry;
    this.maxTimestamp = last?.timestamp ?? NO_TIMESTAMP;
    this.maxTimestampOffset = last?.offset ?? 0;
  }

  /** As `IndexFile.noteUnsynced`. */
  noteUnsynced(): void {
    this.#offsetFile.noteUnsynced();
    this.#timeFile.noteUnsynced();
  }

  /** Forgets the entries as far as the files hold them; what is known of time stays. */
  unload(): void {
    if (!this.#areLoaded || !this.#offsetFile.holds(this.offsets.count) || !this.#timeFile.holds(this.times.count))
      return;
    this.offsets = new OffsetIndex(this.#baseOffset, this.#bytesMax);
    this.times = new TimeIndex(this.#baseOffset, this.#bytesMax);
    this.#areLoaded = false;
  }

  /** Becomes what another one is that was made from the headers of all batches. The files are to be written whole. */
  replaceBy(proven: SegmentIndexes): void {
    this.adopt({ offsets: undefined, times: undefined });
    this.offsets = proven.offsets;
    this.times = proven.times;
    this.firstTimestamp = proven.firstTimestamp;
    // A batch that was appended meanwhile may have a later one.
    if (!this.#areLoaded || proven.maxTimestamp >= this.maxTimestamp) {
      this.maxTimestamp = proven.maxTimestamp;
      this.maxTimestampOffset = proven.maxTimestampOffset;
    }
    this.#areLoaded = true;
    this.#areProven = true;
  }

  /** Becomes what another one is, whose files have been given the names of this one's. */
  takeOver(other: SegmentIndexes): void {
    this.adopt({ offsets: other.offsets, times: other.times });
    this.maxTimestamp = other.maxTimestamp;
    this.maxTimestampOffset = other.maxTimestampOffset;
    this.firstTimestamp = other.firstTimestamp;
  }

  /** Forgets all, for another survey. */
  reset(): void {
    this.offsets = new OffsetIndex(this.#baseOffset, this.#bytesMax);
    this.times = new TimeIndex(this.#baseOffset, this.#bytesMax);
    this.maxTimestamp = NO_TIMESTAMP;
    this.firstTimestamp = undefined;
    this.#areLoaded = true;
    this.#areProven = true;
    this.resetInterval();
  }

  /**
   * Drops the entries at or above `offset`, where the log ends now. What is known of timestamps afterwards is what the entries say: of the
   * batches from `fromBytes` on `noteTimestamp` has to tell.
   * @returns where those batches begin, and whether a file holds entries that are no more: then `persist` is due
   */
  truncateTo(offset: number, isEmpty: boolean): { readonly fromBytes: number; readonly isFileBehind: boolean } {
    this.offsets.truncateTo(offset);
    this.times.truncateTo(offset);
    this.resetInterval();
    const last = this.times.lastEntry;
    this.maxTimestamp = last?.timestamp ?? NO_TIMESTAMP;
    this.maxTimestampOffset = last?.offset ?? 0;
    if (isEmpty) this.firstTimestamp = undefined;
    const areOffsetsBehind = this.#offsetFile.noteCutTo(this.offsets.count);
    const areTimesBehind = this.#timeFile.noteCutTo(this.times.count);
    return {
      fromBytes: last === undefined ? 0 : this.offsets.lookup(last.offset),
      isFileBehind: areOffsetsBehind || areTimesBehind,
    };
  }

  /** As `LogSegment.persistIndexes`. @throws FileError */
  async persist(): Promise<boolean> {
    if (!this.#areLoaded) {
      await this.#offsetFile.syncLeft();
      await this.#timeFile.syncLeft();
      return false;
    }
    // Both at once: in between they may be left to their files.
    const { offsets, times } = this;
    const isOffsetFileNew = await this.#offsetFile.persist(offsets);
    return (await this.#timeFile.persist(times)) || isOffsetFileNew;
  }

  /** As `LogSegment.writeIndexes`. @throws FileError */
  async write(): Promise<void> {
    if (!this.#areLoaded) return;
    await this.#offsetFile.write(this.offsets);
    await this.#timeFile.write(this.times);
  }
}
