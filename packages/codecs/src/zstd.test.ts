import { WorkerError } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import { NODE_CODECS } from "./node-codecs.ts";
import { ZSTD_WAYS, zstd } from "./zstd.ts";
import type { Zstd } from "./zstd-way.ts";

/** Those that this Node has, by name. "built in" is among them from Node 22.15 on. */
const ways = Object.entries(ZSTD_WAYS).flatMap(([name, open]): [string, Zstd][] => {
  try {
    return [[name, open()]];
  } catch (error) {
    expect(error).toMatchObject({ name: "WorkerError", code: "UNSUPPORTED_COMPRESSION_TYPE" });
    return [];
  }
});

const content = new TextEncoder().encode("a tidemark is the line that high water leaves behind ".repeat(500));

test("the optional native library and the portable one are there, and the first that is there is used", () => {
  expect(ways.map(([name]) => name)).toEqual(expect.arrayContaining(["native", "wasm"]));
  expect(zstd()).toBe(ways[0]?.[1]);
});

describe.each(ways)("zstd %s", (name, way) => {
  const exact = { outputBytesMax: content.length, frameBytesMax: content.length };

  test.each(ways)("reads what %s wrote", (_, writer) => {
    for (const level of [undefined, -5, 1, 19]) {
      expect(Uint8Array.from(way.decompressFrame(writer.compress(content, level), exact))).toEqual(content);
    }
    const empty = writer.compress(new Uint8Array(0), undefined);
    expect(way.decompressFrame(empty, { outputBytesMax: 1, frameBytesMax: 1 })).toHaveLength(0);
  });

  test("stops at the bound: one byte less is MESSAGE_TOO_LARGE, whatever the frame's structure allows", () => {
    const frame = way.compress(content, undefined);
    for (const frameBytesMax of [content.length, 2 ** 20]) {
      const limits = { outputBytesMax: content.length - 1, frameBytesMax };
      expect(() => way.decompressFrame(frame, limits)).toThrow(
        expect.objectContaining({ name: "WorkerError", code: "MESSAGE_TOO_LARGE" }),
      );
    }
    const limits = { outputBytesMax: content.length, frameBytesMax: 2 ** 20 };
    expect(Uint8Array.from(way.decompressFrame(frame, limits))).toEqual(content);
  });

  test("a damaged frame is an error, and the next one is read", () => {
    const frame = Uint8Array.from(way.compress(content, undefined));
    const damaged = frame.slice();
    damaged.fill(0xff, frame.length - 30, frame.length - 10);
    expect(() => {
      const output = way.decompressFrame(damaged, exact);
      if (Buffer.compare(output, content) !== 0) throw new Error("other content");
    }).toThrow(Error);
    expect(Uint8Array.from(way.decompressFrame(frame, exact))).toEqual(content);
    expect(name).not.toBe("");
  });
});

test("a thousand payloads leave no memory of the portable library taken", () => {
  const wasm = ZSTD_WAYS.wasm();
  const frame = wasm.compress(content, undefined);
  const limits = { outputBytesMax: 2 ** 24, frameBytesMax: 2 ** 24 };
  // Its memory is 16 MiB or so and grows: what was not given back would be past a gigabyte at the end.
  const before = process.memoryUsage().rss;
  for (let round = 0; round < 1000; round += 1) {
    wasm.decompressFrame(frame, limits);
    const small = { outputBytesMax: 10, frameBytesMax: 10 };
    expect(() => wasm.decompressFrame(frame, small)).toThrow(WorkerError);
  }
  expect(process.memoryUsage().rss - before).toBeLessThan(400 * 2 ** 20);
});

test("lz4 and snappy blocks come back", () => {
  expect(
    Uint8Array.from(NODE_CODECS.decompressLz4Block(NODE_CODECS.compressLz4Block(content), content.length)),
  ).toEqual(content);
  expect(() => NODE_CODECS.decompressLz4Block(NODE_CODECS.compressLz4Block(content), content.length - 1)).toThrow(
    Error,
  );
  expect(Uint8Array.from(NODE_CODECS.decompressSnappyBlock(NODE_CODECS.compressSnappyBlock(content)))).toEqual(content);
});
