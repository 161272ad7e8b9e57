import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";

import { expectAgreement, settle } from "./exchange.ts";
import type { Oracle } from "./kafka.ts";
import { LogDuel } from "./log-duel.ts";
import { SeededRandom } from "./random.ts";

const OPERATIONS_A_HISTORY = 125;

export interface DuelsOptions {
  readonly oracle: Oracle;
  /** Of the first history; the next ones count on from it, so that each alone can be run again. */
  readonly seed: number;
  /** Rounded up to whole histories. */
  readonly operations: number;
  /** For the files of the histories. */
  readonly directory: string;
  /** Called after each history with the operations played so far. */
  readonly onProgress?: (operations: number) => void;
}

/**
 * Plays random histories on our log and on Kafka's.
 * @returns how often each command was given, and each refusal answered (`refused CODE`)
 * @throws Error for the first answer in which they differ, with what leads there
 */
export async function playDuels(options: DuelsOptions): Promise<ReadonlyMap<string, number>> {
  const seen = new Map<string, number>();
  for (let history = 0; history * OPERATIONS_A_HISTORY < options.operations; history++) {
    const directory = join(options.directory, `history-${history}`);
    await mkdir(directory);
    const seed = options.seed + history;
    const duel = new LogDuel(options.oracle, new SeededRandom(seed), directory);
    const exchanges = await settle(await duel.play(OPERATIONS_A_HISTORY));
    expectAgreement(seed, exchanges);
    for (const { command, theirs } of exchanges) {
      const what = theirs.startsWith("refused") ? theirs : command.split(" ", 1).join("");
      seen.set(what, (seen.get(what) ?? 0) + 1);
    }
    await rm(directory, { recursive: true });
    options.onProgress?.((history + 1) * OPERATIONS_A_HISTORY);
  }
  return seen;
}
