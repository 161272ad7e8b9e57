import { array, assert, asyncProperty, constantFrom, integer, oneof } from "fast-check";
import { describe, expect, test } from "vitest";

import { lineBlocks, LineSplitter, LineTooLongError, summarizeLines } from "./lines.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder("latin1");

async function* chunksOf(bytes: Uint8Array, cuts: readonly number[]): AsyncGenerator<Uint8Array> {
  let start = 0;
  for (const cut of [...cuts].sort((a, b) => a - b)) {
    yield bytes.slice(start, Math.max(start, Math.min(cut, bytes.length)));
    start = Math.max(start, Math.min(cut, bytes.length));
  }
  yield bytes.slice(start);
}

async function linesOf(bytes: Uint8Array, cuts: readonly number[] = [], lineBytesMax = 1000): Promise<Uint8Array[]> {
  const lines: Uint8Array[] = [];
  for await (const block of lineBlocks(chunksOf(bytes, cuts), lineBytesMax)) lines.push(...block);
  return lines;
}

const texts = (lines: readonly Uint8Array[]) => lines.map((line) => decoder.decode(line));

describe("splitting lines", () => {
  test.each([
    ["", []],
    ["\n", [""]],
    ["a", ["a"]],
    ["a\n", ["a"]],
    ["a\n\n\nb", ["a", "", "", "b"]],
    ["a\r\nb\r\n", ["a\r", "b\r"]],
    ["\r\n", ["\r"]],
    ["\u0000\n\u0085 \n", ["\u0000", "\u0085 "]],
  ])("%j has the lines %j", async (text, expected) => {
    const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
    expect(texts(await linesOf(bytes))).toEqual(expected);
  });

  test("wherever the chunks end, the lines are those of the whole input, byte for byte", async () => {
    const byte = oneof({ weight: 2, arbitrary: constantFrom(10, 13, 0, 255) }, integer({ min: 0, max: 255 }));
    await assert(
      asyncProperty(
        array(byte, { maxLength: 60 }),
        array(integer({ min: 0, max: 60 }), { maxLength: 8 }),
        async (values, cuts) => {
          const bytes = Uint8Array.from(values);
          const expected = decoder.decode(bytes).split("\n");
          if (expected.at(-1) === "") expected.pop();
          expect(texts(await linesOf(bytes, cuts))).toEqual(expected);
          const summary = await summarizeLines(chunksOf(bytes, cuts), 1000);
          expect(summary.lineCount).toBe(expected.length);
          expect(summary.lineBytes).toBe(expected.reduce((sum, line) => sum + line.length, 0));
          expect(summary.longestLineBytes).toBe(Math.max(0, ...expected.map((line) => line.length)));
          expect(summary.endsWithNewline).toBe(bytes.length === 0 || bytes.at(-1) === 10);
        },
      ),
      { numRuns: 500 },
    );
  });

  test("a line of exactly the limit passes, one byte more is refused by its number, ended or not", async () => {
    for (const [text, lineNumber] of [
      ["12345\n123456\n", 2],
      ["\n\n123456", 3],
    ] as const) {
      for (const cuts of [[], [3], [2, 4, 6, 7, 8, 9]]) {
        const error = new LineTooLongError(lineNumber, 5);
        await expect(linesOf(encoder.encode(text), cuts, 5)).rejects.toEqual(error);
        await expect(summarizeLines(chunksOf(encoder.encode(text), cuts), 5)).rejects.toEqual(error);
      }
      expect(await linesOf(encoder.encode(text), [3], 6)).toHaveLength(lineNumber);
    }
  });

  test("the lines before one that is too long are given out, the same chunk or not", async () => {
    for (const cuts of [[], [1], [4], [6]]) {
      const seen: Uint8Array[] = [];
      const read = async () => {
        for await (const block of lineBlocks(chunksOf(encoder.encode("a\nb\nccc\nd\n"), cuts), 2)) seen.push(...block);
      };
      await expect(read()).rejects.toEqual(new LineTooLongError(3, 2));
      expect(texts(seen)).toEqual(["a", "b"]);
    }
  });

  test("an endless line is not held", () => {
    const splitter = new LineSplitter(1000);
    const push = () => splitter.push(new Uint8Array(600));
    expect(push()).toEqual([]);
    expect(push()).toEqual([]);
    expect(push).toThrow(LineTooLongError);
    expect(() => splitter.finish()).toThrow(LineTooLongError);
  });
});
