import { InvariantError } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import type { LogCore } from "./log-core.ts";
import { storageError } from "./log-directory.ts";
import { ProducerState } from "./producer-state.ts";

/** Cuts of a partition's log. Tasks of its queue; reads that overlap one start again. */
export class LogTruncation {
  readonly #core: LogCore;

  constructor(core: LogCore) {
    this.#core = core;
  }

  /** As `PartitionLog.truncateTo`. @throws LogError as that does */
  truncateTo(offset: Offset): Promise<void> {
    return this.#core.task(() => this.exclusively(() => this.#truncateTo(offset)));
  }

  /** As `PartitionLog.truncateFullyAndStartAt`. @throws LogError as that does */
  truncateFullyAndStartAt(offset: Offset): Promise<void> {
    return this.#core.task(() => this.exclusively(() => this.#truncateFully(offset)));
  }

  /**
   * Runs `truncate` without a flush beside it, and makes reads that overlap it start again. One that fails half way stops the
   * partition: what its files hold is known again after the next open.
   */
  async exclusively(truncate: () => Promise<void>): Promise<void> {
    await this.#core.settle();
    this.#core.truncations += 1;
    const running = truncate();
    this.#core.truncation = running.catch(() => undefined);
    try {
      await running;
    } catch (error) {
      this.#core.failure ??= error instanceof InvariantError ? error : storageError(error, this.#core.directory);
      throw error;
    } finally {
      this.#core.truncations += 1;
      this.#core.truncation = undefined;
    }
  }

  async #truncateTo(offset: Offset): Promise<void> {
    this.#core.cuts += 1;
    const { logEndOffset } = this.#core.local;
    if (offset < logEndOffset) {
      if (offset < this.#core.local.firstBaseOffset) return this.#truncateFully(offset);
      this.#core.producers = await this.#core.local.truncateTo(offset);
    }
    this.#core.epochs.truncateFromEnd(Math.min(offset, logEndOffset));
    await this.#core.epochs.flush();
  }

  async #truncateFully(offset: Offset): Promise<void> {
    this.#core.cuts += 1;
    await this.#core.local.truncateFullyAndStartAt(offset, () => this.#core.epochs.clearAndFlush());
    this.#core.producers = new ProducerState();
  }
}
