/**
 * Base-128 little-endian groups, high bit = more follow. Records use the zigzag forms (0, -1, 1, -2 ... -> 0, 1, 2, 3 ...),
 * control values and flexible messages the unsigned one.
 *
 * Source: apache/kafka clients/.../common/utils/ByteUtils.java
 */

/** Bytes of a zigzag varint; `value` is an int32. 1 to 5. */
export function varintBytes(value: number): number {
  return unsignedVarintBytes(((value << 1) ^ (value >> 31)) >>> 0);
}

/** Bytes of an unsigned varint; 0 <= `value` <= 2^32 - 1. 1 to 5. */
export function unsignedVarintBytes(value: number): number {
  if (value < 0x80) return 1;
  if (value < 0x4000) return 2;
  if (value < 0x20_0000) return 3;
  return value < 0x1000_0000 ? 4 : 5;
}

/** Bytes of a zigzag varlong; `value` is a safe integer. 1 to 8. */
export function varlongBytes(value: number): number {
  if (value >= -0x4000_0000 && value < 0x4000_0000) return varintBytes(value);
  // Zigzag as (magnitude, sign) in place of 2 * magnitude + sign, which would leave the safe integers at 2^52.
  let magnitude = value < 0 ? -(value + 1) : value;
  let count = 1;
  magnitude = Math.floor(magnitude / 0x40);
  while (magnitude > 0) {
    magnitude = Math.floor(magnitude / 0x80);
    count += 1;
  }
  return count;
}

/** Writes a zigzag varint and returns the position after it. `value` is an int32; the caller made room. */
export function writeVarint(target: Uint8Array, positionBytes: number, value: number): number {
  return writeUnsignedVarint(target, positionBytes, (value << 1) ^ (value >> 31));
}

/** Writes an unsigned varint and returns the position after it. `value` is taken as 32 bits without a sign. */
export function writeUnsignedVarint(target: Uint8Array, positionBytes: number, value: number): number {
  let position = positionBytes;
  let rest = value;
  while ((rest & ~0x7f) !== 0) {
    target[position++] = (rest & 0x7f) | 0x80;
    rest >>>= 7;
  }
  target[position++] = rest;
  return position;
}

/** Writes a zigzag varlong and returns the position after it. `value` is a safe integer. */
export function writeVarlong(target: Uint8Array, positionBytes: number, value: number): number {
  if (value >= -0x4000_0000 && value < 0x4000_0000) return writeVarint(target, positionBytes, value);
  let position = positionBytes;
  const magnitude = value < 0 ? -(value + 1) : value;
  let rest = Math.floor(magnitude / 0x40);
  target[position++] = ((magnitude % 0x40) << 1) | (value < 0 ? 1 : 0) | 0x80; // More follows: the short values left above.
  while (rest >= 0x80) {
    target[position++] = (rest % 0x80) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  target[position++] = rest;
  return position;
}

/** Why a varint could not be read. */
export type VarintFault = "past the end" | "longer than its type";

/**
 * Reads varints one after another; a place to keep the position, so that reading allocates nothing.
 *
 * After a fault `fault` is set, every result is 0 and stays unusable; the caller looks once per record, not per field.
 */
export class VarintReader {
  readonly bytes: Uint8Array;
  /** Where the next read begins. May be moved by the owner to step over bytes. */
  position: number;
  /** No read goes to or past this position. */
  end: number;
  fault: VarintFault | undefined = undefined;

  constructor(bytes: Uint8Array, positionBytes = 0, endBytes: number = bytes.length) {
    this.bytes = bytes;
    this.position = positionBytes;
    this.end = endBytes;
  }

  /** A zigzag varint: int32. A form longer than needed is accepted, bits above 32 are dropped, as Kafka does. */
  readVarint(): number {
    const value = this.readUnsignedVarint();
    return (value >>> 1) ^ -(value & 1);
  }

  /** An unsigned varint: 0 .. 2^32 - 1. */
  readUnsignedVarint(): number {
    const bytes = this.bytes;
    let position = this.position;
    let value = 0;
    for (let shift = 0; shift <= 28; shift += 7) {
      if (position >= this.end) return this.#stop("past the end");
      const byte = bytes[position++] as number;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) {
        this.position = position;
        return value >>> 0;
      }
    }
    return this.#stop("longer than its type");
  }

  /**
   * A zigzag varlong as a number: exact within 2^53 - 1, outside it the result is not a safe integer (and rounded), so
   * that `Number.isSafeInteger` tells.
   */
  readVarlong(): number {
    const bytes = this.bytes;
    let position = this.position;
    let magnitude = 0;
    let sign = 0;
    let scale = 1;
    for (let group = 0; group < 10; group += 1) {
      if (position >= this.end) return this.#stop("past the end");
      const byte = bytes[position++] as number;
      if (group === 0) {
        sign = byte & 1;
        magnitude = (byte & 0x7f) >> 1;
        scale = 0x40;
      } else {
        magnitude += (group === 9 ? byte & 1 : byte & 0x7f) * scale; // Only bit 63 is left for the tenth group.
        scale *= 0x80;
      }
      if (byte < 0x80) {
        this.position = position;
        return sign === 0 ? magnitude : -magnitude - 1;
      }
    }
    return this.#stop("longer than its type");
  }

  #stop(fault: VarintFault): number {
    this.fault ??= fault;
    this.position = this.end;
    return 0;
  }
}
