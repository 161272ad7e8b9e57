import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { CompactionDuel } from "./compaction-duel.ts";
import { expectAgreement } from "./exchange.ts";
import { makeScratchDirectory, Oracle } from "./kafka.ts";
import { SeededRandom, seedFromEnvironment } from "./random.ts";

const HISTORIES = 40;
const PASSES = 4;

let scratch: string;
let oracle: Oracle;

beforeAll(async () => {
  scratch = await makeScratchDirectory();
  oracle = await Oracle.start(scratch);
});

afterAll(async () => {
  await oracle?.close();
  await rm(scratch, { recursive: true, force: true });
});

test("what Kafka's cleaner leaves of a log, ours leaves: records, tombstones, horizons, markers, segments and indexes", async () => {
  const seed = seedFromEnvironment();
  const seen = { passes: 0, horizons: 0, emptied: 0, aborted: 0 };
  for (let history = 0; history < HISTORIES; history += 1) {
    const directory = join(scratch, `history-${history}`);
    await mkdir(directory);
    const exchanges = await new CompactionDuel(oracle, new SeededRandom(seed + history), directory).play(PASSES);
    expectAgreement(seed + history, exchanges);
    for (const { command, theirs } of exchanges) {
      if (command.startsWith("log clean ")) seen.passes += 1;
      if (theirs.includes(" delete-horizon ")) seen.horizons += 1;
      if (theirs.includes(" emptied ")) seen.emptied += 1;
      if (theirs.includes(".txnindex ")) seen.aborted += 1;
    }
    await rm(directory, { recursive: true });
  }
  // The histories are worth their time only if they come everywhere.
  expect(Math.min(...Object.values(seen)), JSON.stringify(seen)).toBeGreaterThan(HISTORIES / 2);
});
