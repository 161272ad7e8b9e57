import type { RecordedHistory } from "@tidemark/console";
import type { Checker } from "./checker.ts";
import type { Cluster } from "./cluster.ts";
import { planOf } from "./plan.ts";
import { Recorder, violationOf } from "./recorder.ts";
import type { SeedReport } from "./simulate.ts";
import { simulate } from "./simulate.ts";
import type { Outcome } from "./stories.ts";
import { STORIES } from "./stories.ts";
import { StoryRules } from "./story-rules.ts";

/** A seed's history, to be shown, and its report. Never rejects. @param mutantId of the bug that is in the engine, if one is */
export async function recordSeed(
  seed: number,
  mutantId?: string,
): Promise<{ readonly report: SeedReport; readonly history: RecordedHistory }> {
  let watched: { readonly recorder: Recorder; readonly checker: Checker } | undefined;
  const report = await simulate(seed, planOf(seed), (cluster, checker) => {
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
  const bug = mutantId === undefined ? "" : `, with the planted bug ${mutantId}`;
  const history = recorder.history({
    title: `Seed ${seed}${bug}: ${failure === undefined ? "no rule was broken" : "a rule was broken"}`,
    summary: `A random history: a cluster of the production code on a simulated network, disk and clock, with producers, a consumer and faults drawn from the seed (${counts.length === 0 ? "none" : counts.join(", ")}).`,
    command: `npm run sim -- ${seed} 1${mutantId === undefined ? "" : ` --mutant ${mutantId}`} --html seed-${seed}.html`,
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
