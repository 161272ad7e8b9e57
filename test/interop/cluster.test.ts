import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { decodeLeaderEpochCheckpoint } from "@tidemark/epoch-cache";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { runCommand } from "../scenario/support/command.ts";
import { complaintsIn, fieldOf, withoutFirstOffsets } from "./dump-output.ts";
import { KafkaBroker } from "./kafka-broker.ts";
import { dumpLogSegments, makeScratchDirectory, Oracle } from "./kafka.ts";

const BROKERS = [1, 2, 3];
const LINES = Array.from({ length: 5000 }, (_, index) => `event ${index} ${"x".repeat(index % 97)}`);
const TOPIC = "lines";

let scratch: string;

// Two leaders die on the way, each with records that nobody else has: the epochs and the cuts are in the files.
beforeAll(async () => {
  scratch = await makeScratchDirectory();
  const inputPath = join(scratch, "input");
  await writeFile(inputPath, LINES.map((line) => `${line}\n`).join(""));
  const paths = ["--input", inputPath, "--directory", join(scratch, "cluster"), "--keep"];
  const demo = await runCommand(["demo", ...paths, "--seed", "7", "--segment-bytes", "65536"]);
  expect(demo, demo.stdout.toString("utf8")).toMatchObject({ exitCode: 0, stderr: "" });
});

afterAll(() => rm(scratch, { recursive: true, force: true }));

describe("Kafka's tools on the replicas of three brokers whose leader died twice", () => {
  test.each(BROKERS)("the dump tool reads every batch and record of broker %i, each offset once", async (broker) => {
    const logs = await filesOf(broker, ".log");
    expect(logs.length).toBeGreaterThan(3);
    const { exitCode, stdout, stderr } = await dumpLogSegments(logs, ["--deep-iteration"]);
    expect({ exitCode, stderr: withoutFirstOffsets(stderr) }).toEqual({ exitCode: 0, stderr: "" });
    expect(complaintsIn(stdout)).toEqual([]);
    const lines = stdout.split("\n");
    const offsets = lines.flatMap((line) => (line.startsWith("| offset:") ? fieldOf(line, "offset") : []));
    expect(offsets).toEqual(LINES.map((_, offset) => offset));
    const epochs = lines.flatMap((line) =>
      line.startsWith("baseOffset:") ? fieldOf(line, "partitionLeaderEpoch") : [],
    );
    expect([...new Set(epochs)]).toEqual([0, 1, 2]);
  });

  test.each(BROKERS)("the dump tool finds every index entry of broker %i at a batch", async (broker) => {
    const indexes = await filesOf(broker, ".index");
    const { exitCode, stdout, stderr } = await dumpLogSegments(indexes, ["--verify-index-only"]);
    expect({ exitCode, stderr: withoutFirstOffsets(stderr) }).toEqual({ exitCode: 0, stderr: "" });
    expect(complaintsIn(stdout)).toEqual([]);
    for (const path of indexes) expect(stdout).toContain(`Dumping ${path}`);
  });

  test("LeaderEpochCheckpointFile reads of each replica the leader epochs that we read", async () => {
    const oracle = await Oracle.start(scratch);
    try {
      for (const broker of BROKERS) {
        const path = join(partitionDirectory(broker), "leader-epoch-checkpoint");
        const ours = decodeLeaderEpochCheckpoint(new Uint8Array(await readFile(path)), path);
        expect(ours.map(({ epoch }) => epoch)).toEqual([0, 1, 2]);
        const shown = ours.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
        expect(await oracle.ask(`checkpoint read ${path}`)).toBe(shown);
      }
    } finally {
      await oracle.close();
    }
  });
});

describe("a Kafka broker that is given the files of a replica", () => {
  test("serves exactly the lines of the input, in their order", async () => {
    const kafka = await KafkaBroker.format(join(scratch, "kafka"));
    try {
      await kafka.start();
      await kafka.createTopic(TOPIC);
      await kafka.stop();
      await kafka.adopt(TOPIC, partitionDirectory(1));
      await kafka.start();
      // By partition, without a group: nothing else has to be elected or created first.
      const what = ["--topic", TOPIC, "--partition", "0", "--offset", "earliest"];
      const bounds = ["--max-messages", String(LINES.length), "--timeout-ms", "120000"];
      const consumed = await kafka.runTool("org.apache.kafka.tools.consumer.ConsoleConsumer", [...what, ...bounds]);
      expect(consumed.split("\n")).toEqual([...LINES, ""]);
      const endOffsets = await kafka.runTool("org.apache.kafka.tools.GetOffsetShell", ["--topic", TOPIC]);
      expect(endOffsets).toBe(`${TOPIC}:0:${LINES.length}\n`);
      await kafka.stop();
    } finally {
      await kafka.kill();
    }
  });
});

function partitionDirectory(broker: number): string {
  return join(scratch, "cluster", `broker-${broker}`, "log", `${TOPIC}-0`);
}

async function filesOf(broker: number, suffix: string): Promise<string[]> {
  const directory = partitionDirectory(broker);
  const names = (await readdir(directory)).filter((name) => name.endsWith(suffix)).sort();
  return names.map((name) => join(directory, name));
}
