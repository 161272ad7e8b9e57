import { Tidemark } from "@tidemark/server";

import { describeError, EXIT_CANNOT, EXIT_OK } from "../errors.ts";
import { lineBlocks } from "../lines.ts";
import { asChild, tellParent } from "./child-process.ts";
import { inputChunks } from "./input.ts";
import type { IngestMessage, IngestTask, PartitionOffsets } from "./messages.ts";

/** Appends whose acknowledgement is awaited at a time. With the size of one append it bounds memory. */
const APPENDS_IN_FLIGHT_MAX = 16;

/**
 * The ingesting process of the demo: opens the log, goes on at its end (record i is line i of the input), appends with several
 * appends in flight, and tells its parent about each acknowledgement. It lives no longer than its parent.
 * @returns the exit code; with `thenClose` false it only returns after a failure
 */
export function runIngest(task: IngestTask): Promise<number> {
  const run = async () => {
    await ingest(task);
    return EXIT_OK;
  };
  return asChild(run, (error) => tell({ type: "failed", line: describeError(error) }), EXIT_CANNOT);
}

async function ingest(task: IngestTask): Promise<void> {
  const startMs = performance.now();
  await using log = await Tidemark.open({ directory: task.directory });
  const topic = await log.topic(task.topic, {
    partitions: 1,
    segmentBytes: task.segmentBytes,
    maxMessageBytes: task.maxMessageBytes,
  });
  const partition = topic.partition(0);
  const firstLine = partition.logEndOffset;
  await tell({
    type: "opened",
    offsets: offsetsOf(partition),
    recovery: partition.recovery,
    openMs: performance.now() - startMs,
  });
  await appendLines(task, firstLine, async (lines, firstOffset) => {
    const [first] = await topic.append(lines.map((value) => ({ value })));
    if (first?.offset !== firstOffset) throw new Error(`line ${firstOffset + 1} became record ${first?.offset}`);
  });
  if (!task.thenClose) await new Promise<never>(() => {}); // The IPC channel keeps the process alive until it is killed.
  await partition.flush();
  const offsets = offsetsOf(partition);
  await log.close();
  await tell({ type: "closed", offsets });
}

/** Cuts lines [firstLine, appendUpTo) into appends and keeps several of them in flight. */
async function appendLines(
  task: IngestTask,
  firstLine: number,
  append: (lines: readonly Uint8Array[], firstOffset: number) => Promise<void>,
): Promise<void> {
  const inFlight: Promise<void>[] = [];
  let failure: unknown;
  let pending: Uint8Array[] = [];
  let pendingBytes = 0;
  let lineIndex = 0;
  const send = async () => {
    if (pending.length === 0) return;
    const lines = pending;
    const firstOffset = lineIndex - lines.length;
    pending = [];
    pendingBytes = 0;
    if (inFlight.length >= APPENDS_IN_FLIGHT_MAX) await inFlight.shift();
    if (failure !== undefined) throw failure;
    const count = lineIndex;
    // Appends to one partition are acknowledged in their order, so every record below `count` is.
    const acknowledged = append(lines, firstOffset).then(() => tell({ type: "acknowledged", count }));
    inFlight.push(acknowledged.catch((error: unknown) => void (failure ??= error)));
  };
  for await (const block of lineBlocks(inputChunks(task.source), task.lineBytesMax)) {
    if (lineIndex + block.length <= firstLine) {
      lineIndex += block.length; // All there already.
      continue;
    }
    for (const line of block) {
      if (lineIndex >= task.appendUpTo) break;
      if (lineIndex >= firstLine) {
        if (pendingBytes + line.length > task.appendBytesMax) await send();
        pending.push(line);
        pendingBytes += line.length;
      }
      lineIndex += 1;
      if (pending.length >= task.appendRecordsMax) await send();
    }
    if (lineIndex >= task.appendUpTo) break;
  }
  await send();
  await Promise.all(inFlight);
  if (failure !== undefined) throw failure;
}

function offsetsOf(partition: PartitionOffsets): PartitionOffsets {
  const { logStartOffset, logEndOffset, flushedEndOffset, recoveryPoint } = partition;
  return { logStartOffset, logEndOffset, flushedEndOffset, recoveryPoint };
}

function tell(message: IngestMessage): Promise<void> {
  return tellParent(message);
}
