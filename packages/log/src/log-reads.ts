import { InvariantError, toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { DECOMPRESSED_BYTES_FACTOR } from "./append-checks.ts";
import { READ_RETRIES_MAX } from "./config.ts";
import { LogError } from "./error.ts";
import type { LogCore } from "./log-core.ts";
import type { ReadOptions, ReadResult } from "./log-read.ts";
import { findMaxTimestamp, findOffsetByTimestamp } from "./offset-lookup.ts";
import type { ListedOffset, OffsetSpec } from "./offset-lookup.ts";
import { NO_TIMESTAMP } from "./time-index.ts";

/** Reads of a partition's log. Each sees one moment of it: they run beside the queue, and look again where a truncation ran. */
export class LogReads {
  readonly #core: LogCore;

  constructor(core: LogCore) {
    this.#core = core;
  }

  /** As `PartitionLog.read`. @throws LogError as that does */
  read(options: ReadOptions): Promise<ReadResult> {
    try {
      return Promise.resolve(this.readSoon(options));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** As `PartitionLog.readSoon`. @throws LogError as that does */
  readSoon(options: ReadOptions): ReadResult | Promise<ReadResult> {
    try {
      return this.#readNow(options) ?? this.#read(options);
    } catch (error) {
      throw error instanceof InvariantError ? error : this.#core.noteFailure(error);
    }
  }

  /** What the page cache is expected to have, without waiting: nothing runs meanwhile, so it is one moment. */
  #readNow(options: ReadOptions): ReadResult | undefined {
    if (this.#core.isClosed || this.#core.truncation !== undefined) return undefined;
    return this.#core.local.readNow(this.#limited(options));
  }

  async #read(options: ReadOptions): Promise<ReadResult> {
    const empty = { bytes: new Uint8Array(0), startOffset: options.fromOffset };
    return this.#atOneMoment(() => this.#core.local.read(this.#limited(options)), empty);
  }

  /** As `PartitionLog.listOffset`. @throws LogError as that does */
  async listOffset(spec: OffsetSpec, limitOffset?: Offset): Promise<ListedOffset | undefined> {
    const found = await this.#atOneMoment(() => this.#findOffset(spec, limitOffset), undefined);
    const isBehindLimit = limitOffset !== undefined && found !== undefined && found.offset >= limitOffset;
    return isBehindLimit && spec !== "latest" && !isEarliest(spec) ? undefined : found;
  }

  async #findOffset(spec: OffsetSpec, limitOffset: Offset | undefined): Promise<ListedOffset | undefined> {
    const { logStartOffset, logEndOffset } = this.#core.local;
    if (isEarliest(spec)) {
      const first = this.#core.epochs.entries[0];
      const isCovered = first !== undefined && first.startOffset <= logStartOffset;
      return {
        offset: logStartOffset,
        timestamp: NO_TIMESTAMP,
        leaderEpoch: isCovered ? first.epoch : undefined,
      };
    }
    if (spec === "latest") {
      const offset = toOffset(Math.min(limitOffset ?? logEndOffset, logEndOffset));
      return { offset, timestamp: NO_TIMESTAMP, leaderEpoch: this.#core.epochs.latest?.epoch };
    }
    const decompressedBytesMax = this.#core.config.maxMessageBytes * DECOMPRESSED_BYTES_FACTOR;
    const view = { ...this.#core.local.view, workers: this.#core.workers, decompressedBytesMax };
    return spec === "max-timestamp" ? findMaxTimestamp(view) : findOffsetByTimestamp(view, spec.timestamp);
  }

  /** Runs `look` again when a truncation ran beside it; what it says is true of one moment. */
  async #atOneMoment<Result>(look: () => Promise<Result>, otherwise: Result): Promise<Result> {
    for (let attempt = 0; attempt < READ_RETRIES_MAX; attempt += 1) {
      await this.#core.truncation;
      if (this.#core.isClosed) throw new LogError({ code: "LOG_CLOSED", directory: this.#core.directory });
      const truncations = this.#core.truncations;
      const deletions = this.#core.deletions;
      try {
        const result = await look();
        if (truncations === this.#core.truncations) return result;
      } catch (error) {
        if (error instanceof InvariantError) throw error;
        if (truncations === this.#core.truncations && deletions === this.#core.deletions)
          throw this.#core.isClosed
            ? new LogError({ code: "LOG_CLOSED", directory: this.#core.directory })
            : this.#core.noteFailure(error);
      }
    }
    return otherwise;
  }

  #limited(options: ReadOptions): ReadOptions {
    if (options.isolation !== "read_committed") return options;
    return { ...options, limitOffset: this.#core.lastStableOffset(options.limitOffset) };
  }
}

function isEarliest(spec: OffsetSpec): spec is "earliest" | "earliest-local" {
  return spec === "earliest" || spec === "earliest-local";
}
