import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { LogDirectory, PartitionLog } from "@tidemark/log";
import type { FlushMode, LogConfig } from "@tidemark/log";
import {
  immediateCompletion,
  Kernel,
  SimulatedClock,
  SimulatedDisk,
  SimulatedState,
  SimulatedWorkerPool,
} from "@tidemark/simulator";
import type { DiskFault } from "@tidemark/simulator";
import type { History, Obligation, Step } from "./history.ts";
import { batchOf, concat, LogModel } from "./log-model.ts";

export const DIRECTORY = "/log/orders-0";

const clock = new SimulatedClock(new Kernel({ seed: 0 }));
const workers = new SimulatedWorkerPool(immediateCompletion);

/** Small enough that a script of a few batches sees segments roll and index entries made. */
const CONFIG: LogConfig = { segmentBytes: 330, indexIntervalBytes: 90, maxMessageBytes: 4096, flush: "always" };

export function configOf(flush: FlushMode, config: Partial<LogConfig>): LogConfig {
  return { ...CONFIG, ...config, flush };
}

function openLog(disk: SimulatedDisk, config: LogConfig, wasCleanShutdown: boolean): Promise<PartitionLog> {
  return PartitionLog.open({
    files: disk,
    state: new SimulatedState(disk),
    clock,
    workers,
    directory: DIRECTORY,
    topic: "orders",
    partition: 0,
    config,
    wasCleanShutdown,
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

export interface StepEffect {
  readonly after: LogModel;
  /** Everything below is safe from a crash of the machine afterwards. Default: as before, or the new end if that is lower. */
  readonly floorOffset?: number;
  /** See `Step`. Default: it may cut into nothing. */
  readonly lowestEndOffset?: number;
  readonly isCleanStop?: boolean;
}

/** Plays a script against the real log and the model, and notes at which operation each call was answered. */
export class ScriptRun {
  readonly #config: LogConfig;
  readonly #disks: SimulatedDisk[];
  readonly #steps: Step[] = [];
  readonly #initial: Obligation;
  #log: PartitionLog | undefined;
  #model: LogModel;
  #floorOffset: number;
  #serial: number;
  #leaderEpoch = -1;
  /** What the log may be after a crash of the machine although it looked otherwise when it was opened. */
  #alternatives: readonly LogModel[] = [];
  /** An append that failed so that it may come back, since when. */
  #pendingReturn: { readonly beganAt: number; readonly after: LogModel } | undefined;

  /** @param serial number of the first batch, so that batches of two runs over one disk differ */
  constructor(disk: SimulatedDisk, config: LogConfig, initial: Obligation, serial = 0) {
    this.#config = config;
    this.#disks = [disk];
    this.#initial = initial;
    this.#model = LogModel.empty();
    this.#floorOffset = initial.floorOffset;
    this.#serial = serial;
  }

  get history(): History {
    return { initial: this.#initial, steps: this.#steps, disks: this.#disks };
  }

  get isOpen(): boolean {
    return this.#log !== undefined;
  }

  get log(): PartitionLog {
    if (this.#log === undefined) throw new Error("the script opens the log first");
    return this.#log;
  }

  get disk(): SimulatedDisk {
    return this.#disks.at(-1) ?? SimulatedDisk.fromImage(this.#noDisk());
  }

  get model(): LogModel {
    return this.#model;
  }

  /** Opens; `learn` reads what a log of unknown content holds. From here on it is the model, and was told to others. */
  async open(
    options: { readonly clean?: boolean; readonly learn?: (log: PartitionLog) => Promise<LogModel> } = {},
  ): Promise<void> {
    const beganAt = this.disk.operationCount;
    this.#log = await openLog(this.disk, this.#config, options.clean ?? false);
    const at = { beganAt, acknowledgedAt: this.disk.operationCount };
    const returned = this.#pendingReturn;
    this.#pendingReturn = undefined;
    if (returned !== undefined) {
      this.#note("append that may return", { ...at, beganAt: returned.beganAt }, { after: returned.after });
    }
    const after = options.learn === undefined ? this.#modelAfterOpen() : await options.learn(this.#log);
    // In `none` mode an open makes nothing durable, not even a truncation that the process before it had begun.
    if (this.#config.flush === "none") this.#alternatives = this.#initial.candidates;
    this.#note("open", at, { after, ...this.#alwaysFloor(after) });
  }

  async becomeLeader(epoch: number): Promise<void> {
    this.#leaderEpoch = epoch;
    await this.step(`becomeLeader(${epoch})`, () => this.log.becomeLeader(toLeaderEpoch(epoch)), {
      after: this.#model.withEpoch(epoch),
    });
  }

  /** Appends batches of so many records each, all called before the first is answered. */
  async append(...recordCounts: number[]): Promise<void> {
    const batches = recordCounts.map((count) => batchOf(this.#serial++, count));
    let after = this.#model;
    for (const [at, batch] of batches.entries())
      after = after.withBatch(batch, recordCounts[at] ?? 0, this.#leaderEpoch);
    const expected = after.batches.slice(-batches.length).map(({ baseOffset }) => baseOffset);
    await this.step(
      `append(${recordCounts.join()})`,
      async () => {
        const results = await Promise.all(batches.map((batch) => this.log.append(batch, { origin: "local" })));
        const given = results.map(({ baseOffset }) => baseOffset);
        if (given.join() !== expected.join()) throw new Error(`offsets ${given.join()} in place of ${expected.join()}`);
      },
      { after, ...this.#alwaysFloor(after) },
    );
  }

  /** Appends as follower, in one call, a batch of each epoch given. */
  async appendAsFollower(...epochs: number[]): Promise<void> {
    let after = this.#model;
    for (const epoch of epochs) after = after.withBatch(batchOf(this.#serial++, 1), 1, epoch);
    const bytes = concat(after.batches.slice(-epochs.length).map((batch) => batch.bytes));
    await this.step(`appendAsFollower(${epochs.join()})`, () => this.log.appendAsFollower(bytes), {
      after,
      ...this.#alwaysFloor(after),
    });
  }

  async truncateTo(offset: number): Promise<void> {
    const after = this.#model.truncatedTo(offset);
    const lowestEndOffset = after.batchesEndOffset;
    await this.step(`truncateTo(${offset})`, () => this.log.truncateTo(toOffset(offset)), { after, lowestEndOffset });
  }

  async truncateFullyAndStartAt(offset: number): Promise<void> {
    const after = this.#model.emptiedAt(offset);
    await this.step(`truncateFullyAndStartAt(${offset})`, () => this.log.truncateFullyAndStartAt(toOffset(offset)), {
      after,
      lowestEndOffset: 0,
    });
  }

  async roll(): Promise<void> {
    await this.step("roll", () => this.log.roll(), { after: this.#model });
  }

  async flush(): Promise<void> {
    const after = this.#model;
    await this.step("flush", () => this.log.flush(), { after, floorOffset: after.batchesEndOffset });
  }

  async close(): Promise<void> {
    const after = this.#model;
    const close = async (): Promise<void> => {
      if (!(await this.log.close())) throw new Error("the log did not close completely");
      this.#log = undefined;
    };
    await this.step("close", close, { after, floorOffset: after.batchesEndOffset, isCleanStop: true });
  }

  /** The process dies without a word; the next call has to be `open`. */
  killProcess(): void {
    this.#log = undefined;
    this.#disks.push(this.disk.crashProcess());
  }

  inject(fault: DiskFault): void {
    this.disk.inject(fault);
  }

  /** An append that must be refused: nothing of it counts, and what of it may come back is `mayReturn`. */
  async failAppend(recordCount: number, options: { readonly mayReturn: boolean }): Promise<void> {
    const batch = batchOf(this.#serial++, recordCount);
    const beganAt = this.disk.operationCount;
    const isRefused = await this.log.append(batch, { origin: "local" }).then(
      () => false,
      () => true,
    );
    if (!isRefused) throw new Error("the append should have failed");
    if (options.mayReturn) {
      // Neither in the log nor surely not: open until the next process has looked.
      this.#pendingReturn = { beganAt, after: this.#model.withBatch(batch, recordCount, this.#leaderEpoch) };
      return;
    }
    this.#note("refused append", { beganAt, acknowledgedAt: this.disk.operationCount }, { after: this.#model });
  }

  async step(name: string, call: () => Promise<unknown>, effect: StepEffect): Promise<void> {
    const beganAt = this.disk.operationCount;
    await call();
    this.#note(name, { beganAt, acknowledgedAt: this.disk.operationCount }, effect);
  }

  #note(
    name: string,
    at: { readonly beganAt: number; readonly acknowledgedAt: number },
    { after, floorOffset, lowestEndOffset, isCleanStop }: StepEffect,
  ): void {
    const lowest = lowestEndOffset ?? Number.POSITIVE_INFINITY;
    if (floorOffset === after.batchesEndOffset) this.#alternatives = [];
    this.#floorOffset = Math.min(floorOffset ?? this.#floorOffset, after.batchesEndOffset);
    this.#model = after;
    this.#steps.push({
      name,
      ...at,
      after,
      floorOffset: this.#floorOffset,
      lowestEndOffset: lowest,
      alternatives: this.#alternatives,
      isCleanStop: isCleanStop ?? false,
    });
  }

  /** In `always` mode what was answered is safe, and so is what an open has found. */
  #alwaysFloor(after: LogModel): { readonly floorOffset?: number } {
    return this.#config.flush === "always" ? { floorOffset: after.batchesEndOffset } : {};
  }

  /** A script knows what it opens, but for epochs without a batch, which an open that trusts nothing drops. */
  #modelAfterOpen(): LogModel {
    const { epochEntries, logEndOffset } = this.log;
    const { startOffset, endOffset, batches } = this.#model;
    if (logEndOffset !== endOffset) throw new Error(`opened with LEO ${logEndOffset} in place of ${endOffset}`);
    const epochs = this.#model.epochs.filter((entry) => epochEntries.some(({ epoch }) => epoch === entry.epoch));
    return new LogModel(startOffset, endOffset, batches, epochs);
  }

  #noDisk(): never {
    throw new Error("a run has a disk");
  }
}
