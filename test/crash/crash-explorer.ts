import type { FlushMode, LogConfig } from "@tidemark/log";
import { enumerateCrashImages, LOSS_RULES, SimulatedDisk } from "@tidemark/simulator";
import type { CrashPoint, DiskImage, EnumerationLimits, LossRule } from "@tidemark/simulator";
import { isStoppedAt, obligationAt } from "./history.ts";
import type { History, Obligation } from "./history.ts";
import { LogModel } from "./log-model.ts";
import { checkClosedFiles, checkEpochFile, checkObligation, readLog, Violation } from "./recovered-log.ts";
import { configOf, DIRECTORY, emptyDisk, ScriptRun } from "./script-run.ts";
import type { Script } from "./scripts.ts";

/** Borders of a batch: after the length, the epoch and the CRC. */
const BATCH_BORDERS = [12, 16, 21];

/** Sectors are smaller than a batch, so that each is cut. */
const LIMITS: EnumerationLimits = { sectorBytes: 24, tornCutsMax: 5, tornBorders: BATCH_BORDERS, seed: 1 };

/** Outcomes of one crash under one rule; more are sampled. Without syncs more is pending, and the same crash comes again and again. */
const OUTCOMES_MAX: Readonly<Record<FlushMode, number>> = { always: 512, none: 256 };

/** For the second crash, during recovery and the first append after it. */
const SECOND_LIMITS: EnumerationLimits = { ...LIMITS, outcomesMax: 24 };
const SECOND_RULES: readonly LossRule[] = ["ordered-prefix", "per-file-prefix", "any-subset", "size-before-data"];
/** One first crash in this many is followed by every second crash. There are fewer first ones where everything is synced. */
const SECOND_CRASH_ONE_IN: Readonly<Record<FlushMode, number>> = { always: 8, none: 16 };
/** Serial numbers of batches appended after a crash: none of the script's. */
const SERIAL_AFTER_CRASH = 1_000;

export type Cell = LossRule | "process";

export interface ScriptReport {
  readonly script: string;
  readonly flush: FlushMode;
  /** Distinct images that were opened, by loss rule; `process`: crashes of the process alone. */
  readonly distinct: ReadonlyMap<Cell, number>;
  /** Distinct images over all rules and both crashes. */
  readonly total: number;
  /** Distinct images after a second crash. */
  readonly afterSecondCrash: number;
  /** Opens of a log, each followed by appends and a close. */
  readonly opens: number;
  readonly crashPoints: number;
  readonly violations: readonly string[];
}

/** Plays a script once and opens the log after every crash that it could have had. */
export async function exploreScript(script: Script, flush: FlushMode): Promise<ScriptReport> {
  const config = configOf(flush, script.config ?? {});
  const run = new ScriptRun(await emptyDisk(), config, { candidates: [LogModel.empty()], floorOffset: 0 });
  await script.play(run);
  await finish(run);
  const explorer = new Explorer(config, run.history);
  await explorer.explore();
  return { script: script.name, flush, ...explorer.report() };
}

/** Without any crash the log holds just what the model holds, and closes with right files. */
async function finish(run: ScriptRun): Promise<void> {
  if (run.isOpen) {
    const found = await readLog(run.log, run.disk);
    checkObligation(found, { candidates: [run.model], floorOffset: run.model.batchesEndOffset });
    await run.close();
  }
  checkClosedFiles(run.disk, DIRECTORY, run.model);
}

/** How a disk came to be, for people. */
interface Crash {
  readonly history: History;
  readonly cell: Cell;
  readonly point: CrashPoint;
  readonly digest: string;
}

class Explorer {
  readonly #config: LogConfig;
  readonly #history: History;
  readonly #distinct = new Map<Cell, Set<string>>();
  readonly #all = new Set<string>();
  readonly #second = new Set<string>();
  /** What a log holds that opens on an image, by digest and by whether it was told of a clean stop. */
  readonly #known = new Map<string, LogModel>();
  readonly #violations: string[] = [];
  #crashPoints = 0;
  #firstCrashes = 0;
  #opens = 0;

  constructor(config: LogConfig, history: History) {
    this.#config = config;
    this.#history = history;
  }

