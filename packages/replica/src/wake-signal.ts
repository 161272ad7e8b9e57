/** Wakes everybody who waits, again and again. */
export class WakeSignal {
  readonly #waiting = new Set<() => void>();

  /** Calls `wakened` once, at the next `wake`. @returns takes it back; to be called when nobody waits any more */
  add(wakened: () => void): () => void {
    this.#waiting.add(wakened);
    return () => void this.#waiting.delete(wakened);
  }

  /** Resolves at the next `wake`, or when cancelled. */
  wait(): { readonly promise: Promise<void>; cancel(): void } {
    let settle: () => void = () => undefined;
    const promise = new Promise<void>((resolve) => {
      settle = resolve;
    });
    const remove = this.add(settle);
    const cancel = (): void => {
      remove();
      settle();
    };
    return { promise, cancel };
  }

  wake(): void {
    if (this.#waiting.size === 0) return;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const settle of waiting) settle();
  }
}
