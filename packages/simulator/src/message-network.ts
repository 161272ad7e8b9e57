import { isDeepStrictEqual } from "node:util";
import type { Timer } from "@tidemark/base";
import { fail } from "@tidemark/base";
import { encodeFrame, FrameDecoder, PeerError } from "@tidemark/wire";
import type {
  Frame,
  PeerAddress,
  PeerErrorType,
  PeerHandler,
  PeerRequest,
  PeerResponse,
  PeerTransport,
  ResponseTo,
} from "@tidemark/wire";
import type { Kernel } from "./kernel.ts";
import { copyMessage } from "./message-copy.ts";
import { MessageLink } from "./message-network-link.ts";
import { ActiveMessageFault, QUIET } from "./message-network-faults.ts";
import type {
  HeldMessages,
  MessageFacts,
  MessageFault,
  MessageFaults,
  MessageFilter,
} from "./message-network-faults.ts";
import type { SimulatedRandom } from "./random.ts";

/** One message in so many goes through the real frames, which have to give what the copy gives. */
const FRAMED_ONE_IN = 256;

/** Node ids are below. */
const NODES_MAX = 2 ** 26;

/** As many as one connection of the real transport has. */
const IN_FLIGHT_MAX_DEFAULT = 256;

export interface SimulatedMessageNetworkOptions {
  readonly kernel: Kernel;
  readonly random: SimulatedRandom;
  /** Of every link. Default `QUIET`. */
  readonly faults?: Partial<MessageFaults>;
  /** Requests of one node to one other without an answer; more are QUEUE_FULL. Default 256. */
  readonly inFlightMax?: number;
}

/** What happened to a message, for traces and counts. */
export type MessageEvent =
  | "sent"
  | "delivered"
  | "replayed"
  | "dropped"
  | "cut"
  | "overflowed"
  | "held"
  | "corrupted"
  /** A request for a process that is not there, or no longer the same. */
  | "refused"
  /** An answer that nobody waits for any more. */
  | "late";

/** A request under way, in the hands of the process that made it. */
interface Call {
  readonly peer: SimulatedPeer;
  readonly request: PeerRequest;
  /** The process that it was sent to, if one was there and served. */
  readonly target: SimulatedPeer | undefined;
  readonly addressKey: string;
  readonly to: number;
  readonly timer: Timer;
  readonly resolve: (response: PeerResponse) => void;
  readonly reject: (error: PeerError) => void;
  isSettled: boolean;
}

/**
 * Messages between nodes over the kernel's time, without streams: requests and answers go one by one over directed links, each with its faults.
 *
 * Faults come in two ways: drawn for every message by `setFaults` (and `startMessageSwarm`), or scripted, `cut`, `partition`, `isolate`,
 * `heal`, `clog`, `drop`, `hold`, `replay`. Everything follows from the seed. Neither side sees the other's memory: a message is copied, and
 * one in 256, and each whose bytes change on the way, goes through the real frames.
 */
export class SimulatedMessageNetwork {
  /** Called for everything that happens to a message. */
  onEvent: ((event: MessageEvent, message: MessageFacts) => void) | undefined;
  readonly kernel: Kernel;
  readonly random: SimulatedRandom;
  readonly inFlightMax: number;
  readonly #peers = new Map<string, SimulatedPeer>();
  readonly #links = new Map<number, MessageLink>();
  readonly #cuts = new Set<string>();
  readonly #drops: ActiveMessageFault[] = [];
  readonly #replays: { readonly fault: ActiveMessageFault; readonly afterUs: number }[] = [];
  readonly #holds: { readonly fault: ActiveMessageFault; readonly held: (() => void)[] }[] = [];
  #faults: MessageFaults;
  /** Messages that were put on their way. */
  #messageCount = 0;

  constructor(options: SimulatedMessageNetworkOptions) {
    this.kernel = options.kernel;
    this.random = options.random;
    this.inFlightMax = options.inFlightMax ?? IN_FLIGHT_MAX_DEFAULT;
    this.#faults = { ...QUIET, ...options.faults };
  }

  /** A new process of a node. The one before at the same address must have crashed or closed. */
  join(address: PeerAddress): SimulatedPeer {
    const key = addressKey(address);
    const before = this.#peers.get(key);
    if (before?.state === "alive") fail("one process at a time at an address", { key });
    if (before !== undefined) this.disconnect(before);
    const peer = new SimulatedPeer(this, address);
    this.#peers.set(key, peer);
    return peer;
  }

