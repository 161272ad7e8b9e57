import { decodeUtf8, encodeUtf8, FileError, readFileIfPresent, writeFileAtomically, writeFully } from "@tidemark/base";
import type { FileHandle } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import { SimulatedCrash } from "./completion.ts";
import { SimulatedDisk } from "./disk.ts";
import { SimulatedEnvironment } from "./environment.ts";
import { SimulatedRandom } from "./random.ts";

async function content(disk: SimulatedDisk, path: string): Promise<string | undefined> {
  const bytes = await readFileIfPresent(disk, path);
  return bytes === undefined ? undefined : decodeUtf8(bytes);
}

async function openNew(disk: SimulatedDisk, path: string, text: string): Promise<FileHandle> {
  await writeFileAtomically(disk, path, encodeUtf8(text));
  return disk.open(path, "write");
}

/** Whether the promise has settled once everything runnable has run. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  promise.then(
    () => (settled = true),
    () => (settled = true),
  );
  await new Promise((resolve) => setImmediate(resolve));
  return settled;
}

describe("crashes", () => {
  test("a crash of the process keeps every byte, and they are still not safe from a crash of the machine", async () => {
    const disk = new SimulatedDisk();
    const file = await openNew(disk, "/a", "old");
    await writeFully(file, encodeUtf8("new"), 0);
    const next = disk.crashProcess();
    expect(await content(next, "/a")).toBe("new");
    const images = [...next.enumerateCrashImages("ordered-prefix")];
    expect(images.map((image) => decodeUtf8(image.files().get("/a") ?? new Uint8Array()))).toEqual(["old", "new"]);
  });

  test("a sync by the next process makes durable what the dead one wrote", async () => {
    const disk = new SimulatedDisk();
    const file = await openNew(disk, "/a", "old");
    await writeFully(file, encodeUtf8("new"), 0);
    const next = disk.crashProcess();
    await (await next.open("/a", "read")).sync();
    expect([...next.enumerateCrashImages("any-subset")]).toHaveLength(1);
  });

  test("calls of a dead process never settle, direct ones throw, and the next process is not disturbed", async () => {
    const disk = new SimulatedDisk();
    const file = await openNew(disk, "/a", "old");
    const next = disk.crashProcess();
    expect(await isSettled(file.writeAt(encodeUtf8("zombie"), 0))).toBe(false);
    expect(() => file.writeNow(encodeUtf8("zombie"), 0)).toThrow(SimulatedCrash);
    expect(await content(next, "/a")).toBe("old");
  });

  test("crashAfter lets that many operations happen and nothing after them", async () => {
    const disk = new SimulatedDisk();
    const file = await openNew(disk, "/a", "......");
    disk.crashAfter(2);
    await file.writeAt(encodeUtf8("1"), 0);
    await file.writeAt(encodeUtf8("2"), 1);
    expect(await isSettled(file.writeAt(encodeUtf8("3"), 2))).toBe(false);
    expect(await isSettled(file.size())).toBe(false);
    expect(disk.isCrashed).toBe(true);
    expect(decodeUtf8(disk.image().files().get("/a") ?? new Uint8Array())).toBe("12....");
  });

  test("crashMachine draws one outcome from the seed: the same seed gives the same image", async () => {
    const run = async (seed: number): Promise<string> => {
      const disk = new SimulatedDisk({ random: new SimulatedRandom(seed) });
      const file = await openNew(disk, "/a", "");
      for (let position = 0; position < 16; position++) await file.writeAt(encodeUtf8("x"), position);
      return disk.crashMachine("any-subset").image().digest;
    };
    const digests = await Promise.all([1, 1, 2, 3, 4].map((seed) => run(seed)));
    expect(digests[1]).toBe(digests[0]);
    expect(new Set(digests).size).toBe(4);
  });

  test("crashPoints shows the storage between any two operations, a crash of the process included", async () => {
    const disk = new SimulatedDisk();
    const file = await openNew(disk, "/a", "");
    const before = disk.operationCount;
    await file.writeAt(encodeUtf8("1"), 0);
    await file.writeAt(encodeUtf8("2"), 1);
    await file.sync();
    const points = [...disk.crashPoints()].filter((point) => point.number >= before);
    const live = points.map((point) => SimulatedDisk.afterProcessCrash(point).image().files().get("/a"));
    expect(live.map((bytes) => decodeUtf8(bytes ?? new Uint8Array()))).toEqual(["", "1", "12", "12"]);
    expect(points.map((point) => point.pending.length)).toEqual([0, 1, 2, 0]);
    expect(points.map((point) => point.number)).toEqual([before, before + 1, before + 2, before + 3]);
  });

  test("the lock of a dead process is free", async () => {
    const disk = new SimulatedDisk();
    await disk.lock("/.lock");
    await expect(disk.lock("/.lock")).rejects.toMatchObject({ code: "EBUSY" });
    const next = disk.crashProcess();
    const lock = await next.lock("/.lock");
    await lock.release();
    await lock.release();
    await next.lock("/.lock");
    await expect(next.lock("/.lock")).rejects.toMatchObject({ code: "EBUSY" });
  });
});

describe("faults", () => {
  test("a stalled call is not answered until it is released; others are, of other files and operations too", async () => {
    const disk = new SimulatedDisk();
    const log = await openNew(disk, "/a.log", "1");
    const index = await openNew(disk, "/a.index", "2");
    const stall = disk.stall({ operation: "read", path: /\.log$/u });
    let isAnswered = false;
    const target = new Uint8Array(1);
    const reading = log.readAt(target, 0).then((count) => {
      isAnswered = true;
      return count;
    });
    expect(await index.readAt(new Uint8Array(1), 0)).toBe(1);
    await log.sync();
    expect([isAnswered, target[0]]).toEqual([false, 0]);
    stall.release();
    expect([await reading, decodeUtf8(target)]).toEqual([1, "1"]);
    expect(await log.readAt(target, 0)).toBe(1);
  });

  test("EIO strikes the addressed file and operation, after `skip` calls, `count` times", async () => {
    const disk = new SimulatedDisk();
    const log = await openNew(disk, "/00.log", "");
    const index = await openNew(disk, "/00.index", "");
    const fault = disk.inject({ operation: "write", path: ".log", skip: 1, count: 2, code: "EIO" });
    await index.writeAt(encodeUtf8("x"), 0);
    await log.writeAt(encodeUtf8("1"), 0);
    await expect(log.writeAt(encodeUtf8("2"), 1)).rejects.toThrow(new FileError("EIO", "write", "/00.log"));
    expect(() => log.writeNow(encodeUtf8("2"), 1)).toThrow(FileError);
    await log.writeAt(encodeUtf8("2"), 1);
    expect(fault.hits).toBe(2);
    expect(await content(disk, "/00.log")).toBe("12");
  });

  test("a failed write may leave a part of its bytes", async () => {
    const seen = new Set<number>();
    for (let seed = 0; seed < 40; seed++) {
      const disk = new SimulatedDisk({ random: new SimulatedRandom(seed) });
      const file = await openNew(disk, "/a", "");
      disk.inject({ operation: "write", code: "EIO", written: "part" });
      await expect(file.writeAt(encodeUtf8("abc"), 0)).rejects.toMatchObject({ code: "EIO" });
      seen.add(await file.size());
    }
    expect(seen).toEqual(new Set([0, 1, 2, 3]));
  });

  test.each([
    { pages: "new" as const, reads: "new", afterCrash: ["old"] },
    { pages: "old" as const, reads: "old", afterCrash: ["old"] },
    { pages: "dirty" as const, reads: "new", afterCrash: ["new"] },
  ])("after a failed sync ($pages) reads see $reads, and a sync that succeeds leaves $afterCrash", async (row) => {
    const disk = new SimulatedDisk();
    const file = await openNew(disk, "/a", "old");
    await file.writeAt(encodeUtf8("new"), 0);
    disk.inject({ operation: "sync", code: "EIO", pages: row.pages });
    await expect(file.sync()).rejects.toMatchObject({ code: "EIO", operation: "sync" });
    expect(await content(disk, "/a")).toBe(row.reads);
    await file.sync();
    const images = [...disk.enumerateCrashImages("any-subset")];
    expect(images.map((image) => decodeUtf8(image.files().get("/a") ?? new Uint8Array()))).toEqual(row.afterCrash);
    expect(await content(disk.crashProcess(), "/a")).toBe(row.reads);
  });

  test("a full disk takes what fits, then says ENOSPC, and goes on once it has grown", async () => {
    const disk = new SimulatedDisk({ capacityBytes: 10 });
    const file = await openNew(disk, "/a", "1234");
    expect(await file.writeAt(encodeUtf8("abcdefghij"), 4)).toBe(6);
    await expect(file.writeAt(encodeUtf8("ghij"), 10)).rejects.toMatchObject({ code: "ENOSPC" });
    await expect(file.truncate(11)).rejects.toMatchObject({ code: "ENOSPC" });
    expect(await file.writeAt(encodeUtf8("overwrites"), 0)).toBe(10);
    disk.limits.capacityBytes = 20;
    await writeFully(file, encodeUtf8("ghij"), 10);
    expect(await file.size()).toBe(14);
  });

  test("space of a removed file is free once its last handle is closed", async () => {
    const disk = new SimulatedDisk({ capacityBytes: 10 });
    const file = await openNew(disk, "/a", "1234567890");
    await disk.unlink("/a");
    await expect(writeFileAtomically(disk, "/b", encodeUtf8("x"))).rejects.toMatchObject({ code: "ENOSPC" });
    await file.close();
    await writeFileAtomically(disk, "/b", encodeUtf8("1234567890"));
    expect(await content(disk, "/b")).toBe("1234567890");
  });

  test("short transfers move at least a byte, and loops above the port finish", async () => {
    const disk = new SimulatedDisk({ shortTransferOneIn: 1 });
    const file = await disk.open("/a", "create");
    const text = "a text of some length";
    expect(await file.writeAt(encodeUtf8(text), 0)).toBeLessThan(text.length);
    await writeFully(file, encodeUtf8(text), 0);
    expect(await content(disk, "/a")).toBe(text);
  });

  test("EMFILE past the limit of open files, and none after one is closed", async () => {
    const disk = new SimulatedDisk({ handlesMax: 1 });
    const file = await disk.open("/a", "create");
    await expect(disk.open("/a", "read")).rejects.toMatchObject({ code: "EMFILE" });
    await file.close();
    await file.close();
    await disk.open("/a", "read");
    expect(disk.openFileCount).toBe(1);
  });

  test.each(["EACCES", "EROFS", "ENOSPC"] as const)(
    "%s from open, rename or unlink leaves everything as it was",
    async (code) => {
      const disk = new SimulatedDisk();
      await openNew(disk, "/a", "old");
      const before = disk.image().digest;
      disk.inject({ operation: ["open", "rename", "unlink"], code, count: 3 });
      await expect(disk.open("/b", "create")).rejects.toMatchObject({ code });
      await expect(disk.rename("/a", "/b")).rejects.toMatchObject({ code });
      await expect(disk.unlink("/a")).rejects.toMatchObject({ code });
      expect(disk.image().digest).toBe(before);
    },
  );
});

test("a fault that is not wanted at the moment of a call passes it, and strikes the next one that it is wanted for", async () => {
  const disk = new SimulatedDisk();
  const handle = await openNew(disk, "/file", "");
  let isWanted = false;
  const fault = disk.inject({ operation: "write", code: "EIO", isWanted: () => isWanted });
  await writeFully(handle, encodeUtf8("a"), 0);
  isWanted = true;
  await expect(writeFully(handle, encodeUtf8("b"), 1)).rejects.toMatchObject({ code: "EIO" });
  await writeFully(handle, encodeUtf8("c"), 1);
  expect([fault.hits, await content(disk, "/file")]).toEqual([1, "ac"]);
});

test("a slow disk answers later, and as before once it is not slow any more", async () => {
  const environment = new SimulatedEnvironment({ seed: 1, mode: "kernel" });
  const { kernel, files } = environment;
  const took = (): Promise<number> =>
    kernel.run(async () => {
      const startUs = kernel.nowUs;
      for (let call = 0; call < 20; call += 1) await files.makeDirectory(`/${call}`);
      return kernel.nowUs - startUs;
    });
  const before = await took();
  files.slowDown(1_000_000);
  expect(await took()).toBeGreaterThan(before + 1_000_000);
  files.slowDown(0);
  expect(await took()).toBeLessThan(100_000);
  expect(() => new SimulatedDisk().slowDown(1)).toThrow("only a kernel has time");
});
