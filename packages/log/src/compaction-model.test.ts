import { decodeUtf8, encodeUtf8, toOffset } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import { SimulatedEnvironment } from "@tidemark/simulator";
import {
  COMPRESSION_CODECS,
  compressPayload,
  decodeRecords,
  decompressBatchNow,
  encodeBatch,
  isControlBatch,
  RECORD_BATCH_OVERHEAD,
  withCompressedPayload,
} from "@tidemark/wire";
import { expect, test } from "vitest";
import { batchesIn, LogFixture } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

/** More of them: TIDEMARK_COMPACTION_HISTORIES=5000. */
const HISTORIES = Number(process.env["TIDEMARK_COMPACTION_HISTORIES"] ?? 50);
const STEPS = 60;
const KEYS = 6;
const PRODUCERS = [7, 8, 9] as const;

interface ModelRecord {
  readonly offset: number;
  readonly key: string;
  /** `null`: a tombstone. */
  readonly value: string | null;
}

/** Batches as they were appended, never compacted. */
type ModelBatch =
  | {
      readonly type: "data";
      readonly last: number;
      readonly producer: number | undefined;
      readonly records: readonly ModelRecord[];
    }
  | { readonly type: "marker"; readonly last: number; readonly producer: number; readonly isCommit: boolean };

/** What a log would hold that is never compacted; the real one is held to it. */
class Model {
  batches: ModelBatch[] = [];
  startOffset = 0;
  endOffset = 0;

  append(producer: number | undefined, pairs: readonly (readonly [string, string | null])[]): void {
    const records = pairs.map(([key, value], at) => ({ offset: this.endOffset + at, key, value }));
    this.endOffset += records.length;
    this.batches.push({ type: "data", last: this.endOffset - 1, producer, records });
  }

  end(producer: number, isCommit: boolean): void {
    this.batches.push({ type: "marker", last: this.endOffset, producer, isCommit });
    this.endOffset += 1;
  }

  truncateTo(offset: number): void {
    if (offset >= this.endOffset) return;
    this.startOffset = Math.min(this.startOffset, offset);
    this.batches = this.batches.filter(({ last }) => last < offset);
    this.endOffset = offset;
  }

  keepOnly(offsets: readonly number[]): void {
    const kept = new Set(offsets);
    this.batches = this.batches.map((batch) =>
      batch.type === "marker" ? batch : { ...batch, records: batch.records.filter(({ offset }) => kept.has(offset)) },
    );
  }

  /** Of each record that is not deleted whether it is committed, aborted or of an open transaction. */
  get records(): readonly (ModelRecord & { readonly status: "committed" | "aborted" | "open" })[] {
    return this.batches.flatMap((batch, at) => {
      if (batch.type === "marker") return [];
      const end = this.batches
        .slice(at)
        .find((later) => later.type === "marker" && later.producer === batch.producer) as
        | Extract<ModelBatch, { type: "marker" }>
        | undefined;
      const ended = end === undefined ? "open" : end.isCommit ? "committed" : "aborted";
      const status = batch.producer === undefined ? "committed" : ended;
      return batch.records
        .filter(({ offset }) => offset >= this.startOffset)
        .map((record) => ({ ...record, status }) as const);
    });
  }

  /** Producers with a transaction that has no marker yet. */
  get open(): ReadonlySet<number> {
    const open = new Set<number>();
    for (const { type, producer } of this.batches) {
      if (producer === undefined) continue;
      if (type === "data") open.add(producer);
      else open.delete(producer);
    }
    return open;
  }
}

/** Each key with its last value, those without that are deleted. */
function tableOf(records: readonly ModelRecord[]): ReadonlyMap<string, string> {
  const table = new Map<string, string>();
  for (const { key, value } of records) {
    if (value === null) table.delete(key);
    else table.set(key, value);
  }
  return table;
}

