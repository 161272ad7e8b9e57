import type { ByteStream, StreamHandlers, Timer } from "@tidemark/base";
import { fail, NetworkError } from "@tidemark/base";

/** What a stream needs of the network around it. */
export interface StreamWorld {
  /** Bytes that wait in one direction before `write` says that there is no room. */
  readonly windowBytes: number;
  /** Runs `fire` later on the way from one host to the other; `isNext`: right behind what has just arrived. */
  schedule(from: string, to: string, isNext: boolean, fire: () => void): Timer;
  /** Size of the next chunk, 1 .. waitingBytes. */
  drawChunkBytes(from: string, to: string, waitingBytes: number): number;
  /** Uniform in [0, bound). */
  draw(site: string, bound: number): number;
  isCut(from: string, to: string): boolean;
  /** What becomes of bytes for a process that is gone: its machine answers with a reset, or nothing answers. */
  answerForDead(host: string): "reset" | "silence";
  forget(stream: SimulatedStream): void;
}

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: NetworkError) => void;
}

interface Part {
  readonly bytes: Uint8Array;
  /** Of the last part of a write. */
  readonly whenSent: (() => void) | undefined;
}

/** What the receiver finds in memory that it kept beyond `onData`. */
const POISON = 0xdd;

/** One end of a connection, and the direction that leads away from it. */
export class SimulatedStream implements ByteStream {
  readonly local: string;
  readonly remoteHost: string;
  readonly remote: string;
  readonly #world: StreamWorld;
  #peer: SimulatedStream | undefined;
  #handlers: StreamHandlers | undefined;
  #isPaused = false;
  /**
   * - `open`;
   * - `ended`: by the other end or the network, told to the handlers or about to be;
   * - `destroyed`: by this end. What it had sent may still travel;
   * - `dead`: its process or machine is gone: its promises stay open for ever.
   */
  #state: "open" | "ended" | "destroyed" | "dead" = "open";
  #end: { readonly error: NetworkError | undefined } | undefined;

  /** The way out: parts not yet arrived, and what comes behind them. */
  readonly #parts: Part[] = [];
  #waitingBytes = 0;
  #last: "none" | "close" | "reset" = "none";
  #delivery: Timer | undefined;
  #waiters: Waiter[] = [];

  constructor(
    world: StreamWorld,
    ends: { readonly local: string; readonly remoteHost: string; readonly remote: string },
  ) {
    this.#world = world;
    this.local = ends.local;
    this.remoteHost = ends.remoteHost;
    this.remote = ends.remote;
  }

  static connect(first: SimulatedStream, second: SimulatedStream): void {
    first.#peer = second;
    second.#peer = first;
  }

