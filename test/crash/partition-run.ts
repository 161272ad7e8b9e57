import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG } from "@tidemark/log";
import type { FlushMode, LogConfig, PartitionLog } from "@tidemark/log";
import { SimulatedDisk } from "@tidemark/simulator";
import type { DiskFault } from "@tidemark/simulator";
import { stampBatch } from "@tidemark/wire";
import type { History, Obligation, Step } from "./history.ts";
import { concat, LogModel } from "./log-model.ts";
import type { ModelBatch, TransactionEnd } from "./log-model.ts";
import { checkObligation, demand, readLog } from "./recovered-log.ts";

/** Small enough that a script of a few batches sees segments roll and index entries made. */
const CONFIG: LogConfig = {
  ...DEFAULT_LOG_CONFIG,
  segmentBytes: 330,
  indexIntervalBytes: 90,
  maxMessageBytes: 4096 + 512,
};

/** A client's batch of which the coordinator said that its transaction is open. */
const IN_TRANSACTION = { origin: "client", isTransactionVerified: true } as const;

export function configOf(flush: FlushMode, config: Partial<LogConfig>): LogConfig {
  return { ...CONFIG, ...config, flush };
}

/** The disk of a machine as one process after another finds it. */
export class Machine {
  readonly disks: SimulatedDisk[];

  constructor(disk: SimulatedDisk) {
    this.disks = [disk];
  }

  get disk(): SimulatedDisk {
    return this.disks.at(-1) ?? SimulatedDisk.fromImage(noDisk());
  }

  /** The process dies without a word. */
  killProcess(): void {
    this.disks.push(this.disk.crashProcess());
  }
}

function noDisk(): never {
  throw new Error("a machine has a disk");
}

export interface StepEffect {
  readonly after: LogModel;
  /** Everything below is safe from a crash of the machine afterwards. Default: as before, or the new end if that is lower. */
  readonly floorOffset?: number;
  /** See `Step`. Default: it may cut into nothing. */
  readonly lowestEndOffset?: number;
  readonly isCleanStop?: boolean;
  /** See `Step`. Default: nothing. */
  readonly between?: readonly LogModel[];
}

/** Plays calls against one real log and its model, and notes at which operation each was answered. */
export class PartitionRun {
  readonly #config: LogConfig;
  readonly #machine: Machine;
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
  constructor(machine: Machine, config: LogConfig, initial: Obligation, serial = 0) {
    this.#config = config;
    this.#machine = machine;
    this.#initial = initial;
    this.#model = LogModel.empty();
    this.#floorOffset = initial.floorOffset;
    this.#serial = serial;
  }

