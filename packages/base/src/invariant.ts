/** A broken invariant: the state can no longer be trusted. Thrown, reported once, never handled. */
export class InvariantError extends Error {
  override readonly name = "InvariantError";
  readonly invariant: string;
  readonly detail: Readonly<Record<string, unknown>>;

  constructor(invariant: string, detail: Readonly<Record<string, unknown>>) {
    super(`invariant broken: ${invariant} ${JSON.stringify(detail)}`);
    this.invariant = invariant;
    this.detail = detail;
  }
}

/**
 * Reports a programmer error.
 *
 * Call it on the failing branch only, so that `detail` is not built otherwise: `if (!(a <= b)) fail("a <= b", { a, b })`.
 * @throws InvariantError always
 */
export function fail(invariant: string, detail: Readonly<Record<string, unknown>> = {}): never {
  throw new InvariantError(invariant, detail);
}