async function recordsOf(log: PartitionLog, { environment }: LogFixture): Promise<ModelRecord[]> {
  const records: ModelRecord[] = [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 << 20 });
    const headers = batchesIn(bytes);
    for (const header of headers) {
      next = header.lastOffset + 1;
      if (isControlBatch(header)) continue;
      for (const { offset, key, value } of decodeRecords(
        header,
        decompressBatchNow(environment.workers, bytes, header, 1 << 20),
      )) {
        if (offset < log.logStartOffset) continue;
        records.push({ offset, key: decodeUtf8(key ?? new Uint8Array()), value: value && decodeUtf8(value) });
      }
    }
    if (headers.length === 0) break;
  }
  return records;
}

interface World {
  readonly fixture: LogFixture;
  readonly model: Model;
  readonly draw: (bound: number) => number;
  /** A transaction that a pass has taken for aborted must stay so: such a history is cut above the high watermark only. */
  readonly isTransactional: boolean;
  highWatermark: number;
  log: PartitionLog;
  passes: number;
  /** The highest end of a pass. Where the log says less after a crash, what lies between is clean too, only not known to be. */
  cleanedEnd: number;
  /** Nothing was appended since a cut. */
  isCut: boolean;
}

/** Where nothing is left between the last batch and a cut, the log ends after a restart at that batch; its start may not lie above. */
function reopenAfterCut(model: Model, { logStartOffset, logEndOffset }: PartitionLog): void {
  expect(logEndOffset).toBeGreaterThan(model.records.at(-1)?.offset ?? -1);
  expect([logEndOffset <= model.endOffset, logStartOffset <= model.startOffset]).toEqual([true, true]);
  model.endOffset = logEndOffset;
  model.startOffset = logStartOffset;
}

async function append(world: World, producer: number | undefined): Promise<void> {
  const { log, model, draw } = world;
  const pairs = Array.from(
    { length: 1 + draw(4) },
    () => [`k${draw(KEYS)}`, draw(4) === 0 ? null : `v${draw(1000)}`] as const,
  );
  const timestamp = Math.floor(world.fixture.environment.clock.wallMs());
  const plain = encodeBatch(
    pairs.map(([key, value]) => ({
      key: encodeUtf8(key),
      value: value === null ? null : encodeUtf8(value),
      timestamp,
    })),
    producer === undefined
      ? {}
      : { producerId: producer, producerEpoch: 0, baseSequence: log.nextSequence(producer) ?? 0, transactional: true },
  );
  const codec = COMPRESSION_CODECS[draw(COMPRESSION_CODECS.length)] ?? "none";
  const batch =
    codec === "none"
      ? plain
      : withCompressedPayload(plain, codec, compressPayload(NODE_CODECS, codec, plain.subarray(RECORD_BATCH_OVERHEAD)));
  world.isCut = false;
  await log.append(batch, { origin: producer === undefined ? "client" : "local" });
  model.append(producer, pairs);
}

async function takeStep(world: World): Promise<void> {
  const { fixture, log, model, draw } = world;
  switch (draw(16)) {
    case 0:
    case 1: {
      await log.roll();
      return;
    }
    case 2:
    case 3:
    case 4: {
      world.highWatermark = Math.max(world.highWatermark, draw(2) === 0 ? model.endOffset : draw(model.endOffset + 1));
      const highWatermark = toOffset(world.highWatermark);
      // Sixteen keys at least: with one more in a segment the map is full.
      const { cleanedEndOffset } = await log.compact({ highWatermark, mapBytes: draw(2) === 0 ? 0 : undefined });
      world.cleanedEnd = Math.max(world.cleanedEnd, cleanedEndOffset);
      world.passes += 1;
      return;
    }
    case 5: {
      await fixture.environment.kernel.runFor(draw(3) * 400_000);
      return;
    }
    case 6: {
      const lowest = world.isTransactional ? world.highWatermark : 0;
      const offset = lowest + draw(Math.max(model.endOffset - lowest, 0) + 2);
      await log.truncateTo(toOffset(offset));
      world.isCut ||= offset < model.endOffset;
      model.truncateTo(offset);
      // The cut takes values for which older ones have gone already: those are missed by nobody any more.
      if (offset < world.cleanedEnd) model.keepOnly((await recordsOf(log, fixture)).map((record) => record.offset));
      world.highWatermark = Math.min(world.highWatermark, model.endOffset);
      world.cleanedEnd = Math.min(world.cleanedEnd, model.endOffset);
      return;
    }
    case 7: {
      const offset = draw(world.highWatermark + 1);
      model.startOffset = Math.max(model.startOffset, offset);
      expect(await log.deleteRecords(toOffset(offset))).toBe(model.startOffset);
      return;
    }
    case 8: {
      const how = draw(3);
      if (how === 0) await log.close();
      else if (how === 1) fixture.kill();
      else fixture.powerCut();
      world.log = await fixture.open({ clean: how === 0 });
      if (world.isCut) reopenAfterCut(model, world.log);
      return;
    }
    case 9:
    case 10:
    case 11: {
      const producer = PRODUCERS[draw(PRODUCERS.length)];
      if (!world.isTransactional || producer === undefined) return append(world, undefined);
      if (!model.open.has(producer) || draw(2) === 0) return append(world, producer);
      const isCommit = draw(2) === 0;
      const type = isCommit ? "commit" : "abort";
      await log.endTransaction({
        type,
        producerId: producer,
        producerEpoch: 0,
        coordinatorEpoch: 0,
        transactionVersion: 0,
      });
      world.isCut = false;
      model.end(producer, isCommit);
      return;
    }
    default:
      return append(world, undefined);
  }
}

