import type { RecordedHistory } from "@tidemark/console";
import type { Checker } from "./checker.ts";
import type { Cluster } from "./cluster.ts";
import { planOf } from "./plan.ts";
import type { Plan } from "./plan.ts";
import { Recorder, violationOf } from "./recorder.ts";
import type { SeedReport } from "./simulate.ts";
import { simulate } from "./simulate.ts";
import type { Outcome } from "./stories.ts";
import { STORIES } from "./stories.ts";
import { StoryRules } from "./story-rules.ts";

/** A run that was recorded. */
export interface RecordedRun {
  readonly report: SeedReport;
  readonly history: RecordedHistory;
}

/** A seed's history, to be shown, and its report. Never rejects. @param mutantId of the bug that is in the engine, if one is */
export function recordSeed(seed: number, mutantId?: string): Promise<RecordedRun> {
  const mutant = mutantId === undefined ? "" : ` --mutant ${mutantId}`;
  const command =
    mutantId === undefined
      ? `tidemark simulate --seed ${seed} --html seed-${seed}.html`
      : `npm run sim -- ${seed} 1${mutant} --html seed-${seed}.html`;
  return recordPlan(planOf(seed), {
    name: `Seed ${seed}${mutantId === undefined ? "" : `, with the planted bug ${mutantId}`}`,
    command,
  });
}

/** As `recordSeed`, for a plan that may have been edited. @param words what it is called, and how to make it again */
export async function recordPlan(
  plan: Plan,
  words: { readonly name: string; readonly command: string },
): Promise<RecordedRun> {
  let watched: { readonly recorder: Recorder; readonly checker: Checker } | undefined;
  const report = await simulate(plan.cluster.seed, plan, (cluster, checker) => {
    watched = { recorder: new Recorder(cluster), checker };
  });
  if (watched === undefined) throw new Error("a run is watched");
  const { recorder, checker } = watched;
  // A fault that nothing could survive is not made, and counted as skipped.
  const { failure, faults } = report;
  if (failure !== undefined) recorder.violated(violationOf(failure, recorder, checker.committed));
  const made = Object.entries(faults).filter(([name]) => name !== "skipped");
  const counts = made.map(
    ([name, count]) => `${count} × ${name.replaceAll(/[A-Z]/gu, (letter) => ` ${letter.toLowerCase()}`)}`,
  );
  const history = recorder.history({
    title: `${words.name}: ${failure === undefined ? "no rule was broken" : "a rule was broken"}`,
    summary: `A random history: a cluster of the production code on a simulated network, disk and clock, with producers, a consumer and faults drawn from the seed (${counts.length === 0 ? "none" : counts.join(", ")}).`,
    command: words.command,
  });
  return { report, history };
}

/** A told story's history and its end. */
export async function recordStory(
  story: keyof typeof STORIES,
  words: Pick<RecordedHistory, "title" | "summary" | "command">,
): Promise<{ readonly outcome: Outcome; readonly history: RecordedHistory }> {
  let recorder: Recorder | undefined;
  const watch = (cluster: Cluster): void => {
    recorder = new Recorder(cluster);
    recorder.onLook = new StoryRules(recorder).look;
  };
  const outcome = await STORIES[story](watch);
  if (recorder === undefined) throw new Error("a story is watched");
  return { outcome, history: recorder.history(words) };
}
