import { enumerateCrashImages, LOSS_RULES, SimulatedDisk } from "@tidemark/simulator";
import type { CrashPoint, DiskImage, EnumerationLimits, LossRule } from "@tidemark/simulator";
import type { FlushMode } from "@tidemark/log";
import { obligationAt, printOf } from "./history.ts";
import type { History, Obligation } from "./history.ts";
import type { LogModel } from "./log-model.ts";
import { checkObligation, Violation } from "./recovered-log.ts";
import { printOfPoint } from "./point-print.ts";

/** Borders of a batch: after the length, the epoch and the CRC. */
const BATCH_BORDERS = [12, 16, 21];

/** Sectors are smaller than a batch, so that each is cut. */
const LIMITS: EnumerationLimits = { sectorBytes: 24, tornCutsMax: 5, tornBorders: BATCH_BORDERS, seed: 1 };

/** Writes up to this size are torn at every byte. */
const EVERY_BYTE_MAX = 4_096 + 512;
const EVERY_BYTE_LIMITS: EnumerationLimits = {
  tornCutsMax: EVERY_BYTE_MAX,
  tornVariants: "short",
  outcomesMax: EVERY_BYTE_MAX,
  seed: 1,
};

/** How much of what follows from a script is looked at. */
export interface Effort {
  /** Outcomes of one first crash under one rule; more are sampled. Without syncs more is pending, and the same crash comes again and again. */
  readonly outcomesMax: Readonly<Record<FlushMode, number>>;
  /** One first crash in this many is followed by every second one. There are fewer first ones where everything is synced. */
  readonly secondCrashOneIn: Readonly<Record<FlushMode, number>>;
  /** The same for first crashes of the process alone, each of which leaves much to be lost by the next one. */
  readonly secondCrashAfterKillOneIn: number;
  /** Outcomes of one second crash under one rule. */
  readonly secondOutcomesMax: number;
  /** The same for torn writes, which are many and much alike. */
  readonly secondTornMax: number;
  /** Whether the first crash tears each write at every byte, or only those of scripts that ask for it. */
  readonly tearsEveryByte: boolean;
  /** Whether to end with the first violation. */
  readonly stopsAtViolation: boolean;
}

/** Which crash it was: the first, one after the log was open again, or one while it opened. */
export const CRASHES = ["first", "second", "in recovery"] as const;
export type CrashKind = (typeof CRASHES)[number];

/** How much a crash loses; `process`: nothing that was written. */
export const LOSSES = [...LOSS_RULES, "process"] as const;
export type Loss = (typeof LOSSES)[number];

/** What is crashed and opened again: one log, or a whole directory of them. */
export interface Subject {
  readonly flush: FlushMode;
  /** Of each partition, over the same disks. */
  readonly histories: readonly History[];
  readonly tearsEveryByte: boolean;
  /** Whether the next open may be told of a clean stop: then both are tried. */
  canBeClean(operationNumber: number): boolean;
  /** What else than the obligations a crash after so many operations depends on. */
  phaseAt(operationNumber: number): string;
  /** @throws Violation when a crash after so many operations cannot leave such an image */
  checkImage(image: DiskImage, operationNumber: number): void;
  /**
   * Opens what is on a disk and gives what it holds, checked in itself, and the way on: leads, appends, closes, checks the files.
   * @throws Violation, or whatever the log throws
   */
  open(disk: SimulatedDisk, obligations: readonly Obligation[], options: OpenOptions): Promise<Opened>;
}

interface OpenOptions {
  readonly wasClean: boolean;
  /** What holds after the open, if that is not what held before. */
  readonly afterwards?: readonly Obligation[];
}

export interface Opened {
  readonly found: readonly LogModel[];
  /** @returns how the open and the appends went */
  goOn(): Promise<Subject>;
}

export interface ScriptReport {
  readonly script: string;
  readonly flush: FlushMode;
  /** Distinct images that were opened, by crash and loss. */
  readonly distinct: ReadonlyMap<CrashKind, ReadonlyMap<Loss, number>>;
  /** Distinct images over all rules and crashes of the machine. */
  readonly total: number;
  /** Of these, images that nothing but torn writes gave. */
  readonly torn: number;
  readonly opens: number;
  readonly crashPoints: number;
  readonly violations: readonly string[];
}

interface Reached {
  readonly crash: CrashKind;
  readonly loss: Loss;
}

