import type { ControllerView, ReplicaView, StepKind } from "@tidemark/console";
import type { Notice } from "./cluster.ts";

/** One thing that happened, in words. */
export interface Line {
  readonly kind: StepKind;
  readonly text: string;
}

const CAUSES: Readonly<Record<string, string>> = {
  epochAnswer: "where the leader's answer says that their common epoch ends",
  divergingEpoch: "where the leader's fetch answer says that their common epoch ends",
  leaderEndOffset: "to the end of the leader's log",
  leaderLogStart: "since the leader's log begins later",
};

const LOSSES: Readonly<Record<string, string>> = {
  all: "everything that was not flushed is gone",
};

/** The words for a notice; `undefined` where the states tell it. */
export function wordsOfNotice(notice: Notice, isStopping: (brokerId: number) => boolean): Line | undefined {
  switch (notice.type) {
    case "told":
      return { kind: "note", text: notice.text };
    case "kill":
      return isStopping(notice.brokerId)
        ? { kind: "fault", text: `Broker ${notice.brokerId} has stopped.` }
        : {
            kind: "fault",
            text: `Broker ${notice.brokerId} is killed. What its process wrote stays in its machine's page cache.`,
          };
    case "powerCut":
      return {
        kind: "fault",
        text: `The machine of broker ${notice.brokerId} loses power: ${LOSSES[notice.loss] ?? "what was not flushed may be gone, in part or whole"}.`,
      };
    case "shutDown":
      return { kind: "fault", text: `Broker ${notice.brokerId} is told to stop.` };
    case "pause":
      return { kind: "fault", text: `Broker ${notice.brokerId} stands still: its process is stopped, messages wait.` };
    case "resume":
      return { kind: "fault", text: `Broker ${notice.brokerId} runs on.` };
    case "start":
      return { kind: "fault", text: `Broker ${notice.brokerId} starts.` };
    case "killController":
      return { kind: "fault", text: "The controller is killed." };
    case "startController":
      return { kind: "fault", text: "The controller starts." };
    case "pauseController":
      return { kind: "fault", text: "The controller stands still: its process is stopped, messages wait." };
    case "resumeController":
      return { kind: "fault", text: "The controller runs on." };
    case "produce":
      return {
        kind: "client",
        text: `A producer sends ${notice.values.join(", ")} to broker ${notice.brokerId}, ${notice.acks === -1 ? "and wants it on all in-sync replicas" : "and wants it in the leader's log"}.`,
      };
    case "produced":
      return notice.error === "NONE"
        ? {
            kind: "client",
            text: `The producer is told: ${notice.values.join(", ")} is ${notice.acks === -1 ? "safe" : "written"}, at offset ${notice.baseOffset}.`,
          }
        : { kind: "client", text: `The producer is refused ${notice.values.join(", ")}: ${notice.error}.` };
    case "stop":
      return undefined;
    default:
      return notice satisfies never;
  }
}

/** What the controller decided between two looks. */
export function wordsOfDecision(before: ControllerView | undefined, after: ControllerView): Line[] {
  if (!after.isUp || (before !== undefined && sameDecision(before, after))) return [];
  const isr = after.isr.length === 0 ? "ISR empty" : `ISR ${after.isr.join(", ")}`;
  const isNewLeader = before?.leaderEpoch !== after.leaderEpoch || before.leader !== after.leader;
  if (!isNewLeader) {
    const verb = after.isr.length < before.isr.length ? "shrinks" : "grows";
    return [{ kind: "decision", text: `Controller: the ISR ${verb} to ${after.isr.join(", ")}.` }];
  }
  if (after.leader < 0)
    return [{ kind: "decision", text: `Controller: nobody may lead at present (epoch ${after.leaderEpoch}, ${isr}).` }];
  const wasMember = before === undefined || before.isr.includes(after.leader);
  const how = wasMember ? "" : ", by an operator's order, though it is not in sync";
  return [
    { kind: "decision", text: `Controller: broker ${after.leader} leads in epoch ${after.leaderEpoch}${how}; ${isr}.` },
  ];
}

export function sameDecision(before: ControllerView, after: ControllerView): boolean {
  return (
    before.isUp === after.isUp &&
    before.leader === after.leader &&
    before.leaderEpoch === after.leaderEpoch &&
    before.isr.join() === after.isr.join()
  );
}

