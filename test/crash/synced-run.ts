import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { LogError } from "@tidemark/log";
import type { FlushMode, PartitionLog } from "@tidemark/log";
import { enumerateCrashImages, SimulatedDisk } from "@tidemark/simulator";
import type { LossRule } from "@tidemark/simulator";
import { obligationAt } from "./history.ts";
import { batchOf, LogModel } from "./log-model.ts";
import { LogSubject } from "./log-subject.ts";
import { configOf } from "./partition-run.ts";
import type { StepEffect } from "./partition-run.ts";
import { checkObligation, demand } from "./recovered-log.ts";
import { emptyDisk, ScriptRun } from "./script-run.ts";
import type { Script } from "./scripts.ts";
import type { SyncWatch } from "./sync-sites.ts";

/** What the machine may lose when it stops behind the failure, and how many outcomes are opened. */
const LOSSES: readonly LossRule[] = ["ordered-prefix", "any-subset"];
const OUTCOMES_MAX = 2;

/** Serial of the batch that nobody takes any more. */
const SERIAL_REFUSED = 900;

/** How whoever waited for a sync heard that it had failed. */
export type Told = "an open" | "a call" | "the next call" | "the close";

/** A history in which each sync is made to fail. */
export interface SyncJob {
  readonly name: string;
  /**
   * @returns how whoever waited heard of the failure; `undefined` when the watch let none fail
   * @throws when something is acknowledged behind it, the sync is repeated, or a restart does not find what was acknowledged before
   */
  play(watch: SyncWatch): Promise<Told | undefined>;
}

/** The script goes no further than the failed sync. */
class Struck extends Error {}

/** A script's log whose syncs are watched. Once one has failed, nothing may be acknowledged any more. */
class SyncedRun extends ScriptRun {
  readonly #watch: SyncWatch;
  readonly #flush: FlushMode;

  constructor(disk: SimulatedDisk, script: Script, flush: FlushMode, watch: SyncWatch) {
    super(disk, configOf(flush, script.config ?? {}), { candidates: [LogModel.empty()], floorOffset: 0 });
    this.#watch = watch;
    this.#flush = flush;
    watch.attach(disk);
  }

  override async open(options: Parameters<ScriptRun["open"]>[0] = {}): Promise<void> {
    this.#stopIfStruck();
    await super.open(options);
    this.#refuseStruck("open");
  }

  override async close(): Promise<void> {
    this.#stopIfStruck();
    await super.close();
    this.#refuseStruck("close");
  }

  override killProcess(): void {
    this.#stopIfStruck();
    super.killProcess();
    this.#watch.attach(this.disk);
  }

  override async step(name: string, call: () => Promise<unknown>, effect: StepEffect): Promise<void> {
    this.#stopIfStruck();
    await super.step(name, call, effect);
    // Without `always` an append waits for no sync: one beside it may fail at the same time.
    if (this.#flush === "always" || !/append|roll|transaction|commit|abort/iu.test(name)) this.#refuseStruck(name);
  }

  #stopIfStruck(): void {
    if (this.#watch.struck !== undefined) throw new Struck();
  }

  #refuseStruck(name: string): void {
    const { struck } = this.#watch;
    demand(struck === undefined, "S14", () => `${name} is answered although a sync of ${struck?.path} has failed`);
  }
}

/**
 * Plays a script with one sync that fails, asks what is left of the log for all that it could acknowledge, and starts the machine again.
 * @returns how the failure was told; `undefined` when there was none
 * @throws Violation when something is acknowledged afterwards, the sync is tried again, or a restart does not find what was acknowledged before
 */
export async function playSynced(script: Script, flush: FlushMode, watch: SyncWatch): Promise<Told | undefined> {
  const run = new SyncedRun(await emptyDisk(), script, flush, watch);
  let failure: unknown;
  try {
    await script.play(run);
    if (run.isOpen) await run.close();
  } catch (error) {
    failure = error;
  }
  if (watch.struck === undefined) {
    if (failure !== undefined) throw failure;
    return undefined;
  }
  await settled();
  const told = await checkTold(run, failure);
  checkNotRepeated(watch);
  await checkRestarts(run, script, flush);
  return told;
}

