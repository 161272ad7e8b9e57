import { BufferPool, encodeUtf8, parseUtf8 } from "@tidemark/base";
import { readUint32, writeInt32 } from "./bytes.ts";
import { crc32c, crc32cOfRange } from "./crc32c.ts";
import { bodyName, countElements, decodeHeader, encodeHeader } from "./frames-schema.ts";
import { PEER_ERROR_NUMBERS, PeerError } from "./peer-messages.ts";
import type { PeerErrorCode, PeerRequest, PeerResponse } from "./peer-messages.ts";

/**
 * What brokers send each other over a stream:
 *
 *   | frame bytes u32 | header bytes u32 | body CRC u32 | prefix CRC u32 | header: protobuf | batch bytes, back to back |
 *   '- after this field                  |              |                '- frames-schema.ts: correlation id, kind, and a message
 *                                        |              |                   with the *lengths* of its batches
 *                                        |              '- CRC-32C of the 12 bytes before it
 *                                        '- CRC-32C of header and batches
 *
 * Integers are big-endian. Batches lie behind the header and never inside it, so that neither side copies them to take the frame apart.
 *
 * The prefix has a CRC of its own because a wrong length would be waited for, not noticed. That of the body covers whole batches: what
 * their own CRC leaves out (base offset, length, leader epoch, magic) would be appended as it came, and to find just those bytes would
 * take a walk over the batches on both sides.
 */

/** Largest value of the first field. A fetch asks for far less: `maxBytes` bounds its batches. */
export const FRAME_BYTES_MAX = 64 * 1024 * 1024;

/** Largest header. A cluster state of 30,000 partitions fits. */
export const FRAME_HEADER_BYTES_MAX = 4 * 1024 * 1024;

/** Most partitions, brokers or ISR members in a header: an empty one takes two bytes there and hundreds as an object. */
export const FRAME_ELEMENTS_MAX = 65_536;

/** A smaller header cannot hold too many elements to count. */
const COUNTED_HEADER_BYTES_MIN = FRAME_ELEMENTS_MAX * 2;

const PREFIX_BYTES = 16;
const HEADER_BYTES_AT = 4;
const BODY_CRC_AT = 8;
const PREFIX_CRC_AT = 12;

/** A frame that is whole, or up to this size, gets its memory at once; the rest of a larger one only as its bytes arrive. */
const ALLOCATION_BYTES_MAX = 1024 * 1024;

export type Frame =
  | { readonly type: "request"; readonly correlationId: number; readonly message: PeerRequest }
  | { readonly type: "response"; readonly correlationId: number; readonly message: PeerResponse };

const ERROR_NAMES: ReadonlyMap<unknown, string> = new Map(
  Object.entries(PEER_ERROR_NUMBERS).map(([name, number]) => [number, name]),
);

/**
 * The parts of a frame, in order: the first is new and holds prefix and header, the others are the message's own batches, not copied.
 * @param frame its correlation id: 0 .. 2^53 - 1
 * @throws PeerError PROTOCOL when the message is too large for a frame
 */
export function encodeFrame(frame: Frame): Uint8Array[] {
  const parts: Uint8Array[] = [];
  const name = bodyName(frame.message.kind, frame.type === "response");
  const header = encodeHeader({ correlationId: frame.correlationId, [name]: toFields(frame.message, parts) });
  let frameBytes = PREFIX_BYTES - 4 + header.length;
  for (const part of parts) frameBytes += part.length;
  if (header.length > FRAME_HEADER_BYTES_MAX || frameBytes > FRAME_BYTES_MAX) {
    throw new PeerError(
      "PROTOCOL",
      `${name} is too large: a header of ${header.length} bytes, a frame of ${frameBytes}`,
    );
  }
  const first = new Uint8Array(PREFIX_BYTES + header.length);
  let bodyCrc = crc32c(header);
  for (const part of parts) bodyCrc = crc32c(part, bodyCrc);
  writeInt32(first, 0, frameBytes);
  writeInt32(first, HEADER_BYTES_AT, header.length);
  writeInt32(first, BODY_CRC_AT, bodyCrc);
  writeInt32(first, PREFIX_CRC_AT, crc32cOfRange(first, 0, PREFIX_CRC_AT));
  first.set(header, PREFIX_BYTES);
  parts.unshift(first);
  return parts;
}

/** The message with its batches taken out: their lengths are left in their places. */
function toFields(message: object, batches: Uint8Array[]): Record<string, unknown> {
  const fields: Record<string, unknown> = { ...message };
  if ("error" in message) fields["error"] = PEER_ERROR_NUMBERS[message.error as PeerErrorCode];
  const bytes = takenOut(message);
  if (bytes !== undefined) {
    fields[bytes.field] = bytes.value.length;
    if (bytes.value.length > 0) batches.push(bytes.value);
  }
  if ("partitions" in message) {
    const partitions = message.partitions as readonly object[];
    // Room is left for the other lists of the message.
    if (partitions.length > FRAME_ELEMENTS_MAX / 2) {
      throw new PeerError("PROTOCOL", `${partitions.length} partitions are too many for a frame`);
    }
    fields["partitions"] = partitions.map((partition) => toFields(partition, batches));
  }
  return fields;
}

