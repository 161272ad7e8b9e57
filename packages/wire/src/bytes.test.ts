import * as fc from "fast-check";
import { expect, test } from "vitest";
import { readInt16, readInt32, readInt64, readUint32, writeInt16, writeInt32, writeInt64 } from "./bytes.ts";

test("integers are read and written as a DataView does it, at any position", () => {
  const position = fc.integer({ min: 0, max: 8 });
  fc.assert(
    fc.property(position, fc.integer(), fc.maxSafeInteger(), (at, int32, int64) => {
      const bytes = new Uint8Array(16).fill(0xa5);
      const view = new DataView(bytes.buffer);
      writeInt64(bytes, at, int64);
      expect(view.getBigInt64(at)).toBe(BigInt(int64));
      expect(readInt64(bytes, at)).toBe(int64);
      writeInt32(bytes, at, int32);
      expect(view.getInt32(at)).toBe(int32);
      expect([readInt32(bytes, at), readUint32(bytes, at)]).toEqual([int32, int32 >>> 0]);
      expect(readInt16(bytes, at)).toBe(view.getInt16(at));
      writeInt16(bytes, at, int32);
      expect(view.getInt16(at)).toBe((int32 << 16) >> 16);
    }),
  );
});

test("64 bits outside the safe integers never read as a safe one", () => {
  const bytes = new Uint8Array(8);
  for (const high of [0x0020_0000, 0x7fff_ffff, -0x8000_0000, -0x0020_0001]) {
    writeInt32(bytes, 0, high);
    expect(Number.isSafeInteger(readInt64(bytes, 0))).toBe(false);
  }
});
