import { describe, expect } from "vitest";
import type { FileSystem, OpenMode } from "@tidemark/base";
import {
  decodeUtf8,
  encodeUtf8,
  joinPath,
  readFileIfPresent,
  readFully,
  writeFileAtomically,
  writeFully,
} from "@tidemark/base";
import type { Fixture } from "./fixture.ts";
import { contractTest, expectFileError, expectFileErrorNow } from "./fixture.ts";

export interface FileSystemFixture extends Fixture {
  readonly files: FileSystem;
  /** An existing, empty directory of the fixture's own. */
  readonly directory: string;
}

type MakeFixture = () => Promise<FileSystemFixture>;

const MODES: readonly OpenMode[] = ["read", "write", "create", "truncate"];

/** The contract of `FileSystem` but for `lock`, in what holds without a crash. */
export function describeFileSystem(name: string, makeFixture: MakeFixture): void {
  describe(`FileSystem: ${name}`, () => {
    openTests(makeFixture);
    renameTests(makeFixture);
    renameDirectoryTests(makeFixture);
    unlinkTests(makeFixture);
    listTests(makeFixture);
    directoryTests(makeFixture);
    atomicWriteTests(makeFixture);
  });
}

async function writeText(files: FileSystem, path: string, text: string): Promise<void> {
  const file = await files.open(path, "truncate");
  await writeFully(file, encodeUtf8(text), 0);
  await file.close();
}

async function readText(files: FileSystem, path: string): Promise<string | undefined> {
  const content = await readFileIfPresent(files, path);
  return content === undefined ? undefined : decodeUtf8(content);
}

function openTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "open for read or write of an absent file is ENOENT and makes nothing",
    async ({ files, directory }) => {
      const path = joinPath(directory, "absent");
      await expectFileError(() => files.open(path, "read"), "ENOENT", "open", path);
      await expectFileError(() => files.open(path, "write"), "ENOENT", "open", path);
      expect(await files.list(directory)).toEqual([]);
    },
  );

  contractTest(
    makeFixture,
    "open in a missing directory is ENOENT, below a file ENOTDIR, in every mode",
    async ({ files, directory }) => {
      await writeText(files, joinPath(directory, "file"), "x");
      for (const mode of MODES) {
        await expectFileError(() => files.open(joinPath(directory, "missing/file"), mode), "ENOENT", "open");
        await expectFileError(() => files.open(joinPath(directory, "file/below"), mode), "ENOTDIR", "open");
      }
    },
  );

  contractTest(makeFixture, "open of a directory is EISDIR in every mode", async ({ files, directory }) => {
    const path = joinPath(directory, "sub");
    await files.makeDirectory(path);
    for (const mode of MODES) await expectFileError(() => files.open(path, mode), "EISDIR", "open", path);
  });

  contractTest(
    makeFixture,
    "create makes an empty file or keeps the one there; truncate empties it",
    async ({ files, directory }) => {
      const path = joinPath(directory, "file");
      const made = await files.open(path, "create");
      expect(made.path).toBe(path);
      expect(await made.size()).toBe(0);
      await writeFully(made, encodeUtf8("kept"), 0);
      await made.close();
      await (await files.open(path, "create")).close();
      expect(await readText(files, path)).toBe("kept");
      await (await files.open(path, "write")).close();
      expect(await readText(files, path)).toBe("kept");
      await (await files.open(path, "truncate")).close();
      expect(await readText(files, path)).toBe("");
      await (await files.open(joinPath(directory, "new"), "truncate")).close();
      expect(await readText(files, joinPath(directory, "new"))).toBe("");
    },
  );

  contractTest(makeFixture, "write, create and truncate may read what they wrote", async ({ files, directory }) => {
    const path = joinPath(directory, "file");
    for (const mode of ["create", "write", "truncate"] as const) {
      const file = await files.open(path, mode);
      await writeFully(file, encodeUtf8(mode), 0);
      const target = new Uint8Array(mode.length);
      expect(await readFully(file, target, 0)).toBe(mode.length);
      expect(decodeUtf8(target)).toBe(mode);
      await file.close();
    }
  });

  contractTest(
    makeFixture,
    "a handle opened for read refuses to write with EBADF and changes nothing",
    async ({ files, directory }) => {
      const path = joinPath(directory, "file");
      await writeText(files, path, "text");
      const file = await files.open(path, "read");
      await expectFileError(() => file.writeAt(encodeUtf8("no"), 0), "EBADF", "write", path);
      expectFileErrorNow(() => file.writeNow(encodeUtf8("no"), 0), "EBADF", "write", path);
      await expectFileError(() => file.truncate(0), "EBADF", "truncate", path);
      await file.close();
      expect(await readText(files, path)).toBe("text");
    },
  );

  contractTest(
    makeFixture,
    "two handles of one file see each other's writes and truncations",
    async ({ files, directory }) => {
      const path = joinPath(directory, "file");
      const writer = await files.open(path, "create");
      const reader = await files.open(path, "read");
      await writeFully(writer, encodeUtf8("shared"), 0);
      const target = new Uint8Array(6);
      expect(await readFully(reader, target, 0)).toBe(6);
      expect(decodeUtf8(target)).toBe("shared");
      await (await files.open(path, "truncate")).close();
      expect(await reader.size()).toBe(0);
      expect(await writer.size()).toBe(0);
      await writer.close();
      await reader.close();
    },
  );

  contractTest(makeFixture, "a hundred files may be made at once", async ({ files, directory }) => {
    const names = Array.from({ length: 100 }, (_, index) => `file-${index}`);
    await Promise.all(names.map((name) => writeText(files, joinPath(directory, name), name)));
    expect([...(await files.list(directory))].sort()).toEqual([...names].sort());
    const texts = await Promise.all(names.map((name) => readText(files, joinPath(directory, name))));
    expect(texts).toEqual(names);
  });
}

