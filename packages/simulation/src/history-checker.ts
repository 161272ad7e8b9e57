import { ANOMALIES } from "./history.ts";
import type { Anomaly, AnomalyId, History, HistoryEvent, SeenRecord, Tries } from "./history.ts";

interface Send {
  readonly client: string;
  /** Whether its end is known. */
  isEnded: boolean;
  readonly acks: -1 | 1;
  readonly values: readonly string[];
  tries: Tries;
  outcome: Extract<HistoryEvent, { type: "sent" }>["outcome"];
}

interface Poll {
  readonly client: string;
  readonly fromOffset: number;
  readonly isAssigned: boolean;
}

/** Offsets in [fromOffset, toOffset) that a consumer jumped over. */
interface Jump {
  readonly id: "C7" | "C8";
  readonly client: string;
  readonly fromOffset: number;
  readonly toOffset: number;
}

/**
 * Judges what clients saw; knows nothing of the insides of what they talked to.
 *
 * Events are taken one by one, so that a run can be stopped at the first anomaly that shows already; `finish` finds those that only the
 * whole history shows. All in all linear in its size.
 *
 * What acks 1 promises is less: a record that only the leader acknowledged may be lost when the leader changes. What it has in common
 * with acks all: nothing that a consumer has read goes or changes, and what is left of a producer's records is in its order.
 */
export class HistoryChecker {
  readonly anomalies: Anomaly[] = [];
  readonly #mayReplay: boolean;
  readonly #sends = new Map<number, Send>();
  readonly #sendOf = new Map<string, Send>();
  readonly #polls = new Map<number, Poll>();
  /** Ops that ask for the end, and the end of all that was acknowledged by then. */
  readonly #askedEnds = new Map<number, number>();
  /** What polls and acknowledgements by all saw there. */
  readonly #valueAt = new Map<number, string>();
  readonly #offsetsOf = new Map<string, Set<number>>();
  /** Of polls alone. */
  readonly #visible = new Map<number, string>();
  /** Offsets that were seen with two values. */
  readonly #disputed = new Set<number>();
  /** Offsets of the final read. */
  readonly #final = new Set<number>();
  readonly #lastRead = new Map<string, number>();
  /** Of each producer: its sends with acks all from the first one on whose end is not known, and where all before it end. */
  readonly #sentBy = new Map<string, { readonly open: Send[]; endOffset: number }>();
  readonly #jumps: Jump[] = [];
  #acknowledgedEnd = 0;
  #visibleEnd = 0;
  #isQuiet = false;
  #logStartOffset = 0;

  constructor(history: Pick<History, "mayReplay">) {
    this.#mayReplay = history.mayReplay;
  }

  add(event: HistoryEvent): void {
    switch (event.type) {
      case "send": {
        const { client, acks, values } = event;
        const send: Send = { client, isEnded: false, acks, values, tries: "repeated", outcome: { type: "unknown" } };
        this.#sends.set(event.op, send);
        if (acks === -1) this.#sentOf(client).open.push(send);
        for (const value of values) this.#sendOf.set(value, send);
        return;
      }
      case "sent":
        return this.#sent(event);
      case "poll":
        this.#polls.set(event.op, event);
        return;
      case "polled":
        return this.#polled(event.op, event.records);
      case "askEnd":
        this.#askedEnds.set(event.op, this.#acknowledgedEnd);
        return;
      case "toldEnd":
        return this.#toldEnd(event);
      case "refused":
        return;
      case "quiet":
        this.#isQuiet = true;
        this.#logStartOffset = event.logStartOffset;
        return;
      default:
        event satisfies never;
    }
  }

