import type { LeaderEpoch, Offset } from "@tidemark/base";

/** Where a leader epoch begins: `startOffset` is the first offset that its leader could write. */
export interface EpochEntry {
  readonly epoch: LeaderEpoch;
  readonly startOffset: Offset;
}

/**
 * Answer to "where does this epoch end": `endOffset` is exclusive. -1, -1 is Kafka's undefined on the wire.
 *
 * `epoch` is a plain number, since a request below every known epoch is echoed as it came.
 */
export interface EpochEndOffset {
  readonly epoch: number;
  readonly endOffset: number;
}

/** UNDEFINED_EPOCH and UNDEFINED_EPOCH_OFFSET. */
export const UNDEFINED_EPOCH_END: EpochEndOffset = Object.freeze({ epoch: -1, endOffset: -1 });
