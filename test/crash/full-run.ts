import { fork } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import type { FlushMode } from "@tidemark/log";
import type { ScriptReport } from "./crash-explorer.ts";
import { crashJobs, DEFAULT_EFFORT, FULL_EFFORT } from "./crash-suite.ts";

const EXPLORER = fileURLToPath(new URL("explore-jobs.ts", import.meta.url));

/** MiB: an open makes many objects that live for as long as it takes, and no longer. */
const YOUNG_SPACE = "--max-semi-space-size=64";

/** One script in one flush mode, by name. */
export interface JobName {
  readonly flush: FlushMode;
  readonly script: string;
  readonly effort: "full" | "default";
}

/** What a process says of a job. */
export interface JobResult {
  readonly name: JobName;
  readonly report: ScriptReport;
  readonly cpuMs: number;
}

/** Explores one job in this process. @throws Error for a script that does not exist */
export async function exploreJob(name: JobName): Promise<JobResult> {
  const job = crashJobs(name.flush).find(({ script }) => script === name.script);
  if (job === undefined) throw new Error(`there is no script "${name.script}" with flush ${name.flush}`);
  const before = process.cpuUsage();
  const report = await job.explore(name.effort === "full" ? FULL_EFFORT : DEFAULT_EFFORT);
  const { user, system } = process.cpuUsage(before);
  return { name, report, cpuMs: (user + system) / 1000 };
}

/**
 * Explores the jobs in as many processes as there are cores, each of which takes the next one when it has done with one.
 * @returns in the order of the jobs
 * @throws Error when a process dies
 */
export async function exploreInProcesses(jobs: readonly JobName[]): Promise<readonly JobResult[]> {
  const results: (JobResult | undefined)[] = jobs.map(() => undefined);
  let next = 0;
  const work = async (): Promise<void> => {
    const child = fork(EXPLORER, { execArgv: [...process.execArgv, YOUNG_SPACE], serialization: "advanced" });
    try {
      for (let at = next++; at < jobs.length; at = next++) results[at] = await ask(child, jobs[at]);
    } finally {
      child.kill();
    }
  };
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), jobs.length) }, work));
  return results.filter((result) => result !== undefined);
}

function ask(child: ChildProcess, name: JobName | undefined): Promise<JobResult> {
  return new Promise((resolve, reject) => {
    const died = (): void => reject(new Error(`the process that explored ${JSON.stringify(name)} has died`));
    child.once("exit", died);
    child.once("message", (result) => {
      child.off("exit", died);
      resolve(result as JobResult);
    });
    child.send(name ?? {});
  });
}
