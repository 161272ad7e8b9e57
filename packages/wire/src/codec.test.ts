import { randomBytes } from "node:crypto";
import { gzipSync } from "node:zlib";
import { encodeUtf8, WorkerError } from "@tidemark/base";
import type { CodecName, Codecs } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { compressionLevels, compressPayload, decompressPayload } from "./codec.ts";
import { crc32c } from "./crc32c.ts";
import { runWorkerJob } from "./jobs.ts";
import { decodeRecords, validateRecords } from "./record-decode.ts";
import { encodeBatch } from "./record.ts";
import { scanBatch, withCompressedPayload } from "./record-batch.ts";
import { xxHash32 } from "./xxhash32.ts";

const CODECS: readonly CodecName[] = ["gzip", "snappy", "lz4", "zstd"];
const text = encodeUtf8("a tidemark is the line that high water leaves behind ".repeat(40));

function joined(...parts: readonly (Uint8Array | readonly number[])[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts.map((part) => Uint8Array.from(part))));
}

function compress(codec: CodecName, payload: Uint8Array, level?: number): Uint8Array {
  return compressPayload(NODE_CODECS, codec, payload, level);
}

function decompress(codec: CodecName, payload: Uint8Array, outputBytesMax = 1_000_000): Uint8Array {
  return decompressPayload(NODE_CODECS, codec, payload, outputBytesMax);
}

/** The code of the WorkerError that a payload earns; undefined when it decompresses. */
function refusalOf(codec: CodecName, payload: Uint8Array, outputBytesMax?: number): string | undefined {
  try {
    decompress(codec, payload, outputBytesMax);
    return undefined;
  } catch (error) {
    if (error instanceof WorkerError) return error.code;
    throw error;
  }
}

function withByte(bytes: Uint8Array, positionBytes: number, value: number): Uint8Array {
  const changed = bytes.slice();
  changed[positionBytes] = value;
  return changed;
}

describe.each(CODECS)("%s", (codec) => {
  test("any payload comes back as it was", () => {
    const repetitive = fc.tuple(fc.uint8Array({ minLength: 1, maxLength: 40 }), fc.integer({ min: 1, max: 4000 }));
    const payloads = fc.oneof(
      fc.uint8Array({ maxLength: 5000, size: "max" }),
      repetitive.map(([part, count]) => joined(...Array.from({ length: count }, () => part))),
    );
    fc.assert(
      fc.property(payloads, (payload) => {
        const output = decompress(codec, compress(codec, payload), Math.max(1, payload.length));
        expect(Buffer.compare(output, payload)).toBe(0);
      }),
      { numRuns: 60 },
    );
  });

  test("at every level it has, and at none it has not", () => {
    const levels = compressionLevels(codec);
    if (levels === undefined) {
      expect(["snappy", "lz4"]).toContain(codec);
      return;
    }
    const content = Uint8Array.from({ length: 20_000 }, (_, index) => (index * index) >> (index % 7));
    const sizes = [levels.min, 1, 3, Math.min(levels.max, 19)].map((level) => {
      const compressed = compress(codec, content, level);
      expect(decompress(codec, compressed)).toEqual(content);
      return compressed.length;
    });
    expect(sizes[3]).toBeLessThan(sizes[0] ?? 0);
  });

  test("results own their memory whole, so that they can be transferred", () => {
    const large = joined(...Array.from({ length: 100 }, () => text));
    for (const payload of [text, large, new Uint8Array(0)]) {
      const compressed = compress(codec, payload);
      for (const result of [compressed, decompress(codec, compressed)]) {
        expect(result.buffer.byteLength).toBe(result.length);
        expect(Object.getPrototypeOf(result)).toBe(Uint8Array.prototype);
        expect(() => structuredClone(result, { transfer: [result.buffer as ArrayBuffer] })).not.toThrow();
      }
    }
  });

  test("the payload may be a view on shared memory, and is only read", () => {
    const shared = new Uint8Array(new SharedArrayBuffer(text.length + 10)).subarray(5, 5 + text.length);
    shared.set(text);
    const compressed = compress(codec, shared);
    const sharedCompressed = new Uint8Array(new SharedArrayBuffer(compressed.length));
    sharedCompressed.set(compressed);
    expect(decompress(codec, sharedCompressed)).toEqual(text);
    expect(Uint8Array.from(shared)).toEqual(text);
  });

  test("an output of exactly the bound passes, one byte more is MESSAGE_TOO_LARGE", () => {
    const compressed = compress(codec, text);
    expect(decompress(codec, compressed, text.length)).toEqual(text);
    expect(refusalOf(codec, compressed, text.length - 1)).toBe("MESSAGE_TOO_LARGE");
  });

  test("cut anywhere it is CORRUPT_MESSAGE", () => {
    const compressed = compress(codec, text);
    for (let length = 0; length < compressed.length; length += 1) {
      // Between two blocks a snappy stream has no sign that more was to come; the batch's CRC and records count tell.
      if (codec === "snappy" && length === 16) continue;
      expect([length, refusalOf(codec, compressed.subarray(0, length))]).toEqual([length, "CORRUPT_MESSAGE"]);
    }
  });

  test("what is none of its payloads is CORRUPT_MESSAGE", () => {
    for (const payload of [text, new Uint8Array(0), new Uint8Array(100), new Uint8Array(100).fill(0xff)]) {
      expect(refusalOf(codec, payload)).toBe("CORRUPT_MESSAGE");
    }
  });

  test("no bytes earn anything but a WorkerError, and what passes is within its bound", () => {
    const whole = compress(codec, text);
    const start = fc.integer({ min: 0, max: whole.length });
    fc.assert(
      fc.property(start, fc.uint8Array({ maxLength: 60 }), fc.integer({ min: 0, max: 60 }), (from, bytes, cut) => {
        const payload = joined(whole.subarray(0, from), bytes, whole.subarray(Math.min(whole.length, from + cut)));
        const code = refusalOf(codec, payload, 3000);
        expect([undefined, "CORRUPT_MESSAGE", "MESSAGE_TOO_LARGE"]).toContain(code);
        if (code === undefined) expect(decompress(codec, payload, 3000).length).toBeLessThanOrEqual(3000);
      }),
      { numRuns: 300 },
    );
  });

  test("a library that does not load is UNSUPPORTED_COMPRESSION_TYPE both ways, one that throws anything is CORRUPT_MESSAGE", () => {
    const absent = failingCodecs(new WorkerError("UNSUPPORTED_COMPRESSION_TYPE", "no binary"));
    const unsupported = expect.objectContaining({ name: "WorkerError", code: "UNSUPPORTED_COMPRESSION_TYPE" });
    expect(() => compressPayload(absent, codec, text)).toThrow(unsupported);
    expect(() => decompressPayload(absent, codec, compress(codec, text), 10_000)).toThrow(unsupported);
    const odd = failingCodecs("a string");
    expect(() => decompressPayload(odd, codec, compress(codec, text), 10_000)).toThrow(
      expect.objectContaining({ name: "WorkerError", code: "CORRUPT_MESSAGE" }),
    );
  });
});

