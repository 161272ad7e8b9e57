import { decodeUtf8, encodeUtf8, toLeaderEpoch, toOffset } from "@tidemark/base";
import { SimulatedEnvironment, SimulatedState } from "@tidemark/simulator";
import { decodeRecords, encodeBatch, recordsSection } from "@tidemark/wire";
import { expect, test } from "vitest";
import { batchesIn } from "./log.fixture.ts";
import { CONFIG, DATA } from "./log-manager.fixture.ts";
import { LogManager } from "./log-manager.ts";
import type { PartitionLog } from "./partition-log.ts";

/** More of them: TIDEMARK_CLEANER_RACES=2000. */
const RACES = Number(process.env["TIDEMARK_CLEANER_RACES"] ?? 15);
const STEPS = 60;
const KEYS = 5;

const COMPACTED = {
  ...CONFIG,
  segmentBytes: 300,
  cleanupPolicy: "compact",
  deleteRetentionMs: 5,
  minCleanableDirtyRatio: 0,
} as const;

interface Found {
  readonly offset: number;
  readonly key: string;
  readonly value: string | null;
}

async function recordsOf(log: PartitionLog): Promise<Found[]> {
  const found: Found[] = [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 700 });
    const headers = batchesIn(bytes);
    for (const header of headers) {
      next = header.lastOffset + 1;
      for (const { offset, key, value } of decodeRecords(header, recordsSection(bytes, header)))
        found.push({ offset, key: decodeUtf8(key ?? new Uint8Array()), value: value && decodeUtf8(value) });
    }
    if (headers.length === 0) break;
  }
  return found.filter(({ offset }) => offset >= log.logStartOffset);
}

function tableOf(records: readonly Found[]): ReadonlyMap<string, string> {
  const table = new Map<string, string>();
  for (const { key, value } of records) {
    if (value === null) table.delete(key);
    else table.set(key, value);
  }
  return table;
}

/** One writer, which also rolls, cuts and deletes, and one reader of a log, beside the cleaner. */
async function race(environment: SimulatedEnvironment, manager: LogManager, marks: Map<string, number>, topic: string) {
  const { random, clock } = environment;
  const draw = (bound: number): number => random.below(`test.${topic}`, bound);
  const pause = (ms: number) => new Promise<void>((resolve) => clock.setTimer(ms, resolve));
  const log = manager.partition(topic, 0);
  if (log === undefined) throw new Error("the topic is there");
  await log.becomeLeader(toLeaderEpoch(0));
  let history: Found[] = [];
  const writer = { isDone: false };
  const reading = (async () => {
    let reads = 0;
    while (!writer.isDone) {
      const offsets = await recordsOf(log).then(
        (found) => found.map(({ offset }) => offset),
        // What it was about to read was cut or deleted.
        (error: { code?: string }) => (error.code === "OFFSET_OUT_OF_RANGE" ? [] : Promise.reject(error)),
      );
      expect(offsets).toEqual([...new Set(offsets)].sort((one, other) => one - other));
      reads += 1;
      await pause(draw(10));
    }
    return reads;
  })();
  for (let step = 0; step < STEPS; step += 1) {
    const mark = marks.get(topic) ?? 0;
    switch (draw(10)) {
      case 0: {
        await log.roll();
        break;
      }
      case 1: {
        const offset = mark + draw(log.logEndOffset - mark + 1);
        await log.truncateTo(toOffset(offset));
        history = history.filter((record) => record.offset < offset);
        break;
      }
      case 2: {
        await log.deleteRecords(toOffset(draw(mark + 1)), toOffset(mark));
        break;
      }
      case 3:
      case 4: {
        marks.set(topic, log.logEndOffset);
        break;
      }
      default: {
        // One record a batch: a cut never takes more than it is told.
        const key = `k${draw(KEYS)}`;
        const value = draw(4) === 0 ? null : `v${step}`;
        const record = { key: encodeUtf8(key), value: value === null ? null : encodeUtf8(value), timestamp: 1 };
        const { baseOffset } = await log.append(encodeBatch([record]), { origin: "client" });
        history.push({ offset: baseOffset, key, value });
      }
    }
    await pause(draw(6));
  }
  marks.set(topic, log.logEndOffset);
  // Time for a pass of each, or two.
  await pause(2000);
  writer.isDone = true;
  expect(await reading).toBeGreaterThan(0);
  return history;
}

test(`${RACES} races of the cleaner against appends, rolls, cuts, deletions and readers: each key has its last value in the end`, async () => {
  let passes = 0;
  for (let seed = 0; seed < RACES; seed += 1) {
    const environment = new SimulatedEnvironment({ seed, mode: "kernel" });
    const place = `seed ${seed}`;
    await environment.kernel.run(async () => {
      const marks = new Map<string, number>();
      const openState = async () => new SimulatedState(environment.files);
      const open = () =>
        LogManager.open({
          environment,
          openState,
          directory: DATA,
          defaults: CONFIG,
          highWatermark: (topic) => toOffset(marks.get(topic) ?? 0),
          cleaner: { backoffMs: 3, passesMax: 1 + (seed % 2) },
        });
      const manager = await open();
      const topics = ["t", "u"];
      for (const topic of topics) await manager.createTopic(topic, 1, COMPACTED);
      const histories = await Promise.all(topics.map((topic) => race(environment, manager, marks, topic)));
      for (const [at, topic] of topics.entries()) {
        const log = manager.partition(topic, 0);
        if (log === undefined) throw new Error(place);
        expect([log.refusal, manager.cleanerView(log).uncleanable], place).toEqual([undefined, undefined]);
        const history = (histories[at] ?? []).filter(({ offset }) => offset >= log.logStartOffset);
        const found = await recordsOf(log);
        expect(tableOf(found), place).toEqual(tableOf(history));
        const clean = found.filter(({ offset }) => offset < (log.cleanerOffset ?? 0)).map(({ key }) => key);
        expect(clean.length, place).toBe(new Set(clean).size);
        // All that is sealed has been compacted in the end.
        expect(log.dirtyPart.dirtyBytes, place).toBe(0);
        passes += manager.cleanerView(log).lastPass === undefined ? 0 : 1;
      }
      expect((await manager.close()).isClean, place).toBe(true);
      const names = await environment.files.list(`${DATA}/t-0`);
      expect(
        names.filter((name) => /cleaned|swap/u.test(name)),
        place,
      ).toEqual([]);
      const reopened = await open();
      for (const [at, topic] of topics.entries()) {
        const log = reopened.partition(topic, 0);
        const history = (histories[at] ?? []).filter(({ offset }) => offset >= (log?.logStartOffset ?? 0));
        expect(log && tableOf(await recordsOf(log)), place).toEqual(tableOf(history));
      }
      await reopened.close();
    });
  }
  expect(passes).toBeGreaterThan(RACES);
});
