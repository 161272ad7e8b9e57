import type { WorkerErrorCode, WorkerJobName, WorkerJobs } from "@tidemark/base";

/** What a worker thread is sent. */
export type WorkerRequest = {
  readonly [Name in WorkerJobName]: { readonly name: Name; readonly input: WorkerJobs[Name]["input"] };
}[WorkerJobName];

/**
 * What it answers. A failure is a value: an error thrown across threads would lose its class and code.
 */
export type WorkerReply =
  | { readonly type: "done"; readonly output: WorkerJobs[WorkerJobName]["output"] }
  | { readonly type: "failed"; readonly code: WorkerErrorCode; readonly message: string };
