/** zlib's own default, and its least that makes sense here. */
const CHUNK_BYTES_MIN = 16 * 1024;
const CHUNK_BYTES_MAX = 1024 ** 2;
/** What text of records shrinks to, roughly; a wrong guess costs a copy. */
const USUAL_RATIO = 6;

/**
 * Bytes of the pieces in which node:zlib makes room for its output: one piece for a usual payload, since each costs a call and a copy,
 * and none beyond what may come.
 */
export function outputChunkBytes(inputBytes: number, outputBytesMax: number): number {
  // One byte more: a piece that is exactly full asks for another one.
  return Math.max(CHUNK_BYTES_MIN, Math.min(inputBytes * USUAL_RATIO, CHUNK_BYTES_MAX, outputBytesMax) + 1);
}
