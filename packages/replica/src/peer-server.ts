import { BufferPool } from "@tidemark/base";
import type { ByteStream, Network, NetworkListener } from "@tidemark/base";
import { encodeFrame, FrameDecoder, giveBackBatches } from "@tidemark/wire";
import type { AnswerRoom, Frame, PeerHandler, PeerResponse } from "@tidemark/wire";

/** Requests of one connection that are being answered. With as many the connection is not read until one of them is done. */
export const SERVER_REQUESTS_IN_FLIGHT_MAX = 256;

/**
 * Bytes of answers that one peer does not take. Above it no more of its requests are read, and those that were get a batch each at most:
 * all of them may have come before the first answer.
 */
export const SERVER_UNSENT_BYTES_MAX = 32 * 1024 * 1024;

/**
 * Connections at a time. A further one takes the place of the one that has been silent longest and that no answer is made for; is there none
 * such, it is closed at once. So peers that connect and say nothing keep nobody out. Kafka: max.connections, and its listener between brokers.
 */
export const SERVER_CONNECTIONS_MAX = 1_024;

/** Memory for frames of which a part has come, over all connections: above it the one that has been silent longest is closed. */
export const SERVER_HELD_BYTES_MAX = 256 * 1024 * 1024;

export interface PeerServerOptions {
  readonly network: Network;
  /** Default 127.0.0.1: nothing is open to other machines unless told so. */
  readonly host?: string;
  /** 0: any free port. */
  readonly port: number;
  /** Keeps no batch of a request beyond its answer; the batches of an answer are the server's. */
  readonly handler: PeerHandler;
  /** Memory of batches: of requests, and where the handler takes it there, of answers. */
  readonly pool?: BufferPool;
}

/** Listens for peers and answers each of their requests when its handler is done, in any order. */
export class PeerServer implements AsyncDisposable {
  readonly #handler: PeerHandler;
  readonly #pool: BufferPool;
  /** The one that has been silent longest first. */
  readonly #connections = new Set<ServedConnection>();
  /** Of all connections: see `SERVER_HELD_BYTES_MAX`. */
  #heldBytes = 0;
  #listener: NetworkListener | undefined;
  #isClosed = false;

  private constructor(handler: PeerHandler, pool: BufferPool) {
    this.#handler = handler;
    this.#pool = pool;
  }

  /** @throws NetworkError as `Network.listen` */
  static async listen(options: PeerServerOptions): Promise<PeerServer> {
    const server = new PeerServer(options.handler, options.pool ?? new BufferPool());
    const { network, host, port } = options;
    server.#listener = await network.listen(host === undefined ? { port } : { host, port }, (stream) =>
      server.#accept(stream),
    );
    return server;
  }

  /** The host that it listens at. */
  get host(): string {
    return this.#listener?.host ?? "";
  }

  get port(): number {
    return this.#listener?.port ?? 0;
  }

  get connectionCount(): number {
    return this.#connections.size;
  }

  /** Ends all connections at once; answers of handlers still at work go nowhere. The port is free once this resolves. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const connection of this.#connections) connection.destroy();
    await this.#listener?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #accept(stream: ByteStream): void {
    if (!this.#isClosed && this.#connections.size >= SERVER_CONNECTIONS_MAX)
      this.#longestSilent(({ isIdle }) => isIdle)?.destroy();
    if (this.#isClosed || this.#connections.size >= SERVER_CONNECTIONS_MAX) {
      stream.destroy();
      return;
    }
    const connection = new ServedConnection(stream, this.#handler, this.#pool, {
      heard: (heldBytesMore) => this.#heard(connection, heldBytesMore),
      over: (heldBytes) => {
        this.#connections.delete(connection);
        this.#heldBytes -= heldBytes;
      },
    });
    this.#connections.add(connection);
    connection.start();
  }

  #heard(connection: ServedConnection, heldBytesMore: number): void {
    this.#connections.delete(connection);
    this.#connections.add(connection);
    this.#heldBytes += heldBytesMore;
    // Never the one just heard of, unless it is alone: a frame as such fits.
    while (this.#heldBytes > SERVER_HELD_BYTES_MAX) {
      const silent = this.#longestSilent((other) => other !== connection && other.heldBytes > 0);
      if (silent === undefined) return;
      silent.destroy();
    }
  }

  #longestSilent(isWanted: (connection: ServedConnection) => boolean): ServedConnection | undefined {
    for (const connection of this.#connections) if (isWanted(connection)) return connection;
    return undefined;
  }
}

/** What a connection tells its server. */
interface ConnectionEvents {
  /** Bytes have come. @param heldBytesMore how much more memory its unfinished frame takes; may be below 0 */
  readonly heard: (heldBytesMore: number) => void;
  /** @param heldBytes that are free now */
  readonly over: (heldBytes: number) => void;
}

