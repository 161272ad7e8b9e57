/**
 * Programs of a user of the packed package, as text: they are compiled against what npm installed, not against the workspace.
 * Each takes a directory, prints one line of JSON and ends by itself; a handle left open would keep it alive.
 */

/** The embedding API and both lower doors, with every type that a user would name. */
export const TYPED_PROGRAM = `
import { Tidemark, TidemarkError, type AppendedRecord, type FetchedRecord, type Topic } from "tidemark";
import { LeaderEpochCache } from "tidemark/epoch-cache";
import { LogError, type RecoveryReport } from "tidemark/log";

const directory = process.argv[2];
if (directory === undefined) throw new Error("usage: program DIRECTORY");

const offsets: number[] = [];
{
  await using log = await Tidemark.open({ directory });
  const orders = await log.topic("orders", { partitions: 1 });
  const { offset } = await orders.append({ key: "42", value: JSON.stringify({ total: 7 }) });
  offsets.push(offset);
  const appended: AppendedRecord[] = await orders.append([{ value: "second" }, { key: "43", value: "third" }]);
  offsets.push(...appended.map((record) => record.offset));
}

const values: string[] = [];
const log = await Tidemark.open({ directory });
const orders: Topic = await log.topic("orders");
const recovery: RecoveryReport = orders.partition(0).recovery;
const controller = new AbortController();
for await (const record of orders.fetch({ partition: 0, from: "earliest", signal: controller.signal })) {
  values.push(textOf(record));
  if (values.length === 3) break;
}
for await (const record of orders.fetch({ partition: 0, from: 2, follow: false })) values.push(textOf(record));
await log.close();

function textOf(record: FetchedRecord): string {
  return new TextDecoder().decode(record.value ?? new Uint8Array(0));
}

let code = "none";
try {
  await orders.append({ value: "too late" });
} catch (error) {
  code = error instanceof TidemarkError ? error.code : String(error);
}
const doors = [typeof LogError, new LeaderEpochCache().entries.length];
console.log(JSON.stringify({ offsets, values, code, clean: recovery.wasCleanShutdown, doors }));
`;

/**
 * Large appends to a topic of each codec, which only the worker threads compress: without them the batches are stored as they are, so that
 * the size of the file tells.
 */
export const CODECS_PROGRAM = `
import { readFile } from "node:fs/promises";
import { Tidemark } from "tidemark";

const directory = process.argv[2];
if (directory === undefined) throw new Error("usage: program DIRECTORY");
const value = "tidemark ".repeat(20_000);
await using log = await Tidemark.open({ directory });
const results: string[] = [];
for (const compression of ["gzip", "snappy", "lz4", "zstd"] as const) {
  const topic = await log.topic(compression, { partitions: 1, compression });
  for (let count = 0; count < 4; count++) await topic.append({ value });
  let equal = 0;
  for await (const record of topic.fetch({ partition: 0, from: "earliest", follow: false })) {
    if (new TextDecoder().decode(record.value ?? new Uint8Array(0)) === value) equal++;
  }
  const file = await readFile(directory + "/log/" + compression + "-0/00000000000000000000.log");
  if (file.length < value.length) results.push(compression + ": " + equal);
}
console.log(JSON.stringify({ results }));
`;

/** A partition log without a node around it, through the lower doors. */
export const LOWER_PROGRAM = `
import { mkdir } from "node:fs/promises";
import { encodeUtf8, toLeaderEpoch, toOffset } from "tidemark/base";
import { DEFAULT_LOG_CONFIG, LogDirectory, PartitionLog } from "tidemark/log";
import { LmdbState, openEnvironment } from "tidemark/runtime-node";
import { encodeBatch, scanBatch } from "tidemark/wire";

const root = process.argv[2];
if (root === undefined) throw new Error("usage: program DIRECTORY");
await mkdir(root + "/log/orders-0", { recursive: true });
await using environment = openEnvironment();
const state = await LmdbState.open(root + "/state");
const log = await PartitionLog.open({
  files: environment.files,
  state,
  clock: environment.clock,
  random: environment.random,
  workers: environment.workers,
  directory: root + "/log/orders-0",
  topic: "orders",
  partition: 0,
  config: DEFAULT_LOG_CONFIG,
  wasCleanShutdown: false,
  logDirectory: new LogDirectory(root + "/log"),
});
await log.becomeLeader(toLeaderEpoch(3));
const batch = encodeBatch([{ key: null, value: encodeUtf8("one"), timestamp: 0 }], {});
const { baseOffset } = await log.append(batch, { origin: "local" });
const { bytes } = await log.read({ fromOffset: toOffset(0), maxBytes: 1000 });
const scan = scanBatch(bytes, 0);
const epoch = scan.type === "batch" ? scan.header.partitionLeaderEpoch : scan.type;
await log.close();
await state.close();
console.log(JSON.stringify({ baseOffset, epoch }));
`;

/** Appends 0, 1, 2 … one by one, and writes each number out once it is acknowledged, until it is killed. */
export const ENDLESS_PROGRAM = `
import { writeSync } from "node:fs";
import { Tidemark } from "tidemark";

const directory = process.argv[2];
if (directory === undefined) throw new Error("usage: program DIRECTORY");
const log = await Tidemark.open({ directory });
const topic = await log.topic("numbers", { segmentBytes: 65_536 });
for (let number = 0; ; number++) {
  await topic.append({ value: String(number) });
  writeSync(1, number + "\\n");
}
`;

/** Counts the numbers that the program above left, and stops where one is not the next. */
export const COUNT_PROGRAM = `
import { Tidemark } from "tidemark";

const directory = process.argv[2];
if (directory === undefined) throw new Error("usage: program DIRECTORY");
await using log = await Tidemark.open({ directory });
const topic = await log.topic("numbers");
let count = 0;
for await (const record of topic.fetch({ partition: 0, from: "earliest", follow: false })) {
  const value = new TextDecoder().decode(record.value ?? new Uint8Array(0));
  if (value !== String(count)) throw new Error("record " + count + " is " + value);
  count++;
}
console.log(JSON.stringify({ count }));
`;

/** Does not compile: a bare number is no offset. */
export const WRONG_PROGRAM = `
import { LeaderEpochCache, type EpochEntry } from "tidemark/epoch-cache";
export const entry: EpochEntry = { epoch: 1, startOffset: 2 };
export const cache = new LeaderEpochCache([entry]);
`;
