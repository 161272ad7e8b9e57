import { open } from "node:fs/promises";
import { addAbortSignal, type Readable } from "node:stream";

import { Tidemark, type AppendedRecord, type RecordToAppend, type Topic } from "@tidemark/server";
import type { CompressionCodec } from "@tidemark/wire";

import { CommandError, describeError, EXIT_OK } from "./errors.ts";
import { formatCount, plural } from "./format.ts";
import { LineSplitter, LineTooLongError } from "./lines.ts";
import { printLine } from "./terminal.ts";
import { topicExists } from "./topic-directory.ts";

export interface AppendOptions {
  readonly topic: string;
  readonly directory: string;
  /** `undefined` reads standard input. */
  readonly filePath: string | undefined;
  readonly keySeparator: string | undefined;
  readonly partition: number | undefined;
  /** Set for the topic, new or not: batches from now on. `undefined` leaves it as it is. */
  readonly compression: CompressionCodec | undefined;
  readonly compressionLevel: number | undefined;
}

/** Appends that wait for their acknowledgement at a time, and records of one. With the chunk they bound memory. */
const APPENDS_IN_FLIGHT_MAX = 16;
const APPEND_RECORDS_MAX = 4000;
const CHUNK_BYTES = 128 * 1024;

/** Room that a batch of one record takes beyond its key and value, with what the separator saves. */
const BATCH_OVERHEAD_BYTES = 128;

/**
 * Appends the lines of a file or of standard input, one record each, split at `\n` only. What has come in is appended
 * without waiting for more, so that a pipe that stays open works too.
 *
 * A topic that does not exist is made, with as many partitions as `partition` needs.
 * @throws CommandError; lines acknowledged before are kept, and the message says how many
 */
export async function appendLines(options: AppendOptions, signal: AbortSignal): Promise<number> {
  const input = await openInput(options.filePath); // First: a missing file must not leave a topic behind.
  input.on("error", () => {}); // An abort before the first read; the read then throws it.
  try {
    return await appendFrom(addAbortSignal(signal, input), options, signal);
  } finally {
    input.destroy();
  }
}

async function appendFrom(input: Readable, options: AppendOptions, signal: AbortSignal): Promise<number> {
  const isNew = !(await topicExists(options.directory, options.topic));
  await using log = await Tidemark.open({ directory: options.directory });
  const topic = await log.topic(options.topic, {
    ...(isNew ? { partitions: (options.partition ?? 0) + 1 } : {}),
    ...(options.compression === undefined ? {} : { compression: options.compression }),
    ...(options.compressionLevel === undefined ? {} : { compressionLevel: options.compressionLevel }),
  });
  if (options.partition !== undefined) topic.partition(options.partition); // Refused now, not with the first line.
  const appender = new LineAppender(topic, options);
  try {
    for await (const chunk of input) await appender.chunk(chunk as Uint8Array);
    await appender.finish();
  } catch (error) {
    await appender.settle();
    signal.throwIfAborted();
    const done =
      appender.count === 0 ? "nothing was appended" : `${plural(appender.count, "record")} before it were appended`;
    throw new CommandError(`${reasonOf(error, topic)}; ${done}`, { cause: error });
  }
  await log.close();
  for (const line of appender.summary()) printLine(line);
  return EXIT_OK;
}

function reasonOf(error: unknown, topic: Topic): string {
  if (!(error instanceof LineTooLongError)) return describeError(error);
  return `line ${error.lineNumber} is too long for a batch of ${topic.config.maxMessageBytes} bytes, the limit of ${topic.name}`;
}

async function openInput(filePath: string | undefined): Promise<Readable> {
  if (filePath === undefined) return process.stdin;
  const file = await open(filePath, "r");
  if ((await file.stat()).isDirectory()) {
    await file.close();
    throw new CommandError(`${filePath}: is a directory, not a file of lines`);
  }
  return file.createReadStream({ highWaterMark: CHUNK_BYTES });
}

class LineAppender {
  readonly #topic: Topic;
  readonly #partition: number | undefined;
  readonly #separator: Buffer | undefined;
  readonly #splitter: LineSplitter;
  readonly #inFlight = new Set<Promise<void>>();
  /** Offsets given out, by partition: `[first, last]`. */
  readonly #ranges = new Map<number, { first: number; last: number; count: number }>();
  #failure: { readonly error: unknown } | undefined;
  #lineCount = 0;

  constructor(topic: Topic, options: AppendOptions) {
    this.#topic = topic;
    this.#partition = options.partition;
    if (options.keySeparator === "") throw new CommandError("--key-separator must not be empty");
    this.#separator = options.keySeparator === undefined ? undefined : Buffer.from(options.keySeparator);
    this.#splitter = new LineSplitter(
      Math.min(topic.config.maxMessageBytes, topic.config.segmentBytes) - BATCH_OVERHEAD_BYTES,
    );
  }

  /** Records acknowledged so far. */
  get count(): number {
    let sum = 0;
    for (const { count } of this.#ranges.values()) sum += count;
    return sum;
  }

  async chunk(bytes: Uint8Array): Promise<void> {
    await this.#lines(this.#splitter.push(bytes));
  }

  /** Appends a last line without `\n`, and waits for every acknowledgement. */
  async finish(): Promise<void> {
    const last = this.#splitter.finish();
    if (last !== undefined) await this.#lines([last]);
    await this.settle();
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  /** Waits until nothing is in flight. */
  async settle(): Promise<void> {
    await Promise.all(this.#inFlight);
  }

  summary(): readonly string[] {
    if (this.#ranges.size === 0) return [`no record appended to ${this.#topic.name}: the input has no line`];
    return [...this.#ranges]
      .sort(([left], [right]) => left - right)
      .map(
        ([partition, { first, last, count }]) =>
          `${plural(count, "record")} appended to ${this.#topic.name}-${partition}, offsets ${formatCount(first)} to ${formatCount(last)}`,
      );
  }

  async #lines(lines: readonly Uint8Array[]): Promise<void> {
    for (let start = 0; start < lines.length; start += APPEND_RECORDS_MAX) {
      const records = lines.slice(start, start + APPEND_RECORDS_MAX).map((line) => this.#record(line));
      while (this.#inFlight.size >= APPENDS_IN_FLIGHT_MAX) await Promise.race(this.#inFlight);
      if (this.#failure !== undefined) throw this.#failure.error;
      const appended: Promise<void> = this.#topic
        .append(records, this.#partition === undefined ? {} : { partition: this.#partition })
        .then(
          (results) => this.#note(results),
          (error: unknown) => {
            this.#failure ??= { error };
          },
        )
        .finally(() => this.#inFlight.delete(appended));
      this.#inFlight.add(appended);
    }
  }

  #record(line: Uint8Array): RecordToAppend {
    this.#lineCount += 1;
    if (this.#separator === undefined) return { value: line };
    const position = Buffer.from(line.buffer, line.byteOffset, line.byteLength).indexOf(this.#separator);
    if (position < 0) throw new CommandError(`line ${this.#lineCount} has no key separator`);
    return { key: line.subarray(0, position), value: line.subarray(position + this.#separator.length) };
  }

  #note(results: readonly AppendedRecord[]): void {
    for (const { partition, offset } of results) {
      const range = this.#ranges.get(partition);
      if (range === undefined) {
        this.#ranges.set(partition, { first: offset, last: offset, count: 1 });
      } else {
        range.first = Math.min(range.first, offset);
        range.last = Math.max(range.last, offset);
        range.count += 1;
      }
    }
  }
}
