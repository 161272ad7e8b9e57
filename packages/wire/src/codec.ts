import { WorkerError } from "@tidemark/base";
import type { CodecName, Codecs } from "@tidemark/base";
import { corruptPayload } from "./byte-sink.ts";
import { compressLz4, decompressLz4 } from "./codec-lz4.ts";
import { compressSnappy, decompressSnappy } from "./codec-snappy.ts";
import { compressZstd, decompressZstd } from "./codec-zstd.ts";

/*
 * The records section of a compressed batch: one blob, framed as each codec has it in Kafka. The libraries come as a value; what lies
 * around a library's blocks, what bounds its output and what an error is called is decided here.
 *
 * Source: apache/kafka clients/.../common/compress/*.java
 */

/** Where gzip says how hard it tried and names the operating system; Java writes 0 and 255, so that the bytes do not depend on the machine. */
const GZIP_EXTRA_FLAGS_POSITION = 8;
const GZIP_SYSTEM_POSITION = 9;
const GZIP_SYSTEM_UNKNOWN = 255;

/** Inclusive; a codec that is not here has no levels. Kafka has levels of lz4 too, which its library's own fast compressor does not know. */
const LEVEL_RANGES: Readonly<Partial<Record<CodecName, { readonly min: number; readonly max: number }>>> = {
  gzip: { min: 1, max: 9 },
  zstd: { min: -131_072, max: 22 },
};

/** The levels that a codec takes, both ends included; undefined = it has none. */
export function compressionLevels(codec: CodecName): { readonly min: number; readonly max: number } | undefined {
  return LEVEL_RANGES[codec];
}

/**
 * The payload compressed, in memory of its own (it can be transferred to another thread).
 * @param level in `compressionLevels(codec)`; undefined = the codec's default. Codecs without levels pass over it
 * @throws WorkerError UNSUPPORTED_COMPRESSION_TYPE when the codec's library does not load on this platform
 */
export function compressPayload(codecs: Codecs, codec: CodecName, payload: Uint8Array, level?: number): Uint8Array {
  switch (codec) {
    case "gzip": {
      const compressed = owned(codecs.compressGzip(payload, level));
      compressed[GZIP_EXTRA_FLAGS_POSITION] = 0;
      compressed[GZIP_SYSTEM_POSITION] = GZIP_SYSTEM_UNKNOWN;
      return compressed;
    }
    case "snappy":
      return compressSnappy(codecs, payload);
    case "lz4":
      return compressLz4(codecs, payload);
    case "zstd":
      return owned(compressZstd(codecs, payload, level));
    default:
      throw unknownCodec(codec satisfies never);
  }
}

/**
 * The payload decompressed, in memory of its own.
 *
 * Several gzip members, snappy streams or zstd frames one after another are one payload; of lz4 frames the first is all.
 * @param outputBytesMax bounds the memory taken, whatever the payload claims: a few times this at most, for a moment
 * @throws WorkerError CORRUPT_MESSAGE when the payload is none of the codec's or is cut, MESSAGE_TOO_LARGE past `outputBytesMax`,
 * UNSUPPORTED_COMPRESSION_TYPE when the codec's library does not load on this platform
 */
export function decompressPayload(
  codecs: Codecs,
  codec: CodecName,
  payload: Uint8Array,
  outputBytesMax: number,
): Uint8Array {
  try {
    switch (codec) {
      case "gzip":
        return owned(codecs.decompressGzip(payload, outputBytesMax));
      case "snappy":
        return decompressSnappy(codecs, payload, outputBytesMax);
      case "lz4":
        return decompressLz4(codecs, payload, outputBytesMax);
      case "zstd":
        return decompressZstd(codecs, payload, outputBytesMax);
      default:
        throw unknownCodec(codec satisfies never);
    }
  } catch (error) {
    if (error instanceof WorkerError) throw error;
    // Whatever a library says of bytes that it cannot read.
    throw corruptPayload(codec, error instanceof Error ? error.message : "not a payload of its kind", { cause: error });
  }
}

function unknownCodec(codec: never): WorkerError {
  return new WorkerError("UNSUPPORTED_COMPRESSION_TYPE", `codec ${String(codec)}`);
}

/** Libraries hand out views on memory that they share or keep; such a view could neither be kept nor transferred. */
function owned(result: Uint8Array): Uint8Array {
  return new Uint8Array(result);
}
