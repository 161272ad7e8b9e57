/** Wakes everybody who waits, again and again. */
export class WakeSignal {
  readonly #waiting = new Set<() => void>();

  /** Resolves at the next `wake`, or when cancelled. */
  wait(): { readonly promise: Promise<void>; cancel(): void } {
    let settle: () => void = () => undefined;
    const promise = new Promise<void>((resolve) => {
      settle = resolve;
    });
    this.#waiting.add(settle);
    const cancel = (): void => {
      this.#waiting.delete(settle);
      settle();
    };
    return { promise, cancel };
  }

  wake(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const settle of waiting) settle();
  }
}
