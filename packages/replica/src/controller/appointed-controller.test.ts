import type { Clock, Timer } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import type { ClusterStateRequest, RegisterRequest } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { AppointedController } from "./appointed-controller.ts";

function registerRequest(brokerId: number): RegisterRequest {
  return {
    kind: "register",
    brokerId,
    incarnationId: `start-${brokerId}`,
    bootId: "boot",
    cleanShutdownBrokerEpoch: -1,
    isTailDurable: false,
    host: "127.0.0.1",
    port: 9000,
  };
}

function clusterStateRequest(
  brokerId: number,
  brokerEpoch: number,
  afterNumber: number,
  maxWaitMs = 0,
): ClusterStateRequest {
  return { kind: "clusterState", brokerId, brokerEpoch, afterNumber, maxWaitMs };
}

/** A clock whose timers stand still with their process; time itself goes on. */
class PausableClock implements Clock {
  readonly #inner: Clock;
  #isPaused = false;
  #overdue: (() => void)[] = [];

  constructor(inner: Clock) {
    this.#inner = inner;
  }

  wallMs(): number {
    return this.#inner.wallMs();
  }

  monotonicMs(): number {
    return this.#inner.monotonicMs();
  }

  setTimer(delayMs: number, fire: () => void): Timer {
    return this.#inner.setTimer(delayMs, () => {
      if (this.#isPaused) this.#overdue.push(fire);
      else fire();
    });
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    for (const fire of this.#overdue.splice(0)) fire();
  }
}

const TOPIC = { name: "orders", topicId: "id", assignments: [[1, 2]] };

function open(environment: SimulatedEnvironment, clock: Clock = environment.clock): Promise<AppointedController> {
  return AppointedController.open({
    files: environment.files,
    clock,
    directory: "controller",
    sessionTimeoutMs: 1000,
  });
}

test("what was told is on the disk: a power cut at any operation loses no answered change", async () => {
  for (let operations = 0; operations < 60; operations += 1) {
    const environment = new SimulatedEnvironment({ seed: 1 });
    await environment.files.makeDirectory("controller");
    await environment.files.syncDirectory(".");
    const controller = await open(environment);
    const told: number[] = [];
    environment.files.crashAfter(operations);
    const history = (async () => {
      await controller.createTopic(TOPIC);
      for (const brokerId of [1, 2]) {
        const answer = await controller.handle(registerRequest(brokerId));
        if (answer.kind === "register" && answer.error === "NONE") told.push(answer.brokerEpoch);
      }
      await controller.brokerDied(1);
      told.push(controller.state.number);
    })();
    await Promise.race([history.catch(() => undefined), new Promise((resolve) => setTimeout(resolve, 1))]);
    const after = environment.crashMachine("ordered-prefix", { seed: operations });
    const reopened = await open(after);
    if (told.length > 2) expect(reopened.state.number).toBeGreaterThanOrEqual(told.at(-1) ?? 0);
    expect(reopened.state.brokers.map(({ brokerEpoch }) => brokerEpoch)).toEqual(
      expect.arrayContaining(told.slice(0, 2)),
    );
    await reopened.close();
  }
});

test("a question for news waits until there is some, and brings only what is new", async () => {
  const environment = new SimulatedEnvironment({ seed: 1 });
  await environment.kernel.run(async () => {
    const controller = await open(environment);
    await controller.handle(registerRequest(1));
    const first = await controller.handle(clusterStateRequest(1, 1, -1));
    expect(first).toMatchObject({ error: "NONE", number: 1, partitions: [] });
    const waiting = controller.handle(clusterStateRequest(1, 1, 1, 500));
    await controller.createTopic(TOPIC);
    expect(await waiting).toMatchObject({ error: "NONE", partitions: [{ topic: "orders", leader: 1, isr: [1, 2] }] });
    const { number } = controller.state;
    const beforeMs = environment.clock.monotonicMs();
    expect(await controller.handle(clusterStateRequest(1, 1, number, 500))).toMatchObject({
      error: "NONE",
      number,
      partitions: [],
    });
    expect(environment.clock.monotonicMs() - beforeMs).toBeCloseTo(500, 0);
    await controller.close();
  });
});

