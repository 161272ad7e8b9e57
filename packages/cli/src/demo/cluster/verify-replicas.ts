import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { decodeLeaderEpochCheckpoint, type EpochEntry, LEADER_EPOCH_CHECKPOINT } from "@tidemark/epoch-cache";
import { decodeOffsetCheckpoint, REPLICATION_CHECKPOINT } from "@tidemark/log";

import { describeError, hasCode } from "../../errors.ts";
import { problemsOfDirectory } from "../../verify.ts";
import { verifyRecords } from "../verify-records.ts";
import type { ReplicaFigures } from "./cluster-report.ts";
import { formatEpochs, rangeOf } from "./cluster-report.ts";
import { type DivergentTail, partitionBatches } from "./partition-batches.ts";

/** Problems listed in full; more are only counted. */
const LISTED_PROBLEMS_MAX = 20;

export interface ReplicaDirectory {
  readonly brokerId: number;
  /** Of the broker: its log is in `log`. */
  readonly directory: string;
}

export interface VerifyReplicasOptions {
  readonly replicas: readonly ReplicaDirectory[];
  readonly topic: string;
  /** The input again, once for each replica. */
  readonly chunks: () => AsyncIterable<Uint8Array>;
  readonly lineCount: number;
  readonly lineBytesMax: number;
  /** What dead leaders had alone: it must be nowhere. */
  readonly tails: readonly DivergentTail[];
  readonly onProgress: (recordCount: number) => void;
  readonly signal: AbortSignal;
}

export interface ReplicasVerdict {
  /** Empty = all is as it should be. */
  readonly problems: readonly string[];
  readonly problemCount: number;
  readonly replicas: readonly ReplicaFigures[];
}

/**
 * Judges the files of stopped brokers. Of each replica: record i is line i, for every line and no more; its high watermark is the end of
 * the input; its epoch cache says what its batches say; no batch of a divergent tail is there; all other files are sound. And below the
 * high watermark all replicas are the same, byte for byte.
 *
 * It shares the decoders with the engine and nothing else. Only reads, and forgives nothing: a record that is there twice is a problem.
 * @throws errors of node:fs
 */
export async function verifyReplicas(options: VerifyReplicasOptions): Promise<ReplicasVerdict> {
  const problems = new Problems();
  const figures: ReplicaFigures[] = [];
  for (const [index, replica] of options.replicas.entries()) {
    const say = (problem: string) => problems.add(`broker ${replica.brokerId}: ${problem}`);
    figures.push(await verifyReplica(replica, index, options, say, (count) => problems.addUnlisted(count)));
  }
  await compareReplicas(options, figures, problems);
  return { problems: problems.listed, problemCount: problems.count, replicas: figures };
}

class Problems {
  readonly listed: string[] = [];
  count = 0;

  add(problem: string): void {
    this.count += 1;
    if (this.listed.length < LISTED_PROBLEMS_MAX) this.listed.push(problem);
  }

  addUnlisted(count: number): void {
    this.count += count;
  }
}

async function verifyReplica(
  { directory }: ReplicaDirectory,
  index: number,
  options: VerifyReplicasOptions,
  say: (problem: string) => void,
  sayUnlisted: (count: number) => void,
): Promise<ReplicaFigures & { readonly brokerId: number }> {
  const { topic, lineCount, lineBytesMax, signal } = options;
  const logDirectory = join(directory, "log");
  const partitionDirectory = join(logDirectory, `${topic}-0`);
  const records = await verifyRecords({
    partitionDirectory,
    chunks: options.chunks(),
    lineCount,
    lineBytesMax,
    onProgress: (count) => options.onProgress(index * lineCount + count),
    signal,
  });
  for (const problem of records.problems) say(problem);
  sayUnlisted(records.problemCount - records.problems.length);
  const highWatermark = await notedHighWatermark(logDirectory, topic, say);
  if (highWatermark !== lineCount) {
    say(`its high watermark is ${highWatermark ?? "not noted"}, although all ${lineCount} records were acknowledged`);
  }
  const epochs = await epochFile(partitionDirectory, say);
  for (const problem of await problemsOfBatches(partitionDirectory, epochs, options.tails)) say(problem);
  for (const problem of await problemsOfDirectory(logDirectory)) say(problem);
  const { batchCount: batches, logEndOffset, segments } = records;
  const logStartOffset = Math.max(0, segments[0]?.baseOffset ?? 0);
  const { brokerId } = options.replicas[index] ?? { brokerId: -1 };
  return { brokerId, logStartOffset, highWatermark, logEndOffset, epochs, batches, segments };
}

