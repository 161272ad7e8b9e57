import { CommandError } from "./errors.ts";

/**
 * Bytes for standard output with back-pressure. A reader that goes away (`| head`) is no error: `isClosed` turns true, later
 * writes do nothing, and the command ends early.
 */
export class Output {
  readonly #stream: NodeJS.WritableStream;
  readonly #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #failure: NodeJS.ErrnoException | undefined;
  #wake: (() => void) | undefined;

  /** Bytes gathered before one write to the stream. */
  static readonly GATHER_BYTES = 64 * 1024;

  constructor(stream: NodeJS.WritableStream = process.stdout) {
    this.#stream = stream;
    stream.on("error", (error: NodeJS.ErrnoException) => {
      this.#failure ??= error;
      this.#wake?.();
    });
    stream.on("drain", () => this.#wake?.());
    stream.on("close", () => this.#wake?.());
  }

  /** The reader is gone. */
  get isClosed(): boolean {
    return this.#failure !== undefined;
  }

  /** Takes bytes; they may not change until the next `flush`. True when it is time to await `flush`. */
  add(bytes: Uint8Array): boolean {
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    return this.#pendingBytes >= Output.GATHER_BYTES;
  }

  /**
   * Hands what was added to the stream and waits until it has room again.
   * @throws CommandError when the stream failed for another reason than a reader that went away
   */
  async flush(): Promise<void> {
    if (this.#pending.length > 0 && this.#failure === undefined) {
      const bytes = Buffer.concat(this.#pending);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        if (this.#stream.write(bytes)) resolve();
      });
      this.#wake = undefined;
    }
    this.#pending.length = 0;
    this.#pendingBytes = 0;
    this.#throwIfBroken();
  }

  /** Waits until everything has left the process. */
  async end(): Promise<void> {
    await this.flush();
    if (this.#failure === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        this.#stream.write("", () => resolve());
      });
      this.#wake = undefined;
    }
    this.#throwIfBroken();
  }

  #throwIfBroken(): void {
    if (this.#failure !== undefined && this.#failure.code !== "EPIPE") {
      throw new CommandError(`cannot write to standard output: ${this.#failure.message}`, { cause: this.#failure });
    }
  }
}
