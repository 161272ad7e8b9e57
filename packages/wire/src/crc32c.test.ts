import { encodeUtf8 } from "@tidemark/base";
import { crc32c as nativeCrc32c } from "@node-rs/crc32";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { CRC_NATIVE_BYTES_MIN, crc32c, crc32cOfRange, crc32cSliced } from "./crc32c.ts";

/** The definition, a bit at a time. */
function crc32cBitwise(bytes: Uint8Array): number {
  let crc = 0xffff_ffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc & 1) === 0 ? crc >>> 1 : (crc >>> 1) ^ 0x82f63b78;
  }
  return ~crc >>> 0;
}

const anyBytes = fc.uint8Array({ maxLength: 3 * CRC_NATIVE_BYTES_MIN, size: "max" });

test.each([
  ["", 0],
  ["a", 0xc1d04330],
  ["123456789", 0xe3069283],
])("the published value of %j is %i", (text, expected) => {
  expect(crc32c(encodeUtf8(text))).toBe(expected);
});

test("32 zero bytes, 32 bytes of ones and 0 .. 31 give the values of RFC 3720, B.4", () => {
  expect(crc32c(new Uint8Array(32))).toBe(0x8a9136aa);
  expect(crc32c(new Uint8Array(32).fill(0xff))).toBe(0x62a8ab43);
  expect(crc32c(Uint8Array.from({ length: 32 }, (_, index) => index))).toBe(0x46dd794e);
});

test("at every length both implementations give what the definition gives", () => {
  fc.assert(
    fc.property(anyBytes, (bytes) => {
      const expected = crc32cBitwise(bytes);
      expect(crc32cSliced(bytes, 0, bytes.length, 0)).toBe(expected);
      expect(nativeCrc32c(bytes)).toBe(expected);
      expect(crc32c(bytes)).toBe(expected);
    }),
  );
});

test("bytes in pieces give the CRC of the whole, wherever they are cut", () => {
  fc.assert(
    fc.property(anyBytes, anyBytes, (head, tail) => {
      const whole = new Uint8Array(head.length + tail.length);
      whole.set(head);
      whole.set(tail, head.length);
      expect(crc32c(tail, crc32c(head))).toBe(crc32cBitwise(whole));
      expect(crc32cOfRange(whole, head.length, whole.length, crc32c(head))).toBe(crc32cBitwise(whole));
      expect(crc32cOfRange(whole, head.length, whole.length)).toBe(crc32cBitwise(tail));
    }),
  );
});
