import { WorkerError } from "@tidemark/base";

/** Room to begin with, when nothing is known. */
const ROOM_BYTES_MIN = 1024;

/**
 * Bytes put one behind the other into memory that grows by doubling, never past a bound. Parts are copied, so that they may lie in memory
 * that is used again.
 */
export class ByteSink {
  readonly #bytesMax: number;
  #bytes: Uint8Array<ArrayBuffer>;
  #length = 0;

  /** @param bytesMax more than this is MESSAGE_TOO_LARGE, whatever the input claims */
  constructor(bytesMax: number, roomBytes: number) {
    this.#bytesMax = bytesMax;
    this.#bytes = new Uint8Array(Math.min(Math.max(roomBytes, ROOM_BYTES_MIN), bytesMax));
  }

  get length(): number {
    return this.#length;
  }

  /** @throws WorkerError MESSAGE_TOO_LARGE; then nothing was added */
  add(part: Uint8Array): void {
    const length = this.#length + part.length;
    if (length > this.#bytesMax) throw tooLarge(this.#bytesMax);
    if (length > this.#bytes.length) {
      const grown = new Uint8Array(Math.min(Math.max(length, this.#bytes.length * 2), this.#bytesMax));
      grown.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = grown;
    }
    this.#bytes.set(part, this.#length);
    this.#length = length;
  }

  /** What was added, in memory of its own. The sink is not used any more. */
  take(): Uint8Array {
    return this.#length === this.#bytes.length ? this.#bytes : this.#bytes.slice(0, this.#length);
  }
}

export function tooLarge(bytesMax: number): WorkerError {
  return new WorkerError("MESSAGE_TOO_LARGE", `it decompresses to more than ${bytesMax} bytes`);
}

export function corruptPayload(codec: string, reason: string, options?: ErrorOptions): WorkerError {
  return new WorkerError("CORRUPT_MESSAGE", `${codec}: ${reason}`, options);
}
