import { Violation } from "./checker.ts";
import { HistoryChecker } from "./history-checker.ts";
import type { Anomaly, History, HistoryEvent } from "./history.ts";

type Begin = Extract<HistoryEvent, { type: "send" | "poll" | "askEnd" }>;
type End = Extract<HistoryEvent, { type: "sent" | "polled" | "toldEnd" | "refused" }>;
/** Of each member of a union. */
type Without<Event, Key extends PropertyKey> = Event extends unknown ? Omit<Event, Key> : never;

/** The history of a run's clients, judged while it grows. Every operation throws the first anomaly that shows with it as a `Violation`. */
export class ClientHistory implements History {
  readonly mayReplay: boolean;
  readonly events: HistoryEvent[] = [];
  readonly #checker: HistoryChecker;
  #nextOp = 1;

  constructor(options: { readonly mayReplay: boolean }) {
    this.mayReplay = options.mayReplay;
    this.#checker = new HistoryChecker(options);
  }

  /** That were begun. */
  get operationCount(): number {
    return this.#nextOp - 1;
  }

  /** @returns the operation's number, for `end` */
  begin(event: Without<Begin, "op">): number {
    const op = this.#nextOp;
    this.#nextOp += 1;
    this.#add({ ...event, op });
    return op;
  }

  end(event: End): void {
    this.#add(event);
  }

  /** What is read from now on is the final read. @param logStartOffset what lies below was deleted */
  quiet(logStartOffset = 0): void {
    this.#add({ type: "quiet", logStartOffset });
  }

  /** Judges the whole of it. */
  finish(): void {
    violate(this.#checker.finish());
  }

  #add(event: HistoryEvent): void {
    this.events.push(event);
    this.#checker.add(event);
    violate(this.#checker.anomalies);
  }
}

function violate([first]: readonly Anomaly[]): void {
  if (first !== undefined) throw new Violation(first.id, first.what);
}
