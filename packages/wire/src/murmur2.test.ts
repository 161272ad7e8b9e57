import { encodeUtf8 } from "@tidemark/base";
import { expect, test } from "vitest";
import { murmur2, toPositive } from "./murmur2.ts";

// The table of Kafka's own UtilsTest.testMurmur2.
test.each([
  ["21", -973932308],
  ["foobar", -790332482],
  ["a-little-bit-long-string", -985981536],
  ["a-little-bit-longer-string", -1486304829],
  ["lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971],
  ["abc", 479470107],
])("murmur2 of %j is %i, as in Kafka", (key, hash) => {
  expect(murmur2(encodeUtf8(key))).toBe(hash);
});

test("toPositive clears the sign bit, also of the smallest int32", () => {
  expect([toPositive(0), toPositive(-1), toPositive(-973932308), toPositive(-(2 ** 31))]).toEqual([
    0,
    2 ** 31 - 1,
    2 ** 31 - 973932308,
    0,
  ]);
});
