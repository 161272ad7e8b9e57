import type { Random, State } from "@tidemark/base";
import { decodeStateInt64, encodeStateInt64, PRODUCER_ID_KEY } from "@tidemark/log";

/**
 * First id of a node that remembers none. High and by chance, since a log remembers the last batches of its producers and takes
 * a batch of one of them for a repetition: Kafka numbers producers from 0, so neither its ids and ours meet when a directory
 * moves between them, nor those before and after `State` was lost.
 */
function firstProducerId(random: Random): number {
  // In [2^32, 2^52 + 2^32).
  return 2 ** 32 + random.below("producer-id", 2 ** 20) * 2 ** 32 + random.uint32("producer-id");
}

/** An id that no other opening of this log directory has or will have. Durable once it resolves. */
export async function nextProducerId(state: State, random: Random): Promise<number> {
  const stored = decodeStateInt64(state.get(PRODUCER_ID_KEY));
  const producerId = stored === undefined || stored === Number.MAX_SAFE_INTEGER ? firstProducerId(random) : stored;
  await state.commit([{ key: PRODUCER_ID_KEY, value: encodeStateInt64(producerId + 1) }], { sync: true });
  return producerId;
}
