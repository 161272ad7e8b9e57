import { mkdtemp, readFile, rename, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { encodeUtf8, InvariantError, joinPath } from "@tidemark/base";
import { LmdbState } from "./lmdb-state.ts";

const PAGE_BYTES = 4096;
let root: string;
let directory: string;
let dataPath: string;

beforeEach(async () => {
  root = await mkdtemp(joinPath(tmpdir(), "tidemark-state-"));
  directory = joinPath(root, "state");
  dataPath = joinPath(directory, "data.mdb");
});

afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

function key(index: number): string {
  return `recovery-point/topic-${index}`;
}

/** A closed database of several levels, with values on overflow pages and pages that were freed. */
async function writeDatabase(): Promise<void> {
  const state = await LmdbState.open(directory);
  for (let round = 0; round < 4; round++) {
    await state.commit(
      Array.from({ length: 1000 }, (_, index) => ({ key: key(index), value: new Uint8Array(8).fill(round) })),
      { sync: true },
    );
  }
  await state.commit([{ key: "large", value: new Uint8Array(50_000) }], { sync: true });
  await state.commit(
    Array.from({ length: 400 }, (_, index) => ({ key: key(index), value: undefined })),
    { sync: true },
  );
  await state.close();
}

/** The file with one child of the main tree's root put in place of another that has as many entries. */
function withSharedLeaf(content: Buffer): Buffer {
  const metas = [content.subarray(0, PAGE_BYTES), content.subarray(PAGE_BYTES, 2 * PAGE_BYTES)];
  const [latest] = metas.sort((a, b) => Number(b.readBigUInt64LE(152) - a.readBigUInt64LE(152)));
  const rootPosition = Number(latest?.readBigUInt64LE(136)) * PAGE_BYTES;
  const nodePositionByLower = new Map<number, number>();
  for (let index = 0; index < content.readUInt16LE(rootPosition + 20) / 2; index++) {
    const nodePosition = rootPosition + 24 + content.readUInt16LE(rootPosition + 24 + 2 * index);
    const lower = content.readUInt16LE(content.readUInt32LE(nodePosition) * PAGE_BYTES + 20);
    const twin = nodePositionByLower.get(lower);
    if (twin !== undefined) {
      content.copy(content, twin, nodePosition, nodePosition + 4);
      return content;
    }
    nodePositionByLower.set(lower, nodePosition);
  }
  return expect.fail("the tree has two leaves of equal count");
}

test("a sound database of several levels opens again and again", async () => {
  await writeDatabase();
  for (let round = 0; round < 3; round++) {
    const state = await LmdbState.open(directory);
    expect(state.keys("recovery-point/")).toHaveLength(600);
    expect(state.get("large")).toHaveLength(50_000);
    await state.commit([{ key: "round", value: Uint8Array.of(round) }], { sync: false });
    await state.close();
  }
});

test("a new database takes room at once: many small commits hardly make its file grow", async () => {
  const state = await LmdbState.open(directory);
  const { size } = await stat(dataPath);
  for (let round = 0; round < 300; round++) {
    await state.commit([{ key: `recovery-point/orders-${round % 20}`, value: new Uint8Array(8) }], { sync: false });
  }
  await state.close();
  expect(size).toBeGreaterThan(1024 ** 2);
  // A page for the list of free ones, or two.
  expect((await stat(dataPath)).size).toBeLessThanOrEqual(size + 4 * PAGE_BYTES);
});

test("a close waits for commits that were called before it, and nobody's later change of a value is written", async () => {
  const state = await LmdbState.open(directory);
  const value = Uint8Array.of(1, 2, 3);
  const commits = Array.from({ length: 50 }, (_, at) =>
    state.commit([{ key: `key-${at}`, value }], { sync: at % 2 === 0 }),
  );
  value.fill(9);
  await state.close();
  await Promise.all(commits);
  const again = await LmdbState.open(directory);
  expect(again.keys("key-")).toHaveLength(50);
  expect([...(again.get("key-49") ?? [])]).toEqual([1, 2, 3]);
  await again.close();
});

describe("BR-058 a database that is none", () => {
  const damages: [string, (content: Buffer) => Buffer][] = [
    ["overwritten with noise", (content) => Buffer.alloc(content.length, 0x5a)],
    ["a text file", () => Buffer.from("not a database\n")],
    ["all zeros", (content) => Buffer.alloc(content.length)],
    ["cut inside the meta pages", (content) => content.subarray(0, PAGE_BYTES + 40)],
    ["cut behind the meta pages", (content) => content.subarray(0, 2 * PAGE_BYTES)],
    ["cut inside the tree", (content) => content.subarray(0, 12 * PAGE_BYTES)],
    ["noise behind the meta pages", (content) => Buffer.from(content).fill(0x5a, 2 * PAGE_BYTES)],
    ["zeros behind the meta pages", (content) => Buffer.from(content).fill(0, 2 * PAGE_BYTES)],
  ];

  test.each(damages)(
    "%s: StateError CORRUPT, the file as it was, and an empty state once it is moved aside",
    async (_, damage) => {
      await writeDatabase();
      const damaged = damage(await readFile(dataPath));
      await writeFile(dataPath, damaged);
      await expect(LmdbState.open(directory)).rejects.toMatchObject({
        name: "StateError",
        code: "CORRUPT",
        path: directory,
      });
      expect((await readFile(dataPath)).equals(damaged)).toBe(true);
      await rename(directory, `${directory}.damaged`);
      const state = await LmdbState.open(directory);
      expect(state.keys("")).toEqual([]);
      await state.close();
    },
  );

  test("a page that belongs to two parents is CORRUPT, though every count still holds", async () => {
    await writeDatabase();
    const content = await readFile(dataPath);
    await writeFile(dataPath, withSharedLeaf(content));
    await expect(LmdbState.open(directory)).rejects.toMatchObject({ code: "CORRUPT" });
  });

  test("an empty file is a new database", async () => {
    await writeDatabase();
    await truncate(dataPath, 0);
    const state = await LmdbState.open(directory);
    expect(state.keys("")).toEqual([]);
    await state.close();
  });

  test("a path that cannot be a directory is IO, with the system's reason", async () => {
    await writeFile(directory, "a file");
    await expect(LmdbState.open(directory)).rejects.toMatchObject({ code: "IO", cause: { code: "EEXIST" } });
  });
});

test("a key must have 1 to 989 code units; nothing of a commit with another is applied", async () => {
  const state = await LmdbState.open(directory);
  const value = encodeUtf8("x");
  await state.commit([{ key: "k".repeat(989), value }], { sync: false });
  for (const bad of ["", "k".repeat(990)]) {
    await expect(
      state.commit(
        [
          { key: "good", value },
          { key: bad, value },
        ],
        { sync: false },
      ),
    ).rejects.toThrow(InvariantError);
    expect(() => state.get(bad)).toThrow(InvariantError);
  }
  expect(state.keys("")).toEqual(["k".repeat(989)]);
  await state.close();
});

test("a directory whose name has a dot is still a directory", async () => {
  const state = await LmdbState.open(`${directory}.v1`);
  await state.commit([{ key: "a", value: encodeUtf8("x") }], { sync: true });
  await state.close();
  expect((await stat(joinPath(`${directory}.v1`, "data.mdb"))).isFile()).toBe(true);
});
