import { toOffset } from "@tidemark/base";
import type { Offset, State, StatePut } from "@tidemark/base";

/** The offsets that a node's `State` keeps of a partition; the first part of their keys. */
export type StateOffsetName = "recovery-point" | "log-start" | "high-watermark" | "cleaner-offset";

/** `recovery-point/`, before `orders-3`. */
export function stateOffsetPrefix(name: StateOffsetName): string {
  return `${name}/`;
}

/** @returns `undefined` when nothing is known of the partition, or what is there is no offset */
export function readStateOffset(
  state: Pick<State, "get">,
  name: StateOffsetName,
  topic: string,
  partition: number,
): Offset | undefined {
  const value = decodeStateInt64(state.get(`${stateOffsetPrefix(name)}${topic}-${partition}`));
  return value === undefined ? undefined : toOffset(value);
}

export function putStateOffset(name: StateOffsetName, topic: string, partition: number, offset: Offset): StatePut {
  return { key: `${stateOffsetPrefix(name)}${topic}-${partition}`, value: encodeStateInt64(offset) };
}

/** int64, big-endian. @param value a safe integer */
export function encodeStateInt64(value: number): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, BigInt(value));
  return bytes;
}

/** @returns 0 .. 2^53 - 1; `undefined` for what is no such number */
export function decodeStateInt64(bytes: Uint8Array | undefined): number | undefined {
  if (bytes?.length !== 8) return undefined;
  const value = Number(new DataView(bytes.buffer, bytes.byteOffset, 8).getBigInt64(0));
  return Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
