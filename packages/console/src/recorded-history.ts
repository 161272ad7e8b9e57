/**
 * What a step is above all; the page has a mark for each.
 *
 * - `note`: the story that a person tells; `violation`: a rule is broken here
 * - `fault`: something fails, or comes back; `network`: links are cut or healed
 * - `decision`: the controller names a leader or an ISR; `role`: a replica takes it up
 * - `append`, `truncation`, `highWatermark`: of a replica's log
 * - `client`: a producer asks or is answered
 */
export type StepKind =
  | "note"
  | "violation"
  | "fault"
  | "network"
  | "decision"
  | "role"
  | "append"
  | "truncation"
  | "highWatermark"
  | "client";

/** Records of one leader epoch: `[fromOffset, toOffset, epoch]`, half open. */
export type EpochRange = readonly [fromOffset: number, toOffset: number, epoch: number];

/** One replica as it is after a step. -1: none, or not known. */
export interface ReplicaView {
  readonly process: "up" | "starting" | "paused" | "down";
  readonly role: "leader" | "follower" | "none" | "failed";
  /** Whom it follows, or itself. */
  readonly leader: number;
  readonly leaderEpoch: number;
  readonly logStartOffset: number;
  readonly highWatermark: number;
  readonly flushedEndOffset: number;
  readonly logEndOffset: number;
  /** As a leader knows it; empty for others. */
  readonly isr: readonly number[];
  /** The batches of the log by epoch, ascending and without gaps. */
  readonly ranges: readonly EpochRange[];
  /** Texts of the first records of a short log, by offset from 0 on. */
  readonly values: readonly string[];
}

export interface ControllerView {
  readonly isUp: boolean;
  /** -1: none. */
  readonly leader: number;
  readonly leaderEpoch: number;
  readonly isr: readonly number[];
}

/** Messages between two nodes since the step before. */
export interface HistoryMessage {
  readonly from: number;
  readonly to: number;
  readonly kind: string;
  readonly type: "request" | "response";
  readonly fate: "delivered" | "lost";
  readonly count: number;
}

/** What changed, and only that. */
export interface HistoryStep {
  /** Virtual time in microseconds. */
  readonly timeUs: number;
  readonly kind: StepKind;
  /** Sentences for a person, one a line. */
  readonly text: string;
  /** By broker id. */
  readonly replicas?: Readonly<Record<string, ReplicaView>>;
  readonly controller?: ControllerView;
  /** Links that carry nothing, as `1>2`; a whole new list. */
  readonly cuts?: readonly string[];
  /** What clients were told is safe, as `offset:value`; a whole new list. */
  readonly acknowledged?: readonly string[];
  readonly messages?: readonly HistoryMessage[];
}

export interface HistoryViolation {
  /** Index in `steps`. */
  readonly step: number;
  readonly id: string;
  /** The rule in a few words. */
  readonly rule: string;
  /** Why it matters, for a person who never saw the project. */
  readonly meaning: string;
  /** What happened. */
  readonly text: string;
  /** Whom it concerns. */
  readonly replicas: readonly number[];
  /** The records in question, `[fromOffset, toOffset)`. */
  readonly range: readonly [fromOffset: number, toOffset: number] | undefined;
}

/** One history of a simulated cluster, ready to be shown. */
export interface RecordedHistory {
  readonly title: string;
  /** What happens, in a few sentences. */
  readonly summary: string;
  readonly seed: number;
  /** How to make it again. */
  readonly command: string;
  /** The cluster: name and value. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  readonly brokers: readonly number[];
  /** The id under which messages name the controller, and the clients. */
  readonly controllerId: number;
  readonly clientId: number;
  /** At least one. The first holds the state of everybody. */
  readonly steps: readonly HistoryStep[];
  /** In order of time; the first is what went wrong, the others what came of it. */
  readonly violations: readonly HistoryViolation[];
  /** What the page should say of steps that were left out; empty: all are there. */
  readonly omitted: string;
}
