import { access, constants, readFile, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { decodeLeaderEpochCheckpoint, type EpochEntry } from "@tidemark/epoch-cache";

import { CommandError, describeError, EXIT_FOUND_PROBLEMS, EXIT_OK, hasCode } from "../errors.ts";
import { formatBytes, formatCount, formatDuration, plural } from "../format.ts";
import { type LineSummary, LineTooLongError, summarizeLines } from "../lines.ts";
import { Progress } from "../terminal.ts";
import { problemsOfDirectory } from "../verify.ts";
import { VERSION } from "../version.ts";
import { type DemoDirectory, prepareDemoDirectory } from "./demo-directory.ts";
import { type DemoOptions, LINE_BYTES_MAX } from "./demo-options.ts";
import { type IngestRun, runIngestProcess } from "./ingest-process.ts";
import { findInput, identifyInput, inputChunks, inputName, type InputSource, topicOf } from "./input.ts";
import { KILL_COUNT, planKills, type PlannedKill } from "./kill-plan.ts";
import type { IngestTask, OpenedMessage, PartitionOffsets } from "./messages.ts";
import { type DemoReport, describeRecovery, type KillFigures, printLabelled, printReport } from "./report.ts";
import { type RecordsVerdict, verifyRecords } from "./verify-records.ts";

/** What a batch of one record without key and headers takes at most beyond its value: 61 + 21 bytes and their lengths. */
const BATCH_OVERHEAD_BYTES = 128;

/** Records and bytes of one append, at most; and into how many appends an input is cut at least, if it has the records. */
const APPEND_RECORDS_MAX = 4000;
const APPEND_BYTES_MAX = 128 * 1024;
const APPENDS_WANTED = 100;

/**
 * The demo: ingests the input in a process of its own, kills it twice, reopens, and proves from the files that nothing that
 * was acknowledged is lost.
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
    const report = await new Demo(options, source, summary, lineBytesMax, directory, signal).run();
    const now = await identifyInput(source);
    if (
      now.sizeBytes !== identity.sizeBytes ||
      now.modifiedMs !== identity.modifiedMs ||
      now.inode !== identity.inode
    ) {
      throw new CommandError(`${source.path}: changed while the demo was reading it`);
    }
    printReport(report);
    keep ||= report.verdict === "failed"; // The evidence stays.
    if (keep || !directory.isTemporary) printLabelled("kept", join(directory.path, "log"));
    if (options.reportPath !== undefined)
      await writeFile(options.reportPath, `${JSON.stringify(report, undefined, 2)}\n`);
    return report.verdict === "ok" ? EXIT_OK : EXIT_FOUND_PROBLEMS;
  } finally {
    await directory.release({ keep });
  }
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

class Demo {
  readonly #options: DemoOptions;
  readonly #source: InputSource;
  readonly #summary: LineSummary;
  readonly #lineBytesMax: number;
  readonly #directory: DemoDirectory;
  readonly #signal: AbortSignal;
  readonly #topic: string;
  readonly #problems: string[] = [];
  readonly #kills: KillFigures[] = [];
  #ingestMs = 0;
  #ingestWithRestartsMs = 0;
  /** The kill whose reopening is still to come. */
  #pending: { readonly threshold: number; readonly acknowledged: number } | undefined;
  /** Records that some process told to be acknowledged, over all processes: never goes back. */
  #acknowledgedCount = 0;

  constructor(
    options: DemoOptions,
    source: InputSource,
    summary: LineSummary,
    lineBytesMax: number,
    directory: DemoDirectory,
    signal: AbortSignal,
  ) {
    this.#options = options;
    this.#source = source;
    this.#summary = summary;
    this.#lineBytesMax = lineBytesMax;
    this.#directory = directory;
    this.#signal = signal;
    this.#topic = topicOf(source);
  }

  async run(): Promise<DemoReport> {
    const plan = planKills(this.#summary.lineCount, this.#options.seed);
    this.#introduce(plan);
    const offsets = await this.#ingestWithKills(plan);
    const verifyStartMs = performance.now();
    const records = await this.#verify(offsets);
    const epochs = await this.#epochs();
    const { lineCount } = this.#summary;
    const ingestSeconds = this.#ingestMs / 1000;
    const problems = [...this.#problems, ...records.problems];
    return {
      verdict: problems.length === 0 ? "ok" : "failed",
      problems,
      problemCount: this.#problems.length + records.problemCount,
      version: VERSION,
      node: process.version,
      seed: this.#options.seed,
      input: {
        name: inputName(this.#source),
        lines: lineCount,
        bytes: this.#summary.lineBytes,
        longestLineBytes: this.#summary.longestLineBytes,
        endsWithNewline: this.#summary.endsWithNewline,
      },
      directory: this.#directory.path,
      topic: this.#topic,
      partition: 0,
      flush: "always",
      segmentBytes: this.#options.segmentBytes,
      maxMessageBytes: this.#maxMessageBytes,
      kills: this.#kills,
      segments: records.segments,
      epochs,
      offsets,
      throughput: {
        records: lineCount,
        bytes: this.#summary.lineBytes,
        ingestMs: this.#ingestMs,
        ingestWithRestartsMs: this.#ingestWithRestartsMs,
        verifyMs: performance.now() - verifyStartMs,
        recordsPerSecond: ingestSeconds === 0 ? 0 : lineCount / ingestSeconds,
        bytesPerSecond: ingestSeconds === 0 ? 0 : this.#summary.lineBytes / ingestSeconds,
      },
    };
  }

  get #maxMessageBytes(): number {
    return this.#lineBytesMax + BATCH_OVERHEAD_BYTES;
  }

  get #partitionDirectory(): string {
    return join(this.#directory.path, "log", `${this.#topic}-0`);
  }

  #introduce(plan: readonly PlannedKill[]): void {
    const { lineCount, lineBytes } = this.#summary;
    printLabelled("input", `${inputName(this.#source)}: ${plural(lineCount, "record")}, ${formatBytes(lineBytes)}`);
    printLabelled(
      "topic",
      `${this.#topic}-0 in ${join(this.#directory.path, "log")}, segments of ${formatBytes(this.#options.segmentBytes)}, flush always`,
    );
    const counts = plan.map(({ atAcknowledged }) => formatCount(atAcknowledged)).join(" and ");
    const small = plan.length < KILL_COUNT ? `; the input is too small to kill ${KILL_COUNT} times` : "";
    printLabelled(
      "kills",
      `${counts === "" ? "none" : `SIGKILL at ${counts} acknowledged records`}${small} (repeat with --seed ${this.#options.seed})`,
    );
  }

  /** Runs process after process until one has closed cleanly. @returns the offsets after that */
  async #ingestWithKills(plan: readonly PlannedKill[]): Promise<PartitionOffsets> {
    const progress = new Progress("ingesting", this.#summary.lineCount, "records");
    try {
      for (const kill of plan) {
        await this.#ingestOnce(kill, progress);
        this.#pending = { threshold: kill.atAcknowledged, acknowledged: this.#acknowledgedCount };
        progress.interrupt(() =>
          printLabelled("killed", `with SIGKILL at ${plural(this.#acknowledgedCount, "acknowledged record")}`),
        );
      }
      const { closedOffsets } = await this.#ingestOnce(undefined, progress);
      if (closedOffsets === undefined) throw new CommandError("the last ingesting process did not close its log");
      return closedOffsets;
    } finally {
      progress.stop();
    }
  }

  async #ingestOnce(kill: PlannedKill | undefined, progress: Progress): Promise<IngestRun> {
    const run = await runIngestProcess(this.#task(kill), {
      killAt: kill?.atAcknowledged,
      onOpened: (opened) => this.#checkReopening(opened, progress),
      onAcknowledged: (count) => progress.update(count),
      signal: this.#signal,
    });
    this.#acknowledgedCount = Math.max(this.#acknowledgedCount, run.acknowledgedCount);
    this.#ingestMs += run.ingestMs;
    this.#ingestWithRestartsMs += run.runMs;
    return run;
  }

  /** The first half of the proof: what was acknowledged before the kill must be in the log that was opened after it. */
  #checkReopening(opened: OpenedMessage, progress: Progress): void {
    const kill = this.#pending;
    if (kill === undefined) return; // The first process found a new directory.
    this.#pending = undefined;
    const { logEndOffset } = opened.offsets;
    const { recovery, openMs: reopenMs } = opened;
    progress.interrupt(() =>
      printLabelled(
        "reopened",
        `in ${formatDuration(reopenMs)}, log end offset ${formatCount(logEndOffset)}: ${describeRecovery(recovery)}`,
      ),
    );
    this.#kills.push({ ...kill, recoveredLogEndOffset: logEndOffset, reopenMs, recovery });
    if (logEndOffset < kill.acknowledged) {
      this.#problems.push(
        `kill ${this.#kills.length}: ${kill.acknowledged} records were acknowledged, the recovered log ends at ${logEndOffset}`,
      );
    }
  }

  #task(kill: PlannedKill | undefined): IngestTask {
    const { lineCount } = this.#summary;
    return {
      directory: this.#directory.path,
      topic: this.#topic,
      source: this.#source,
      segmentBytes: this.#options.segmentBytes,
      maxMessageBytes: this.#maxMessageBytes,
      lineBytesMax: this.#lineBytesMax,
      // Small inputs are cut into many appends all the same, so that kills fall between them.
      appendRecordsMax: Math.min(APPEND_RECORDS_MAX, Math.max(1, Math.floor(lineCount / APPENDS_WANTED))),
      appendBytesMax: Math.min(APPEND_BYTES_MAX, Math.floor(this.#options.segmentBytes / 8)),
      appendUpTo: kill?.appendUpTo ?? lineCount,
      thenClose: kill === undefined,
    };
  }

  /** The second half of the proof, from the files alone. */
  async #verify(offsets: PartitionOffsets): Promise<RecordsVerdict> {
    const { lineCount } = this.#summary;
    if (offsets.logEndOffset !== lineCount) {
      this.#problems.push(`the log ends at offset ${offsets.logEndOffset}, the input has ${lineCount} lines`);
    }
    if (offsets.flushedEndOffset !== offsets.logEndOffset) {
      this.#problems.push(`flushed up to ${offsets.flushedEndOffset}, the log ends at ${offsets.logEndOffset}`);
    }
    const progress = new Progress("verifying", lineCount, "records");
    try {
      const verdict = await verifyRecords({
        partitionDirectory: this.#partitionDirectory,
        chunks: inputChunks(this.#source),
        lineCount,
        lineBytesMax: this.#lineBytesMax,
        onProgress: (count) => progress.update(count),
        signal: this.#signal,
      });
      this.#problems.push(...(await problemsOfDirectory(join(this.#directory.path, "log"))));
      return verdict;
    } finally {
      progress.stop();
    }
  }

  async #epochs(): Promise<readonly EpochEntry[]> {
    const path = join(this.#partitionDirectory, "leader-epoch-checkpoint");
    try {
      return decodeLeaderEpochCheckpoint(await readFile(path), path);
    } catch (error) {
      if (hasCode(error, "ENOENT")) return [];
      this.#problems.push(describeError(error));
      return [];
    }
  }
}
