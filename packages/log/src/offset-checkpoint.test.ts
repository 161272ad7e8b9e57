import { decodeUtf8, encodeUtf8, toOffset } from "@tidemark/base";
import { CheckpointError } from "@tidemark/epoch-cache";
import { SimulatedDisk } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { decodeOffsetCheckpoint, encodeOffsetCheckpoint, readOffsetCheckpoint } from "./offset-checkpoint.ts";

const decode = (text: string) => decodeOffsetCheckpoint(encodeUtf8(text), "checkpoint");

describe("directory-wide offset checkpoints", () => {
  test("a checkpoint is version, count, and one line an entry, the last one ended too", () => {
    const bytes = encodeOffsetCheckpoint([
      { topic: "orders", partition: 0, offset: toOffset(5) },
      { topic: "a-b.c", partition: 12, offset: toOffset(2 ** 40) },
    ]);
    expect(decodeUtf8(bytes)).toBe("0\n2\norders 0 5\na-b.c 12 1099511627776\n");
  });

  test("CK-08 topic names with - and . survive", () => {
    expect(decode("0\n2\nt 0 5\na-b.c_d 3 7\n")).toEqual([
      { topic: "t", partition: 0, offset: 5 },
      { topic: "a-b.c_d", partition: 3, offset: 7 },
    ]);
  });

  test("CK-09 of a partition that is there twice the last line wins", () => {
    expect(decode("0\n2\nt 0 5\nt 0 9\n")).toEqual([{ topic: "t", partition: 0, offset: 9 }]);
  });

  test.each([
    ["1\n0\n", "another version"],
    ["0\n2\nt 0 5\n", "fewer lines than counted"],
    ["0\n1\nt 0 5\nt 1 5\n", "more lines than counted"],
    ["0\n1\nt 0\n", "two fields"],
    ["0\n1\nt x 5\n", "a partition that is no number"],
    ["0\n1\nt -1 5\n", "a negative partition"],
    ["0\n1\nt 0 -5\n", "a negative offset"],
    ["0\n1\nt 0 9007199254740993\n", "an offset above 2^53"],
    ["0\n1\nt 0 1e3\n", "an offset that is no integer"],
  ])("CK-05 %j is refused: %s", (text) => {
    expect(() => decode(text)).toThrow(CheckpointError);
  });

  test("BR-031 a bad file reads as empty, with the reason", async () => {
    const files = new SimulatedDisk();
    const file = await files.open("bad", "create");
    await file.writeAt(encodeUtf8("0\n3\nt 0 5\n"), 0);
    const content = await readOffsetCheckpoint(files, "bad");
    expect(content.entries).toEqual([]);
    expect(content.problem).toMatch(/^CHECKPOINT_MALFORMED: bad:/);
  });

  test("CK-02 no file and an empty file are no entries and no problem", async () => {
    const files = new SimulatedDisk();
    await (await files.open("empty", "create")).close();
    for (const path of ["absent", "empty"]) {
      expect(await readOffsetCheckpoint(files, path)).toMatchObject({ entries: [], problem: undefined });
    }
  });
});