  /** For all links, or for those of `link`; a later call for all links replaces those too. */
  setFaults(faults: Partial<MessageFaults>, link?: { readonly from: number; readonly to: number }): void {
    if (link !== undefined) {
      const one = this.#link(link.from, link.to);
      one.faults = { ...one.faults, ...faults };
      return;
    }
    this.#faults = { ...this.#faults, ...faults };
    for (const one of this.#links.values()) one.faults = this.#faults;
  }

  /** Nothing arrives from one node at the other, or nothing of one kind: lost, those under way too. */
  cut(from: number, to: number, kind?: PeerRequest["kind"]): void {
    this.#cuts.add(cutName(from, to, kind));
  }

  /** Cuts in force, as `FROM>TO` or `FROM>TO/KIND`. */
  get cuts(): ReadonlySet<string> {
    return this.#cuts;
  }

  /** Cuts both ways. */
  partition(first: number, second: number): void {
    this.cut(first, second);
    this.cut(second, first);
  }

  /** Cuts a node off from all others that have joined. */
  isolate(node: number): void {
    for (const other of this.nodes) if (other !== node) this.partition(node, other);
  }

  /** Ends all cuts, or those between two nodes. */
  heal(first?: number, second?: number): void {
    if (first === undefined || second === undefined) return this.#cuts.clear();
    for (const name of this.#cuts) {
      const [ends] = name.split("/");
      if (ends === `${first}>${second}` || ends === `${second}>${first}`) this.#cuts.delete(name);
    }
  }

  /** The link stalls, nothing is lost: for a while, or until `unclog`. */
  clog(from: number, to: number, durationUs?: number): void {
    this.#link(from, to).clog();
    if (durationUs !== undefined) this.kernel.schedule(durationUs, "message.unclog", () => this.unclog(from, to));
  }

  unclog(from: number, to: number): void {
    this.#link(from, to).unclog();
  }

  /** Loses the messages of the filter. */
  drop(filter: MessageFilter): MessageFault {
    const fault = new ActiveMessageFault(filter);
    forgetCancelled(this.#drops, (drop) => drop);
    this.#drops.push(fault);
    return fault;
  }

  /** The requests of the filter come once more, `afterUs` after they were sent. */
  replay(filter: Omit<MessageFilter, "type">, afterUs: number): MessageFault {
    const fault = new ActiveMessageFault({ ...filter, type: "request" });
    forgetCancelled(this.#replays, (replay) => replay.fault);
    this.#replays.push({ fault, afterUs });
    return fault;
  }

  /** Keeps the messages of the filter back until released. Their requests may time out meanwhile. */
  hold(filter: MessageFilter): HeldMessages {
    const fault = new ActiveMessageFault(filter);
    const held: (() => void)[] = [];
    forgetCancelled(this.#holds, (hold) => hold.fault);
    this.#holds.push({ fault, held });
    return {
      get hits() {
        return fault.hits;
      },
      cancel: () => fault.cancel(),
      release: () => {
        fault.cancel();
        for (const send of held.splice(0)) send();
      },
    };
  }

  /** Ids of all nodes that have ever joined, ascending. */
  get nodes(): readonly number[] {
    const ids = new Set([...this.#peers.values()].map((peer) => peer.address.nodeId));
    return [...ids].sort((first, second) => first - second);
  }

  /** The process that answers at the address. */
  serverAt(key: string): SimulatedPeer | undefined {
    const peer = this.#peers.get(key);
    return peer?.isRunning === true && peer.handler !== undefined ? peer : undefined;
  }

  /** Puts a request on its way. */
  sendRequest(call: Call): void {
    const facts: MessageFacts = {
      from: call.peer.address.nodeId,
      to: call.to,
      kind: call.request.kind,
      type: "request",
    };
    const message = this.#pack(call.request, facts);
    this.#send(facts, (isReplay, isCorrupt) => this.#arriveRequest(call, facts, message(isCorrupt), isReplay));
  }

  #arriveRequest(call: Call, facts: MessageFacts, request: PeerRequest | undefined, isReplay: boolean): void {
    const target = this.#peers.get(call.addressKey);
    const isSame = call.target === undefined || target === call.target;
    if (target?.handler === undefined || !target.isRunning || !(isSame || isReplay)) {
      this.#tell(facts, "refused");
      // A silent machine answers nothing. A dead process's kernel does, and so the sender learns of it.
      if (!isReplay && target?.state !== "machine dead") {
        this.#refuse(call, facts, call.target === undefined ? "UNREACHABLE" : "DISCONNECTED");
      }
      return;
    }
    if (request === undefined) return this.#loseConnection(call, facts);
    this.#tell(facts, isReplay ? "replayed" : "delivered");
    void this.#answer(target, target.handler, request, call, isReplay);
  }

  async #answer(
    target: SimulatedPeer,
    handler: PeerHandler,
    request: PeerRequest,
    call: Call,
    isReplay: boolean,
  ): Promise<void> {
    const { nodeId, host, port } = call.peer.address;
    const response = await handler(request, { remote: `${host}:${port}` });
    if (!target.isRunning) return;
    if (response.kind !== request.kind) fail("an answer is of its request's kind", { request: request.kind });
    const facts: MessageFacts = { from: call.to, to: nodeId, kind: request.kind, type: "response" };
    const message = this.#pack(response, facts);
    this.#send(facts, (_isReplay, isCorrupt) => {
      // The answer to a replayed request has no connection to travel on.
      if (isReplay || call.isSettled || call.peer.state !== "alive") return this.#tell(facts, "late");
      const arrived = message(isCorrupt);
      if (arrived === undefined) return this.#loseConnection(call, facts);
      this.#tell(facts, "delivered");
      call.resolve(arrived);
    });
  }

  /** The process that `peer` was is gone: who waits for it learns so, unless its whole machine went. */
  disconnect(peer: SimulatedPeer): void {
    for (const other of this.#peers.values()) {
      for (const call of other.calls) {
        if (call.target !== peer) continue;
        this.#refuse(
          call,
          { from: call.to, to: other.address.nodeId, kind: call.request.kind, type: "response" },
          "DISCONNECTED",
        );
      }
    }
  }

  /** The news of a connection that is none travels like an answer: it may be late or lost. */
  #refuse(call: Call, facts: MessageFacts, code: PeerErrorType): void {
    const back: MessageFacts =
      facts.type === "response" ? facts : { ...facts, from: facts.to, to: facts.from, type: "response" };
    this.#send(back, () => {
      if (!call.isSettled && call.peer.state === "alive")
        call.reject(new PeerError(code, `${call.addressKey} is gone`));
    });
  }

  #send(facts: MessageFacts, arrive: (isReplay: boolean, isCorrupt: boolean) => void): void {
    this.#tell(facts, "sent");
    if (this.#drops.length > 0 && this.#drops.some((fault) => fault.strikes(facts)))
      return this.#tell(facts, "dropped");
    for (const { fault, afterUs } of this.#replays) {
      if (fault.strikes(facts)) this.kernel.schedule(afterUs, "message.replay", () => arrive(true, false));
    }
    for (const { fault, held } of this.#holds) {
      if (!fault.strikes(facts)) continue;
      held.push(() => this.#sendOn(facts, arrive));
      return this.#tell(facts, "held");
    }
    this.#sendOn(facts, arrive);
  }

  #sendOn(facts: MessageFacts, arrive: (isReplay: boolean, isCorrupt: boolean) => void): void {
    this.#link(facts.from, facts.to).send(facts, {
      isCut: () => this.#isCut(facts),
      arrive,
      tell: (event) => this.#tell(facts, event),
    });
  }

  #isCut(facts: MessageFacts): boolean {
    const { from, to, kind } = facts;
    if (this.#cuts.size === 0) return false;
    return this.#cuts.has(cutName(from, to)) || this.#cuts.has(cutName(from, to, kind));
  }

  /** To be called when the message is sent. @returns gives it as it arrives, in memory of its own; `undefined` when it is refused there */
  #pack<Message extends PeerRequest | PeerResponse>(
    message: Message,
    facts: MessageFacts,
  ): (isCorrupt: boolean) => Message | undefined {
    this.#messageCount += 1;
    const frame = { type: facts.type, correlationId: 0, message } as Frame;
    const parts = this.#messageCount % FRAMED_ONE_IN === 0 ? encodeFrame(frame) : undefined;
    return (isCorrupt) => {
      if (parts === undefined && !isCorrupt) return copyMessage(message);
      const arrived = this.#transport(parts ?? encodeFrame(frame), facts, isCorrupt);
      // Nobody has changed the message since it was sent, and a copy is as good as a frame.
      if (arrived !== undefined && !isDeepStrictEqual(arrived.message, copyMessage(message)))
        fail("a message arrives as it was sent", { kind: facts.kind, type: facts.type });
      return arrived?.message as Message | undefined;
    };
  }

  /** The frame as the other side decodes it, in memory of its own; `undefined` when it refuses it. */
  #transport(parts: readonly Uint8Array[], facts: MessageFacts, isCorrupt: boolean): Frame | undefined {
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let position = 0;
    for (const part of parts) {
      bytes.set(part, position);
      position += part.length;
    }
    if (isCorrupt) {
      const bit = this.random.below("message.corrupt-bit", bytes.length * 8);
      bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      this.#tell(facts, "corrupted");
    }
    try {
      return new FrameDecoder().push(bytes)[0] ?? fail("a whole frame decodes to one frame");
    } catch (error) {
      if (!isCorrupt || !(error instanceof PeerError)) throw error;
      return undefined;
    }
  }

  /**
   * A peer has closed its connection to the address because of what came on it: so go all its requests there. The news of it reaches a
   * peer that did not find it out itself as late as an answer would.
   */
  #loseConnection(call: Call, facts: MessageFacts): void {
    for (const other of call.peer.calls) {
      if (other.addressKey !== call.addressKey) continue;
      if (facts.type === "response") other.reject(new PeerError("PROTOCOL", "what came is no frame"));
      else this.#refuse(other, facts, "DISCONNECTED");
    }
  }

  #link(from: number, to: number): MessageLink {
    const key = from * NODES_MAX + to;
    let link = this.#links.get(key);
    if (link === undefined) {
      link = new MessageLink(`${from}>${to}`, this.kernel, this.random, this.#faults);
      this.#links.set(key, link);
    }
    return link;
  }

  #tell(facts: MessageFacts, event: MessageEvent): void {
    this.onEvent?.(event, facts);
  }
}

