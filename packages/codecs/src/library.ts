import { createRequire } from "node:module";
import { WorkerError } from "@tidemark/base";

const load = createRequire(import.meta.url);

/**
 * A library that is loaded when it is first asked for: a program that compresses nothing pays nothing. One that does not load (no binary
 * for this platform) is not tried again.
 * @returns a function that gives the library, or throws WorkerError UNSUPPORTED_COMPRESSION_TYPE
 */
export function lazyLibrary<Library>(name: string, open: (load: NodeJS.Require) => Library): () => Library {
  let library: Library | undefined;
  let failure: WorkerError | undefined;
  return () => {
    if (library !== undefined) return library;
    if (failure !== undefined) throw failure;
    try {
      library = open(load);
      return library;
    } catch (error) {
      failure = new WorkerError("UNSUPPORTED_COMPRESSION_TYPE", `${name} does not load on this platform`, {
        cause: error,
      });
      throw failure;
    }
  };
}

/** The same bytes as a Buffer, which some libraries insist on. No copy. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
