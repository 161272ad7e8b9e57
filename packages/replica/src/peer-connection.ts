import type { BufferPool, ByteStream, Clock, Network, Timer } from "@tidemark/base";
import { encodeFrame, FrameDecoder, PeerError } from "@tidemark/wire";
import type { Frame, PeerAddress, PeerErrorType, PeerKind, PeerRequest, PeerResponse } from "@tidemark/wire";

/** Requests to one peer without an answer, those not yet sent included. More are refused with QUEUE_FULL. */
export const PEER_REQUESTS_IN_FLIGHT_MAX = 256;

/** Bytes of requests that wait to be sent to one peer; a request larger than this is taken when none waits. */
export const PEER_UNSENT_BYTES_MAX = 32 * 1024 * 1024;

/** Requests that wait are sent in one go up to this size. */
const WRITE_BYTES_MAX = 256 * 1024;

/** After a failed attempt to connect; doubled with each further one. Kafka: reconnect.backoff.ms, reconnect.backoff.max.ms. */
export const RECONNECT_BACKOFF_MS_MIN = 50;
export const RECONNECT_BACKOFF_MS_MAX = 1_000;

/** Longest wait for one attempt to connect. Kafka: socket.connection.setup.timeout.ms. */
export const CONNECT_TIMEOUT_MS = 10_000;

/** How one end of a connection came to be over, as its requests learn of it. */
interface Failure {
  readonly code: PeerErrorType;
  readonly reason: string;
  readonly cause?: unknown;
}

interface PendingRequest {
  readonly correlationId: number;
  readonly kind: PeerKind;
  readonly bytes: number;
  readonly timer: Timer;
  readonly resolve: (response: PeerResponse) => void;
  readonly reject: (error: PeerError) => void;
  /** Undefined once written. */
  parts: readonly Uint8Array[] | undefined;
  /** Chunks that the connection had received when the request was written. */
  sentAtChunk: number;
}

export interface PeerConnectionOptions {
  readonly address: PeerAddress;
  readonly network: Network;
  readonly clock: Clock;
  /** Gives the memory of large answers. */
  readonly pool: BufferPool;
  /** Nothing waits here any more and no back-off is on: the owner may forget the connection. */
  readonly onIdle: () => void;
}

/**
 * The one connection to a peer, made when a request needs it and made again after it broke.
 *
 * | state        | requests                        | leaves it                                                         |
 * | ------------ | ------------------------------- | ----------------------------------------------------------------- |
 * | disconnected | the first one begins to connect | to connecting                                                     |
 * | connecting   | wait                            | connected, or refused: all that wait are UNREACHABLE, backing off |
 * | backing off  | wait                            | after the back-off: connecting if a request waits                 |
 * | connected    | sent in order, answered in any  | the stream ends: those in flight are DISCONNECTED; to connecting  |
 * |              |                                 | if others wait, to backing off if the stream brought no answer    |
 */
export class PeerConnection {
  readonly #options: PeerConnectionOptions;
  readonly #name: string;
  #state: "disconnected" | "connecting" | "backing off" | "connected" | "closed" = "disconnected";
  /** By correlation id, in the order of the requests. */
  readonly #pending = new Map<number, PendingRequest>();
  /** Those not yet written, in order. Timed-out ones stay as holes. */
  #queue: PendingRequest[] = [];
  #unsentBytes = 0;
  /** Never used twice, on no connection: an answer of an earlier one cannot be taken for a later request's. */
  #correlationIdNext = 0;
  /** Connections in a row that were refused or brought no answer. */
  #failedAttempts = 0;
  /** Whether the present connection has brought an answer. */
  #hasAnswered = false;
  #backOff: Timer | undefined;
  #stream: ByteStream | undefined;
  #isWriting = false;
  #receivedChunks = 0;

  constructor(options: PeerConnectionOptions) {
    this.#options = options;
    this.#name = `node ${options.address.nodeId} at ${options.address.host}:${options.address.port}`;
  }

