import { readFile, stat } from "node:fs/promises";
import { basename } from "node:path";

import { decodeCheckpointLines, decodeLeaderEpochCheckpoint, LEADER_EPOCH_CHECKPOINT } from "@tidemark/epoch-cache";

import { dumpSegment } from "./dump-segment.ts";
import { dumpOffsetIndex, dumpTimeIndex } from "./dump-index.ts";
import type { Dump, DumpOptions, Print } from "./dump-kind.ts";
import { dumpProducerSnapshot, dumpTransactionIndex } from "./dump-producers.ts";
import { CommandError, EXIT_FOUND_PROBLEMS, EXIT_OK } from "./errors.ts";
import { escapeControls } from "./format.ts";
import { Output } from "./output.ts";

/**
 * Prints files of a log directory in the manner of Kafka's dump tool. Opens them for reading only, and needs no lock.
 * @returns EXIT_FOUND_PROBLEMS when a file is damaged
 * @throws CommandError for a file of a kind that is not known, errors of node:fs
 */
export async function dumpFiles(
  paths: readonly string[],
  options: DumpOptions,
  output = new Output(),
): Promise<number> {
  let problemCount = 0;
  const print: Print = async (line) => {
    if (output.add(Buffer.from(`${line}\n`))) await output.flush();
    return !output.isClosed;
  };
  try {
    for (const path of paths) {
      const dump = dumpFor(path);
      if ((await stat(path)).isDirectory()) throw new CommandError(`${path}: is a directory, not a file`);
      await print(`Dumping ${path}`);
      problemCount += await dump(path, print, options);
    }
  } finally {
    await output.end();
  }
  return problemCount === 0 ? EXIT_OK : EXIT_FOUND_PROBLEMS;
}

const PLAIN_TEXT_NAMES = new Set(["partition.metadata", "meta.properties", ".kafka_cleanshutdown", "quorum-state"]);

function dumpFor(path: string): Dump {
  const name = basename(path);
  if (name.endsWith(".log")) return dumpSegment;
  if (name.endsWith(".index")) return dumpOffsetIndex;
  if (name.endsWith(".timeindex")) return dumpTimeIndex;
  if (name.endsWith(".snapshot")) return dumpProducerSnapshot;
  if (name.endsWith(".txnindex")) return dumpTransactionIndex;
  if (name === LEADER_EPOCH_CHECKPOINT) return dumpEpochs;
  if (name.endsWith("-offset-checkpoint")) return dumpOffsetCheckpoint;
  if (PLAIN_TEXT_NAMES.has(name)) return dumpText;
  throw new CommandError(
    `${path}: not a file that dump knows (.log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint, *-offset-checkpoint, partition.metadata, meta.properties, .kafka_cleanshutdown)`,
  );
}

const dumpEpochs: Dump = async (path, print) => {
  try {
    for (const { epoch, startOffset } of decodeLeaderEpochCheckpoint(await readFile(path), path)) {
      await print(`epoch: ${epoch} startOffset: ${startOffset}`);
    }
    return 0;
  } catch (error) {
    return malformed(error, path, print);
  }
};

const dumpOffsetCheckpoint: Dump = async (path, print) => {
  try {
    for (const [topic, partition, offset] of decodeCheckpointLines(await readFile(path), path, 3)) {
      await print(`topic: ${topic} partition: ${partition} offset: ${offset}`);
    }
    return 0;
  } catch (error) {
    return malformed(error, path, print);
  }
};

const dumpText: Dump = async (path, print) => {
  const text = (await readFile(path)).toString("utf8");
  for (const line of text.replace(/\n$/u, "").split("\n")) await print(escapeControls(line));
  return 0;
};

async function malformed(error: unknown, path: string, print: Print): Promise<number> {
  const { line, reason } = error as { line?: unknown; reason?: unknown };
  if (typeof line !== "number" || typeof reason !== "string") throw error;
  await print(`Malformed: line ${line} of ${path}: ${reason}`);
  return 1;
}
