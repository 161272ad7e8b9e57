import { FileError, joinPath } from "@tidemark/base";
import type { FileHandle, FileSystem, Offset } from "@tidemark/base";
import {
  DELETED_SUFFIX,
  LOG_SUFFIX,
  PRODUCER_SNAPSHOT_SUFFIX,
  segmentFileName,
  SIDE_FILE_SUFFIXES,
} from "./file-names.ts";

/**
 * The files of a segment under their names: the log file open while somebody uses it, or longer, and how all of them go or get other names.
 * Knows nothing of what is in them.
 *
 * Invariant: nobody closes the log file under who uses it.
 */
export class SegmentFiles {
  readonly #files: FileSystem;
  readonly #nameSuffix: string;
  #path: string;
  #handle: FileHandle | undefined;
  #opening: Promise<FileHandle> | undefined;
  #users = 0;
  /** Closing what a failed `use` leaves behind. */
  #leaving: Promise<unknown> | undefined;
  /** Also while nobody uses it. */
  #keepsOpen = false;
  #isRemoved = false;

  /** @param nameSuffix behind the names of all files */
  constructor(files: FileSystem, directory: string, baseOffset: Offset, nameSuffix: string) {
    this.#files = files;
    this.#nameSuffix = nameSuffix;
    this.#path = joinPath(directory, segmentFileName(baseOffset, LOG_SUFFIX) + nameSuffix);
  }

  /** Of the log file. */
  get path(): string {
    return this.#path;
  }

  /** The log file, if it is open. */
  get handle(): FileHandle | undefined {
    return this.#handle;
  }

  /** Makes an empty log file, which stays open. @throws FileError */
  async create(): Promise<void> {
    this.#keepsOpen = true;
    this.#handle = await this.#files.open(this.#path, "truncate");
  }

  /** The log file stays open, once somebody has used it, until `release`. */
  keepOpen(): void {
    this.#keepsOpen = true;
  }

  /** Closes the log file as soon as nobody uses it. @throws FileError */
  release(): Promise<void> {
    this.#keepsOpen = false;
    return this.closeIfIdle();
  }

  /** @throws FileError */
  async open(): Promise<FileHandle> {
    if (this.#handle !== undefined) return this.#handle;
    this.#opening ??= this.#files.open(this.path, "write").finally(() => {
      this.#opening = undefined;
    });
    const file = await this.#opening;
    this.#handle ??= file;
    return this.#handle;
  }

  /** Runs `read` with the open log file. @throws FileError */
  async use<Result>(read: (file: FileHandle) => Promise<Result>): Promise<Result> {
    this.#users += 1;
    let result: Result;
    try {
      result = await read(await this.open());
    } catch (error) {
      // A failed sync is told before the file is closed: meanwhile the partition would go on.
      this.#leaving = Promise.all([this.#leaving, this.#leave().catch(() => undefined)]);
      throw error;
    }
    await this.#leave();
    return result;
  }

  async #leave(): Promise<void> {
    this.#users -= 1;
    if (this.#isRemoved || !this.#keepsOpen) await this.closeIfIdle();
  }

  /** @throws FileError */
  async closeIfIdle(): Promise<void> {
    if (this.#users > 0) return;
    const file = this.#handle;
    this.#handle = undefined;
    await file?.close();
  }

  /** Idempotent; does not sync. */
  async close(): Promise<void> {
    const file = this.#handle;
    this.#handle = undefined;
    await this.#leaving;
    await file?.close();
  }

  /**
   * Names the files for their removal: the next open takes them away, if `removeRenamed` does not before. Who reads the segment goes on.
   * The `.log` goes first: what a crash leaves of the others belongs to nothing then.
   * @throws FileError
   */
  async renameForRemoval(): Promise<void> {
    const path = this.#path;
    const stem = path.slice(0, -LOG_SUFFIX.length);
    this.#isRemoved = true;
    await this.closeIfIdle();
    for (const suffix of [LOG_SUFFIX, ...SIDE_FILE_SUFFIXES]) {
      await renameIfPresent(this.#files, stem + suffix, stem + suffix + DELETED_SUFFIX);
      if (suffix === LOG_SUFFIX) this.#path = path + DELETED_SUFFIX;
    }
  }

  /** Removes what `renameForRemoval` named. @throws FileError */
  async removeRenamed(): Promise<void> {
    const stem = this.#path.slice(0, -(LOG_SUFFIX + DELETED_SUFFIX).length);
    for (const suffix of [LOG_SUFFIX, ...SIDE_FILE_SUFFIXES])
      await removeIfPresent(this.#files, stem + suffix + DELETED_SUFFIX);
  }

  /** Removes the files; the caller syncs the directory. @throws FileError */
  async remove(): Promise<void> {
    this.#isRemoved = true;
    await removeIfPresent(this.#files, this.path);
    await this.removeSideFiles();
    await this.closeIfIdle();
  }

  /**
   * Takes the files away that another segment of the same base offset is about to replace; the snapshot of what lies below stays.
   * The caller syncs the directory. @throws FileError
   */
  async makeWay(): Promise<void> {
    this.#isRemoved = true;
    await removeIfPresent(this.#files, this.path);
    await this.removeSideFiles([PRODUCER_SNAPSHOT_SUFFIX]);
    await this.closeIfIdle();
  }

  /**
   * Gives all files the names that `suffix` says, the log file last: while that one has its old name the others may be found under either.
   * The log file is closed, and the caller syncs the directory. @throws FileError
   */
  async renameTo(suffix: string): Promise<void> {
    const stem = this.path.slice(0, -(LOG_SUFFIX + this.#nameSuffix).length);
    for (const kind of [...SIDE_FILE_SUFFIXES, LOG_SUFFIX]) {
      await renameIfPresent(this.#files, stem + kind + this.#nameSuffix, stem + kind + suffix);
    }
  }

  /** @param except suffixes of those that stay @throws FileError */
  async removeSideFiles(except: readonly string[] = []): Promise<void> {
    const stem = this.path.slice(0, -(LOG_SUFFIX + this.#nameSuffix).length);
    for (const suffix of SIDE_FILE_SUFFIXES)
      if (!except.includes(suffix)) await removeIfPresent(this.#files, stem + suffix + this.#nameSuffix);
  }
}

/** @throws FileError other than ENOENT */
export async function removeIfPresent(files: FileSystem, path: string): Promise<void> {
  try {
    await files.unlink(path);
  } catch (error) {
    if (!(error instanceof FileError && error.code === "ENOENT")) throw error;
  }
}

async function renameIfPresent(files: FileSystem, from: string, to: string): Promise<void> {
  try {
    await files.rename(from, to);
  } catch (error) {
    if (!(error instanceof FileError && error.code === "ENOENT")) throw error;
  }
}
