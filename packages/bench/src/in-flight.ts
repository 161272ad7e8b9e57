/** Promises under way, at most so many: the back-pressure of a producer that does not await each of its appends. */
export class InFlight {
  readonly #countMax: number;
  #promises: Promise<unknown>[] = [];

  constructor(countMax: number) {
    this.#countMax = countMax;
  }

  /** Adds one; resolves at once while there is room, else when the oldest is done. @throws what the oldest failed with */
  async add(promise: Promise<unknown>): Promise<void> {
    promise.catch(() => undefined); // It is awaited later, and must not count as unhandled until then.
    this.#promises.push(promise);
    if (this.#promises.length >= this.#countMax) await this.#promises.shift();
  }

  /** Waits for all. @throws what the first one failed with */
  async drain(): Promise<void> {
    const rest = this.#promises;
    this.#promises = [];
    await Promise.all(rest);
  }
}
