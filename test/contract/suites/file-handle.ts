import { describe, expect } from "vitest";
import type { FileHandle } from "@tidemark/base";
import { decodeUtf8, encodeUtf8, joinPath, readFully, writeFully } from "@tidemark/base";
import type { FileSystemFixture } from "./file-system.ts";
import { contractTest, expectFileError, expectFileErrorNow, expectSameBytes, patternBytes } from "./fixture.ts";

type MakeFixture = () => Promise<FileSystemFixture>;

/** Reading and writing in one of the two ways a handle has: the same tests run over both. */
interface Access {
  readonly name: string;
  read(file: FileHandle, target: Uint8Array, positionBytes: number): Promise<number>;
  write(file: FileHandle, source: Uint8Array, positionBytes: number): Promise<number>;
}

const ACCESSES: readonly Access[] = [
  {
    name: "readAt/writeAt",
    read: (file, target, positionBytes) => file.readAt(target, positionBytes),
    write: (file, source, positionBytes) => file.writeAt(source, positionBytes),
  },
  {
    name: "readNow/writeNow",
    read: async (file, target, positionBytes) => file.readNow(target, positionBytes),
    write: async (file, source, positionBytes) => file.writeNow(source, positionBytes),
  },
];

/** The contract of `FileHandle`, in what holds without a crash. Any call may be short: an implementation that makes them so passes. */
export function describeFileHandle(name: string, makeFixture: MakeFixture): void {
  describe(`FileHandle: ${name}`, () => {
    for (const access of ACCESSES) {
      describe(access.name, () => {
        readTests(makeFixture, access);
        writeTests(makeFixture, access);
      });
    }
    mixedTests(makeFixture);
    sizeTests(makeFixture);
    closeTests(makeFixture);
  });
}

async function openFile({ files, directory }: FileSystemFixture, text = ""): Promise<FileHandle> {
  const file = await files.open(joinPath(directory, "file"), "truncate");
  await writeFully(file, encodeUtf8(text), 0);
  return file;
}

/** Everything in [0, size), by `readAt`. */
async function readAll(file: FileHandle): Promise<Uint8Array> {
  const content = new Uint8Array(await file.size());
  expect(await readFully(file, content, 0)).toBe(content.length);
  return content;
}

async function writeLoop(access: Access, file: FileHandle, source: Uint8Array, positionBytes: number): Promise<void> {
  let count = 0;
  while (count < source.length) {
    const written = await access.write(file, source.subarray(count), positionBytes + count);
    expect(written >= 0 && written <= source.length - count).toBe(true);
    count += written;
  }
}

async function readLoop(access: Access, file: FileHandle, target: Uint8Array, positionBytes: number): Promise<number> {
  let count = 0;
  while (count < target.length) {
    const read = await access.read(file, target.subarray(count), positionBytes + count);
    expect(read >= 0 && read <= target.length - count).toBe(true);
    if (read === 0) break;
    count += read;
  }
  return count;
}

function readTests(makeFixture: MakeFixture, access: Access): void {
  contractTest(makeFixture, "reads at any position; 0 at and past the end, and only there", async (fixture) => {
    const file = await openFile(fixture, "0123456789");
    const target = new Uint8Array(4);
    expect(await readLoop(access, file, target, 3)).toBe(4);
    expect(decodeUtf8(target)).toBe("3456");
    expect(await access.read(file, new Uint8Array(4), 10)).toBe(0);
    expect(await access.read(file, new Uint8Array(4), 11)).toBe(0);
    expect(await access.read(file, new Uint8Array(4), 1_000_000)).toBe(0);
    expect(await access.read(file, new Uint8Array(4), 9)).toBe(1);
    await file.close();
  });

  contractTest(
    makeFixture,
    "a read that meets the end fills the front of the target and leaves the rest",
    async (fixture) => {
      const file = await openFile(fixture, "0123456789");
      const target = new Uint8Array(8).fill(0xee);
      expect(await readLoop(access, file, target, 7)).toBe(3);
      expect([...target]).toEqual([0x37, 0x38, 0x39, 0xee, 0xee, 0xee, 0xee, 0xee]);
      await file.close();
    },
  );

  contractTest(makeFixture, "a read into a view stays inside the view", async (fixture) => {
    const file = await openFile(fixture, "0123456789");
    const whole = new Uint8Array(9).fill(0xee);
    expect(await readLoop(access, file, whole.subarray(3, 6), 0)).toBe(3);
    expect([...whole]).toEqual([0xee, 0xee, 0xee, 0x30, 0x31, 0x32, 0xee, 0xee, 0xee]);
    await file.close();
  });

  contractTest(makeFixture, "a read into an empty target gives 0", async (fixture) => {
    const file = await openFile(fixture, "0123456789");
    expect(await access.read(file, new Uint8Array(0), 0)).toBe(0);
    await file.close();
  });
}

