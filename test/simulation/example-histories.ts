import type { RecordedHistory } from "@tidemark/console";
import { mutantOf } from "@tidemark/simulator";
import { withMutant } from "./mutated.ts";
import { recordStory } from "@tidemark/simulation";
import type { STORIES } from "@tidemark/simulation";

/** A told story that anyone can open, as a page of `docs/histories`. */
export interface Example {
  /** In `docs/histories`. */
  readonly file: string;
  readonly story: keyof typeof STORIES;
  /** The bug that is planted in the engine for it. */
  readonly mutant: string | undefined;
  readonly title: string;
  readonly summary: string;
}

const WITH_BUG =
  "Here a bug is planted in the engine: a follower cuts its log to its own high watermark and knows no epochs, as Kafka did before KIP-101.";
const WITHOUT_BUG = "Here the engine is as it is: a follower asks its new leader where their common epoch ends.";

const LOSS =
  "A record is on all three replicas and the producer was told that it is safe. Then two leaders die, one shortly after the other.";
const DIVERGENCE =
  "One of two replicas loses an unflushed record in a power cut, leads nevertheless, since an operator orders it and gives that record up, and takes another one at the same offset. Then the other replica comes back, with the old record.";

/** The two ways of KIP-101 in which high-watermark truncation loses data, and how leader epochs cure them. */
export const EXAMPLES: readonly Example[] = [
  {
    file: "loss-by-high-watermark.html",
    story: "lossAfterTwoFailovers",
    mutant: "M01",
    title: "Truncation to the high watermark loses an acknowledged record",
    summary: `${LOSS} ${WITH_BUG}`,
  },
  {
    file: "loss-cured-by-epochs.html",
    story: "lossAfterTwoFailovers",
    mutant: undefined,
    title: "The cure: with leader epochs the acknowledged record stays",
    summary: `${LOSS} ${WITHOUT_BUG} Nothing is cut, and nothing is lost.`,
  },
  {
    file: "divergence-by-high-watermark.html",
    story: "divergenceAfterPowerLoss",
    mutant: "M01",
    title: "Truncation to the high watermark leaves two logs that differ",
    summary: `${DIVERGENCE} ${WITH_BUG}`,
  },
  {
    file: "divergence-cured-by-epochs.html",
    story: "divergenceAfterPowerLoss",
    mutant: undefined,
    title: "The cure: with leader epochs the logs agree again",
    summary: `${DIVERGENCE} ${WITHOUT_BUG} It cuts exactly what its leader lacks: the record that was given up.`,
  },
];

/** Plays an example once more. */
export async function recordExample({ story, mutant, title, summary }: Example): Promise<RecordedHistory> {
  const words = { title, summary, command: "npm run histories" };
  if (mutant === undefined) return (await recordStory(story, words)).history;
  return withMutant(mutantOf(mutant), "record.ts", async (module) => {
    const mutated = module as { recordStory: typeof recordStory };
    return (await mutated.recordStory(story, words)).history;
  });
}
