import type { Kernel } from "./kernel.ts";
import { exponentialUs } from "./message-network-faults.ts";
import type { MessageFacts, MessageFaults } from "./message-network-faults.ts";
import type { SimulatedRandom } from "./random.ts";

/** What a link draws for. */
const SITES = [
  "delay",
  "drop",
  "corrupt",
  "replay",
  "replay-us",
  "victim",
  "tail",
  "tail-us",
  "clog",
  "clog-us",
  "overtake",
] as const;
type Site = (typeof SITES)[number];

const labels = new Map<string, { readonly request: string; readonly response: string }>();

function labelOf({ kind, type }: MessageFacts): string {
  let names = labels.get(kind);
  if (names === undefined) {
    names = { request: `message.request.${kind}`, response: `message.response.${kind}` };
    labels.set(kind, names);
  }
  return names[type];
}

/** A message on a link: how to know of a cut, what to do at its end, whom to tell of its faults. */
export interface Delivery {
  isCut(): boolean;
  arrive(isReplay: boolean, isCorrupt: boolean): void;
  tell(event: "dropped" | "cut" | "overflowed"): void;
}

interface Underway {
  readonly delivery: Delivery;
  isLost: boolean;
}

/**
 * The way from one node to another. Messages keep their order, as on one connection, unless drawn to overtake.
 *
 * Each fault draws from a site of its own, named by link and fault: taking one fault away leaves the other draws as they were.
 */
export class MessageLink {
  faults: MessageFaults;
  readonly #sites: Readonly<Record<Site, string>>;
  readonly #kernel: Kernel;
  readonly #random: SimulatedRandom;
  readonly #underway: Underway[] = [];
  /** When the last message that keeps the order arrives. */
  #lastUs = 0;
  /** As `#lastUs`, of those that were stalled. */
  #lastReleasedUs = 0;
  #isClogged = false;
  readonly #stalled: (() => void)[] = [];

  constructor(name: string, kernel: Kernel, random: SimulatedRandom, faults: MessageFaults) {
    this.#sites = Object.fromEntries(SITES.map((site) => [site, `message.${site}/${name}`])) as Record<Site, string>;
    this.#kernel = kernel;
    this.#random = random;
    this.faults = faults;
  }

  send(facts: MessageFacts, delivery: Delivery): void {
    if (this.#chance("drop", this.faults.dropPerMille)) return delivery.tell("dropped");
    this.#makeRoom();
    const isCorrupt = this.#chance("corrupt", this.faults.corruptPerMille);
    const message: Underway = { delivery, isLost: false };
    this.#underway.push(message);
    const label = labelOf(facts);
    this.#kernel.schedule(this.#delayUs(), label, () => this.#reach(message, isCorrupt));
    if (facts.type === "request" && this.#chance("replay", this.faults.replayPerMille)) {
      const laterUs = this.#below("replay-us", this.faults.replayUsMax);
      this.#kernel.schedule(laterUs, "message.replay", () => {
        if (!delivery.isCut()) delivery.arrive(true, false);
      });
    }
  }

  clog(): void {
    this.#isClogged = true;
  }

  unclog(): void {
    this.#isClogged = false;
    // Each in an event of its own, so that whoever looks on between events sees what each does; in their order, before what is sent next.
    for (const reach of this.#stalled.splice(0)) {
      this.#lastReleasedUs = Math.max(this.#kernel.nowUs, this.#lastReleasedUs) + 1;
      this.#lastUs = Math.max(this.#lastUs, this.#lastReleasedUs);
      this.#kernel.schedule(this.#lastReleasedUs - this.#kernel.nowUs, "message.released", reach);
    }
  }

  #reach(message: Underway, isCorrupt: boolean): void {
    if (this.#isClogged) {
      this.#stalled.push(() => this.#reach(message, isCorrupt));
      return;
    }
    const place = this.#underway.indexOf(message);
    if (place >= 0) this.#underway.splice(place, 1);
    if (message.isLost) return;
    if (message.delivery.isCut()) return message.delivery.tell("cut");
    message.delivery.arrive(false, isCorrupt);
  }

  #makeRoom(): void {
    if (this.#underway.length < this.faults.capacity) return;
    const [victim] = this.#underway.splice(this.#below("victim", this.#underway.length), 1);
    if (victim === undefined) return;
    victim.isLost = true;
    victim.delivery.tell("overflowed");
  }

  #delayUs(): number {
    const { delayUsMin, delayUsMean, tailPerMille, tailUsMax, clogPerMille, clogUsMean, overtakePerMille } =
      this.faults;
    let delayUs = delayUsMin + exponentialUs(this.#random.uint32(this.#sites.delay), delayUsMean);
    if (this.#chance("tail", tailPerMille)) delayUs += this.#below("tail-us", tailUsMax);
    if (this.#chance("clog", clogPerMille)) delayUs += this.#below("clog-us", 2 * clogUsMean);
    if (this.#chance("overtake", overtakePerMille)) return delayUs;
    // One microsecond apart: events due together may be run in any order.
    this.#lastUs = Math.max(this.#kernel.nowUs + delayUs, this.#lastUs + 1);
    return this.#lastUs - this.#kernel.nowUs;
  }

  #chance(fault: Site, perMille: number): boolean {
    return perMille > 0 && this.#below(fault, 1_000) < perMille;
  }

  #below(fault: Site, bound: number): number {
    return this.#random.below(this.#sites[fault], Math.max(1, bound));
  }
}
