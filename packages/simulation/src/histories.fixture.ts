import { SimulatedRandom } from "@tidemark/simulator";
import type { AnomalyId, History, HistoryEvent, SeenRecord, Tries } from "./history.ts";

type Draw = (site: string, bound: number) => number;
type SendEvent = Extract<HistoryEvent, { type: "send" }>;

interface PendingSend {
  readonly send: SendEvent;
  readonly isNamed: boolean;
  tries: number;
  /** Where its last try is in the leader's log, unless it was cut since. */
  baseOffset: number | undefined;
}

/** Producers of the model: with acks all or 1, with a producer id or without. */
const PRODUCERS = [
  { client: "all", acks: -1, isNamed: true },
  { client: "all too", acks: -1, isNamed: true },
  { client: "nameless", acks: -1, isNamed: false },
  { client: "one", acks: 1, isNamed: true },
] as const;

const STEPS = 160;

/**
 * A valid history of one log: a leader's log with a committed part, which is never cut, and an end that a change of leaders cuts anywhere.
 * Producers, two consumers that follow, one that reads here and there, and somebody who asks for the end; operations overlap.
 */
export function validHistory(seed: number): History {
  return new Model(seed).run();
}

class Model {
  readonly #random: SimulatedRandom;
  readonly #events: HistoryEvent[] = [];
  readonly #pending = new Map<string, PendingSend>();
  readonly #polling = new Map<string, { readonly op: number; readonly fromOffset: number }>();
  readonly #positions = new Map<string, number>();
  readonly #log: string[] = [];
  /** Where batches end, the last of them at the log's end. Only there the committed part ends, and only there a log is cut. */
  #borders: number[] = [0];
  #committed = 0;
  #nextOp = 1;
  #nextValue = 1;
  #asked: number | undefined;

  constructor(seed: number) {
    this.#random = new SimulatedRandom(seed);
  }