  /** To be called once, after the last event. */
  finish(): readonly Anomaly[] {
    this.#findDuplicates();
    this.#findSkips();
    this.#findReordered();
    if (this.#isQuiet) this.#findLost();
    return this.anomalies;
  }

  #sent({ op, tries, outcome }: Extract<HistoryEvent, { type: "sent" }>): void {
    const send = this.#sends.get(op);
    if (send === undefined) throw new Error(`operation ${op} was never begun`);
    send.tries = tries;
    send.outcome = outcome;
    send.isEnded = true;
    this.#judgeOrder(send.client);
    if (outcome.type === "fail") {
      for (const value of send.values)
        if (this.#offsetsOf.has(value)) this.#note("C4", `${value} was read, and failed`);
    }
    if (outcome.type !== "ok") return;
    const { baseOffset } = outcome;
    if (send.acks === 1) {
      if (!this.#mayReplay) for (const [at, value] of send.values.entries()) this.#place(value, baseOffset + at);
      return;
    }
    for (const [at, value] of send.values.entries()) this.#see({ offset: baseOffset + at, value });
    const endOffset = baseOffset + send.values.length;
    this.#acknowledgedEnd = Math.max(this.#acknowledgedEnd, endOffset);
  }

  #sentOf(client: string): { readonly open: Send[]; endOffset: number } {
    let sent = this.#sentBy.get(client);
    if (sent === undefined) this.#sentBy.set(client, (sent = { open: [], endOffset: 0 }));
    return sent;
  }

  /** Several sends may be under way, and end in any order: each is judged when all before it have ended. */
  #judgeOrder(client: string): void {
    const sent = this.#sentOf(client);
    for (let [first] = sent.open; first?.isEnded === true; [first] = sent.open) {
      sent.open.shift();
      if (first.outcome.type !== "ok") continue;
      const { baseOffset } = first.outcome;
      if (baseOffset < sent.endOffset)
        this.#note("C9", `${client} was given ${baseOffset} after the end ${sent.endOffset}`);
      sent.endOffset = baseOffset + first.values.length;
    }
  }

