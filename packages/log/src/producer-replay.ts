import type { BatchHeader, EndTransactionMarker } from "@tidemark/wire";
import type { LoadedSnapshot } from "./producer-snapshots.ts";
import { ProducerState } from "./producer-state.ts";
import type { AbortedTransaction } from "./transaction-index.ts";

/**
 * Producers' state out of a snapshot and the batches of a log, which come in order: those below the snapshot too, as far as somebody looks at
 * them anyway. They tell of what it leaves out: batches before the last, and aborted transactions.
 */
export class ProducerReplay {
  readonly #snapshot: LoadedSnapshot | undefined;
  readonly #fromSnapshot: ProducerState | undefined;
  /** Batches below the snapshot go to a state of their own until the snapshot's offset is reached. */
  #state = new ProducerState();
  #isAtSnapshot: boolean;

  /** @param expiry leaves producers of the snapshot out of whom nothing was heard for long */
  constructor(
    snapshot: LoadedSnapshot | undefined,
    expiry?: { readonly nowMs: number; readonly expirationMs: number },
  ) {
    this.#snapshot = snapshot;
    this.#isAtSnapshot = snapshot === undefined;
    if (snapshot === undefined) return;
    this.#fromSnapshot = new ProducerState(snapshot.entries);
    if (expiry !== undefined) this.#fromSnapshot.expire(expiry.nowMs, expiry.expirationMs);
  }

  /** Everything below is in the snapshot; 0 without one. */
  get startOffset(): number {
    return this.#snapshot?.offset ?? 0;
  }

  /** Whether the snapshot names any. */
  get hasProducers(): boolean {
    return (this.#fromSnapshot?.producerCount ?? 0) > 0;
  }

  /** Takes the next batch. @returns the transaction that it aborts, if it does */
  batch(header: BatchHeader, marker: EndTransactionMarker | undefined): AbortedTransaction | undefined {
    if (!this.#isAtSnapshot && header.baseOffset >= this.startOffset) this.#enterSnapshot();
    return this.#state.remember(header, header.baseOffset, marker).aborted;
  }

  /** The state at the end of the batches. */
  finish(): ProducerState {
    if (!this.#isAtSnapshot) this.#enterSnapshot();
    return this.#state;
  }

  #enterSnapshot(): void {
    this.#isAtSnapshot = true;
    if (this.#fromSnapshot === undefined) return;
    this.#fromSnapshot.recall(this.#state);
    this.#state = this.#fromSnapshot;
  }
}