  run(): History {
    const steps = [
      () => this.#produce(),
      () => this.#produce(),
      () => this.#commit(),
      () => this.#poll("reader"),
      () => this.#poll("other reader"),
      () => this.#glance(),
      () => this.#askEnd(),
      () => this.#changeLeader(),
    ];
    for (let step = 0; step < STEPS; step += 1) steps[this.#below("step", steps.length)]?.();
    for (const client of this.#pending.keys()) this.#settle(client, true);
    this.#committed = this.#log.length;
    for (const client of ["reader", "other reader"]) this.#complete(client);
    this.#tellEnd();
    this.#events.push({ type: "quiet", logStartOffset: 0 });
    while ((this.#positions.get("final") ?? 0) < this.#log.length) this.#poll("final");
    this.#askEnd();
    this.#askEnd();
    return { mayReplay: this.#below("replay", 4) === 0, events: this.#events };
  }

  #below(site: string, bound: number): number {
    return this.#random.below(`history.${site}`, bound);
  }

  #produce(): void {
    const producer = PRODUCERS[this.#below("producer", PRODUCERS.length)] ?? PRODUCERS[0];
    const { client, acks, isNamed } = producer;
    if (this.#pending.has(client)) return this.#settle(client, false);
    const values = Array.from({ length: 1 + this.#below("count", 3) }, () => `v${this.#nextValue++}`);
    const send: SendEvent = { type: "send", op: this.#nextOp++, client, acks, values };
    this.#events.push(send);
    this.#pending.set(client, { send, isNamed, tries: 0, baseOffset: undefined });
    if (this.#below("arrives", 4) > 0) this.#append(client);
  }

  #append(client: string): void {
    const pending = this.#pending.get(client);
    if (pending === undefined) return;
    pending.tries += 1;
    if (pending.baseOffset !== undefined && pending.isNamed) return;
    pending.baseOffset = this.#log.length;
    this.#log.push(...pending.send.values);
    this.#borders.push(this.#log.length);
  }

  #settle(client: string, isLast: boolean): void {
    const pending = this.#pending.get(client);
    if (pending === undefined) return;
    const { send, baseOffset, isNamed } = pending;
    const tries: Tries = pending.tries < 2 ? "once" : isNamed ? "idempotent" : "repeated";
    const isThere = baseOffset !== undefined && (send.acks === 1 || baseOffset + send.values.length <= this.#committed);
    let outcome: Extract<HistoryEvent, { type: "sent" }>["outcome"];
    if (isThere) outcome = { type: "ok", baseOffset };
    else if (pending.tries === 0 && this.#below("fails", 2) === 0) outcome = { type: "fail" };
    else if (isLast || this.#below("gives-up", 3) === 0) outcome = { type: "unknown" };
    else return this.#append(client);
    this.#pending.delete(client);
    this.#events.push({ type: "sent", op: send.op, tries, outcome });
  }

  #commit(): void {
    this.#committed = this.#border("commit");
  }

  #changeLeader(): void {
    const end = this.#border("cut");
    this.#log.length = end;
    this.#borders = this.#borders.filter((border) => border <= end);
    for (const pending of this.#pending.values())
      if (pending.baseOffset !== undefined && pending.baseOffset >= end) pending.baseOffset = undefined;
  }

  /** One at or above the committed end. */
  #border(site: string): number {
    const borders = this.#borders.filter((border) => border >= this.#committed);
    return borders[this.#below(site, borders.length)] ?? this.#committed;
  }

  #poll(client: string): void {
    if (this.#polling.has(client)) return this.#complete(client);
    const known = this.#positions.get(client);
    const fromOffset = known ?? (client === "final" ? 0 : this.#below("begin", this.#committed + 1));
    const op = this.#nextOp++;
    this.#events.push({ type: "poll", op, client, fromOffset, isAssigned: known === undefined });
    this.#positions.set(client, fromOffset);
    this.#polling.set(client, { op, fromOffset });
    if (client === "final") this.#complete(client);
  }

  #complete(client: string): void {
    const polling = this.#polling.get(client);
    if (polling === undefined) return;
    this.#polling.delete(client);
    if (client !== "final" && this.#below("refused", 5) === 0) {
      this.#events.push({ type: "refused", op: polling.op });
      return;
    }
    const records = this.#recordsFrom(polling.fromOffset);
    this.#events.push({ type: "polled", op: polling.op, records });
    this.#positions.set(client, polling.fromOffset + records.length);
  }

  #recordsFrom(fromOffset: number): SeenRecord[] {
    const end = Math.min(this.#committed, fromOffset + 1 + this.#below("many", 12));
    return this.#log.slice(fromOffset, end).map((value, at) => ({ offset: fromOffset + at, value }));
  }

  #glance(): void {
    const fromOffset = this.#below("glance", this.#committed + 1);
    const op = this.#nextOp++;
    this.#events.push({ type: "poll", op, client: "glancer", fromOffset, isAssigned: true });
    this.#events.push({ type: "polled", op, records: this.#recordsFrom(fromOffset) });
  }

  #askEnd(): void {
    if (this.#asked !== undefined) return this.#tellEnd();
    this.#asked = this.#nextOp++;
    this.#events.push({ type: "askEnd", op: this.#asked, client: "end" });
  }

  #tellEnd(): void {
    if (this.#asked === undefined) return;
    const highWatermark = this.#positions.has("final") ? this.#committed : this.#below("lags", this.#committed + 1);
    this.#events.push({ type: "toldEnd", op: this.#asked, logEndOffset: this.#log.length, highWatermark });
    this.#asked = undefined;
  }
}

// ---- corruptions -----------------------------------------------------------------------------------------------------

/** A history as pairs of what began and how it ended, for looking things up. */
class Facts {
  readonly events: readonly HistoryEvent[];
  readonly final: readonly SeenRecord[];
  readonly sends: readonly {
    readonly send: SendEvent;
    readonly at: number;
    readonly sent: Extract<HistoryEvent, { type: "sent" }>;
  }[];
  readonly polled: readonly {
    readonly at: number;
    readonly isFinal: boolean;
    readonly records: readonly SeenRecord[];
    readonly isAssigned: boolean;
  }[];

  constructor({ events }: History) {
    this.events = events;
    const polls = new Map(events.flatMap((event) => (event.type === "poll" ? [[event.op, event] as const] : [])));
    const quiet = events.findIndex(({ type }) => type === "quiet");
    this.polled = events.flatMap((event, at) =>
      event.type === "polled"
        ? [{ at, isFinal: at > quiet, records: event.records, isAssigned: polls.get(event.op)?.isAssigned ?? false }]
        : [],
    );
    this.final = this.polled.filter(({ isFinal }) => isFinal).flatMap(({ records }) => records);
    this.sends = events.flatMap((send, at) => {
      if (send.type !== "send") return [];
      const sent = events.find((other) => other.type === "sent" && other.op === send.op);
      return sent?.type === "sent" ? [{ send, at, sent }] : [];
    });
  }

  isFinal(value: string): boolean {
    return this.final.some((record) => record.value === value);
  }
}

/** With the records of every poll changed. */
function mapRecords(
  history: History,
  map: (records: readonly SeenRecord[], at: number) => readonly SeenRecord[],
): History {
  const events = history.events.map((event, at) =>
    event.type === "polled" ? { ...event, records: map(event.records, at) } : event,
  );
  return { ...history, events };
}

function mapEvent(history: History, at: number, event: HistoryEvent): History {
  return { ...history, events: history.events.with(at, event) };
}

type Corruption = (history: History, below: Draw) => History | undefined;

function pick<Value>(below: Draw, values: readonly Value[]): Value | undefined {
  return values[below("pick", Math.max(1, values.length))];
}

/** Each makes a valid history wrong in one way; `undefined` where the history has no place for it. */
export const CORRUPTIONS: Readonly<Record<AnomalyId, Corruption>> = {
  C1: (history, below) => {
    const { sends, final } = new Facts(history);
    const last = final.at(-1)?.offset ?? 0;
    const lost = pick(
      below,
      sends
        .flatMap(({ send, sent }) =>
          send.acks === -1 && sent.tries !== "repeated" && sent.outcome.type === "ok"
            ? send.values.map((_, at) => (sent.outcome.type === "ok" ? sent.outcome.baseOffset + at : -1))
            : [],
        )
        .filter((offset) => offset < last),
    );
    return lost === undefined
      ? undefined
      : mapRecords(history, (records) => records.filter(({ offset }) => offset !== lost));
  },
  C2: (history, below) => {
    const facts = new Facts(history);
    // A value that is in no log takes a place in one poll, of an offset that others see too.
    const place = pick(
      below,
      facts.polled.filter(({ records, at }) => records.some(({ offset }) => countSeen(facts, offset, at) > 0)),
    );
    const stranger = facts.sends.find(
      ({ send, sent, at }) =>
        sent.outcome.type === "unknown" && at < (place?.at ?? 0) && !send.values.some((value) => facts.isFinal(value)),
    )?.send.values[0];
    const offset = place?.records.find((record) => countSeen(facts, record.offset, place.at) > 0)?.offset;
    if (place === undefined || stranger === undefined) return undefined;
    return mapRecords(history, (records, at) =>
      at === place.at
        ? records.map((record) => (record.offset === offset ? { ...record, value: stranger } : record))
        : records,
    );
  },
  C3: (history, below) => {
    const facts = new Facts(history);
    const stored = facts.sends.filter(
      ({ send, sent }) =>
        send.acks === -1 && sent.tries !== "repeated" && send.values.every((value) => facts.isFinal(value)),
    );
    const twice = pick(below, stored)?.send.values[0];
    const last = facts.final.at(-1)?.offset;
    if (twice === undefined || last === undefined) return undefined;
    return mapRecords(history, (records, at) =>
      at === facts.polled.at(-1)?.at ? [...records, { offset: last + 1, value: twice }] : records,
    );
  },
  C4: (history, below) => {
    const facts = new Facts(history);
    const read = pick(
      below,
      facts.sends.filter(({ send }) => send.values.some((value) => facts.isFinal(value))),
    );
    if (read === undefined) return undefined;
    const at = history.events.indexOf(read.sent);
    return mapEvent(history, at, { ...read.sent, outcome: { type: "fail" } });
  },
  C5: (history, below) => {
    const facts = new Facts(history);
    const last = facts.polled.at(-1);
    const end = facts.final.at(-1)?.offset;
    if (last === undefined || end === undefined) return undefined;
    if (below("kind", 2) === 0)
      return mapRecords(history, (records, at) =>
        at === last.at ? [...records, { offset: end + 1, value: "phantom" }] : records,
      );
    // Read before it was sent: the send's begin moves behind the read.
    const early = pick(
      below,
      facts.sends.filter(
        ({ send, sent }) => sent.outcome.type === "unknown" && send.values.some((value) => facts.isFinal(value)),
      ),
    );
    if (early === undefined) return undefined;
    const rest = history.events.filter((event) => event !== early.send && event !== early.sent);
    return { ...history, events: [...rest, early.send, early.sent] };
  },
  C6: (history, below) => {
    const facts = new Facts(history);
    const later = pick(
      below,
      facts.polled.filter(({ records, isAssigned }) => !isAssigned && (records[0]?.offset ?? 0) > 0),
    );
    const [first] = later?.records ?? [];
    if (later === undefined || first === undefined) return undefined;
    const again = facts.final[first.offset - 1];
    if (again === undefined) return undefined;
    return mapRecords(history, (records, at) => (at === later.at ? [again, ...records] : records));
  },
  C7: (history, below) => {
    const facts = new Facts(history);
    const skipping = pick(
      below,
      facts.polled.filter(
        ({ records, at, isFinal }) =>
          !isFinal && records.length > 1 && countSeen(facts, records[0]?.offset ?? 0, at) > 0,
      ),
    );
    if (skipping === undefined) return undefined;
    return mapRecords(history, (records, at) => (at === skipping.at ? records.slice(1) : records));
  },
  C8: (history, below) => {
    const facts = new Facts(history);
    const long = pick(
      below,
      facts.polled.filter(
        ({ records, at, isFinal }) =>
          !isFinal && records.length > 2 && countSeen(facts, records[1]?.offset ?? 0, at) > 0,
      ),
    );
    if (long === undefined) return undefined;
    const swaps = below("kind", 2) === 0;
    return mapRecords(history, (records, at) => {
      if (at !== long.at) return records;
      const [first, second, third, ...rest] = records;
      if (first === undefined || second === undefined || third === undefined) return records;
      return swaps ? [first, third, second, ...rest] : [first, third, ...rest];
    });
  },
  C9: (history, below) => {
    const facts = new Facts(history);
    const candidates = facts.sends.flatMap((first, index) => {
      const second = facts.sends.slice(index + 1).find(({ send }) => send.client === first.send.client);
      if (second === undefined || !isExact(facts, first) || !isExact(facts, second)) return [];
      if (first.send.acks === 1 && history.mayReplay) return [];
      if (first.send.values.length !== second.send.values.length) return [];
      // Whoever read either must not have done so before the second was sent, and nobody must have asked for the end in between.
      const ranges = [first, second].map(({ sent, send: { values } }) => ({
        from: sent.outcome.type === "ok" ? sent.outcome.baseOffset : -1,
        count: values.length,
      }));
      const isReadEarly = facts.polled.some(
        ({ at, records }) =>
          at < second.at &&
          records.some(({ offset }) => ranges.some(({ from, count }) => offset >= from && offset < from + count)),
      );
      const between = facts.events.slice(facts.events.indexOf(first.sent), facts.events.indexOf(second.sent));
      return isReadEarly || between.some(({ type }) => type === "askEnd") ? [] : [[first, second] as const];
    });
    const pair = pick(below, candidates);
    if (pair === undefined) return undefined;
    const [first, second] = pair;
    const renamed = new Map<string, string>();
    for (const [at, value] of first.send.values.entries()) {
      const other = second.send.values[at] ?? "";
      renamed.set(value, other).set(other, value);
    }
    const swapped = mapRecords(history, (records) =>
      records.map((record) => ({ ...record, value: renamed.get(record.value) ?? record.value })),
    );
    const firstAt = history.events.indexOf(first.sent);
    const secondAt = history.events.indexOf(second.sent);
    return mapEvent(mapEvent(swapped, firstAt, { ...first.sent, outcome: second.sent.outcome }), secondAt, {
      ...second.sent,
      outcome: first.sent.outcome,
    });
  },
  C10: (history, below) => {
    const { sends } = new Facts(history);
    const unseen = pick(
      below,
      sends.flatMap(({ send, sent }) =>
        send.acks === -1 && sent.tries !== "repeated" && sent.outcome.type === "ok" ? [sent.outcome.baseOffset] : [],
      ),
    );
    return unseen === undefined
      ? undefined
      : mapRecords(history, (records) => records.filter(({ offset }) => offset < unseen));
  },
  C13: (history, below) => {
    const facts = new Facts(history);
    const told = pick(
      below,
      facts.events.flatMap((event, at) => {
        if (event.type !== "toldEnd") return [];
        const asked = facts.events.findIndex((other) => other.type === "askEnd" && other.op === event.op);
        const before = facts.sends.filter(({ send, sent }) => send.acks === -1 && facts.events.indexOf(sent) < asked);
        const ends = before.map(({ send, sent }) =>
          sent.outcome.type === "ok" ? sent.outcome.baseOffset + send.values.length : 0,
        );
        const end = Math.max(0, ...ends);
        return end === 0 ? [] : [{ at, event, end }];
      }),
    );
    if (told === undefined) return undefined;
    const logEndOffset = below("stale", told.end);
    return mapEvent(history, told.at, { ...told.event, logEndOffset, highWatermark: logEndOffset });
  },
};

/** In how many other polls an offset is. */
function countSeen(facts: Facts, offset: number, exceptAt: number): number {
  return facts.polled.filter(({ at, records }) => at !== exceptAt && records.some((record) => record.offset === offset))
    .length;
}

/** Acknowledged at a place, sent once, and still there. */
function isExact(facts: Facts, { send, sent }: Facts["sends"][number]): boolean {
  if (sent.outcome.type !== "ok" || sent.tries !== "once") return false;
  const { baseOffset } = sent.outcome;
  return send.values.every((value, at) => facts.final[baseOffset + at]?.value === value);
}