  #polled(op: number, records: readonly SeenRecord[]): void {
    const poll = this.#polls.get(op);
    if (poll === undefined) throw new Error(`operation ${op} was never begun`);
    const { client } = poll;
    if (poll.isAssigned) this.#lastRead.set(client, poll.fromOffset - 1);
    for (const record of records) this.#read(record);
    const [first] = records;
    if (first === undefined) return;
    let lowest = first.offset;
    let highest = first.offset;
    for (const { offset } of records.slice(1)) {
      if (offset <= highest) this.#note("C8", `a poll of ${client} has ${offset} behind ${highest}`);
      else if (offset > highest + 1) this.#jumps.push({ id: "C8", client, fromOffset: highest + 1, toOffset: offset });
      lowest = Math.min(lowest, offset);
      highest = Math.max(highest, offset);
    }
    const last = this.#lastRead.get(client) ?? poll.fromOffset - 1;
    if (lowest <= last) this.#note("C6", `a poll of ${client} began with ${lowest}, it had read up to ${last}`);
    else if (lowest > last + 1) this.#jumps.push({ id: "C7", client, fromOffset: last + 1, toOffset: lowest });
    this.#lastRead.set(client, Math.max(last, highest));
  }

  #read(record: SeenRecord): void {
    const { offset, value } = record;
    const send = this.#sendOf.get(value);
    if (send === undefined) this.#note("C5", `${value} at ${offset} was sent by nobody`);
    else if (send.outcome.type === "fail") this.#note("C4", `${value} at ${offset} had failed`);
    this.#see(record);
    this.#visible.set(offset, value);
    this.#visibleEnd = Math.max(this.#visibleEnd, offset + 1);
    if (this.#isQuiet) this.#final.add(offset);
  }

  #see({ offset, value }: SeenRecord): void {
    const known = this.#valueAt.get(offset);
    if (known === undefined) this.#valueAt.set(offset, value);
    else if (known !== value) {
      this.#disputed.add(offset);
      this.#note("C2", `${offset} is ${known} and ${value}`);
    }
    this.#place(value, offset);
  }

  #place(value: string, offset: number): void {
    const offsets = this.#offsetsOf.get(value);
    if (offsets === undefined) this.#offsetsOf.set(value, new Set([offset]));
    else offsets.add(offset);
  }

  /** The question came after the acknowledgements, and was answered in an epoch at least as late as theirs: that leader has all of it. */
  #toldEnd({ op, logEndOffset, highWatermark }: Extract<HistoryEvent, { type: "toldEnd" }>): void {
    const acknowledgedEnd = this.#askedEnds.get(op);
    if (acknowledgedEnd === undefined) throw new Error(`operation ${op} was never begun`);
    // Just elected, a leader knows its high watermark only when its followers have asked.
    const endOffset = this.#isQuiet ? Math.min(logEndOffset, highWatermark) : logEndOffset;
    if (endOffset < acknowledgedEnd)
      this.#note("C13", `the end was told to be ${endOffset}, and ${acknowledgedEnd} was acknowledged before`);
  }

  #findDuplicates(): void {
    for (const [value, offsets] of this.#offsetsOf) {
      const send = this.#sendOf.get(value);
      if (offsets.size < 2 || send === undefined || !this.#isStoredOnce(send)) continue;
      // An offset with two values is wrong in another way.
      if ([...offsets].some((offset) => this.#disputed.has(offset))) continue;
      this.#note("C3", `${value} is at ${[...offsets].join(" and ")}`);
    }
  }

  /** A repeated try with acks 1 may find that what it repeats was lost, or find it lost by another leader only. */
  #isStoredOnce({ acks, tries }: Send): boolean {
    return acks === -1 ? tries !== "repeated" : tries === "once" && !this.#mayReplay;
  }

  #findSkips(): void {
    // Visible records below each offset.
    const below = new Uint32Array(this.#visibleEnd + 1);
    for (let offset = 0; offset < this.#visibleEnd; offset += 1)
      below[offset + 1] = (below[offset] ?? 0) + (this.#visible.has(offset) ? 1 : 0);
    const countTo = (offset: number): number => below[Math.min(offset, this.#visibleEnd)] ?? 0;
    for (const { id, client, fromOffset, toOffset } of this.#jumps) {
      if (countTo(toOffset) > countTo(fromOffset))
        this.#note(id, `${client} jumped from ${fromOffset} to ${toOffset} over visible records`);
    }
  }

  /** With acks 1: of what is left, each record is behind what its producer sent before. */
  #findReordered(): void {
    if (this.#mayReplay) return;
    const ends = new Map<string, number>();
    for (const { client, acks, tries, outcome, values } of this.#sends.values()) {
      if (acks !== 1 || tries !== "once" || outcome.type !== "ok") continue;
      const { baseOffset } = outcome;
      if (this.#visible.get(baseOffset) !== values[0]) continue;
      const before = ends.get(client) ?? 0;
      if (baseOffset < before)
        this.#note("C9", `${client}: what is left at ${baseOffset} was sent after the end ${before}`);
      ends.set(client, baseOffset + values.length);
    }
  }

  /** What consumers have read, and what was acknowledged by all, is where it was. */
  #findLost(): void {
    for (const [offset, value] of this.#visible) if (!this.#final.has(offset)) this.#lost(offset, value);
    for (const { acks, tries, outcome, values } of this.#sends.values()) {
      if (acks !== -1 || outcome.type !== "ok") continue;
      for (const [at, value] of values.entries()) {
        const offset = outcome.baseOffset + at;
        // Read, it was looked at above. A second place, where there must be one, is wrong in another way.
        if (this.#visible.has(offset) || (tries !== "repeated" && (this.#offsetsOf.get(value)?.size ?? 0) > 1))
          continue;
        this.#lost(offset, value);
      }
    }
  }

  #lost(offset: number, value: string): void {
    if (this.#disputed.has(offset) || offset < this.#logStartOffset) return;
    if (offset < this.#visibleEnd) this.#note("C1", `${value} at ${offset} is not in the final read`);
    else this.#note("C10", `${value} at ${offset} was acknowledged, and all that was read ends at ${this.#visibleEnd}`);
  }

  #note(id: AnomalyId, what: string): void {
    this.anomalies.push({ id, what: `${ANOMALIES[id].split(":")[0]}: ${what}` });
  }
}

/** All that is wrong with a whole history. */
export function checkHistory(history: History): readonly Anomaly[] {
  const checker = new HistoryChecker(history);
  for (const event of history.events) checker.add(event);
  return checker.finish();
}
