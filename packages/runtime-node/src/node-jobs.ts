import type { WorkerPool } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import { runWorkerJob } from "@tidemark/wire";

/** The jobs of the worker pool, run at once with this process's codecs: for tools, which have no event loop to spare. */
export const NODE_JOBS: Pick<WorkerPool, "runNow"> = {
  runNow: (name, input) => runWorkerJob(NODE_CODECS, name, input),
};
