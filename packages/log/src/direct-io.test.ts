import type { FileHandle } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { DirectIo, goesDirect, nextPoolUntilMs, POOL_HOLD_MS, SLOW_CALL_MS } from "./direct-io.ts";

test("small calls go directly, large ones and those of a file that was slow do not", () => {
  expect([goesDirect(100, 100, 0, 0), goesDirect(101, 100, 0, 0)]).toEqual([true, false]);
  expect([goesDirect(1, 1, 100, 99), goesDirect(1, 1, 100, 100)]).toEqual([false, true]);
});

test("a call over the limit sends the file to the pool for a second, one at the limit does not", () => {
  expect(nextPoolUntilMs(7, SLOW_CALL_MS, 50)).toBe(7);
  expect(nextPoolUntilMs(7, SLOW_CALL_MS + 0.001, 50)).toBe(50 + POOL_HOLD_MS);
});

test("calls of a slow file take the pool until the second is over, and every byte arrives either way", async () => {
  const disk = new SimulatedEnvironment({ seed: 1 }).files;
  const handle = await disk.open("f", "create");
  let nowMs = 0;
  let directCallMs = 0;
  const taken: string[] = [];
  const file: FileHandle = {
    path: handle.path,
    readAt: (target, at) => (taken.push("pool"), handle.readAt(target, at)),
    writeAt: (source, at) => (taken.push("pool"), handle.writeAt(source, at)),
    readNow: (target, at) => (taken.push("direct"), (nowMs += directCallMs), handle.readNow(target, at)),
    writeNow: (source, at) => (taken.push("direct"), (nowMs += directCallMs), handle.writeNow(source, at)),
    truncate: (sizeBytes) => handle.truncate(sizeBytes),
    sync: () => handle.sync(),
    size: () => handle.size(),
    modifiedMs: () => handle.modifiedMs(),
    close: () => handle.close(),
  };
  const io = new DirectIo({ wallMs: () => 0, monotonicMs: () => nowMs, setTimer: () => ({ cancel: () => undefined }) });
  await io.write(file, new Uint8Array([1]), 0);
  directCallMs = 5;
  await io.write(file, new Uint8Array([2]), 1);
  await io.write(file, new Uint8Array([3]), 2);
  nowMs += POOL_HOLD_MS;
  directCallMs = 0;
  await io.write(file, new Uint8Array([4]), 3);
  const bytes = new Uint8Array(4);
  expect(await io.read(file, bytes, 0)).toBe(4);
  expect([...bytes]).toEqual([1, 2, 3, 4]);
  expect(taken).toEqual(["direct", "direct", "pool", "direct", "direct"]);
});
