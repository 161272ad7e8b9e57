import { constants, gunzipSync, gzipSync } from "node:zlib";
import { WorkerError } from "@tidemark/base";
import type { Codecs } from "@tidemark/base";
import { asBuffer, lazyLibrary } from "./library.ts";
import { outputChunkBytes } from "./output-chunk.ts";
import { zstd } from "./zstd.ts";

interface SnappyLibrary {
  compressSync(block: Uint8Array): Buffer;
  uncompressSync(block: Uint8Array, options: { readonly asBuffer: true }): Buffer;
}

interface Lz4Library {
  compressSync(block: Buffer): Buffer;
  uncompressSync(block: Uint8Array): Buffer;
}

const snappy = lazyLibrary("snappy", (load) => load("snappy") as SnappyLibrary);
const lz4 = lazyLibrary("lz4-napi", (load) => load("lz4-napi") as Lz4Library);

/** lz4-napi puts the length of the block in front, little-endian, where an LZ4 frame has none. */
const LZ4_PREFIX_BYTES = 4;

/**
 * The libraries of this process: zlib for gzip, `snappy`, `lz4-napi`, and the best zstd there is (`zstd.ts`). Stateless, for any thread.
 */
export const NODE_CODECS: Codecs = {
  compressGzip: (payload, level) => gzipSync(payload, { level: level ?? constants.Z_DEFAULT_COMPRESSION }),

  decompressGzip: (payload, outputBytesMax) => {
    const chunkSize = outputChunkBytes(payload.length, outputBytesMax);
    try {
      return gunzipSync(payload, { maxOutputLength: outputBytesMax, chunkSize });
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new WorkerError("MESSAGE_TOO_LARGE", `more than ${outputBytesMax} bytes`, { cause: error });
    }
  },

  compressSnappyBlock: (block) => snappy().compressSync(block),

  decompressSnappyBlock: (block) => snappy().uncompressSync(block, { asBuffer: true }),

  compressLz4Block: (block) => lz4().compressSync(asBuffer(block)).subarray(LZ4_PREFIX_BYTES),

  decompressLz4Block: (block, outputBytesMax) => {
    // The length in front is what the library makes room for; it gives back less when the block holds less.
    const prefixed = Buffer.allocUnsafe(LZ4_PREFIX_BYTES + block.length);
    prefixed.writeUInt32LE(outputBytesMax, 0);
    prefixed.set(block, LZ4_PREFIX_BYTES);
    return lz4().uncompressSync(prefixed);
  },

  compressZstd: (payload, level) => zstd().compress(payload, level),

  decompressZstdFrame: (frame, limits) => zstd().decompressFrame(frame, limits),
};
