import { encodeUtf8 } from "@tidemark/base";
import { expect, test } from "vitest";
import { emptyBatch, rawRecords, rebuildBatch } from "./batch-rebuild.ts";
import { recordsSection, scanBatch } from "./record-batch.ts";
import { encodeBatch } from "./record.ts";

function headerOf(batch: Uint8Array) {
  const scan = scanBatch(batch, 0);
  if (scan.type !== "batch") throw new Error("no batch");
  return scan.header;
}

test("a batch that is rebuilt with all its records is what it was", () => {
  const headers = [{ key: "h", value: null }];
  const batch = encodeBatch(
    [
      { key: encodeUtf8("a"), value: null, timestamp: 100, headers },
      { key: null, value: new Uint8Array(300), timestamp: 7 },
    ],
    { baseOffset: 40, partitionLeaderEpoch: 3, producerId: 9, producerEpoch: 1, baseSequence: 5 },
  );
  const header = headerOf(batch);
  const records = rawRecords(header, recordsSection(batch, header));
  expect(records.map(({ offset, timestamp, hasValue }) => [offset, timestamp, hasValue])).toEqual([
    [40, 100, false],
    [41, 7, true],
  ]);
  expect(rebuildBatch(header, records, undefined)).toEqual(batch);
  const last = headerOf(rebuildBatch(header, records.slice(1), 1000));
  expect(last).toMatchObject({ baseOffset: 40, lastOffset: 41, baseTimestamp: 1000, maxTimestamp: 7, recordsCount: 1 });
  expect(headerOf(emptyBatch(header))).toMatchObject({
    lastOffset: 41,
    baseTimestamp: -1,
    maxTimestamp: 100,
    baseSequence: 5,
  });
});

test("records that run past their payload, and bytes behind the last one, are refused", () => {
  const batch = encodeBatch([{ key: encodeUtf8("key"), value: new Uint8Array(20), timestamp: 1 }]);
  const header = headerOf(batch);
  const payload = recordsSection(batch, header);
  for (let length = 0; length < payload.length; length += 1)
    expect(() => rawRecords(header, payload.subarray(0, length))).toThrow("INVALID_RECORD");
  expect(() => rawRecords(header, Uint8Array.of(...payload, 0))).toThrow("bytes after the last record");
});
