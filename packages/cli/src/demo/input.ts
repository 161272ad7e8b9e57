import { createReadStream } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { CommandError } from "../errors.ts";
import { jsonArrayElements } from "./json-array.ts";

const CHUNK_BYTES = 256 * 1024;

/** Where the records come from. Plain data: it is handed to the ingesting process. */
export type InputSource =
  | { readonly type: "file"; readonly path: string }
  /** The flights of vega-datasets: a JSON array, one record for each element. */
  | { readonly type: "flights"; readonly path: string };

/** What must stay the same while the input is read several times. */
export interface InputIdentity {
  readonly sizeBytes: number;
  readonly modifiedMs: number;
  readonly inode: number;
}

/**
 * The source that the options name.
 * @throws CommandError when the file is missing, no regular file, or the flights are not installed
 */
export async function findInput(inputPath: string | undefined): Promise<InputSource> {
  const source: InputSource =
    inputPath === undefined ? { type: "flights", path: flightsPath() } : { type: "file", path: inputPath };
  await identifyInput(source);
  return source;
}

/** @throws CommandError, or an error of node:fs */
export async function identifyInput(source: InputSource): Promise<InputIdentity> {
  const stats = await stat(source.path).catch((error: NodeJS.ErrnoException) => {
    if (source.type === "flights" && error.code === "ENOENT") throw flightsMissing();
    throw error;
  });
  if (stats.isDirectory()) throw new CommandError(`${source.path}: is a directory, not a file of lines`);
  if (!stats.isFile()) {
    throw new CommandError(`${source.path}: not a regular file; the demo reads its input more than once`);
  }
  return { sizeBytes: stats.size, modifiedMs: stats.mtimeMs, inode: stats.ino };
}

function flightsPath(): string {
  let entry: string;
  try {
    entry = fileURLToPath(import.meta.resolve("vega-datasets"));
  } catch {
    throw flightsMissing();
  }
  // The package does not export its data, so the way goes from its entry point `build/….js` to the folder beside it.
  return join(entry, "../../data/flights-200k.json");
}

function flightsMissing(): CommandError {
  return new CommandError(
    "the npm package vega-datasets, whose flights are the default input, is not installed: name a file of lines with --input FILE",
  );
}

/** The input as bytes of lines. A file is streamed; the flights become one chunk, an element a line. */
export async function* inputChunks(source: InputSource): AsyncGenerator<Uint8Array> {
  if (source.type === "file") {
    for await (const chunk of createReadStream(source.path, { highWaterMark: CHUNK_BYTES })) yield chunk as Uint8Array;
    return;
  }
  yield jsonArrayElements(await readFile(source.path), source.path);
}

/** How the input is called in reports. */
export function inputName(source: InputSource): string {
  return source.type === "flights" ? "vega-datasets flights-200k.json" : source.path;
}

/** The topics that a demo writes, each of one partition. */
export const DEMO_TOPICS = ["flights", "lines"] as const;

export function topicOf(source: InputSource): (typeof DEMO_TOPICS)[number] {
  return source.type === "flights" ? "flights" : "lines";
}
