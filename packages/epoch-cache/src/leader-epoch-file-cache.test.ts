import {
  decodeUtf8,
  directoryOf,
  encodeUtf8,
  FileError,
  InvariantError,
  toLeaderEpoch,
  toOffset,
} from "@tidemark/base";
import type { FileErrorCode, FileHandle, FileOperation, FileSystem, LeaderEpoch, OpenMode } from "@tidemark/base";
import { describe, expect, test } from "vitest";

import { CheckpointError } from "./checkpoint-lines.ts";
import { LeaderEpochFileCache } from "./leader-epoch-file-cache.ts";

const DIRECTORY = "/data/orders-0";
const PATH = `${DIRECTORY}/leader-epoch-checkpoint`;
const TEMPORARY = `${PATH}.tmp`;
const DURABLE_WRITE = [
  `open ${TEMPORARY}`,
  `write ${TEMPORARY}`,
  `sync ${TEMPORARY}`,
  `rename ${TEMPORARY}`,
  `syncDirectory ${DIRECTORY}`,
];

describe("assign", () => {
  test("EC-02 a new epoch is in the file, synced and renamed, once assign resolves", async () => {
    const { files, cache } = await cacheOn();
    expect(await assign(cache, 3, 40)).toBe(true);
    expect(show(cache)).toBe("3@40");
    expect(files.text(PATH)).toBe("0\n1\n3 40\n");
    expect(files.changes()).toEqual(DURABLE_WRITE);
    expect(cache.isDirty).toBe(false);
  });

  test("EC-03 the same epoch at a higher offset changes nothing and touches no file", async () => {
    const { files, cache } = await cacheOn("0\n1\n3 40\n");
    expect(await assign(cache, 3, 45)).toBe(false);
    expect(show(cache)).toBe("3@40");
    expect(files.changes()).toEqual([]);
  });

  test("EC-12 a negative epoch is refused and the next assign goes on", async () => {
    const { files, cache } = await cacheOn("0\n1\n3 40\n");
    await expect(cache.assign(-1 as LeaderEpoch, toOffset(50))).rejects.toThrow(InvariantError);
    expect(files.changes()).toEqual([]);
    expect(await assign(cache, 4, 50)).toBe(true);
    expect(show(cache)).toBe("3@40 4@50");
  });

  test.each(["open", "write", "sync", "rename"] as const)(
    "a %s that fails with ENOSPC rejects, leaves memory and file, and a later assign works",
    async (operation) => {
      const { files, cache } = await cacheOn("0\n1\n3 40\n");
      files.failNext(operation, "ENOSPC");
      await expect(assign(cache, 5, 52)).rejects.toMatchObject({ name: "FileError", code: "ENOSPC", operation });
      expect(show(cache)).toBe("3@40");
      expect(files.text(PATH)).toBe("0\n1\n3 40\n");
      expect(await assign(cache, 5, 52)).toBe(true);
      expect(files.text(PATH)).toBe("0\n2\n3 40\n5 52\n");
    },
  );

  test("a directory that cannot be synced leaves memory as it was, and a flush writes memory's entries again", async () => {
    const { files, cache } = await cacheOn("0\n1\n3 40\n");
    files.failNext("syncDirectory", "EIO");
    await expect(assign(cache, 5, 52)).rejects.toMatchObject({ code: "EIO" });
    expect(show(cache)).toBe("3@40");
    expect(cache.isDirty).toBe(true); // The file may hold 5@52 by now: an entry too many, which is the harmless side.
    await cache.flush();
    expect(files.text(PATH)).toBe("0\n1\n3 40\n");
  });

  test("assigns that overlap take effect in the order of the calls", async () => {
    const { files, cache } = await cacheOn();
    expect(await Promise.all([assign(cache, 1, 0), assign(cache, 2, 10), assign(cache, 2, 12)])).toEqual([
      true,
      true,
      false,
    ]);
    expect(files.text(PATH)).toBe("0\n2\n1 0\n2 10\n");
    expect(files.changes()).toEqual([...DURABLE_WRITE, ...DURABLE_WRITE]);
  });

  test("memory shows a new epoch only after its file is durable", async () => {
    const { files, cache } = await cacheOn("0\n1\n3 40\n");
    const seen: string[] = [];
    files.onOperation = (operation) => seen.push(`${operation} ${show(cache)}`);
    await assign(cache, 5, 52);
    expect(seen.at(-1)).toBe("syncDirectory 3@40");
    expect(show(cache)).toBe("3@40 5@52");
  });

  test("a truncation while an assign is in flight is a bug of the caller", async () => {
    const { cache } = await cacheOn("0\n1\n3 40\n");
    const assigned = assign(cache, 5, 52);
    expect(() => cache.truncateFromEnd(50)).toThrow(InvariantError);
    expect(() => cache.truncateFromStart(50)).toThrow(InvariantError);
    await expect(cache.clearAndFlush()).rejects.toThrow(InvariantError);
    await assigned;
    expect(show(cache)).toBe("3@40 5@52");
    expect(cache.truncateFromEnd(50)).toBe(true);
  });
});

