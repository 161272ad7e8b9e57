import { crc32c } from "@tidemark/wire";
import { batchOf } from "./log.fixture.ts";

/** A batch of one record whose header counts otherwise, with the CRC of that. */
export function encodeBatchWithCounts(counts: { lastOffsetDelta: number; recordsCount: number }): Uint8Array {
  const batch = batchOf(["a"]);
  const view = new DataView(batch.buffer);
  view.setInt32(23, counts.lastOffsetDelta);
  view.setInt32(57, counts.recordsCount);
  view.setUint32(17, crc32c(batch.subarray(21)));
  return batch;
}