  start(handlers: StreamHandlers): void {
    if (this.#handlers !== undefined) fail("the handlers of a stream are set once", { remote: this.remote });
    this.#handlers = handlers;
    this.wake();
  }

  write(parts: readonly Uint8Array[], whenSent?: () => void): Promise<void> {
    if (this.#state === "dead") return new Promise(() => undefined);
    if (this.#state === "destroyed") return Promise.reject(new NetworkError("CLOSED", "write", this.remote));
    if (this.#state === "ended") return Promise.reject(new NetworkError("ECONNRESET", "write", this.remote));
    const last = parts.length - 1;
    for (const [at, bytes] of parts.entries()) {
      this.#parts.push({ bytes, whenSent: at === last ? whenSent : undefined });
      this.#waitingBytes += bytes.length;
    }
    this.#send(false);
    if (this.#waitingBytes <= this.#world.windowBytes) return Promise.resolve();
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.wake();
  }

  destroy(): void {
    if (this.#state !== "open" && this.#state !== "ended") return;
    const wasOpen = this.#state === "open";
    this.#state = "destroyed";
    this.#rejectWaiters(new NetworkError("CLOSED", "write", this.remote));
    if (wasOpen) this.#finish();
    this.#world.forget(this);
  }

  /** The process is gone; its kernel closes the connection, as after `destroy`. */
  dieWithProcess(): void {
    const wasOpen = this.#state === "open";
    this.#state = "dead";
    this.#waiters = [];
    if (wasOpen) this.#finish();
  }

  /** The machine is gone: nothing more comes from here, not even what was on its way. */
  dieWithMachine(): void {
    this.#state = "dead";
    this.#waiters = [];
    this.#dropParts();
    this.#last = "none";
  }

  /** The network ends the connection for this side; bytes on their way are lost. */
  reset(): void {
    this.#dropParts();
    this.#last = "none";
    this.#over(new NetworkError("ECONNRESET", "read", this.remote));
  }

  /** Goes on after a pause, a cut or the start: what waits for this end, and what waits to leave it. */
  wake(): void {
    if (this.#end !== undefined) this.#world.schedule(this.remoteHost, this.local, true, () => this.#tellEnd());
    if (this.#peer !== undefined) this.#peer.#send(false);
    this.#send(false);
  }

  /** What is in the kernel's buffers still leaves, up to a place drawn from the seed; then the end. */
  #finish(): void {
    const keptBytes = this.#world.draw("network.unsent", this.#waitingBytes + 1);
    this.#keepFront(keptBytes);
    const hasUnread = this.#peer !== undefined && this.#peer.#waitingBytes > 0;
    // A kernel that closes a connection with bytes unread sends a reset.
    this.#last = hasUnread ? "reset" : "close";
    this.#send(false);
  }

  #send(isNext: boolean): void {
    if (this.#delivery !== undefined || !this.#hasSomething()) return;
    this.#delivery = this.#world.schedule(this.local, this.remoteHost, isNext, () => {
      this.#delivery = undefined;
      this.#deliver();
    });
  }

  #hasSomething(): boolean {
    return this.#waitingBytes > 0 || this.#last !== "none";
  }

  #deliver(): void {
    const peer = this.#peer;
    if (peer === undefined || !this.#hasSomething()) return;
    // The cut, the pause or the late start ends with a call of `wake`.
    if (this.#world.isCut(this.local, this.remoteHost)) return;
    if (peer.#state !== "open") return this.#deliverToGone(peer);
    if (peer.#handlers === undefined || peer.#isPaused) return;
    if (this.#waitingBytes > 0) {
      const chunk = this.#takeFront(this.#world.drawChunkBytes(this.local, this.remoteHost, this.#waitingBytes));
      this.#makeRoom();
      this.#send(true);
      peer.#handlers.onData(chunk);
      chunk.fill(POISON);
      return;
    }
    const error = this.#last === "reset" ? new NetworkError("ECONNRESET", "read", peer.remote) : undefined;
    this.#last = "none";
    peer.#over(error);
  }

  #deliverToGone(peer: SimulatedStream): void {
    if (peer.#state === "dead" && this.#world.answerForDead(this.remoteHost) === "silence") return;
    this.#dropParts();
    this.#last = "none";
    if (this.#state !== "open" || peer.#last !== "none") return; // An end is on its way already.
    peer.#last = "reset";
    peer.#send(false);
  }

  #over(error: NetworkError | undefined): void {
    if (this.#state !== "open") return;
    this.#state = "ended";
    this.#end = { error };
    this.#dropParts();
    this.#rejectWaiters(new NetworkError("ECONNRESET", "write", this.remote));
    this.#tellEnd();
    this.#world.forget(this);
  }

  #tellEnd(): void {
    const end = this.#end;
    if (end === undefined || this.#handlers === undefined || this.#isPaused || this.#state !== "ended") return;
    this.#end = undefined;
    this.#handlers.onEnd(end.error);
  }

  #makeRoom(): void {
    if (this.#waitingBytes > this.#world.windowBytes) return;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const { resolve } of waiters) resolve();
  }

  #rejectWaiters(error: NetworkError): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const { reject } of waiters) reject(error);
  }

  #dropParts(): void {
    const dropped = this.#parts.splice(0);
    this.#waitingBytes = 0;
    for (const { whenSent } of dropped) whenSent?.();
  }

  #keepFront(keptBytes: number): void {
    let rest = keptBytes;
    for (const [index, { bytes, whenSent }] of this.#parts.entries()) {
      this.#parts[index] = { bytes: bytes.subarray(0, rest), whenSent };
      rest -= Math.min(rest, bytes.length);
    }
    this.#waitingBytes = keptBytes;
  }

  #shiftPart(): void {
    this.#parts.shift()?.whenSent?.();
  }

  /** The copy is made here, not in `write`: a sender that changes memory it has handed over sends the change. */
  #takeFront(countBytes: number): Uint8Array {
    const chunk = new Uint8Array(countBytes);
    let filled = 0;
    while (filled < countBytes) {
      const { bytes, whenSent } = this.#parts[0] ?? fail("the parts hold the bytes that wait", { countBytes });
      const taken = bytes.subarray(0, countBytes - filled);
      chunk.set(taken, filled);
      filled += taken.length;
      if (taken.length === bytes.length) this.#shiftPart();
      else this.#parts[0] = { bytes: bytes.subarray(taken.length), whenSent };
    }
    while (this.#parts[0]?.bytes.length === 0) this.#shiftPart();
    this.#waitingBytes -= countBytes;
    return chunk;
  }
}
