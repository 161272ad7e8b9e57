/** Kafka's error names, so far as bytes alone can earn them. */
export type WireErrorCode =
  | "CORRUPT_MESSAGE"
  | "INVALID_RECORD"
  | "INVALID_TIMESTAMP"
  | "MESSAGE_TOO_LARGE"
  | "UNSUPPORTED_COMPRESSION_TYPE"
  | "UNSUPPORTED_FOR_MESSAGE_FORMAT";

export type WireFacts = Readonly<Record<string, number | string | boolean>>;

/** What the bytes of a peer, a disk or a caller said: data, not a bug. `facts` holds positions, counts and offsets. */
export class WireError extends Error {
  override readonly name = "WireError";
  readonly code: WireErrorCode;
  readonly reason: string;
  readonly facts: WireFacts;

  constructor(code: WireErrorCode, reason: string, facts: WireFacts = {}, options?: ErrorOptions) {
    super(`${code}: ${reason} ${JSON.stringify(facts)}`, options);
    this.code = code;
    this.reason = reason;
    this.facts = facts;
  }
}