function writeTests(makeFixture: MakeFixture, access: Access): void {
  contractTest(
    makeFixture,
    "writes at any position: appends, overwrites the middle, leaves the rest",
    async (fixture) => {
      const file = await openFile(fixture);
      await writeLoop(access, file, encodeUtf8("01234"), 0);
      await writeLoop(access, file, encodeUtf8("56789"), 5);
      await writeLoop(access, file, encodeUtf8("abc"), 4);
      expect(decodeUtf8(await readAll(file))).toBe("0123abc789");
      await writeLoop(access, file, encodeUtf8("xyz"), 9);
      expect(decodeUtf8(await readAll(file))).toBe("0123abc78xyz");
      await file.close();
    },
  );

  contractTest(makeFixture, "a gap before a write reads as zeros", async (fixture) => {
    const file = await openFile(fixture, "ab");
    await writeLoop(access, file, encodeUtf8("z"), 10_000);
    const expected = new Uint8Array(10_001);
    expected.set(encodeUtf8("ab"));
    expected.set(encodeUtf8("z"), 10_000);
    expectSameBytes(await readAll(file), expected);
    await file.close();
  });

  contractTest(makeFixture, "a write from a view takes the view's bytes alone", async (fixture) => {
    const file = await openFile(fixture);
    await writeLoop(access, file, encodeUtf8("--inside--").subarray(2, 8), 0);
    expect(decodeUtf8(await readAll(file))).toBe("inside");
    await file.close();
  });

  contractTest(makeFixture, "an empty write gives 0 and grows nothing", async (fixture) => {
    const file = await openFile(fixture, "ab");
    expect(await access.write(file, new Uint8Array(0), 0)).toBe(0);
    expect(await access.write(file, new Uint8Array(0), 100)).toBe(0);
    expect(await file.size()).toBe(2);
    await file.close();
  });

  contractTest(makeFixture, "memory given to a write may be used again once it is done", async (fixture) => {
    const file = await openFile(fixture);
    const source = encodeUtf8("first!");
    await writeLoop(access, file, source, 0);
    source.set(encodeUtf8("second"));
    await writeLoop(access, file, source, 6);
    source.fill(0);
    expect(decodeUtf8(await readAll(file))).toBe("first!second");
    await file.close();
  });

  contractTest(makeFixture, "a megabyte and a bit comes back as it went, from odd positions", async (fixture) => {
    const file = await openFile(fixture);
    const content = patternBytes(2 ** 20 + 4099);
    await writeLoop(access, file, content, 13);
    const target = new Uint8Array(content.length);
    expect(await readLoop(access, file, target, 13)).toBe(content.length);
    expectSameBytes(target, content);
    expect(await file.size()).toBe(content.length + 13);
    await file.close();
  });
}

function mixedTests(makeFixture: MakeFixture): void {
  contractTest(makeFixture, "direct and queued calls see each other's bytes", async (fixture) => {
    const file = await openFile(fixture);
    const [direct, queued] = [ACCESSES[1], ACCESSES[0]];
    if (direct === undefined || queued === undefined) expect.fail("two ways to read and write");
    await writeLoop(direct, file, encodeUtf8("direct"), 0);
    await writeLoop(queued, file, encodeUtf8("queued"), 6);
    for (const access of ACCESSES) {
      const target = new Uint8Array(12);
      expect(await readLoop(access, file, target, 0)).toBe(12);
      expect(decodeUtf8(target)).toBe("directqueued");
    }
    await file.close();
  });

  contractTest(makeFixture, "calls on disjoint ranges may overlap", async (fixture) => {
    const file = await openFile(fixture);
    const content = patternBytes(64 * 1000);
    const starts = Array.from({ length: 64 }, (_, index) => index * 1000);
    await Promise.all(starts.map((start) => writeFully(file, content.subarray(start, start + 1000), start)));
    const target = new Uint8Array(content.length);
    const counts = await Promise.all(
      starts.map((start) => readFully(file, target.subarray(start, start + 1000), start)),
    );
    expect(counts.every((count) => count === 1000)).toBe(true);
    expectSameBytes(target, content);
    await file.close();
  });
}

function sizeTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "a file was modified when it was last written or cut, not when it was read or opened",
    async (fixture) => {
      const file = await openFile(fixture, "first");
      const written = await file.modifiedMs();
      expect(Number.isInteger(written)).toBe(true);
      await readAll(file);
      await file.close();
      const again = await fixture.files.open(file.path, "write");
      expect(await again.modifiedMs()).toBe(written);
      await again.truncate(2);
      expect(await again.modifiedMs()).toBeGreaterThanOrEqual(written);
      await again.close();
    },
  );

  contractTest(makeFixture, "truncate cuts; what is written after the cut stands alone", async (fixture) => {
    const file = await openFile(fixture, "0123456789");
    await file.truncate(4);
    expect(await file.size()).toBe(4);
    expect(await file.readAt(new Uint8Array(1), 4)).toBe(0);
    expect(file.readNow(new Uint8Array(1), 4)).toBe(0);
    expect(decodeUtf8(await readAll(file))).toBe("0123");
    await file.truncate(0);
    expect(await file.size()).toBe(0);
    await writeFully(file, encodeUtf8("new"), 0);
    expect(decodeUtf8(await readAll(file))).toBe("new");
    await file.close();
  });

  contractTest(
    makeFixture,
    "truncate to a larger size fills with zeros, also where bytes were cut before",
    async (fixture) => {
      const file = await openFile(fixture, "0123456789");
      await file.truncate(2);
      await file.truncate(6);
      expect([...(await readAll(file))]).toEqual([0x30, 0x31, 0, 0, 0, 0]);
      await file.truncate(9000);
      const content = await readAll(file);
      expect(content).toHaveLength(9000);
      expect(content.subarray(2).every((byte) => byte === 0)).toBe(true);
      await file.close();
    },
  );

  contractTest(makeFixture, "a gap over bytes that were cut reads as zeros", async (fixture) => {
    const file = await openFile(fixture, "0123456789");
    await file.truncate(2);
    await writeFully(file, encodeUtf8("z"), 6);
    expect([...(await readAll(file))]).toEqual([0x30, 0x31, 0, 0, 0, 0, 0x7a]);
    await file.close();
  });

  contractTest(makeFixture, "sync changes nothing that can be read, on a handle for read too", async (fixture) => {
    const file = await openFile(fixture, "content");
    await Promise.all([file.sync(), file.sync()]);
    await file.close();
    const reader = await fixture.files.open(file.path, "read");
    await reader.sync();
    expect(decodeUtf8(await readAll(reader))).toBe("content");
    await reader.close();
  });
}

function closeTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "after close every call is refused with EBADF, by rejection and not by throwing",
    async (fixture) => {
      const file = await openFile(fixture, "content");
      await file.close();
      const bytes = new Uint8Array(1);
      await expectFileError(() => file.readAt(bytes, 0), "EBADF", "read", file.path);
      await expectFileError(() => file.readAt(new Uint8Array(0), 0), "EBADF", "read", file.path);
      await expectFileError(() => file.writeAt(bytes, 0), "EBADF", "write", file.path);
      await expectFileError(() => file.truncate(0), "EBADF", "truncate", file.path);
      await expectFileError(() => file.sync(), "EBADF", "sync", file.path);
      await expectFileError(() => file.size(), "EBADF", "size", file.path);
      expectFileErrorNow(() => file.readNow(bytes, 0), "EBADF", "read", file.path);
      expectFileErrorNow(() => file.writeNow(bytes, 0), "EBADF", "write", file.path);
    },
  );

  contractTest(
    makeFixture,
    "close may be called twice, also at once, and does not touch another handle",
    async (fixture) => {
      const file = await openFile(fixture, "content");
      await Promise.all([file.close(), file.close()]);
      const other = await fixture.files.open(file.path, "read");
      await file.close();
      expect(decodeUtf8(await readAll(other))).toBe("content");
      await other.close();
    },
  );

  contractTest(makeFixture, "calls begun before close end as if it had not come", async (fixture) => {
    const file = await openFile(fixture);
    const content = patternBytes(300_000);
    const writing = file.writeAt(content, 0);
    const syncing = file.sync();
    await file.close();
    const written = await writing;
    await syncing;
    expect(written).toBeGreaterThan(0);
    const reader = await fixture.files.open(file.path, "read");
    expectSameBytes(await readAll(reader), content.subarray(0, written));
    await reader.close();
  });
}
