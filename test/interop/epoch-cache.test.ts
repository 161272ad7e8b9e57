import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { InvariantError, toLeaderEpoch, toOffset } from "@tidemark/base";
import type { LeaderEpoch, Offset } from "@tidemark/base";
import { decodeLeaderEpochCheckpoint, encodeLeaderEpochCheckpoint, LeaderEpochCache } from "@tidemark/epoch-cache";
import type { EpochEntry } from "@tidemark/epoch-cache";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { expectAgreement, settle } from "./exchange.ts";
import type { Exchange, PendingExchange } from "./exchange.ts";
import { makeScratchDirectory, Oracle, OracleError } from "./kafka.ts";
import { SeededRandom, seedFromEnvironment } from "./random.ts";

const OPERATIONS = 100_000;
/** Short histories: small caches in which equal and neighbouring values meet. */
const OPERATIONS_A_HISTORY = 40;
const REFUSED = "refused";

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

describe("our LeaderEpochCache beside Kafka's LeaderEpochFileCache", () => {
  test("every answer agrees over 100,000 random operations", async () => {
    const seed = seedFromEnvironment();
    const compared = { count: 0, refusedCount: 0 };
    for (let history = 0; compared.count < OPERATIONS; history++) {
      // A seed of its own for every history, so that one alone can be run again.
      const exchanges = await playHistory(seed + history);
      expectAgreement(seed + history, exchanges);
      compared.count += exchanges.length;
      compared.refusedCount += exchanges.filter(({ theirs }) => theirs === REFUSED).length;
    }
    expect(compared.count).toBeGreaterThanOrEqual(OPERATIONS);
    expect(compared.refusedCount).toBeGreaterThan(100);
  });
});

describe("leader-epoch-checkpoint", () => {
  const FILES = [[], entriesOf("0@0"), entriesOf("3@40 5@52"), entriesOf(`7@1 2147483647@${Number.MAX_SAFE_INTEGER}`)];

  test.each(FILES.map((entries) => [show(entries), entries] as const))(
    "Kafka reads our bytes of [%s]",
    async (text, entries) => {
      const path = join(scratch, "leader-epoch-checkpoint-ours");
      await writeFile(path, encodeLeaderEpochCheckpoint(entries));
      expect(await oracle.ask(`checkpoint read ${path}`)).toBe(text);
    },
  );

  test.each(FILES.map((entries) => [show(entries), entries] as const))(
    "Kafka writes our bytes of [%s]",
    async (text, entries) => {
      const path = join(scratch, `leader-epoch-checkpoint-theirs-${entries.length}`);
      await oracle.ask(`checkpoint write ${path} ${text}`);
      const bytes = new Uint8Array(await readFile(path));
      expect(bytes).toEqual(new Uint8Array(encodeLeaderEpochCheckpoint(entries)));
      expect(decodeLeaderEpochCheckpoint(bytes, path)).toEqual(entries);
    },
  );

  // What one refuses the other refuses, and what both read they read alike. An offset above 2^53 - 1 is the one
  // exception: Kafka reads it, here it is a typed error.
  test.each([
    "",
    "0\n",
    "0\n0\n",
    "0\n1\n3 40",
    "0\r\n1\r\n3 40\r\n",
    "0\n2\n3 \t 40  \n5 52\n",
    "0\n2\n5 52\n3 40\n",
    "0\n2\n3 40\n3 40\n",
    "0\n1\n+3 007\n",
    "-0\n+1\n-0 -0\n",
    "1\n0\n",
    "0 \n0\n",
    "x\n0\n",
    "\n0\n0\n",
    "0\nx\n",
    "0\n0\n3 40\n",
    "0\n3\n3 40\n5 52\n",
    "0\n1\n3\n",
    "0\n1\n3 40 1\n",
    "0\n1\n 3 40\n",
    "0\n1\n3 40\n\n",
    "0\n1\nx 40\n",
    "0\n1\n3 x\n",
    "0\n1\n-3 40\n",
    "0\n1\n3 -40\n",
    "0\n1\n3 4.0\n",
    "0\n1\n2147483648 40\n",
    "0\n1\n3\u00a040\n",
  ])("a cache loads %j alike, or both refuse", async (text) => {
    const path = join(scratch, "leader-epoch-checkpoint-odd");
    await writeFile(path, text);
    const theirs = await orRefused(oracle.ask(`checkpoint load ${path}`));
    let ours = REFUSED;
    try {
      const decoded = decodeLeaderEpochCheckpoint(new Uint8Array(await readFile(path)), path);
      ours = show(new LeaderEpochCache(decoded).entries);
    } catch (error) {
      expect(error).toMatchObject({ code: "CHECKPOINT_MALFORMED" });
    }
    expect(ours).toBe(theirs);
  });
});

/** Sends a whole history and then waits: the way to and fro costs more than the operations. */
async function playHistory(seed: number): Promise<Exchange[]> {
  const random = new SeededRandom(seed);
  const player = new HistoryPlayer(random);
  const pending: PendingExchange[] = [];
  const began = oracle.ask("epoch new");
  for (let i = 0; i < OPERATIONS_A_HISTORY; i++) {
    const { command, ours } = player.next();
    pending.push({ command, ours, theirs: orRefused(oracle.ask(`epoch ${command}`)) });
  }
  await began;
  return settle(pending);
}

