import { LogDirectory, PartitionLog, putStateOffset } from "@tidemark/log";
import { fail, toOffset } from "@tidemark/base";
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
import { demand, readOpenedLog, readSegments } from "./recovered-log.ts";
import type { Obligation } from "./history.ts";
import type { LogModel, TransactionEnd } from "./log-model.ts";

const TOPIC = "orders";
export const DIRECTORY = `/log/${TOPIC}-0`;

/** In a file of one batch: what comes before are offset, length, epoch and magic. */
const CRC_COVERS_FROM_BYTES = 17;

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

  /** The coordinator ends the producer's transaction. */
  async endTransaction(producerId: number, end: TransactionEnd): Promise<void> {
    await this.endTransactionAt(producerId, end, clock.wallMs());
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

  /** What an open would make of the disk of the closed log without this file: it says what is missing, and gives no offset again. */
  async checkLossOf(name: string): Promise<void> {
    const disk = SimulatedDisk.fromImage(this.disk.image());
    await disk.unlink(`${DIRECTORY}/${name}`);
    await disk.syncDirectory(DIRECTORY);
    for (const wasClean of [true, false]) await this.#checkDamage(disk, wasClean, `without ${name}`);
  }

  /** What an open would make of the disk of the closed log with this file of two batches cut: empty, between them, and one byte short. */
  async checkCutOf(name: string): Promise<void> {
    const path = `${DIRECTORY}/${name}`;
    const { length } = this.disk.image().files().get(path) ?? fail("the file is there", { name });
    for (const sizeBytes of [0, length / 2, length - 1]) {
      const disk = SimulatedDisk.fromImage(this.disk.image());
      const file = await disk.open(path, "write");
      await file.truncate(sizeBytes);
      await file.sync();
      await file.close();
      for (const wasClean of [true, false]) await this.#checkDamage(disk, wasClean, `with ${name} cut to ${sizeBytes}`);
    }
  }

  /** An open of the closed log without one of these files, which can be made anew, finds the log as it was. */
  async checkRemakeOf(suffix: ".txnindex" | ".index"): Promise<void> {
    const paths = [...this.disk.image().files().keys()].filter((path) => path.endsWith(suffix));
    if (paths.length === 0) throw new Error(`there is a ${suffix}`);
    for (const path of paths)
      for (const wasClean of [true, false]) {
        const disk = SimulatedDisk.fromImage(this.disk.image());
        await disk.unlink(path);
        await disk.syncDirectory(DIRECTORY);
        const log = await openLog(disk, this.#config, wasClean);
        const found = await readOpenedLog(log, disk);
        demand(found.print === this.model.print, "S8", () => `without ${path} the log is ${found.print}`);
        await log.close();
      }
  }

  /** What an open after a kill would make of the disk of the closed log with any bit of this file flipped that the CRC covers: no cut. */
  async checkRotOf(name: string): Promise<void> {
    const path = `${DIRECTORY}/${name}`;
    const { length } = this.disk.image().files().get(path) ?? fail("the file is there", { name });
    for (let at = CRC_COVERS_FROM_BYTES; at < length; at += 1) {
      const disk = SimulatedDisk.fromImage(this.disk.image());
      const file = await disk.open(path, "write");
      const byte = new Uint8Array(1);
      await file.readAt(byte, at);
      await file.writeAt(
        byte.map((bits) => bits ^ (1 << (at % 8))),
        at,
      );
      await file.sync();
      await file.close();
      await this.#checkDamage(disk, false, `with byte ${at} of ${name} rotten`);
    }
  }

  /**
   * What an open after the kill would make of the disk with any one bit of the files flipped that no CRC covers: offset, length, epoch and magic
   * of each batch. Nothing of it was synced for sure, so the log ends there, and says so; what is kept is the log as it was up to that batch.
   */
  async checkRotOutsideCrc(): Promise<void> {
    const image = this.disk.image();
    for (const { baseOffset: segment, batches } of readSegments(image.files(), DIRECTORY))
      for (const { positionBytes, baseOffset } of batches)
        for (let bit = 0; bit < 8 * CRC_COVERS_FROM_BYTES; bit += 1) {
          const disk = SimulatedDisk.fromImage(image);
          const file = await disk.open(`${DIRECTORY}/${String(segment).padStart(20, "0")}.log`, "write");
          const byte = new Uint8Array(1);
          const at = positionBytes + (bit >> 3);
          await file.readAt(byte, at);
          await file.writeAt(
            byte.map((bits) => bits ^ (1 << (bit & 7))),
            at,
          );
          await file.close();
          const log = await openLog(disk, this.#config, false);
          const found = await readOpenedLog(log, disk);
          const kept = found.batches.filter((batch) => batch.baseOffset < baseOffset);
          const wanted = this.model.batches.filter((batch) => batch.baseOffset < baseOffset);
          const what = `with bit ${bit} of batch ${baseOffset} rotten`;
          demand(kept.length === wanted.length, "S12", () => `${what} there are ${kept.length} batches before it`);
          demand(log.logEndOffset === baseOffset, "S12", () => `${what} the log ends at ${log.logEndOffset}`);
          demand(log.recovery.cut?.offset === baseOffset, "S12", () => `${what} nothing is said of a cut there`);
          await log.close();
        }
  }

  async #checkDamage(disk: SimulatedDisk, wasClean: boolean, what: string): Promise<void> {
    const log = await openLog(SimulatedDisk.fromImage(disk.image()), this.#config, wasClean);
    demand(log.damaged.length > 0, "S13", () => `${what} the log is said to be whole`);
    demand(log.logEndOffset === this.model.endOffset, "S13", () => `${what} the log ends at ${log.logEndOffset}`);
    demand(log.refusal !== undefined, "S13", () => `${what} the log takes appends`);
    await log.close();
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
