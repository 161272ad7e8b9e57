import { joinPath, readFileIfPresent, writeFully } from "@tidemark/base";
import type { FileSystem, Offset } from "@tidemark/base";
import { parseSegmentFileName, PRODUCER_SNAPSHOT_SUFFIX, segmentFileName } from "./file-names.ts";
import { decodeProducerSnapshot, encodeProducerSnapshot } from "./producer-snapshot.ts";
import type { ProducerState } from "./producer-state.ts";
import { removeIfPresent } from "./segment-files.ts";

/** A file that is no snapshot; it was removed, and its state is read from an older one or from the log. */
export interface SnapshotFinding {
  readonly path: string;
  readonly reason: string;
}

/** A state as a file says it. */
export interface LoadedSnapshot {
  /** Everything below is in it. */
  readonly offset: Offset;
  readonly entries: ProducerState["entries"];
}

/**
 * The producer snapshots of a partition's directory.
 *
 * They are derived data: one that is lost or damaged costs a longer look at the log. One that speaks of other batches than the log holds
 * would be worse, so whoever cuts the log removes those above the cut first, durably.
 * Source: apache/kafka storage/.../internals/log/ProducerStateManager.java
 */
export class ProducerSnapshots {
  readonly #files: FileSystem;
  readonly #directory: string;
  /** Ascending. */
  #offsets: readonly Offset[];
  /** Written, and not synced yet. */
  #unsynced: Set<Offset> | undefined;

  /** @param names of the files in the directory */
  constructor(files: FileSystem, directory: string, names: readonly string[]) {
    this.#files = files;
    this.#directory = directory;
    this.#offsets = names
      .flatMap((name) => parseSegmentFileName(name, PRODUCER_SNAPSHOT_SUFFIX) ?? [])
      .sort((a, b) => a - b);
  }

  get offsets(): readonly Offset[] {
    return this.#offsets;
  }

  /**
   * The newest one at or below `offset`. Damaged ones that are met on the way are removed.
   * @param findings what was met is added to it
   * @throws FileError
   */
  async load(offset: Offset, findings: SnapshotFinding[] = []): Promise<LoadedSnapshot | undefined> {
    for (const candidate of [...this.#offsets].reverse()) {
      if (candidate > offset) continue;
      const path = this.#pathOf(candidate);
      const bytes = await readFileIfPresent(this.#files, path);
      const decoded =
        bytes === undefined ? ({ type: "damaged", reason: "missing" } as const) : decodeProducerSnapshot(bytes);
      if (decoded.type === "snapshot") return { offset: candidate, entries: decoded.entries };
      findings.push({ path, reason: decoded.reason });
      await this.#remove(candidate);
    }
    return undefined;
  }

  /**
   * Writes the state below `offset`, unless there is one already; those above it go. The caller syncs the directory.
   * @param durably else `sync` has to follow; until then a crash of the machine may leave garbage, which its CRC gives away
   * @throws FileError; then no file of that name is new
   */
  async write(offset: Offset, producers: ProducerState, durably: boolean): Promise<void> {
    await this.removeUnless((known) => known <= offset);
    if (this.#offsets.at(-1) === offset) return;
    const path = this.#pathOf(offset);
    const temporaryPath = `${path}.tmp`;
    const file = await this.#files.open(temporaryPath, "truncate");
    try {
      await writeFully(file, encodeProducerSnapshot(producers.entries), 0);
      if (durably) await file.sync();
    } finally {
      await file.close();
    }
    await this.#files.rename(temporaryPath, path);
    if (!durably) {
      this.#unsynced ??= new Set();
      this.#unsynced.add(offset);
    }
    this.#offsets = [...this.#offsets, offset];
  }

  /** Makes those written so far durable, but for their names. @throws FileError */
  async sync(): Promise<void> {
    for (const offset of this.#unsynced ?? []) {
      const file = await this.#files.open(this.#pathOf(offset), "write");
      try {
        // Not repeated, whatever comes of it.
        this.#unsynced?.delete(offset);
        await file.sync();
      } finally {
        await file.close();
      }
    }
  }

  /** Removes those that are not `kept`. @returns whether there were any: then the caller syncs the directory @throws FileError */
  async removeUnless(isKept: (offset: Offset) => boolean): Promise<boolean> {
    const removed = this.#offsets.filter((offset) => !isKept(offset));
    for (const offset of removed) await this.#remove(offset);
    return removed.length > 0;
  }

  /** A segment took its snapshot with it. */
  forget(offset: Offset): void {
    this.#offsets = this.#offsets.filter((known) => known !== offset);
    this.#unsynced?.delete(offset);
  }

  async #remove(offset: Offset): Promise<void> {
    await removeIfPresent(this.#files, this.#pathOf(offset));
    this.forget(offset);
  }

  #pathOf(offset: Offset): string {
    return joinPath(this.#directory, segmentFileName(offset, PRODUCER_SNAPSHOT_SUFFIX));
  }
}
