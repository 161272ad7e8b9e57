// The only ambient names of the core, all of them pure functions of their input. Everything else comes from Environment.

declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  decode(input: Uint8Array): string;
}

declare class TextEncoder {
  encode(input: string): Uint8Array<ArrayBuffer>;
}
