import { DEFAULT_LOG_CONFIG, LogDirectory, PartitionLog } from "@tidemark/log";
import type { LogConfig } from "@tidemark/log";
import { toLeaderEpoch } from "@tidemark/base";
import { LmdbState, openEnvironment } from "@tidemark/runtime-node";
import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { filledBatch } from "./content.ts";
import type { FilledBatch } from "./content.ts";
import { InFlight } from "./in-flight.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import { peer } from "./workload.ts";
import type { Subject, Workload } from "./workload.ts";

const MEBIBYTE = 1024 ** 2;
const SEGMENTS = 1000;
const SEGMENTS_QUICK = 100;
const SEGMENT_BYTES = MEBIBYTE;
const SEGMENT_BYTES_QUICK = 4096;
const UNCLEAN_BYTES = 1024 * MEBIBYTE;
const UNCLEAN_BYTES_QUICK = 16 * MEBIBYTE;
const BATCH_BYTES = 128 * 1024;
const BATCHES_IN_FLIGHT = 8;
/** These take long, and differ little. */
const ROUNDS_MAX = 5;

/** How a log that was left in some way opens. */
interface Opening {
  readonly name: string;
  readonly wasClean: boolean;
  /** What the recovery point says: how far everything is on the disk, what it said at the stop, or nothing. */
  readonly recoveryPoint: "end" | "as left" | "unknown";
}

/** What was written before. */
interface Filling {
  readonly batch: FilledBatch;
  readonly batches: number;
  readonly segmentBytes: number;
}

export function openWorkloads(): readonly Workload[] {
  return [
    roundsWorkload({
      name: "open 1,000 segments",
      unit: "ms",
      explanation:
        "One partition of 1,000 segments of 1 MiB (with --quick 100 of 4 KiB), in the page cache, opened after a clean stop, and as a kill leaves it: what " +
        "lies above the recovery point is read then, 256 MiB at most. Kafka opens a copy of what we wrote, after a clean stop.",
      subjects: [
        openSubject({ name: "tidemark, PartitionLog.open", wasClean: true, recoveryPoint: "end" }, segmentsFilling),
        openSubject({ name: "tidemark, after a kill", wasClean: false, recoveryPoint: "as left" }, segmentsFilling),
        kafkaOpenSubject("Kafka's log class", true, segmentsFilling),
      ],
      peers: [peer("vs Kafka", "Kafka's log class")],
      opensForEachSample: false,
      roundsMax: ROUNDS_MAX,
    }),
    roundsWorkload({
      name: "open 1 GiB after an unclean stop",
      unit: "ms",
      explanation:
        "One segment of 1 GiB (with --quick 16 MiB) of 128 KiB batches, in the page cache, recovered: as a kill leaves it, where our recovery point is at most " +
        "256 MiB behind, and with no recovery point, where all is read. Kafka has none inside of a segment that it writes.",
      subjects: [
        openSubject(
          { name: "tidemark, as a kill leaves it", wasClean: false, recoveryPoint: "as left" },
          uncleanFilling,
        ),
        openSubject({ name: "tidemark, all of it", wasClean: false, recoveryPoint: "unknown" }, uncleanFilling),
        kafkaOpenSubject("Kafka's log class, all of it", false, uncleanFilling),
      ],
      peers: [peer("vs Kafka", "Kafka's log class, all of it")],
      opensForEachSample: false,
      roundsMax: ROUNDS_MAX,
    }),
  ];
}

function segmentsFilling(quick: boolean): Filling {
  const segmentBytes = quick ? SEGMENT_BYTES_QUICK : SEGMENT_BYTES;
  const batch = filledBatch(100, Math.min(segmentBytes, BATCH_BYTES));
  return {
    batch,
    segmentBytes,
    batches: (quick ? SEGMENTS_QUICK : SEGMENTS) * Math.floor(segmentBytes / batch.bytes.length),
  };
}

function uncleanFilling(quick: boolean): Filling {
  const bytes = quick ? UNCLEAN_BYTES_QUICK : UNCLEAN_BYTES;
  const batch = filledBatch(100, BATCH_BYTES);
  return { batch, segmentBytes: 2 * UNCLEAN_BYTES - 1, batches: Math.floor(bytes / batch.bytes.length) };
}