/** The rules of compaction, on all that is there to be read. */
async function check({ log, fixture, model, ...world }: World, place: string): Promise<void> {
  expect([log.logStartOffset, log.logEndOffset, log.damaged.length], place).toEqual([
    model.startOffset,
    model.endOffset,
    0,
  ]);
  const found = await recordsOf(log, fixture);
  const records = model.records;
  const byOffset = new Map(records.map((record) => [record.offset, record]));
  // Nothing is made up, or changed.
  for (const record of found) expect(byOffset.get(record.offset), place).toMatchObject(record);
  const committed = found.filter(({ offset }) => byOffset.get(offset)?.status === "committed");
  // Whoever reads it all has the same table; a deleted key does not come back.
  expect(tableOf(committed), place).toEqual(tableOf(records.filter(({ status }) => status === "committed")));
  const cleanedEnd = log.dirtyPart.firstDirtyOffset;
  const clean = committed.filter(({ offset }) => offset < cleanedEnd).map(({ key }) => key);
  expect(clean.length, `${place}: one value of each key below ${cleanedEnd}`).toBe(new Set(clean).size);
  // What is not clean is whole, but for what was aborted.
  const offsets = new Set(found.map(({ offset }) => offset));
  const missing = records.filter(
    ({ offset, status }) => offset >= world.cleanedEnd && status !== "aborted" && !offsets.has(offset),
  );
  expect(missing, `${place}: dirty from ${world.cleanedEnd}`).toEqual([]);
}

test(`${HISTORIES} random histories of keys, tombstones, transactions, cuts and restarts read as if they were never compacted`, async () => {
  let passes = 0;
  let removed = 0;
  for (let seed = 0; seed < HISTORIES; seed += 1) {
    const environment = new SimulatedEnvironment({ seed });
    const draw = (bound: number): number => environment.random.below("test", bound);
    const fixture = new LogFixture(
      { segmentBytes: 250 + draw(1000), cleanupPolicy: "compact", deleteRetentionMs: draw(3) * 500 },
      environment,
    );
    const model = new Model();
    const log = await fixture.open();
    const world: World = {
      fixture,
      model,
      draw,
      isTransactional: seed % 2 === 0,
      highWatermark: 0,
      log,
      passes: 0,
      cleanedEnd: 0,
      isCut: false,
    };
    for (let step = 0; step < STEPS; step += 1) {
      await takeStep(world);
      if (step % 4 === 3) await check(world, `seed ${seed}, step ${step}`);
    }
    passes += world.passes;
    removed += model.records.length - (await recordsOf(world.log, fixture)).length;
  }
  // The histories do what they are for.
  expect([passes > HISTORIES * 5, removed > HISTORIES]).toEqual([true, true]);
});