/** One process of a node: its transport, and the place where its handler answers others. */
export class SimulatedPeer implements PeerTransport {
  readonly address: PeerAddress;
  /** Requests of this process without an answer. */
  readonly calls = new Set<Call>();
  readonly #network: SimulatedMessageNetwork;
  #handler: PeerHandler | undefined;
  #state: "alive" | "closed" | "process dead" | "machine dead" = "alive";

  constructor(network: SimulatedMessageNetwork, address: PeerAddress) {
    this.#network = network;
    this.address = address;
  }

  get state(): "alive" | "closed" | "process dead" | "machine dead" {
    return this.#state;
  }

  /** A closed transport makes no requests; its process may answer others still. */
  get isRunning(): boolean {
    return this.#state === "alive" || this.#state === "closed";
  }

  get handler(): PeerHandler | undefined {
    return this.#handler;
  }

  /** Answers requests from now on. Until then a request to this node is UNREACHABLE. */
  serve(handler: PeerHandler): void {
    this.#handler = handler;
  }

  request<R extends PeerRequest>(
    address: PeerAddress,
    request: R,
    options: { readonly timeoutMs: number },
  ): Promise<ResponseTo<R>> {
    if (this.#state === "closed") return Promise.reject(new PeerError("CLOSED", "the transport is closed"));
    if (this.#state !== "alive") return new Promise(() => undefined);
    const key = addressKey(address);
    let inFlightCount = 0;
    for (const call of this.calls) if (call.addressKey === key) inFlightCount++;
    if (inFlightCount >= this.#network.inFlightMax) {
      return Promise.reject(new PeerError("QUEUE_FULL", `${inFlightCount} requests to ${key} have no answer`));
    }
    return new Promise<PeerResponse>((resolve, reject) => {
      const settle = (): void => {
        call.isSettled = true;
        call.timer.cancel();
        this.calls.delete(call);
      };
      const call: Call = {
        peer: this,
        request,
        target: this.#network.serverAt(key),
        addressKey: key,
        to: address.nodeId,
        timer: this.#network.kernel.schedule(options.timeoutMs * 1_000, "message.timeout", () => {
          call.reject(new PeerError("TIMED_OUT", `${request.kind} to ${key} after ${options.timeoutMs} ms`));
        }),
        resolve: (response) => {
          settle();
          resolve(response);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
        isSettled: false,
      };
      this.calls.add(call);
      this.#network.sendRequest(call);
    }) as Promise<ResponseTo<R>>;
  }

  close(): Promise<void> {
    if (this.#state !== "alive") return Promise.resolve();
    for (const call of this.calls) call.reject(new PeerError("CLOSED", "the transport was closed"));
    this.#state = "closed";
    return Promise.resolve();
  }

  /** The process dies: its promises stay open for ever, others see their requests to it DISCONNECTED. */
  crashProcess(): void {
    this.#die("process dead");
    this.#network.disconnect(this);
  }

  /** The machine dies: requests to it get no answer at all until another process joins there. */
  crashMachine(): void {
    this.#die("machine dead");
  }

  #die(state: "process dead" | "machine dead"): void {
    this.#state = state;
    for (const call of this.calls) {
      call.isSettled = true;
      call.timer.cancel();
    }
    this.calls.clear();
  }
}

/** A long run has many, and every message asks each of those that are there. */
function forgetCancelled<Entry>(entries: Entry[], faultOf: (entry: Entry) => ActiveMessageFault): void {
  const kept = entries.filter((entry) => !faultOf(entry).isCancelled);
  if (kept.length < entries.length) entries.splice(0, entries.length, ...kept);
}

function addressKey(address: PeerAddress): string {
  return `${address.host}:${address.port}`;
}

function cutName(from: number, to: number, kind?: string): string {
  return kind === undefined ? `${from}>${to}` : `${from}>${to}/${kind}`;
}