test("another incarnation's questions are STALE_BROKER_EPOCH", async () => {
  const environment = new SimulatedEnvironment({ seed: 1 });
  const controller = await open(environment);
  await controller.handle(registerRequest(1));
  expect(await controller.handle(clusterStateRequest(1, 7, -1))).toMatchObject({ error: "STALE_BROKER_EPOCH" });
  expect(await controller.handle(clusterStateRequest(2, 1, -1))).toMatchObject({ error: "STALE_BROKER_EPOCH" });
  await controller.close();
});

test("questions of a process that was replaced keep its successor's session no longer alive", async () => {
  const environment = new SimulatedEnvironment({ seed: 1 });
  await environment.kernel.run(async () => {
    const controller = await open(environment);
    await controller.handle(registerRequest(1));
    for (let turn = 0; turn < 20; turn += 1) {
      expect(await controller.handle(clusterStateRequest(1, 0, -1))).toMatchObject({ error: "STALE_BROKER_EPOCH" });
      await new Promise<void>((resolve) => environment.clock.setTimer(100, resolve));
    }
    expect(controller.state.brokers.map(({ isFenced }) => isFenced)).toEqual([true]);
    await controller.close();
  });
});

test("a silent broker is fenced when its session ends, and is back when it is heard of again", async () => {
  const environment = new SimulatedEnvironment({ seed: 1 });
  await environment.kernel.run(async () => {
    const controller = await open(environment);
    await controller.handle(registerRequest(1));
    await controller.handle(registerRequest(2));
    await controller.createTopic(TOPIC);
    const wait = (ms: number): Promise<void> => new Promise((resolve) => environment.clock.setTimer(ms, resolve));
    for (let turn = 0; turn < 10; turn += 1) {
      await wait(200);
      await controller.handle(clusterStateRequest(2, 2, -1));
    }
    expect(controller.state.partitions[0]).toMatchObject({ leader: 2, leaderEpoch: 1, isr: [2] });
    expect(controller.state.brokers.map(({ isFenced }) => isFenced)).toEqual([true, false]);
    await controller.handle(clusterStateRequest(1, 1, -1));
    expect(controller.state.brokers.map(({ isFenced }) => isFenced)).toEqual([false, false]);
    await controller.close();
  });
});

