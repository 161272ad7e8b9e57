import { access, constants, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { CommandError, EXIT_FOUND_PROBLEMS, EXIT_OK } from "../errors.ts";
import { type LineSummary, LineTooLongError, summarizeLines } from "../lines.ts";
import { Progress } from "../terminal.ts";
import { ClusterDemo } from "./cluster/cluster-demo.ts";
import { type ClusterDemoReport, printClusterReport } from "./cluster/cluster-report.ts";
import { BATCH_OVERHEAD_BYTES, type DemoContext } from "./demo-context.ts";
import { prepareDemoDirectory } from "./demo-directory.ts";
import { type DemoOptions, LINE_BYTES_MAX } from "./demo-options.ts";
import { findInput, identifyInput, inputChunks, type InputSource } from "./input.ts";
import { type DemoReport, printLabelled, printReport } from "./report.ts";
import { SingleNodeDemo } from "./single-node.ts";

/**
 * The demo: ingests the input, kills what holds it twice, and proves from the files that nothing that was acknowledged is lost. With
 * one node that is the ingesting process, with three the leader among three brokers.
 * @returns EXIT_OK, or EXIT_FOUND_PROBLEMS when the proof fails
 * @throws CommandError where the demo cannot run; the reason of `signal` after an abort
 */
export async function runDemo(options: DemoOptions, signal: AbortSignal): Promise<number> {
  if (options.reportPath !== undefined) await checkReportPath(options.reportPath);
  const lineBytesMax = Math.min(LINE_BYTES_MAX, options.segmentBytes - BATCH_OVERHEAD_BYTES);
  const source = await findInput(options.inputPath);
  const identity = await identifyInput(source);
  const summary = await summarize(source, identity.sizeBytes, lineBytesMax, signal);
  const directory = await prepareDemoDirectory(options.directory);
  let keep = options.keep;
  try {
    const context = { options, source, summary, lineBytesMax, directory, signal };
    const { report, print } = options.nodes === 1 ? await runSingleNode(context) : await runCluster(context);
    const now = await identifyInput(source);
    if (
      now.sizeBytes !== identity.sizeBytes ||
      now.modifiedMs !== identity.modifiedMs ||
      now.inode !== identity.inode
    ) {
      throw new CommandError(`${source.path}: changed while the demo was reading it`);
    }
    print();
    keep ||= report.verdict === "failed"; // The evidence stays.
    if (keep || !directory.isTemporary)
      printLabelled("kept", options.nodes === 1 ? join(directory.path, "log") : directory.path);
    if (options.reportPath !== undefined)
      await writeFile(options.reportPath, `${JSON.stringify(report, undefined, 2)}\n`);
    return report.verdict === "ok" ? EXIT_OK : EXIT_FOUND_PROBLEMS;
  } finally {
    await directory.release({ keep });
  }
}

/** A report, and how to show it. */
interface Outcome {
  readonly report: DemoReport | ClusterDemoReport;
  readonly print: () => void;
}

async function runSingleNode(context: DemoContext): Promise<Outcome> {
  const report = await new SingleNodeDemo(context).run();
  return { report, print: () => printReport(report) };
}

async function runCluster(context: DemoContext): Promise<Outcome> {
  const report = await new ClusterDemo(context).run();
  return { report, print: () => printClusterReport(report) };
}

/** Finds out before the work whether the report can be written after it. */
async function checkReportPath(path: string): Promise<void> {
  const exists = await stat(path).catch(() => undefined);
  if (exists?.isDirectory() === true) throw new CommandError(`${path}: is a directory, not a file for the report`);
  await access(exists === undefined ? dirname(path) : path, constants.W_OK);
}

/** Counts the lines, and refuses one that is too long before anything is ingested. */
async function summarize(
  source: InputSource,
  sizeBytes: number,
  lineBytesMax: number,
  signal: AbortSignal,
): Promise<LineSummary> {
  const progress = new Progress("reading", sizeBytes, "bytes");
  try {
    return await summarizeLines(inputChunks(source), lineBytesMax, (readBytes) => {
      signal.throwIfAborted();
      progress.update(readBytes);
    });
  } catch (error) {
    if (!(error instanceof LineTooLongError)) throw error;
    const limit = lineBytesMax === LINE_BYTES_MAX ? "1.5 MiB, " : "";
    throw new CommandError(
      `${source.path}: line ${error.lineNumber} is longer than ${limit}${lineBytesMax} bytes, the limit of the topic; nothing was ingested`,
      { cause: error },
    );
  } finally {
    progress.stop();
  }
}
