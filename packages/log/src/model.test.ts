import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { batchesIn, batchOf, concat, LogFixture, NOON, recordsOf, storedBatch } from "./log.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";

const HISTORIES = 150;
const STEPS = 40;

/** Ten records with a value of five bytes. */
const LONG_BATCH_BYTES_MAX = 61 + 10 * 16;

/** A record's time follows from its value, and goes up and down. */
const timeOf = (value: string): number => NOON + Math.floor(Number(value));

/** A log as an array of records; what the real one is held to. */
class ModelLog {
  records: { offset: number; value: string; epoch: number; batch: number }[] = [];
  /** Records below are deleted; those of them that lie in a segment with later ones are still here. */
  startOffset = 0;
  endOffset = 0;
  epoch = 0;
  batches = 0;

  append(values: readonly string[]): void {
    this.batches += 1;
    for (const value of values)
      this.records.push({ offset: this.endOffset++, value, epoch: this.epoch, batch: this.batches });
  }

  truncateTo(offset: number, firstBaseOffset: number): void {
    if (offset >= this.endOffset) return;
    this.startOffset = Math.min(this.startOffset, offset);
    if (offset < firstBaseOffset) this.records = [];
    const cut = new Set(this.records.filter((record) => record.offset >= offset).map(({ batch }) => batch));
    this.records = this.records.filter(({ batch }) => !cut.has(batch));
    this.endOffset = offset;
  }

  get visible(): typeof this.records {
    return this.records.filter(({ offset }) => offset >= this.startOffset);
  }

  /** As Kafka finds it: in the first segment that reaches so far, at or above the start. */
  offsetAt(timestamp: number, baseOffsets: readonly number[]): number | undefined {
    for (const [at, baseOffset] of baseOffsets.entries()) {
      const end = baseOffsets[at + 1] ?? Number.POSITIVE_INFINITY;
      const inSegment = this.records.filter(({ offset }) => offset >= baseOffset && offset < end);
      if (!inSegment.some(({ value }) => timeOf(value) >= timestamp)) continue;
      return inSegment.find(({ offset, value }) => offset >= this.startOffset && timeOf(value) >= timestamp)?.offset;
    }
    return undefined;
  }

  /** A restart finds the end of the last batch, or an empty segment behind it. */
  reopen(lastSegmentBase: number): void {
    this.endOffset = Math.max((this.records.at(-1)?.offset ?? -1) + 1, lastSegmentBase);
  }

  /** Epochs of the records, with the range in which each must begin: behind the record before, at the latest at its first. */
  get epochs(): { epoch: number; earliest: number; latest: number }[] {
    const seen: { epoch: number; earliest: number; latest: number }[] = [];
    for (const [at, { epoch, offset }] of this.visible.entries()) {
      if (seen.at(-1)?.epoch === epoch) continue;
      seen.push({ epoch, earliest: (this.visible[at - 1]?.offset ?? -1) + 1, latest: offset });
    }
    return seen;
  }
}

test.each(["always", "none"] as const)(
  `flush %s: ${HISTORIES} random histories answer as a plain array of records does`,
  async (flush) => {
    for (let seed = 0; seed < HISTORIES; seed += 1) {
      const environment = new SimulatedEnvironment({ seed, disk: { shortTransferOneIn: seed % 3 === 0 ? 4 : 0 } });
      const draw = (bound: number): number => environment.random.below("test", bound);
      const size = batchOf(["0"]).length;
      const fixture = new LogFixture(
        {
          flush,
          segmentBytes: size * (2 + draw(8)),
          indexIntervalBytes: draw(3) * size,
          segmentIndexBytes: draw(4) === 0 ? 24 : 1 << 20,
          segmentMs: draw(4) === 0 ? 500 : 1 << 30,
          retentionBytes: size * (4 + draw(20)),
        },
        environment,
      );
      const model = new ModelLog();
      let log = await fixture.open({ epoch: 0 });
      for (let step = 0; step < STEPS; step += 1) {
        const place = `seed ${seed}, step ${step}`;
        log = await takeStep({ fixture, log, model, draw, flush });
        expect([log.logStartOffset, log.logEndOffset, log.damaged.length], place).toEqual([
          model.startOffset,
          model.endOffset,
          0,
        ]);
        if (step % 5 === 4) await compare(log, model, draw, place);
      }
      await compare(log, model, draw, `seed ${seed}`);
    }
  },
);

interface World {
  readonly fixture: LogFixture;
  readonly log: PartitionLog;
  readonly model: ModelLog;
  readonly flush: "always" | "none";
  readonly draw: (bound: number) => number;
}

