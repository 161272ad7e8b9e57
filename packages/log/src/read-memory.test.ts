import { expect, test } from "vitest";
import { readMemory } from "./read-memory.ts";

test("no two results share a byte, whatever their sizes, and every one begins aligned", () => {
  const results: Uint8Array[] = [];
  for (let at = 0; at < 500; at += 1) results.push(readMemory((at * 197) % 9000));
  for (const [at, memory] of results.entries()) {
    expect(memory.every((byte) => byte === 0)).toBe(true);
    expect(memory.byteOffset % 8).toBe(0);
    memory.fill(1 + (at % 255));
  }
  for (const [at, memory] of results.entries()) {
    expect(memory.length).toBe((at * 197) % 9000);
    expect(memory.every((byte) => byte === 1 + (at % 255))).toBe(true);
  }
});

test("a large result has memory of its own", () => {
  expect(readMemory(8193).buffer.byteLength).toBe(8193);
  expect(readMemory(100).buffer.byteLength).toBeLessThanOrEqual(64 * 1024);
});
