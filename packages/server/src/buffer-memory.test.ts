import { expect, test } from "vitest";
import { BufferMemory } from "./buffer-memory.ts";

function fill(memory: BufferMemory, ...sizes: readonly number[]) {
  const admitted: number[] = [];
  const giveUp = sizes.map((bytes, index) => memory.acquire(bytes, () => admitted.push(index)));
  return { admitted, giveUp };
}

test("who finds room is admitted before the call returns", () => {
  const memory = new BufferMemory(100);
  const { admitted, giveUp } = fill(memory, 60, 40);
  expect([admitted, giveUp, memory.usedBytes]).toEqual([[0, 1], [undefined, undefined], 100]);
});

test("who finds none waits, and nobody overtakes: not even one that would fit", () => {
  const memory = new BufferMemory(100);
  const { admitted } = fill(memory, 60, 50, 10);
  expect([admitted, memory.waitingCount]).toEqual([[0], 2]);
  expect(memory.tryAcquire(1)).toBe(false);
  memory.release(60);
  expect([admitted, memory.usedBytes, memory.waitingCount]).toEqual([[0, 1, 2], 60, 0]);
});

test("a request above the bound is admitted when nothing else is buffered", () => {
  const memory = new BufferMemory(100);
  const { admitted } = fill(memory, 500, 1);
  expect(admitted).toEqual([0]);
  memory.release(500);
  expect(admitted).toEqual([0, 1]);
});

test("who gives up takes nothing and lets those behind it pass", () => {
  const memory = new BufferMemory(100);
  const { admitted, giveUp } = fill(memory, 60, 90, 40);
  giveUp[1]?.();
  giveUp[1]?.();
  expect([admitted, memory.usedBytes, memory.waitingCount]).toEqual([[0, 2], 100, 0]);
});

test("giving up after the admission has no effect", () => {
  const memory = new BufferMemory(100);
  const { admitted, giveUp } = fill(memory, 100, 30);
  memory.release(100);
  giveUp[1]?.();
  expect([admitted, memory.usedBytes]).toEqual([[0, 1], 30]);
});

test("100,000 waiters are admitted in order, and their list is given back", () => {
  const memory = new BufferMemory(10);
  const { admitted } = fill(memory, ...Array.from({ length: 100_000 }, () => 10));
  for (let round = 0; round < 100_000; round += 1) memory.release(10);
  expect(admitted).toEqual(Array.from({ length: 100_000 }, (_, index) => index));
  expect([memory.usedBytes, memory.waitingCount]).toEqual([0, 0]);
});
