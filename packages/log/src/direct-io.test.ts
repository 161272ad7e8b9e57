import type { Clock, FileHandle } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { beforeEach, describe, expect, test } from "vitest";
import {
  CACHED_BYTES_PER_MS,
  DIRECT_MS_IN_A_ROW_MAX,
  DIRECT_READ_BYTES_MAX,
  DIRECT_UNKNOWN_READ_BYTES_MAX,
  DIRECT_WRITE_BYTES_MAX,
  DirectIo,
  goesDirect,
  noteDirectCall,
  noteRead,
  POOL_HOLD_FACTOR,
  SLOW_CALL_MS,
} from "./direct-io.ts";
import type { DirectIoState } from "./direct-io.ts";

describe("the event-loop policy", () => {
  const fresh = (): DirectIoState => ({ poolUntilMs: 0, directMs: 0, isCached: false });

  test("writes up to their limit go directly, larger ones do not", () => {
    expect(goesDirect("write", DIRECT_WRITE_BYTES_MAX, fresh(), 1)).toBe(true);
    expect(goesDirect("write", DIRECT_WRITE_BYTES_MAX + 1, fresh(), 1)).toBe(false);
  });

  test("small reads go directly, large ones where the last large one came as fast as memory", () => {
    const state = fresh();
    expect(goesDirect("read", DIRECT_UNKNOWN_READ_BYTES_MAX, state, 1)).toBe(true);
    expect(goesDirect("read", DIRECT_UNKNOWN_READ_BYTES_MAX + 1, state, 1)).toBe(false);
    noteRead(state, CACHED_BYTES_PER_MS, 1);
    expect(goesDirect("read", DIRECT_READ_BYTES_MAX, state, 1)).toBe(true);
    expect(goesDirect("read", DIRECT_READ_BYTES_MAX + 1, state, 1)).toBe(false);
    noteRead(state, DIRECT_UNKNOWN_READ_BYTES_MAX, 1000);
    expect(goesDirect("read", DIRECT_READ_BYTES_MAX, state, 1)).toBe(true);
    noteRead(state, CACHED_BYTES_PER_MS, 1.001);
    expect(goesDirect("read", DIRECT_READ_BYTES_MAX, state, 1)).toBe(false);
  });

  test("a call over the limit sends the file to the pool for ten times as long, one at the limit does not", () => {
    const state = fresh();
    noteDirectCall(state, SLOW_CALL_MS, 50);
    expect(state.poolUntilMs).toBe(0);
    const slow = fresh();
    noteDirectCall(slow, 3, 50);
    slow.directMs = 0;
    expect(slow.poolUntilMs).toBe(50 + 3 * POOL_HOLD_FACTOR);
    expect(goesDirect("write", 1, slow, 50 + 3 * POOL_HOLD_FACTOR - 0.001)).toBe(false);
    expect(goesDirect("read", 1, slow, 50 + 3 * POOL_HOLD_FACTOR - 0.001)).toBe(false);
    expect(goesDirect("write", 1, slow, 50 + 3 * POOL_HOLD_FACTOR)).toBe(true);
  });

  test("when direct calls have taken long enough together, one goes through the pool", () => {
    const state = fresh();
    for (let call = 0; call < 3; call += 1) noteDirectCall(state, DIRECT_MS_IN_A_ROW_MAX / 4, 10);
    expect(goesDirect("write", 1, state, 10)).toBe(true);
    noteDirectCall(state, DIRECT_MS_IN_A_ROW_MAX / 4, 11);
    expect(goesDirect("write", 1, state, 11)).toBe(false);
    expect(goesDirect("read", 1, state, 11)).toBe(false);
  });
});

