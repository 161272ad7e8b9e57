import type { WorkerJobName, WorkerJobs } from "@tidemark/base";
import { compressPayload, decompressPayload } from "./codec.ts";
import { crc32c } from "./crc32c.ts";

type Jobs = { readonly [Name in WorkerJobName]: (input: WorkerJobs[Name]["input"]) => WorkerJobs[Name]["output"] };

const JOBS: Jobs = {
  compress: ({ codec, payload, level }) => compressPayload(codec, payload, level),
  decompress: ({ codec, payload, outputBytesMax }) => decompressPayload(codec, payload, outputBytesMax),
  crc32c: ({ payload }) => crc32c(payload),
};

/**
 * The pure functions behind `WorkerPool`: run by a worker thread, or at once by the simulator. Outputs own their memory.
 * @throws WorkerError CORRUPT, RECORD_TOO_LARGE
 */
export function runWorkerJob<Name extends WorkerJobName>(
  name: Name,
  input: WorkerJobs[Name]["input"],
): WorkerJobs[Name]["output"] {
  return JOBS[name](input);
}