/** What became of a replica between two looks. `cause` is that of a cut which the engine has reported. */
export function wordsOfReplica(
  brokerId: number,
  before: ReplicaView,
  after: ReplicaView,
  cause: string | undefined,
): Line[] {
  const name = `Broker ${brokerId}`;
  const isBack = before.process === "down" || before.process === "starting";
  const lines: Line[] = [];
  if (after.process === "up" && isBack) lines.push({ kind: "role", text: `${name} is up.` });
  if (after.logEndOffset < before.logEndOffset)
    lines.push(
      isBack ? foundLess(name, before, after) : { kind: "truncation", text: wordsOfCut(name, before, after, cause) },
    );
  const isNewRole = after.role !== before.role || after.leaderEpoch !== before.leaderEpoch;
  if (isNewRole && after.role === "leader")
    lines.push({ kind: "role", text: `${name} takes up the lead, in epoch ${after.leaderEpoch}.` });
  if (isNewRole && after.role === "follower" && after.leader >= 0)
    lines.push({ kind: "role", text: `${name} follows broker ${after.leader} in epoch ${after.leaderEpoch}.` });
  if (isNewRole && after.role === "failed") lines.push({ kind: "fault", text: `${name} gives up its replica.` });
  if (after.logEndOffset > before.logEndOffset) {
    const records = wordsOfRecords(after, before.logEndOffset, after.logEndOffset);
    const verb = after.role === "leader" ? "appends" : isBack ? "finds" : "copies";
    lines.push({ kind: "append", text: `${name} ${verb} ${records}: its LEO is ${after.logEndOffset}.` });
  }
  if (after.highWatermark >= 0 && after.highWatermark !== before.highWatermark) {
    const { role, highWatermark } = after;
    const verb = role === "leader" ? "moves its HW" : before.highWatermark < 0 ? "starts with HW" : "learns: HW";
    const from = before.highWatermark < 0 ? "" : ` ${before.highWatermark} →`;
    lines.push({ kind: "highWatermark", text: `${name} ${verb}${from} ${highWatermark}.` });
  }
  if (!isNewRole && after.role === "leader" && after.isr.join() !== before.isr.join())
    lines.push({ kind: "role", text: `${name} knows: the ISR is ${after.isr.join(", ")}.` });
  return lines;
}

function foundLess(name: string, before: ReplicaView, after: ReplicaView): Line {
  const gone = wordsOfRecords(before, after.logEndOffset, before.logEndOffset);
  return { kind: "fault", text: `${name} opens its log and finds LEO ${after.logEndOffset}: it has lost ${gone}.` };
}

function wordsOfCut(name: string, before: ReplicaView, after: ReplicaView, cause: string | undefined): string {
  const gone = wordsOfRecords(before, after.logEndOffset, before.logEndOffset);
  const own = after.logEndOffset === before.highWatermark ? "to its own HW" : "";
  const why = cause === undefined ? own : (CAUSES[cause] ?? cause);
  return `${name} cuts its log from ${before.logEndOffset} back to ${after.logEndOffset}${why === "" ? "" : `, ${why}`}, and loses ${gone}.`;
}

/** `m1 (offset 1, epoch 0)` or `offsets 10 to 12 (epoch 3)`, of `[fromOffset, toOffset)`. */
function wordsOfRecords(view: ReplicaView, fromOffset: number, toOffset: number): string {
  const epochs = view.ranges.filter(([from, to]) => from < toOffset && to > fromOffset).map(([, , epoch]) => epoch);
  const epoch = `epoch${epochs.length > 1 ? "s" : ""} ${epochs.join(", ")}`;
  const value = view.values[fromOffset];
  if (toOffset > fromOffset + 1) return `offsets ${fromOffset} to ${toOffset - 1} (${epoch})`;
  return value === undefined ? `offset ${fromOffset} (${epoch})` : `${value} (offset ${fromOffset}, ${epoch})`;
}

/** Messages of broken rules that are put into more words. */
const VIOLATIONS: readonly (readonly [message: RegExp, words: string])[] = [
  [
    /^broker (\d+): high watermark (\d+), but (\d+) does not hold it$/u,
    "Broker $1 moved its HW to $2: everything below offset $2 counts as committed now. But broker $3, which is in the ISR or being taken into it, does not hold all of that",
  ],
  [
    /^broker (\d+): (\d+) <= (\d+) <= (\d+)$/u,
    "Broker $1 has log start $2, HW $3 and LEO $4, and it must be log start <= HW <= LEO",
  ],
  [
    /^broker (\d+): below its high watermark (\d+) lies what was not committed \(committed: (\d+)\)$/u,
    "Broker $1 counts everything below its HW $2 as committed, but what lies there is not what was committed (that reaches up to offset $3)",
  ],
  [
    /^broker (\d+) leads and lacks committed records \((\d+) of (\d+)\)$/u,
    "Broker $1 leads, but its log (LEO $2) lacks records that were committed (up to offset $3): they are lost",
  ],
  [
    /^broker (\d+) is in the ISR and lacks committed records$/u,
    "Broker $1 is in the ISR, so that it may be the next leader, but it lacks records that were committed",
  ],
  [
    /^broker (\d+) cut to (\d+), below its high watermark (\d+)$/u,
    "Broker $1 cut its log back to $2, though it knew that everything below $3 is committed",
  ],
  [
    /^broker (\d+) cut (\d+)@(\d+), which its leader has$/u,
    "Broker $1 cut its log, and with it offset $2 of epoch $3, which its leader has too",
  ],
];

/** What a broken rule's message says, as a sentence. */
export function wordsOfViolation(message: string): string {
  const known = VIOLATIONS.find(([pattern]) => pattern.test(message));
  const text = known === undefined ? message : message.replace(known[0], known[1]);
  const spelled = text.replaceAll(/\b(\d+)@(\d+)\b/gu, "offset $1 of epoch $2");
  return `${spelled.slice(0, 1).toUpperCase()}${spelled.slice(1)}.`;
}
