import { decodeUtf8, encodeUtf8, writeFileAtomically, writeFully } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import { enumerateCrashImages } from "./crash-image.ts";
import { LOSS_RULES } from "./loss-rule.ts";
import type { LossRule } from "./loss-rule.ts";
import { SimulatedDisk } from "./disk.ts";
import { SimulatedState } from "./state.ts";
import type { DiskImage } from "./volume.ts";

/** A disk with the durable directory `/d` and the durable files given. */
async function diskWith(files: Readonly<Record<string, string>>): Promise<SimulatedDisk> {
  const disk = new SimulatedDisk();
  await disk.makeDirectory("/d");
  await disk.syncDirectory("/");
  for (const [name, content] of Object.entries(files))
    await writeFileAtomically(disk, `/d/${name}`, encodeUtf8(content));
  return disk;
}

async function write(disk: SimulatedDisk, path: string, content: string, position = 0, sync = false): Promise<void> {
  const file = await disk.open(path, "create");
  await writeFully(file, encodeUtf8(content), position);
  if (sync) await file.sync();
  await file.close();
}

/** What a crash can leave of one file, sorted: its content, or `(none)`. */
function outcomes(disk: SimulatedDisk, rule: LossRule, path: string): string[] {
  const seen = new Set<string>();
  for (const image of disk.enumerateCrashImages(rule)) seen.add(textOf(image, path));
  return [...seen].sort();
}

function textOf(image: DiskImage, path: string): string {
  const bytes = image.files().get(path);
  return bytes === undefined ? "(none)" : decodeUtf8(bytes).replaceAll("\0", "0");
}

describe("every loss rule", () => {
  test.each(LOSS_RULES)("%s keeps what was synced, name and content", async (rule) => {
    const disk = await diskWith({ a: "old" });
    await write(disk, "/d/a", "new", 0, true);
    expect(outcomes(disk, rule, "/d/a")).toEqual(["new"]);
  });

  test.each(LOSS_RULES.filter((rule) => !["torn-write", "missing-directory-entry"].includes(rule)))(
    "%s can lose a write that was not synced, and can keep it",
    async (rule) => {
      const disk = await diskWith({ a: "old" });
      await write(disk, "/d/a", "new");
      expect(outcomes(disk, rule, "/d/a")).toContain("old");
      expect(outcomes(disk, rule, "/d/a")).toContain("new");
    },
  );

  test.each(LOSS_RULES)("%s gives distinct images, the same ones each time", async (rule) => {
    const disk = await diskWith({ a: "one", b: "two" });
    await write(disk, "/d/a", "ONE!");
    await write(disk, "/d/c", "three", 0, true);
    await disk.rename("/d/b", "/d/e");
    await write(disk, "/d/a", "1");
    const digests = [...disk.enumerateCrashImages(rule)].map((image) => image.digest);
    expect(new Set(digests).size).toBe(digests.length);
    expect([...disk.enumerateCrashImages(rule)].map((image) => image.digest)).toEqual(digests);
  });

  test.each(LOSS_RULES)("%s keeps a sync of State and may lose what came after it, in order", async (rule) => {
    const disk = await diskWith({});
    const state = new SimulatedState(disk);
    const put = (value: number, sync: boolean) => state.commit([{ key: "k", value: Uint8Array.of(value) }], { sync });
    await put(1, false);
    await put(2, true);
    await put(3, false);
    await put(4, false);
    const seen = [...disk.enumerateCrashImages(rule)].map((image) => image.state().get("k")?.[0]);
    expect(new Set(seen)).toEqual(new Set(rule === "torn-write" ? [4] : [2, 3, 4]));
  });
});

test("a file that was created and synced vanishes when its directory was not synced", async () => {
  const disk = await diskWith({});
  await write(disk, "/d/a", "content", 0, true);
  expect(outcomes(disk, "missing-directory-entry", "/d/a")).toEqual(["(none)", "content"]);
  await disk.syncDirectory("/d");
  expect(outcomes(disk, "missing-directory-entry", "/d/a")).toEqual(["content"]);
});

test("a file in a directory whose own entry is lost vanishes with it", async () => {
  const disk = new SimulatedDisk();
  await disk.makeDirectory("/new");
  await write(disk, "/new/a", "content", 0, true);
  await disk.syncDirectory("/new");
  expect(outcomes(disk, "any-subset", "/new/a")).toEqual(["(none)", "content"]);
});

test("a rename can be seen without the content when the content was not synced first", async () => {
  const disk = await diskWith({ a: "old" });
  await write(disk, "/d/a.tmp", "new");
  await disk.rename("/d/a.tmp", "/d/a");
  expect(outcomes(disk, "per-file-prefix", "/d/a")).toEqual(["", "new", "old"]);
});

test("writeFileAtomically leaves the old content or the new at every crash point, under every rule", async () => {
  const start = await diskWith({ a: "old" });
  const disk = SimulatedDisk.fromImage(start.image());
  await writeFileAtomically(disk, "/d/a", encodeUtf8("the new content"));
  const seen = new Set<string>();
  for (const point of disk.crashPoints()) {
    for (const rule of LOSS_RULES) {
      for (const image of enumerateCrashImages(point, rule)) seen.add(textOf(image, "/d/a"));
    }
  }
  expect([...seen].sort()).toEqual(["old", "the new content"]);
});

test("a removed file can come back until the directory is synced", async () => {
  const disk = await diskWith({ a: "old" });
  await disk.unlink("/d/a");
  expect(outcomes(disk, "any-subset", "/d/a")).toEqual(["(none)", "old"]);
  await disk.syncDirectory("/d");
  expect(outcomes(disk, "any-subset", "/d/a")).toEqual(["(none)"]);
});

