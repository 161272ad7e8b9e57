import type { Random } from "@tidemark/base";
import { murmur2, toPositive } from "@tidemark/wire";

/** The partition that every Kafka client chooses for this key. */
export function partitionForKey(key: Uint8Array, partitions: number): number {
  return toPositive(murmur2(key)) % partitions;
}

/**
 * Partitions for records without a key: one at a time, until it was given a batch's worth of bytes, so that batches fill
 * instead of being spread thin; then another one by chance.
 *
 * Source: apache/kafka clients/.../producer/internals/BuiltInPartitioner.java (KIP-794)
 */
export class StickyPartitioner {
  readonly #random: Random;
  readonly #partitions: number;
  readonly #stickyBytes: number;
  #partition: number;
  #bytes = 0;

  constructor(random: Random, partitions: number, stickyBytes: number) {
    this.#random = random;
    this.#partitions = partitions;
    this.#stickyBytes = stickyBytes;
    this.#partition = this.#draw();
  }

  /** The partition for records of this size, which are to stay together. */
  next(bytes: number): number {
    const partition = this.#partition;
    this.#bytes += bytes;
    if (this.#bytes >= this.#stickyBytes) {
      this.#bytes = 0;
      this.#partition = this.#draw();
    }
    return partition;
  }

  #draw(): number {
    return this.#partitions === 1 ? 0 : this.#random.below("sticky-partitioner", this.#partitions);
  }
}
