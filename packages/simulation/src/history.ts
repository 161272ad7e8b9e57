/**
 * What clients of a cluster saw, as somebody would write it down who knows nothing of its insides: each operation's begin and its end, in
 * the order of time. Operations overlap; of one client only sends do. Values are unique.
 */
export interface History {
  /**
   * A request may be carried out once more after its answer, when the network says it again over another connection. An acknowledgement
   * by the leader alone then proves no place for ever, since the record may be lost and come again.
   */
  readonly mayReplay: boolean;
  readonly events: readonly HistoryEvent[];
}

/**
 * How often a send may be in the log.
 * - `once`: it went out once, or its other tries certainly did nothing;
 * - `idempotent`: it went out several times, always with one producer id and sequence;
 * - `repeated`: it went out several times under different names, or under none: any number of times.
 */
export type Tries = "once" | "idempotent" | "repeated";

export interface SeenRecord {
  readonly offset: number;
  readonly value: string;
}

export type HistoryEvent =
  /** A producer begins to send a batch; it tries again by itself. */
  | {
      readonly type: "send";
      readonly op: number;
      readonly client: string;
      readonly acks: -1 | 1;
      readonly values: readonly string[];
    }
  | { readonly type: "sent"; readonly op: number; readonly tries: Tries; readonly outcome: SendOutcome }
  /** A consumer asks for records. `isAssigned`: it begins at this offset, whatever it read before. */
  | {
      readonly type: "poll";
      readonly op: number;
      readonly client: string;
      readonly fromOffset: number;
      readonly isAssigned: boolean;
    }
  | { readonly type: "polled"; readonly op: number; readonly records: readonly SeenRecord[] }
  /** Somebody asks who leads, and asks the leader of that epoch, and no other, where the log ends. */
  | { readonly type: "askEnd"; readonly op: number; readonly client: string }
  | { readonly type: "toldEnd"; readonly op: number; readonly logEndOffset: number; readonly highWatermark: number }
  /** A poll or a question for the end came to nothing. */
  | { readonly type: "refused"; readonly op: number }
  /**
   * Faults are over and everything had its time. Polls from here on are the final read, from the first offset to the last. Records below the
   * log start were deleted by somebody who may do so.
   */
  | { readonly type: "quiet"; readonly logStartOffset: number };

/** `fail`: certainly not carried out. `unknown`: perhaps, perhaps later. */
export type SendOutcome =
  | { readonly type: "ok"; readonly baseOffset: number }
  | { readonly type: "fail" }
  | { readonly type: "unknown" };

/** What can be wrong with a history. The names are those of Jepsen's Kafka workload. */
export const ANOMALIES = {
  C1: "lost-write: acknowledged by all, or read by a consumer, and not in the final read, though what came later is",
  C2: "inconsistent-offsets: one offset was seen with two values",
  C3: "duplicate: one value is at two offsets, though it was sent once or by an idempotent producer",
  C4: "failed-read: a value was read whose send certainly failed",
  C5: "phantom: a value was read that nobody had sent by then",
  C6: "nonmonotonic-poll: a poll began at or below an offset that this consumer had read already",
  C7: "poll-skip: a poll jumped over offsets that hold visible records",
  C8: "internal: one poll jumps over visible records, or goes back",
  C9: "nonmonotonic-send: the acknowledged sends of one producer are not in its order",
  C10: "unseen: acknowledged by all, and the final read ends before it",
  C13: "stale-end: the leader's log ended below what was acknowledged before somebody asked",
} as const;

export type AnomalyId = keyof typeof ANOMALIES;

/** Categories that cannot be judged here yet, and why. */
export const ANOMALIES_WITHOUT_SUBJECT = {
  C11: "there are no transactions",
  C12: "there are no transactions; single sends and polls of one log are ordered by its offsets",
  C14: "there are no consumer groups",
  C15: "no request looks an offset up by its timestamp",
} as const;

export interface Anomaly {
  readonly id: AnomalyId;
  readonly what: string;
}
