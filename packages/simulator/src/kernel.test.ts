import { InvariantError } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import { KernelCompletion } from "./completion.ts";
import { SimulatedDisk } from "./disk.ts";
import { SimulatedEnvironment } from "./environment.ts";
import { Kernel } from "./kernel.ts";
import { SimulatedRandom } from "./random.ts";

function sleep(environment: SimulatedEnvironment, ms: number): Promise<void> {
  return new Promise((resolve) => void environment.clock.setTimer(ms, resolve));
}

test("time moves from event to event, and an hour costs nothing", async () => {
  const environment = new SimulatedEnvironment({ seed: 1 });
  const { kernel, clock } = environment;
  const startMs = clock.wallMs();
  await kernel.run(() => sleep(environment, 3_600_000));
  expect(clock.monotonicMs()).toBe(3_600_000);
  expect(clock.wallMs() - startMs).toBe(3_600_000);
  expect(kernel.eventCount).toBe(1);
});

test("all microtasks run before the next event", async () => {
  const kernel = new Kernel({ seed: 0 });
  const seen: string[] = [];
  await kernel.run(async () => {
    await new Promise<void>((resolve) => {
      kernel.schedule(1, "first", () => {
        void (async () => {
          for (let depth = 0; depth < 1_000; depth++) await Promise.resolve();
          seen.push("chain of the first event");
        })();
      });
      kernel.schedule(2, "second", () => {
        seen.push("second event");
        resolve();
      });
    });
  });
  expect(seen).toEqual(["chain of the first event", "second event"]);
});

test("a cancelled timer does not fire", async () => {
  const environment = new SimulatedEnvironment({ seed: 0 });
  let fired = 0;
  const timer = environment.clock.setTimer(5, () => fired++);
  environment.clock.setTimer(6, () => fired++);
  timer.cancel();
  timer.cancel();
  await environment.kernel.runFor(10_000);
  expect(fired).toBe(1);
});

test("events of one moment come in order of insertion, or in an order drawn from the seed", async () => {
  const order = async (seed: number, ties: "seeded" | "insertion"): Promise<string> => {
    const kernel = new Kernel({ seed, ties });
    const seen: number[] = [];
    for (let index = 0; index < 8; index++) kernel.schedule(10, "tie", () => seen.push(index));
    await kernel.runFor(20);
    return seen.join("");
  };
  expect(await order(1, "insertion")).toBe("01234567");
  expect(await order(1, "seeded")).toBe(await order(1, "seeded"));
  expect(await order(1, "seeded")).not.toBe(await order(2, "seeded"));
});

test("a run whose promise nobody can settle ends as a deadlock", async () => {
  const kernel = new Kernel({ seed: 0 });
  await expect(kernel.run(() => new Promise(() => undefined))).rejects.toThrow("DEADLOCK");
});

test("a run that goes in circles ends at the event cap", async () => {
  const kernel = new Kernel({ seed: 0, eventsMax: 100 });
  const again = (): void => void kernel.schedule(1, "again", again);
  again();
  await expect(kernel.run(() => new Promise(() => undefined))).rejects.toThrow("EVENT CAP");
});

describe("a seed replays everything", () => {
  async function history(seed: number): Promise<readonly [number, string, number, string]> {
    const environment = new SimulatedEnvironment({ seed, mode: "kernel", disk: { shortTransferOneIn: 3 } });
    const { kernel, files, workers, state } = environment;
    const seen: string[] = [];
    const client = async (name: string): Promise<void> => {
      const file = await files.open(`/${name}`, "create");
      for (let turn = 0; turn < 20; turn++) {
        const payload = environment.random.bytes(name, 32);
        const crc = await workers.run("crc32c", { payload: payload.slice() });
        await file.writeAt(payload, turn * 32);
        if (turn % 5 === 0) await file.sync();
        await state.commit([{ key: name, value: payload }], { sync: false });
        seen.push(`${name}${turn}:${crc}@${kernel.nowUs}`);
      }
    };
    await kernel.run(() => Promise.all([client("a"), client("b"), client("c")]));
    const next = environment.crashMachine("per-file-prefix");
    return [kernel.traceHash, seen.join(" "), kernel.nowUs, next.files.image().digest];
  }

  test("the same seed gives the same events, times, results and crash", async () => {
    for (const seed of [1, 2, 3, 4]) expect(await history(seed)).toEqual(await history(seed));
  });

  test("another seed gives another history", async () => {
    expect((await history(1))[1]).not.toBe((await history(2))[1]);
  });
});

test("a timer and a write of a crashed process never complete", async () => {
  const environment = new SimulatedEnvironment({ seed: 3, mode: "kernel" });
  const { kernel } = environment;
  const seen: string[] = [];
  const file = await kernel.run(() => environment.files.open("/a", "create"));
  void file.writeAt(Uint8Array.of(1), 0).then(() => seen.push("write"));
  void environment.workers.run("crc32c", { payload: Uint8Array.of(1) }).then(() => seen.push("job"));
  void environment.state.commit([], { sync: true }).then(() => seen.push("commit"));
  environment.clock.setTimer(1, () => seen.push("timer"));
  const next = environment.crashProcess();
  await kernel.runFor(10_000_000);
  expect(seen).toEqual([]);
  expect(next.files.image().files().get("/a")).toHaveLength(0);
});

test("a direct call moves the clock", () => {
  const kernel = new Kernel({ seed: 0 });
  const completion = new KernelCompletion(kernel, new SimulatedRandom(0), { minUs: 1, maxUs: 1 });
  completion.spend(2.5);
  expect(kernel.nowUs).toBe(3);
});

test("changing the bytes of a write in flight is a bug of the caller", async () => {
  const kernel = new Kernel({ seed: 0 });
  const completion = new KernelCompletion(kernel, new SimulatedRandom(0), { minUs: 1, maxUs: 1 });
  const effects: (() => unknown)[] = [];
  const disk = new SimulatedDisk({
    completion: { isImmediate: false, spend: (us) => completion.spend(us), run: keep },
  });
  function keep<T>(_site: string, effect: () => T): Promise<T> {
    effects.push(effect);
    return Promise.resolve(effects.length === 1 ? effect() : (0 as T));
  }
  const file = await disk.open("/a", "create");
  const bytes = Uint8Array.of(1, 2, 3);
  await file.writeAt(bytes, 0);
  bytes[1] = 9;
  expect(effects[1]).toThrow(InvariantError);
});

test("an event costs little: 200,000 of them with an await each", async () => {
  const kernel = new Kernel({ seed: 1 });
  let turns = 0;
  await kernel.run(async () => {
    while (turns < 200_000) {
      await new Promise<void>((resolve) => void kernel.schedule(1, "turn", resolve));
      turns++;
    }
  });
  expect(kernel.eventCount).toBe(200_000);
});