  request(message: PeerRequest, timeoutMs: number): Promise<PeerResponse> {
    if (this.#pending.size >= PEER_REQUESTS_IN_FLIGHT_MAX) {
      return Promise.reject(this.#error("QUEUE_FULL", `${this.#pending.size} requests have no answer`));
    }
    const correlationId = this.#correlationIdNext++;
    let parts: readonly Uint8Array[];
    try {
      parts = encodeFrame({ type: "request", correlationId, message });
    } catch (error) {
      return Promise.reject(error);
    }
    let bytes = 0;
    for (const part of parts) bytes += part.length;
    if (this.#unsentBytes > 0 && this.#unsentBytes + bytes > PEER_UNSENT_BYTES_MAX) {
      return Promise.reject(this.#error("QUEUE_FULL", `${this.#unsentBytes} bytes wait to be sent`));
    }
    return new Promise((resolve, reject) => {
      const timer = this.#options.clock.setTimer(timeoutMs, () => this.#timeOut(pending, timeoutMs));
      const pending: PendingRequest = {
        correlationId,
        kind: message.kind,
        bytes,
        timer,
        resolve,
        reject,
        parts,
        sentAtChunk: 0,
      };
      this.#pending.set(correlationId, pending);
      this.#queue.push(pending);
      this.#unsentBytes += bytes;
      if (this.#state === "disconnected") this.#connect();
      else if (this.#state === "connected") this.#write();
    });
  }

  /** Requests in flight are CLOSED. */
  close(): void {
    this.#state = "closed";
    this.#backOff?.cancel();
    this.#stream?.destroy();
    this.#stream = undefined;
    this.#rejectAll({ code: "CLOSED", reason: "the transport was closed" });
  }

  #connect(): void {
    this.#state = "connecting";
    const { network, address } = this.#options;
    network.connect(address, { timeoutMs: CONNECT_TIMEOUT_MS }).then(
      (stream) => this.#connected(stream),
      (error: unknown) => this.#refused(error),
    );
  }

  #connected(stream: ByteStream): void {
    if (this.#state === "closed") {
      stream.destroy();
      return;
    }
    this.#state = "connected";
    this.#hasAnswered = false;
    this.#stream = stream;
    const decoder = new FrameDecoder(this.#options.pool);
    stream.start({
      onData: (chunk) => this.#receive(stream, decoder, chunk),
      onEnd: (error) => this.#lose(stream, { code: "DISCONNECTED", reason: "the connection ended", cause: error }),
    });
    this.#write();
  }

  #refused(cause: unknown): void {
    if (this.#state === "closed") return;
    this.#startBackOff();
    this.#rejectAll({ code: "UNREACHABLE", reason: "no connection", cause });
  }

  #startBackOff(): void {
    this.#state = "backing off";
    const backOffMs = Math.min(RECONNECT_BACKOFF_MS_MAX, RECONNECT_BACKOFF_MS_MIN * 2 ** this.#failedAttempts++);
    this.#backOff = this.#options.clock.setTimer(backOffMs, () => {
      this.#state = "disconnected";
      if (this.#pending.size > 0) this.#connect();
      else this.#options.onIdle();
    });
  }

  /** Sends what waits, as much at a time as the stream has room for. Requests made in one turn of the event loop go in one write. */
  #write(): void {
    if (this.#isWriting) return;
    this.#isWriting = true;
    void this.#writeAll();
  }

  async #writeAll(): Promise<void> {
    // One step back: what the caller's turn still asks for joins the first write.
    await Promise.resolve();
    for (;;) {
      const stream = this.#stream;
      const parts = this.#takeUnsent();
      if (stream === undefined || parts.length === 0) break;
      try {
        await stream.write(parts);
      } catch (error) {
        this.#lose(stream, { code: "DISCONNECTED", reason: "the connection broke", cause: error });
      }
    }
    // In the same step as the look at the queue: a request made in between would wait for ever.
    this.#isWriting = false;
  }

  #takeUnsent(): Uint8Array[] {
    const parts: Uint8Array[] = [];
    if (this.#stream === undefined) return parts;
    let bytes = 0;
    let count = 0;
    for (const pending of this.#queue) {
      if (bytes >= WRITE_BYTES_MAX) break;
      count++;
      if (pending.parts === undefined) continue; // Timed out before it was sent: it never will be.
      parts.push(...pending.parts);
      bytes += pending.bytes;
      pending.parts = undefined;
      pending.sentAtChunk = this.#receivedChunks;
    }
    this.#queue.splice(0, count);
    this.#unsentBytes -= bytes;
    return parts;
  }

  #receive(stream: ByteStream, decoder: FrameDecoder, chunk: Uint8Array): void {
    this.#receivedChunks++;
    let frames: Frame[];
    try {
      frames = decoder.push(chunk);
    } catch (error) {
      this.#lose(stream, { code: "PROTOCOL", reason: "what came is no frame", cause: error });
      return;
    }
    for (const frame of frames) {
      const objection = this.#answer(frame);
      if (objection !== undefined) {
        this.#lose(stream, { code: "PROTOCOL", reason: objection });
        return;
      }
    }
  }

