import { LogDirectory, PartitionLog, putStateOffset } from "@tidemark/log";
import { toOffset } from "@tidemark/base";
import type { LogConfig } from "@tidemark/log";
import {
  immediateCompletion,
  Kernel,
  SimulatedClock,
  SimulatedDisk,
  SimulatedRandom,
  SimulatedState,
  SimulatedWorkerPool,
} from "@tidemark/simulator";
import { Machine, PartitionRun } from "./partition-run.ts";
import type { Obligation } from "./history.ts";
import type { LogModel } from "./log-model.ts";

const TOPIC = "orders";
export const DIRECTORY = `/log/${TOPIC}-0`;

const clock = new SimulatedClock(new Kernel({ seed: 0 }));
const random = new SimulatedRandom(0);
const workers = new SimulatedWorkerPool(immediateCompletion);

function openLog(disk: SimulatedDisk, config: LogConfig, wasCleanShutdown: boolean): Promise<PartitionLog> {
  return PartitionLog.open({
    files: disk,
    state: new SimulatedState(disk),
    clock,
    random,
    workers,
    directory: DIRECTORY,
    topic: TOPIC,
    partition: 0,
    config,
    wasCleanShutdown,
    // The script's batches are older than the simulated clock.
    producerIdExpirationMs: Number.MAX_SAFE_INTEGER,
    logDirectory: new LogDirectory("/log"),
  });
}

/** A machine with an empty partition directory, all durable. */
export async function emptyDisk(): Promise<SimulatedDisk> {
  const disk = new SimulatedDisk({ keepsHistory: false });
  await disk.makeDirectory(DIRECTORY);
  await disk.syncDirectory("/");
  await disk.syncDirectory("/log");
  return SimulatedDisk.fromImage(disk.image());
}

/** A script's log: the only one of its process. */
export class ScriptRun extends PartitionRun {
  readonly #machine: Machine;
  readonly #config: LogConfig;

  /** @param serial number of the first batch, so that batches of two runs over one disk differ */
  constructor(disk: SimulatedDisk, config: LogConfig, initial: Obligation, serial = 0) {
    const machine = new Machine(disk);
    super(machine, config, initial, serial);
    this.#machine = machine;
    this.#config = config;
  }

  /** Opens; `learn` reads what a log of unknown content holds. */
  async open(
    options: { readonly clean?: boolean; readonly learn?: (log: PartitionLog) => Promise<LogModel> } = {},
  ): Promise<void> {
    const beganAt = this.disk.operationCount;
    const log = await openLog(this.disk, this.#config, options.clean ?? false);
    this.noteOpen(log, beganAt, await options.learn?.(log));
  }

  /** The process dies without a word; the next call has to be `open`. */
  killProcess(): void {
    this.#machine.killProcess();
    this.noteKill();
  }

  /** While the log is closed, another program deletes its records below `offset`, and says so to whoever opens it next. */
  async raiseStart(offset: number): Promise<void> {
    const put = putStateOffset("log-start", TOPIC, 0, toOffset(offset));
    await this.step(`raiseStart(${offset})`, () => new SimulatedState(this.disk).commit([put], { sync: true }), {
      after: this.model.startingAt(offset),
      isCleanStop: true,
    });
  }

  /** While the log is closed, a file of it goes: whoever tidies up takes indexes, which can be made anew. */
  async removeFile(name: string): Promise<void> {
    const remove = async (): Promise<void> => {
      await this.disk.unlink(`${DIRECTORY}/${name}`);
      await this.disk.syncDirectory(DIRECTORY);
    };
    await this.step(`removeFile(${name})`, remove, { after: this.model, isCleanStop: true });
  }

  /**
   * While the log is closed: of the write that the last process had under way the disk put an earlier one's bytes in its place, whole and
   * with a right CRC. Nobody was told that it is there.
   */
  async strayWrite(): Promise<void> {
    const [first] = this.model.batches;
    const last = [...this.disk.image().files()].filter(([path]) => path.endsWith(".log")).at(-1);
    if (first === undefined || last === undefined) throw new Error("there is a batch to be written again");
    const [path, { length }] = last;
    const write = async (): Promise<void> => {
      const file = await this.disk.open(path, "write");
      await file.writeAt(first.bytes, length);
      await file.close();
    };
    await this.step("strayWrite", write, { after: this.model });
  }
}
