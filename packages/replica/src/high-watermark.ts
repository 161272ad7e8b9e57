import { fail } from "@tidemark/base";
import type { Offset } from "@tidemark/base";

/**
 * High watermark after something moved: max(current, min(end offsets)). Never goes back.
 *
 * Not called while the partition is under min ISR. O(replicas), allocates nothing.
 * @param endOffsets of the leader first, then of the maximal ISR and of the caught-up, eligible replicas about to join
 *   it (else HW could pass one that joins). `undefined` = a replica that has not told its end: HW stands.
 * @throws InvariantError when empty: the leader is always counted
 * Source: apache/kafka core/src/main/scala/kafka/cluster/Partition.scala, maybeIncrementLeaderHW.
 */
export function nextHighWatermark(current: Offset, endOffsets: readonly (Offset | undefined)[]): Offset {
  if (endOffsets.length === 0) fail("the leader is always counted", { current });
  let lowest = endOffsets[0];
  for (const endOffset of endOffsets) {
    if (lowest === undefined || endOffset === undefined) return current;
    if (endOffset < lowest) lowest = endOffset;
  }
  return lowest !== undefined && lowest > current ? lowest : current;
}