async function takeStep(world: World): Promise<PartitionLog> {
  const { fixture, log, model, draw } = world;
  const isLong = log.config.segmentBytes > LONG_BATCH_BYTES_MAX && draw(4) === 0;
  const values = Array.from({ length: 1 + draw(isLong ? 10 : 3) }, () => String(draw(1000)));
  switch (draw(14)) {
    case 0: {
      const offset = drawOffset(model, draw);
      const firstBaseOffset = log.segments[0]?.baseOffset ?? 0;
      await log.truncateTo(toOffset(offset));
      model.truncateTo(offset, firstBaseOffset);
      return log;
    }
    case 1: {
      await log.roll();
      return log;
    }
    case 2: {
      model.epoch += 1 + draw(2);
      await log.becomeLeader(toLeaderEpoch(model.epoch));
      return log;
    }
    case 3:
      return reopen(world);
    case 4: {
      await log.flush();
      return log;
    }
    case 5:
    case 6: {
      const groups = Array.from({ length: 1 + draw(5) }, () => values.map((value) => `${value}.${draw(10)}`));
      await Promise.all(
        groups.map((group) => log.append(batchOf(group, {}, timeOf), { origin: draw(2) === 0 ? "local" : "client" })),
      );
      for (const group of groups) model.append(group);
      return log;
    }
    case 12: {
      const offset = drawOffset(model, draw);
      const deletion = log.deleteRecords(toOffset(offset));
      if (offset > model.endOffset) await expect(deletion).rejects.toMatchObject({ code: "OFFSET_OUT_OF_RANGE" });
      else expect(await deletion).toBe((model.startOffset = Math.max(model.startOffset, offset)));
      return log;
    }
    case 13: {
      model.startOffset = Math.max(model.startOffset, startAfterRetention(log));
      await log.deleteOldSegments();
      return log;
    }
    case 7: {
      if (draw(3) === 0) model.endOffset += draw(4);
      await log.appendAsFollower(concat(storedBatch(values, model.endOffset, model.epoch, timeOf)));
      model.append(values);
      return log;
    }
    default: {
      await log.append(batchOf(values, {}, timeOf), { origin: "local" });
      model.append(values);
      return fixture.disk.isCrashed ? reopen(world) : log;
    }
  }
}

/** Anywhere in the log, or near its start or its end, where one operation meets what another has left. */
function drawOffset({ startOffset, endOffset }: ModelLog, draw: (bound: number) => number): number {
  const place = draw(4);
  if (place < 2) return draw(endOffset + 2);
  return Math.max((place === 2 ? startOffset : endOffset) - 3 + draw(8), 0);
}

/** The oldest segments go as long as what is left is large enough. */
function startAfterRetention(log: PartitionLog): number {
  const { segments } = log;
  let spareBytes = segments.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) - log.config.retentionBytes;
  for (const [at, { baseOffset, sizeBytes }] of segments.entries()) {
    const isEmptyEnd = at === segments.length - 1 && sizeBytes === 0;
    if (spareBytes < sizeBytes || isEmptyEnd) return baseOffset;
    spareBytes -= sizeBytes;
  }
  return log.logEndOffset;
}

async function reopen({ fixture, log, model, draw, flush }: World): Promise<PartitionLog> {
  const how = draw(3);
  if (how === 0) await log.close();
  if (how === 1 && flush === "always") fixture.powerCut();
  else fixture.kill();
  const next = await fixture.open({ clean: how === 0, epoch: "none" });
  model.reopen(next.segments.at(-1)?.baseOffset ?? 0);
  for (const { epoch, earliest, latest } of model.epochs) {
    const start = next.epochEntries.find((entry) => entry.epoch === epoch)?.startOffset ?? -1;
    expect(start).toBeGreaterThanOrEqual(earliest);
    expect(start).toBeLessThanOrEqual(latest);
  }
  expect(next.epochEntries.at(-1)?.startOffset ?? 0).toBeLessThanOrEqual(model.endOffset);
  model.epoch += 1;
  await next.becomeLeader(toLeaderEpoch(model.epoch));
  return next;
}

async function compare(
  log: PartitionLog,
  model: ModelLog,
  draw: (bound: number) => number,
  place: string,
): Promise<void> {
  expect(await recordsOf(log), place).toEqual(model.visible.map(({ offset, value }) => `${offset}:${value}`));
  for (let sample = 0; sample < 5; sample += 1) {
    const fromOffset = model.startOffset + draw(model.endOffset - model.startOffset + 1);
    const limitOffset = draw(model.endOffset + 1);
    const timestamp = NOON + draw(1001);
    const bases = log.segments.map(({ baseOffset }) => baseOffset as number);
    const found = await log.listOffset({ timestamp });
    expect(found?.offset, `${place}: time ${timestamp - NOON}`).toBe(model.offsetAt(timestamp, bases));
    const { bytes } = await log.read({
      fromOffset: toOffset(fromOffset),
      maxBytes: 1 + draw(400),
      limitOffset: toOffset(limitOffset),
    });
    const first = model.records.find(({ offset }) => offset >= fromOffset);
    const lastOfBatch = model.records.findLast(({ batch }) => batch === first?.batch)?.offset ?? -1;
    const isVisible = first !== undefined && lastOfBatch < limitOffset && fromOffset < limitOffset;
    expect(bytes.length > 0, `${place}: from ${fromOffset} below ${limitOffset}`).toBe(isVisible);
    for (const header of batchesIn(bytes)) {
      const record = model.records.find(({ offset }) => offset === header.baseOffset);
      expect([header.partitionLeaderEpoch, header.lastOffset < limitOffset], place).toEqual([record?.epoch, true]);
    }
  }
}