function takenOut(message: object): { readonly field: string; readonly value: Uint8Array } | undefined {
  if ("batch" in message) return { field: "batch", value: message.batch as Uint8Array };
  if ("bytes" in message) return { field: "bytes", value: message.bytes as Uint8Array };
  if ("json" in message) return { field: "json", value: encodeUtf8(message.json as string) };
  return undefined;
}

/** Gives back the memory that the batches of a message lie in, once nobody looks at any of them any more. */
export function giveBackBatches(message: PeerRequest | PeerResponse, pool: BufferPool): void {
  const holders: readonly object[] = "partitions" in message ? message.partitions : [];
  for (const holder of holders) {
    if ("batch" in holder) pool.giveBack(holder.batch as Uint8Array);
    else if ("bytes" in holder) pool.giveBack(holder.bytes as Uint8Array);
  }
}

/**
 * Takes the frames of one connection apart, however its bytes are cut.
 *
 * Batches in the frames are views on memory that holds just this frame. It grows with the bytes that have come, not with what a prefix
 * claims.
 */
export class FrameDecoder {
  readonly #pool: BufferPool;
  readonly #prefix = new Uint8Array(PREFIX_BYTES);
  #prefixBytes = 0;
  /** Of the frame behind the prefix: header and batches. */
  #restBytes = 0;
  #headerBytes = 0;
  #bodyCrc = 0;
  /** For the rest, as far as it has come. */
  #memory: Uint8Array | undefined;
  #collectedBytes = 0;
  #isBroken = false;

  /** @param pool gives the memory of large frames; `giveBackBatches` returns it */
  constructor(pool: BufferPool = new BufferPool()) {
    this.#pool = pool;
  }

  /** Memory that is set aside for a frame of which a part has come. */
  get heldBytes(): number {
    return this.#memory?.length ?? 0;
  }

