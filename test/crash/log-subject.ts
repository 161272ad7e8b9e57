import type { FlushMode, LogConfig } from "@tidemark/log";
import type { DiskImage, SimulatedDisk } from "@tidemark/simulator";
import { Explorer } from "./crash-explorer.ts";
import type { Effort, Opened, ScriptReport, Subject } from "./crash-explorer.ts";
import { isStoppedAt } from "./history.ts";
import type { History, Obligation } from "./history.ts";
import { LogModel } from "./log-model.ts";
import { configOf } from "./partition-run.ts";
import type { PartitionRun } from "./partition-run.ts";
import { checkClosedFiles, checkEpochFile, demand, readOpenedLog } from "./recovered-log.ts";
import { DIRECTORY, emptyDisk, ScriptRun } from "./script-run.ts";
import type { Script } from "./scripts.ts";

/** Serial numbers of batches appended after a crash: none of the script's. */
const SERIAL_AFTER_CRASH = 1_000;

/** Plays a script once and opens the log after every crash that it could have had. */
export async function exploreScript(script: Script, flush: FlushMode, effort: Effort): Promise<ScriptReport> {
  const config = configOf(flush, script.config ?? {});
  const run = new ScriptRun(await emptyDisk(), config, { candidates: [LogModel.empty()], floorOffset: 0 });
  await script.play(run);
  await finish(run);
  const subject = new LogSubject(run, config, script.tearsEveryByte ?? false);
  return { script: script.name, ...(await new Explorer(subject, effort).explore()) };
}

/** Without any crash the log holds just what the model holds, and closes with right files. */
async function finish(run: ScriptRun): Promise<void> {
  if (run.isOpen) {
    await run.check();
    await run.close();
  }
  checkClosedFiles(run.disk, DIRECTORY, run.model);
}

/** One partition log on a machine of its own. */
export class LogSubject implements Subject {
  readonly histories: readonly [History];
  readonly tearsEveryByte: boolean;
  readonly #config: LogConfig;

  constructor(run: ScriptRun, config: LogConfig, tearsEveryByte: boolean) {
    this.histories = [run.history];
    this.tearsEveryByte = tearsEveryByte;
    this.#config = config;
  }

  get flush(): FlushMode {
    return this.#config.flush;
  }

  canBeClean(operationNumber: number): boolean {
    return isStoppedAt(this.histories[0], operationNumber);
  }

  phaseAt(): string {
    return "";
  }

  checkImage(image: DiskImage): void {
    checkEpochFile(image.files(), DIRECTORY);
  }

  async open(
    disk: SimulatedDisk,
    obligations: readonly Obligation[],
    { wasClean, afterwards = obligations }: { readonly wasClean: boolean; readonly afterwards?: readonly Obligation[] },
  ): Promise<Opened> {
    const [obligation] = afterwards;
    if (obligation === undefined) throw new Error("a log has an obligation");
    const run = new ScriptRun(disk, this.#config, obligation, SERIAL_AFTER_CRASH);
    await run.open({ clean: wasClean, learn: (log) => readOpenedLog(log, disk) });
    const goOn = async (): Promise<Subject> => {
      await appendAfterCrash(run, [...obligations, ...afterwards]);
      await run.close();
      checkClosedFiles(disk, DIRECTORY, run.model);
      return new LogSubject(run, this.#config, false);
    };
    return { found: [run.model], goOn };
  }
}

/** Leads in an epoch above every one that ever was, also in what the crash took, as a controller does it; and appends. */
export async function appendAfterCrash(run: PartitionRun, obligations: readonly Obligation[]): Promise<void> {
  const candidates = obligations.flatMap((obligation) => obligation.candidates);
  await run.becomeLeader(Math.max(...[run.model, ...candidates].map((model) => model.latestEpoch)) + 1);
  await run.append(2, 1);
  const { logEndOffset } = run.log;
  demand(logEndOffset === run.model.endOffset, "S13", () => `LEO ${logEndOffset} after the append`);
}
