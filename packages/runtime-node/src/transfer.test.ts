import { expect, test } from "vitest";
import { transferable } from "./transfer.ts";

test("bytes that fill their memory keep it", () => {
  const bytes = Uint8Array.of(1, 2, 3);
  const result = transferable(bytes);
  expect(result.buffer).toBe(bytes.buffer);
  expect(result).toEqual(bytes);
});

test("a view on part of a buffer, in front, inside or at the end, is copied", () => {
  const whole = Uint8Array.of(1, 2, 3, 4);
  for (const view of [whole.subarray(0, 3), whole.subarray(1, 3), whole.subarray(1)]) {
    const result = transferable(view);
    expect(result.buffer).not.toBe(whole.buffer);
    expect(result).toEqual(view);
    expect(result.buffer.byteLength).toBe(view.length);
  }
});

test("Node's pooled and shared memory is copied, and the result is a plain Uint8Array", () => {
  const pooled = transferable(Buffer.from("pooled"));
  expect(pooled.constructor).toBe(Uint8Array);
  expect(pooled.buffer.byteLength).toBe(6);
  const shared = transferable(new Uint8Array(new SharedArrayBuffer(4)));
  expect(shared.buffer).toBeInstanceOf(ArrayBuffer);
  expect(transferable(Buffer.allocUnsafeSlow(5)).constructor).toBe(Uint8Array);
});
