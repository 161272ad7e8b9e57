import { WorkerError } from "@tidemark/base";
import type { WorkerJobs, WorkerPool } from "@tidemark/base";
import { compressionCodec, IN_POOL_BYTES_MIN, INLINE_OUTPUT_BYTES_MAX, readBatchHeader } from "@tidemark/wire";
import type { BatchHeader, CompressionCodec } from "@tidemark/wire";
import { asLogError, checkBatchSize, DECOMPRESSED_BYTES_FACTOR, judged, refusalOf } from "./append-checks.ts";
import type { LogConfig } from "./config.ts";
import { LogError } from "./error.ts";
import type { Conversion, ConvertedBatch } from "./partition-queue.ts";

/**
 * What makes of a client's batch one with the topic's codec; `undefined` when it has that, or keeps its own. Offsets, producer and times stay.
 * Its records are walked on the way, as `checkClientRecords` does.
 * @param nowMs the leader's clock
 * @throws LogError UNSUPPORTED_COMPRESSION_TYPE. The conversion gives the errors of `checkClientRecords`, and MESSAGE_TOO_LARGE or
 *   RECORD_LIST_TOO_LARGE for a batch that becomes too large
 * Source: apache/kafka storage/.../internals/log/LogValidator.java, buildRecordsAndAssignOffsets
 */
export function conversionOf(
  batch: Uint8Array,
  header: BatchHeader,
  leader: { readonly config: LogConfig; readonly workers: WorkerPool; readonly nowMs: number },
): Conversion | undefined {
  const { config } = leader;
  if (config.compressionType === "producer") return undefined;
  const source = asLogError(() => compressionCodec(header));
  const target = config.compressionType;
  if (source === target) return undefined;
  // The caller's memory is its own again when it has handed the batch over.
  const payload = batch.slice();
  return () => convert(payload, header, { ...leader, source, target });
}

interface Conversions {
  readonly config: LogConfig;
  readonly workers: WorkerPool;
  readonly nowMs: number;
  readonly source: CompressionCodec;
  readonly target: CompressionCodec;
}

async function convert(
  payload: Uint8Array,
  header: BatchHeader,
  { config, workers, nowMs, source, target }: Conversions,
): Promise<ConvertedBatch | LogError> {
  const outputBytesMax = config.maxMessageBytes * DECOMPRESSED_BYTES_FACTOR;
  const input = { payload, codec: target, level: config.compressionLevel, outputBytesMax };
  try {
    const { batch, records } =
      payload.length < inPoolBytesMin(source, target)
        ? await atOnceIfSmall(workers, input)
        : await workers.run("recompress", input);
    judged(records, config, nowMs);
    checkBatchSize(batch, config);
    const scan = readBatchHeader(batch, 0);
    if (scan.type !== "batch") throw new LogError({ code: "INVALID_RECORD", reason: "it cannot be compressed anew" });
    return { batch, header: scan.header, records };
  } catch (error) {
    return refusalOf(error, header);
  }
}

type Recompress = WorkerJobs["recompress"];

/** A small batch may become a large one. */
function atOnceIfSmall(
  workers: WorkerPool,
  input: Recompress["input"],
): Recompress["output"] | Promise<Recompress["output"]> {
  const inlineBytesMax = Math.min(input.outputBytesMax, INLINE_OUTPUT_BYTES_MAX);
  try {
    return workers.runNow("recompress", { ...input, outputBytesMax: inlineBytesMax });
  } catch (error) {
    const isTooLarge = error instanceof WorkerError && error.code === "MESSAGE_TOO_LARGE";
    if (!isTooLarge || inlineBytesMax === input.outputBytesMax) throw error;
    return workers.run("recompress", input);
  }
}

function inPoolBytesMin(source: CompressionCodec, target: CompressionCodec): number {
  return Math.min(
    source === "none" ? Number.POSITIVE_INFINITY : IN_POOL_BYTES_MIN[source].decompress,
    target === "none" ? Number.POSITIVE_INFINITY : IN_POOL_BYTES_MIN[target].compress,
  );
}
