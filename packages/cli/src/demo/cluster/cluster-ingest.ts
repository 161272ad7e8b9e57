import type { ClusterProducer } from "@tidemark/server";

import { lineBlocks } from "../../lines.ts";
import { inputChunks, type InputSource } from "../input.ts";

export interface IngestOptions {
  readonly source: InputSource;
  readonly lineBytesMax: number;
  /** A batch takes at most so many records and so many bytes of lines (one longer line goes alone). */
  readonly batchRecordsMax: number;
  readonly batchBytesMax: number;
  readonly producer: ClusterProducer;
  readonly onAcknowledged: (count: number) => void;
  /** An acknowledgement that names other offsets than those of its lines. */
  readonly onMisplaced: (problem: string) => void;
}

interface Waiter {
  readonly count: number;
  readonly resolve: (nowMs: number) => void;
}

/** Sends lines in order, line i as record i, as far as it is told to, and keeps count of what was acknowledged. */
export class ClusterIngest {
  readonly #options: IngestOptions;
  readonly #lines: LineReader;
  #sentCount = 0;
  #acknowledgedCount = 0;
  /** Settles when every batch sent so far is acknowledged, in their order; rejects when one failed. */
  #acknowledgements: Promise<void> = Promise.resolve();
  #waiters: Waiter[] = [];

  constructor(options: IngestOptions) {
    this.#options = options;
    this.#lines = new LineReader(lineBlocks(inputChunks(options.source), options.lineBytesMax));
  }

  /** Lines [0, sentCount) are on their way, or in the log. */
  get sentCount(): number {
    return this.#sentCount;
  }

  /** Every record below it was acknowledged. */
  get acknowledgedCount(): number {
    return this.#acknowledgedCount;
  }

  /**
   * Sends lines up to `endLine`, as fast as acknowledgements come back.
   * @param batchesMax sends no more batches than that; the last ones may not be acknowledged when it resolves
   * @throws what the producer or the input throws
   */
  async send(endLine: number, batchesMax = Number.POSITIVE_INFINITY): Promise<void> {
    const { producer, batchRecordsMax, batchBytesMax } = this.#options;
    for (let batches = 0; batches < batchesMax && this.#sentCount < endLine; batches += 1) {
      const recordsMax = Math.min(batchRecordsMax, endLine - this.#sentCount);
      const lines = await this.#lines.take(recordsMax, batchBytesMax);
      if (lines.length === 0) throw new Error(`the input ends before line ${this.#sentCount + 1}`);
      await producer.ready();
      const timestamp = Date.now();
      const sent = producer.send(lines.map((value) => ({ key: null, value, timestamp })));
      this.#expect(sent, this.#sentCount, lines.length);
      this.#sentCount += lines.length;
    }
  }

  /** Waits until all that was sent is acknowledged. @throws what the producer throws */
  drain(): Promise<void> {
    return this.#acknowledgements;
  }

  /** @returns when that many were acknowledged, by `performance.now()`. Never rejects: race it with `drain`. */
  whenAcknowledged(count: number): Promise<number> {
    if (this.#acknowledgedCount >= count) return Promise.resolve(performance.now());
    return new Promise((resolve) => this.#waiters.push({ count, resolve }));
  }

  async close(): Promise<void> {
    await this.#lines.close();
  }

  #expect(sent: ReturnType<ClusterProducer["send"]>, firstLine: number, count: number): void {
    this.#acknowledgements = this.#acknowledge(this.#acknowledgements, sent, firstLine, count);
    // Whoever drains hears of it.
    this.#acknowledgements.catch(() => undefined);
    sent.catch(() => undefined);
  }

  async #acknowledge(
    before: Promise<void>,
    sent: ReturnType<ClusterProducer["send"]>,
    firstLine: number,
    count: number,
  ): Promise<void> {
    await before;
    const { baseOffset, lastOffset } = await sent;
    if (baseOffset !== firstLine || lastOffset !== firstLine + count - 1) {
      this.#options.onMisplaced(
        `lines ${firstLine + 1} to ${firstLine + count} were acknowledged as records ${baseOffset} to ${lastOffset}`,
      );
    }
    this.#acknowledgedCount = firstLine + count;
    this.#options.onAcknowledged(this.#acknowledgedCount);
    const nowMs = performance.now();
    for (const waiter of this.#waiters) if (waiter.count <= this.#acknowledgedCount) waiter.resolve(nowMs);
    this.#waiters = this.#waiters.filter((waiter) => waiter.count > this.#acknowledgedCount);
  }
}

/** Lines in batches. */
class LineReader {
  readonly #blocks: AsyncIterator<readonly Uint8Array[]>;
  #block: readonly Uint8Array[] = [];
  #index = 0;

  constructor(blocks: AsyncIterable<readonly Uint8Array[]>) {
    this.#blocks = blocks[Symbol.asyncIterator]();
  }

  /** The next lines: at least one, unless the input has ended. */
  async take(recordsMax: number, bytesMax: number): Promise<readonly Uint8Array[]> {
    const lines: Uint8Array[] = [];
    for (let bytes = 0; lines.length < recordsMax;) {
      const line = this.#block[this.#index];
      if (line === undefined) {
        const next = await this.#blocks.next();
        if (next.done === true) break;
        this.#block = next.value;
        this.#index = 0;
        continue;
      }
      bytes += line.length;
      if (lines.length > 0 && bytes > bytesMax) break;
      lines.push(line);
      this.#index += 1;
    }
    return lines;
  }

  async close(): Promise<void> {
    await this.#blocks.return?.();
  }
}