function failingCodecs(failure: unknown): Codecs {
  return new Proxy(NODE_CODECS, {
    get: () => () => {
      throw failure;
    },
  });
}

describe("BR-054: a bomb is stopped at the bound, not at its size", () => {
  /** 500 MB of zeros would be the same with more of it, and take the test ten seconds. */
  const CONTENT_BYTES = 64 * 1024 ** 2;
  const CAP_BYTES = 8 * 1024 ** 2;
  /** What was made, the steps in which its room grew, and the library's own blocks, if nothing of it was collected yet. */
  const ROOM_BYTES = 5 * CAP_BYTES;

  test.each(CODECS)("%s of 64 MiB of zeros against a bound of 8 MiB", (codec) => {
    const bomb = compress(codec, new Uint8Array(CONTENT_BYTES));
    expect(bomb.length).toBeLessThan(CONTENT_BYTES / 15);
    const before = process.memoryUsage().rss;
    expect(refusalOf(codec, bomb, CAP_BYTES)).toBe("MESSAGE_TOO_LARGE");
    expect(process.memoryUsage().rss - before).toBeLessThan(ROOM_BYTES + bomb.length);
    expect(decompress(codec, compress(codec, text))).toEqual(text);
  });

  test("a kilobyte of zstd that claims gigabytes is refused before the library sees it", () => {
    // Blocks of one byte that stands for 128 KiB: 250 of them are 1 KiB and become 31 MiB.
    const block = [0x02, 0x00, 0x10, 0x00]; // Size 131072, run-length.
    const blocks = Array.from({ length: 250 }, () => block);
    const frame = joined([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58], ...blocks, [0x01, 0x00, 0x00]);
    expect(frame.length).toBe(1009);
    expect(decompress("zstd", frame, 2 ** 26)).toHaveLength(250 * 131_072);
    const unused = failingCodecs(new Error("the library was asked"));
    const tooLarge = expect.objectContaining({ code: "MESSAGE_TOO_LARGE" });
    expect(() => decompressPayload(unused, "zstd", frame, 2 ** 24)).toThrow(tooLarge);
    const sized = joined(
      [0x28, 0xb5, 0x2f, 0xfd, 0xe0],
      [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
      [0x00],
      [0x01, 0x00, 0x00],
    );
    expect(() => decompressPayload(unused, "zstd", sized, 2 ** 24)).toThrow(
      expect.objectContaining({ code: "CORRUPT_MESSAGE" }),
    );
  });

  test("a count of 2^31 - 1 records over a few bytes is INVALID_RECORD, walked or decoded, and nothing is made room for", () => {
    const batch = encodeBatch([{ key: null, value: Uint8Array.of(1), timestamp: 1 }]);
    const view = new DataView(batch.buffer);
    view.setInt32(23, 2 ** 31 - 2);
    view.setInt32(57, 2 ** 31 - 1);
    const scan = scanBatch(batch, 0);
    if (scan.type !== "batch") throw new Error("the header is sane");
    const records = batch.subarray(61);
    const invalid = expect.objectContaining({ name: "WireError", code: "INVALID_RECORD" });
    expect(() => validateRecords(scan.header, records)).toThrow(invalid);
    expect(() => [...decodeRecords(scan.header, records)]).toThrow(invalid);
  });

  test("a snappy block that says more than its bytes can give is refused before the library sees it", () => {
    const block = joined([0xff, 0xff, 0xff, 0xff, 0x07], text.subarray(0, 20));
    const unused = failingCodecs(new Error("the library was asked"));
    expect(() => decompressPayload(unused, "snappy", block, 2 ** 31)).toThrow(/the length in front of a block/u);
  });
});

describe("gzip", () => {
  test("the header carries no time, no effort and no operating system, as Java's does not", () => {
    for (const level of [undefined, 1, 9]) {
      expect([...compress("gzip", text, level).subarray(0, 10)]).toEqual([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    }
  });

  test("members one after another are one payload", () => {
    const members = joined(gzipSync(text.subarray(0, 100)), gzipSync(text.subarray(100)));
    expect(decompress("gzip", members, text.length)).toEqual(text);
  });

  test("a damaged checksum is CORRUPT_MESSAGE", () => {
    const compressed = compress("gzip", text);
    const position = compressed.length - 6;
    expect(refusalOf("gzip", withByte(compressed, position, (compressed[position] ?? 0) ^ 1))).toBe("CORRUPT_MESSAGE");
  });
});

describe("snappy", () => {
  const HEADER = [0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00, 0, 0, 0, 1, 0, 0, 0, 1];

  test("the stream has xerial's header and blocks of 32 KiB", () => {
    const payload = new Uint8Array(70_000).fill(7);
    const compressed = compress("snappy", payload);
    expect([...compressed.subarray(0, 16)]).toEqual(HEADER);
    const lengths: number[] = [];
    for (let at = 16; at < compressed.length;) {
      const length = Buffer.from(compressed).readInt32BE(at);
      lengths.push(NODE_CODECS.decompressSnappyBlock(compressed.subarray(at + 4, at + 4 + length)).length);
      at += 4 + length;
    }
    expect(lengths).toEqual([32_768, 32_768, 70_000 - 65_536]);
  });

  test("a bare block, a header again between blocks, and other versions in the header are read too", () => {
    const bare = Uint8Array.from(NODE_CODECS.compressSnappyBlock(text));
    expect(decompress("snappy", bare)).toEqual(text);
    const stream = compress("snappy", text);
    expect(decompress("snappy", joined(stream, stream))).toEqual(joined(text, text));
    expect(decompress("snappy", withByte(withByte(stream, 11, 9), 15, 7))).toEqual(text);
  });

  test("the official framing, a negative length and a length past the end are CORRUPT_MESSAGE", () => {
    const official = joined(
      [0xff, 0x06, 0x00, 0x00, 0x73, 0x4e, 0x61, 0x50, 0x70, 0x59],
      [0x01, 0x04, 0, 0, 0, 0, 0, 0],
    );
    expect(refusalOf("snappy", official)).toBe("CORRUPT_MESSAGE");
    for (const length of [
      [0xff, 0xff, 0xff, 0xff],
      [0x7f, 0xff, 0xff, 0xff],
      [0, 0, 0, 0],
    ]) {
      expect(refusalOf("snappy", joined(HEADER, length, [1, 2, 3]))).toBe("CORRUPT_MESSAGE");
    }
  });
});

describe("lz4", () => {
  const frame = compress("lz4", text);

  /** A frame of one stored block, with these flags and what they ask for. */
  function frameWith(flags: number, descriptor: number, blockChecksum: readonly number[], tail: readonly number[]) {
    const size = (flags & 8) === 0 ? [] : [5, 0, 0, 0, 0, 0, 0, 0];
    const checked = Uint8Array.from([flags, descriptor, ...size]);
    const headerChecksum = (xxHash32(checked, 0, checked.length) >>> 8) & 0xff;
    return joined(
      [0x04, 0x22, 0x4d, 0x18],
      checked,
      [headerChecksum],
      [5, 0, 0, 0x80],
      encodeUtf8("abcde"),
      blockChecksum,
      [0, 0, 0, 0, ...tail],
    );
  }

  test("xxHash32 gives the values of its specification", () => {
    const ascii = (value: string): number => xxHash32(encodeUtf8(value), 0, value.length);
    expect([ascii(""), ascii("abc"), ascii("Nobody inspects the spammish repetition")]).toEqual([
      0x02cc5d05, 0x32d153ff, 0xe2293b2f,
    ]);
  });

  test("the frame has Java's header, blocks of 64 KiB, and stores what does not shrink", () => {
    expect([...frame.subarray(0, 7)]).toEqual([0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
    const noise = new Uint8Array(randomBytes(70_000));
    const stored = compress("lz4", noise);
    expect(Buffer.from(stored).readUInt32LE(7)).toBe(0x8000_0000 + 65_536);
    expect(stored).toHaveLength(7 + 4 + 65_536 + 4 + (70_000 - 65_536) + 4);
  });

  test("content size, block and content checksums and every block size are read; a content checksum is not looked at", () => {
    const content = encodeUtf8("abcde");
    const hash = Buffer.alloc(4);
    hash.writeUInt32LE(xxHash32(content, 0, 5));
    for (const descriptor of [0x40, 0x50, 0x60, 0x70]) {
      expect(decompress("lz4", frameWith(0x60, descriptor, [], []))).toEqual(content);
      expect(decompress("lz4", frameWith(0x68, descriptor, [], []))).toEqual(content);
      expect(decompress("lz4", frameWith(0x70, descriptor, [...hash], []))).toEqual(content);
      expect(decompress("lz4", frameWith(0x64, descriptor, [], [1, 2, 3, 4]))).toEqual(content);
    }
    expect(refusalOf("lz4", frameWith(0x70, 0x40, [1, 2, 3, 4], []))).toBe("CORRUPT_MESSAGE");
    expect(refusalOf("lz4", frameWith(0x64, 0x40, [], [1, 2]))).toBe("CORRUPT_MESSAGE");
  });

  test("dependent blocks, a dictionary, another version, reserved bits, small block sizes and a wrong header checksum are refused", () => {
    for (const flags of [0x40, 0x61, 0x62, 0xa0, 0x20]) {
      expect([flags, refusalOf("lz4", frameWith(flags, 0x40, [], []))]).toEqual([flags, "CORRUPT_MESSAGE"]);
    }
    for (const descriptor of [0x30, 0x00, 0x41, 0xc0]) {
      expect(refusalOf("lz4", frameWith(0x60, descriptor, [], []))).toBe("CORRUPT_MESSAGE");
    }
    expect(refusalOf("lz4", withByte(frame, 6, 0x83))).toBe("CORRUPT_MESSAGE");
  });

  test("a block may not be larger than the header says; what follows the frame is not looked at", () => {
    const blockBytes = [0x01, 0x00, 0x01, 0x80];
    const large = joined(frame.subarray(0, 7), blockBytes, new Uint8Array(65_537), [0, 0, 0, 0]);
    expect(refusalOf("lz4", large)).toBe("CORRUPT_MESSAGE");
    // One block of 64 KiB class that becomes more than 64 KiB.
    const grown = Uint8Array.from(NODE_CODECS.compressLz4Block(new Uint8Array(65_537)));
    const tooMuch = joined(frame.subarray(0, 7), [grown.length, grown.length >> 8, 0, 0], grown, [0, 0, 0, 0]);
    expect(refusalOf("lz4", tooMuch)).toBe("CORRUPT_MESSAGE");
    expect(decompress("lz4", joined(frame, text))).toEqual(text);
    expect(decompress("lz4", joined(frame, frame))).toEqual(text);
  });
});

describe("zstd", () => {
  const frame = compress("zstd", text);

  test("frames one after another are one payload, skippable ones between them are passed over", () => {
    const skippable = [0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    expect(decompress("zstd", joined(frame, skippable, frame))).toEqual(joined(text, text));
    expect(refusalOf("zstd", Uint8Array.from(skippable))).toBe("CORRUPT_MESSAGE");
    expect(refusalOf("zstd", joined(frame, [1, 2]))).toBe("CORRUPT_MESSAGE");
    expect(refusalOf("zstd", joined(frame, text))).toBe("CORRUPT_MESSAGE");
    expect(refusalOf("zstd", joined(frame, skippable.slice(0, 9)))).toBe("CORRUPT_MESSAGE");
  });

  test("a frame as a Java stream writes it is read: no content size, an empty last block", () => {
    const stored = joined([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58], [5 << 3, 0, 0], encodeUtf8("abcde"), [0x01, 0, 0]);
    expect(decompress("zstd", stored, 5)).toEqual(encodeUtf8("abcde"));
    expect(refusalOf("zstd", stored, 4)).toBe("MESSAGE_TOO_LARGE");
  });

  test("a content size, a checksum and each of its widths are read", () => {
    const block = [(5 << 3) | 1, 0, 0];
    const content = encodeUtf8("abcde");
    const magic = [0x28, 0xb5, 0x2f, 0xfd];
    expect(decompress("zstd", joined(magic, [0x20, 5], block, content))).toEqual(content);
    expect(decompress("zstd", joined(magic, [0xa0, 5, 0, 0, 0], block, content))).toEqual(content);
    expect(decompress("zstd", joined(magic, [0xe0, 5, 0, 0, 0, 0, 0, 0, 0], block, content))).toEqual(content);
    expect(refusalOf("zstd", joined(magic, [0x20, 6], block, content))).toBe("CORRUPT_MESSAGE");
    expect(refusalOf("zstd", joined(magic, [0x20, 4], block, content))).toBe("CORRUPT_MESSAGE");
    expect(refusalOf("zstd", joined(magic, [0x24, 5], block, content, [1, 2, 3]))).toBe("CORRUPT_MESSAGE");
    expect(refusalOf("zstd", joined(magic, [0x24, 5], block, content, [1, 2, 3, 4]))).toBe("CORRUPT_MESSAGE");
  });

  test("a dictionary, a reserved bit, a reserved block and a window above 128 MiB are refused", () => {
    const rest = [0x01, 0, 0];
    for (const header of [
      [0x01, 0x58, 7],
      [0x08, 0x58],
      [0x00, 0x90],
    ]) {
      expect(refusalOf("zstd", joined([0x28, 0xb5, 0x2f, 0xfd], header, rest))).toBe("CORRUPT_MESSAGE");
    }
    expect(refusalOf("zstd", joined([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58], [0x07, 0, 0]))).toBe("CORRUPT_MESSAGE");
  });
});

describe("a worker job is the function of the same name", () => {
  test.each(CODECS)("compress and decompress, %s", (codec) => {
    const compressed = runWorkerJob(NODE_CODECS, "compress", { codec, payload: text, level: undefined });
    expect(compressed).toEqual(compress(codec, text));
    const input = { codec, payload: compressed, outputBytesMax: text.length };
    expect(runWorkerJob(NODE_CODECS, "decompress", input)).toEqual(text);
  });

  test("crc32c", () => {
    expect(runWorkerJob(NODE_CODECS, "crc32c", { payload: text })).toBe(crc32c(text));
  });

  test.each(CODECS)("validate walks the records of a batch of %s and gives the maximum timestamp", (codec) => {
    const records = [5, 9, 7].map((timestamp) => ({ key: null, value: text, timestamp }));
    const batch = encodeBatch(records);
    const section = batch.subarray(61);
    const good = withCompressedPayload(batch, codec, compress(codec, section));
    const validate = (payload: Uint8Array, outputBytesMax = 2 ** 20): number =>
      runWorkerJob(NODE_CODECS, "validate", { payload, outputBytesMax }).maxTimestamp;
    expect(validate(good)).toBe(9);
    const failing = (code: string) => expect.objectContaining({ name: "WorkerError", code });
    expect(() => validate(good, 100)).toThrow(failing("MESSAGE_TOO_LARGE"));
    const short = withCompressedPayload(batch, codec, compress(codec, section.subarray(0, -1)));
    expect(() => validate(short)).toThrow(failing("INVALID_RECORD"));
    expect(() => validate(withCompressedPayload(batch, codec, text))).toThrow(failing("CORRUPT_MESSAGE"));
    expect(() => validate(good.subarray(0, -1))).toThrow(failing("CORRUPT_MESSAGE"));
    expect(() => validate(withByte(good, 22, 6))).toThrow(failing("UNSUPPORTED_COMPRESSION_TYPE"));
    expect(scanBatch(good, 0).type).toBe("batch");
  });
});
