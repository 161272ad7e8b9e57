import type { SimulatedDisk } from "@tidemark/simulator";
import type { LogModel } from "./log-model.ts";

/** One call on the log and what it means to a crash. Operation numbers are those of the simulated disk. */
export interface Step {
  readonly name: string;
  /** Operations before the call, and when its promise had resolved. */
  readonly beganAt: number;
  readonly acknowledgedAt: number;
  /** The log after it. */
  readonly after: LogModel;
  /** What the log may be besides when a crash meets the call: some of its changes came, others did not. */
  readonly between: readonly LogModel[];
  /** What the log may be instead after a crash of the machine. */
  readonly alternatives: readonly LogModel[];
  /** Offset below which everything survives a crash of the machine once the call was acknowledged. */
  readonly floorOffset: number;
  /** How far a crash during the call may cut into what was safe before it: only truncations may at all. */
  readonly lowestEndOffset: number;
  /** The log was closed completely: the next open may be told so. */
  readonly isCleanStop: boolean;
}

/** What a log that opens after a crash may hold. */
export interface Obligation {
  /** Its batches are a prefix of one of these: the log as acknowledged, and with the call in flight. */
  readonly candidates: readonly LogModel[];
  /** It holds every batch below. */
  readonly floorOffset: number;
}

/** A run over one or more incarnations of a process, each with a disk that kept its operations. */
export interface History {
  readonly initial: Obligation;
  readonly steps: readonly Step[];
  readonly disks: readonly SimulatedDisk[];
}

type CrashKind = "machine" | "process";

/** The obligation of a crash after `number` operations. */
export function obligationAt(history: History, number: number, kind: CrashKind): Obligation {
  const { acknowledged, inFlight } = stepsAt(history, number);
  const candidates = acknowledged === undefined ? [...history.initial.candidates] : [acknowledged.after];
  let { floorOffset } = acknowledged ?? history.initial;
  // The page cache survives the process: everything that was in the log is.
  if (kind === "process" && acknowledged !== undefined) floorOffset = acknowledged.after.batchesEndOffset;
  if (kind === "machine" && acknowledged !== undefined) candidates.push(...acknowledged.alternatives);
  if (inFlight !== undefined) {
    candidates.push(inFlight.after, ...inFlight.between);
    floorOffset = Math.min(floorOffset, inFlight.lowestEndOffset);
  }
  return { candidates, floorOffset };
}

/** Whether a crash here comes after a complete close and before the next call. */
export function isStoppedAt(history: History, number: number): boolean {
  const { acknowledged, inFlight } = stepsAt(history, number);
  return acknowledged?.isCleanStop === true && inFlight === undefined;
}

/** An answer that can have been given counts as given. */
function stepsAt(history: History, number: number): { acknowledged: Step | undefined; inFlight: Step | undefined } {
  let acknowledged: Step | undefined;
  for (const step of history.steps) {
    if (step.acknowledgedAt > number) {
      return { acknowledged, inFlight: step.beganAt < number ? step : undefined };
    }
    acknowledged = step;
  }
  return { acknowledged, inFlight: undefined };
}

/** Equal for equal obligations. */
export function printOf(obligations: readonly Obligation[]): string {
  return obligations
    .map(({ candidates, floorOffset }) => `${floorOffset}:${candidates.map(({ print }) => print).join("|")}`)
    .join("/");
}
