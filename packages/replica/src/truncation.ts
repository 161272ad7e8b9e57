import { toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { LeaderEpochCache } from "@tidemark/epoch-cache";
import type { EpochEntry } from "@tidemark/epoch-cache";

/** An epoch and where it ends, as a leader answered it; -1 and -1 stand for "none". */
export interface EpochAnswer {
  readonly epoch: number;
  readonly endOffset: number;
}

/** Where a follower cuts its log. */
export interface TruncationPoint {
  readonly offset: Offset;
  /** False: the leader named an epoch that the follower lacks, so it goes back to its own largest epoch below and asks again. */
  readonly isFinal: boolean;
}

/**
 * Where a follower's log parts from its leader's, as far as one answer can tell.
 *
 * The leader's answer is its largest epoch that is not above the one asked about, and where that ends. Known to the follower too:
 * the logs are equal up to the smaller of the two ends. Unknown: nothing above the follower's own largest epoch below it can be
 * shared. Each round that is not final takes at least one epoch away, so there are at most as many as the follower has epochs.
 * There is no falling back to the high watermark: that is how logs diverged before KIP-101.
 * @returns `undefined` when the leader could not answer: it is behind, ask again later
 * Source: apache/kafka core/src/main/scala/kafka/server/AbstractFetcherThread.scala, getOffsetTruncationState
 */
export function truncationPoint(
  answer: EpochAnswer,
  epochs: readonly EpochEntry[],
  logEndOffset: Offset,
): TruncationPoint | undefined {
  if (answer.epoch < 0 || answer.endOffset < 0) return undefined;
  const own = new LeaderEpochCache(epochs).endOffsetFor(answer.epoch, logEndOffset);
  if (own.epoch < 0) return { offset: toOffset(Math.min(answer.endOffset, logEndOffset)), isFinal: true };
  if (own.epoch !== answer.epoch) return { offset: toOffset(Math.min(own.endOffset, logEndOffset)), isFinal: false };
  return { offset: toOffset(Math.min(own.endOffset, answer.endOffset, logEndOffset)), isFinal: true };
}

export type DivergenceCheck =
  | { readonly type: "same" }
  | { readonly type: "diverging"; readonly epoch: number; readonly endOffset: number }
  | { readonly type: "outOfRange" };

/**
 * A leader's look at where a fetch would go on: does the log before `fetchOffset` end in `lastFetchedEpoch` here too?
 *
 * A fetch below the log start is out of range even where it diverges: truncating could not help.
 * @param lastFetchedEpoch -1 = not given, for a log without batches; then only the range is checked
 * Source: apache/kafka core/src/main/scala/kafka/cluster/Partition.scala, readRecords
 */
export function checkDivergence(
  fetch: { readonly fetchOffset: number; readonly lastFetchedEpoch: number },
  log: {
    readonly epochEnd: (epoch: number) => EpochAnswer;
    readonly logStartOffset: number;
    readonly logEndOffset: number;
  },
): DivergenceCheck {
  const { fetchOffset, lastFetchedEpoch } = fetch;
  if (lastFetchedEpoch >= 0) {
    const { epoch, endOffset } = log.epochEnd(lastFetchedEpoch);
    if (epoch < 0 || endOffset < 0 || fetchOffset < log.logStartOffset) return { type: "outOfRange" };
    if (epoch < lastFetchedEpoch || endOffset < fetchOffset) return { type: "diverging", epoch, endOffset };
  }
  if (fetchOffset < log.logStartOffset || fetchOffset > log.logEndOffset) return { type: "outOfRange" };
  return { type: "same" };
}
