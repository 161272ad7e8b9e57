/** MD5 in plain arithmetic: compaction tells keys apart by it, as Kafka does. Nothing here is secret. Source: RFC 1321. */

const SHIFTS = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21];
const SINES = Int32Array.from({ length: 64 }, (_, step) => Math.floor(Math.abs(Math.sin(step + 1)) * 2 ** 32) | 0);
const BLOCK_BYTES = 64;
const LENGTH_BYTES = 8;

const block = new Uint8Array(BLOCK_BYTES);
const words = new Int32Array(16);

/** Writes the four words of the digest, little-endian as MD5 has them, into `digest` from `at` on. O(bytes), allocates nothing. */
export function md5(bytes: Uint8Array, digest: Int32Array, at: number): void {
  digest[at] = 0x67452301;
  digest[at + 1] = 0xefcdab89 | 0;
  digest[at + 2] = 0x98badcfe | 0;
  digest[at + 3] = 0x10325476;
  let position = 0;
  for (; position + BLOCK_BYTES <= bytes.length; position += BLOCK_BYTES) {
    readWords(bytes, position);
    mix(digest, at);
  }
  const rest = bytes.length - position;
  block.fill(0);
  for (let index = 0; index < rest; index += 1) block[index] = bytes[position + index] as number;
  block[rest] = 0x80;
  readWords(block, 0);
  if (rest + 1 > BLOCK_BYTES - LENGTH_BYTES) {
    mix(digest, at);
    words.fill(0);
  }
  words[14] = bytes.length << 3;
  words[15] = bytes.length >>> 29;
  mix(digest, at);
}

function readWords(bytes: Uint8Array, positionBytes: number): void {
  for (let word = 0; word < 16; word += 1) {
    const from = positionBytes + word * 4;
    words[word] =
      (bytes[from] as number) |
      ((bytes[from + 1] as number) << 8) |
      ((bytes[from + 2] as number) << 16) |
      ((bytes[from + 3] as number) << 24);
  }
}

function mix(digest: Int32Array, at: number): void {
  let a = digest[at] as number;
  let b = digest[at + 1] as number;
  let c = digest[at + 2] as number;
  let d = digest[at + 3] as number;
  for (let step = 0; step < 64; step += 1) {
    const round = step >> 4;
    let f: number;
    let word: number;
    if (round === 0) {
      f = (b & c) | (~b & d);
      word = step;
    } else if (round === 1) {
      f = (d & b) | (~d & c);
      word = (5 * step + 1) & 15;
    } else if (round === 2) {
      f = b ^ c ^ d;
      word = (3 * step + 5) & 15;
    } else {
      f = c ^ (b | ~d);
      word = (7 * step) & 15;
    }
    const sum = (a + f + (SINES[step] as number) + (words[word] as number)) | 0;
    const shift = SHIFTS[(round << 2) | (step & 3)] as number;
    a = d;
    d = c;
    c = b;
    b = (b + ((sum << shift) | (sum >>> (32 - shift)))) | 0;
  }
  digest[at] = ((digest[at] as number) + a) | 0;
  digest[at + 1] = ((digest[at + 1] as number) + b) | 0;
  digest[at + 2] = ((digest[at + 2] as number) + c) | 0;
  digest[at + 3] = ((digest[at + 3] as number) + d) | 0;
}
