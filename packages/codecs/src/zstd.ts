import * as zlib from "node:zlib";
import { WorkerError } from "@tidemark/base";
import { asBuffer, lazyLibrary } from "./library.ts";
import { outputChunkBytes } from "./output-chunk.ts";
import { openZstdWasm } from "./zstd-wasm.ts";
import type { Zstd } from "./zstd-way.ts";

/** Kafka's default, and the library's. */
const LEVEL_DEFAULT = 3;

/** What node:zlib has from Node 22.15 on. */
interface BuiltInZstd {
  readonly constants: { readonly ZSTD_c_compressionLevel: number };
  zstdCompressSync(input: Uint8Array, options: { readonly params: Readonly<Record<number, number>> }): Buffer;
  zstdDecompressSync(
    input: Uint8Array,
    options: { readonly maxOutputLength: number; readonly chunkSize: number },
  ): Buffer;
}

/** Asked for by what it can do, never by version. */
function openBuiltIn(): Zstd {
  const builtIn = zlib as unknown as Partial<BuiltInZstd> & Pick<BuiltInZstd, "constants">;
  const { zstdCompressSync, zstdDecompressSync, constants } = builtIn;
  if (zstdCompressSync === undefined || zstdDecompressSync === undefined) throw new Error("node:zlib has no zstd");
  return {
    compress: (payload, level) =>
      zstdCompressSync(payload, { params: { [constants.ZSTD_c_compressionLevel]: level ?? LEVEL_DEFAULT } }),
    decompressFrame: (frame, { outputBytesMax }) => {
      const chunkSize = outputChunkBytes(frame.length, outputBytesMax);
      try {
        return zstdDecompressSync(frame, { maxOutputLength: outputBytesMax, chunkSize });
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        throw new WorkerError("MESSAGE_TOO_LARGE", `more than ${outputBytesMax} bytes`, { cause: error });
      }
    },
  };
}

interface NativeZstd {
  readonly Encoder: new (level: number) => { encodeSync(input: Buffer): Buffer };
  readonly Decoder: new () => { decodeSync(input: Buffer): Buffer };
}

/** Levels whose encoders are kept. */
const ENCODERS_KEPT_MAX = 4;

const wasm = lazyLibrary("@bokuweb/zstd-wasm", openZstdWasm);

/** `@toondepauw/node-zstd`: it takes no bound, so that a frame whose structure does not bound it goes to the one that does. */
function openNative(load: NodeJS.Require): Zstd {
  const { Encoder, Decoder } = load("@toondepauw/node-zstd") as NativeZstd;
  const encoders = new Map<number, { encodeSync(input: Buffer): Buffer }>();
  const decoder = new Decoder();
  return {
    compress: (payload, level = LEVEL_DEFAULT) => {
      let encoder = encoders.get(level);
      if (encoder === undefined) {
        if (encoders.size >= ENCODERS_KEPT_MAX) encoders.clear();
        encoder = new Encoder(level);
        encoders.set(level, encoder);
      }
      return encoder.encodeSync(asBuffer(payload));
    },
    decompressFrame: (frame, limits) =>
      limits.frameBytesMax <= limits.outputBytesMax
        ? decoder.decodeSync(asBuffer(frame))
        : wasm().decompressFrame(frame, limits),
  };
}

/** Each way to Zstandard by its name, the best first. One that cannot be had here throws UNSUPPORTED_COMPRESSION_TYPE. */
export const ZSTD_WAYS: Readonly<Record<"built in" | "native" | "wasm", () => Zstd>> = {
  "built in": lazyLibrary("zstd of node:zlib", openBuiltIn),
  native: lazyLibrary("@toondepauw/node-zstd", openNative),
  wasm,
};

/** The best there is. */
export const zstd = lazyLibrary("zstd", () => {
  const failures: unknown[] = [];
  for (const open of Object.values(ZSTD_WAYS)) {
    try {
      return open();
    } catch (error) {
      failures.push(error);
    }
  }
  throw new AggregateError(failures);
});
