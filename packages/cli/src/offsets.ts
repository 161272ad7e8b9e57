import { Tidemark } from "@tidemark/server";
import type { OffsetSpec } from "@tidemark/server";

import { EXIT_OK } from "./errors.ts";
import { Output } from "./output.ts";
import { requireTopic } from "./topic-directory.ts";

/**
 * One line `topic:partition:offset` for each partition; no offset where no record is so late.
 * @throws CommandError when there is no such directory or topic, TidemarkError
 * Source: apache/kafka tools/src/main/java/org/apache/kafka/tools/GetOffsetShell.java
 */
export async function listOffsets(
  { topic: name, directory, at }: { readonly topic: string; readonly directory: string; readonly at: OffsetSpec },
  output = new Output(),
): Promise<number> {
  await requireTopic(directory, name);
  await using log = await Tidemark.open({ directory });
  const topic = await log.topic(name);
  for (let partition = 0; partition < topic.partitions; partition += 1) {
    const found = await topic.listOffset(partition, at);
    output.add(Buffer.from(`${name}:${partition}:${found?.offset ?? ""}\n`));
  }
  await output.end();
  return EXIT_OK;
}
