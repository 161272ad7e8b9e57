import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { segmentFileName } from "./file-names.ts";
import { DIRECTORY, LogFixture, storedBatch } from "./log.fixture.ts";
import { encodeStateInt64 } from "./state-values.ts";
import { verifyDirectory } from "./verify.ts";

/** Of two records each. The epochs leave numbers out, so that one bit makes one that was never, or the one before or behind it. */
const BATCHES = [
  { baseOffset: 0, epoch: 4 },
  { baseOffset: 2, epoch: 4 },
  { baseOffset: 4, epoch: 5 },
  { baseOffset: 6, epoch: 5 },
  { baseOffset: 8, epoch: 5 },
  { baseOffset: 10, epoch: 9 },
  { baseOffset: 12, epoch: 9 },
];
const END_OFFSET = 14;
const BATCH_BYTES = storedBatch(["a", "b"], 0, 0).length;
/** Base offset, length, leader epoch and magic: what the CRC does not cover, but for itself. */
const HEADER_BYTES = 17;
const EPOCHS = "4@0 5@4 9@10";

type Image = ReturnType<SimulatedDisk["image"]>;

/** A log that was killed. @param segmentBytes default: all of it in one segment */
async function killedLog(
  recoveryPoint: number | "flushed",
  { segmentBytes = 1 << 20, batches = BATCHES }: { segmentBytes?: number; batches?: typeof BATCHES } = {},
): Promise<Image> {
  const fixture = new LogFixture({ flush: "none", segmentBytes });
  const log = await fixture.open({ epoch: "none" });
  for (const { baseOffset, epoch } of batches)
    await log.appendAsFollower(storedBatch(["a", "b"], baseOffset, epoch), { leaderEpoch: toLeaderEpoch(9) });
  if (recoveryPoint === "flushed") await log.flush();
  fixture.kill();
  if (recoveryPoint !== "flushed")
    await fixture.environment.state.commit(
      [{ key: "recovery-point/orders-0", value: encodeStateInt64(recoveryPoint) }],
      { sync: true },
    );
  return fixture.disk.image();
}

function fieldOf(byte: number): string {
  if (byte < 8) return "base offset";
  if (byte < 12) return "batch length";
  return byte < 16 ? "leader epoch" : "magic";
}

/** The log with one bit of one batch's header flipped, for each of the bits. */
async function* flippedLogs(
  image: Image,
  { segment = 0, positionBytes }: { readonly segment?: number; readonly positionBytes: number },
): AsyncGenerator<{ readonly field: string; readonly fixture: LogFixture }> {
  for (let bit = 0; bit < 8 * HEADER_BYTES; bit += 1) {
    const disk = SimulatedDisk.fromImage(image);
    const fixture = new LogFixture({ flush: "none" }, new SimulatedEnvironment({ seed: 1 }, disk));
    const name = segmentFileName(toOffset(segment), ".log");
    const at = positionBytes + (bit >> 3);
    const byte = (await fixture.readFile(name)).slice(at, at + 1);
    await fixture.writeFile(
      name,
      byte.map((bits) => bits ^ (1 << (bit & 7))),
      at,
    );
    yield { field: fieldOf(bit >> 3), fixture };
  }
}

class Table {
  readonly #counts = new Map<string, number>();

