import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { decodeLeaderEpochCheckpoint, type EpochEntry, LEADER_EPOCH_CHECKPOINT } from "@tidemark/epoch-cache";

import { CommandError, describeError, hasCode } from "../errors.ts";
import { formatBytes, formatCount, formatDuration, plural } from "../format.ts";
import { Progress } from "../terminal.ts";
import { problemsOfDirectory } from "../verify.ts";
import { type DemoContext, maxMessageBytesOf, runReportOf } from "./demo-context.ts";
import { type IngestRun, runIngestProcess } from "./ingest-process.ts";
import { inputChunks, inputName, topicOf } from "./input.ts";
import { KILL_COUNT, planKills, type PlannedKill } from "./kill-plan.ts";
import type { IngestTask, OpenedMessage, PartitionOffsets } from "./messages.ts";
import { type DemoReport, describeRecovery, type KillFigures, printLabelled } from "./report.ts";
import { type RecordsVerdict, verifyRecords } from "./verify-records.ts";

/** Records and bytes of one append, at most; and into how many appends an input is cut at least, if it has the records. */
const APPEND_RECORDS_MAX = 4000;
const APPEND_BYTES_MAX = 128 * 1024;
const APPENDS_WANTED = 100;

/** The demo with one node: ingests in a process of its own, kills it twice, reopens, and proves from the files. */
export class SingleNodeDemo {
  readonly #context: DemoContext;
  readonly #topic: string;
  readonly #problems: string[] = [];
  readonly #kills: KillFigures[] = [];
  #ingestMs = 0;
  #ingestWithRestartsMs = 0;
  /** The kill whose reopening is still to come. */
  #pending: { readonly threshold: number; readonly acknowledged: number } | undefined;
  /** Records that some process told to be acknowledged, over all processes: never goes back. */
  #acknowledgedCount = 0;

  constructor(context: DemoContext) {
    this.#context = context;
    this.#topic = topicOf(context.source);
  }

  async run(): Promise<DemoReport> {
    const plan = planKills(this.#context.summary.lineCount, this.#context.options.seed);
    this.#introduce(plan);
    const offsets = await this.#ingestWithKills(plan);
    const verifyStartMs = performance.now();
    const records = await this.#verify(offsets);
    const epochs = await this.#epochs();
    const report = runReportOf(this.#context, {
      topic: this.#topic,
      problems: [...this.#problems, ...records.problems],
      problemCount: this.#problems.length + records.problemCount,
      ingestMs: this.#ingestMs,
      verifyMs: performance.now() - verifyStartMs,
    });
    return {
      ...report,
      flush: "always",
      kills: this.#kills,
      segments: records.segments,
      epochs,
      offsets,
      throughput: { ...report.throughput, ingestWithRestartsMs: this.#ingestWithRestartsMs },
    };
  }

  get #partitionDirectory(): string {
    return join(this.#context.directory.path, "log", `${this.#topic}-0`);
  }

  #introduce(plan: readonly PlannedKill[]): void {
    const { lineCount, lineBytes } = this.#context.summary;
    printLabelled(
      "input",
      `${inputName(this.#context.source)}: ${plural(lineCount, "record")}, ${formatBytes(lineBytes)}`,
    );
    printLabelled(
      "topic",
      `${this.#topic}-0 in ${join(this.#context.directory.path, "log")}, segments of ${formatBytes(this.#context.options.segmentBytes)}, flush always`,
    );
    const counts = plan.map(({ atAcknowledged }) => formatCount(atAcknowledged)).join(" and ");
    const small = plan.length < KILL_COUNT ? `; the input is too small to kill ${KILL_COUNT} times` : "";
    printLabelled(
      "kills",
      `${counts === "" ? "none" : `SIGKILL at ${counts} acknowledged records`}${small} (repeat with --seed ${this.#context.options.seed})`,
    );
  }

  /** Runs process after process until one has closed cleanly. @returns the offsets after that */
  async #ingestWithKills(plan: readonly PlannedKill[]): Promise<PartitionOffsets> {
    const progress = new Progress("ingesting", this.#context.summary.lineCount, "records");
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
      signal: this.#context.signal,
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
    const { lineCount } = this.#context.summary;
    return {
      directory: this.#context.directory.path,
      topic: this.#topic,
      source: this.#context.source,
      segmentBytes: this.#context.options.segmentBytes,
      maxMessageBytes: maxMessageBytesOf(this.#context),
      lineBytesMax: this.#context.lineBytesMax,
      // Small inputs are cut into many appends all the same, so that kills fall between them.
      appendRecordsMax: Math.min(APPEND_RECORDS_MAX, Math.max(1, Math.floor(lineCount / APPENDS_WANTED))),
      appendBytesMax: Math.min(APPEND_BYTES_MAX, Math.floor(this.#context.options.segmentBytes / 8)),
      appendUpTo: kill?.appendUpTo ?? lineCount,
      thenClose: kill === undefined,
    };
  }

  /** The second half of the proof, from the files alone. */
  async #verify(offsets: PartitionOffsets): Promise<RecordsVerdict> {
    const { lineCount } = this.#context.summary;
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
        chunks: inputChunks(this.#context.source),
        lineCount,
        lineBytesMax: this.#context.lineBytesMax,
        onProgress: (count) => progress.update(count),
        signal: this.#context.signal,
      });
      this.#problems.push(...(await problemsOfDirectory(join(this.#context.directory.path, "log"))));
      return verdict;
    } finally {
      progress.stop();
    }
  }

  async #epochs(): Promise<readonly EpochEntry[]> {
    const path = join(this.#partitionDirectory, LEADER_EPOCH_CHECKPOINT);
    try {
      return decodeLeaderEpochCheckpoint(await readFile(path), path);
    } catch (error) {
      if (hasCode(error, "ENOENT")) return [];
      this.#problems.push(describeError(error));
      return [];
    }
  }
}
