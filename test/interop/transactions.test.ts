import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";

import { encodeUtf8, toLeaderEpoch } from "@tidemark/base";
import { encodeBatch } from "@tidemark/wire";
import { afterAll, beforeAll, expect, test } from "vitest";

import { complaintsIn, withoutFirstOffsets } from "./dump-output.ts";
import { dumpLogSegments, makeScratchDirectory } from "./kafka.ts";
import { openLog } from "./open-log.ts";

const TRANSACTIONS = 60;

let scratch: string;
let directory: string;

beforeAll(async () => {
  scratch = await makeScratchDirectory();
  directory = join(scratch, "orders-0");
  const log = await openLog(directory, { config: { segmentBytes: 4000, indexIntervalBytes: 300 } });
  await log.becomeLeader(toLeaderEpoch(3));
  for (let number = 0; number < TRANSACTIONS; number += 1) {
    const producerId = 1000 + (number % 3);
    const value = number % 7 === 0 ? null : encodeUtf8(`value ${number}`);
    const records = ["a", "b"].map((key) => ({
      key: encodeUtf8(`${key}${number % 10}`),
      value,
      timestamp: Date.now(),
    }));
    const baseSequence = Math.floor(number / 3) * 2;
    const batch = encodeBatch(records, { producerId, producerEpoch: 0, baseSequence, transactional: true });
    await log.append(batch, { origin: "client", isTransactionVerified: true });
    const type = number % 4 === 1 ? "abort" : "commit";
    await log.endTransaction({ type, producerId, producerEpoch: 0, coordinatorEpoch: 1, transactionVersion: 0 });
    // Aborts stay in the index of what is not cleaned.
    if (number === TRANSACTIONS / 2) await log.compact();
  }
  await log.close();
});

afterAll(() => rm(scratch, { recursive: true, force: true }));

test.each([
  [".log", ["--deep-iteration", "--print-data-log"], "isvalid: true"],
  [".txnindex", [], "lastStableOffset"],
  [".snapshot", [], "producerId: 1000"],
  [".index", ["--verify-index-only"], "Dumping"],
] as const)(
  "Kafka's dump tool reads the %s files of a log with transactions, half of it compacted",
  async (suffix, options, said) => {
    const names = (await readdir(directory)).filter((name) => name.endsWith(suffix)).sort();
    expect(names.length).toBeGreaterThan(0);
    const { exitCode, stdout, stderr } = await dumpLogSegments(
      names.map((name) => join(directory, name)),
      options,
    );
    // Compaction leaves offsets out, and the tool says so of any log that was compacted.
    const complaints = withoutFirstOffsets(stderr).replaceAll(
      /Non-consecutive offsets in \S*\n( +-?\d+ is followed by \d+\n)+/g,
      "",
    );
    expect({ exitCode, complaints }).toEqual({ exitCode: 0, complaints: "" });
    expect(complaintsIn(stdout)).toEqual([]);
    expect(stdout).toContain(said);
  },
);
