import { cp, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { DEFAULT_LOG_CONFIG, LogManager, verifyDirectory } from "@tidemark/log";
import type { PartitionLog, TopicConfig, VerifyReport } from "@tidemark/log";
import { toOffset } from "@tidemark/base";
import { NODE_JOBS, NodeFileSystem, SystemClock } from "@tidemark/runtime-node";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { readView, viewOf } from "./client-view.ts";
import type { ViewLine } from "./client-view.ts";
import { complaintsIn, withoutFirstOffsets } from "./dump-output.ts";
import { KafkaBroker } from "./kafka-broker.ts";
import { dumpLogSegments, makeScratchDirectory, runJavaFile } from "./kafka.ts";
import { appendAsLeader, filesAfterCrash, writeAppends, writeCompacted, writeTransactions } from "./our-logs.ts";

const CONFIG: TopicConfig = {
  ...DEFAULT_LOG_CONFIG,
  segmentBytes: 20_000,
  indexIntervalBytes: 500,
  compression: "none",
};
/** What Clients.java writes to. */
const KAFKAS = ["codecs", "compacted", "deleted", "idempotent", "ledger", "stamped", "transactional"];
/** Made by the broker, filled by our log. */
const OURS = ["our-appends", "our-crash", "our-compaction", "our-deletions", "our-transactions"];
/** Producers whose last batch is a day old are forgotten by an open. */
const RECORD_TIME = Date.now() - 3_600_000;

let scratch: string;
let kafka: KafkaBroker;

beforeAll(async () => {
  scratch = await makeScratchDirectory();
  kafka = await KafkaBroker.format(join(scratch, "kafka"));
  await kafka.start();
  await runClients("write 0", `settle ${kafka.logDirectory}`, `read ${join(scratch, "killed.jsonl")}`);
  await kafka.kill();
  await cp(kafka.logDirectory, join(scratch, "killed"), { recursive: true });
  await kafka.start();
  const create = OURS.map((topic) => `create ${topic}`);
  await runClients("write 1", `settle ${kafka.logDirectory}`, ...create, `read ${join(scratch, "stopped.jsonl")}`);
  await kafka.stop();
  await cp(kafka.logDirectory, join(scratch, "stopped"), { recursive: true });
});

afterAll(async () => {
  await kafka?.kill();
  await rm(scratch, { recursive: true, force: true });
});

describe.each(["killed", "stopped"])("the directory of a broker that was %s", (how) => {
  test("verify finds nothing wrong in it", async () => {
    const report = await verify(join(scratch, how));
    expect(report.wasCleanShutdown).toBe(how === "stopped");
    expect(report.errors).toEqual([]);
    expect(report.records).toBeGreaterThan(2000);
  });

  test("our logs give the records, offsets, times, epochs and producers that its clients were given", async () => {
    const asked = await readView(join(scratch, `${how}.jsonl`));
    const directory = join(scratch, `${how}-read`);
    await cp(join(scratch, how), directory, { recursive: true });
    const manager = await openManager(directory);
    for (const topic of KAFKAS) {
      const log = partitionOf(manager, topic);
      expect([topic, log.damaged, log.recovery.cut, log.recovery.epochsRebuilt]).toEqual([topic, [], undefined, false]);
      expect([topic, log.segments.length > 1]).toEqual([topic, true]);
      expectSameView(await viewOf(log, asked), ofTopic(asked, topic));
    }
    expect(await manager.close()).toMatchObject({ isClean: true });
  });
});

test("a broker takes back its directory to which our logs appended, with logs that only ours wrote, and writes on", async () => {
  const ours = join(scratch, "ours");
  await cp(join(scratch, "stopped"), ours, { recursive: true });
  const crashed = await filesAfterCrash(RECORD_TIME);
  for (const [name, bytes] of crashed) await writeFile(join(ours, "our-crash-0", name), bytes);

  const asked = [...(await readView(join(scratch, "stopped.jsonl")))];
  const views = new Map<string, ViewLine[]>();
  const manager = await openManager(ours);
  await manager.configureTopic("our-deletions", { ...CONFIG, retentionBytes: 60_000 });
  for (const topic of KAFKAS) await appendAsLeader(partitionOf(manager, topic), RECORD_TIME);
  await writeAppends(partitionOf(manager, "our-appends"), RECORD_TIME);
  await writeTransactions(partitionOf(manager, "our-transactions"), RECORD_TIME);
  await writeCompacted(partitionOf(manager, "our-compaction"), RECORD_TIME);
  await writeAppends(partitionOf(manager, "our-deletions"), RECORD_TIME);
  const { deleted } = await partitionOf(manager, "our-deletions").deleteOldSegments();
  expect(deleted.length).toBeGreaterThan(0);
  // Every batch has two records at least: this is inside one.
  await manager.deleteRecords("our-deletions", 0, toOffset(partitionOf(manager, "our-deletions").logStartOffset + 1));
  for (const topic of [...KAFKAS, ...OURS]) views.set(topic, await viewOf(partitionOf(manager, topic), asked));
  expect(await manager.close()).toMatchObject({ isClean: true });
  expect((await verify(ours)).errors).toEqual([]);

  await rm(kafka.logDirectory, { recursive: true });
  await rename(ours, kafka.logDirectory);
  // Its cleaner would begin at once, and what it takes is not what we compare.
  await kafka.start("log.cleaner.enable=false");
  const append = `append 60 ${[...KAFKAS, ...OURS].join(" ")}`;
  await runClients(`read ${join(scratch, "taken.jsonl")}`, append, `read ${join(scratch, "appended.jsonl")}`);
  await kafka.stop();
  const taken = await readView(join(scratch, "taken.jsonl"));
  for (const [topic, view] of views) expectSameView(atAnyEnd(view), atAnyEnd(ofTopic(taken, topic)));

  const report = await verify(kafka.logDirectory);
  expect(report.errors).toEqual([]);
  await expectNoComplaints(kafka.logDirectory);
  const appended = await readView(join(scratch, "appended.jsonl"));
  const reopened = await openManager(kafka.logDirectory);
  for (const topic of views.keys())
    expectSameView(await viewOf(partitionOf(reopened, topic), appended), ofTopic(appended, topic));
  expect(await reopened.close()).toMatchObject({ isClean: true });
});

/** Runs Kafka's clients. */
async function runClients(...commands: readonly string[]): Promise<void> {
  const words = `${kafka.bootstrapServer} ${RECORD_TIME} ${commands.join(" -- ")}`;
  await runJavaFile("Clients.java", words.split(" "));
}

function verify(directory: string): Promise<VerifyReport> {
  return verifyDirectory({ files: new NodeFileSystem(), workers: NODE_JOBS, directory });
}

/** A node of ours over a broker's log directory, with no state: it knows what the files say. */
function openManager(directory: string): Promise<LogManager> {
  const simulated = new SimulatedEnvironment({ seed: 1 });
  const { random, workers, state } = simulated;
  const environment = { clock: new SystemClock(), files: new NodeFileSystem(), random, workers };
  return LogManager.open({ environment, openState: () => Promise.resolve(state), directory, defaults: CONFIG });
}

function partitionOf(manager: LogManager, topic: string): PartitionLog {
  const log = manager.partition(topic, 0);
  if (log === undefined) throw new Error(`there is no ${topic}-0`);
  return log;
}

function ofTopic(lines: readonly ViewLine[], topic: string): ViewLine[] {
  return lines.filter((line) => line.topic === topic);
}

/** The epoch of the log's end is that of its leader, which is a new one after each start. */
function atAnyEnd(view: readonly ViewLine[]): ViewLine[] {
  return view.map((line) => (line.spec === "latest" ? { ...line, epoch: undefined } : line));
}

/** One difference is told, not ten thousand. */
function expectSameView(ours: readonly ViewLine[], theirs: readonly ViewLine[]): void {
  for (const [at, line] of theirs.entries()) {
    if (JSON.stringify(line) !== JSON.stringify(ours[at])) expect(ours[at]).toEqual(line);
  }
  expect(ours).toHaveLength(theirs.length);
}

/**
 * Kafka's dump tool over every file of every partition. It counts offsets without compaction in mind, and takes the batches that Kafka's
 * cleaner emptied to be without time, though the time index that the cleaner wrote goes by theirs.
 */
async function expectNoComplaints(logDirectory: string): Promise<void> {
  const files: string[] = [];
  for (const topic of [...KAFKAS, ...OURS]) {
    const directory = join(logDirectory, `${topic}-0`);
    const isKafkasCompacted = topic === "compacted" || topic === "ledger";
    const dumped = isKafkasCompacted
      ? /\.(?:log|index|txnindex|snapshot)$/u
      : /\.(?:log|index|timeindex|txnindex|snapshot)$/u;
    const names = (await readdir(directory)).filter((name) => dumped.test(name));
    files.push(...names.sort().map((name) => join(directory, name)));
  }
  const { exitCode, stdout, stderr } = await dumpLogSegments(files, ["--deep-iteration", "--verify-index-only"]);
  const holes =
    /Non-consecutive offsets in \S*\/(?:compacted|ledger|our-compaction)-0\/\d+\.log\n( +-?\d+ is followed by \d+\n)+/gu;
  const complaints = withoutFirstOffsets(stderr.replaceAll(holes, ""));
  expect({ exitCode, complaints }).toEqual({ exitCode: 0, complaints: "" });
  expect(complaintsIn(stdout)).toEqual([]);
  for (const file of files) expect(stdout).toContain(`Dumping ${file}`);
}
