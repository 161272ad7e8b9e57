import { decodeUtf8, encodeUtf8, InvariantError, toLeaderEpoch, toOffset } from "@tidemark/base";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { CheckpointError, decodeCheckpointLines, encodeCheckpointLines } from "./checkpoint-lines.ts";
import type { EpochEntry } from "./epoch-entry.ts";
import { LeaderEpochCache } from "./leader-epoch-cache.ts";
import { decodeLeaderEpochCheckpoint, encodeLeaderEpochCheckpoint } from "./leader-epoch-checkpoint.ts";

// Ids CK-… are the conformance table's: what Apache Kafka 4.3.1 reads and writes. CK-06, a crash between the temporary
// file and the rename, stands in leader-epoch-file-cache.test.ts.

const PATH = "orders-0/leader-epoch-checkpoint";

describe("leader-epoch-checkpoint", () => {
  test("CK-01 [3@40 5@52] is version, count and one line an entry", () => {
    expect(decodeUtf8(encodeLeaderEpochCheckpoint(entriesOf([3, 40], [5, 52])))).toBe("0\n2\n3 40\n5 52\n");
    expect(decodeUtf8(encodeLeaderEpochCheckpoint([]))).toBe("0\n0\n");
  });

  test("CK-02 a file of zero bytes has no entries", () => {
    expect(decode("")).toEqual([]);
  });

  // Kafka takes the log directory offline for a malformed file. Here it is a typed error, and the log rebuilds the
  // entries from its batches: they say the same, and one bad file is no reason to lose a whole disk.
  test("CK-03 version 1 is refused", () => {
    expect(errorOf("1\n1\n3 40\n")).toMatchObject({ code: "CHECKPOINT_MALFORMED", path: PATH, line: 1 });
  });

  test("CK-04 a count of 3 with two entries is refused", () => {
    expect(errorOf("0\n3\n3 40\n5 52\n")).toMatchObject({ line: 2, reason: "count 3, but 2 entries follow" });
    expect(errorOf("0\n1\n3 40\n5 52\n")).toMatchObject({ line: 2 });
    expect(errorOf("0\n-1\n")).toMatchObject({ line: 2 });
  });

  // Kafka's start-up dies of an unchecked exception when a number inside an entry is none or negative; bytes from a disk
  // are data, so that is the same typed error as any other bad line.
  test.each([
    ["one token", "0\n1\n3\n", 3],
    ["three tokens", "0\n1\n3 40 1\n", 3],
    ["an empty line", "0\n2\n3 40\n\n5 52\n", 4],
    ["an empty line at the end", "0\n1\n3 40\n\n", 4],
    ["a leading blank", "0\n1\n 3 40\n", 3],
    ["a lone blank", "0\n1\n \n", 3],
    ["a version that is no number", "x\n1\n3 40\n", 1],
    ["a version with a blank", "0 \n1\n3 40\n", 1],
    ["an empty first line", "\n0\n", 1],
    ["a count that is no number", "0\ntwo\n3 40\n", 2],
    ["an epoch that is no number", "0\n1\nx 40\n", 3],
    ["an offset that is no number", "0\n2\n3 40\n5 5x\n", 4],
    ["a fraction", "0\n1\n3 40.0\n", 3],
    ["a negative epoch", "0\n1\n-3 40\n", 3],
    ["a negative offset", "0\n1\n3 -40\n", 3],
    ["an epoch above 2^31 - 1", "0\n1\n2147483648 40\n", 3],
    ["an offset above 2^53 - 1", "0\n1\n3 9007199254740992\n", 3],
    ["a NUL, as a torn file has", "0\n1\n\0\0\0\0\0\0", 3],
  ])("CK-05 %s is refused, naming the line", (_what, text, line) => {
    expect(errorOf(text)).toMatchObject({ name: "CheckpointError", path: PATH, line });
  });

  test("CK-05 bytes that are not UTF-8 are refused", () => {
    expect(() => decodeLeaderEpochCheckpoint(Uint8Array.of(0x30, 0x0a, 0xff), PATH)).toThrow(CheckpointError);
  });

  test("CK-07 entries that do not ascend are given in file order, and a cache heals them", () => {
    const decoded = decode("0\n2\n5 52\n3 40\n");
    expect(decoded).toEqual(entriesOf([5, 52], [3, 40]));
    expect(new LeaderEpochCache(decoded).entries).toEqual(entriesOf([3, 40]));
  });

  test("CK-08 an offset checkpoint has three fields, and topic names keep their dots and dashes", () => {
    const bytes = encodeUtf8("0\n2\nt 0 5\nfoo.bar-2_baz 11 9007199254740991\n");
    const lines = decodeCheckpointLines(bytes, "replication-offset-checkpoint", 3);
    expect(lines).toEqual([
      ["t", "0", "5"],
      ["foo.bar-2_baz", "11", "9007199254740991"],
    ]);
    expect(encodeCheckpointLines(lines)).toEqual(bytes);
    expect(() => decodeCheckpointLines(encodeUtf8("0\n1\nt 0\n"), "p", 3)).toThrow("expected 3 fields");
    // Kafka reads this one as a topic without a name.
    expect(() => decodeCheckpointLines(encodeUtf8("0\n1\n 0 5\n"), "p", 3)).toThrow("expected 3 fields");
  });

  test("CK-09 a lone version has no entries, a count of 0 with an entry is refused, the same entry twice is one", () => {
    expect(decode("0\n")).toEqual([]);
    expect(errorOf("0\n0\n3 40\n")).toMatchObject({ line: 2 });
    expect(new LeaderEpochCache(decode("0\n2\n3 40\n3 40\n")).entries).toEqual(entriesOf([3, 40]));
  });

  test("CK-10 CRLF line ends, runs of blanks and a missing last newline are accepted", () => {
    expect(decode("0\r\n2\r\n3 40\r\n5 52\r\n")).toEqual(entriesOf([3, 40], [5, 52]));
    expect(decode("0\n2\n3 \t  40\n5  52  \n")).toEqual(entriesOf([3, 40], [5, 52]));
    expect(decode("0\n1\n3 40")).toEqual(entriesOf([3, 40]));
  });

  test("whatever is written reads back", () => {
    const epoch = fc.integer({ min: 0, max: 2 ** 31 - 1 }).map(toLeaderEpoch);
    const startOffset = fc.maxSafeInteger().map((value) => toOffset(Math.abs(value)));
    fc.assert(
      fc.property(fc.array(fc.record({ epoch, startOffset })), (entries) => {
        expect(decodeLeaderEpochCheckpoint(encodeLeaderEpochCheckpoint(entries), PATH)).toEqual(entries);
      }),
    );
  });

  test("any bytes give entries or a CheckpointError, nothing else", () => {
    const tokens = fc.constantFrom("0", "1", "2", "-1", "40", " ", "\n", "\r", "\t", "x", "\0", "9".repeat(20));
    fc.assert(
      fc.property(
        fc.oneof(
          fc.array(tokens).map((parts) => encodeUtf8(parts.join(""))),
          fc.uint8Array(),
        ),
        (bytes) => {
          try {
            for (const { epoch, startOffset } of decodeLeaderEpochCheckpoint(bytes, PATH)) {
              expect(toLeaderEpoch(epoch)).toBe(epoch);
              expect(toOffset(startOffset)).toBe(startOffset);
            }
          } catch (error) {
            expect(error).toBeInstanceOf(CheckpointError);
          }
        },
      ),
    );
  });

  test("a field that would not read back is never written", () => {
    expect(() => encodeCheckpointLines([["two words", 0, 5]])).toThrow(InvariantError);
    expect(() => encodeCheckpointLines([["", 0, 5]])).toThrow(InvariantError);
  });
});

function decode(text: string): EpochEntry[] {
  return decodeLeaderEpochCheckpoint(encodeUtf8(text), PATH);
}

function errorOf(text: string): unknown {
  try {
    decode(text);
  } catch (error) {
    return error;
  }
  return undefined;
}

function entriesOf(...pairs: [number, number][]): EpochEntry[] {
  return pairs.map(([epoch, startOffset]) => ({ epoch: toLeaderEpoch(epoch), startOffset: toOffset(startOffset) }));
}
