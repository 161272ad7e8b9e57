import { decodeUtf8, encodeUtf8 } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import {
  checkTopicName,
  decodePartitionMetadata,
  deleteDirectoryName,
  encodePartitionMetadata,
  parseDirectoryName,
} from "./partition-directory.ts";

const UNIQUE_ID = "0123456789abcdef0123456789abcdef";
const TOPIC_ID = "4fZpfoS1QiyS3j7ZVMzKJg";

describe("names of partition directories", () => {
  test.each([
    ["orders-0", "orders", 0],
    ["a-b-c-12", "a-b-c", 12],
    ["a.b_c-2147483647", "a.b_c", 2147483647],
    ["topic--1", "topic-", 1],
    ["x-01", "x", 1],
  ])("%s is partition %s %d", (name, topic, partition) => {
    expect(parseDirectoryName(name)).toEqual({ type: "partition", topic, partition });
  });

  test.each([`orders-0.${UNIQUE_ID}-delete`, `a.b-3.${UNIQUE_ID}-delete`])("%s waits for its removal", (name) => {
    expect(parseDirectoryName(name)).toEqual({ type: "delete" });
  });

  test.each([
    `orders-0.${UNIQUE_ID}-future`,
    `orders-0.${UNIQUE_ID}-stray`,
    "__cluster_metadata-0",
    "remote-log-index-cache",
  ])("%s is left alone", (name) => {
    expect(parseDirectoryName(name)).toEqual({ type: "ignored" });
  });

  test.each([
    "lost+found",
    "orders",
    "-1",
    "orders-",
    "orders-x",
    "orders-2147483648",
    "orders-0-delete",
    "orders-1.5",
    "a-0x1",
  ])("%s is refused as Kafka refuses it", (name) => {
    expect(parseDirectoryName(name).type).toBe("unknown");
  });

  test("the name of a deleted partition is cut to 255 characters and still parses", () => {
    const short = deleteDirectoryName({ topic: "orders", partition: 3 }, UNIQUE_ID);
    expect(short).toBe(`orders-3.${UNIQUE_ID}-delete`);
    const long = deleteDirectoryName({ topic: "t".repeat(249), partition: 12345 }, UNIQUE_ID);
    expect(long).toHaveLength(255);
    expect(parseDirectoryName(long)).toEqual({ type: "delete" });
  });
});

describe("topic names", () => {
  test.each(["a", "A.b_c-9", "...", "t".repeat(249)])("%s is one", (name) => {
    expect(() => checkTopicName(name)).not.toThrow();
  });

  test.each(["", ".", "..", "t".repeat(250), "a b", "a/b", "ä", "a\n", "a:b"])(
    "%j is refused: INVALID_TOPIC_EXCEPTION",
    (name) => {
      expect(() => checkTopicName(name)).toThrow(/INVALID_TOPIC_EXCEPTION/);
    },
  );
});

describe("partition.metadata", () => {
  test("is 43 bytes, two lines, the last one without a newline", () => {
    const bytes = encodePartitionMetadata(TOPIC_ID);
    expect(decodeUtf8(bytes)).toBe(`version: 0\ntopic_id: ${TOPIC_ID}`);
    expect(bytes).toHaveLength(43);
    expect(decodePartitionMetadata(bytes, "p")).toBe(TOPIC_ID);
  });

  test("a later version and a trailing newline are accepted", () => {
    expect(decodePartitionMetadata(encodeUtf8(`version: 3\ntopic_id: ${TOPIC_ID}\n`), "p")).toBe(TOPIC_ID);
  });

  test.each([
    "",
    `version:0\ntopic_id: ${TOPIC_ID}`,
    `version: -1\ntopic_id: ${TOPIC_ID}`,
    "version: 0\n",
    "version: 0\ntopic_id: short",
    "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
    `topic_id: ${TOPIC_ID}\nversion: 0`,
  ])("%j is refused", (text) => {
    expect(() => decodePartitionMetadata(encodeUtf8(text), "p")).toThrow(/PARTITION_METADATA_INVALID/);
  });
});
