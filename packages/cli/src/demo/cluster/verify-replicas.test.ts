import { appendFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { encodeBatch, stampBatch } from "@tidemark/wire";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { divergentTail } from "./partition-batches.ts";
import { epochProblem, firstDifference, verifyReplicas } from "./verify-replicas.ts";

const BROKERS = [1, 2, 3];
const FIRST_SEGMENT = "00000000000000000000.log";

/** `epoch:lines`, one batch each. */
type Batches = readonly (readonly [epoch: number, lines: readonly string[]])[];

function encoded(batches: Batches, baseOffset = 0): Buffer {
  let offset = baseOffset;
  return Buffer.concat(
    batches.map(([epoch, lines]) => {
      const bytes = encodeBatch(
        lines.map((line) => ({ key: null, value: Buffer.from(line), timestamp: 1 })),
        { producerId: 1, producerEpoch: 0, baseSequence: offset },
      );
      stampBatch(bytes, 0, offset, epoch);
      offset += lines.length;
      return bytes;
    }),
  );
}

let directory = "";
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemark-replicas-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const GOOD: Batches = [
  [0, ["a", "b"]],
  [0, ["c"]],
  [2, ["d", "e"]],
];
const EPOCHS = "0\n2\n0 0\n2 3\n";

function brokerDirectory(brokerId: number): string {
  return join(directory, `broker-${brokerId}`);
}

function logDirectory(brokerId: number): string {
  return join(brokerDirectory(brokerId), "log");
}

function partition(brokerId: number): string {
  return join(logDirectory(brokerId), "lines-0");
}

/** What a broker leaves behind after a clean stop, as far as it matters here. */
async function writeReplica(brokerId: number, batches: Batches = GOOD): Promise<void> {
  await mkdir(partition(brokerId), { recursive: true });
  const topicId = "AAAAAAAAAAEAAAAAAAAAAg";
  const count = batches.flatMap(([, lines]) => lines).length;
  for (const [path, content] of [
    [join(partition(brokerId), FIRST_SEGMENT), encoded(batches)],
    [join(partition(brokerId), "00000000000000000000.index"), ""],
    [join(partition(brokerId), "leader-epoch-checkpoint"), EPOCHS],
    [join(partition(brokerId), "partition.metadata"), `version: 0\ntopic_id: ${topicId}`],
    [join(logDirectory(brokerId), "replication-offset-checkpoint"), `0\n1\nlines 0 ${count}\n`],
    [join(logDirectory(brokerId), "recovery-point-offset-checkpoint"), `0\n1\nlines 0 ${count}\n`],
    [
      join(logDirectory(brokerId), "meta.properties"),
      `version=1\ncluster.id=${topicId}\nnode.id=${brokerId}\ndirectory.id=${topicId}\n`,
    ],
  ] as const) {
    await writeFile(path, content);
  }
}

async function verdict(tails: Awaited<ReturnType<typeof divergentTail>>[] = []) {
  return verifyReplicas({
    replicas: BROKERS.map((brokerId) => ({ brokerId, directory: brokerDirectory(brokerId) })),
    topic: "lines",
    chunks: async function* chunks() {
      yield Buffer.from("a\nb\nc\nd\ne\n");
    },
    lineCount: 5,
    lineBytesMax: 100,
    tails,
    onProgress: () => undefined,
    signal: new AbortController().signal,
  });
}

describe("the verdict over three replicas", () => {
  beforeEach(() => Promise.all(BROKERS.map((brokerId) => writeReplica(brokerId))));

  test("three good ones are good", async () => {
    const { problems, problemCount, replicas } = await verdict();
    expect(problems).toEqual([]);
    expect(problemCount).toBe(0);
    expect(replicas.map(({ highWatermark, logEndOffset, batches }) => [highWatermark, logEndOffset, batches])).toEqual(
      BROKERS.map(() => [5, 5, 3]),
    );
  });

  test("batches below the high watermark that differ in a byte which no CRC covers are found", async () => {
    const path = join(partition(2), FIRST_SEGMENT);
    const bytes = await readFile(path);
    bytes.writeInt32BE(1, encoded([[0, ["a", "b"]]]).length + 12); // Leader epoch of the second batch.
    await writeFile(path, bytes);
    const { problems } = await verdict();
    expect(problems).toContain("broker 2: its epoch cache says 0@0 2@3, its batches say 0@0 1@2 2@3");
    expect(problems.filter((problem) => problem.startsWith("brokers 1 and 2 differ"))).toHaveLength(1);
    expect(problems.filter((problem) => problem.startsWith("brokers 1 and 3 differ"))).toEqual([]);
  });

  test("a record that is there twice is a problem, the same on all replicas or not", async () => {
    for (const brokerId of BROKERS)
      await appendFile(join(partition(brokerId), FIRST_SEGMENT), encoded([[2, ["e"]]], 5));
    const { problems } = await verdict();
    expect(problems).toContain("broker 3: 1 records more than the 5 lines");
  });

  test("a record that is missing at the end of one replica", async () => {
    await writeFile(join(partition(3), FIRST_SEGMENT), encoded(GOOD.slice(0, 2)));
    const { problems } = await verdict();
    expect(problems).toContain("broker 3: 2 of 5 lines are not in the log, it ends before line 4");
    expect(problems).toContain("brokers 1 and 3 differ below their high watermark: the second one ends at offset 3");
  });

  test("a high watermark that was not noted, or below what was acknowledged", async () => {
    await rm(join(logDirectory(1), "replication-offset-checkpoint"));
    await writeFile(join(logDirectory(2), "replication-offset-checkpoint"), "0\n1\nlines 0 4\n");
    const { problems } = await verdict();
    expect(problems).toContain("broker 1: its high watermark is not noted, although all 5 records were acknowledged");
    expect(problems).toContain("broker 2: its high watermark is 4, although all 5 records were acknowledged");
  });

  test("a divergent tail that is still there on any replica", async () => {
    const batch = { baseOffset: 3, lastOffset: 4, leaderEpoch: 2, crc: encoded(GOOD).readUInt32BE(0) };
    const last = encoded([[2, ["d", "e"]]], 3);
    const tail = { brokerId: 1, fromOffset: 3, toOffset: 5, batches: [{ ...batch, crc: last.readUInt32BE(17) }] };
    const { problems } = await verdict([tail]);
    for (const brokerId of BROKERS) {
      expect(problems.filter((problem) => problem.startsWith(`broker ${brokerId}: `))).toEqual([
        expect.stringContaining("which only broker 1 had when it died, are still there"),
      ]);
    }
    const gone = { ...tail, batches: [{ ...batch, crc: 1 }] };
    expect((await verdict([gone])).problems).toEqual([]);
  });
});

describe("the longest common prefix of two logs", () => {
  test.each<[string, Batches, Batches, readonly [number, number, number]]>([
    ["the same", GOOD, GOOD, [5, 5, 0]],
    ["one is a prefix of the other", GOOD.slice(0, 2), GOOD, [3, 3, 0]],
    ["one goes on", GOOD, GOOD.slice(0, 2), [3, 5, 1]],
    ["the same records in another epoch", [...GOOD.slice(0, 2), [1, ["d", "e"]]], GOOD, [3, 5, 1]],
    ["other records in the same epoch", [[0, ["a", "x"]], ...GOOD.slice(1)], GOOD, [0, 5, 3]],
    [
      "other batches of the same records",
      [
        [0, ["a"]],
        [0, ["b", "c"]],
      ],
      GOOD,
      [0, 3, 2],
    ],
    ["nothing at all", [], GOOD, [0, 0, 0]],
  ])("%s", async (_name, batches, otherBatches, [fromOffset, toOffset, count]) => {
    await writeReplica(1, batches);
    await writeReplica(2, otherBatches);
    const tail = await divergentTail(1, partition(1), partition(2));
    expect(tail).toMatchObject({ brokerId: 1, fromOffset, toOffset });
    expect(tail.batches).toHaveLength(count);
  });

  test("a torn batch at the end does not count, a directory that is missing is an empty log", async () => {
    await writeReplica(1);
    await appendFile(join(partition(1), FIRST_SEGMENT), encoded([[2, ["f"]]], 5).subarray(0, -1));
    expect(await divergentTail(1, partition(1), partition(3))).toMatchObject({ fromOffset: 0, toOffset: 5 });
    expect(await divergentTail(3, partition(3), partition(1))).toMatchObject({ fromOffset: 0, toOffset: 0 });
  });
});

test("logs that are cut into segments differently are the same; what differs at or above the end does not count", async () => {
  await writeReplica(1);
  await writeReplica(2);
  const whole = encoded(GOOD);
  const cut = encoded(GOOD.slice(0, 2)).length;
  await writeFile(join(partition(2), FIRST_SEGMENT), whole.subarray(0, cut));
  await writeFile(join(partition(2), "00000000000000000003.log"), whole.subarray(cut));
  expect(await firstDifference(partition(1), partition(2), 5)).toBeUndefined();
  await rm(join(partition(2), "00000000000000000003.log"));
  expect(await firstDifference(partition(1), partition(2), 3)).toBeUndefined();
  expect(await firstDifference(partition(1), partition(2), 4)).toBe("the second one ends at offset 3");
  expect(await firstDifference(partition(2), partition(1), 4)).toBe("the first one ends at offset 3");
});

test.each([
  ["0@0 2@3", "0@0 2@3", true],
  ["0@0 2@3 5@9", "0@0 2@3", true], // Nothing was written in epoch 5.
  ["0@0 2@3 5@8", "0@0 2@3", false],
  ["0@0", "0@0 2@3", false],
  ["0@0 2@4", "0@0 2@3", false],
  ["0@0 1@3", "0@0 2@3", false],
  ["", "", true],
  ["1@9", "", true],
])("an epoch cache of %j against batches of %j up to offset 9: %s", (cache, batches, isGood) => {
  const parse = (text: string) =>
    text
      .split(" ")
      .filter((entry) => entry !== "")
      .map((entry) => entry.split("@").map(Number))
      .map(([epoch = 0, startOffset = 0]) => ({ epoch, startOffset }));
  const problem = epochProblem(parse(cache), parse(batches), 9);
  expect(problem === undefined).toBe(isGood);
});