/** Opens what a script's log or directory is after every crash that it could have had. */
export class Explorer {
  readonly #subject: Subject;
  readonly #effort: Effort;
  readonly #distinct = new Map<CrashKind, Map<Loss, Set<string>>>(
    CRASHES.map((crash) => [crash, new Map(LOSSES.map((loss) => [loss, new Set<string>()]))]),
  );
  readonly #all = new Set<string>();
  readonly #notOnlyTorn = new Set<string>();
  /** What an image holds, by digest and by whether the open was told of a clean stop. */
  readonly #known = new Map<string, readonly LogModel[]>();
  /** Images with what was demanded of them, and crash points with it. */
  readonly #checked = new Set<string>();
  readonly #violations: string[] = [];
  #crashPoints = 0;
  #firstCrashes = 0;
  #opens = 0;

  constructor(subject: Subject, effort: Effort) {
    this.#subject = subject;
    this.#effort = effort;
  }

  async explore(): Promise<Omit<ScriptReport, "script">> {
    const subject = this.#subject;
    const everyByte = this.#effort.tearsEveryByte || subject.tearsEveryByte;
    const outcomesMax = this.#effort.outcomesMax[subject.flush];
    for (const point of crashPointsOf(subject)) {
      if (this.#effort.stopsAtViolation && this.#violations.length > 0) break;
      this.#crashPoints++;
      await this.#crashProcess(point);
      for (const rule of LOSS_RULES) await this.#crashMachine(point, rule, { ...LIMITS, outcomesMax });
      if (everyByte) await this.#crashMachine(point, "torn-write", EVERY_BYTE_LIMITS);
    }
    return {
      flush: subject.flush,
      distinct: new Map(
        [...this.#distinct].map(
          ([crash, losses]) => [crash, new Map([...losses].map(([loss, digests]) => [loss, digests.size]))] as const,
        ),
      ),
      total: this.#all.size,
      torn: this.#all.size - this.#notOnlyTorn.size,
      opens: this.#opens,
      crashPoints: this.#crashPoints,
      violations: this.#violations,
    };
  }

  async #crashProcess(point: CrashPoint): Promise<void> {
    const obligations = obligationsAt(this.#subject, point.number, "process");
    const afterwards = obligationsAt(this.#subject, point.number, "machine");
    const disk = SimulatedDisk.afterProcessCrash(point);
    this.#count({ crash: "first", loss: "process" }, `${disk.image().digest}/${point.number}`);
    // What this process tells is only in the page cache unless it makes it safe.
    await this.#watch(this.#subject, point, "process crash", async () => {
      this.#opens++;
      const opened = await this.#subject.open(disk, obligations, { wasClean: false, afterwards });
      checkObligations(opened.found, obligations);
      const next = await opened.goOn();
      if (point.number % this.#effort.secondCrashAfterKillOneIn !== 0) return;
      await this.#crashAgain(next, `process crash ${point.number}`, { kills: true });
    });
  }

  async #crashMachine(point: CrashPoint, rule: LossRule, limits: EnumerationLimits): Promise<void> {
    const subject = this.#subject;
    const obligations = obligationsAt(subject, point.number, "machine");
    const print = printOf(obligations) + subject.phaseAt(point.number);
    // The marker of a clean stop may or may not have reached the disk.
    const stops = subject.canBeClean(point.number) ? [false, true] : [false];
    for (const image of enumerateCrashImages(point, rule, limits)) {
      this.#countImage({ crash: "first", loss: rule }, image.digest);
      for (const wasClean of stops) {
        if (this.#isChecked(`${image.digest}/${wasClean}/${print}`)) continue;
        await this.#watch(subject, point, `${rule} crash, image ${image.digest}`, async () => {
          subject.checkImage(image, point.number);
          const opened = await this.#openImage(subject, image, obligations, wasClean);
          if (opened === undefined) return;
          const isFollowed = this.#firstCrashes++ % this.#effort.secondCrashOneIn[subject.flush] === 0;
          // Opens of many images leave the same files: how it goes on from there is looked at once.
          const isKnown = this.#isChecked(`went on/${opened.digest}/${printOfFound(opened.found)}`);
          if (isKnown && !isFollowed) return;
          const next = await opened.goOn();
          if (!isFollowed) return;
          await this.#crashAgain(next, `${rule} crash ${point.number}, image ${image.digest}`, { kills: false });
        });
      }
    }
  }

  /** Crashes at every point of a recovery and of the appends after it. */
  async #crashAgain(subject: Subject, first: string, { kills }: { readonly kills: boolean }): Promise<void> {
    const openedAt = Math.max(...subject.histories.map(({ steps }) => steps[0]?.acknowledgedAt ?? 0));
    for (const point of crashPointsOf(subject)) {
      const obligations = obligationsAt(subject, point.number, "machine");
      const print = printOf(obligations) + subject.phaseAt(point.number);
      const crash = point.number < openedAt ? "in recovery" : "second";
      if (kills) await this.#killAgain(subject, point, first);
      // Recoveries of different images soon look the same: what can be lost there was tried then.
      if (this.#isChecked(`${printOfPoint(point)}/${crash}/${print}`)) continue;
      for (const rule of LOSS_RULES) {
        const { secondOutcomesMax, secondTornMax } = this.#effort;
        const outcomesMax = rule === "torn-write" ? secondTornMax : secondOutcomesMax;
        for (const image of enumerateCrashImages(point, rule, { ...LIMITS, outcomesMax })) {
          this.#countImage({ crash, loss: rule }, image.digest);
          if (this.#isChecked(`${image.digest}/false/${print}`)) continue;
          await this.#watch(subject, point, `${rule} crash, image ${image.digest}, after ${first}`, async () => {
            subject.checkImage(image, point.number);
            await this.#openImage(subject, image, obligations, false);
          });
        }
      }
    }
  }

  async #killAgain(subject: Subject, point: CrashPoint, first: string): Promise<void> {
    const obligations = obligationsAt(subject, point.number, "process");
    const openedAt = Math.max(...subject.histories.map(({ steps }) => steps[0]?.acknowledgedAt ?? 0));
    const disk = SimulatedDisk.afterProcessCrash(point, { keepsHistory: false });
    const { digest } = disk.image();
    this.#count({ crash: point.number < openedAt ? "in recovery" : "second", loss: "process" }, digest);
    if (this.#isChecked(`${digest}/process/${printOf(obligations)}`)) return;
    await this.#watch(subject, point, `process crash after ${first}`, async () => {
      this.#opens++;
      const { found } = await subject.open(disk, obligations, { wasClean: false });
      checkObligations(found, obligations);
    });
  }

  /**
   * Opens an image and checks what it holds; one that was opened before by what it held then.
   * @returns nothing for a known image
   */
  async #openImage(
    subject: Subject,
    image: DiskImage,
    obligations: readonly Obligation[],
    wasClean: boolean,
  ): Promise<(Opened & { readonly digest: string }) | undefined> {
    const key = `${image.digest}/${wasClean}`;
    const known = this.#known.get(key);
    if (known !== undefined) {
      checkObligations(known, obligations);
      return undefined;
    }
    this.#opens++;
    const disk = SimulatedDisk.fromImage(image);
    const opened = await subject.open(disk, obligations, { wasClean });
    this.#known.set(key, opened.found);
    checkObligations(opened.found, obligations);
    return { ...opened, digest: disk.image().digest };
  }

  /** Runs a check and turns what it throws into a line that names the crash. */
  async #watch(subject: Subject, point: CrashPoint, crash: string, check: () => Promise<void>): Promise<void> {
    try {
      await check();
    } catch (error) {
      const last = point.last === undefined ? "nothing" : `${point.last.type} ${point.last.path}`;
      const steps = subject.histories.flatMap((history) => history.steps);
      const step = steps.findLast(({ beganAt }) => beganAt < point.number)?.name ?? "nothing";
      const text = error instanceof Violation ? error.message : String(error);
      this.#violations.push(`${text} (operation ${point.number}, after ${last}, in ${step}: ${crash})`);
    }
  }

  #countImage(reached: Reached, digest: string): void {
    this.#count(reached, digest);
    this.#all.add(digest);
    if (reached.loss !== "torn-write") this.#notOnlyTorn.add(digest);
  }

  #count({ crash, loss }: Reached, key: string): void {
    this.#distinct.get(crash)?.get(loss)?.add(key);
  }

  /** Whether it was before, and from now on. */
  #isChecked(key: string): boolean {
    const { size } = this.#checked;
    return this.#checked.add(key).size === size;
  }
}

function* crashPointsOf(subject: Subject): Generator<CrashPoint, void, undefined> {
  for (const disk of subject.histories[0]?.disks ?? []) yield* disk.crashPoints();
}

function obligationsAt(subject: Subject, number: number, crash: "machine" | "process"): readonly Obligation[] {
  return subject.histories.map((history) => obligationAt(history, number, crash));
}

function printOfFound(found: readonly LogModel[]): string {
  return found.map(({ print }) => print).join("|");
}

function checkObligations(found: readonly LogModel[], obligations: readonly Obligation[]): void {
  for (const [at, obligation] of obligations.entries()) {
    const log = found[at];
    if (log === undefined) throw new Violation(`S13: partition ${at} is gone`);
    checkObligation(log, obligation);
  }
}
