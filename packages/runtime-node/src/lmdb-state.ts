import { existsSync } from "node:fs";
import { mkdir, statfs } from "node:fs/promises";
import { resolve } from "node:path";
import type { RootDatabase } from "lmdb";
import { open } from "lmdb";
import type { State, StatePut } from "@tidemark/base";
import { directoryOf, fail, joinPath } from "@tidemark/base";
import { findLmdbDamage } from "./lmdb-file.ts";
import { NodeFileSystem } from "./node-file-system.ts";
import { StateError } from "./state-error.ts";

/** UTF-16 code units in a key at most: lmdb takes 1978 bytes. */
const KEY_LENGTH_MAX = 989;
/** lmdb's own codes are negative, those of the operating system positive. */
const SYSTEM_CODE_MIN = 1;

/** Room that a new database takes at once, so that later commits find it in its own file, also on a disk that has filled up. */
const RESERVED_BYTES = 1024 ** 2;
/** Free space without which a new database is not begun. */
const FREE_BYTES_MIN = 2 * RESERVED_BYTES;

/** A put with memory of its own. */
interface OwnedPut {
  readonly key: Buffer;
  readonly value: Uint8Array | undefined;
}

/** A commit that waits to be written. */
interface Commit {
  readonly puts: readonly OwnedPut[];
  resolve(): void;
  reject(error: unknown): void;
}

/**
 * `State` in an lmdb database: DIRECTORY/data.mdb and DIRECTORY/lock.mdb.
 *
 * One transaction is in flight at a time; the commits called meanwhile make up the next, so a burst costs one disk flush. Each
 * transaction is flushed before it resolves, whatever `sync` says: lmdb's mode that flushes later (`overlappingSync`) was no
 * faster here (0.4 ms a commit either way) and leaves a failed flush unreported.
 */
export class LmdbState implements State {
  readonly #directory: string;
  readonly #database: RootDatabase<Uint8Array, Buffer>;
  /** In the order of the calls. */
  #queue: Commit[] = [];
  /** The loop that writes the queue, while there is something to write. */
  #writing: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  /**
   * Opens the database, made with its directory if absent. Reads it through once to see that it is sound.
   * @throws StateError CORRUPT, IO
   */
  static async open(directory: string): Promise<LmdbState> {
    try {
      const firstMade = await mkdir(directory, { recursive: true });
      const isNew = !existsSync(joinPath(directory, "data.mdb"));
      if (isNew) await requireSpace(directory);
      const damage = findLmdbDamage(joinPath(directory, "data.mdb"));
      if (damage !== undefined) throw new StateError("CORRUPT", directory, damage);
      // Batching by event turns would leave a rejected promise of its own behind when a commit fails, which ends the process.
      const database = open<Uint8Array, Buffer>(directory, {
        encoding: "binary",
        keyEncoding: "binary",
        noSubdir: false,
        overlappingSync: false,
        eventTurnBatching: false,
      });
      if (isNew) await reserveSpace(database, directory);
      await syncNames(directory, firstMade);
      return new LmdbState(directory, database);
    } catch (error) {
      throw toStateError(error, directory, "open");
    }
  }

  private constructor(directory: string, database: RootDatabase<Uint8Array, Buffer>) {
    this.#directory = directory;
    this.#database = database;
  }