const LEFT_SUFFIX = ".left";

function openSubject(opening: Opening, fillingFor: (quick: boolean) => Filling): Subject {
  return {
    name: opening.name,
    open: async (directory, { quick }) => {
      const filling = fillingFor(quick);
      const places = placesIn(directory);
      await fill(places, filling);
      return {
        sample: async () => {
          if (!opening.wasClean) restore(places, opening.recoveryPoint === "as left");
          const opened = await open(places, configFor(filling), opening.wasClean);
          await opened.close();
          return opened.tookMs;
        },
        close: async () => undefined,
      };
    },
  };
}

function kafkaOpenSubject(name: string, isClean: boolean, fillingFor: (quick: boolean) => Filling): Subject {
  return {
    name,
    isPeer: true,
    open: async (directory, { peers, quick }) => {
      const kafka = await peers.kafka();
      const places = placesIn(directory);
      const filling = fillingFor(quick);
      await fill(places, filling);
      const records = filling.batches * filling.batch.recordsCount;
      const sampleMs = async (): Promise<number> => {
        const stop = isClean ? `${records} clean` : "0 unclean";
        const [nanoseconds, logEndOffset] = (await kafka.run(`open ${stop} ${places.partition}`)).map(Number);
        await kafka.run("close");
        if (logEndOffset !== records) throw new Error(`it found ${logEndOffset} of ${records} records`);
        return (nanoseconds ?? 0) / 1e6;
      };
      await sampleMs(); // Makes the files that it has and we have not.
      return { sample: sampleMs, close: async () => undefined };
    },
  };
}

interface Places {
  readonly directory: string;
  readonly state: string;
  readonly partition: string;
}

function placesIn(directory: string): Places {
  return { directory, state: join(directory, "state"), partition: join(directory, "bench-0") };
}

function configFor({ segmentBytes }: Filling): LogConfig {
  return { ...DEFAULT_LOG_CONFIG, segmentBytes, flush: "none" };
}

interface OpenedLog {
  readonly log: PartitionLog;
  readonly tookMs: number;
  readonly close: () => Promise<void>;
}

async function open(places: Places, config: LogConfig, wasCleanShutdown: boolean): Promise<OpenedLog> {
  const environment = openEnvironment();
  const state = await LmdbState.open(places.state);
  const startMs = performance.now();
  const log = await PartitionLog.open({
    files: environment.files,
    state,
    clock: environment.clock,
    random: environment.random,
    workers: environment.workers,
    directory: places.partition,
    topic: "bench",
    partition: 0,
    config,
    wasCleanShutdown,
    logDirectory: new LogDirectory(places.directory),
  });
  return {
    log,
    tookMs: performance.now() - startMs,
    close: async () => {
      await log.close();
      await state.close();
      await environment.close();
    },
  };
}

/** Writes the log, keeps aside what a kill would leave beside the segments, and stops cleanly. */
async function fill(places: Places, filling: Filling): Promise<void> {
  mkdirSync(places.partition);
  const { log, close } = await open(places, configFor(filling), false);
  await log.becomeLeader(toLeaderEpoch(0));
  const appends = new InFlight(BATCHES_IN_FLIGHT);
  for (let count = 0; count < filling.batches; count += 1)
    await appends.add(log.append(filling.batch.bytes, { origin: "local" }));
  await appends.drain();
  cpSync(places.state, places.state + LEFT_SUFFIX, { recursive: true });
  cpSync(places.partition, places.partition + LEFT_SUFFIX, { recursive: true, filter: (path) => !isSegment(path) });
  await close();
}

/** Everything but the segments as it was at the kill. */
function restore(places: Places, hasState: boolean): void {
  for (const name of readdirSync(places.partition)) if (!isSegment(name)) rmSync(join(places.partition, name));
  cpSync(places.partition + LEFT_SUFFIX, places.partition, { recursive: true });
  rmSync(places.state, { recursive: true });
  if (hasState) cpSync(places.state + LEFT_SUFFIX, places.state, { recursive: true });
}

function isSegment(path: string): boolean {
  return path.endsWith(".log");
}