  count(field: string, outcome: string): void {
    const key = `${field}: ${outcome}`;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  get rows(): Record<string, number> {
    return Object.fromEntries(this.#counts);
  }
}

/** What an open makes of each flip, relative to the batch that begins at `baseOffset`. */
async function openEach(
  image: Image,
  positionBytes: number,
  baseOffset: number,
  areGapsRecorded = true,
): Promise<Record<string, number>> {
  const table = new Table();
  for await (const { field, fixture } of flippedLogs(image, { positionBytes })) {
    const log = await fixture.open({ epoch: "none", areGapsRecorded });
    const epochs = log.epochEntries.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
    const { cut } = log.recovery;
    const [damage, ...more] = log.damaged;
    const isAsItWas = log.logEndOffset === END_OFFSET && more.length === 0 && epochs === EPOCHS;
    if (cut?.offset === baseOffset && log.logEndOffset === baseOffset && damage === undefined)
      table.count(field, EPOCHS.startsWith(epochs) ? "cut there" : `cut there, epochs ${epochs}`);
    else if (cut === undefined && isAsItWas && damage?.fromOffset === baseOffset)
      table.count(field, `damage of ${damage.toOffset - baseOffset} offsets`);
    else table.count(field, damage === undefined && cut === undefined ? "not seen" : "something else");
  }
  return table.rows;
}

const ALL_CUT = {
  "base offset: cut there": 64,
  "batch length: cut there": 32,
  "leader epoch: cut there": 32,
  "magic: cut there": 8,
};
const ALL_DAMAGE = {
  "base offset: damage of 2 offsets": 64,
  "batch length: damage of 2 offsets": 32,
  "leader epoch: damage of 2 offsets": 32,
  "magic: damage of 2 offsets": 8,
};

describe("every bit of a batch's header that its CRC does not cover", () => {
  test.each([
    ["above the recovery point", 0],
    ["below it", END_OFFSET],
    ["on either side of it", 8],
  ])(
    "of each batch, %s: the log ends there, or those offsets are damaged, and nothing else changes",
    async (_, point) => {
      const image = await killedLog(point);
      for (const [at, { baseOffset }] of BATCHES.entries())
        expect([baseOffset, await openEach(image, at * BATCH_BYTES, baseOffset)]).toEqual([
          baseOffset,
          baseOffset >= point ? ALL_CUT : ALL_DAMAGE,
        ]);
    },
  );

  test("in a log that leaves offsets out some bits of the last batch's offset are not seen: 29 above the recovery point, one below it", async () => {
    const batches = BATCHES.filter(({ baseOffset }) => baseOffset !== 2);
    const positionBytes = (batches.length - 1) * BATCH_BYTES;
    expect(await openEach(await killedLog(0, { batches }), positionBytes, 12)).toEqual({
      ...ALL_CUT,
      "base offset: cut there": 35,
      "base offset: not seen": 29,
    });
    expect(await openEach(await killedLog(END_OFFSET, { batches }), positionBytes, 12)).toEqual({
      ...ALL_DAMAGE,
      "base offset: damage of 2 offsets": 63,
      "base offset: not seen": 1,
    });
  });

  test("of the last batch of another program's log: neither its epoch file nor its offsets are held against it", async () => {
    const image = await killedLog(0);
    expect(await openEach(image, (BATCHES.length - 1) * BATCH_BYTES, 12, false)).toEqual({
      "base offset: cut there": 13,
      "base offset: not seen": 51,
      "batch length: cut there": 32,
      "leader epoch: cut there": 3,
      "leader epoch: not seen": 29,
      "magic: cut there": 8,
    });
  });

  test("in a segment that is taken as it was left the open sees nothing, and `verify` sees each", async () => {
    const image = await killedLog("flushed", { segmentBytes: 2 * BATCH_BYTES });
    const table = new Table();
    for await (const { field, fixture } of flippedLogs(image, { segment: 4, positionBytes: BATCH_BYTES })) {
      const { files, workers } = fixture.environment;
      const { isSound } = await verifyDirectory({ files, workers, directory: DIRECTORY });
      const { recovery } = await fixture.open({ epoch: "none" });
      table.count(field, `${isSound ? "sound" : "found"}, ${recovery.segmentsTrusted} segments trusted`);
    }
    expect(table.rows).toEqual({
      "base offset: found, 3 segments trusted": 64,
      "batch length: found, 3 segments trusted": 32,
      "leader epoch: found, 3 segments trusted": 32,
      "magic: found, 3 segments trusted": 8,
    });
  });
});

describe("the epoch file against batches", () => {
  test("an entry whose batches did not fit the disk is gone from the file before those of the epoch below it come", async () => {
    const fixture = new LogFixture({ flush: "none" });
    const log = await fixture.open({ epoch: "none" });
    await log.appendAsFollower(storedBatch(["a"], 0, 5));
    fixture.disk.inject({ operation: "write", path: ".log", code: "ENOSPC" });
    await expect(log.appendAsFollower(storedBatch(["b"], 1, 9))).rejects.toThrow("ENOSPC");
    await log.appendAsFollower(storedBatch(["c"], 1, 5));
    fixture.kill();
    const after = await fixture.open({ epoch: "none" });
    expect([after.logEndOffset, after.recovery.cut]).toEqual([2, undefined]);
  });

  test.each([
    ["lacks an epoch", "0\n2\n4 0\n9 10\n", EPOCHS],
    ["begins an epoch too late", "0\n3\n4 0\n5 8\n9 10\n", EPOCHS],
    ["begins an epoch too early", "0\n3\n4 0\n5 4\n9 6\n", EPOCHS],
  ])(
    "a file that %s for two batches or more is wrong: they stay, and the report says so",
    async (_name, file, epochs) => {
      for (const point of [0, END_OFFSET]) {
        const fixture = new LogFixture(
          { flush: "none" },
          new SimulatedEnvironment({ seed: 1 }, SimulatedDisk.fromImage(await killedLog(point))),
        );
        await fixture.writeFile("leader-epoch-checkpoint", new TextEncoder().encode(file));
        const log = await fixture.open({ epoch: "none" });
        expect([log.logEndOffset, log.recovery.cut, log.damaged]).toEqual([END_OFFSET, undefined, []]);
        expect(log.epochEntries.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ")).toBe(epochs);
        expect([log.recovery.epochsRebuilt, log.recovery.epochFileProblem]).toEqual([
          true,
          expect.stringContaining("epoch"),
        ]);
      }
    },
  );
});
