/**
 * Big-endian integers in a Uint8Array, without a DataView: the scanner and the encoder run once per batch, and a view
 * made for each of them costs more than the loads. Every caller has checked that the range lies inside `bytes`; past the
 * end a read gives 0.
 *
 * 64-bit values are numbers: exact within 2^53 - 1 either way, rounded beyond it. Whoever reads an offset checks that.
 */

/** Signed, -2^15 .. 2^15 - 1. */
export function readInt16(bytes: Uint8Array, positionBytes: number): number {
  return (((bytes[positionBytes] as number) << 24) >> 16) | (bytes[positionBytes + 1] as number);
}

/** Signed, -2^31 .. 2^31 - 1. */
export function readInt32(bytes: Uint8Array, positionBytes: number): number {
  return (
    ((bytes[positionBytes] as number) << 24) |
    ((bytes[positionBytes + 1] as number) << 16) |
    ((bytes[positionBytes + 2] as number) << 8) |
    (bytes[positionBytes + 3] as number)
  );
}

/** 0 .. 2^32 - 1. */
export function readUint32(bytes: Uint8Array, positionBytes: number): number {
  return readInt32(bytes, positionBytes) >>> 0;
}

/** Signed 64 bits as a number; exact within 2^53 - 1. */
export function readInt64(bytes: Uint8Array, positionBytes: number): number {
  return readInt32(bytes, positionBytes) * 2 ** 32 + readUint32(bytes, positionBytes + 4);
}

export function writeInt16(bytes: Uint8Array, positionBytes: number, value: number): void {
  bytes[positionBytes] = value >> 8;
  bytes[positionBytes + 1] = value;
}

/** Signed or unsigned: -2^31 .. 2^32 - 1. */
export function writeInt32(bytes: Uint8Array, positionBytes: number, value: number): void {
  bytes[positionBytes] = value >> 24;
  bytes[positionBytes + 1] = value >> 16;
  bytes[positionBytes + 2] = value >> 8;
  bytes[positionBytes + 3] = value;
}

/** A safe integer, negative ones in two's complement. */
export function writeInt64(bytes: Uint8Array, positionBytes: number, value: number): void {
  const high = Math.floor(value / 2 ** 32);
  writeInt32(bytes, positionBytes, high);
  writeInt32(bytes, positionBytes + 4, value - high * 2 ** 32);
}
