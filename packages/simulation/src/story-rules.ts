import type { HistoryViolation, ReplicaView } from "@tidemark/console";
import type { Recorder } from "./recorder.ts";
import { RULES } from "./rules.ts";

/**
 * Rules for a told story with its few records, looked at while it goes on: a `Checker` would end it at the first that is broken, and what
 * comes of it is what the story is told for. Each rule is reported once.
 *
 * A leader that an operator has ordered gives up what it lacks: that is the order, and no broken rule.
 */
export class StoryRules {
  readonly #recorder: Recorder;
  readonly #reported = new Set<string>();
  #before: ReadonlyMap<number, ReplicaView>;
  /** Below a leader's high watermark once: `value@epoch` by offset. */
  #committed: string[] = [];
  #leaderEpoch = -1;

  constructor(recorder: Recorder) {
    this.#recorder = recorder;
    this.#before = recorder.replicas;
  }

  readonly look = (): void => {
    const { replicas } = this.#recorder;
    const before = this.#before;
    // What is reported is a step of its own, which is not looked at again.
    this.#before = replicas;
    for (const [brokerId, after] of replicas) this.#checkCut(brokerId, before.get(brokerId) ?? after, after);
    this.#checkLeader();
    this.#checkAgreement();
  };

  #checkCut(brokerId: number, before: ReplicaView, after: ReplicaView): void {
    const isFollowing = before.process === "up" && after.process === "up" && after.role !== "leader";
    if (!isFollowing || after.logEndOffset >= before.logEndOffset) return;
    const leaderId = this.#recorder.controller?.leader ?? -1;
    const leader = this.#recorder.replicas.get(leaderId);
    const offset = after.logEndOffset;
    if (leader === undefined || recordAt(leader, offset) !== recordAt(before, offset)) return;
    this.#report("S8", {
      text: `Broker ${brokerId} cut ${wordsAt(before, offset)} from its log, though its leader, broker ${leaderId}, has it too.`,
      replicas: [brokerId],
      range: [offset, before.logEndOffset],
    });
  }

  /** Who leads holds all that was committed; what it commits is so for ever. */
  #checkLeader(): void {
    const { controller, replicas } = this.#recorder;
    const leader = replicas.get(controller?.leader ?? -1);
    if (controller === undefined || leader?.role !== "leader" || leader.leaderEpoch !== controller.leaderEpoch) return;
    const isNew = leader.leaderEpoch !== this.#leaderEpoch;
    this.#leaderEpoch = leader.leaderEpoch;
    const records = Array.from({ length: leader.logEndOffset }, (_, offset) => recordAt(leader, offset));
    const lost = this.#committed.findIndex((record, offset) => record !== records[offset]);
    if (isNew && lost >= 0) {
      const range = [lost, this.#committed.length] as const;
      if (!this.#recorder.isOrdered)
        this.#report("S1", {
          text: `Broker ${leader.leader} leads in epoch ${leader.leaderEpoch} without ${nameOf(this.#committed[lost])} at offset ${lost}, which was committed and acknowledged: it is lost.`,
          replicas: [leader.leader],
          range,
        });
      this.#committed.splice(lost);
    }
    for (let offset = this.#committed.length; offset < leader.highWatermark; offset += 1)
      this.#committed.push(records[offset] ?? "");
  }

  /** Members of the ISR agree below their high watermarks. A replica that comes back joins when it has settled its log. */
  #checkAgreement(): void {
    const isr = this.#recorder.controller?.isr ?? [];
    const known = [...this.#recorder.replicas].filter(([id, { process }]) => isr.includes(id) && process === "up");
    for (const [brokerId, replica] of known) {
      for (const [otherId, other] of known) {
        if (otherId <= brokerId) continue;
        const toOffset = Math.min(replica.highWatermark, other.highWatermark);
        for (let offset = 0; offset < toOffset; offset += 1) {
          if (recordAt(replica, offset) === recordAt(other, offset)) continue;
          this.#report("S1", {
            text: `The logs differ at offset ${offset}: broker ${brokerId} has ${nameOf(recordAt(replica, offset))}, broker ${otherId} has ${nameOf(recordAt(other, offset))}, and both are in sync and count it as committed.`,
            replicas: [brokerId, otherId],
            range: [offset, toOffset],
          });
          break;
        }
      }
    }
  }

  #report(id: string, violation: Pick<HistoryViolation, "text" | "replicas" | "range">): void {
    const rule = RULES.get(id);
    if (rule === undefined) throw new Error(`no rule ${id}`);
    if (this.#reported.has(id)) return;
    this.#reported.add(id);
    this.#recorder.violated({ id, ...rule, ...violation });
  }
}

/** `value@epoch`: what makes a record the same one. */
function recordAt({ values, ranges, logEndOffset }: ReplicaView, offset: number): string | undefined {
  if (offset >= logEndOffset) return undefined;
  return `${values[offset]}@${ranges.find(([, to]) => offset < to)?.[2]}`;
}

function nameOf(record: string | undefined): string {
  const [value, epoch] = (record ?? "").split("@");
  return `${value} (epoch ${epoch})`;
}

function wordsAt(view: ReplicaView, offset: number): string {
  return `${nameOf(recordAt(view, offset))} at offset ${offset}`;
}
