import { WorkerError } from "@tidemark/base";
import type { Codecs, WorkerJobName, WorkerJobs } from "@tidemark/base";
import { compressPayload, decompressPayload } from "./codec.ts";
import { crc32c } from "./crc32c.ts";
import { WireError } from "./error.ts";
import { compressionCodec, recordsSection, scanBatch, withCompressedPayload } from "./record-batch.ts";
import { validateRecords } from "./record-decode.ts";
import type { RecordsSummary } from "./record-decode.ts";

type Jobs = {
  readonly [Name in WorkerJobName]: (codecs: Codecs, input: WorkerJobs[Name]["input"]) => WorkerJobs[Name]["output"];
};

const JOBS: Jobs = {
  compress: (codecs, { codec, payload, level }) => compressPayload(codecs, codec, payload, level),
  decompress: (codecs, { codec, payload, outputBytesMax }) => decompressPayload(codecs, codec, payload, outputBytesMax),
  validate: (codecs, { payload, outputBytesMax }) => validateBatch(codecs, payload, outputBytesMax).summary,
  recompress: (codecs, { payload: batch, codec, level, outputBytesMax }) => {
    const { records, summary } = validateBatch(codecs, batch, outputBytesMax);
    const payload = codec === "none" ? records : compressPayload(codecs, codec, records, level);
    return { batch: withCompressedPayload(batch, codec, payload), records: summary };
  },
  crc32c: (_, { payload }) => crc32c(payload),
};

/**
 * The pure functions behind `WorkerPool`: run by a worker thread, or at once. Outputs own their memory; inputs are only read.
 * @throws WorkerError as the job says
 */
export function runWorkerJob<Name extends WorkerJobName>(
  codecs: Codecs,
  name: Name,
  input: WorkerJobs[Name]["input"],
): WorkerJobs[Name]["output"] {
  return JOBS[name](codecs, input);
}

/** The records of a client's batch, decompressed, and what they are. */
function validateBatch(
  codecs: Codecs,
  batch: Uint8Array,
  outputBytesMax: number,
): { readonly records: Uint8Array; readonly summary: RecordsSummary } {
  const scan = scanBatch(batch, 0);
  if (scan.type !== "batch") throw new WorkerError("CORRUPT_MESSAGE", "not one whole batch");
  const { header } = scan;
  try {
    const codec = compressionCodec(header);
    const section = recordsSection(batch, header);
    const records = codec === "none" ? section : decompressPayload(codecs, codec, section, outputBytesMax);
    return { records, summary: validateRecords(header, records) };
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    const { code } = error;
    // No other comes of a batch whose header was read.
    const isKnown = code === "INVALID_TIMESTAMP" || code === "UNSUPPORTED_COMPRESSION_TYPE";
    throw new WorkerError(isKnown ? code : "INVALID_RECORD", error.reason, { cause: error });
  }
}
