import { describe, expect, test } from "vitest";
import { BufferPool, POOL_BYTES_MAX } from "./buffer-pool.ts";

describe("a buffer pool", () => {
  test("lends what was given back, in the length that is asked for", () => {
    const pool = new BufferPool();
    const first = pool.take(100_000);
    expect([first.length, first.byteOffset, pool.keptBytes]).toEqual([100_000, 0, 0]);
    pool.giveBack(first.subarray(7, 9));
    expect(pool.keptBytes).toBe(131_072);
    const second = pool.take(70_000);
    expect(second.length).toBe(70_000);
    expect(second.buffer).toBe(first.buffer);
    expect([pool.take(70_000).buffer === first.buffer, pool.keptBytes]).toEqual([false, 0]);
  });

  test("takes memory back once, and only what it has lent", () => {
    const pool = new BufferPool();
    const mine = pool.take(20_000);
    pool.giveBack(mine);
    pool.giveBack(mine);
    pool.giveBack(new Uint8Array(20_000));
    pool.giveBack(new BufferPool().take(20_000));
    expect(pool.keptBytes).toBe(32_768);
    expect(pool.take(20_000).buffer).not.toBe(pool.take(20_000).buffer);
  });

  test("keeps nothing small, nothing huge, and no more than its bound", () => {
    const pool = new BufferPool();
    for (const bytes of [0, 1, 16_383, 8 * 1024 * 1024 + 1]) {
      const taken = pool.take(bytes);
      expect(taken.length).toBe(bytes);
      pool.giveBack(taken);
    }
    expect(pool.keptBytes).toBe(0);
    const lent = Array.from({ length: 6 }, () => pool.take(8 * 1024 * 1024));
    for (const taken of lent) pool.giveBack(taken);
    expect(pool.keptBytes).toBe(POOL_BYTES_MAX);
  });

  test("overwrites what is given back where it is told to", () => {
    const pool = new BufferPool({ poisons: true });
    const taken = pool.take(20_000).fill(1);
    pool.giveBack(taken);
    expect(taken.every((byte) => byte === 0xdd)).toBe(true);
  });
});
