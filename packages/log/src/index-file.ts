import { readFileIfPresent, writeFully } from "@tidemark/base";
import type { FileSystem } from "@tidemark/base";

/** An index in memory, as far as its file is concerned: entries of one size, in order. */
export interface IndexEntries {
  readonly count: number;
  /** The bytes of entries `[fromEntry, count)`. */
  encode(fromEntry: number): Uint8Array;
}

const UNKNOWN = -1;

/**
 * The file of an offset or time index: holds exactly the entries that were written, and no byte more.
 *
 * Kafka maps its index files and gives them their full size in advance; here they are written when a segment is sealed.
 */
export class IndexFile {
  readonly path: string;
  readonly #files: FileSystem;
  readonly #entryBytes: number;
  /** Entries that the file holds; `UNKNOWN`: write it whole. */
  #entries = UNKNOWN;
  /** Size of the file; `UNKNOWN`: cut it first. */
  #sizeBytes = UNKNOWN;
  /** What it holds may be in the page cache only: the process that wrote it died, or a sync was left. */
  #isUnsynced = false;

  constructor(files: FileSystem, path: string, entryBytes: number) {
    this.#files = files;
    this.path = path;
    this.#entryBytes = entryBytes;
  }

  /** Entries of the file, as far as that is known. */
  get entries(): number | undefined {
    return this.#entries === UNKNOWN ? undefined : this.#entries;
  }

  /** Whether the file holds exactly so many entries. */
  holds(count: number): boolean {
    return this.#entries === count && this.#sizeBytes === count * this.#entryBytes;
  }

  /** The file is empty, and there. */
  async create(): Promise<void> {
    const file = await this.#files.open(this.path, "truncate");
    await file.close();
    this.noteHolds(0);
  }

  /** Its bytes, or `undefined` when there is none. @throws FileError */
  async read(): Promise<Uint8Array | undefined> {
    return readFileIfPresent(this.#files, this.path);
  }

  /** The file was read, and these are its entries. */
  noteHolds(entries: number): void {
    this.#entries = entries;
    this.#sizeBytes = entries * this.#entryBytes;
  }

  /** Another process wrote it, and perhaps died before it could sync it: the next `persist` does. */
  noteUnsynced(): void {
    this.#isUnsynced = true;
  }

  /** Nothing in the file counts, or it may not be there. */
  noteUnknown(): void {
    this.#entries = UNKNOWN;
    this.#sizeBytes = UNKNOWN;
  }

  /**
   * The index was cut to `count` entries: those behind are written again if they come again.
   * @returns whether the file holds entries that are no more
   */
  noteCutTo(count: number): boolean {
    if (this.#entries > count) this.#entries = count;
    return this.#sizeBytes !== this.#entries * this.#entryBytes;
  }

  /**
   * Brings the file to exactly the entries in memory, and syncs it. One of which nothing is known is replaced: nobody looks at it again at the
   * next open, so a crash may not leave a part.
   * @returns whether its name is new: then the caller syncs the directory
   * @throws FileError
   */
  async persist(index: IndexEntries): Promise<boolean> {
    if (this.holds(index.count) && !this.#isUnsynced) return false;
    return this.#write(index, { syncs: true });
  }

  /** As `persist`, but the sync is left to the next one, or to `syncLeft`: until then nobody may vouch for the file, or its name. */
  async write(index: IndexEntries): Promise<void> {
    if (!this.holds(index.count)) await this.#write(index, { syncs: false });
  }

  /** Makes up for a sync that was left, when the entries are not in memory any more. @throws FileError */
  async syncLeft(): Promise<void> {
    if (!this.#isUnsynced) return;
    const file = await this.#files.open(this.path, "write");
    try {
      await file.sync();
    } finally {
      await file.close();
    }
    this.#isUnsynced = false;
  }

  async #write(index: IndexEntries, { syncs }: { readonly syncs: boolean }): Promise<boolean> {
    const { count } = index;
    const isNew = this.#sizeBytes === UNKNOWN;
    const fromEntry = Math.max(this.#entries, 0);
    const fromBytes = fromEntry * this.#entryBytes;
    const temporaryPath = `${this.path}.tmp`;
    const file = await this.#files.open(isNew ? temporaryPath : this.path, isNew ? "truncate" : "create");
    try {
      if (!isNew && this.#sizeBytes !== fromBytes) await file.truncate(fromBytes);
      await writeFully(file, index.encode(fromEntry), fromBytes);
      if (syncs) await file.sync();
    } finally {
      await file.close();
    }
    if (isNew) await this.#files.rename(temporaryPath, this.path);
    this.noteHolds(count);
    this.#isUnsynced = !syncs;
    return isNew;
  }
}
