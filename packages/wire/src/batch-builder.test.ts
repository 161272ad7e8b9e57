import { BufferPool, encodeUtf8 } from "@tidemark/base";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { BatchBuilder } from "./batch-builder.ts";
import { encodeBatch } from "./record.ts";
import type { RecordInput } from "./record.ts";

const bytes = fc.option(fc.uint8Array({ maxLength: 300 }));
const headers = fc.array(fc.record({ key: fc.string({ unit: "grapheme" }), value: bytes }), { maxLength: 3 });
const timestamp = fc.oneof(
  fc.integer({ min: -1, max: Number.MAX_SAFE_INTEGER - 1 }),
  // Near each other, as they are: about where a difference does not fit 32 bits any more, too.
  fc.integer({ min: 0, max: 2 ** 33 }),
  fc.constantFrom(0, 2 ** 30, 2 ** 31 - 1, 2 ** 31, 2 ** 32),
);
const record: fc.Arbitrary<RecordInput> = fc.oneof(
  fc.record({ key: bytes, value: bytes, headers, timestamp }),
  fc.record({ key: fc.constant(null), value: bytes, timestamp }),
);

test("a batch built record by record has the bytes of one encoded at once", () => {
  const producer = { producerId: 7, producerEpoch: 1, baseSequence: 40, baseOffset: 3, partitionLeaderEpoch: 2 };
  fc.assert(
    fc.property(fc.array(record, { minLength: 1, maxLength: 40 }), (records) => {
      const builder = new BatchBuilder();
      for (const one of records) expect(builder.append(one, Number.POSITIVE_INFINITY)).toBe(true);
      const whole = encodeBatch(records, producer);
      expect([builder.sizeInBytes, builder.recordsCount, builder.baseTimestamp]).toEqual([
        whole.length,
        records.length,
        records[0]?.timestamp,
      ]);
      expect(builder.finish(producer)).toEqual(whole);
    }),
  );
});

test("a value on its own is the record that has nothing else, wherever its time lies, and is left out at the same limit", () => {
  const plain = fc.record({ value: fc.uint8Array({ maxLength: 300 }), timestamp });
  fc.assert(
    fc.property(
      fc.array(plain, { minLength: 1, maxLength: 40 }),
      fc.integer({ min: 0, max: 2000 }),
      (values, limitBytes) => {
        const [short, long] = [new BatchBuilder(), new BatchBuilder()];
        for (const { value, timestamp: time } of values)
          expect(short.appendValue(value, time, limitBytes)).toBe(
            long.append({ key: null, value, timestamp: time }, limitBytes),
          );
        expect(short.finish()).toEqual(long.finish());
      },
    ),
  );
});

test("a record that would pass the limit is left out and changes nothing; one that reaches it exactly is taken", () => {
  const one = { key: null, value: encodeUtf8("0123456789"), timestamp: 5 };
  const two = encodeBatch([one, one]);
  const builder = new BatchBuilder();
  expect(builder.append(one, 0)).toBe(true); // The first one always.
  expect(builder.append(one, two.length - 1)).toBe(false);
  expect(builder.finish()).toEqual(encodeBatch([one]));
  expect(builder.append(one, two.length)).toBe(true);
  expect(builder.append(one, two.length)).toBe(false);
  expect(builder.finish()).toEqual(two);
});

test("nothing of a record is kept: its memory may be used again at once", () => {
  const value = encodeUtf8("first");
  const builder = new BatchBuilder();
  builder.append({ key: null, value, timestamp: 0 }, 1000);
  const before = builder.finish().slice();
  value.fill(0);
  expect(builder.finish()).toEqual(before);
});

test("memory grows with the batch, past what it began with and past the limit of a first record", () => {
  const large = { key: null, value: new Uint8Array(5000).fill(7), timestamp: 0 };
  const builder = new BatchBuilder();
  expect(builder.append(large, 100)).toBe(true);
  expect(builder.append(large, 1 << 20)).toBe(true);
  expect(builder.finish()).toEqual(encodeBatch([large, large]));
});

test("memory of a pool is used again after release, whatever it holds, also after it grew", () => {
  const pool = new BufferPool({ poisons: true });
  const value = new Uint8Array(9000).fill(7);
  const records = Array.from({ length: 9 }, (_, at) => ({ key: null, value, timestamp: at }));
  const built = [512, 100_000].map((expectedBytes) => {
    const builder = new BatchBuilder({ pool, expectedBytes });
    for (const one of records) builder.append(one, 100_000);
    const bytes = builder.finish().slice();
    builder.release();
    return bytes;
  });
  expect(built).toEqual([encodeBatch(records), encodeBatch(records)]);
  expect(pool.keptBytes).toBeGreaterThanOrEqual(100_000);
});

test("a small builder begins another batch after release; nothing of the one before is in it", () => {
  const builder = new BatchBuilder({ pool: new BufferPool() });
  const first = { key: null, value: encodeUtf8("first"), timestamp: 9_000 };
  const second = { key: null, value: encodeUtf8("2"), timestamp: 5 };
  builder.append(first, 1000);
  expect([builder.finish().length, builder.release()]).toEqual([encodeBatch([first]).length, true]);
  builder.append(second, 1000);
  expect(builder.finish()).toEqual(encodeBatch([second]));
  builder.append({ key: null, value: new Uint8Array(20_000), timestamp: 5 }, 100_000);
  expect(builder.release()).toBe(false);
});

test("a batch without records cannot be finished", () => {
  expect(() => new BatchBuilder().finish()).toThrow("a batch has at least one record");
});
