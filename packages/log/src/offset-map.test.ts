import { createHash } from "node:crypto";
import { encodeUtf8 } from "@tidemark/base";
import { expect, test } from "vitest";
import { md5 } from "./md5.ts";
import { OffsetMap } from "./offset-map.ts";

test("MD5 is that of Node's crypto, at every length around the borders of its blocks", () => {
  const digest = new Int32Array(6);
  for (let length = 0; length < 200; length += 1) {
    const bytes = Uint8Array.from({ length }, (_, at) => (at * 31 + length) & 0xff);
    md5(bytes, digest, 1);
    const hex = Buffer.from(digest.buffer, 4, 16).toString("hex");
    expect(hex, `${length} bytes`).toBe(createHash("md5").update(bytes).digest("hex"));
  }
  expect([digest[0], digest[5]]).toEqual([0, 0]);
});

test("the last offset of a key is kept, as in a plain map, up to nine tenths of the slots", () => {
  const map = new OffsetMap(24 * 1000);
  const plain = new Map<string, number>();
  let isFull = false;
  for (let offset = 0; offset < 3000; offset += 1) {
    const key = `key-${(offset * 7919) % 1200}`;
    if (map.put(encodeUtf8(key), offset)) plain.set(key, offset);
    else isFull = true;
  }
  expect([isFull, map.size, plain.size]).toEqual([true, 900, 900]);
  for (let number = 0; number < 1200; number += 1)
    expect(map.get(encodeUtf8(`key-${number}`))).toBe(plain.get(`key-${number}`) ?? -1);
});