  async explore(): Promise<void> {
    for (const disk of this.#history.disks) {
      for (const point of disk.crashPoints()) {
        this.#crashPoints++;
        await this.#crashProcess(point);
        const limits = { ...LIMITS, outcomesMax: OUTCOMES_MAX[this.#config.flush] };
        for (const rule of LOSS_RULES) {
          for (const image of enumerateCrashImages(point, rule, limits)) await this.#crashMachine(point, rule, image);
        }
      }
    }
  }

  report(): Omit<ScriptReport, "script" | "flush"> {
    const distinct = new Map([...this.#distinct].map(([cell, digests]) => [cell, digests.size] as const));
    return {
      distinct,
      total: new Set([...this.#all, ...this.#second]).size,
      afterSecondCrash: this.#second.size,
      opens: this.#opens,
      crashPoints: this.#crashPoints,
      violations: this.#violations,
    };
  }

  async #crashProcess(point: CrashPoint): Promise<void> {
    const obligation = obligationAt(this.#history, point.number, "process");
    const afterwards = obligationAt(this.#history, point.number, "machine");
    const disk = SimulatedDisk.afterProcessCrash(point);
    const digest = disk.image().digest;
    this.#count("process", `${digest}/${point.number}`);
    // What this process tells is only in the page cache unless it makes it safe: so every second crash follows.
    await this.#watch({ history: this.#history, cell: "process", point, digest }, async () => {
      const { history } = await this.#use(disk, obligation, { afterwards });
      await this.#crashAgain(history, `process crash ${point.number}`);
    });
  }

  async #crashMachine(point: CrashPoint, rule: LossRule, image: DiskImage): Promise<void> {
    const { digest } = image;
    this.#count(rule, digest);
    this.#all.add(digest);
    const obligation = obligationAt(this.#history, point.number, "machine");
    // The marker of a clean stop may or may not have reached the disk.
    const stops = isStoppedAt(this.#history, point.number) ? [false, true] : [false];
    for (const wasClean of stops) {
      await this.#watch({ history: this.#history, cell: rule, point, digest }, async () => {
        checkEpochFile(image.files(), DIRECTORY);
        const history = await this.#openImage(image, obligation, { wasClean, isFollowed: true });
        if (history === undefined || this.#firstCrashes++ % SECOND_CRASH_ONE_IN[this.#config.flush] !== 0) return;
        await this.#crashAgain(history, `${rule} crash ${point.number}, image ${digest}`);
      });
    }
  }

  /** Crashes at every point of a recovery and of the first append after it. */
  async #crashAgain(history: History, first: string): Promise<void> {
    const seen = new Set<string>();
    for (const disk of history.disks) {
      for (const point of disk.crashPoints()) {
        const obligation = obligationAt(history, point.number, "machine");
        for (const rule of SECOND_RULES) {
          for (const image of enumerateCrashImages(point, rule, SECOND_LIMITS)) {
            const key = `${image.digest}/${obligation.floorOffset}/${obligation.candidates.length}`;
            if (seen.has(key)) continue;
            seen.add(key);
            this.#second.add(image.digest);
            await this.#watch({ history, cell: rule, point, digest: `${image.digest}, after ${first}` }, async () => {
              await this.#openImage(image, obligation, { wasClean: false, isFollowed: false });
            });
          }
        }
      }
    }
  }

  /**
   * Opens the log on an image and checks it, for an image that was opened before by what it held then.
   * @returns the history of the open and the appends after it, or `undefined` for a known image
   */
  async #openImage(
    image: DiskImage,
    obligation: Obligation,
    { wasClean, isFollowed }: { readonly wasClean: boolean; readonly isFollowed: boolean },
  ): Promise<History | undefined> {
    const key = `${image.digest}/${wasClean}`;
    const known = this.#known.get(key);
    if (known !== undefined) {
      checkObligation(known, obligation);
      return undefined;
    }
    const disk = SimulatedDisk.fromImage(image, { keepsHistory: isFollowed });
    const { found, history } = await this.#use(disk, obligation, { wasClean });
    this.#known.set(key, found);
    return history;
  }

  /**
   * Opens, checks, leads, appends, closes, checks the files.
   * @throws Violation, or whatever the log throws
   */
  async #use(
    disk: SimulatedDisk,
    obligation: Obligation,
    { wasClean = false, afterwards = obligation }: { readonly wasClean?: boolean; readonly afterwards?: Obligation },
  ): Promise<{ readonly found: LogModel; readonly history: History }> {
    this.#opens++;
    const run = new ScriptRun(disk, this.#config, afterwards, SERIAL_AFTER_CRASH);
    await run.open({ clean: wasClean, learn: (log) => readLog(log, disk) });
    const found = run.model;
    checkObligation(found, obligation);
    // As a controller does it: above every epoch that ever was, also in what the crash took.
    const epochs = [found, ...obligation.candidates, ...afterwards.candidates].map((model) => model.latestEpoch);
    await run.becomeLeader(Math.max(...epochs) + 1);
    await run.append(2, 1);
    const { log, model } = run;
    if (log.logEndOffset !== model.endOffset) throw new Violation(`LEO ${log.logEndOffset} after the append`);
    await run.close();
    checkClosedFiles(disk, DIRECTORY, model);
    return { found, history: run.history };
  }

  /** Runs a check and turns what it throws into a line that names the crash. */
  async #watch(crash: Crash, check: () => Promise<void>): Promise<void> {
    try {
      await check();
    } catch (error) {
      const { history, cell, point, digest } = crash;
      const last = point.last === undefined ? "nothing" : `${point.last.type} ${point.last.path}`;
      const step = history.steps.findLast(({ beganAt }) => beganAt < point.number)?.name ?? "nothing";
      const text = error instanceof Violation ? error.message : String(error);
      this.#violations.push(`${cell} crash ${point.number} after ${last}, in ${step}, image ${digest}: ${text}`);
    }
  }

  #count(cell: Cell, key: string): void {
    let digests = this.#distinct.get(cell);
    if (digests === undefined) this.#distinct.set(cell, (digests = new Set()));
    digests.add(key);
  }
}
