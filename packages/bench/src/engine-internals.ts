import { createRequire } from "node:module";

type Crc32c = (bytes: Uint8Array) => number;

/** What the engine's packages keep to themselves, and a benchmark of its choices has to see. */
export interface EngineInternals {
  readonly crc32cJs: Crc32c;
  /** `undefined` where no binary fits the machine. */
  readonly crc32cNative: Crc32c | undefined;
  readonly compressInPoolBytesMin: number;
  readonly decompressInPoolBytesMin: number;
}

export async function loadEngineInternals(): Promise<EngineInternals> {
  const wire = import.meta.resolve("@tidemark/wire");
  const server = import.meta.resolve("@tidemark/server");
  const { crc32cSliced } = await loadBeside<{
    crc32cSliced: (bytes: Uint8Array, from: number, to: number, initial: number) => number;
  }>(wire, "crc32c");
  const { COMPRESS_IN_POOL_BYTES_MIN } = await loadBeside<{ COMPRESS_IN_POOL_BYTES_MIN: number }>(
    server,
    "partition-accumulator",
  );
  const { DECOMPRESS_IN_POOL_BYTES_MIN } = await loadBeside<{ DECOMPRESS_IN_POOL_BYTES_MIN: number }>(server, "fetch");
  return {
    crc32cJs: (bytes) => crc32cSliced(bytes, 0, bytes.length, 0),
    crc32cNative: nativeCrc32c(wire),
    compressInPoolBytesMin: COMPRESS_IN_POOL_BYTES_MIN,
    decompressInPoolBytesMin: DECOMPRESS_IN_POOL_BYTES_MIN,
  };
}

/** A module that lies beside a package's index, in its sources or in its compiled code, whichever is running. */
async function loadBeside<Module>(indexUrl: string, name: string): Promise<Module> {
  const extension = indexUrl.endsWith(".ts") ? ".ts" : ".js";
  return (await import(new URL(`./${name}${extension}`, indexUrl).href)) as Module;
}

function nativeCrc32c(wireUrl: string): Crc32c | undefined {
  try {
    return (createRequire(wireUrl)("@node-rs/crc32") as { crc32c: Crc32c }).crc32c;
  } catch {
    return undefined;
  }
}
