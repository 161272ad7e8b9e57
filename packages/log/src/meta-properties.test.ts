import { decodeUtf8, encodeUtf8 } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import {
  decodeMetaProperties,
  encodeMetaProperties,
  openMetaProperties,
  parseJavaProperties,
} from "./meta-properties.ts";
import { isUuid, randomUuid } from "./uuid.ts";

const DIRECTORY_ID = "4fZpfoS1QiyS3j7ZVMzKJg";
const decode = (text: string) => decodeMetaProperties(encodeUtf8(text), "meta.properties");
const NOTHING_WANTED = { nodeId: undefined, clusterId: undefined };

describe("meta.properties", () => {
  test("a file as Kafka 4.x writes it is read", () => {
    const text = `#\n#Sun Nov 30 07:40:00 UTC 2025\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=${DIRECTORY_ID}\nnode.id=1\nversion=1\n`;
    expect(decode(text)).toEqual({ clusterId: "MkU3OEVBNTcwNTJENDM2Qg", nodeId: 1, directoryId: DIRECTORY_ID });
  });

  test("what is written is read back, also a cluster id that Java would take for syntax", () => {
    const properties = { clusterId: " a=b:c#d!e\\f", nodeId: 7, directoryId: DIRECTORY_ID };
    const bytes = encodeMetaProperties(properties);
    expect(decodeUtf8(bytes).startsWith("#\nversion=1\n")).toBe(true);
    expect(decodeMetaProperties(bytes, "p")).toEqual(properties);
  });

  test("the syntax of Java's properties: comments, separators, escapes, continued lines, the last of two", () => {
    const text =
      "! a comment\n  key : v1\nk2   v 2 \nlong=a\\\n    b\\\\\nuni=\\u0041\\t\\:\nkey=v3\nempty\nk\\=3=x\r\n#k4=no";
    expect(Object.fromEntries(parseJavaProperties(text))).toEqual({
      key: "v3",
      k2: "v 2 ",
      long: "ab\\",
      uni: "A\t:",
      empty: "",
      "k=3": "x",
    });
  });

  test.each([
    ["cluster.id=a\nnode.id=1\n", "no version"],
    ["version=0\nbroker.id=1\n", "version 0"],
    ["version=1\nnode.id=1\n", "no cluster id"],
    ["version=1\ncluster.id=a\n", "no node id"],
    ["version=1\ncluster.id=a\nnode.id=-1\n", "a negative node id"],
    ["version=1\ncluster.id=a\nnode.id=1x\n", "a node id that is no number"],
    ["version=1\ncluster.id=a\nnode.id=1\ndirectory.id=short\n", "a directory id that is no uuid"],
    ["", "nothing"],
  ])("%j is refused: %s", (text) => {
    expect(() => decode(text)).toThrow(/META_PROPERTIES_INVALID/);
  });

  test("a new directory gets a file, durable at once, that the next open takes over", async () => {
    const { files, random } = new SimulatedEnvironment({ seed: 3 });
    await files.makeDirectory("data");
    await files.syncDirectory(".");
    const made = await openMetaProperties(files, random, "data", NOTHING_WANTED);
    expect(made.nodeId).toBe(1);
    expect(isUuid(made.clusterId) && isUuid(made.directoryId)).toBe(true);
    const afterCrash = files.crashMachine("any-subset");
    expect(await openMetaProperties(afterCrash, random, "data", NOTHING_WANTED)).toEqual(made);
  });

  test("another cluster or node than the caller's is refused, and the file stays", async () => {
    const { files, random } = new SimulatedEnvironment({ seed: 3 });
    await files.makeDirectory("data");
    const made = await openMetaProperties(files, random, "data", { nodeId: 4, clusterId: "ours" });
    await expect(openMetaProperties(files, random, "data", { nodeId: 5, clusterId: "ours" })).rejects.toMatchObject({
      type: { code: "INCONSISTENT_NODE_ID", found: 4, expected: 5 },
    });
    await expect(openMetaProperties(files, random, "data", { nodeId: 4, clusterId: "x" })).rejects.toMatchObject({
      type: { code: "INCONSISTENT_CLUSTER_ID", found: "ours", expected: "x" },
    });
    expect(await openMetaProperties(files, random, "data", NOTHING_WANTED)).toEqual(made);
  });
});

test("random uuids are version 4, 22 characters, and never begin with a dash", () => {
  const { random } = new SimulatedEnvironment({ seed: 9 });
  const ids = Array.from({ length: 500 }, () => randomUuid(random, "test"));
  expect(new Set(ids).size).toBe(500);
  for (const id of ids) {
    const bytes = Buffer.from(id, "base64url");
    expect([bytes.length, (bytes[6] ?? 0) >> 4, (bytes[8] ?? 0) >> 6, id.startsWith("-"), isUuid(id)]).toEqual([
      16,
      4,
      2,
      false,
      true,
    ]);
    expect(bytes.toString("base64url")).toBe(id);
  }
});
