import type { Socket } from "node:net";
import type { ByteStream, StreamHandlers } from "@tidemark/base";
import { fail, NetworkError } from "@tidemark/base";
import { toNetworkError } from "./tcp-errors.ts";

/** Bytes that wait in this process before `write` says that there is no room: enough to keep the kernel busy. */
export const WRITE_BUFFER_BYTES = 256 * 1024;

const ROOM = Promise.resolve();

/** One TCP connection. */
export class TcpStream implements ByteStream {
  readonly remote: string;
  readonly #socket: Socket;
  readonly #reads: "events" | "deliver";
  #handlers: StreamHandlers | undefined;
  #isPaused = false;
  #isDestroyed = false;
  /** Why the connection is over; set once. */
  #end: { readonly error: NetworkError | undefined } | undefined;
  #isEndTold = false;
  #error: unknown;
  /** Shared by all writers that wait for room. */
  #room: PromiseWithResolvers | undefined;

  /**
   * @param socket connected, with nobody reading from it yet
   * @param reads how its bytes come: by its "data" events, or through `deliver`, into memory that the owner has set up; then it is paused
   */
  constructor(socket: Socket, remote: string, reads: "events" | "deliver") {
    this.#socket = socket;
    this.#reads = reads;
    this.remote = remote;
    socket.on("error", (error) => (this.#error = error));
    // Both directions end together, also when the other end still reads.
    socket.on("end", () => socket.destroy());
    socket.on("close", () => this.#over());
    socket.on("drain", () => {
      this.#room?.resolve();
      this.#room = undefined;
    });
  }

  start(handlers: StreamHandlers): void {
    if (this.#handlers !== undefined) fail("the handlers of a stream are set once", { remote: this.remote });
    this.#handlers = handlers;
    if (this.#isDestroyed) return;
    if (this.#reads === "events") this.#socket.on("data", (chunk: Uint8Array) => this.deliver(chunk));
    else if (!this.#isPaused) this.#socket.resume();
    if (this.#isPaused) this.#socket.pause();
    else if (this.#end !== undefined) process.nextTick(() => this.#tellEnd());
  }

  /** The next bytes of the socket. */
  deliver(chunk: Uint8Array): void {
    if (!this.#isDestroyed) this.#handlers?.onData(chunk);
  }

  write(parts: readonly Uint8Array[], whenSent?: () => void): Promise<void> {
    if (this.#isDestroyed) return Promise.reject(new NetworkError("CLOSED", "write", this.remote));
    if (this.#end !== undefined || !this.#socket.writable) {
      return Promise.reject(new NetworkError("ECONNRESET", "write", this.remote, { cause: this.#error }));
    }
    let hasRoom = true;
    this.#socket.cork();
    const last = parts.length - 1;
    for (const [at, part] of parts.entries()) hasRoom = this.#socket.write(part, at === last ? whenSent : undefined);
    this.#socket.uncork();
    if (hasRoom) return ROOM;
    this.#room ??= promiseWithResolvers();
    return this.#room.promise;
  }

  pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    if (this.#handlers === undefined || this.#isDestroyed) return;
    this.#socket.resume();
    if (this.#end !== undefined) process.nextTick(() => this.#tellEnd());
  }

  destroy(): void {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    this.#socket.destroy();
    this.#room?.reject(new NetworkError("CLOSED", "write", this.remote));
    this.#room = undefined;
  }

  #over(): void {
    if (this.#isDestroyed || this.#end !== undefined) return;
    const error = this.#error === undefined ? undefined : toNetworkError(this.#error, "read", this.remote);
    this.#end = { error };
    this.#room?.reject(new NetworkError("ECONNRESET", "write", this.remote, { cause: this.#error }));
    this.#room = undefined;
    this.#tellEnd();
  }

  #tellEnd(): void {
    if (this.#end === undefined || this.#handlers === undefined || this.#isPaused) return;
    if (this.#isDestroyed || this.#isEndTold) return;
    this.#isEndTold = true;
    this.#handlers.onEnd(this.#end.error);
  }
}

interface PromiseWithResolvers {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
  readonly reject: (error: NetworkError) => void;
}

/** `Promise.withResolvers` is not in Node 20. A rejection that nobody waits for any more is no error. */
function promiseWithResolvers(): PromiseWithResolvers {
  let settle: Omit<PromiseWithResolvers, "promise"> | undefined;
  const promise = new Promise<void>((resolve, reject) => (settle = { resolve, reject }));
  promise.catch(() => undefined);
  return { promise, ...(settle ?? fail("a promise runs its executor at once")) };
}
