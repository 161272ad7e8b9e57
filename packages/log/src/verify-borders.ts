import type { State } from "@tidemark/base";
import { endBeforeGap } from "./log-state.ts";
import { readStateOffset } from "./state-values.ts";
import type { VerifyFindings } from "./verify-report.ts";

/** Two neighbouring segments that leave offsets `[endOffset, baseOffset)` out; or the first one, above the log start. */
export interface BorderHole {
  /** Of the second one. */
  readonly path: string;
  /** Where the batches of the first one end. */
  readonly endOffset: number;
  readonly baseOffset: number;
}

/**
 * Says of each hole between two segments whether it may be there. Compaction, and a leader that leaves offsets out, make such holes; so does
 * a segment file that is lost. The node's state tells them apart, which notes the first kind. Without it the log is taken for compacted where
 * Kafka's cleaner says so, or where batches leave offsets out inside of segments too.
 */
export function reportHoles(
  findings: VerifyFindings,
  holes: readonly BorderHole[],
  log: { readonly name: string; readonly state: Pick<State, "get"> | undefined; readonly isSparse: boolean },
): void {
  for (const { path, endOffset, baseOffset } of holes) {
    const missing = `offsets ${endOffset} to ${baseOffset - 1} are not there`;
    const at = { offset: endOffset };
    const noted = log.state === undefined ? undefined : endBeforeGap(log.state, log.name, baseOffset);
    if (noted === endOffset)
      findings.add("note", "offsets-missing", path, `${missing}, and the node has noted that they need not be`, at);
    else if (log.state === undefined && log.isSparse)
      findings.add("note", "offsets-missing", path, `${missing} (as after compaction)`, at);
    else findings.add("error", "offsets-missing", path, `${missing}: a segment is missing`, at);
  }
}

/**
 * Where a log is to begin, as the open sees it: what lies between the start in the node's state and the first segment, and was durable, is lost.
 * @param firstBaseOffset where its first segment begins
 */
export function beginOffsetOf(
  state: Pick<State, "get"> | undefined,
  name: { readonly topic: string; readonly partition: number } | undefined,
  firstBaseOffset: number,
): number {
  if (state === undefined || name === undefined) return firstBaseOffset;
  const { topic, partition } = name;
  const start = readStateOffset(state, "log-start", topic, partition) ?? firstBaseOffset;
  const recoveryPoint = readStateOffset(state, "recovery-point", topic, partition) ?? start;
  return start < Math.min(firstBaseOffset, recoveryPoint) ? start : firstBaseOffset;
}
