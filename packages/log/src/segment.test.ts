import { toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { LogSegment } from "./segment.ts";

/** 10 MiB of 8 bytes each. */
const INDEX_ENTRIES_MAX = 1_310_720;

test("a segment whose index is full takes no more batches, whatever room its file has", async () => {
  const { files, clock } = new SimulatedEnvironment({ seed: 1 });
  await files.makeDirectory("data");
  const segment = await LogSegment.create(files, clock, "data", toOffset(0));
  segment.noteBatch(0, 100, 4096);
  const limits = { pendingBytes: 0, segmentBytesMax: 2 ** 31 - 1 };
  for (let entry = 0; entry < INDEX_ENTRIES_MAX - 1; entry += 1) segment.index.append(entry, entry);
  expect(segment.mustRollBefore(100, INDEX_ENTRIES_MAX, limits)).toBe(false);
  segment.index.append(INDEX_ENTRIES_MAX - 1, INDEX_ENTRIES_MAX - 1);
  expect(segment.mustRollBefore(100, INDEX_ENTRIES_MAX, limits)).toBe(true);
  await segment.close();
});