  get history(): History {
    return { initial: this.#initial, steps: this.#steps, disks: this.#machine.disks };
  }

  get isOpen(): boolean {
    return this.#log !== undefined;
  }

  get log(): PartitionLog {
    if (this.#log === undefined) throw new Error("the script opens the log first");
    return this.#log;
  }

  get disk(): SimulatedDisk {
    return this.#machine.disk;
  }

  get model(): LogModel {
    return this.#model;
  }

  /** Takes a log that was just opened; `found` is what one of unknown content holds. From here on it is the model, and was told to others. */
  noteOpen(log: PartitionLog, beganAt: number, found?: LogModel): void {
    this.#log = log;
    const at = { beganAt, acknowledgedAt: this.disk.operationCount };
    const returned = this.#pendingReturn;
    this.#pendingReturn = undefined;
    if (returned !== undefined) {
      this.#note("append that may return", { ...at, beganAt: returned.beganAt }, { after: returned.after });
    }
    const after = found ?? this.#modelAfterOpen();
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
    let after = this.#model;
    for (const count of recordCounts) after = after.withBatch(this.#serial++, count, this.#leaderEpoch);
    await this.#append(`append(${recordCounts.join()})`, after.batches.slice(-recordCounts.length), after);
  }

  /** Appends one batch with values of so many bytes. */
  async appendLarge(valueBytes: number): Promise<void> {
    const after = this.#model.withBatch(this.#serial++, 1, this.#leaderEpoch, valueBytes);
    await this.#append(`appendLarge(${valueBytes})`, after.batches.slice(-1), after);
  }

  /** Appends a batch of one record for each of these keys, in one group. */
  async appendKeyed(...keys: string[]): Promise<void> {
    let after = this.#model;
    for (const key of keys)
      after = after.withBatchAt(after.endOffset, {
        serial: this.#serial++,
        recordCount: 1,
        epoch: this.#leaderEpoch,
        key,
      });
    await this.#append(`appendKeyed(${keys.join()})`, after.batches.slice(-keys.length), after);
  }

  /** Appends a batch of a producer's transaction, which begins with it if none is open. */
  async appendInTransaction(producerId: number, recordCount: number): Promise<void> {
    const spec = { serial: this.#serial++, recordCount, epoch: this.#leaderEpoch, transactionOf: producerId };
    const after = this.#model.withBatchAt(this.#model.endOffset, spec);
    await this.#append(`appendInTransaction(${producerId})`, after.batches.slice(-1), after);
  }

  /** @param wallMs what the log's clock says, which the marker carries */
  protected async endTransactionAt(producerId: number, type: TransactionEnd, wallMs: number): Promise<void> {
    const after = this.#model.withMarker(type, producerId, this.#leaderEpoch, wallMs);
    const marker = { type, producerId, producerEpoch: 0, coordinatorEpoch: 0, transactionVersion: 0 } as const;
    await this.step(`${type}(${producerId})`, () => this.log.endTransaction(marker), {
      after,
      ...this.#alwaysFloor(after),
    });
  }

  /** One pass over the sealed segments, whose batches hold one record with a key each. */
  async compact(): Promise<void> {
    const borders = this.log.segments.map(({ baseOffset }) => baseOffset);
    const uncleanableOffset = borders.at(-1) ?? 0;
    const compacted = (swappedBelow: number): LogModel => this.#model.compacted(uncleanableOffset, swappedBelow);
    const after = compacted(uncleanableOffset);
    await this.step("compact", () => this.log.compact(), { after, between: borders.map(compacted) });
  }

  /** Appends the last batch once more, as a producer does that got no answer. */
  async appendAgain(): Promise<void> {
    await this.#append("appendAgain", this.#model.batches.slice(-1), this.#model);
  }

  async #append(name: string, batches: readonly ModelBatch[], after: LogModel): Promise<void> {
    const expected = batches.map(({ baseOffset }) => baseOffset);
    const call = async (): Promise<void> => {
      const results = await Promise.all(
        batches.map(({ bytes, isTransactional }) =>
          this.log.append(asSent(bytes), isTransactional ? IN_TRANSACTION : { origin: "local" }),
        ),
      );
      const given = results.map(({ baseOffset }) => baseOffset);
      if (given.join() !== expected.join()) throw new Error(`offsets ${given.join()} in place of ${expected.join()}`);
    };
    await this.step(name, call, { after, ...this.#alwaysFloor(after) });
  }

  /** Appends as follower, in one call, a batch of each epoch given. */
  async appendAsFollower(...epochs: number[]): Promise<void> {
    let after = this.#model;
    for (const epoch of epochs) after = after.withBatch(this.#serial++, 1, epoch);
    await this.#appendAsFollower(`appendAsFollower(${epochs.join()})`, epochs.length, after);
  }

  /** Appends as follower a batch that does not begin at the log end. */
  async appendAsFollowerAt(offset: number, epoch: number): Promise<void> {
    const after = this.#model.withBatchAt(offset, { serial: this.#serial++, recordCount: 1, epoch });
    await this.#appendAsFollower(`appendAsFollowerAt(${offset})`, 1, after);
  }

  async #appendAsFollower(name: string, batchCount: number, after: LogModel): Promise<void> {
    const bytes = concat(after.batches.slice(-batchCount).map((batch) => batch.bytes));
    await this.step(name, () => this.log.appendAsFollower(bytes), { after, ...this.#alwaysFloor(after) });
  }

  async truncateTo(offset: number): Promise<void> {
    const after = this.#model.truncatedTo(offset);
    const lowestEndOffset = after.batchesEndOffset;
    await this.step(`truncateTo(${offset})`, () => this.log.truncateTo(toOffset(offset)), { after, lowestEndOffset });
    await this.check();
  }

  async truncateFullyAndStartAt(offset: number): Promise<void> {
    const after = this.#model.emptiedAt(offset);
    await this.step(`truncateFullyAndStartAt(${offset})`, () => this.log.truncateFullyAndStartAt(toOffset(offset)), {
      after,
      lowestEndOffset: 0,
    });
    await this.check();
  }

  /** Deletes the records below an offset. What it passes is safe then: nothing of it comes back, and no offset is given again. */
  async deleteRecords(offset: number): Promise<void> {
    const after = this.#model.startingAt(offset);
    const floorOffset = Math.max(this.#floorOffset, offset);
    await this.step(`deleteRecords(${offset})`, () => this.log.deleteRecords(toOffset(offset)), { after, floorOffset });
  }

  /** Deletes segments by the limits of the script's configuration; the log begins at `startOffset` then. */
  async retain(startOffset: number): Promise<void> {
    const after = this.#model.startingAt(startOffset);
    const floorOffset = Math.max(this.#floorOffset, startOffset);
    await this.step("retain", () => this.log.deleteOldSegments(), { after, floorOffset });
    const { logStartOffset } = this.log;
    demand(logStartOffset === startOffset, "S6", () => `log start ${logStartOffset} in place of ${startOffset}`);
  }

  async roll(): Promise<void> {
    await this.step("roll", () => this.log.roll(), { after: this.#model });
  }

  async flush(): Promise<void> {
    const after = this.#model;
    await this.step("flush", () => this.log.flush(), { after, floorOffset: after.batchesEndOffset });
  }

  async close(): Promise<void> {
    const beganAt = this.disk.operationCount;
    if (!(await this.log.close())) throw new Error("the log did not close completely");
    this.noteClose(beganAt);
  }

  /** The log was closed, completely. */
  noteClose(beganAt: number): void {
    const after = this.#model;
    this.#log = undefined;
    const at = { beganAt, acknowledgedAt: this.disk.operationCount };
    this.#note("close", at, { after, floorOffset: after.batchesEndOffset, isCleanStop: true });
  }

  /** The process is gone; the next call has to be `noteOpen`. */
  noteKill(): void {
    this.#log = undefined;
  }

  inject(fault: DiskFault): void {
    this.disk.inject(fault);
  }

  /** An append that must be refused: nothing of it counts, and what of it may come back is `mayReturn`. */
  async failAppend(recordCount: number, options: { readonly mayReturn: boolean }): Promise<void> {
    const beganAt = this.disk.operationCount;
    const after = await this.#refused(recordCount);
    if (options.mayReturn) {
      // Neither in the log nor surely not: open until the next process has looked.
      this.#pendingReturn = { beganAt, after };
      return;
    }
    this.#note("refused append", { beganAt, acknowledgedAt: this.disk.operationCount }, { after: this.#model });
  }

  /** Appends in one group that must all be refused, and may come back. */
  async failAppends(...recordCounts: number[]): Promise<void> {
    const beganAt = this.disk.operationCount;
    this.#pendingReturn = { beganAt, after: await this.#refused(...recordCounts) };
  }

  /** @returns the log as it were had they been taken */
  async #refused(...recordCounts: number[]): Promise<LogModel> {
    let after = this.#model;
    for (const count of recordCounts) after = after.withBatch(this.#serial++, count, this.#leaderEpoch);
    const sent = after.batches.slice(-recordCounts.length).map(({ bytes }) => asSent(bytes));
    const answers = await Promise.allSettled(sent.map((batch) => this.log.append(batch, { origin: "local" })));
    for (const { status } of answers) {
      demand(status === "rejected", "S14", () => "an append was acknowledged that should have failed");
    }
    return after;
  }

  /** The log as it runs is the model. Where nothing is flushed beside the calls, which a look would let end. @throws Violation */
  async check(): Promise<void> {
    const found = await readLog(this.log, this.disk);
    checkObligation(found, { candidates: [this.#model], floorOffset: this.#model.batchesEndOffset });
    const show = ({ epochs }: LogModel): string =>
      epochs.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join();
    demand(show(found) === show(this.#model), "S9", () => `epochs ${show(found)} in place of ${show(this.#model)}`);
    demand(found.print === this.#model.print, "S8", () => `the log is ${found.print}, the model ${this.#model.print}`);
  }

  async step(name: string, call: () => Promise<unknown>, effect: StepEffect): Promise<void> {
    const beganAt = this.disk.operationCount;
    try {
      await call();
    } catch (error) {
      // Nobody was told that it is done: a part of it may be.
      const { after, between = [], lowestEndOffset = Number.POSITIVE_INFINITY } = effect;
      const inFlight = { after, between, lowestEndOffset, alternatives: [], floorOffset: 0, isCleanStop: false };
      this.#steps.push({ name, beganAt, acknowledgedAt: Number.POSITIVE_INFINITY, ...inFlight });
      throw error;
    }
    this.#note(name, { beganAt, acknowledgedAt: this.disk.operationCount }, effect);
  }

  #note(
    name: string,
    at: { readonly beganAt: number; readonly acknowledgedAt: number },
    { after, floorOffset, lowestEndOffset, isCleanStop, between }: StepEffect,
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
      between: between ?? [],
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
    demand(logEndOffset === endOffset, "S13", () => `opened with LEO ${logEndOffset} in place of ${endOffset}`);
    const epochs = this.#model.epochs.filter((entry) => epochEntries.some(({ epoch }) => epoch === entry.epoch));
    return new LogModel(startOffset, endOffset, batches, epochs);
  }
}

/** A batch of the log as its producer sent it: no base offset, no leader epoch. */
function asSent(batch: Uint8Array): Uint8Array {
  const sent = batch.slice();
  stampBatch(sent, 0, 0, -1);
  return sent;
}
