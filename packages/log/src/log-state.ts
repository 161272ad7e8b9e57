import type { Offset, State, StatePut } from "@tidemark/base";
import { putStateOffset, readStateOffset } from "./state-values.ts";

/**
 * What a partition keeps in the node's `State`: two offsets, and the borders where a follower's log leaves offsets out.
 *
 * ```text
 * recovery-point/orders-3           -> int64   everything below is on the disk
 * log-start/orders-3                -> int64
 * segment-gap/orders-3/00..0042     -> (empty) segment 42 does not begin where the one before it ends, and that is right
 * ```
 */
export class LogState {
  readonly #state: State;
  readonly #topic: string;
  readonly #partition: number;

  constructor(state: State, topic: string, partition: number) {
    this.#state = state;
    this.#topic = topic;
    this.#partition = partition;
  }

  /** `undefined` when nothing is known: the state was lost, or the log is new to this node. */
  get recoveryPoint(): Offset | undefined {
    return readStateOffset(this.#state, "recovery-point", this.#topic, this.#partition);
  }

  get logStartOffset(): Offset | undefined {
    return readStateOffset(this.#state, "log-start", this.#topic, this.#partition);
  }

  hasGapBefore(segmentBaseOffset: Offset): boolean {
    return this.#state.get(this.#gapKey(segmentBaseOffset)) !== undefined;
  }

  /** Without `sync`: losing a raise costs a longer scan and nothing else. */
  async raiseRecoveryPoint(offset: Offset): Promise<void> {
    await this.#state.commit([this.#recoveryPoint(offset)], { sync: false });
  }

  /** Durable before a byte below the old one is touched; the borders at or above it go with it. */
  async lowerRecoveryPoint(offset: Offset): Promise<void> {
    const prefix = this.#gapKey(undefined);
    const stale = this.#state.keys(prefix).filter((key) => Number(key.slice(prefix.length)) >= offset);
    await this.#state.commit([this.#recoveryPoint(offset), ...stale.map((key) => ({ key, value: undefined }))], {
      sync: true,
    });
  }

  async saveStart(logStartOffset: Offset, recoveryPoint: Offset): Promise<void> {
    const start = putStateOffset("log-start", this.#topic, this.#partition, logStartOffset);
    await this.#state.commit([start, this.#recoveryPoint(recoveryPoint)], { sync: true });
  }

  /** Durable before the segment exists, else recovery would take the border for a lost segment. */
  async saveGapBefore(segmentBaseOffset: Offset): Promise<void> {
    await this.#state.commit([{ key: this.#gapKey(segmentBaseOffset), value: new Uint8Array(0) }], { sync: true });
  }

  #recoveryPoint(offset: Offset): StatePut {
    return putStateOffset("recovery-point", this.#topic, this.#partition, offset);
  }

  #gapKey(segmentBaseOffset: Offset | undefined): string {
    const prefix = `segment-gap/${this.#topic}-${this.#partition}/`;
    return segmentBaseOffset === undefined ? prefix : prefix + String(segmentBaseOffset).padStart(20, "0");
  }
}