async function settled(): Promise<void> {
  await new Promise(setImmediate);
}

async function checkTold(run: SyncedRun, failure: unknown): Promise<Told> {
  const isClose = failure instanceof Error && failure.message.includes("did not close completely");
  if (!(failure instanceof Struck) && !isClose && failure !== undefined) checkFailure(failure, "the call that waited");
  if (isClose) return "the close";
  if (!run.isOpen) return "an open";
  await checkRefuses(run.log);
  return failure instanceof Struck || failure === undefined ? "the next call" : "a call";
}

/** @throws what is not the typed error of a failed sync */
export function checkFailure(error: unknown, what: string): void {
  if (!(error instanceof LogError)) throw error;
  const { type } = error;
  const isTyped = type.code === "KAFKA_STORAGE_ERROR" && type.failure === "SYNC_FAILED";
  demand(isTyped, "S14", () => `${what} hears of ${error.message} in place of a failed sync`);
}

/** Of a log that is open behind a failed sync: whatever it is asked to acknowledge, it refuses. */
export async function checkRefuses(log: PartitionLog): Promise<void> {
  const { logEndOffset, flushedEndOffset, recoveryPoint } = log;
  const batch = batchOf(SERIAL_REFUSED, 1);
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    append: () => log.append(batch, { origin: "local" }),
    appendAsFollower: () => log.appendAsFollower(batch),
    flush: () => log.flush(),
    roll: () => log.roll(),
    truncateTo: () => log.truncateTo(toOffset(0)),
    truncateFullyAndStartAt: () => log.truncateFullyAndStartAt(toOffset(1000)),
    deleteRecords: () => log.deleteRecords(log.logEndOffset),
    deleteOldSegments: () => log.deleteOldSegments(),
    compact: () => log.compact(),
    becomeLeader: () => log.becomeLeader(toLeaderEpoch(1000)),
  };
  for (const [name, call] of Object.entries(calls)) {
    const [outcome] = await Promise.allSettled([call()]);
    demand(outcome.status === "rejected", "S14", () => `${name} is answered behind a failed sync`);
    checkFailure(outcome.reason, name);
  }
  const before = [logEndOffset, flushedEndOffset, recoveryPoint];
  const after = [log.logEndOffset, log.flushedEndOffset, log.recoveryPoint];
  demand(before.join() === after.join(), "S14", () => `a log at ${before.join()} goes on to ${after.join()}`);
  demand(!(await log.close()), "S14", () => "the log says that it closed completely behind a failed sync");
}

/** Behind the failure the same file or directory is not synced again: the pages may be clean and gone. */
export function checkNotRepeated(watch: SyncWatch): void {
  const { struck, calls } = watch;
  // The state is a database, which rolls back what it could not commit.
  if (struck === undefined || struck.path === "state") return;
  const again = calls
    .slice(calls.indexOf(struck) + 1)
    .find(({ operation, path }) => operation === struck.operation && path === struck.path);
  demand(again === undefined, "S14", () => `${struck.path} is synced again`);
}

/** The process or the machine stops behind the failure: the next start finds what was acknowledged before, and goes on. */
async function checkRestarts(run: SyncedRun, script: Script, flush: FlushMode): Promise<void> {
  const subject = new LogSubject(run, configOf(flush, script.config ?? {}), false);
  const point = run.disk.crashPoint();
  // Also of the process alone: what failed to be synced may be gone while it runs.
  const obligation = obligationAt(run.history, point.number, "machine");
  const disks = [SimulatedDisk.afterProcessCrash(point)];
  for (const rule of LOSSES)
    for (const image of enumerateCrashImages(point, rule, { outcomesMax: OUTCOMES_MAX, seed: 1 }))
      disks.push(SimulatedDisk.fromImage(image));
  for (const disk of disks) {
    const opened = await subject.open(disk, [obligation], { wasClean: false });
    for (const found of opened.found) checkObligation(found, obligation);
    await opened.goOn();
  }
}
