// The package has no types of its own; this is the one function used here.
declare module "fs-native-extensions" {
  /** False when another open file holds the range; `length` 0 = to the end, wherever that may be. */
  export function tryLock(descriptor: number, offset?: number, length?: number): boolean;
}
