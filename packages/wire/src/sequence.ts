/** Producer sequence numbers run 0 .. 2^31 - 1 and then from 0 again. Source: apache/kafka DefaultRecordBatch.java */

const SEQUENCE_MAX = 2 ** 31 - 1;

/** `sequence + delta` modulo 2^31; both in 0 .. 2^31 - 1. */
export function incrementSequence(sequence: number, delta: number): number {
  return sequence > SEQUENCE_MAX - delta ? delta - (SEQUENCE_MAX - sequence) - 1 : sequence + delta;
}

/** `sequence - delta` modulo 2^31; both in 0 .. 2^31 - 1. */
export function decrementSequence(sequence: number, delta: number): number {
  return sequence < delta ? SEQUENCE_MAX - (delta - sequence) + 1 : sequence - delta;
}