class HistoryPlayer {
  readonly #random: SeededRandom;
  readonly #cache = new LeaderEpochCache();
  /** Half of the histories are a log's: epochs and offsets mostly grow. The others are anything. */
  readonly #isOrderly: boolean;
  #epoch = 0;
  #logEndOffset = 0;

  constructor(random: SeededRandom) {
    this.#random = random;
    this.#isOrderly = random.oneIn(2);
  }

  next(): { command: string; ours: string } {
    const kind = this.#random.pick({
      assign: 40,
      end: 24,
      "truncate-end": 8,
      "truncate-start": 8,
      entries: 20,
      of: 8,
      previous: 4,
      next: 4,
      range: 4,
      clear: 1,
    });
    return this.#play(kind);
  }

  #play(kind: string): { command: string; ours: string } {
    const cache = this.#cache;
    switch (kind) {
      case "assign": {
        const [epoch, offset] = this.#drawAssignment();
        const assign = () => cache.assign(epoch as LeaderEpoch, offset as Offset);
        return { command: `assign ${epoch} ${offset}`, ours: emptyUnlessRefused(assign) };
      }
      case "end": {
        const [epoch, logEndOffset] = [this.#drawEpoch(-5), this.#drawOffset(0)];
        const answer = cache.endOffsetFor(epoch, toOffset(logEndOffset));
        return { command: `end ${epoch} ${logEndOffset}`, ours: `${answer.epoch} ${answer.endOffset}` };
      }
      case "truncate-end": {
        const offset = this.#drawOffset(-2);
        if (this.#isOrderly && offset >= 0) this.#logEndOffset = Math.min(this.#logEndOffset, offset);
        return { command: `truncate-end ${offset}`, ours: emptyUnlessRefused(() => cache.truncateFromEnd(offset)) };
      }
      case "truncate-start": {
        const offset = this.#isOrderly ? this.#random.between(-1, this.#logEndOffset) : this.#drawOffset(-2);
        return { command: `truncate-start ${offset}`, ours: emptyUnlessRefused(() => cache.truncateFromStart(offset)) };
      }
      default:
        return this.#look(kind);
    }
  }

  #look(kind: string): { command: string; ours: string } {
    const cache = this.#cache;
    const [epoch, offset] = [this.#drawEpoch(-2), this.#drawOffset(0)];
    switch (kind) {
      case "of":
        return { command: `of ${offset}`, ours: String(cache.epochForOffset(toOffset(offset)) ?? "none") };
      case "previous":
        return { command: `previous ${epoch}`, ours: String(cache.previousEpoch(epoch) ?? "none") };
      case "next":
        return { command: `next ${epoch}`, ours: String(cache.nextEpoch(epoch) ?? "none") };
      case "range": {
        const from = this.#drawOffset(-1);
        return { command: `range ${from} ${offset}`, ours: show(cache.entriesInRange(from, offset)) };
      }
      case "clear":
        cache.clear();
        return { command: "clear", ours: "" };
      default:
        return { command: "entries", ours: show(cache.entries) };
    }
  }

  #drawAssignment(): [number, number] {
    if (this.#random.oneIn(50)) return this.#random.oneIn(2) ? [-1, this.#drawOffset(0)] : [this.#drawEpoch(0), -1];
    if (!this.#isOrderly || this.#random.oneIn(20)) return [this.#drawEpoch(0), this.#drawOffset(0)];
    this.#epoch += this.#random.between(0, 2);
    const startOffset = this.#logEndOffset;
    this.#logEndOffset += this.#random.between(0, 9);
    return [this.#epoch, startOffset];
  }

  #drawEpoch(lowest: number): number {
    if (this.#random.oneIn(100)) return 2 ** 31 - 1 - this.#random.between(0, 1);
    return this.#random.between(lowest, this.#isOrderly ? this.#epoch + 2 : 12);
  }

  #drawOffset(lowest: number): number {
    if (this.#random.oneIn(100)) return Number.MAX_SAFE_INTEGER - this.#random.between(0, 1);
    return this.#random.between(lowest, this.#isOrderly ? this.#logEndOffset + 3 : 30);
  }
}

/** Kafka throws IllegalArgumentException where ours is an InvariantError: the caller is wrong. */
function emptyUnlessRefused(operation: () => unknown): string {
  try {
    operation();
    return "";
  } catch (error) {
    if (error instanceof InvariantError) return REFUSED;
    throw error;
  }
}

function orRefused(answer: Promise<string>): Promise<string> {
  return answer.catch((error: unknown) => {
    if (error instanceof OracleError && error.exception !== "Usage") return REFUSED;
    throw error;
  });
}

function entriesOf(text: string): EpochEntry[] {
  return text.split(" ").map((entry) => {
    const [epoch, startOffset] = entry.split("@");
    return { epoch: toLeaderEpoch(Number(epoch)), startOffset: toOffset(Number(startOffset)) };
  });
}

function show(entries: readonly EpochEntry[]): string {
  return entries.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
}
