/** Codes of the operating system that the engine tells apart; anything else arrives as EIO with the original as cause. */
export type NetworkErrorCode =
  /** The port may not be listened at. */
  | "EACCES"
  /** Somebody listens there already. */
  | "EADDRINUSE"
  /** The host is none of this machine's. */
  | "EADDRNOTAVAIL"
  /** Nobody listens there. */
  | "ECONNREFUSED"
  /** The stream is over: by the other end, or by the network. */
  | "ECONNRESET"
  /** No way to the host, or no such host. */
  | "EHOSTUNREACH"
  | "EIO"
  | "EMFILE"
  /** No answer in time. */
  | "ETIMEDOUT"
  /** This end has destroyed the stream. */
  | "CLOSED";

export type NetworkOperation = "listen" | "connect" | "write" | "read";

/** What a network said: an event of operation, not a bug. */
export class NetworkError extends Error {
  override readonly name = "NetworkError";
  readonly code: NetworkErrorCode;
  readonly operation: NetworkOperation;
  /** `host:port` of the other end, or of the listener. */
  readonly address: string;

  constructor(code: NetworkErrorCode, operation: NetworkOperation, address: string, options?: ErrorOptions) {
    super(`${code}: ${operation} ${address}`, options);
    this.code = code;
    this.operation = operation;
    this.address = address;
  }
}
