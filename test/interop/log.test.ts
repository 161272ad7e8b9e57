import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { expectAgreement, settle } from "./exchange.ts";
import { makeScratchDirectory, Oracle } from "./kafka.ts";
import { LogDuel } from "./log-duel.ts";
import { SeededRandom, seedFromEnvironment } from "./random.ts";

const OPERATIONS = 10_000;
const OPERATIONS_A_HISTORY = 125;
const REFUSALS = [
  "CORRUPT_MESSAGE",
  "INVALID_PRODUCER_EPOCH",
  "OFFSET_OUT_OF_RANGE",
  "OUT_OF_ORDER_SEQUENCE_NUMBER",
  "RECORD_LIST_TOO_LARGE",
  "UNEXPECTED_APPEND_OFFSET",
];

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

describe("our PartitionLog beside Kafka's UnifiedLog", () => {
  test("answers, offsets, segments, epochs and file bytes agree over 10,000 random operations", async () => {
    const seed = seedFromEnvironment();
    const seen = new Map<string, number>();
    for (let history = 0; history * OPERATIONS_A_HISTORY < OPERATIONS; history++) {
      // A seed of its own for every history, so that one alone can be run again.
      const directory = join(scratch, `history-${history}`);
      await mkdir(directory);
      const duel = new LogDuel(oracle, new SeededRandom(seed + history), directory);
      const exchanges = await settle(await duel.play(OPERATIONS_A_HISTORY));
      expectAgreement(seed + history, exchanges);
      for (const { command, theirs } of exchanges) {
        const what = theirs.startsWith("refused") ? theirs : command.split(" ", 1).join("");
        seen.set(what, (seen.get(what) ?? 0) + 1);
      }
      await rm(directory, { recursive: true });
    }
    // The histories are worth their time only if they come everywhere.
    const commands = ["append", "follow", "lead", "read", "roll", "truncate", "truncate-fully", "open", "files"];
    for (const command of commands) expect(seen.get(command), command).toBeGreaterThan(50);
    for (const code of REFUSALS) expect(seen.get(`refused ${code}`), code).toBeGreaterThan(0);
  });
});