  get(key: string): Uint8Array | undefined {
    this.#checkOpen();
    const encodedKey = encodeKey(key);
    try {
      const value = this.#database.get(encodedKey);
      return value === undefined ? undefined : new Uint8Array(value);
    } catch (error) {
      throw toStateError(error, this.#directory, "get");
    }
  }

  keys(prefix: string): readonly string[] {
    this.#checkOpen();
    try {
      const keys: string[] = [];
      for (const encodedKey of this.#database.getKeys(prefix === "" ? {} : { start: encodeKey(prefix) })) {
        const key = decodeKey(encodedKey);
        if (!key.startsWith(prefix)) break; // Keys with the prefix lie side by side, from the prefix itself on.
        keys.push(key);
      }
      return keys;
    } catch (error) {
      throw toStateError(error, this.#directory, "keys");
    }
  }

  async commit(puts: readonly StatePut[], _options: { readonly sync: boolean }): Promise<void> {
    this.#checkOpen();
    const ownedPuts = puts.map(({ key, value }) => ({
      key: encodeKey(key),
      value: value === undefined ? undefined : new Uint8Array(value),
    }));
    await new Promise<void>((resolve, reject) => {
      this.#queue.push({ puts: ownedPuts, resolve, reject });
      this.#writing ??= this.#writeQueue();
    });
  }

  close(): Promise<void> {
    this.#closed ??= this.#closeWhenWritten();
    return this.#closed;
  }

  async #closeWhenWritten(): Promise<void> {
    await this.#writing;
    try {
      await this.#database.close();
    } catch (error) {
      throw toStateError(error, this.#directory, "close");
    }
  }

  /** Never rejects: what goes wrong is the commits' own. */
  async #writeQueue(): Promise<void> {
    while (this.#queue.length > 0) {
      const commits = this.#queue;
      this.#queue = [];
      try {
        await this.#write(commits);
        for (const commit of commits) commit.resolve();
      } catch (error) {
        const stateError = await describeFailure(error, this.#directory);
        for (const commit of commits) commit.reject(stateError);
      }
    }
    this.#writing = undefined;
  }

  /** A child transaction is rolled back whole when a put in it fails; a plain one would keep the puts before it. */
  async #write(commits: readonly Commit[]): Promise<void> {
    await this.#database.childTransaction(() => {
      for (const { puts } of commits) {
        for (const { key, value } of puts) {
          if (value === undefined) this.#database.removeSync(key);
          else this.#database.putSync(key, value);
        }
      }
    });
  }

  #checkOpen(): void {
    if (this.#closed !== undefined) throw new StateError("CLOSED", this.#directory, "used after close");
  }
}

/** Makes the name of the database durable, and those of the directories made for it: lmdb syncs the file's content only. */
async function syncNames(directory: string, firstMade: string | undefined): Promise<void> {
  const files = new NodeFileSystem();
  await files.syncDirectory(directory);
  if (firstMade === undefined) return;
  const top = directoryOf(resolve(firstMade));
  for (let made = resolve(directory); made !== top && made !== "/"; made = directoryOf(made)) {
    await files.syncDirectory(directoryOf(made));
  }
}

/** Big-endian UTF-16: the bytes then ascend as the code units do, and a prefix of the text is a prefix of the bytes. */
function encodeKey(key: string): Buffer {
  if (!(key.length >= 1 && key.length <= KEY_LENGTH_MAX)) fail("1 <= key length <= 989", { key });
  return Buffer.from(key, "utf16le").swap16();
}

function decodeKey(encodedKey: Uint8Array): string {
  return Buffer.from(encodedKey).swap16().toString("utf16le");
}

/** lmdb says only "commit failed" and keeps the reason in a promise of its own, which must be taken up in any case. */
async function describeFailure(error: unknown, directory: string): Promise<StateError> {
  if (!(error instanceof Error && "commitError" in error)) return toStateError(error, directory, "commit");
  try {
    await error.commitError;
    return toStateError(error, directory, "commit");
  } catch (reason) {
    return toStateError(reason, directory, "commit");
  }
}

function toStateError(error: unknown, directory: string, operation: string): StateError {
  if (error instanceof StateError) return error;
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  const isSystemError = typeof code === "string" || (typeof code === "number" && code >= SYSTEM_CODE_MIN);
  return new StateError(isSystemError ? "IO" : "CORRUPT", directory, `${operation}: ${String(error)}`, {
    cause: error,
  });
}

/** lmdb would find out itself, but says so on standard error. @throws Error ENOSPC */
async function requireSpace(directory: string): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  if (bavail * bsize >= FREE_BYTES_MIN) return;
  throw Object.assign(new Error(`ENOSPC: less than ${FREE_BYTES_MIN} bytes free for ${directory}`), { code: "ENOSPC" });
}

/** Pages of a value that was removed are written first by the next commits. */
async function reserveSpace(database: RootDatabase<Uint8Array, Buffer>, directory: string): Promise<void> {
  const key = encodeKey("reserved");
  try {
    await database.put(key, new Uint8Array(RESERVED_BYTES));
    await database.remove(key);
  } catch (error) {
    await database.close();
    throw await describeFailure(error, directory);
  }
}
