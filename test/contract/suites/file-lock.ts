import { describe, expect } from "vitest";
import { decodeUtf8, encodeUtf8, joinPath, readFileIfPresent, writeFileAtomically } from "@tidemark/base";
import type { FileLock } from "@tidemark/base";
import type { FileSystemFixture } from "./file-system.ts";
import { contractTest, expectFileError } from "./fixture.ts";

/** The contract of `FileSystem.lock` inside one process. */
export function describeFileLock(name: string, makeFixture: () => Promise<FileSystemFixture>): void {
  describe(`FileLock: ${name}`, () => {
    contractTest(makeFixture, "lock makes the file, release leaves it", async ({ files, directory }) => {
      const lock = await files.lock(joinPath(directory, ".lock"));
      expect(await files.list(directory)).toEqual([".lock"]);
      await lock.release();
      expect(await files.list(directory)).toEqual([".lock"]);
    });

    contractTest(makeFixture, "lock keeps what is in the file", async ({ files, directory }) => {
      const path = joinPath(directory, ".lock");
      await writeFileAtomically(files, path, encodeUtf8("kept"));
      const lock = await files.lock(path);
      await lock.release();
      expect(decodeUtf8((await readFileIfPresent(files, path)) ?? new Uint8Array())).toBe("kept");
    });

    contractTest(makeFixture, "a second lock is EBUSY until the first is released", async ({ files, directory }) => {
      const path = joinPath(directory, ".lock");
      const first = await files.lock(path);
      await expectFileError(() => files.lock(path), "EBUSY", "lock", path);
      await expectFileError(() => files.lock(path), "EBUSY", "lock", path);
      await first.release();
      const second = await files.lock(path);
      await second.release();
    });

    contractTest(makeFixture, "another spelling of the path is the same lock", async ({ files, directory }) => {
      await files.makeDirectory(joinPath(directory, "sub"));
      const lock = await files.lock(joinPath(directory, ".lock"));
      await expectFileError(() => files.lock(joinPath(directory, "./.lock")), "EBUSY", "lock");
      await expectFileError(() => files.lock(joinPath(directory, "sub/../.lock")), "EBUSY", "lock");
      await lock.release();
    });

    contractTest(makeFixture, "reading the lock's file does not let the lock go", async ({ files, directory }) => {
      const path = joinPath(directory, ".lock");
      const lock = await files.lock(path);
      await (await files.open(path, "read")).close();
      await (await files.open(path, "create")).close();
      await expectFileError(() => files.lock(path), "EBUSY", "lock", path);
      await lock.release();
    });

    contractTest(
      makeFixture,
      "release twice is fine and does not free the lock of the next holder",
      async ({ files, directory }) => {
        const path = joinPath(directory, ".lock");
        const first = await files.lock(path);
        await Promise.all([first.release(), first.release()]);
        const second = await files.lock(path);
        await first.release();
        await expectFileError(() => files.lock(path), "EBUSY", "lock", path);
        await second.release();
      },
    );

    contractTest(makeFixture, "locks of two paths do not touch each other", async ({ files, directory }) => {
      const first = await files.lock(joinPath(directory, "a"));
      const second = await files.lock(joinPath(directory, "b"));
      await first.release();
      await expectFileError(() => files.lock(joinPath(directory, "b")), "EBUSY", "lock");
      await second.release();
    });

    contractTest(makeFixture, "of ten calls at once exactly one gets the lock", async ({ files, directory }) => {
      const path = joinPath(directory, ".lock");
      const locks: FileLock[] = [];
      const codes: string[] = [];
      await Promise.all(
        Array.from({ length: 10 }, () =>
          files.lock(path).then(
            (lock) => locks.push(lock),
            (error: { code?: string }) => codes.push(String(error.code)),
          ),
        ),
      );
      expect(locks).toHaveLength(1);
      expect(codes).toEqual(Array.from({ length: 9 }, () => "EBUSY"));
      await locks[0]?.release();
    });

    contractTest(
      makeFixture,
      "lock in a missing directory is ENOENT, of a directory EISDIR",
      async ({ files, directory }) => {
        await files.makeDirectory(joinPath(directory, "sub"));
        await expectFileError(() => files.lock(joinPath(directory, "missing/.lock")), "ENOENT", "lock");
        await expectFileError(() => files.lock(joinPath(directory, "sub")), "EISDIR", "lock");
      },
    );
  });
}
