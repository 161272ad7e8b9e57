import { crc32c } from "@tidemark/wire";
import { expect, test } from "vitest";
import { immediateCompletion } from "./completion.ts";
import { SimulatedEnvironment } from "./environment.ts";
import { POISON, SimulatedWorkerPool } from "./worker-pool.ts";

test("a job gives the result of the real function and poisons the payload that was handed over", async () => {
  const workers = new SimulatedWorkerPool(immediateCompletion);
  const payload = Uint8Array.of(1, 2, 3);
  const expected = crc32c(payload);
  expect(await workers.run("crc32c", { payload })).toBe(expected);
  expect([...payload]).toEqual([POISON, POISON, POISON]);
});

test("jobs complete in an order drawn from the seed", async () => {
  const order = async (seed: number): Promise<string> => {
    const { kernel, workers } = new SimulatedEnvironment({ seed, mode: "kernel" });
    const seen: number[] = [];
    const jobs = [0, 1, 2, 3, 4, 5].map((index) =>
      workers.run("crc32c", { payload: Uint8Array.of(index) }).then(() => seen.push(index)),
    );
    await kernel.run(() => Promise.all(jobs));
    return seen.join("");
  };
  expect(await order(1)).toBe(await order(1));
  expect(new Set([await order(1), await order(2), await order(3)]).size).toBeGreaterThan(1);
});

test("a worker that dies fails one job only; after close every call is refused", async () => {
  const workers = new SimulatedWorkerPool(immediateCompletion);
  workers.failNext(1);
  await expect(workers.run("crc32c", { payload: Uint8Array.of(1) })).rejects.toMatchObject({ code: "WORKER_FAILED" });
  await expect(workers.run("crc32c", { payload: Uint8Array.of(1) })).resolves.toBeTypeOf("number");
  await workers.close();
  await expect(workers.run("crc32c", { payload: Uint8Array.of(1) })).rejects.toMatchObject({ code: "CLOSED" });
});
