import { decodeUtf8, encodeUtf8, toOffset } from "@tidemark/base";
import { enumerateCrashImages, SimulatedDisk } from "@tidemark/simulator";
import type { DiskImage } from "@tidemark/simulator";
import { decodeRecords, encodeBatch, recordsSection } from "@tidemark/wire";
import { expect, test } from "vitest";
import { batchesIn } from "./log.fixture.ts";
import { CONFIG, lead, ManagerFixture } from "./log-manager.fixture.ts";
import type { LogManager } from "./log-manager.ts";
import type { PartitionLog } from "./partition-log.ts";

const BACKOFF_US = 16_000_000;

function keyed(pair: string): Uint8Array {
  const [key = "", value] = pair.split("=");
  const bytes = value === undefined ? null : encodeUtf8(value);
  return encodeBatch([{ key: encodeUtf8(key), value: bytes, timestamp: 1 }]);
}

const COMPACTED = {
  ...CONFIG,
  segmentBytes: 2 * keyed("a=1").length,
  cleanupPolicy: "compact",
  deleteRetentionMs: 0,
  minCleanableDirtyRatio: 0,
} as const;

interface Content {
  /** What readers make of the log: each key with its last value. */
  readonly table: string;
  /** The tables of those who read to the end of each batch. */
  readonly prefixes: readonly string[];
  /** Whether no key comes twice below the cleaner offset. */
  readonly isCleanSingle: boolean;
}

async function contentOf(log: PartitionLog): Promise<Content> {
  const table = new Map<string, string>();
  const text = (): string =>
    [...table]
      .map(([key, value]) => `${key}=${value}`)
      .sort()
      .join(" ");
  const prefixes = [text()];
  const clean: string[] = [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 << 20 });
    const headers = batchesIn(bytes);
    for (const header of headers) {
      next = header.lastOffset + 1;
      for (const { offset, key, value } of decodeRecords(header, recordsSection(bytes, header))) {
        const name = decodeUtf8(key ?? new Uint8Array());
        if (value === null) table.delete(name);
        else table.set(name, decodeUtf8(value));
        if (offset < (log.cleanerOffset ?? 0)) clean.push(name);
      }
      prefixes.push(text());
    }
    if (headers.length === 0) break;
  }
  return { table: text(), prefixes, isCleanSingle: clean.length === new Set(clean).size };
}

const logOf = (manager: LogManager): PartitionLog => {
  const log = manager.partition("t", 0);
  if (log === undefined) throw new Error("the topic is there");
  return log;
};

test("a crash at any moment of passes, a cut between them and the close: the same table, and what the cleaner offset says is true", async () => {
  const fixture = new ManagerFixture();
  const { kernel } = fixture.environment;
  const manager = await fixture.open();
  await manager.createTopic("t", 1, COMPACTED);
  const log = await lead(manager, "t");
  /** Tables of what was acknowledged, with the number of disk operations until then. */
  const states: { readonly at: number; readonly content: Content }[] = [];
  const note = async (): Promise<void> => {
    states.push({ at: fixture.files.operationCount, content: await contentOf(log) });
  };
  const write = async (...pairs: readonly string[]): Promise<void> => {
    for (const pair of pairs) {
      await log.append(keyed(pair), { origin: "client" });
      await note();
    }
  };
  await write("a=1", "b=1", "a=2", "c=1", "b", "d=1", "a=3");
  const from = fixture.files.operationCount;
  await kernel.runFor(BACKOFF_US);
  expect(log.cleanerOffset).toBe(6);
  await write("c=2", "e=1", "c=3");
  await kernel.runFor(BACKOFF_US);
  expect(log.cleanerOffset).toBe(8);
  const cutFrom = states.length;
  await note();
  await log.truncateTo(toOffset(5));
  await note();
  // A key of before the cut, a deleted one, and one that lies below the cut.
  await write("e=2", "e=3", "b=2", "c", "a=4", "d=2", "d=3");
  await kernel.runFor(BACKOFF_US);
  expect(log.cleanerOffset).toBe(11);
  expect((await manager.close()).isClean).toBe(true);

  /** What a crash leaves, once for all moments that leave just that: each of them asks for its own table. */
  const images = new Map<string, { readonly image: DiskImage; readonly crashedAts: Set<number> }>();
  const noteCrash = (image: DiskImage, at: number): void => {
    const known = images.get(image.digest) ?? { image, crashedAts: new Set() };
    known.crashedAts.add(at);
    images.set(image.digest, known);
  };
  const judge = async (image: DiskImage, crashedAts: ReadonlySet<number>): Promise<void> => {
    const after = new ManagerFixture(SimulatedDisk.fromImage(image));
    const place = `after operation ${[...crashedAts].join(", ")}`;
    const reopened = await after.open();
    const opened = await lead(reopened, "t");
    const content = await contentOf(opened);
    for (const crashedAt of crashedAts) {
      const last = states.findLastIndex((state) => state.at <= crashedAt);
      const possible = states.slice(last, last + 2).map(({ content: { table } }) => table);
      // Half a cut has taken some of the segments, the last ones.
      if (last === cutFrom) possible.push(...(states[last]?.content.prefixes ?? []));
      expect(possible, place).toContain(content.table);
    }
    expect([opened.damaged.length, content.isCleanSingle], place).toEqual([0, true]);
    // What stands in the file of a directory that is held says nothing that could be wrong.
    expect([undefined, "0\n0\n"], place).toContain(await after.read("cleaner-offset-checkpoint"));
    await opened.append(keyed("z=1"), { origin: "client" });
    await opened.roll();
    await after.environment.kernel.runFor(BACKOFF_US);
    const cleaned = await contentOf(logOf(reopened));
    expect([cleaned.table, cleaned.isCleanSingle], place).toEqual([`${content.table} z=1`.trim(), true]);
    expect(reopened.cleanerView(opened).uncleanable, place).toBeUndefined();
  };
  let processCrashes = 0;
  const powerCuts = new Set<string>();
  for (const point of fixture.files.crashPoints()) {
    if (point.number < from) continue;
    processCrashes += 1;
    noteCrash(SimulatedDisk.afterProcessCrash(point).image(), point.number);
    for (const rule of ["ordered-prefix", "block-subset"] as const)
      for (const image of enumerateCrashImages(point, rule, { outcomesMax: 3 })) {
        powerCuts.add(image.digest);
        noteCrash(image, point.number);
      }
  }
  for (const { image, crashedAts } of images.values()) await judge(image, crashedAts);
  // 322 and 391; what a process leaves is what a machine may that loses nothing.
  expect([processCrashes >= 300, powerCuts.size >= 350, images.size >= 350]).toEqual([true, true, true]);
});
