const NEWLINE = 0x0a;

/** A line is longer than its reader allows. `lineNumber` counts from 1. */
export class LineTooLongError extends Error {
  override readonly name = "LineTooLongError";
  readonly lineNumber: number;
  readonly lineBytesMax: number;

  constructor(lineNumber: number, lineBytesMax: number) {
    super(`line ${lineNumber} is longer than ${lineBytesMax} bytes`);
    this.lineNumber = lineNumber;
    this.lineBytesMax = lineBytesMax;
  }
}

/**
 * Splits bytes into lines at `\n` and nowhere else: a `\r` before it, invalid UTF-8 and NUL bytes belong to the line. The
 * `\n` itself does not. Bytes after the last `\n` are a line too, unless there are none.
 *
 * Lines inside one chunk are views of it; a line over several chunks is copied once. Holds at most `lineBytesMax` bytes.
 */
export class LineSplitter {
  readonly #lineBytesMax: number;
  /** Pieces of the line that has begun, in order; together `#heldBytes`, at most `#lineBytesMax`. */
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  /** Lines given out so far. */
  #lineCount = 0;
  /** Set once a line was too long: the lines before it were given out, nothing comes after it. */
  #failure: LineTooLongError | undefined;

  constructor(lineBytesMax: number) {
    this.#lineBytesMax = lineBytesMax;
  }

  /**
   * The lines that end in this chunk; of a chunk with a line over the limit (ended or not) those before it. The chunk may not be
   * written to afterwards.
   * @throws LineTooLongError when there was such a line in a chunk before
   */
  push(chunk: Uint8Array): Uint8Array[] {
    if (this.#failure !== undefined) throw this.#failure;
    const lines: Uint8Array[] = [];
    let start = 0;
    // A loop over the bytes beats `indexOf` for lines of ordinary length, and loses little on long ones.
    for (let position = 0; position < chunk.length; position += 1) {
      if (chunk[position] !== NEWLINE) continue;
      const tail = chunk.subarray(start, position);
      if (!this.#hasRoom(tail)) return lines;
      lines.push(this.#complete(tail));
      start = position + 1;
    }
    if (start < chunk.length) this.#hold(chunk.subarray(start));
    return lines;
  }

  /** The last line when the input does not end in `\n`. @throws LineTooLongError when a line was over the limit */
  finish(): Uint8Array | undefined {
    if (this.#failure !== undefined) throw this.#failure;
    return this.#heldBytes === 0 ? undefined : this.#complete(new Uint8Array(0));
  }

  #hasRoom(piece: Uint8Array): boolean {
    if (this.#heldBytes + piece.length <= this.#lineBytesMax) return true;
    this.#failure = new LineTooLongError(this.#lineCount + 1, this.#lineBytesMax);
    return false;
  }

  #complete(tail: Uint8Array): Uint8Array {
    this.#lineCount += 1;
    if (this.#heldBytes === 0) return tail;
    const line = new Uint8Array(this.#heldBytes + tail.length);
    let positionBytes = 0;
    for (const piece of this.#held) {
      line.set(piece, positionBytes);
      positionBytes += piece.length;
    }
    line.set(tail, positionBytes);
    this.#held = [];
    this.#heldBytes = 0;
    return line;
  }

  #hold(piece: Uint8Array): void {
    if (!this.#hasRoom(piece)) return;
    this.#held.push(piece);
    this.#heldBytes += piece.length;
  }
}

/**
 * The lines of a stream, in blocks of at least one, so that a reader awaits once a chunk and not once a line.
 * @throws LineTooLongError, after the lines before it; and what the stream throws
 */
export async function* lineBlocks(
  chunks: AsyncIterable<Uint8Array>,
  lineBytesMax: number,
): AsyncGenerator<readonly Uint8Array[]> {
  const splitter = new LineSplitter(lineBytesMax);
  for await (const chunk of chunks) {
    const lines = splitter.push(chunk);
    if (lines.length > 0) yield lines;
  }
  const last = splitter.finish();
  if (last !== undefined) yield [last];
}

export interface LineSummary {
  readonly lineCount: number;
  /** Bytes of the lines, without their `\n`. */
  readonly lineBytes: number;
  readonly longestLineBytes: number;
  /** Whether the last line ends in `\n`; true for an input without lines. */
  readonly endsWithNewline: boolean;
}

/**
 * Counts the lines of a stream without keeping any.
 * @param onProgress called after each chunk with the bytes read so far
 * @throws LineTooLongError for the first line over the limit
 */
export async function summarizeLines(
  chunks: AsyncIterable<Uint8Array>,
  lineBytesMax: number,
  onProgress: (readBytes: number) => void = () => {},
): Promise<LineSummary> {
  let lineCount = 0;
  let totalBytes = 0;
  let longestLineBytes = 0;
  let lineStart = 0; // Position of the current line's first byte in the whole stream.
  for await (const chunk of chunks) {
    for (let position = chunk.indexOf(NEWLINE); position >= 0; position = chunk.indexOf(NEWLINE, position + 1)) {
      const lengthBytes = totalBytes + position - lineStart;
      if (lengthBytes > lineBytesMax) throw new LineTooLongError(lineCount + 1, lineBytesMax);
      if (lengthBytes > longestLineBytes) longestLineBytes = lengthBytes;
      lineCount += 1;
      lineStart = totalBytes + position + 1;
    }
    totalBytes += chunk.length;
    if (totalBytes - lineStart > lineBytesMax) throw new LineTooLongError(lineCount + 1, lineBytesMax);
    onProgress(totalBytes);
  }
  const newlineCount = lineCount;
  const lastBytes = totalBytes - lineStart;
  if (lastBytes > 0) {
    lineCount += 1;
    longestLineBytes = Math.max(longestLineBytes, lastBytes);
  }
  return { lineCount, lineBytes: totalBytes - newlineCount, longestLineBytes, endsWithNewline: lastBytes === 0 };
}