describe("open", () => {
  test("EC-35 a second instance on the same file has the entries of the first", async () => {
    const { files, cache } = await cacheOn();
    await assign(cache, 3, 40);
    const reopened = await LeaderEpochFileCache.open(files, DIRECTORY);
    expect(show(reopened)).toBe("3@40");
    expect(reopened.isDirty).toBe(false);
  });

  test("without a file there are no entries and none is made", async () => {
    const { files, cache } = await cacheOn();
    expect(show(cache)).toBe("");
    expect(cache.isDirty).toBe(false);
    await cache.flush();
    expect(files.text(PATH)).toBeUndefined();
  });

  test("CK-02 a file of zero bytes has no entries", async () => {
    const { cache } = await cacheOn("");
    expect(show(cache)).toBe("");
  });

  test("CK-06 a crash before the rename leaves the old content, and the leftover is ignored and overwritten", async () => {
    const { files, cache } = await cacheOn("0\n1\n3 40\n");
    files.failNext("rename", "EIO");
    await expect(assign(cache, 5, 52)).rejects.toThrow(FileError);
    expect(files.text(TEMPORARY)).toBe("0\n2\n3 40\n5 52\n");
    const reopened = await LeaderEpochFileCache.open(files, DIRECTORY);
    expect(show(reopened)).toBe("3@40");
    await assign(reopened, 4, 50);
    expect(files.text(PATH)).toBe("0\n2\n3 40\n4 50\n");
    expect(files.text(TEMPORARY)).toBeUndefined();
  });

  test("CK-07 a file whose entries do not ascend is healed in memory and written at the next flush", async () => {
    const { files, cache } = await cacheOn("0\n2\n5 52\n3 40\n");
    expect(show(cache)).toBe("3@40");
    expect(cache.isDirty).toBe(true);
    await cache.flush();
    expect(files.text(PATH)).toBe("0\n1\n3 40\n");
  });

  test("CK-03 a malformed file is the caller's to rebuild", async () => {
    const files = new MemoryFiles({ [PATH]: "1\n0\n" });
    const opened = LeaderEpochFileCache.open(files, DIRECTORY);
    await expect(opened).rejects.toThrow(CheckpointError);
    await expect(opened).rejects.toMatchObject({ path: PATH, line: 1 });
    const entries = [{ epoch: toLeaderEpoch(2), startOffset: toOffset(7) }];
    const rebuilt = LeaderEpochFileCache.rebuilt(files, DIRECTORY, entries);
    expect(rebuilt.isDirty).toBe(true);
    await rebuilt.flush();
    expect(files.text(PATH)).toBe("0\n1\n2 7\n");
    expect(rebuilt.isDirty).toBe(false);
  });

  test("a file rebuilt to no entries is written too", async () => {
    const files = new MemoryFiles({ [PATH]: "1\n0\n" });
    await LeaderEpochFileCache.rebuilt(files, DIRECTORY, []).flush();
    expect(files.text(PATH)).toBe("0\n0\n");
  });

  test("a file that cannot be read is the disk's error", async () => {
    const files = new MemoryFiles({ [PATH]: "0\n0\n" });
    files.failNext("read", "EIO");
    await expect(LeaderEpochFileCache.open(files, DIRECTORY)).rejects.toMatchObject({ code: "EIO" });
  });

  test("answers are those of the entries in the file", async () => {
    const { cache } = await cacheOn("0\n3\n0 10\n4 25\n5 33\n");
    expect(cache.latest).toEqual({ epoch: 5, startOffset: 33 });
    expect(cache.endOffsetFor(3, toOffset(40))).toEqual({ epoch: 0, endOffset: 25 });
    expect(cache.epochForOffset(toOffset(24))).toBe(0);
    expect(cache.previousEpoch(5)).toBe(4);
    expect(cache.nextEpoch(0)).toBe(4);
    expect(cache.entriesInRange(20, 30)).toEqual([
      { epoch: 0, startOffset: 20 },
      { epoch: 4, startOffset: 25 },
    ]);
  });
});

