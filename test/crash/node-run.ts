import { LogManager } from "@tidemark/log";
import type { FlushMode, LogConfig, PartitionLog } from "@tidemark/log";
import { SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import type { DiskImage } from "@tidemark/simulator";
import { Explorer } from "./crash-explorer.ts";
import type { Effort, Opened, ScriptReport, Subject } from "./crash-explorer.ts";
import type { History, Obligation } from "./history.ts";
import { LogModel } from "./log-model.ts";
import { appendAfterCrash } from "./log-subject.ts";
import { configOf, Machine, PartitionRun } from "./partition-run.ts";
import { checkClosedFiles, checkEpochFile, checkNoMarker, demand, readOpenedLog } from "./recovered-log.ts";

const DIRECTORY = "/data";
const TOPIC = "orders";
const PARTITIONS = 2;

/** Serial numbers of a partition's batches begin so far from the other's: a batch in the wrong log shows. */
const SERIALS_APART = 100;
const SERIAL_AFTER_CRASH = 1_000;

/** A history of a whole log directory. */
export interface NodeScript {
  readonly name: string;
  play(run: NodeRun): Promise<void>;
}

/** A log directory with two partitions, opened and closed as a node does it. */
export class NodeRun {
  readonly partitions: readonly PartitionRun[];
  readonly #machine: Machine;
  readonly #config: LogConfig;
  /** Operations from and to which no marker may be there. */
  readonly #running: { readonly from: number; to: number }[] = [];
  #manager: LogManager | undefined;

  constructor(disk: SimulatedDisk, config: LogConfig, initial: readonly Obligation[], firstSerial = 0) {
    const machine = new Machine(disk);
    this.#machine = machine;
    this.#config = config;
    this.partitions = initial.map(
      (obligation, at) => new PartitionRun(machine, config, obligation, firstSerial + at * SERIALS_APART),
    );
  }

  partition(partition: number): PartitionRun {
    const run = this.partitions[partition];
    if (run === undefined) throw new Error(`there is no partition ${partition}`);
    return run;
  }

  async open(learn?: (log: PartitionLog) => Promise<LogModel>): Promise<void> {
    const { disk } = this.#machine;
    const beganAt = disk.operationCount;
    const before = this.#running.at(-1);
    if (before !== undefined) before.to = Math.min(before.to, beganAt);
    const manager = await openManager(disk, this.#config);
    this.#manager = manager;
    this.#running.push({ from: disk.operationCount, to: Number.POSITIVE_INFINITY });
    const { checkpoints, topicsRebuilt, topicsRemoved } = manager.report;
    demand(checkpoints.source === "state", "S13", () => "our own stop looks like another program's");
    demand(topicsRebuilt.length + topicsRemoved.length === 0, "S13", () => "a topic is not what it was");
    for (const [at, run] of this.partitions.entries()) {
      const log = manager.partition(TOPIC, at);
      demand(log !== undefined, "S13", () => `partition ${at} is gone`);
      run.noteOpen(log, beganAt, await learn?.(log));
    }
  }

  async lead(epoch: number): Promise<void> {
    for (const run of this.partitions) await run.becomeLeader(epoch);
  }

  async close(): Promise<void> {
    const beganAt = this.#machine.disk.operationCount;
    const running = this.#running.at(-1);
    if (running !== undefined) running.to = beganAt;
    const { isClean, reason } = (await this.#manager?.close()) ?? { isClean: false, reason: "it is not open" };
    if (!isClean) throw new Error(`the directory did not close cleanly: ${reason}`);
    for (const run of this.partitions) run.noteClose(beganAt);
  }

  /** The process dies without a word; the next call has to be `open`. */
  killProcess(): void {
    this.#machine.killProcess();
    for (const run of this.partitions) run.noteKill();
  }

  /** @throws Violation unless the closed directory holds the models */
  checkClosed(): void {
    for (const [at, run] of this.partitions.entries()) {
      checkClosedFiles(this.#machine.disk, partitionDirectory(at), run.model);
    }
  }

  /** Whether a crash after so many operations lies between a start and the next stop. */
  isRunningAt(operationNumber: number): boolean {
    return this.#running.some(({ from, to }) => operationNumber >= from && operationNumber <= to);
  }
}

function openManager(disk: SimulatedDisk, config: LogConfig): Promise<LogManager> {
  const environment = new SimulatedEnvironment({ seed: 1 }, disk);
  return LogManager.open({
    environment,
    openState: () => Promise.resolve(environment.state),
    directory: DIRECTORY,
    defaults: { ...config, compression: "none" },
    // The script's batches are older than the simulated clock.
    producerIdExpirationMs: Number.MAX_SAFE_INTEGER,
  });
}

function partitionDirectory(partition: number): string {
  return `${DIRECTORY}/${TOPIC}-${partition}`;
}

/** A machine with a directory that was made, given its topic and closed. */
async function newNode(config: LogConfig): Promise<SimulatedDisk> {
  const disk = new SimulatedDisk({ keepsHistory: false });
  const manager = await openManager(disk, config);
  await manager.createTopic(TOPIC, PARTITIONS, { ...config, compression: "none" });
  await manager.close();
  return SimulatedDisk.fromImage(disk.image());
}

/** Plays a script once and opens the directory after every crash that it could have had. */
export async function exploreNodeScript(script: NodeScript, flush: FlushMode, effort: Effort): Promise<ScriptReport> {
  const config = configOf(flush, {});
  const empty = Array.from({ length: PARTITIONS }, () => ({ candidates: [LogModel.empty()], floorOffset: 0 }));
  const run = new NodeRun(await newNode(config), config, empty);
  await script.play(run);
  await run.close();
  run.checkClosed();
  return { script: script.name, ...(await new Explorer(new NodeSubject(run, config), effort).explore()) };
}

class NodeSubject implements Subject {
  readonly tearsEveryByte = false;
  readonly #run: NodeRun;
  readonly #config: LogConfig;

  constructor(run: NodeRun, config: LogConfig) {
    this.#run = run;
    this.#config = config;
  }

  get flush(): FlushMode {
    return this.#config.flush;
  }

  get histories(): readonly History[] {
    return this.#run.partitions.map(({ history }) => history);
  }

  /** The marker is on the disk, or it is not. */
  canBeClean(): boolean {
    return false;
  }

  phaseAt(operationNumber: number): string {
    return this.#run.isRunningAt(operationNumber) ? " running" : "";
  }

  checkImage(image: DiskImage, operationNumber: number): void {
    const files = image.files();
    for (const at of this.#run.partitions.keys()) checkEpochFile(files, partitionDirectory(at));
    if (this.#run.isRunningAt(operationNumber)) checkNoMarker(files, DIRECTORY);
  }

  async open(
    disk: SimulatedDisk,
    obligations: readonly Obligation[],
    { afterwards = obligations }: { readonly afterwards?: readonly Obligation[] },
  ): Promise<Opened> {
    const run = new NodeRun(disk, this.#config, afterwards, SERIAL_AFTER_CRASH);
    await run.open((log) => readOpenedLog(log, disk));
    const goOn = async (): Promise<Subject> => {
      for (const [at, partition] of run.partitions.entries()) {
        await appendAfterCrash(
          partition,
          [obligations[at], afterwards[at]].flatMap((known) => known ?? []),
        );
      }
      await run.close();
      run.checkClosed();
      return new NodeSubject(run, this.#config);
    };
    return { found: run.partitions.map(({ model }) => model), goOn };
  }
}
