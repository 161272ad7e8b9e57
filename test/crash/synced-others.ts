import { decodeUtf8 } from "@tidemark/base";
import type { FlushMode } from "@tidemark/log";
import { AppointedController } from "@tidemark/replica";
import { Tidemark } from "@tidemark/server";
import { enumerateCrashImages, SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import type { CrashPoint, EnumerationLimits } from "@tidemark/simulator";
import { obligationAt } from "./history.ts";
import { LogModel } from "./log-model.ts";
import { LogSubject } from "./log-subject.ts";
import { configOf } from "./partition-run.ts";
import { checkObligation, demand } from "./recovered-log.ts";
import { emptyDisk, ScriptRun } from "./script-run.ts";
import { SCRIPTS } from "./scripts.ts";
import type { SyncWatch } from "./sync-sites.ts";
import { checkFailure, checkNotRepeated } from "./synced-run.ts";
import type { SyncJob, Told } from "./synced-run.ts";

/** Scripts whose crashes leave work to the next open that a whole history never shows. */
const KILLED: readonly (readonly [string, FlushMode])[] = [
  ["compaction, and another pass", "always"],
  ["compaction behind deleted records, and a cut into it", "always"],
  ["retention by size", "always"],
];
const POWERLESS: readonly (readonly [string, FlushMode])[] = [
  ["one group across two rolls", "none"],
  ["compaction, and another pass", "none"],
  ["compaction behind deleted records, and a cut into it", "none"],
  ["follower leaves offsets out", "none"],
];
const POWERLESS_LIMITS: EnumerationLimits = { outcomesMax: 3, seed: 1 };

/** One job for each crash of process or machine in these scripts: the open that comes after it. */
export async function opensAfterCrashes(): Promise<readonly SyncJob[]> {
  const jobs: SyncJob[] = [];
  for (const [name, flush] of KILLED) {
    const { run, subject } = await played(name, flush);
    for (const point of run.disk.crashPoints())
      jobs.push({
        name: `${name}, flush ${flush}, killed after ${point.number}`,
        play: (watch) => playOpen({ subject, run, point, watch }, SimulatedDisk.afterProcessCrash(point)),
      });
  }
  for (const [name, flush] of POWERLESS) {
    const { run, subject } = await played(name, flush);
    for (const point of run.disk.crashPoints())
      for (const image of enumerateCrashImages(point, "any-subset", POWERLESS_LIMITS))
        jobs.push({
          name: `${name}, flush ${flush}, without power after ${point.number} (${image.digest})`,
          play: (watch) => playOpen({ subject, run, point, watch }, SimulatedDisk.fromImage(image)),
        });
  }
  return jobs;
}

async function played(name: string, flush: FlushMode): Promise<{ run: ScriptRun; subject: LogSubject }> {
  const script = SCRIPTS.find((one) => one.name === name);
  if (script === undefined) throw new Error(`there is no script "${name}"`);
  const config = configOf(flush, script.config ?? {});
  const run = new ScriptRun(await emptyDisk(), config, { candidates: [LogModel.empty()], floorOffset: 0 });
  await script.play(run);
  return { run, subject: new LogSubject(run, config, false) };
}

interface CrashedRun {
  readonly subject: LogSubject;
  readonly run: ScriptRun;
  readonly point: CrashPoint;
  readonly watch: SyncWatch;
}

async function playOpen({ subject, run, point, watch }: CrashedRun, disk: SimulatedDisk): Promise<Told | undefined> {
  const obligation = obligationAt(run.history, point.number, "machine");
  watch.attach(disk);
  let failure: unknown;
  try {
    await subject.open(disk, [obligation], { wasClean: false });
  } catch (error) {
    failure = error;
  }
  if (watch.struck === undefined) {
    if (failure !== undefined) throw failure;
    return undefined;
  }
  demand(failure !== undefined, "S14", () => "the log is open although a sync of its open has failed");
  checkFailure(failure, "the open");
  checkNotRepeated(watch);
  for (const next of restarted(disk.crashPoint())) {
    const opened = await subject.open(next, [obligation], { wasClean: false });
    for (const found of opened.found) checkObligation(found, obligation);
    await opened.goOn();
  }
  return "an open";
}

function* restarted(point: CrashPoint): Generator<SimulatedDisk, void, undefined> {
  yield SimulatedDisk.afterProcessCrash(point);
  for (const image of enumerateCrashImages(point, "ordered-prefix", { outcomesMax: 2, seed: 1 }))
    yield SimulatedDisk.fromImage(image);
}

async function emptyDirectory(directory: string): Promise<SimulatedDisk> {
  const disk = new SimulatedDisk({ keepsHistory: false });
  await disk.makeDirectory(directory);
  await disk.syncDirectory("/");
  return SimulatedDisk.fromImage(disk.image());
}

/** The appointed controller's own file: what it cannot write it does not tell, nor anything behind it. */
export const CONTROLLER_JOB: SyncJob = {
  name: "the controller",
  async play(watch) {
    const disk = await emptyDirectory("/controller");
    watch.attach(disk);
    const controller = await openController(disk);
    let told = controller.state.number;
    let isRefused = false;
    const changes = [
      () => controller.createTopic({ name: "orders", topicId: "id", assignments: [[1, 2]] }),
      () => register(controller, 1),
      () => register(controller, 2),
      () => controller.brokerDied(1),
      () => register(controller, 1),
    ];
    for (const change of changes) {
      // One that has failed says so, or answers nothing.
      await change().catch(() => undefined);
      const { number } = controller.state;
      if (number > told) demand(watch.struck === undefined, "S14", () => `the controller tells ${number} unsynced`);
      else isRefused = true;
      told = number;
    }
    if (watch.struck === undefined) return undefined;
    demand(isRefused, "S14", () => "no change was refused");
    checkNotRepeated(watch);
    for (const next of restarted(disk.crashPoint())) {
      const again = await openController(next);
      demand(again.state.number >= told, "S14", () => `the controller remembers ${again.state.number} of ${told}`);
      await register(again, 2);
      await again.close();
    }
    return "a call";
  },
};

function openController(disk: SimulatedDisk): Promise<AppointedController> {
  const { clock } = new SimulatedEnvironment({ seed: 1 }, disk);
  return AppointedController.open({ files: disk, clock, directory: "/controller", sessionTimeoutMs: 1000 });
}

function register(controller: AppointedController, brokerId: number): Promise<unknown> {
  return controller.handle({
    kind: "register",
    brokerId,
    incarnationId: `start-${brokerId}`,
    bootId: "boot",
    cleanShutdownBrokerEpoch: -1,
    isTailDurable: false,
    host: "127.0.0.1",
    port: 9000,
  });
}

/** An embedded node: what it makes and notes beside its logs. */
export const EMBEDDED_JOB: SyncJob = {
  name: "an embedded node",
  async play(watch) {
    const disk = await emptyDirectory("/parent");
    watch.attach(disk);
    const records: string[] = [];
    let failure: unknown;
    try {
      for (const values of ["ab", "cd"]) {
        const node = await openNode(disk);
        const topic = await node.topic("orders");
        for (const value of values) {
          await topic.append({ value });
          demand(watch.struck === undefined, "S14", () => `${value} is answered behind a failed sync`);
          records.push(value);
        }
        await node.close();
        if (watch.struck !== undefined) break;
      }
    } catch (error) {
      failure = error;
    }
    if (watch.struck === undefined) {
      if (failure !== undefined) throw failure;
      return undefined;
    }
    checkNotRepeated(watch);
    for (const next of restarted(disk.crashPoint())) {
      const node = await openNode(next);
      const topic = await node.topic("orders");
      await topic.append({ value: "z" });
      const found: string[] = [];
      for await (const record of topic.fetch({ partition: 0, from: "earliest" })) {
        found.push(record.value === null ? "" : decodeUtf8(record.value));
        if (found.at(-1) === "z") break;
      }
      const kept = found.slice(0, records.length).join("");
      demand(kept === records.join(""), "S12", () => `${found.join("")} of ${records.join("")}`);
      await node.close();
    }
    return failure === undefined ? "the close" : "a call";
  },
};

function openNode(disk: SimulatedDisk): Promise<Tidemark> {
  const environment = new SimulatedEnvironment({ seed: 1 }, disk);
  const parts = { environment, openState: () => Promise.resolve(environment.state) };
  return Tidemark.open({ directory: "/parent/node", parts });
}
