import { constants, gunzipSync, gzipSync } from "node:zlib";
import { WorkerError } from "@tidemark/base";

/** Where gzip names the operating system; Java writes 255, unknown, and so the bytes do not depend on the machine. */
const GZIP_SYSTEM_POSITION = 9;
const GZIP_SYSTEM_UNKNOWN = 255;

/**
 * The payload compressed, in memory of its own (it can be transferred to another thread).
 * @param level 1 .. 9; undefined = the codec's default
 */
export function compressPayload(codec: "gzip", payload: Uint8Array, level?: number): Uint8Array {
  switch (codec) {
    case "gzip": {
      const compressed = owned(gzipSync(payload, { level: level ?? constants.Z_DEFAULT_COMPRESSION }));
      compressed[GZIP_SYSTEM_POSITION] = GZIP_SYSTEM_UNKNOWN;
      return compressed;
    }
    default:
      throw new WorkerError("CORRUPT", `codec ${String(codec satisfies never)}`);
  }
}

/**
 * The payload decompressed, in memory of its own. Several gzip members one after another are one payload.
 * @param outputBytesMax bounds the memory taken, whatever the payload claims
 * @throws WorkerError CORRUPT when the payload is none of the codec's or is cut, RECORD_TOO_LARGE past `outputBytesMax`
 */
export function decompressPayload(codec: "gzip", payload: Uint8Array, outputBytesMax: number): Uint8Array {
  switch (codec) {
    case "gzip":
      return gunzip(payload, outputBytesMax);
    default:
      throw new WorkerError("CORRUPT", `codec ${String(codec satisfies never)}`);
  }
}

function gunzip(payload: Uint8Array, outputBytesMax: number): Uint8Array {
  try {
    return owned(gunzipSync(payload, { maxOutputLength: outputBytesMax }));
  } catch (error) {
    if (error instanceof RangeError) {
      throw new WorkerError("RECORD_TOO_LARGE", `more than ${outputBytesMax} bytes`, { cause: error });
    }
    throw new WorkerError("CORRUPT", "not a gzip payload", { cause: error });
  }
}

/** Node cuts small results from a buffer it shares; such a view could neither be kept nor transferred. */
function owned(result: Buffer): Uint8Array {
  return result.length === result.buffer.byteLength
    ? new Uint8Array(result.buffer, 0, result.length)
    : new Uint8Array(result);
}