// Kafka flushes a truncation from its scheduler; here the owner of the log calls flush, so that the order of writes is
// the partition queue's.
describe("truncation and flush", () => {
  const THREE = "0\n3\n3 40\n5 52\n8 61\n";

  test("EC-36 a truncation is in memory at once and in the file after the flush", async () => {
    const { files, cache } = await cacheOn(THREE);
    expect(cache.truncateFromEnd(61)).toBe(true);
    expect(cache.isDirty).toBe(true);
    expect(files.text(PATH)).toBe(THREE);
    await cache.flush();
    expect(files.text(PATH)).toBe("0\n2\n3 40\n5 52\n");
    expect(cache.isDirty).toBe(false);
    expect(files.changes()).toEqual(DURABLE_WRITE);
  });

  test("EC-25 a truncation that removes nothing leaves nothing to flush", async () => {
    const { files, cache } = await cacheOn(THREE);
    expect(cache.truncateFromEnd(62)).toBe(false);
    expect(cache.truncateFromStart(40)).toBe(false);
    expect(cache.isDirty).toBe(false);
    await cache.flush();
    expect(files.changes()).toEqual([]);
  });

  // Kafka's task says nothing when the directory is gone. Here the owner decides whether to flush a log that was
  // deleted, so a missing directory is told: silence would also hide a live partition that lost its files.
  test("EC-37 a flush into a deleted directory rejects with ENOENT and creates nothing", async () => {
    const { files, cache } = await cacheOn(THREE);
    cache.truncateFromEnd(61);
    files.deleteDirectory(DIRECTORY);
    await expect(cache.flush()).rejects.toMatchObject({ name: "FileError", code: "ENOENT" });
    expect(files.paths()).toEqual([]);
    expect(cache.isDirty).toBe(true);
  });

  test("EC-38 an assign writes the truncation before it along", async () => {
    const { files, cache } = await cacheOn(THREE);
    cache.truncateFromEnd(61);
    await assign(cache, 9, 70);
    expect(files.text(PATH)).toBe("0\n3\n3 40\n5 52\n9 70\n");
    expect(cache.isDirty).toBe(false);
  });

  test("EC-39 clearAndFlush leaves a file without entries", async () => {
    const { files, cache } = await cacheOn("0\n2\n3 40\n5 52\n");
    await cache.clearAndFlush();
    expect(files.text(PATH)).toBe("0\n0\n");
    expect(show(cache)).toBe("");
    expect(cache.isDirty).toBe(false);
  });

  test("a clearAndFlush that fails leaves the cache dirty, and flush tries again", async () => {
    const { files, cache } = await cacheOn("0\n1\n3 40\n");
    files.failNext("write", "ENOSPC");
    await expect(cache.clearAndFlush()).rejects.toMatchObject({ code: "ENOSPC" });
    expect(cache.isDirty).toBe(true);
    expect(files.text(PATH)).toBe("0\n1\n3 40\n");
    await cache.flush();
    expect(files.text(PATH)).toBe("0\n0\n");
  });

  test("a truncation during a flush is left for the next one", async () => {
    const { files, cache } = await cacheOn(THREE);
    cache.truncateFromStart(57);
    const flushed = cache.flush();
    files.onOperation = (operation) => {
      if (operation === "rename") cache.truncateFromEnd(61);
    };
    await flushed;
    expect(files.text(PATH)).toBe("0\n2\n5 57\n8 61\n");
    expect(cache.isDirty).toBe(true);
    await cache.flush();
    expect(files.text(PATH)).toBe("0\n1\n5 57\n");
  });

  test("EC-40 after a rename of the directory the entries come from memory and the file appears only there", async () => {
    const { files, cache } = await cacheOn(THREE);
    cache.truncateFromEnd(61);
    files.deleteDirectory(DIRECTORY);
    await files.makeDirectory("/data/orders-0.renamed");
    cache.moveTo("/data/orders-0.renamed");
    await assign(cache, 10, 70);
    expect(files.text("/data/orders-0.renamed/leader-epoch-checkpoint")).toBe("0\n3\n3 40\n5 52\n10 70\n");
    expect(files.paths()).toEqual(["/data/orders-0.renamed/leader-epoch-checkpoint"]);
  });
});

