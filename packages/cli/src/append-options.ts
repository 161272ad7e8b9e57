import type { CompressionCodec } from "@tidemark/wire";

/** What `--compression` takes. Here, and not where the codecs are: to name them needs no engine. */
export const COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"] as const satisfies readonly CompressionCodec[];

/** Of all codecs; the engine knows the range of each. */
export const COMPRESSION_LEVEL_RANGE = { min: -131_072, max: 22 };
