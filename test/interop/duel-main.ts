import { rm } from "node:fs/promises";

import { playDuels } from "./duels.ts";
import { makeScratchDirectory, Oracle } from "./kafka.ts";

// npm run duel -- [OPERATIONS] [SEED]: our log beside Kafka's for longer than the interop suite, or one history again.

const OPERATIONS_DEFAULT = 100_000;
const PROGRESS_OPERATIONS = 10_000;

const [operations = OPERATIONS_DEFAULT, seed = 1] = process.argv.slice(2).map(parseCount);
const scratch = await makeScratchDirectory();
const oracle = await Oracle.start(scratch);
const startedMs = performance.now();
try {
  const seen = await playDuels({
    oracle,
    seed,
    operations,
    directory: scratch,
    onProgress: (played) => {
      if (played % PROGRESS_OPERATIONS === 0) process.stderr.write(`${played} operations agree\n`);
    },
  });
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  process.stdout.write(`${operations} operations from seed ${seed} agree (${seconds} s)\n`);
  for (const [what, count] of [...seen].sort(([a], [b]) => (a < b ? -1 : 1))) {
    process.stdout.write(`${String(count).padStart(9)} ${what}\n`);
  }
} finally {
  await oracle.close();
  await rm(scratch, { recursive: true, force: true });
}

function parseCount(text: string): number {
  const value = Number(text);
  if (!(Number.isSafeInteger(value) && value >= 1)) throw new Error(`"${text}" is no count of at least 1`);
  return value;
}
