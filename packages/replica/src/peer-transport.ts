import { BufferPool } from "@tidemark/base";
import type { Clock, Network } from "@tidemark/base";
import { PeerError } from "@tidemark/wire";
import type { PeerAddress, PeerRequest, PeerTransport, ResponseTo } from "@tidemark/wire";
import { PeerConnection } from "./peer-connection.ts";

export interface StreamPeerTransportOptions {
  readonly network: Network;
  readonly clock: Clock;
  /** Gives the memory that the batches of answers lie in; who asked may give them back (`giveBackBatches`). */
  readonly pool?: BufferPool;
}

/**
 * Requests to peers over streams: one connection to each address, made on demand, with many requests in flight that are answered in any order.
 *
 * Bounds, for each peer: `PEER_REQUESTS_IN_FLIGHT_MAX` requests and `PEER_UNSENT_BYTES_MAX` bytes that the peer does not take, beyond them
 * QUEUE_FULL; one attempt to connect at a time with a growing back-off between them. Source of the shape: apache/kafka
 * clients/src/main/java/org/apache/kafka/clients/NetworkClient.java, which also drops a connection whose request timed out; here only one on
 * which nothing came meanwhile.
 */
export class StreamPeerTransport implements PeerTransport {
  readonly #network: Network;
  readonly #clock: Clock;
  readonly #pool: BufferPool;
  readonly #connections = new Map<string, PeerConnection>();
  #isClosed = false;

  constructor(options: StreamPeerTransportOptions) {
    this.#network = options.network;
    this.#clock = options.clock;
    this.#pool = options.pool ?? new BufferPool();
  }

  request<R extends PeerRequest>(
    address: PeerAddress,
    request: R,
    options: { readonly timeoutMs: number },
  ): Promise<ResponseTo<R>> {
    if (this.#isClosed) return Promise.reject(new PeerError("CLOSED", "the transport is closed"));
    // The connection has checked that the answer is of the request's kind.
    return this.#connectionTo(address).request(request, options.timeoutMs) as Promise<ResponseTo<R>>;
  }

  close(): Promise<void> {
    this.#isClosed = true;
    for (const connection of this.#connections.values()) connection.close();
    this.#connections.clear();
    return Promise.resolve();
  }

  #connectionTo(address: PeerAddress): PeerConnection {
    const key = `${address.host}:${address.port}`;
    let connection = this.#connections.get(key);
    if (connection === undefined) {
      const made = new PeerConnection({
        address,
        network: this.#network,
        clock: this.#clock,
        pool: this.#pool,
        // Peers come back on other ports: their old addresses do not pile up.
        onIdle: () => this.#connections.get(key) === made && this.#connections.delete(key),
      });
      connection = made;
      this.#connections.set(key, connection);
    }
    return connection;
  }
}
