import { CommandError, describeError } from "./errors.ts";

/**
 * Bytes for standard output with back-pressure. A reader that goes away (`| head`) is no error: `isClosed` turns true, later
 * writes do nothing, and the command ends early.
 */
export class Output {
  /** Bytes gathered before one write to the stream. */
  static readonly GATHER_BYTES = 64 * 1024;

  readonly #stream: NodeJS.WritableStream;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #failure: NodeJS.ErrnoException | undefined;
  /** Ends the wait of the write that is under way, if there is one. */
  #wake: (() => void) | undefined;
  /** The writes so far, one after the other. Never rejects. */
  #writes: Promise<void> = Promise.resolve();
  #isFlushSoon = false;

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

  /** Takes bytes; they may not change until the next `flush` has resolved. True when it is time to await `flush`. */
  add(bytes: Uint8Array): boolean {
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    return this.#pendingBytes >= Output.GATHER_BYTES;
  }

  /** Flushes when the event loop comes round, which it does as soon as there is nothing more to add for the moment. */
  flushSoon(): void {
    if (this.#isFlushSoon) return;
    this.#isFlushSoon = true;
    setImmediate(() => {
      this.#isFlushSoon = false;
      this.#write();
    });
  }

  /**
   * Hands what was added to the stream and waits until it has room again.
   * @throws CommandError when the stream failed for another reason than a reader that went away
   */
  async flush(): Promise<void> {
    this.#write();
    await this.#writes;
    this.#throwIfBroken();
  }

  /** Waits until everything has left the process. @throws CommandError as `flush` */
  async end(): Promise<void> {
    await this.flush();
    if (this.#failure === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        this.#stream.write("", () => resolve());
      });
    }
    this.#throwIfBroken();
  }

  #write(): void {
    if (this.#pending.length === 0) return;
    const bytes = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#writes = this.#writeAfter(this.#writes, bytes);
  }

  async #writeAfter(before: Promise<void>, bytes: Uint8Array): Promise<void> {
    await before;
    if (this.#failure !== undefined) return;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (this.#stream.write(bytes)) resolve();
    });
  }

  #throwIfBroken(): void {
    if (this.#failure !== undefined && this.#failure.code !== "EPIPE") {
      throw new CommandError(`cannot write to standard output: ${describeError(this.#failure)}`, {
        cause: this.#failure,
      });
    }
  }
}
