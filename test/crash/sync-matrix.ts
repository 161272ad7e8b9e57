import { SCRIPTS } from "./scripts.ts";
import { DIRECTORY_SCENARIOS, playDirectory } from "./synced-directory.ts";
import { CONTROLLER_JOB, EMBEDDED_JOB, opensAfterCrashes } from "./synced-others.ts";
import { playSynced } from "./synced-run.ts";
import type { SyncJob, Told } from "./synced-run.ts";
import { kindOf, SyncWatch } from "./sync-sites.ts";
import type { SyncCall } from "./sync-sites.ts";

export async function syncJobs(): Promise<readonly SyncJob[]> {
  const logs = (["always", "none"] as const).flatMap((flush) =>
    // Some scripts have a failed sync of their own, behind which appends may return.
    SCRIPTS.filter(
      (script) => (script.flush === undefined || script.flush === flush) && !script.name.startsWith("failed sync"),
    ).map((script) => ({
      name: `${script.name}, flush ${flush}`,
      play: (watch: SyncWatch) => playSynced(script, flush, watch),
    })),
  );
  const directories = DIRECTORY_SCENARIOS.map((scenario) => ({
    name: scenario.name,
    play: (watch: SyncWatch) => playDirectory(scenario, watch),
  }));
  return [...logs, ...(await opensAfterCrashes()), ...directories, CONTROLLER_JOB, EMBEDDED_JOB];
}

/** What came of one place, by what is synced there. */
export interface Row {
  readonly place: string;
  readonly kind: string;
  readonly told: Map<Told, number>;
}

export interface Matrix {
  /** Of every place in the stacks of the syncs that failed. */
  readonly rows: readonly Row[];
  readonly failures: number;
  readonly problems: readonly string[];
}

/**
 * Plays every job once, and then once for each of its syncs, which fails.
 * @param sameMax of syncs that come from the same places so many fail
 */
export async function failEverySync(jobs: readonly SyncJob[], sameMax: number): Promise<Matrix> {
  const rows = new Map<string, Row>();
  const seen = new Map<string, number>();
  const problems: string[] = [];
  let failures = 0;
  for (const job of jobs) {
    const all = new SyncWatch(undefined);
    await job.play(all);
    for (const [at, call] of all.calls.entries()) {
      // Of what is played between two processes some is another program's.
      if (call.places.length === 0) continue;
      const key = `${kindOf(call)} ${call.places.join()}`;
      const count = seen.get(key) ?? 0;
      if (count >= sameMax) continue;
      seen.set(key, count + 1);
      failures += 1;
      try {
        const told = await job.play(new SyncWatch(at));
        if (told === undefined) throw new Error("it did not come to that sync again");
        note(rows, call, told);
      } catch (error) {
        const text = error instanceof Error ? error.message : String(error);
        problems.push(`${job.name}, sync ${at} (${call.path}, ${call.places.slice(0, 3).join(" ")}): ${text}`);
      }
    }
  }
  return { rows: [...rows.values()], failures, problems };
}

function note(rows: Map<string, Row>, call: SyncCall, told: Told): void {
  const kind = kindOf(call);
  for (const place of new Set(call.places)) {
    const key = `${place} ${kind}`;
    const row = rows.get(key) ?? { place, kind, told: new Map<Told, number>() };
    rows.set(key, row);
    row.told.set(told, (row.told.get(told) ?? 0) + 1);
  }
}
