import type { FlushMode } from "@tidemark/log";
import { Tidemark } from "@tidemark/server";
import { setImmediate } from "node:timers/promises";
import type { Budget } from "./budget.ts";
import { eventText } from "./content.ts";
import { InFlight } from "./in-flight.ts";
import { LatencyRecorder } from "./latency.ts";
import { PEER_KINDS } from "./peer-kinds.ts";
import type { PeerKind } from "./peer-log.ts";
import type { Peers } from "./peers.ts";
import { valuesOf } from "./peer-subjects.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import type { Subject, Workload } from "./workload.ts";

const VALUE_BYTES = 100;
const CHUNK_RECORDS = 1000;
const CHUNKS_IN_FLIGHT = 8;
/** Appends a second whose way to the reader is timed: every peer can do as many. */
const PACE_PER_SECOND = 1000;
const FLUSH_MODES: readonly FlushMode[] = ["none", "always"];

/** A log with a reader that waits at its end. */
interface TailedLog {
  appendMany(): void | Promise<unknown>;
  appendOne(): void | Promise<unknown>;
  /** Sets what is told of each value that the reader gets. */
  onRecord: () => void;
  close(): Promise<void>;
}

type OpenTailedLog = (directory: string, flush: FlushMode, peers: Peers) => Promise<TailedLog>;

interface TailedKind {
  readonly name: string;
  readonly isPeer: boolean;
  readonly flushModes: readonly FlushMode[];
  readonly open: OpenTailedLog;
}

/** A reader that follows the end of the log, in the process that appends. */
export function tailingWorkloads(): readonly Workload[] {
  const kinds = [TIDEMARK, ...PEER_KINDS.filter(({ canFollow }) => canFollow).map(tailedPeer)];
  return [
    roundsWorkload({
      name: "tail 100 B records",
      unit: "records/s",
      explanation:
        `Arrays of ${CHUNK_RECORDS.toLocaleString("en-US")} appended as fast as they are taken, ${CHUNKS_IN_FLIGHT} in flight (peers: one), and a reader ` +
        "of the same log behind; the clock stops when it has got all. Nobody waits for a sync.",
      subjects: kinds.filter(({ flushModes }) => flushModes.includes("none")).map((kind) => throughputSubject(kind)),
      opensForEachSample: true,
    }),
    ...FLUSH_MODES.map((flush) =>
      roundsWorkload({
        name: `tail ${PACE_PER_SECOND.toLocaleString("en-US")} records a second, flush ${flush}`,
        unit: "us",
        explanation:
          "From the moment at which a record of 100 B was due to be appended until the reader has it, however late the append itself was: " +
          `the median of each round. ${flush === "none" ? "Nobody waits for a sync." : "A reader gets what is on the disk."}`,
        subjects: kinds.filter(({ flushModes }) => flushModes.includes(flush)).map((kind) => paceSubject(kind, flush)),
        opensForEachSample: true,
      }),
    ),
  ];
}

const TIDEMARK: TailedKind = {
  name: "tidemark, fetch",
  isPeer: false,
  flushModes: FLUSH_MODES,
  open: async (directory, flush) => {
    const tidemark = await Tidemark.open({ directory });
    const topic = await tidemark.topic("bench", { flush });
    const value = eventText(VALUE_BYTES);
    const controller = new AbortController();
    const records = topic.fetch({ partition: 0, from: "latest", signal: controller.signal });
    const log: TailedLog = {
      appendMany: () =>
        topic.append(
          Array.from({ length: CHUNK_RECORDS }, () => ({ value })),
          { partition: 0 },
        ),
      appendOne: () => topic.append({ value }, { partition: 0 }),
      onRecord: () => undefined,
      close: async () => {
        controller.abort();
        await reading;
        await tidemark.close();
      },
    };
    const read = async (): Promise<void> => {
      for await (const record of records) if (record.value !== null) log.onRecord();
    };
    const reading = read().catch((error: unknown) => {
      if (!controller.signal.aborted) throw error;
    });
    return log;
  },
};

function tailedPeer(kind: PeerKind): TailedKind {
  return {
    name: kind.name,
    isPeer: true,
    flushModes: kind.flushModes,
    open: async (directory, flush, peers) => {
      const peerLog = await kind.open(directory, flush, peers);
      const values = valuesOf(CHUNK_RECORDS, VALUE_BYTES);
      const [value = Buffer.alloc(VALUE_BYTES)] = values;
      await peerLog.appendOne(value); // Some cannot follow a log that is empty.
      const stop = peerLog.follow?.(() => log.onRecord());
      const log: TailedLog = {
        appendMany: () => peerLog.appendMany(values),
        appendOne: () => peerLog.appendOne(value),
        onRecord: () => undefined,
        close: async () => {
          stop?.();
          await peerLog.close();
        },
      };
      return log;
    },
  };
}

function throughputSubject({ name, isPeer, open }: TailedKind): Subject {
  return {
    name,
    isPeer,
    open: async (directory, { peers }) => {
      const log = await open(directory, "none", peers);
      return {
        sample: async (budget) => {
          const arrival = new Arrival(log);
          const chunks = new InFlight(isPeer ? 1 : CHUNKS_IN_FLIGHT);
          let count = 0;
          for (; !budget.isSpent(count * VALUE_BYTES); count += CHUNK_RECORDS)
            await chunks.add(Promise.resolve(log.appendMany()));
          await chunks.drain();
          await arrival.of(count);
          return budget.rate(count);
        },
        close: () => log.close(),
      };
    },
  };
}

function paceSubject({ name, isPeer, open }: TailedKind, flush: FlushMode): Subject {
  return {
    name,
    isPeer,
    open: async (directory, { peers }) => {
      const log = await open(directory, flush, peers);
      return {
        sample: (budget, latencies) => samplePace(log, budget, latencies),
        close: () => log.close(),
      };
    },
  };
}

/** Median latency of the sample, in us. Appends are due at fixed times, so that a stall is counted by all whom it made wait. */
async function samplePace(log: TailedLog, budget: Budget, latencies: LatencyRecorder): Promise<number> {
  const ofSample = new LatencyRecorder();
  const startMs = performance.now();
  const dueMs = (index: number): number => startMs + (index * 1000) / PACE_PER_SECOND;
  const arrival = new Arrival(log, (index) => {
    const nanoseconds = (performance.now() - dueMs(index)) * 1e6;
    ofSample.recordNs(nanoseconds);
    latencies.recordNs(nanoseconds);
  });
  const appends: Promise<unknown>[] = [];
  while (!budget.isSpent()) {
    while (dueMs(appends.length) <= performance.now()) appends.push(Promise.resolve(log.appendOne()));
    await setImmediate();
  }
  await Promise.all(appends);
  await arrival.of(appends.length);
  return ofSample.valueAt(50);
}

/** Counts what the reader gets. */
class Arrival {
  #count = 0;
  #awaited: { readonly count: number; readonly resolve: () => void } | undefined;

  constructor(log: TailedLog, onRecord: (index: number) => void = () => undefined) {
    log.onRecord = () => {
      onRecord(this.#count);
      this.#count += 1;
      if (this.#awaited !== undefined && this.#count >= this.#awaited.count) this.#awaited.resolve();
    };
  }

  /** Until the reader has got so many. */
  async of(count: number): Promise<void> {
    if (this.#count >= count) return;
    await new Promise<void>((resolve) => {
      this.#awaited = { count, resolve };
    });
  }
}
