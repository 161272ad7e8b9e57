/**
 * - `CORRUPT`: the database is no database or is damaged. Close what uses it, move its directory aside and open again: the
 *   state then starts empty, which costs a longer recovery and no record;
 * - `IO`: the operating system refused (no space, no right, a failing disk); the commit did not take effect;
 * - `CLOSED`: called after `close`.
 */
export type StateErrorCode = "CLOSED" | "CORRUPT" | "IO";

/** What the state database said; the original is the cause. */
export class StateError extends Error {
  override readonly name = "StateError";
  readonly code: StateErrorCode;
  /** The directory of the database. */
  readonly path: string;

  constructor(code: StateErrorCode, path: string, message: string, options?: ErrorOptions) {
    super(`${code}: state ${path}: ${message}`, options);
    this.code = code;
    this.path = path;
  }
}