  /**
   * @param chunk looked at only during the call
   * @returns the frames that end in it
   * @throws PeerError PROTOCOL when the bytes are no frames, in this and every later call: the connection has lost its place
   */
  push(chunk: Uint8Array): Frame[] {
    if (this.#isBroken) throw new PeerError("PROTOCOL", "bytes after a malformed frame");
    try {
      return this.#take(chunk);
    } catch (error) {
      this.#isBroken = true;
      this.#memory = undefined;
      throw error;
    }
  }

  #take(chunk: Uint8Array): Frame[] {
    const frames: Frame[] = [];
    let position = 0;
    while (position < chunk.length) {
      if (this.#prefixBytes < PREFIX_BYTES) {
        const taken = Math.min(PREFIX_BYTES - this.#prefixBytes, chunk.length - position);
        this.#prefix.set(chunk.subarray(position, position + taken), this.#prefixBytes);
        this.#prefixBytes += taken;
        position += taken;
        if (this.#prefixBytes === PREFIX_BYTES) this.#readPrefix();
        continue;
      }
      const taken = Math.min(this.#restBytes - this.#collectedBytes, chunk.length - position);
      const rest = this.#collect(chunk.subarray(position, position + taken));
      position += taken;
      if (rest === undefined) continue;
      if (crc32c(rest) !== this.#bodyCrc) throw new PeerError("PROTOCOL", "the frame was damaged on the way");
      frames.push(decodeRest(rest, this.#headerBytes));
      this.#prefixBytes = 0;
      this.#memory = undefined;
      this.#collectedBytes = 0;
    }
    return frames;
  }

  #readPrefix(): void {
    if (crc32cOfRange(this.#prefix, 0, PREFIX_CRC_AT) !== readUint32(this.#prefix, PREFIX_CRC_AT))
      throw new PeerError("PROTOCOL", "the prefix of a frame was damaged on the way");
    const frameBytes = readUint32(this.#prefix, 0);
    const headerBytes = readUint32(this.#prefix, HEADER_BYTES_AT);
    if (frameBytes > FRAME_BYTES_MAX || headerBytes > FRAME_HEADER_BYTES_MAX) {
      throw new PeerError("PROTOCOL", `frame of ${frameBytes} bytes with a header of ${headerBytes} is too large`);
    }
    const restBytes = frameBytes - (PREFIX_BYTES - 4);
    if (headerBytes === 0 || headerBytes > restBytes) {
      throw new PeerError("PROTOCOL", `header of ${headerBytes} bytes does not fit a frame of ${frameBytes}`);
    }
    this.#restBytes = restBytes;
    this.#headerBytes = headerBytes;
    this.#bodyCrc = readUint32(this.#prefix, BODY_CRC_AT);
  }

  /** The rest of the frame behind its prefix once it is whole. */
  #collect(bytes: Uint8Array): Uint8Array | undefined {
    const neededBytes = this.#collectedBytes + bytes.length;
    let memory = this.#memory;
    if (memory === undefined || memory.length < neededBytes) {
      // Doubled: every byte is moved once more on average, whatever the size of the chunks.
      memory = this.#pool.take(Math.min(this.#restBytes, Math.max(ALLOCATION_BYTES_MAX, neededBytes * 2)));
      if (this.#memory !== undefined) {
        memory.set(this.#memory.subarray(0, this.#collectedBytes));
        this.#pool.giveBack(this.#memory);
      }
      this.#memory = memory;
    }
    memory.set(bytes, this.#collectedBytes);
    this.#collectedBytes = neededBytes;
    return neededBytes === this.#restBytes ? memory : undefined;
  }
}

function decodeRest(rest: Uint8Array, headerBytes: number): Frame {
  const header = parseHeader(rest.subarray(0, headerBytes));
  const message = header.message;
  const batches = new BatchReader(rest, headerBytes);
  fromFields(message, batches);
  batches.finish();
  const isResponse = header.body.endsWith("Response");
  message["kind"] = header.body.slice(0, isResponse ? -"Response".length : -"Request".length);
  checkAcks(message);
  // The descriptor has the fields and types of `peer-messages.ts`; the property tests hold every kind to that.
  return isResponse
    ? { type: "response", correlationId: header.correlationId, message: message as unknown as PeerResponse }
    : { type: "request", correlationId: header.correlationId, message: message as unknown as PeerRequest };
}

function parseHeader(bytes: Uint8Array): { correlationId: number; body: string; message: Record<string, unknown> } {
  let header;
  try {
    if (bytes.length > COUNTED_HEADER_BYTES_MIN && countElements(bytes) > FRAME_ELEMENTS_MAX) {
      throw new Error(`more than ${FRAME_ELEMENTS_MAX} elements`);
    }
    header = decodeHeader(bytes);
  } catch (error) {
    throw new PeerError("PROTOCOL", "the header is malformed", { cause: error });
  }
  if (!Number.isSafeInteger(header.correlationId)) throw new PeerError("PROTOCOL", "correlation id beyond 2^53 - 1");
  if (header.body === undefined) throw new PeerError("PROTOCOL", "the header is of no kind known here");
  return { correlationId: header.correlationId, body: header.body, message: header.message };
}

/** Turns the fields of a header into the message, in place: error names, batches for their lengths; checks the range of integers. */
function fromFields(fields: Record<string, unknown>, batches: BatchReader): void {
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === "number") {
      if (!Number.isSafeInteger(value)) throw new PeerError("PROTOCOL", `${name} is beyond 2^53 - 1`);
      // A number that this version does not know is an error all the same, as in Kafka's Errors.forCode.
      if (name === "error") fields[name] = ERROR_NAMES.get(value) ?? "UNKNOWN_SERVER_ERROR";
      else if (name === "batch" || name === "bytes") fields[name] = batches.take(value);
      else if (name === "json") fields[name] = batches.takeText(value);
    } else if (Array.isArray(value)) {
      for (const element of value as readonly unknown[]) {
        if (isFields(element)) fromFields(element, batches);
      }
    }
  }
}

function isFields(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function checkAcks(message: Record<string, unknown>): void {
  const acks = message["acks"];
  if (acks === undefined || acks === -1 || acks === 0 || acks === 1) return;
  throw new PeerError("PROTOCOL", "acks other than -1, 0 and 1");
}

/** Hands out the bytes behind the header, piece by piece. */
class BatchReader {
  readonly #rest: Uint8Array;
  #position: number;

  constructor(rest: Uint8Array, position: number) {
    this.#rest = rest;
    this.#position = position;
  }

  take(lengthBytes: number): Uint8Array {
    const end = this.#position + lengthBytes;
    if (end > this.#rest.length)
      throw new PeerError("PROTOCOL", `${lengthBytes} bytes of a batch are not in the frame`);
    const bytes = this.#rest.subarray(this.#position, end);
    this.#position = end;
    return bytes;
  }

  takeText(lengthBytes: number): string {
    const text = parseUtf8(this.take(lengthBytes));
    if (text === undefined) throw new PeerError("PROTOCOL", "text is not UTF-8");
    return text;
  }

  finish(): void {
    const leftBytes = this.#rest.length - this.#position;
    if (leftBytes > 0) throw new PeerError("PROTOCOL", `${leftBytes} bytes of the frame belong to nothing`);
  }
}
