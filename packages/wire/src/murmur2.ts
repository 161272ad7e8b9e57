const SEED = 0x9747b28c;
const MULTIPLIER = 0x5bd1e995;

/**
 * Kafka's murmur2, int32: the hash by which its default partitioner places a key. `toPositive(murmur2(key)) % partitions`
 * is the partition every Kafka client chooses.
 *
 * Source: apache/kafka clients/.../common/utils/Utils.java, murmur2
 */
export function murmur2(bytes: Uint8Array): number {
  const length = bytes.length;
  let hash = SEED ^ length;
  let position = 0;
  for (; position + 4 <= length; position += 4) {
    let word =
      (bytes[position] as number) |
      ((bytes[position + 1] as number) << 8) |
      ((bytes[position + 2] as number) << 16) |
      ((bytes[position + 3] as number) << 24);
    word = Math.imul(word, MULTIPLIER);
    word ^= word >>> 24;
    hash = Math.imul(hash, MULTIPLIER) ^ Math.imul(word, MULTIPLIER);
  }
  const rest = length - position;
  if (rest > 2) hash ^= (bytes[position + 2] as number) << 16;
  if (rest > 1) hash ^= (bytes[position + 1] as number) << 8;
  if (rest > 0) hash = Math.imul(hash ^ (bytes[position] as number), MULTIPLIER);
  hash = Math.imul(hash ^ (hash >>> 13), MULTIPLIER);
  return hash ^ (hash >>> 15);
}

/** Clears the sign bit: not the absolute value. Source: apache/kafka Utils.java, toPositive */
export function toPositive(value: number): number {
  return value & 0x7fff_ffff;
}