/** One peer's connection. */
class ServedConnection {
  readonly #stream: ByteStream;
  readonly #handler: PeerHandler;
  readonly #pool: BufferPool;
  readonly #events: ConnectionEvents;
  readonly #decoder: FrameDecoder;
  /** Requests that came in one chunk with more of them than may be in flight. */
  #waiting: Frame[] = [];
  #inFlightCount = 0;
  #unsentBytes = 0;
  /** What the server knows of `heldBytes`. */
  #toldHeldBytes = 0;
  /** Set aside for answers that are being read. */
  #takenBytes = 0;
  readonly #room: AnswerRoom = {
    // Never more than half of what is left: one that takes long leaves room for those beside it.
    take: (wantedBytes) => {
      const leftBytes = SERVER_UNSENT_BYTES_MAX - this.#unsentBytes - this.#takenBytes;
      const taken = Math.max(1, Math.min(wantedBytes, Math.floor(leftBytes / 2)));
      this.#takenBytes += taken;
      return taken;
    },
    giveBack: (takenBytes) => {
      this.#takenBytes -= takenBytes;
    },
  };
  #isPaused = false;
  #isOver = false;

  constructor(stream: ByteStream, handler: PeerHandler, pool: BufferPool, events: ConnectionEvents) {
    this.#stream = stream;
    this.#handler = handler;
    this.#pool = pool;
    this.#decoder = new FrameDecoder(pool);
    this.#events = events;
  }

  /** Nobody works on an answer for it. */
  get isIdle(): boolean {
    return this.#inFlightCount === 0 && this.#waiting.length === 0;
  }

  get heldBytes(): number {
    return this.#decoder.heldBytes;
  }

  start(): void {
    this.#stream.start({ onData: (chunk) => this.#receive(chunk), onEnd: () => this.destroy() });
  }

  destroy(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#waiting = [];
    this.#stream.destroy();
    this.#events.over(this.#toldHeldBytes);
  }

  #receive(chunk: Uint8Array): void {
    try {
      this.#waiting.push(...this.#decoder.push(chunk));
      const heldBytesMore = this.#decoder.heldBytes - this.#toldHeldBytes;
      this.#toldHeldBytes += heldBytesMore;
      this.#events.heard(heldBytesMore);
    } catch {
      // Malformed: the place of the next frame is not known. The peer sees the connection close.
      this.destroy();
      return;
    }
    this.#admit();
  }

  #admit(): void {
    let admitted = 0;
    while (!this.#isOver && admitted < this.#waiting.length && !this.#isFull()) {
      const frame = this.#waiting[admitted++];
      if (frame?.type === "request") void this.#serve(frame);
      else this.destroy(); // Answers come to those who ask; this peer was asked nothing.
    }
    this.#waiting.splice(0, admitted);
    if (this.#isFull() && !this.#isPaused) {
      this.#isPaused = true;
      this.#stream.pause();
    }
  }

  async #serve(frame: Frame & { readonly type: "request" }): Promise<void> {
    this.#inFlightCount++;
    let response: PeerResponse;
    try {
      response = await this.#handler(frame.message, { remote: this.#stream.remote, room: this.#room });
    } catch (error) {
      // A handler answers errors. This one is a bug and is nobody's to handle: it goes on as an unhandled rejection.
      this.destroy();
      throw error;
    }
    giveBackBatches(frame.message, this.#pool);
    await this.#answer(frame.correlationId, response);
    this.#inFlightCount--;
    this.#goOn();
  }

  /** Ends when there is room for the next answer: a peer that does not read is not answered, and soon not read. */
  async #answer(correlationId: number, message: PeerResponse): Promise<void> {
    const giveBack = (): void => giveBackBatches(message, this.#pool);
    if (this.#isOver) {
      giveBack();
      return;
    }
    let bytes = 0;
    try {
      const parts = encodeFrame({ type: "response", correlationId, message });
      for (const part of parts) bytes += part.length;
      this.#unsentBytes += bytes;
      await this.#stream.write(parts, giveBack);
    } catch {
      // The connection is over, or the answer does not fit a frame: then the peer sees it close, which no other answer could tell it.
      this.destroy();
    } finally {
      this.#unsentBytes -= bytes;
    }
  }

  #isFull(): boolean {
    return this.#inFlightCount >= SERVER_REQUESTS_IN_FLIGHT_MAX || this.#unsentBytes > SERVER_UNSENT_BYTES_MAX;
  }

  #goOn(): void {
    if (this.#isOver || this.#isFull()) return;
    if (this.#waiting.length > 0) this.#admit();
    // At once, not at half: those in flight may be parked fetches, and what waits behind them may be what they are parked for.
    if (!this.#isPaused || this.#isFull()) return;
    this.#isPaused = false;
    this.#stream.resume();
  }
}