async function cacheOn(text?: string): Promise<{ files: MemoryFiles; cache: LeaderEpochFileCache }> {
  const files = new MemoryFiles(text === undefined ? {} : { [PATH]: text });
  const cache = await LeaderEpochFileCache.open(files, DIRECTORY);
  files.forgetOperations();
  return { files, cache };
}

function assign(cache: LeaderEpochFileCache, epoch: number, startOffset: number): Promise<boolean> {
  return cache.assign(toLeaderEpoch(epoch), toOffset(startOffset));
}

function show(cache: LeaderEpochFileCache): string {
  return cache.entries.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
}

/** Just enough of a file system for one checkpoint file: contents by path, a list of operations, one fault at a time. */
class MemoryFiles implements FileSystem {
  onOperation: (operation: FileOperation) => void = () => undefined;
  readonly #contents = new Map<string, Uint8Array>();
  readonly #directories = new Set([DIRECTORY]);
  #operations: string[] = [];
  #fault: { operation: FileOperation; code: FileErrorCode } | undefined;

  constructor(texts: Readonly<Record<string, string>>) {
    for (const [path, text] of Object.entries(texts)) this.#contents.set(path, encodeUtf8(text));
  }

  text(path: string): string | undefined {
    const content = this.#contents.get(path);
    return content && decodeUtf8(content);
  }

  paths(): string[] {
    return [...this.#contents.keys()];
  }

  /** `operation path` of everything but reads and closes, since the cache was opened. */
  changes(): string[] {
    return this.#operations.filter((line) => !/^(read|size|close) /.test(line));
  }

  forgetOperations(): void {
    this.#operations = [];
  }

  failNext(operation: FileOperation, code: FileErrorCode): void {
    this.#fault = { operation, code };
  }

  deleteDirectory(directory: string): void {
    this.#directories.delete(directory);
    for (const path of this.paths()) if (directoryOf(path) === directory) this.#contents.delete(path);
  }

  async open(path: string, mode: OpenMode): Promise<FileHandle> {
    await this.#perform("open", path);
    if (!this.#directories.has(directoryOf(path))) throw new FileError("ENOENT", "open", path);
    const isThere = this.#contents.has(path);
    if (!isThere && (mode === "read" || mode === "write")) throw new FileError("ENOENT", "open", path);
    if (!isThere || mode === "truncate") this.#contents.set(path, new Uint8Array());
    return this.#handle(path);
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#perform("rename", from);
    this.#contents.set(to, this.#contents.get(from) ?? new Uint8Array());
    this.#contents.delete(from);
  }

  async syncDirectory(directory: string): Promise<void> {
    await this.#perform("syncDirectory", directory);
  }

  async makeDirectory(path: string): Promise<void> {
    await this.#perform("makeDirectory", path);
    this.#directories.add(path);
  }

  unlink = this.#notNeeded("unlink");
  removeDirectory = this.#notNeeded("removeDirectory");
  list = this.#notNeeded("list");
  lock = this.#notNeeded("lock");

  #handle(path: string): FileHandle {
    const content = (): Uint8Array => this.#contents.get(path) ?? new Uint8Array();
    return {
      path,
      readAt: async (target, positionBytes) => {
        await this.#perform("read", path);
        const part = content().subarray(positionBytes, positionBytes + target.length);
        target.set(part);
        return part.length;
      },
      writeAt: async (source, positionBytes) => {
        await this.#perform("write", path);
        const grown = new Uint8Array(Math.max(content().length, positionBytes + source.length));
        grown.set(content());
        grown.set(source, positionBytes);
        this.#contents.set(path, grown);
        return source.length;
      },
      sync: () => this.#perform("sync", path),
      modifiedMs: async () => 0,
      size: async () => {
        await this.#perform("size", path);
        return content().length;
      },
      close: () => this.#perform("close", path),
      truncate: () => Promise.reject(new FileError("ENOTSUP", "truncate", path)),
      readNow: () => Number.NaN,
      writeNow: () => Number.NaN,
    };
  }

  async #perform(operation: FileOperation, path: string): Promise<void> {
    await Promise.resolve();
    this.#operations.push(`${operation} ${path}`);
    this.onOperation(operation);
    const fault = this.#fault;
    if (fault?.operation !== operation) return;
    this.#fault = undefined;
    throw new FileError(fault.code, operation, path);
  }

  #notNeeded(operation: FileOperation): (path: string) => Promise<never> {
    return (path) => Promise.reject(new FileError("ENOTSUP", operation, path));
  }
}
