import type { Partition } from "@tidemark/replica";
import type { Held, Node } from "./cluster.ts";
import type { ReplicaView } from "./replica-view.ts";

/** A replica as the checker knows it. */
export interface Seen {
  readonly node: Node;
  readonly view: ReplicaView;
  log: unknown;
  /** Of this log. */
  logStartOffset: number;
  /** Below it its records were deleted, and whoever wanted that was answered. */
  deletedTo: number;
  /** Where the log ended when its disk failed. */
  failedEndOffset: number;
  role: unknown;
  /** The same, if it is a leader's. */
  leading: Partition["leaderState"];
  highWatermark: number;
  /** While it leads; before the event that is looked at. */
  isrSize: number;
  leaderEpoch: number;
  partitionEpoch: number;
  /** Its machine lost what was not synced; until it has left the ISR nothing is demanded of it. */
  lostTail: boolean;
  /** That it ever did. */
  hasLost: boolean;
  /** The largest broker epoch of it that anybody knew of then. */
  lostInEpoch: number;
  /** What the next start has to find, after a crash. */
  floor: number;
  /** The part of it that was synced: what is left when the machine goes before that start. */
  syncedFloor: number;
  /** When produce requests arrived, in order, as far back as one may wait. */
  readonly produces: number[];
  /** When the process was last seen to stand still. */
  pausedUs: number;
}

/** Whether anything is other than at the last look. */
export function hasMoved(
  { view, log, logStartOffset, role, highWatermark, leaderEpoch }: Seen,
  { partition, log: logNow }: Held,
): boolean {
  if (logNow !== log) return true;
  if (logNow !== undefined && logNow.logEndOffset !== view.endOffset) return true;
  if (logNow !== undefined && logNow.logStartOffset !== logStartOffset) return true;
  if (partition === undefined) return role !== undefined;
  return (
    roleOf(partition) !== role || partition.highWatermark !== highWatermark || partition.leaderEpoch !== leaderEpoch
  );
}

/** Identity of what a partition is at present. */
export function roleOf(partition: Partition | undefined): unknown {
  return partition?.leaderState ?? partition?.followerState ?? partition?.role;
}

/** A write or sync of a segment has failed, and the process that did it still runs. */
export function hasFailedLog({ node }: Seen): boolean {
  return node.brokenDisk === "kept" || node.brokenDisk === "lost";
}

export function nameOf({ node }: Seen): string {
  return `broker ${node.brokerId}`;
}
