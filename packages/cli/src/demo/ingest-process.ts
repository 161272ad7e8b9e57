import { CommandError, EXIT_FOUND_PROBLEMS } from "../errors.ts";
import { endOf, spawnSelf } from "./child-process.ts";
import {
  INGEST_COMMAND,
  type IngestMessage,
  type IngestTask,
  type OpenedMessage,
  type PartitionOffsets,
} from "./messages.ts";

export interface IngestRun {
  /** What the process said when its log was open; `undefined` only if it was killed before. */
  readonly opened: OpenedMessage | undefined;
  /** Every record below it was acknowledged, as far as the process had told before it ended. */
  readonly acknowledgedCount: number;
  /** Set after a clean close. */
  readonly closedOffsets: PartitionOffsets | undefined;
  readonly wasKilled: boolean;
  /** From the open log to the last acknowledgement. */
  readonly ingestMs: number;
  /** From the start of the process to its end. */
  readonly runMs: number;
}

export interface IngestObserver {
  /** Kill with SIGKILL once so many records are acknowledged. */
  readonly killAt: number | undefined;
  readonly onOpened: (message: OpenedMessage) => void;
  readonly onAcknowledged: (count: number) => void;
  readonly signal: AbortSignal;
}

/**
 * Runs one ingesting process to its end: a clean close, or the SIGKILL that `killAt` asks for.
 *
 * What the process had told before it died is counted in: the result is made after its channel has run dry.
 * @throws CommandError when the process fails or ends on its own; the signal's reason after an abort, with the process gone
 */
export async function runIngestProcess(task: IngestTask, observer: IngestObserver): Promise<IngestRun> {
  const startMs = performance.now();
  const child = spawnSelf(INGEST_COMMAND, task);
  const state: { opened?: OpenedMessage; closed?: PartitionOffsets; failure?: string } = {};
  let acknowledgedCount = 0;
  let wasKilled = false;
  let openedMs = 0;
  let lastAcknowledgedMs = 0;
  child.on("message", (message: IngestMessage) => {
    if (message.type === "opened") {
      state.opened = message;
      observer.onOpened(message);
      openedMs = performance.now();
    } else if (message.type === "closed") {
      state.closed = message.offsets;
    } else if (message.type === "failed") {
      state.failure = message.line;
    } else {
      acknowledgedCount = Math.max(acknowledgedCount, message.count);
      lastAcknowledgedMs = performance.now();
      observer.onAcknowledged(acknowledgedCount);
    }
    // A process that finds enough records in the log already has none left to acknowledge: its opening counts.
    const count = Math.max(acknowledgedCount, state.opened?.offsets.logEndOffset ?? 0);
    if (observer.killAt !== undefined && count >= observer.killAt && !wasKilled && state.failure === undefined) {
      wasKilled = child.kill("SIGKILL");
    }
  });
  const abort = () => child.kill("SIGKILL");
  observer.signal.addEventListener("abort", abort, { once: true });
  if (observer.signal.aborted) abort();
  const { how, said } = await endOf(child);
  observer.signal.removeEventListener("abort", abort);
  observer.signal.throwIfAborted();
  if (state.failure !== undefined) throw new CommandError(state.failure);
  if (!wasKilled && state.closed === undefined) {
    throw new CommandError(`the ingesting process ended on its own (${how})${said === "" ? "" : `: ${said}`}`, {
      exitCode: EXIT_FOUND_PROBLEMS,
    });
  }
  return {
    opened: state.opened,
    acknowledgedCount,
    closedOffsets: state.closed,
    wasKilled,
    ingestMs: Math.max(0, lastAcknowledgedMs - openedMs),
    runMs: performance.now() - startMs,
  };
}
