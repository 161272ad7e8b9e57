import { toOffset } from "@tidemark/base";
import type { Offset, WorkerPool } from "@tidemark/base";
import type { PartitionLog } from "@tidemark/log";
import {
  checkCrc,
  compressionCodec,
  decodeRecords,
  decompressPayload,
  isControlBatch,
  recordsSection,
  scanBatch,
} from "@tidemark/wire";
import type { BatchHeader, RecordHeader } from "@tidemark/wire";
import { TidemarkError, toTidemarkError } from "./error.ts";

/** Bytes read from the log at a time unless told otherwise. Kafka: max.partition.fetch.bytes. */
export const FETCH_BYTES_DEFAULT = 1024 ** 2;

/** A compressed payload of at least this many bytes is decompressed by the pool. */
export const DECOMPRESS_IN_POOL_BYTES_MIN = 8 * 1024;

/** No batch may decompress to more: it is held in memory at once. */
export const DECOMPRESSED_BYTES_MAX = 256 * 1024 ** 2;

export interface FetchOptions {
  readonly partition: number;
  /** Where to begin: an offset, `earliest` = log start, `latest` = where the log ends when `fetch` is called. Default `earliest`. */
  readonly from?: "earliest" | "latest" | number;
  /** Ends before this offset. Default: no end. */
  readonly to?: number;
  /** On abort the iteration rejects with `signal.reason`. */
  readonly signal?: AbortSignal;
  /** Bytes read from the log at a time; one batch is always read whole. Default 1 MiB. */
  readonly maxBytes?: number;
  /** At the end of the log: `true` waits for new records, `false` ends the iteration. Default `true`. */
  readonly follow?: boolean;
}

/**
 * A record that was read. `key`, `value` and header values are views on the slice it was read with (`maxBytes`, and more for a
 * large batch): they stay valid, and one that is kept keeps its slice in memory; copy it if it is to be kept for long.
 */
export interface FetchedRecord {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  /** Unix time in ms; -1 = none. */
  readonly timestamp: number;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly RecordHeader[];
}

export interface FetchSource {
  readonly topic: string;
  readonly partition: number;
  readonly log: PartitionLog;
  readonly workers: WorkerPool;
  /** Why the log may not be used any more, if so. */
  readonly refusal: () => TidemarkError | undefined;
}

/**
 * Records from `fromOffset` on, in order. One read of the log a slice, not one a record.
 *
 * Every batch's CRC is checked. Control batches are passed over.
 */
export async function* fetchRecords(
  source: FetchSource,
  fromOffset: Offset,
  options: Omit<FetchOptions, "partition" | "from">,
): AsyncGenerator<FetchedRecord, void, undefined> {
  const { log } = source;
  const { signal, follow = true, maxBytes = FETCH_BYTES_DEFAULT } = options;
  const toOffsetEnd = options.to ?? Number.POSITIVE_INFINITY;
  const endAtStart = follow ? Number.POSITIVE_INFINITY : log.visibleEndOffset;
  const place = { topic: source.topic, partition: source.partition };
  let offset: number = fromOffset;
  try {
    for (;;) {
      signal?.throwIfAborted();
      // A log that closes wakes its waiters.
      const refusal = source.refusal();
      if (refusal !== undefined) throw refusal;
      if (offset >= toOffsetEnd || offset >= endAtStart) return;
      const limitOffset = log.visibleEndOffset;
      if (offset >= limitOffset) {
        await waitForRecords(log, toOffset(offset), signal);
        continue;
      }
      const { bytes } = await log.read({ fromOffset: toOffset(offset), maxBytes, limitOffset, minOneBatch: true });
      const before = offset;
      for (let positionBytes = 0; positionBytes < bytes.length;) {
        const scan = scanBatch(bytes, positionBytes);
        if (scan.type === "incomplete") break; // The slice was cut here; the next one begins with it.
        if (scan.type === "corrupt") throw corrupt(source, offset, scan.reason);
        const { header } = scan;
        positionBytes += header.sizeInBytes;
        if (header.lastOffset < offset) continue;
        if (!checkCrc(bytes, header)) throw corrupt(source, offset, "the CRC does not match");
        if (!isControlBatch(header)) {
          for (const { offset: at, timestamp, key, value, headers } of decodeRecords(
            header,
            await payloadOf(source, bytes, header),
          )) {
            if (at < offset) continue;
            if (at >= toOffsetEnd) return;
            yield { ...place, offset: at, timestamp, key, value, headers };
            signal?.throwIfAborted();
          }
        }
        offset = header.lastOffset + 1;
      }
      if (offset === before) throw corrupt(source, offset, "the log holds no whole batch where its end is further on");
    }
  } catch (error) {
    throw toTidemarkError(error, { ...place, offset });
  }
}

/** Resolves when there may be records at `offset`. @throws signal.reason */
async function waitForRecords(log: PartitionLog, offset: Offset, signal: AbortSignal | undefined): Promise<void> {
  const waiter = log.waitForEndOffset(offset);
  if (signal === undefined) {
    await waiter.promise;
    return;
  }
  let onAbort: () => void = () => undefined;
  const aborted = new Promise<void>((resolve) => {
    onAbort = resolve;
    signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    await Promise.race([waiter.promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
    waiter.cancel();
  }
}

async function payloadOf(source: FetchSource, bytes: Uint8Array, header: BatchHeader): Promise<Uint8Array> {
  const section = recordsSection(bytes, header);
  const codec = compressionCodec(header);
  if (codec === "none") return section;
  if (section.length < DECOMPRESS_IN_POOL_BYTES_MIN) return decompressPayload(codec, section, DECOMPRESSED_BYTES_MAX);
  const input = { codec, payload: new Uint8Array(section), outputBytesMax: DECOMPRESSED_BYTES_MAX };
  return source.workers.run("decompress", input);
}

function corrupt({ topic, partition }: FetchSource, offset: number, reason: string): TidemarkError {
  return new TidemarkError("CORRUPT_MESSAGE", `${topic}-${partition}: batch at offset ${offset}: ${reason}`, {
    topic,
    partition,
    offset,
  });
}