describe("a controller that stood still", () => {
  /** Brokers 1 and 2 registered, 1 leads; `beat` lets time pass with a sign of life of the brokers named every 100 ms. */
  async function standing(
    body: (parts: {
      readonly controller: AppointedController;
      readonly clock: PausableClock;
      readonly beat: (ms: number, ...brokerIds: number[]) => Promise<void>;
      readonly fenced: () => readonly boolean[];
    }) => Promise<void>,
  ): Promise<void> {
    const environment = new SimulatedEnvironment({ seed: 1 });
    await environment.kernel.run(async () => {
      const clock = new PausableClock(environment.clock);
      const controller = await open(environment, clock);
      for (const brokerId of [1, 2]) await controller.handle(registerRequest(brokerId));
      await controller.createTopic(TOPIC);
      const wait = (ms: number): Promise<void> => new Promise((resolve) => environment.clock.setTimer(ms, resolve));
      const beat = async (ms: number, ...brokerIds: number[]): Promise<void> => {
        for (let passedMs = 0; passedMs < ms; passedMs += 100) {
          for (const brokerId of brokerIds) await controller.handle(clusterStateRequest(brokerId, brokerId, -1));
          await wait(Math.min(100, ms - passedMs));
        }
      };
      await body({ controller, clock, beat, fenced: () => controller.state.brokers.map(({ isFenced }) => isFenced) });
      await controller.close();
    });
  }

  test("fences nobody when it wakes: a whole session goes by first, and only who stays silent in it is gone", async () => {
    await standing(async ({ controller, clock, beat, fenced }) => {
      await beat(500, 1, 2);
      clock.pause();
      await beat(5000);
      clock.resume();
      expect(fenced()).toEqual([false, false]);
      // 1 died during the pause.
      await beat(900, 2);
      expect(fenced()).toEqual([false, false]);
      expect(controller.state.partitions[0]).toMatchObject({ leader: 1, leaderEpoch: 0 });
      await beat(500, 2);
      expect(fenced()).toEqual([true, false]);
      expect(controller.state.partitions[0]).toMatchObject({ leader: 2, leaderEpoch: 1 });
    });
  });

  test("a look that is late by no more than a quarter of a session changes nothing: who is silent is fenced as ever", async () => {
    await standing(async ({ clock, beat, fenced }) => {
      await beat(700, 2);
      // Looks are due at 750 and 1000; the first comes at 990.
      clock.pause();
      await beat(290, 2);
      clock.resume();
      await beat(300, 2);
      expect(fenced()).toEqual([true, false]);
    });
  });

  test("pauses again and again keep no dead broker alive, and cost no living one its session", async () => {
    await standing(async ({ clock, beat, fenced }) => {
      const seen: string[] = [];
      for (let pause = 1; pause <= 5; pause += 1) {
        clock.pause();
        await beat(2000);
        clock.resume();
        await beat(200, 2);
        seen.push(fenced().join());
      }
      expect(seen).toEqual(["false,false", "false,false", "false,false", "true,false", "true,false"]);
    });
  });
});

test("a broker that dies while its question waits stays fenced: only what it asks afterwards is a sign of life", async () => {
  const environment = new SimulatedEnvironment({ seed: 1 });
  await environment.kernel.run(async () => {
    const controller = await open(environment);
    await controller.handle(registerRequest(1));
    await controller.handle(registerRequest(2));
    await controller.createTopic({ ...TOPIC, assignments: [[1]] });
    const waiting = controller.handle(clusterStateRequest(1, 1, controller.state.number, 500));
    await new Promise<void>((resolve) => environment.clock.setTimer(10, resolve));
    await controller.brokerDied(1);
    expect(await waiting).toMatchObject({ error: "NONE" });
    expect(controller.state.brokers[0]).toMatchObject({ brokerId: 1, isFenced: true });
    expect(controller.state.partitions[0]).toMatchObject({ leader: -1, isr: [1] });
    await controller.handle(clusterStateRequest(1, 1, -1));
    expect(controller.state.partitions[0]).toMatchObject({ leader: 1, isr: [1] });
    await controller.close();
  });
});

test("a change that cannot be written is not told, and nothing is told after it", async () => {
  const environment = new SimulatedEnvironment({ seed: 1 });
  const controller = await open(environment);
  environment.files.inject({ operation: "sync", path: /controller/, code: "EIO" });
  expect(await controller.handle(registerRequest(1))).toMatchObject({ error: "NOT_CONTROLLER", brokerEpoch: -1 });
  expect(await controller.handle(registerRequest(2))).toMatchObject({ error: "NOT_CONTROLLER" });
  expect(controller.state.brokers).toEqual([]);
  await expect(controller.createTopic(TOPIC)).rejects.toThrow("the controller has failed");
  await controller.close();
});

test("a file that is no controller's state refuses the start", async () => {
  const environment = new SimulatedEnvironment({ seed: 1 });
  await environment.files.makeDirectory("controller");
  const file = await environment.files.open("controller/controller-state.json", "create");
  await file.writeAt(new TextEncoder().encode('{"version":9}'), 0);
  await file.close();
  await expect(open(environment)).rejects.toThrow("not a controller's state");
});
