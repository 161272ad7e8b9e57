import { stat } from "node:fs/promises";
import { join } from "node:path";

import type { VerifyFinding, VerifyReport } from "@tidemark/log";
import { verifyDirectory } from "@tidemark/server";

import { CommandError, EXIT_FOUND_PROBLEMS, EXIT_OK } from "./errors.ts";
import { formatBytes, formatCount, plural } from "./format.ts";
import { printLine, Progress, styled } from "./terminal.ts";

/**
 * Checks every file below a directory: what `Tidemark.open` was given, a log directory, or the directory of one partition.
 * Takes no lock and never writes; a log that is being written to may show a torn end, which is a note and no error.
 * @returns EXIT_FOUND_PROBLEMS when something is damaged
 * @throws CommandError when there is no log, FileError
 */
export async function verify(path: string, signal: AbortSignal): Promise<number> {
  if (!(await stat(path)).isDirectory()) throw new CommandError(`${path}: not a directory`);
  const directory = await logDirectoryOf(path);
  const progress = new Progress("verifying", 0, "bytes");
  let report: VerifyReport;
  try {
    report = await verifyDirectory(directory, {
      onProgress: ({ bytes }) => progress.update(bytes),
      checkCancelled: () => signal.throwIfAborted(),
    });
  } finally {
    progress.stop();
  }
  if (report.partitions.length === 0 && !(await exists(join(directory, "meta.properties")))) {
    throw new CommandError(`${path}: holds no log: neither partitions nor a meta.properties`);
  }
  printReport(report);
  return report.isSound ? EXIT_OK : EXIT_FOUND_PROBLEMS;
}

/** The same check, its errors as lines: for the demo. */
export async function problemsOfDirectory(directory: string): Promise<readonly string[]> {
  const { errors } = await verifyDirectory(directory);
  return errors.map(describeFinding);
}

/** `PATH/log` when that is there, as `Tidemark.open` lays it out, else `PATH`. */
async function logDirectoryOf(path: string): Promise<string> {
  const inner = join(path, "log");
  return (await exists(inner)) && (await stat(inner)).isDirectory() ? inner : path;
}

function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

function printReport(report: VerifyReport): void {
  for (const error of report.errors) printLine(`${styled("red", "error")}  ${describeFinding(error)}`);
  for (const note of report.notes) printLine(`${styled("yellow", "note")}   ${describeFinding(note)}`);
  const unlisted = report.errorCount - report.errors.length + report.noteCount - report.notes.length;
  if (unlisted > 0) printLine(`and ${formatCount(unlisted)} more`);
  const { partitions, segments, batches, records, bytes, indexEntries } = report;
  const read = [
    plural(partitions.length, "partition"),
    plural(segments, "segment"),
    formatCount(batches) + (batches === 1 ? " batch" : " batches"),
    plural(records, "record"),
    formatBytes(bytes),
    formatCount(indexEntries) + (indexEntries === 1 ? " index entry" : " index entries"),
  ].join(", ");
  const verdict = report.isSound
    ? styled(["green", "bold"], "OK")
    : styled(["red", "bold"], `FAILED: ${plural(report.errorCount, "error")}`);
  const stop = report.wasCleanShutdown ? "closed cleanly" : "not closed cleanly, or in use";
  printLine(`${verdict}: ${report.directory}: ${read}; ${stop}`);
}

function describeFinding({ path, positionBytes, offset, detail }: VerifyFinding): string {
  const place = positionBytes === undefined ? "" : ` at byte ${positionBytes}`;
  const at = offset === undefined ? "" : ` (offset ${offset})`;
  return `${path}${place}: ${detail}${at}`;
}