test("ordered-prefix never shows a later write without an earlier one; per-file-prefix does across files", async () => {
  const disk = await diskWith({ a: "-", b: "-" });
  await write(disk, "/d/a", "A");
  await write(disk, "/d/b", "B");
  const pairs = (rule: LossRule) =>
    [...disk.enumerateCrashImages(rule)].map((image) => textOf(image, "/d/a") + textOf(image, "/d/b")).sort();
  expect(pairs("ordered-prefix")).toEqual(["--", "A-", "AB"]);
  expect(pairs("per-file-prefix")).toEqual(["--", "-B", "A-", "AB"]);
});

test("any-subset keeps a later write of a file without an earlier one", async () => {
  const disk = await diskWith({ a: "" });
  await write(disk, "/d/a", "1", 0);
  await write(disk, "/d/a", "2", 1);
  expect(outcomes(disk, "any-subset", "/d/a")).toEqual(["", "02", "1", "12"]);
});

test("block-subset loses and damages single sectors of one write", async () => {
  const disk = await diskWith({ a: "........" });
  await write(disk, "/d/a", "ABCDEFGH");
  const texts = (sectorDamage: "none" | "torn" | "garbage") =>
    [...disk.enumerateCrashImages("block-subset", { sectorBytes: 4, sectorDamage })].map((i) => textOf(i, "/d/a"));
  const whole = ["........", "....EFGH", "ABCD....", "ABCDEFGH"];
  expect(texts("none").sort()).toEqual(whole);
  const torn = texts("torn");
  expect(torn).toHaveLength(9);
  for (const text of torn) expect(text).toMatch(/^A?B?C?D?\.{0,4}E?F?G?H?\.{0,4}$/);
  const garbage = texts("garbage");
  expect(garbage).toEqual(expect.arrayContaining(whole));
  expect(garbage).toHaveLength(9);
});

test("torn-write cuts the last write at every byte, short or filled with zeros", async () => {
  const disk = await diskWith({ a: "x" });
  await write(disk, "/d/a", "ABC", 1);
  expect(outcomes(disk, "torn-write", "/d/a")).toEqual(["xA", "xA00", "xAB", "xAB0"]);
});

test("torn-write can cut a write at every byte and leave all else alone", async () => {
  const disk = await diskWith({ a: "x", b: "old" });
  await write(disk, "/d/b", "new");
  await write(disk, "/d/a", "ABC", 1);
  const images = [...disk.enumerateCrashImages("torn-write", { tornVariants: "short" })];
  expect(images.map((image) => [textOf(image, "/d/a"), textOf(image, "/d/b")])).toEqual([
    ["xA", "new"],
    ["xAB", "new"],
  ]);
});

test("torn-write samples a long write and always cuts at the given borders", async () => {
  const disk = await diskWith({ a: "" });
  await write(disk, "/d/a", "x".repeat(1000));
  const sizes = [...disk.enumerateCrashImages("torn-write", { tornCutsMax: 10, tornBorders: [12, 61] })].map(
    (image) => textOf(image, "/d/a").replaceAll("0", "").length,
  );
  expect(sizes).toEqual(expect.arrayContaining([1, 12, 61, 999]));
  expect(new Set(sizes).size).toBeLessThanOrEqual(12);
});

test("size-before-data shows zeros where the file grew, and keeps a shorter prefix of the data", async () => {
  const disk = await diskWith({ a: "x" });
  await write(disk, "/d/a", "AB", 1);
  await write(disk, "/d/a", "C", 3);
  expect(outcomes(disk, "size-before-data", "/d/a")).toEqual(["x", "x00", "x000", "xAB", "xAB0", "xABC"]);
});

test("a truncation that was not synced may or may not survive", async () => {
  const disk = await diskWith({ a: "abcdef" });
  const file = await disk.open("/d/a", "write");
  await file.truncate(2);
  expect(outcomes(disk, "any-subset", "/d/a")).toEqual(["ab", "abcdef"]);
  await file.sync();
  expect(outcomes(disk, "any-subset", "/d/a")).toEqual(["ab"]);
});

test("too many outcomes are sampled, with all lost and all kept among them", async () => {
  const disk = await diskWith({ a: "" });
  for (let position = 0; position < 20; position++) await write(disk, "/d/a", "x", position);
  const texts = [...disk.enumerateCrashImages("any-subset", { outcomesMax: 50 })].map((image) => textOf(image, "/d/a"));
  expect(texts.length).toBeGreaterThan(40);
  expect(texts.length).toBeLessThanOrEqual(50);
  expect(texts).toEqual(expect.arrayContaining(["", "x".repeat(20)]));
});

test("the digest tells contents, names and State apart, and not the way that led there", async () => {
  const one = await diskWith({ a: "1", b: "2" });
  const other = await diskWith({ b: "x", c: "1" });
  await write(other, "/d/b", "2");
  await other.rename("/d/c", "/d/a");
  expect(other.image().digest).toBe(one.image().digest);
  const swapped = await diskWith({ a: "2", b: "1" });
  expect(swapped.image().digest).not.toBe(one.image().digest);
  await new SimulatedState(other).commit([{ key: "/d/a", value: encodeUtf8("1") }], { sync: true });
  expect(other.image().digest).not.toBe(one.image().digest);
});

test("an image stays as it was while the disk goes on", async () => {
  const disk = await diskWith({ a: "one" });
  await write(disk, "/d/a", "+", 3);
  const images = [...disk.enumerateCrashImages("any-subset")];
  await write(disk, "/d/a", "OVERWRITTEN", 0, true);
  await write(SimulatedDisk.fromImage(images[1] ?? disk.image()), "/d/a", "again", 4);
  expect(images.map((image) => textOf(image, "/d/a"))).toEqual(["one", "one+"]);
});
