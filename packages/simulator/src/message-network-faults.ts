import type { PeerKind } from "@tidemark/wire";
import type { SimulatedRandom } from "./random.ts";

/** What a link does to messages of itself; drawn anew for each message. Chances are in thousandths. */
export interface MessageFaults {
  /** Every message takes at least this. */
  readonly delayUsMin: number;
  /** On top of it: exponentially distributed with this mean. */
  readonly delayUsMean: number;
  /** Chance of a delay of up to `tailUsMax` on top. */
  readonly tailPerMille: number;
  readonly tailUsMax: number;
  /** Chance that a message is lost: its request times out. */
  readonly dropPerMille: number;
  /** Chance that a request comes once more, up to `replayUsMax` later: also after a crash, to the next process. */
  readonly replayPerMille: number;
  readonly replayUsMax: number;
  /** Chance that a message may overtake those sent before it. Otherwise they keep their order, as on one connection. */
  readonly overtakePerMille: number;
  /** Chance that a message finds the link stalled for up to twice `clogUsMean`. Nothing is lost. */
  readonly clogPerMille: number;
  readonly clogUsMean: number;
  /** Messages under way on a link; with more a random one is lost. */
  readonly capacity: number;
  /** Chance that one bit of the frame changes on the way. Its CRCs have to catch it, and the connection is closed. */
  readonly corruptPerMille: number;
}

/** Prompt, in order, nothing lost. */
export const QUIET: MessageFaults = {
  delayUsMin: 50,
  delayUsMean: 200,
  tailPerMille: 0,
  tailUsMax: 0,
  dropPerMille: 0,
  replayPerMille: 0,
  replayUsMax: 0,
  overtakePerMille: 0,
  clogPerMille: 0,
  clogUsMean: 0,
  capacity: 10_000,
  corruptPerMille: 0,
};

/**
 * Faults of one run, by the swarm rule: each class is off with a chance of one half, and else has a strength of its own. With all of them on
 * in every run they would hide each other.
 * Ranges: tigerbeetle/tigerbeetle src/vopr.zig, options_swarm; swarm testing: Groce et al., ISSTA 2012.
 */
export function drawMessageFaults(random: SimulatedRandom): MessageFaults {
  const upTo = (name: string, max: number): number =>
    random.below(`swarm.${name}.on`, 2) === 0 ? 0 : 1 + random.below(`swarm.${name}`, max);
  const capacity = upTo("capacity", 19);
  return {
    delayUsMin: upTo("delay-min", 30_000),
    delayUsMean: 1_000 + upTo("delay-mean", 199_000),
    tailPerMille: upTo("tail", 5),
    tailUsMax: 10_000_000,
    dropPerMille: upTo("drop", 300),
    replayPerMille: upTo("replay", 500),
    replayUsMax: 1 + random.below("swarm.replay-us", 60_000_000),
    overtakePerMille: upTo("overtake", 200),
    clogPerMille: upTo("clog", 20),
    clogUsMean: 1 + random.below("swarm.clog-us", 5_000_000),
    capacity: capacity === 0 ? QUIET.capacity : 1 + capacity,
    corruptPerMille: upTo("corrupt", 20),
  };
}

/** -mean x ln(u) by the four operations alone: `Math.log` may differ from engine to engine. Within 1 % of the true curve. */
export function exponentialUs(draw: number, meanUs: number): number {
  // u = 2^-(zeros + 1) x (1 + f), and ln(1 + f) = 2 (s + s^3/3 + ...) with s = f / (2 + f).
  const zeros = Math.min(Math.clz32(draw), 30);
  const f = ((draw << (zeros + 1)) >>> 0) / 2 ** 32;
  const s = f / (2 + f);
  return Math.floor(meanUs * ((zeros + 1) * 0.693_147 - 2 * s * (1 + (s * s) / 3)));
}

/** Which messages a scripted fault strikes; what is left out matches all. */
export interface MessageFilter {
  readonly from?: number;
  readonly to?: number;
  readonly kind?: PeerKind;
  readonly type?: "request" | "response";
  /** Matching messages that go well first. Default 0. */
  readonly skip?: number;
  /** Messages that are struck then. Default: all. */
  readonly count?: number;
}

export interface MessageFacts {
  readonly from: number;
  readonly to: number;
  readonly kind: PeerKind;
  readonly type: "request" | "response";
}

/** A scripted fault in place. */
export interface MessageFault {
  /** Messages that it has struck so far. */
  readonly hits: number;
  cancel(): void;
}

/** Held messages, until released. */
export interface HeldMessages extends MessageFault {
  /** Lets what is held go on its way, oldest first, and holds no more. */
  release(): void;
}

/** One scripted fault: decides for each message whether it is struck. */
export class ActiveMessageFault implements MessageFault {
  readonly #filter: MessageFilter;
  #matches = 0;
  #isCancelled = false;
  hits = 0;

  constructor(filter: MessageFilter) {
    this.#filter = filter;
  }

  cancel(): void {
    this.#isCancelled = true;
  }

  get isCancelled(): boolean {
    return this.#isCancelled;
  }

  strikes(message: MessageFacts): boolean {
    const { from, to, kind, type, skip = 0, count = Infinity } = this.#filter;
    if (this.#isCancelled || this.hits >= count) return false;
    if (from !== undefined && from !== message.from) return false;
    if (to !== undefined && to !== message.to) return false;
    if (kind !== undefined && kind !== message.kind) return false;
    if (type !== undefined && type !== message.type) return false;
    if (this.#matches++ < skip) return false;
    this.hits++;
    return true;
  }
}
