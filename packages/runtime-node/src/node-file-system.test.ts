import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { InvariantError, joinPath, readFully, writeFully } from "@tidemark/base";
import { NodeFileSystem } from "./node-file-system.ts";

const files = new NodeFileSystem();
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(joinPath(tmpdir(), "tidemark-files-"));
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

describe("errors that the system itself gives", () => {
  test("a full device says ENOSPC to both kinds of write", async () => {
    const file = await files.open("/dev/full", "write");
    await expect(file.writeAt(new Uint8Array(8), 0)).rejects.toMatchObject({ code: "ENOSPC", operation: "write" });
    expect(() => file.writeNow(new Uint8Array(8), 0)).toThrow("ENOSPC: write /dev/full");
    await file.close();
  });

  test("memory that is not mapped says EIO to both kinds of read", async () => {
    const file = await files.open("/proc/self/mem", "read");
    await expect(file.readAt(new Uint8Array(8), 0)).rejects.toMatchObject({
      code: "EIO",
      operation: "read",
      cause: { code: "EIO" },
    });
    expect(() => file.readNow(new Uint8Array(8), 0)).toThrow("EIO: read /proc/self/mem");
    await file.close();
  });

  test("a sync that the system refuses rejects", async () => {
    const file = await files.open("/dev/null", "write"); // A character device has nothing to sync: EINVAL.
    await expect(file.sync()).rejects.toMatchObject({ code: "EIO", operation: "sync", cause: { code: "EINVAL" } });
    await file.close();
  });
});

describe("positions", () => {
  test("above 2^32 are exact, for queued and direct calls", async () => {
    const file = await files.open(joinPath(directory, "sparse"), "create");
    const position = 5 * 2 ** 30 + 3;
    await writeFully(file, Uint8Array.of(1, 2, 3), position);
    expect(file.writeNow(Uint8Array.of(4), position + 3)).toBe(1);
    expect(await file.size()).toBe(position + 4);
    const target = new Uint8Array(6);
    expect(await readFully(file, target, position - 2)).toBe(6);
    expect([...target]).toEqual([0, 0, 1, 2, 3, 4]);
    expect(file.readNow(target, 1)).toBe(6);
    expect([...target]).toEqual([0, 0, 0, 0, 0, 0]);
    await file.truncate(2 ** 32 + 1);
    expect(await file.size()).toBe(2 ** 32 + 1);
    await file.close();
  });

  test.each([-1, 0.5, Number.NaN, 2 ** 53])("%s is a bug of the caller", async (position) => {
    const file = await files.open(joinPath(directory, "file"), "create");
    const bytes = new Uint8Array(1);
    expect(() => file.readNow(bytes, position)).toThrow(InvariantError);
    expect(() => file.writeNow(bytes, position)).toThrow(InvariantError);
    expect(() => file.readAt(bytes, position)).toThrow(InvariantError);
    expect(() => file.writeAt(bytes, position)).toThrow(InvariantError);
    expect(() => file.truncate(position)).toThrow(InvariantError);
    expect(await file.size()).toBe(0);
    await file.close();
  });
});

test("a lock where the addon does not load is ENOTSUP with the reason, and makes no file", async () => {
  const cause = new Error("no binary for this platform");
  const withoutAddon = new NodeFileSystem({ loadTryLock: () => Promise.reject(cause) });
  const path = joinPath(directory, ".lock");
  await expect(withoutAddon.lock(path)).rejects.toMatchObject({ code: "ENOTSUP", operation: "lock", path, cause });
  expect(await files.list(directory)).toEqual([]);
});

test.each([
  ["ENOLCK", "ENOTSUP"],
  ["EOPNOTSUPP", "ENOTSUP"],
  ["EACCES", "EBUSY"],
  ["EIO", "EIO"],
])("a lock call that fails with %s is %s", async (systemCode, code) => {
  const tryLock = () => {
    throw Object.assign(new Error(systemCode), { code: systemCode });
  };
  const failing = new NodeFileSystem({ loadTryLock: async () => tryLock });
  await expect(failing.lock(joinPath(directory, ".lock"))).rejects.toMatchObject({ code, operation: "lock" });
});

test("close waits for the calls in flight, so that none lands in another file under the same descriptor", async () => {
  const rounds = Array.from({ length: 40 }, async (_, round) => {
    const path = joinPath(directory, `file-${round}`);
    const file = await files.open(path, "create");
    const writes = Array.from({ length: 8 }, (_unused, index) =>
      file.writeAt(new Uint8Array(20_000).fill(round + 1), index * 20_000),
    );
    await file.close();
    const counts = await Promise.all(writes);
    expect(counts).toEqual(Array.from({ length: 8 }, () => 20_000));
    const reader = await files.open(path, "read");
    const content = new Uint8Array(160_000);
    expect(await readFully(reader, content, 0)).toBe(160_000);
    expect(content.every((byte) => byte === round + 1)).toBe(true);
    await reader.close();
  });
  await Promise.all(rounds);
  expect((await stat(directory)).isDirectory()).toBe(true);
});