function renameTests(makeFixture: MakeFixture): void {
  contractTest(makeFixture, "rename moves a file, also between directories", async ({ files, directory }) => {
    await files.makeDirectory(joinPath(directory, "sub"));
    await writeText(files, joinPath(directory, "a"), "content");
    await files.rename(joinPath(directory, "a"), joinPath(directory, "sub/b"));
    expect(await files.list(directory)).toEqual(["sub"]);
    expect(await readText(files, joinPath(directory, "sub/b"))).toBe("content");
  });

  contractTest(
    makeFixture,
    "rename replaces an existing file; a handle of the old one still reads the old",
    async ({ files, directory }) => {
      await writeText(files, joinPath(directory, "new"), "new content");
      await writeText(files, joinPath(directory, "file"), "old");
      const old = await files.open(joinPath(directory, "file"), "read");
      await files.rename(joinPath(directory, "new"), joinPath(directory, "file"));
      expect(await files.list(directory)).toEqual(["file"]);
      expect(await readText(files, joinPath(directory, "file"))).toBe("new content");
      const target = new Uint8Array(16);
      expect(await readFully(old, target, 0)).toBe(3);
      expect(decodeUtf8(target.subarray(0, 3))).toBe("old");
      await old.close();
    },
  );

  contractTest(makeFixture, "a handle follows its file through a rename", async ({ files, directory }) => {
    const file = await files.open(joinPath(directory, "a"), "create");
    await files.rename(joinPath(directory, "a"), joinPath(directory, "b"));
    await writeFully(file, encodeUtf8("after"), 0);
    await file.sync();
    await file.close();
    expect(await readText(files, joinPath(directory, "b"))).toBe("after");
  });

  contractTest(
    makeFixture,
    "rename of an absent file, or into a missing directory, is ENOENT and changes nothing",
    async ({ files, directory }) => {
      const path = joinPath(directory, "file");
      await writeText(files, path, "content");
      await expectFileError(
        () => files.rename(joinPath(directory, "absent"), path),
        "ENOENT",
        "rename",
        joinPath(directory, "absent"),
      );
      await expectFileError(() => files.rename(path, joinPath(directory, "missing/file")), "ENOENT", "rename", path);
      expect(await readText(files, path)).toBe("content");
    },
  );

  contractTest(makeFixture, "rename of a file to its own name keeps it", async ({ files, directory }) => {
    const path = joinPath(directory, "file");
    await writeText(files, path, "content");
    await files.rename(path, path);
    expect(await readText(files, path)).toBe("content");
  });
}

function renameDirectoryTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "rename moves a directory with what is in it; handles below it go along",
    async ({ files, directory }) => {
      await files.makeDirectory(joinPath(directory, "orders-0"));
      const file = await files.open(joinPath(directory, "orders-0/00000000000000000000.log"), "create");
      await files.rename(joinPath(directory, "orders-0"), joinPath(directory, "orders-0.c0ffee-delete"));
      await writeFully(file, encodeUtf8("after"), 0);
      await file.close();
      expect(await files.list(directory)).toEqual(["orders-0.c0ffee-delete"]);
      expect(await readText(files, joinPath(directory, "orders-0.c0ffee-delete/00000000000000000000.log"))).toBe(
        "after",
      );
    },
  );

  contractTest(
    makeFixture,
    "rename between kinds: EISDIR, ENOTDIR; onto a full directory ENOTEMPTY, onto an empty one fine",
    async ({ files, directory }) => {
      const at = (name: string) => joinPath(directory, name);
      await files.makeDirectory(at("from"));
      await files.makeDirectory(at("empty"));
      await files.makeDirectory(at("full"));
      await writeText(files, at("from/inside"), "moved");
      await writeText(files, at("full/inside"), "kept");
      await writeText(files, at("file"), "file");
      await expectFileError(() => files.rename(at("file"), at("empty")), "EISDIR", "rename");
      await expectFileError(() => files.rename(at("from"), at("file")), "ENOTDIR", "rename");
      await expectFileError(() => files.rename(at("from"), at("full")), "ENOTEMPTY", "rename");
      await files.rename(at("from"), at("empty"));
      expect([...(await files.list(directory))].sort()).toEqual(["empty", "file", "full"]);
      expect(await readText(files, at("empty/inside"))).toBe("moved");
      expect(await readText(files, at("full/inside"))).toBe("kept");
    },
  );
}

function unlinkTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "unlink takes the name away; of an absent file it is ENOENT",
    async ({ files, directory }) => {
      const path = joinPath(directory, "file");
      await writeText(files, path, "content");
      await files.unlink(path);
      expect(await files.list(directory)).toEqual([]);
      await expectFileError(() => files.unlink(path), "ENOENT", "unlink", path);
      await expectFileError(() => files.open(path, "read"), "ENOENT", "open", path);
    },
  );

  contractTest(
    makeFixture,
    "an open handle of an unlinked file reads, writes and grows; a new file of that name is another",
    async ({ files, directory }) => {
      const path = joinPath(directory, "file");
      const old = await files.open(path, "create");
      await writeFully(old, encodeUtf8("old"), 0);
      await files.unlink(path);
      await writeText(files, path, "new");
      await writeFully(old, encodeUtf8(" and older"), 3);
      await old.sync();
      expect(await old.size()).toBe(13);
      const target = new Uint8Array(13);
      expect(await readFully(old, target, 0)).toBe(13);
      expect(decodeUtf8(target)).toBe("old and older");
      await old.close();
      expect(await readText(files, path)).toBe("new");
    },
  );

  contractTest(makeFixture, "unlink of a directory is refused and leaves it", async ({ files, directory }) => {
    const path = joinPath(directory, "sub");
    await files.makeDirectory(path);
    // Linux says EISDIR; POSIX allows EPERM, which arrives as EACCES.
    await expectFileError(() => files.unlink(path), ["EISDIR", "EACCES"], "unlink", path);
    expect(await files.list(directory)).toEqual(["sub"]);
  });
}

function listTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "list gives names of files and directories, one level, in any order",
    async ({ files, directory }) => {
      expect(await files.list(directory)).toEqual([]);
      await files.makeDirectory(joinPath(directory, "sub/deeper"));
      await writeText(files, joinPath(directory, "sub/hidden"), "");
      await writeText(files, joinPath(directory, "b"), "");
      await writeText(files, joinPath(directory, ".lock"), "");
      await writeText(files, joinPath(directory, "größe"), "");
      expect(new Set(await files.list(directory))).toEqual(new Set(["sub", "b", ".lock", "größe"]));
      expect(await files.list(directory)).toHaveLength(4);
      expect(new Set(await files.list(joinPath(directory, "sub")))).toEqual(new Set(["deeper", "hidden"]));
    },
  );

  contractTest(
    makeFixture,
    "list of an absent directory is ENOENT, of a file ENOTDIR",
    async ({ files, directory }) => {
      await writeText(files, joinPath(directory, "file"), "");
      await expectFileError(
        () => files.list(joinPath(directory, "absent")),
        "ENOENT",
        "list",
        joinPath(directory, "absent"),
      );
      await expectFileError(
        () => files.list(joinPath(directory, "file")),
        "ENOTDIR",
        "list",
        joinPath(directory, "file"),
      );
    },
  );
}

function directoryTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "makeDirectory makes missing parents; an existing directory is no error and keeps its files",
    async ({ files, directory }) => {
      const path = joinPath(directory, "a/b/c");
      await Promise.all([files.makeDirectory(path), files.makeDirectory(path)]);
      await writeText(files, joinPath(path, "file"), "content");
      await files.makeDirectory(path);
      await files.makeDirectory(joinPath(directory, "a"));
      expect(await readText(files, joinPath(path, "file"))).toBe("content");
    },
  );

  contractTest(
    makeFixture,
    "makeDirectory over a file is EEXIST, below a file ENOTDIR",
    async ({ files, directory }) => {
      const path = joinPath(directory, "file");
      await writeText(files, path, "content");
      await expectFileError(() => files.makeDirectory(path), "EEXIST", "makeDirectory", path);
      await expectFileError(() => files.makeDirectory(joinPath(path, "below")), "ENOTDIR", "makeDirectory");
      await expectFileError(() => files.makeDirectory(joinPath(path, "below/deeper")), "ENOTDIR", "makeDirectory");
      expect(await readText(files, path)).toBe("content");
    },
  );

  contractTest(
    makeFixture,
    "removeDirectory removes an empty directory only: ENOTEMPTY, ENOENT, ENOTDIR",
    async ({ files, directory }) => {
      const path = joinPath(directory, "sub");
      await files.makeDirectory(path);
      await writeText(files, joinPath(path, "file"), "");
      await expectFileError(() => files.removeDirectory(path), "ENOTEMPTY", "removeDirectory", path);
      await expectFileError(() => files.removeDirectory(joinPath(path, "file")), "ENOTDIR", "removeDirectory");
      await files.unlink(joinPath(path, "file"));
      await files.removeDirectory(path);
      expect(await files.list(directory)).toEqual([]);
      await expectFileError(() => files.removeDirectory(path), "ENOENT", "removeDirectory", path);
      await files.makeDirectory(path);
      expect(await files.list(path)).toEqual([]);
    },
  );

  contractTest(
    makeFixture,
    "syncDirectory works on a directory; an absent one is ENOENT, a file ENOTDIR",
    async ({ files, directory }) => {
      await writeText(files, joinPath(directory, "file"), "content");
      await files.syncDirectory(directory);
      await files.syncDirectory(directory);
      expect(await readText(files, joinPath(directory, "file"))).toBe("content");
      await expectFileError(() => files.syncDirectory(joinPath(directory, "absent")), "ENOENT", "syncDirectory");
      await expectFileError(() => files.syncDirectory(joinPath(directory, "file")), "ENOTDIR", "syncDirectory");
    },
  );
}

function atomicWriteTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "writeFileAtomically over this file system makes, replaces and leaves no temporary file",
    async ({ files, directory }) => {
      const path = joinPath(directory, "leader-epoch-checkpoint");
      expect(await readText(files, path)).toBeUndefined();
      await writeFileAtomically(files, path, encodeUtf8("0\n0\n"));
      expect(await readText(files, path)).toBe("0\n0\n");
      await writeText(files, `${path}.tmp`, "left by a crash, and longer than what comes");
      await writeFileAtomically(files, path, encodeUtf8("0\n1\n0 0\n"));
      expect(await readText(files, path)).toBe("0\n1\n0 0\n");
      expect(await files.list(directory)).toEqual(["leader-epoch-checkpoint"]);
    },
  );
}
