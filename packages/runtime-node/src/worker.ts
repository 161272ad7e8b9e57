import { transferableSymbol, valueSymbol, move } from "piscina";
import { WorkerError } from "@tidemark/base";
import { NODE_JOBS } from "./node-jobs.ts";
import { transferable } from "./transfer.ts";
import type { WorkerReply, WorkerRequest } from "./worker-protocol.ts";

/** The entry of a worker thread: runs one job and answers with a `WorkerReply`, its bytes moved rather than copied. */
export default function handleRequest(request: WorkerRequest): unknown {
  const reply = runRequest(request);
  if (reply.type !== "done" || typeof reply.output === "number") return reply;
  if (reply.output instanceof Uint8Array) {
    const output = transferable(reply.output);
    return move({ [transferableSymbol]: [output.buffer], [valueSymbol]: { type: "done", output } });
  }
  if (!("batch" in reply.output)) return reply;
  const batch = transferable(reply.output.batch);
  const output = { ...reply.output, batch };
  return move({ [transferableSymbol]: [batch.buffer], [valueSymbol]: { type: "done", output } });
}

/** Runs one job. Never throws. */
export function runRequest(request: WorkerRequest): WorkerReply {
  try {
    return { type: "done", output: NODE_JOBS.runNow(request.name, request.input) };
  } catch (error) {
    if (!(error instanceof WorkerError)) return { type: "failed", code: "WORKER_FAILED", message: String(error) };
    // The error made of this on the other side puts the code in front again.
    return { type: "failed", code: error.code, message: error.message.replace(`${error.code}: `, "") };
  }
}
