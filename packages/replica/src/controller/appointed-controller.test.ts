import { SimulatedEnvironment } from "@tidemark/simulator";
import type { ClusterStateRequest, RegisterRequest } from "@tidemark/wire";
import { expect, test } from "vitest";
import { AppointedController } from "./appointed-controller.ts";

function registerRequest(brokerId: number): RegisterRequest {
  return {
    kind: "register",
    brokerId,
    incarnationId: `start-${brokerId}`,
    bootId: "boot",
    cleanShutdownBrokerEpoch: -1,
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

const TOPIC = { name: "orders", topicId: "id", assignments: [[1, 2]] };

function open(environment: SimulatedEnvironment): Promise<AppointedController> {
  return AppointedController.open({
    files: environment.files,
    clock: environment.clock,
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
