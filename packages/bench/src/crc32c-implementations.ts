import { createRequire } from "node:module";

type Crc32c = (bytes: Uint8Array) => number;

/** The two implementations that the engine's `crc32c` chooses from. */
export interface Crc32cImplementations {
  readonly js: Crc32c;
  /** `undefined` where no binary fits the machine. */
  readonly native: Crc32c | undefined;
}

/** What the wire package keeps to itself, and a benchmark of its choice has to see. */
export async function loadCrc32cImplementations(): Promise<Crc32cImplementations> {
  const wire = import.meta.resolve("@tidemark/wire");
  // Beside the package's index, in its sources or in its compiled code, whichever is running.
  const extension = wire.endsWith(".ts") ? ".ts" : ".js";
  const { crc32cSliced } = (await import(new URL(`./crc32c${extension}`, wire).href)) as {
    readonly crc32cSliced?: (bytes: Uint8Array, fromBytes: number, toBytes: number, initial: number) => number;
  };
  if (crc32cSliced === undefined) throw new Error("the JavaScript CRC-32C is not where it was");
  return { js: (bytes) => crc32cSliced(bytes, 0, bytes.length, 0), native: nativeCrc32c(wire) };
}

function nativeCrc32c(wireUrl: string): Crc32c | undefined {
  try {
    return (createRequire(wireUrl)("@node-rs/crc32") as { readonly crc32c: Crc32c }).crc32c;
  } catch {
    return undefined;
  }
}
