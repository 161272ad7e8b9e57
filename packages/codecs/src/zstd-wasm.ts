import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { WorkerError } from "@tidemark/base";
import type { Zstd } from "./zstd-way.ts";

const LEVEL_DEFAULT = 3;
/** `ZSTD_error_dstSize_tooSmall`, as the functions return it. */
const OUTPUT_TOO_SMALL = -70;

/** The little that is needed of it: Node has it, its types come with those of browsers only. */
declare const WebAssembly: {
  readonly Module: new (binary: Uint8Array) => object;
  readonly Instance: new (module: object, imports: object) => object;
};

/** What Emscripten made of the library, so far as it is called here. Addresses and sizes are bytes in its memory. */
interface ZstdModule {
  readonly HEAPU8: Uint8Array;
  instantiateWasm: (imports: object, receive: (instance: object) => unknown) => unknown;
  init(): void;
  _malloc(sizeBytes: number): number;
  _free(address: number): void;
  _ZSTD_isError(result: number): number;
  _ZSTD_compressBound(sizeBytes: number): number;
  _ZSTD_compress(target: number, targetBytes: number, source: number, sourceBytes: number, level: number): number;
  _ZSTD_decompress(target: number, targetBytes: number, source: number, sourceBytes: number): number;
}

/**
 * `@bokuweb/zstd-wasm`, for platforms that have nothing else. Its own entry starts up with a promise and gives no bound; here its module
 * is made at once, which Node allows, and called with room for as much as the caller takes.
 */
export function openZstdWasm(load: NodeJS.Require): Zstd {
  const directory = dirname(load.resolve("@bokuweb/zstd-wasm"));
  const { Module: module } = load(join(directory, "module.js")) as { Module: ZstdModule };
  const binary = new WebAssembly.Module(readFileSync(join(directory, "zstd.wasm")));
  module.instantiateWasm = (imports, receive) => receive(new WebAssembly.Instance(binary, imports));
  module.init();
  return {
    compress: (payload, level) => {
      const boundBytes = module._ZSTD_compressBound(payload.length);
      return run(module, payload, boundBytes, (target, source) =>
        module._ZSTD_compress(target, boundBytes, source, payload.length, level ?? LEVEL_DEFAULT),
      );
    },
    decompressFrame: (frame, { outputBytesMax, frameBytesMax }) => {
      const roomBytes = Math.min(outputBytesMax, frameBytesMax);
      return run(module, frame, roomBytes, (target, source) =>
        module._ZSTD_decompress(target, roomBytes, source, frame.length),
      );
    },
  };
}

/** Calls one function over memory of the module, which is given back whatever happens. */
function run(
  module: ZstdModule,
  input: Uint8Array,
  roomBytes: number,
  call: (target: number, source: number) => number,
): Uint8Array {
  const source = allocate(module, input.length);
  try {
    const target = allocate(module, roomBytes);
    try {
      module.HEAPU8.set(input, source);
      const result = call(target, source);
      if (result === OUTPUT_TOO_SMALL) throw new WorkerError("MESSAGE_TOO_LARGE", `more than ${roomBytes} bytes`);
      if (module._ZSTD_isError(result) !== 0) throw new Error(`zstd error ${-result}`);
      return module.HEAPU8.slice(target, target + result);
    } finally {
      module._free(target);
    }
  } finally {
    module._free(source);
  }
}

/** @throws WorkerError MESSAGE_TOO_LARGE when the module's memory cannot grow so far */
function allocate(module: ZstdModule, sizeBytes: number): number {
  // Nothing of no size: an address of 0 means that there is no memory.
  const address = module._malloc(Math.max(sizeBytes, 1));
  if (address === 0) throw new WorkerError("MESSAGE_TOO_LARGE", `no memory for ${sizeBytes} bytes`);
  return address;
}
