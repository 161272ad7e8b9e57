import { gzipSync } from "node:zlib";
import { encodeUtf8, WorkerError } from "@tidemark/base";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { compressPayload, decompressPayload } from "./codec.ts";
import { crc32c } from "./crc32c.ts";
import { runWorkerJob } from "./jobs.ts";

const text = encodeUtf8("a tidemark is the line that high water leaves behind ".repeat(40));

function concatenated(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

test("any payload comes back as it was, at every level", () => {
  const level = fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined });
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 5000, size: "max" }), level, (payload, level) => {
      const compressed = compressPayload("gzip", payload, level);
      expect(decompressPayload("gzip", compressed, Math.max(1, payload.length))).toEqual(payload);
    }),
    { numRuns: 50 },
  );
});

test("the header carries no time and no operating system, as Java's does not", () => {
  expect([...compressPayload("gzip", text).subarray(0, 10)]).toEqual([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
});

test("results own their memory whole, so that they can be transferred", () => {
  for (const result of [compressPayload("gzip", text), decompressPayload("gzip", gzipSync(text), 10_000)]) {
    expect(result.buffer.byteLength).toBe(result.length);
    expect(Object.getPrototypeOf(result)).toBe(Uint8Array.prototype);
  }
});

test("members one after another are one payload", () => {
  const members = concatenated(gzipSync(text.subarray(0, 100)), gzipSync(text.subarray(100)));
  expect(decompressPayload("gzip", members, text.length)).toEqual(text);
});

test("an output of exactly the bound passes, one byte more is RECORD_TOO_LARGE", () => {
  const compressed = compressPayload("gzip", text);
  expect(decompressPayload("gzip", compressed, text.length)).toEqual(text);
  expect(() => decompressPayload("gzip", compressed, text.length - 1)).toThrow(
    expect.objectContaining({ name: "WorkerError", code: "RECORD_TOO_LARGE" }),
  );
});

test("a payload that is none, is cut or is damaged is CORRUPT", () => {
  const compressed = compressPayload("gzip", text);
  const damaged = compressed.slice();
  damaged[compressed.length - 6] = (damaged[compressed.length - 6] ?? 0) ^ 1; // In the checksum.
  for (const payload of [text, compressed.subarray(0, -1), compressed.subarray(0, 20), damaged, new Uint8Array(0)]) {
    expect(() => decompressPayload("gzip", payload, 10_000)).toThrow(
      expect.objectContaining({ name: "WorkerError", code: "CORRUPT" }),
    );
  }
});

test("no bytes make the decompressor throw anything but a WorkerError", () => {
  const start = fc.constantFrom(new Uint8Array(0), compressPayload("gzip", text).subarray(0, 12));
  fc.assert(
    fc.property(start, fc.uint8Array({ maxLength: 100 }), (head, rest) => {
      let failure: unknown;
      try {
        decompressPayload("gzip", concatenated(head, rest), 1000);
      } catch (error) {
        failure = error;
      }
      expect(failure === undefined || failure instanceof WorkerError).toBe(true);
    }),
  );
});

test("a worker job is the function of the same name", () => {
  const compressed = runWorkerJob("compress", { codec: "gzip", payload: text, level: 1 });
  expect(compressed).toEqual(compressPayload("gzip", text, 1));
  const decompressed = runWorkerJob("decompress", { codec: "gzip", payload: compressed, outputBytesMax: text.length });
  expect(decompressed).toEqual(text);
  expect(runWorkerJob("crc32c", { payload: text })).toBe(crc32c(text));
});
