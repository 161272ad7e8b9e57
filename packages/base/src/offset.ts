import { fail } from "./invariant.ts";

declare const unit: unique symbol;
type Branded<T, Unit extends string> = T & { readonly [unit]: Unit };

/** Position of a record in a partition log: 0-based, int64 on disk, at most 2^53 - 1 in memory. */
export type Offset = Branded<number, "Offset">;

/** Leadership generation: int32, at least 0. "None" is `undefined` here and -1 only on disk and wire. */
export type LeaderEpoch = Branded<number, "LeaderEpoch">;

export const LEADER_EPOCH_MAX = 2 ** 31 - 1;

/** @throws InvariantError unless 0 <= value <= 2^53 - 1. For values of our own; bytes go through `parseOffset`. */
export function toOffset(value: number): Offset {
  if (!(Number.isSafeInteger(value) && value >= 0)) fail("0 <= offset <= 2^53 - 1", { value });
  return value as Offset;
}

/** @throws InvariantError unless 0 <= value <= 2^31 - 1. For values of our own; bytes go through `parseLeaderEpoch`. */
export function toLeaderEpoch(value: number): LeaderEpoch {
  if (!(Number.isInteger(value) && value >= 0 && value <= LEADER_EPOCH_MAX)) {
    fail("0 <= leader epoch <= 2^31 - 1", { value });
  }
  return value as LeaderEpoch;
}

/** The offset, or `undefined` when a value from disk or a peer is not one: negative, fractional or above 2^53 - 1. */
export function parseOffset(value: number): Offset | undefined {
  return Number.isSafeInteger(value) && value >= 0 ? (value as Offset) : undefined;
}

/** The leader epoch, or `undefined` when a value from disk or a peer is not one. */
export function parseLeaderEpoch(value: number): LeaderEpoch | undefined {
  return Number.isInteger(value) && value >= 0 && value <= LEADER_EPOCH_MAX ? (value as LeaderEpoch) : undefined;
}