async function notedHighWatermark(
  logDirectory: string,
  topic: string,
  say: (problem: string) => void,
): Promise<number | undefined> {
  const path = join(logDirectory, REPLICATION_CHECKPOINT);
  try {
    return decodeOffsetCheckpoint(await readFile(path), path).find(
      (entry) => entry.topic === topic && entry.partition === 0,
    )?.offset;
  } catch (error) {
    if (!hasCode(error, "ENOENT")) say(describeError(error));
    return undefined;
  }
}

async function epochFile(partitionDirectory: string, say: (problem: string) => void): Promise<readonly EpochEntry[]> {
  const path = join(partitionDirectory, LEADER_EPOCH_CHECKPOINT);
  try {
    return decodeLeaderEpochCheckpoint(await readFile(path), path);
  } catch (error) {
    if (!hasCode(error, "ENOENT")) say(describeError(error));
    return [];
  }
}

/** What the batches say against the epoch cache, and which of them should be gone. */
async function problemsOfBatches(
  partitionDirectory: string,
  epochs: readonly EpochEntry[],
  tails: readonly DivergentTail[],
): Promise<readonly string[]> {
  const problems: string[] = [];
  const doomed = new Map(tails.flatMap((tail) => tail.batches.map((batch) => [keyOf(batch), tail] as const)));
  const found: EpochStart[] = [];
  let logEndOffset = 0;
  for await (const { header, where } of partitionBatches(partitionDirectory)) {
    const { baseOffset, lastOffset, partitionLeaderEpoch: leaderEpoch, crc } = header;
    if (found.at(-1)?.epoch !== leaderEpoch) found.push({ epoch: leaderEpoch, startOffset: baseOffset });
    const tail = doomed.get(keyOf({ baseOffset, lastOffset, leaderEpoch, crc }));
    if (tail !== undefined) {
      problems.push(
        `${where}: records ${rangeOf(baseOffset, lastOffset + 1)} of epoch ${leaderEpoch}, which only broker ${tail.brokerId} had when it died, are still there`,
      );
    }
    logEndOffset = lastOffset + 1;
  }
  const problem = epochProblem(epochs, found, logEndOffset);
  return problem === undefined ? problems : [...problems, problem];
}

function keyOf(batch: { baseOffset: number; lastOffset: number; leaderEpoch: number; crc: number }): string {
  return `${batch.baseOffset}-${batch.lastOffset}/${batch.leaderEpoch}/${batch.crc}`;
}

interface EpochStart {
  readonly epoch: number;
  readonly startOffset: number;
}

/**
 * Every epoch of the batches must be in the cache with the offset of its first record, and nothing else: but for a last epoch that
 * began at the very end, in which nothing was written.
 */
export function epochProblem(
  cache: readonly EpochStart[],
  found: readonly EpochStart[],
  logEndOffset: number,
): string | undefined {
  const last = cache.at(-1);
  const isLastEmpty = cache.length === found.length + 1 && last?.startOffset === logEndOffset;
  const counted = isLastEmpty ? cache.slice(0, -1) : cache;
  const isSame =
    counted.length === found.length &&
    counted.every(
      ({ epoch, startOffset }, index) => epoch === found[index]?.epoch && startOffset === found[index]?.startOffset,
    );
  if (isSame) return undefined;
  return `its epoch cache says ${formatEpochs(cache)}, its batches say ${formatEpochs(found)}`;
}

/** Each with the first. */
async function compareReplicas(
  { replicas, topic }: VerifyReplicasOptions,
  figures: readonly ReplicaFigures[],
  problems: Problems,
): Promise<void> {
  const [first, ...others] = replicas.map(({ brokerId, directory }) => ({
    brokerId,
    directory: join(directory, "log", `${topic}-0`),
  }));
  const highWatermark = Math.min(...figures.map((figure) => figure.highWatermark ?? figure.logEndOffset));
  for (const other of others) {
    if (first === undefined) return;
    const difference = await firstDifference(first.directory, other.directory, highWatermark);
    if (difference === undefined) continue;
    problems.add(`brokers ${first.brokerId} and ${other.brokerId} differ below their high watermark: ${difference}`);
  }
}

/** Compares batch by batch, every byte of each: segments may begin at different offsets, batches may not. */
export async function firstDifference(
  directory: string,
  otherDirectory: string,
  endOffset: number,
): Promise<string | undefined> {
  const others = partitionBatches(otherDirectory);
  let nextOffset = 0;
  try {
    for await (const batch of partitionBatches(directory)) {
      if (batch.header.baseOffset >= endOffset) return undefined;
      const other = await others.next();
      if (other.done === true) return `the second one ends at offset ${nextOffset}`;
      if (Buffer.compare(batch.bytes, other.value.bytes) !== 0)
        return `at offset ${nextOffset}, ${batch.where} and ${other.value.where}`;
      nextOffset = batch.header.lastOffset + 1;
    }
    return nextOffset < endOffset ? `the first one ends at offset ${nextOffset}` : undefined;
  } finally {
    await others.return(undefined);
  }
}