  /** @returns why the frame cannot be: then nothing else from this peer can be relied on */
  #answer(frame: Frame): string | undefined {
    if (frame.type !== "response") return "a request came where answers are due";
    if (frame.correlationId >= this.#correlationIdNext)
      return `answer to request ${frame.correlationId}, which was never made`;
    const pending = this.#pending.get(frame.correlationId);
    // Timed out meanwhile, or asked on an earlier connection: nobody waits for it.
    if (pending === undefined) return undefined;
    if (pending.parts !== undefined) return `answer to request ${frame.correlationId}, which was not sent yet`;
    if (frame.message.kind !== pending.kind) return `${frame.message.kind} answers ${pending.kind}`;
    this.#hasAnswered = true;
    this.#failedAttempts = 0;
    this.#pending.delete(frame.correlationId);
    pending.timer.cancel();
    pending.resolve(frame.message);
    return undefined;
  }

  #timeOut(pending: PendingRequest, timeoutMs: number): void {
    this.#pending.delete(pending.correlationId);
    const wasSent = pending.parts === undefined;
    if (!wasSent) this.#forgetUnsent(pending);
    pending.reject(this.#error("TIMED_OUT", `${pending.kind} has no answer after ${timeoutMs} ms`));
    // Nothing at all has come since it was sent: the connection may be half-open, and no later request would fare better on it.
    const stream = this.#stream;
    if (wasSent && stream !== undefined && pending.sentAtChunk === this.#receivedChunks) {
      this.#lose(stream, { code: "DISCONNECTED", reason: "the peer is silent" });
    }
  }

  #forgetUnsent(pending: PendingRequest): void {
    pending.parts = undefined;
    this.#unsentBytes -= pending.bytes;
    // While nothing can be sent only this shortens the queue.
    const place = this.#queue.indexOf(pending);
    if (place >= 0) this.#queue.splice(place, 1);
  }

  /** The stream is of no use any more. Requests that were not sent yet go on the next one. */
  #lose(stream: ByteStream, failure: Failure): void {
    if (this.#stream !== stream) return;
    this.#stream = undefined;
    stream.destroy();
    this.#state = "disconnected";
    for (const pending of this.#pending.values()) {
      if (pending.parts === undefined) this.#reject(pending, failure);
    }
    // A peer that takes connections and answers nothing on them is no better than one that takes none.
    if (!this.#hasAnswered) this.#startBackOff();
    else if (this.#pending.size > 0) this.#connect();
    else this.#options.onIdle();
  }

  #rejectAll(failure: Failure): void {
    for (const pending of this.#pending.values()) this.#reject(pending, failure);
    this.#queue = [];
    this.#unsentBytes = 0;
  }

  #reject(pending: PendingRequest, failure: Failure): void {
    this.#pending.delete(pending.correlationId);
    pending.timer.cancel();
    pending.reject(this.#error(failure.code, failure.reason, failure.cause));
  }

  #error(code: PeerErrorType, reason: string, cause?: unknown): PeerError {
    return new PeerError(code, `${reason}: ${this.#name}`, cause === undefined ? undefined : { cause });
  }
}
