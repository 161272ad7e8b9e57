import { describe, expect, test } from "vitest";
import { legacyMagic, legacyMessageBytes } from "./legacy-message.ts";
import { encodeBatch } from "./record.ts";

/** As Kafka 0.8 and 0.10 wrote them: `value` without a key, made by hand and with zlib's CRC-32 of the bytes behind it. */
const MAGIC_0 = "0000000000000000 00000013 acc08400 0000 ffffffff 00000005 76616c7565";
const MAGIC_1 = "0000000000000007 0000001b a584f508 0100 0000018bcfe56800 ffffffff 00000005 76616c7565";

const bytesOf = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex.replaceAll(" ", ""), "hex"));

describe("messages of old formats", () => {
  test.each([
    [0, MAGIC_0],
    [1, MAGIC_1],
  ])("one of magic %i is known by its CRC, with more behind it too", (magic, hex) => {
    const message = bytesOf(hex);
    expect(legacyMagic(message)).toBe(magic);
    expect(legacyMessageBytes(message)).toBe(message.length);
    expect(legacyMagic(bytesOf(`${hex}ffff`))).toBe(magic);
  });

  test("one that is cut, or in which any bit behind its size is another, is none", () => {
    const message = bytesOf(MAGIC_1);
    for (let length = 0; length < message.length; length += 1)
      expect(legacyMagic(message.subarray(0, length))).toBeUndefined();
    for (let at = 12; at < message.length; at += 1) {
      for (let bit = 0; bit < 8; bit += 1) {
        const flipped = message.slice();
        flipped[at] = (flipped[at] ?? 0) ^ (1 << bit);
        expect(legacyMagic(flipped)).toBeUndefined();
      }
    }
  });

  test("a batch of today whose magic was damaged is none", () => {
    const batch = encodeBatch([{ key: null, value: Uint8Array.of(1), timestamp: 1 }]);
    for (const magic of [0, 1]) {
      const damaged = batch.slice();
      damaged[16] = magic;
      expect(legacyMagic(damaged)).toBeUndefined();
    }
    expect(legacyMessageBytes(batch)).toBeUndefined();
  });
});
