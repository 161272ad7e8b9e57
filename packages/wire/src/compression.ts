import { WorkerError } from "@tidemark/base";
import type { CodecName, WorkerPool } from "@tidemark/base";
import { compressionCodec, recordsSection, withCompressedPayload } from "./record-batch.ts";
import type { BatchHeader } from "./record-batch.ts";

/**
 * A payload of at least so many bytes is compressed by the pool, or decompressed there (then they are compressed bytes). Below it the
 * hand-over holds up the event loop as long as the work itself would. Each number has its row in `bench --only "inline or pool"`.
 */
export const IN_POOL_BYTES_MIN: Readonly<
  Record<CodecName, { readonly compress: number; readonly decompress: number }>
> = {
  gzip: { compress: 4 * 1024, decompress: 8 * 1024 },
  snappy: { compress: 16 * 1024, decompress: 16 * 1024 },
  lz4: { compress: 32 * 1024, decompress: 32 * 1024 },
  zstd: { compress: 16 * 1024, decompress: 8 * 1024 },
};

/**
 * A small payload that becomes more than this is left to the pool after all: it may be made to. A kilobyte of zstd can become 40 MB.
 */
export const INLINE_OUTPUT_BYTES_MAX = 256 * 1024;

type PoolJobs = Pick<WorkerPool, "run" | "runNow">;

/**
 * The batch with its records compressed, or the batch itself when that is no larger. At once where that is cheaper than the hand-over.
 * @param batch an uncompressed batch; not changed, and needed until the result is there
 * @throws WorkerError
 */
export function compressBatch(
  workers: PoolJobs,
  batch: Uint8Array,
  header: BatchHeader,
  codec: CodecName,
  level: number | undefined,
): Uint8Array | Promise<Uint8Array> {
  const payload = recordsSection(batch, header);
  const smaller = (compressed: Uint8Array): Uint8Array =>
    compressed.length < payload.length ? withCompressedPayload(batch, codec, compressed) : batch;
  if (payload.length < IN_POOL_BYTES_MIN[codec].compress) {
    return smaller(workers.runNow("compress", { codec, payload, level }));
  }
  // A copy: what is handed to the pool may not be touched again, and the batch around it still may be needed.
  return workers.run("compress", { codec, payload: new Uint8Array(payload), level }).then(smaller);
}

/**
 * The records of a batch, decompressed: a view on `bytes` when they are not compressed, else memory of their own. At once where that is
 * cheaper than the hand-over.
 * @param outputBytesMax whatever the payload claims, it takes no more
 * @throws WireError UNSUPPORTED_COMPRESSION_TYPE for a codec that there is none of
 * @throws WorkerError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE (at once), and all others of the pool
 */
export function decompressBatch(
  workers: PoolJobs,
  bytes: Uint8Array,
  header: BatchHeader,
  outputBytesMax: number,
): Uint8Array | Promise<Uint8Array> {
  const codec = compressionCodec(header);
  const section = recordsSection(bytes, header);
  if (codec === "none") return section;
  if (section.length < IN_POOL_BYTES_MIN[codec].decompress) {
    const inlineBytesMax = Math.min(outputBytesMax, INLINE_OUTPUT_BYTES_MAX);
    try {
      return workers.runNow("decompress", { codec, payload: section, outputBytesMax: inlineBytesMax });
    } catch (error) {
      const isTooLarge = error instanceof WorkerError && error.code === "MESSAGE_TOO_LARGE";
      if (!isTooLarge || inlineBytesMax === outputBytesMax) throw error;
    }
  }
  return workers.run("decompress", { codec, payload: new Uint8Array(section), outputBytesMax });
}

/**
 * As `decompressBatch`, at once in any case: for tools, which have no event loop to spare.
 * @throws WireError UNSUPPORTED_COMPRESSION_TYPE
 * @throws WorkerError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE
 */
export function decompressBatchNow(
  workers: Pick<WorkerPool, "runNow">,
  bytes: Uint8Array,
  header: BatchHeader,
  outputBytesMax: number,
): Uint8Array {
  const codec = compressionCodec(header);
  const section = recordsSection(bytes, header);
  return codec === "none" ? section : workers.runNow("decompress", { codec, payload: section, outputBytesMax });
}