describe("a file's calls", () => {
  let nowMs: number;
  let directCallMs: number;
  let pooledCallMs: number;
  let taken: string[];
  let file: FileHandle;
  let clock: Clock;
  let io: DirectIo;

  beforeEach(async () => {
    const disk = new SimulatedEnvironment({ seed: 1 }).files;
    const handle = await disk.open("f", "create");
    nowMs = 0;
    directCallMs = 0;
    pooledCallMs = 0;
    taken = [];
    file = {
      path: handle.path,
      readAt: (target, at) => (taken.push("pool"), (nowMs += pooledCallMs), handle.readAt(target, at)),
      writeAt: (source, at) => (taken.push("pool"), handle.writeAt(source, at)),
      readNow: (target, at) => (taken.push("direct"), (nowMs += directCallMs), handle.readNow(target, at)),
      writeNow: (source, at) => (taken.push("direct"), (nowMs += directCallMs), handle.writeNow(source, at)),
      truncate: (sizeBytes) => handle.truncate(sizeBytes),
      sync: () => handle.sync(),
      size: () => handle.size(),
      modifiedMs: () => handle.modifiedMs(),
      close: () => handle.close(),
    };
    clock = { wallMs: () => 0, monotonicMs: () => nowMs, setTimer: () => ({ cancel: () => undefined }) };
    io = new DirectIo(clock);
  });

  test("take the pool after a slow one until its time is over, and every byte arrives either way", async () => {
    await io.write(file, new Uint8Array([1]), 0);
    directCallMs = 5;
    await io.write(file, new Uint8Array([2]), 1);
    await io.write(file, new Uint8Array([3]), 2);
    nowMs += 5 * POOL_HOLD_FACTOR;
    directCallMs = 0;
    await io.write(file, new Uint8Array([4]), 3);
    const bytes = new Uint8Array(4);
    expect(await io.read(file, bytes, 0)).toBe(4);
    expect([...bytes]).toEqual([1, 2, 3, 4]);
    expect(taken).toEqual(["direct", "direct", "pool", "direct", "direct"]);
  });

  test("let the event loop turn now and then, though each of them is quick", async () => {
    directCallMs = DIRECT_MS_IN_A_ROW_MAX / 4;
    for (let at = 0; at < 6; at += 1) await io.write(file, new Uint8Array([at]), at);
    for (let at = 0; at < 6; at += 1) await io.read(file, new Uint8Array(1), at);
    const four = ["direct", "direct", "direct", "direct", "pool"];
    expect(taken).toEqual([...four, ...four, "direct", "direct"]);
  });

  test("are counted together with those on other files: there is one event loop for all of them", async () => {
    directCallMs = DIRECT_MS_IN_A_ROW_MAX / 4;
    for (let at = 0; at < 12; at += 1) await new DirectIo(clock).write(file, new Uint8Array([at]), at);
    const four = ["direct", "direct", "direct", "direct", "pool"];
    expect(taken).toEqual([...four, ...four, "direct", "direct"]);
  });

  test("all take the pool until the loop has turned, that is, until one is back from there", async () => {
    directCallMs = DIRECT_MS_IN_A_ROW_MAX;
    const others = [1, 2, 3].map(() => new DirectIo(clock));
    await Promise.all([io, ...others].map((each, at) => each.write(file, new Uint8Array([at]), at)));
    await new DirectIo(clock).write(file, new Uint8Array([4]), 4);
    expect(taken).toEqual(["direct", "pool", "pool", "pool", "direct"]);
  });

  test("are made directly for large reads, once one through the pool was as fast as memory", async () => {
    await io.write(file, new Uint8Array(DIRECT_WRITE_BYTES_MAX), 0);
    taken.length = 0;
    const large = new Uint8Array(DIRECT_UNKNOWN_READ_BYTES_MAX + 1);
    pooledCallMs = 1;
    await io.read(file, large, 0);
    pooledCallMs = 0.01;
    await io.read(file, large, 0);
    await io.read(file, large, 0);
    directCallMs = 1;
    await io.read(file, large, 0);
    await io.read(file, large, 0);
    expect(taken).toEqual(["pool", "pool", "direct", "direct", "pool"]);
  });
});
