import {
  Kernel,
  SimulatedClock,
  SimulatedEnvironment,
  SimulatedNetwork,
  SimulatedRandom,
  SimulatedState,
} from "@tidemark/simulator";
import { describeClock } from "./suites/clock.ts";
import { describeFileHandle } from "./suites/file-handle.ts";
import { describeFileLock } from "./suites/file-lock.ts";
import { describeFileSystem } from "./suites/file-system.ts";
import type { FileSystemFixture } from "./suites/file-system.ts";
import { describeNetwork } from "./suites/network.ts";
import { describeRandom } from "./suites/random.ts";
import { describeState } from "./suites/state.ts";
import type { StateFixture } from "./suites/state.ts";
import { describeWorkerPool } from "./suites/worker-pool.ts";
import type { WorkerPoolFixture } from "./suites/worker-pool.ts";

/** Ways to set the simulated world up; the ports keep their contract in each. */
const WORLDS = [
  { name: "simulated, immediate", make: () => new SimulatedEnvironment({ seed: 1 }) },
  {
    name: "simulated, immediate, every transfer short",
    make: () => new SimulatedEnvironment({ seed: 2, disk: { shortTransferOneIn: 1 } }),
  },
  {
    name: "simulated, latencies and seeded ties",
    make: () => new SimulatedEnvironment({ seed: 3, mode: "kernel", disk: { shortTransferOneIn: 3 } }),
  },
  {
    name: "simulated, latencies of next to nothing",
    make: () => new SimulatedEnvironment({ seed: 4, mode: "kernel", latency: { minUs: 0, maxUs: 2 } }),
  },
] as const;

interface World {
  readonly environment: SimulatedEnvironment;
  run(body: () => Promise<void>): Promise<void>;
  dispose(): Promise<void>;
}

function makeWorld(make: () => SimulatedEnvironment): World {
  const environment = make();
  return {
    environment,
    run: (body) => environment.kernel.run(body),
    dispose: () => Promise.resolve(),
  };
}

for (const { name, make } of WORLDS) {
  const fileFixture = async (): Promise<FileSystemFixture> => {
    const world = makeWorld(make);
    const { files, kernel } = world.environment;
    const directory = "/contract";
    await kernel.run(() => files.makeDirectory(directory));
    return { ...world, files, directory };
  };
  const stateFixture = async (): Promise<StateFixture> => {
    const world = makeWorld(make);
    return { ...world, open: () => Promise.resolve(new SimulatedState(world.environment.files)) };
  };
  const workerFixture = async (): Promise<WorkerPoolFixture> => {
    const world = makeWorld(make);
    return { ...world, workers: world.environment.workers };
  };
  describeFileHandle(name, fileFixture);
  describeFileSystem(name, fileFixture);
  describeFileLock(name, fileFixture);
  describeState(name, stateFixture);
  describeWorkerPool(name, workerFixture);
}

describeClock("simulated", async () => {
  const kernel = new Kernel({ seed: 1 });
  return {
    clock: new SimulatedClock(kernel),
    pass: (ms) => kernel.runFor(ms * 1_000),
    dispose: () => Promise.resolve(),
  };
});

describeRandom("simulated", async () => ({ random: new SimulatedRandom(1), dispose: () => Promise.resolve() }));

for (const [name, seed, chunkBytesMax] of [
  ["simulated, large chunks", 1, 64 * 1024],
  ["simulated, small chunks and seeded ties", 3, 4_000],
] as const) {
  describeNetwork(name, async () => {
    const kernel = new Kernel({ seed });
    const network = new SimulatedNetwork({ kernel, random: new SimulatedRandom(seed), chunkBytesMax });
    return {
      network: network.host("one"),
      pass: (ms) => new Promise((resolve) => void kernel.schedule(ms * 1_000, "test.pass", resolve)),
      run: (body) => kernel.run(body),
      dispose: async () => {},
    };
  });
}
