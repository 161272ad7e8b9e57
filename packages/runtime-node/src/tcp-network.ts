import * as net from "node:net";
import type { ByteStream, Network, NetworkAddress, NetworkListener } from "@tidemark/base";
import { NetworkError } from "@tidemark/base";
import { readInto } from "./tcp-accepted.ts";
import type { OnRead } from "./tcp-accepted.ts";
import { showAddress, toNetworkError } from "./tcp-errors.ts";
import { TcpStream, WRITE_BUFFER_BYTES } from "./tcp-stream.ts";

/** Where one listens unless told otherwise: nothing is open to other machines by default. */
const HOST_DEFAULT = "127.0.0.1";

/** A silent connection is probed after this, so that one to a machine that is gone ends some day. */
const KEEP_ALIVE_MS = 30_000;

/** A connection reads this much at a time. */
const READ_BUFFER_BYTES = 256 * 1024;

/**
 * What is read is looked at before the call that brings it returns, so that all connections of a thread can read into the same memory, and
 * a silent one costs none. Not on Windows, where a read is begun before there is anything to read.
 */
const SHARED_READ_BUFFER = process.platform === "win32" ? undefined : new Uint8Array(READ_BUFFER_BYTES);

/** Without delay: requests are small, and a batch is written in one go. */
const SOCKET_OPTIONS = {
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: KEEP_ALIVE_MS,
  highWaterMark: WRITE_BUFFER_BYTES,
} as const;

/** TCP. Holds no state of its own: streams and listeners are their users' to close, and keep the process alive until then. */
export class TcpNetwork implements Network {
  listen(
    address: { readonly host?: string; readonly port: number },
    onStream: (stream: ByteStream) => void,
  ): Promise<NetworkListener> {
    const host = address.host ?? HOST_DEFAULT;
    const server = net.createServer(SOCKET_OPTIONS, (accepted) => onStream(acceptedStream(accepted)));
    return new Promise((resolve, reject) => {
      const refuse = (error: Error): void => reject(toNetworkError(error, "listen", showAddress(host, address.port)));
      server.once("error", refuse);
      // `exclusive`: a worker of node:cluster does not share its parent's port.
      server.listen({ host, port: address.port, exclusive: true }, () => {
        server.off("error", refuse);
        // A connection that could not be accepted (no descriptors left): the other end sees it close, the listener goes on.
        server.on("error", () => undefined);
        resolve(new TcpListener(server, host, portOf(server, address.port)));
      });
    });
  }

  connect(address: NetworkAddress, options: { readonly timeoutMs: number }): Promise<ByteStream> {
    const remote = showAddress(address.host, address.port);
    return new Promise((resolve, reject) => {
      let stream: TcpStream | undefined;
      const onread = onReadOf(() => stream);
      const socket = net.connect({ ...SOCKET_OPTIONS, host: address.host, port: address.port, onread });
      // Until somebody has set the handlers of the stream.
      socket.pause();
      const timeout = setTimeout(() => {
        socket.destroy();
        reject(new NetworkError("ETIMEDOUT", "connect", remote));
      }, options.timeoutMs);
      const refuse = (error: Error): void => {
        clearTimeout(timeout);
        reject(toNetworkError(error, "connect", remote));
      };
      socket.once("error", refuse);
      socket.once("connect", () => {
        clearTimeout(timeout);
        socket.off("error", refuse);
        stream = new TcpStream(socket, remote, "deliver");
        resolve(stream);
      });
    });
  }
}

function acceptedStream(accepted: net.Socket): TcpStream {
  const remote = remoteOf(accepted);
  const socket = readInto(
    accepted,
    onReadOf(() => stream),
    SOCKET_OPTIONS,
  );
  if (socket === accepted) return new TcpStream(accepted, remote, "events");
  // Until somebody has set the handlers of the stream.
  socket.pause();
  const stream = new TcpStream(socket, remote, "deliver");
  return stream;
}

function onReadOf(stream: () => TcpStream | undefined): OnRead {
  return {
    buffer: SHARED_READ_BUFFER ?? new Uint8Array(READ_BUFFER_BYTES),
    callback: (count, buffer) => {
      stream()?.deliver(buffer.subarray(0, count));
      return true;
    },
  };
}

class TcpListener implements NetworkListener {
  readonly host: string;
  readonly port: number;
  readonly #server: net.Server;
  #closed: Promise<void> | undefined;

  constructor(server: net.Server, host: string, port: number) {
    this.#server = server;
    this.host = host;
    this.port = port;
  }

  close(): Promise<void> {
    // The server's own callback waits for the accepted connections, which are not ours to end. Its socket closes at the end of this turn.
    this.#closed ??= new Promise((resolve) => {
      this.#server.close();
      setImmediate(resolve);
    });
    return this.#closed;
  }
}

function remoteOf(socket: net.Socket): string {
  return showAddress(socket.remoteAddress ?? "?", socket.remotePort ?? 0);
}

function portOf(server: net.Server, asked: number): number {
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : asked;
}
