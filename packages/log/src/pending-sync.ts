/**
 * What a file or directory has that no sync has covered yet.
 *
 * A sync under way is waited for by all that come beside it. One that failed fails all that come later: its pages may be clean and gone,
 * and another sync would succeed without having written anything.
 * Source: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020
 */
export class PendingSync {
  /** Something was written or named since the last sync began. */
  isDirty: boolean;
  /** All syncs so far; rejected as soon as one of them was. */
  #begun: Promise<unknown> = Promise.resolve();

  constructor(isDirty = false) {
    this.isDirty = isDirty;
  }

  /**
   * Resolves when all that was there at the call is durable; `sync` runs only if something is left to do.
   * @throws what the first sync that failed did
   */
  async run(sync: () => Promise<void>): Promise<void> {
    if (this.isDirty) {
      this.isDirty = false;
      this.#begun = Promise.all([this.#begun, sync()]);
    }
    await this.#begun;
  }
}
