/** A node with partitions that do nothing, a process of its own; its parent tells it where, and it tells its memory. */
import { Tidemark } from "@tidemark/server";
import type { Topic } from "@tidemark/server";
import { setTimeout } from "node:timers/promises";

/** What the parent sends. */
export interface IdleOptions {
  readonly directory: string;
  readonly partitions: number;
  /** Whether a record is appended to each and read again before the memory is looked at. */
  readonly isUsed: boolean;
}

/** After the last work: garbage is collected, and memory given back. */
const IDLE_MS = 300;

process.once("message", (options) => {
  void tellMemory(options as IdleOptions);
});

async function tellMemory({ directory, partitions, isUsed }: IdleOptions): Promise<void> {
  const tidemark = await Tidemark.open({ directory });
  if (partitions > 0) {
    const topic = await tidemark.topic("idle", { partitions, flush: "none" });
    if (isUsed) await useEach(topic);
  }
  for (let pass = 0; pass < 3; pass += 1) {
    await setTimeout(IDLE_MS / 3);
    gc?.();
  }
  const rssBytes = process.memoryUsage.rss();
  await tidemark.close();
  process.send?.({ rssBytes });
  process.disconnect();
}

async function useEach(topic: Topic): Promise<void> {
  for (let partition = 0; partition < topic.partitions; partition += 1) {
    await topic.append({ value: "one" }, { partition });
    for await (const { value } of topic.fetch({ partition, follow: false })) if (value !== null) break;
  }
}
