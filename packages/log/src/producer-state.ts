import { incrementSequence } from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import { LogError } from "./error.ts";

/** Batches remembered per producer; a producer may have as many in flight. Kafka: ProducerStateEntry.NUM_BATCHES_TO_RETAIN. */
export const BATCHES_REMEMBERED = 5;

interface RememberedBatch {
  readonly baseSequence: number;
  readonly lastSequence: number;
  readonly baseOffset: number;
  readonly lastOffset: number;
}

interface ProducerEntry {
  readonly producerEpoch: number;
  /** Oldest first, at most `BATCHES_REMEMBERED`. */
  readonly batches: readonly RememberedBatch[];
}

export type ProducerVerdict =
  | { readonly type: "append" }
  | { readonly type: "duplicate"; readonly baseOffset: number; readonly lastOffset: number }
  | { readonly type: "refuse"; readonly error: LogError };

const APPEND: ProducerVerdict = { type: "append" };

/**
 * What the log knows of its idempotent producers: epoch and last batches of each.
 *
 * Source: apache/kafka storage/.../internals/log/{ProducerStateManager,ProducerAppendInfo}.java
 */
export class ProducerState {
  readonly #producers = new Map<number, ProducerEntry>();

  get producerCount(): number {
    return this.#producers.size;
  }

  /** What a leader does with a batch: append it, answer an earlier one's offsets, or refuse it. */
  judge(header: BatchHeader): ProducerVerdict {
    const { producerId, producerEpoch, baseSequence } = header;
    if (producerId < 0) return APPEND;
    const entry = this.#producers.get(producerId);
    // An unknown producer may begin anywhere: its earlier batches may have been deleted.
    if (entry === undefined) return APPEND;
    if (producerEpoch < entry.producerEpoch) {
      return {
        type: "refuse",
        error: new LogError({
          code: "INVALID_PRODUCER_EPOCH",
          producerId,
          producerEpoch,
          currentEpoch: entry.producerEpoch,
        }),
      };
    }
    const isSameEpoch = producerEpoch === entry.producerEpoch;
    const lastSequence = lastSequenceOf(header);
    if (isSameEpoch) {
      const earlier = entry.batches.find(
        (batch) => batch.baseSequence === baseSequence && batch.lastSequence === lastSequence,
      );
      if (earlier !== undefined)
        return { type: "duplicate", baseOffset: earlier.baseOffset, lastOffset: earlier.lastOffset };
    }
    const last = entry.batches.at(-1);
    const expectedSequence = isSameEpoch && last !== undefined ? incrementSequence(last.lastSequence, 1) : 0;
    if (baseSequence !== expectedSequence) {
      return {
        type: "refuse",
        error: new LogError({ code: "OUT_OF_ORDER_SEQUENCE_NUMBER", producerId, baseSequence, expectedSequence }),
      };
    }
    return APPEND;
  }

  /**
   * Remembers an appended batch, as leader or as follower, who takes over what the leader decided.
   * @returns the way back, for a write that fails; ways back run newest first
   */
  remember(header: BatchHeader, baseOffset: number): () => void {
    const { producerId, producerEpoch } = header;
    if (producerId < 0 || header.baseSequence < 0) return () => undefined;
    const before = this.#producers.get(producerId);
    const kept =
      before !== undefined && before.producerEpoch === producerEpoch
        ? before.batches.slice(1 - BATCHES_REMEMBERED)
        : [];
    const batch: RememberedBatch = {
      baseSequence: header.baseSequence,
      lastSequence: lastSequenceOf(header),
      baseOffset,
      lastOffset: baseOffset + header.lastOffsetDelta,
    };
    this.#producers.set(producerId, { producerEpoch, batches: [...kept, batch] });
    return () => {
      if (before === undefined) this.#producers.delete(producerId);
      else this.#producers.set(producerId, before);
    };
  }

  clear(): void {
    this.#producers.clear();
  }

  /** The sequence that a producer's next batch must carry, or `undefined` when the log does not know the producer. */
  nextSequence(producerId: number): number | undefined {
    const last = this.#producers.get(producerId)?.batches.at(-1);
    return last === undefined ? undefined : incrementSequence(last.lastSequence, 1);
  }
}

function lastSequenceOf(header: BatchHeader): number {
  return header.baseSequence < 0 ? -1 : incrementSequence(header.baseSequence, header.lastOffsetDelta);
}
