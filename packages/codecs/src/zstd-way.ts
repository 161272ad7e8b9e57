import type { ZstdFrameLimits } from "@tidemark/base";

/** One way to Zstandard. */
export interface Zstd {
  compress(payload: Uint8Array, level: number | undefined): Uint8Array;
  /** @throws WorkerError MESSAGE_TOO_LARGE past `outputBytesMax`; anything for a frame that is none */
  decompressFrame(frame: Uint8Array, limits: ZstdFrameLimits): Uint8Array;
}
