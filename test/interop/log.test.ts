import { rm } from "node:fs/promises";

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { playDuels } from "./duels.ts";
import { makeScratchDirectory, Oracle } from "./kafka.ts";
import { seedFromEnvironment } from "./random.ts";

const OPERATIONS = 10_000;
const COMMANDS = [
  "append",
  "follow",
  "lead",
  "read",
  "roll",
  "retain",
  "delete-records",
  "truncate",
  "truncate-fully",
  "open",
  "files",
];
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
    const seen = await playDuels({ oracle, seed: seedFromEnvironment(), operations: OPERATIONS, directory: scratch });
    // The histories are worth their time only if they come everywhere.
    for (const command of COMMANDS) expect(seen.get(command), command).toBeGreaterThan(50);
    for (const code of REFUSALS) expect(seen.get(`refused ${code}`), code).toBeGreaterThan(0);
  });
});
