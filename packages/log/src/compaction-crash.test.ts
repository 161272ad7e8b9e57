import { decodeUtf8, encodeUtf8, toOffset } from "@tidemark/base";
import { enumerateCrashImages, SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import type { DiskImage } from "@tidemark/simulator";
import { decodeRecords, encodeBatch, recordsSection } from "@tidemark/wire";
import { expect, test } from "vitest";
import { batchesIn, LogFixture } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

const BATCH_BYTES = batch("k0", "00").length;

function batch(key: string, value: string): Uint8Array {
  return encodeBatch([{ key: encodeUtf8(key), value: encodeUtf8(value), timestamp: 1_700_000_000_000 }]);
}

/** The last value of each key, and how many records there are. */
async function contentOf(log: PartitionLog): Promise<{ values: Record<string, string>; count: number }> {
  const values: Record<string, string> = {};
  let count = 0;
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 });
    const [header] = batchesIn(bytes);
    if (header === undefined) break;
    for (const { key, value } of decodeRecords(header, recordsSection(bytes, header))) {
      if (key !== null && value !== null) values[decodeUtf8(key)] = decodeUtf8(value);
      count += 1;
    }
    next = header.lastOffset + 1;
  }
  return { values, count };
}

test.each(["always", "none"] as const)(
  "flush %s: a crash at any moment of a second pass, and any loss of what was not synced, leaves a whole log with the last values",
  async (flush) => {
    const fixture = new LogFixture({ segmentBytes: 3 * BATCH_BYTES, flush });
    const log = await fixture.open();
    for (let number = 10; number < 31; number += 1)
      await log.append(batch(`k${number % 4}`, `${number}`), { origin: "local" });
    await log.compact();
    for (let number = 31; number < 40; number += 1)
      await log.append(batch(`k${number % 3}`, `${number}`), { origin: "local" });
    await log.flush();
    const { values } = await contentOf(log);
    const end = log.logEndOffset;
    const images = new Map<string, DiskImage>();
    const from = fixture.disk.operationCount;
    await log.compact();
    let at = 0;
    for (const point of fixture.disk.crashPoints()) {
      at += 1;
      if (at <= from) continue;
      for (const rule of ["ordered-prefix", "per-file-prefix", "block-subset"] as const)
        for (const image of enumerateCrashImages(point, rule, { outcomesMax: 12 })) images.set(image.digest, image);
    }
    expect(images.size).toBeGreaterThan(20);
    for (const image of images.values()) {
      const after = new LogFixture(
        { segmentBytes: 3 * BATCH_BYTES, flush },
        new SimulatedEnvironment({ seed: 1 }, SimulatedDisk.fromImage(image)),
      );
      const opened = await after.open();
      expect([opened.damaged, opened.recovery.cut, opened.logEndOffset]).toEqual([[], undefined, end]);
      expect((await contentOf(opened)).values).toEqual(values);
      const names = await after.fileNames();
      expect(names.filter((name) => /cleaned|swap/u.test(name))).toEqual([]);
      await opened.append(batch("k9", "99"), { origin: "local" });
    }
  },
);
