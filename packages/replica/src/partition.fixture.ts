import { DEFAULT_LOG_CONFIG, LogDirectory, PartitionLog } from "@tidemark/log";
import { BufferPool } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { encodeBatch, stampBatch } from "@tidemark/wire";
import type { BrokerState, FetchPartition, PartitionState } from "@tidemark/wire";
import { Partition } from "./partition.ts";
import type { AlterPartitionEffect, Fetcher, TruncationReport } from "./partition.ts";
import type { PartitionFetchResult } from "./refusals.ts";

const BROKERS = new Map<number, BrokerState>(
  [1, 2, 3].map((brokerId) => [
    brokerId,
    { brokerId, brokerEpoch: 100 + brokerId, host: "h", port: 1, isFenced: false },
  ]),
);

export function stateOf(more: Partial<PartitionState> = {}): PartitionState {
  return {
    number: 1,
    topic: "orders",
    partition: 0,
    topicId: "id",
    replicas: [1, 2],
    isr: [1, 2],
    leader: 1,
    leaderEpoch: 5,
    partitionEpoch: 1,
    ...more,
  };
}

export function batch(values: readonly string[]): Uint8Array {
  return encodeBatch(
    values.map((value) => ({ key: null, value: new TextEncoder().encode(value), timestamp: 1 })),
    {},
  );
}

export function stored(values: readonly string[], baseOffset: number, epoch: number): Uint8Array {
  const bytes = batch(values);
  stampBatch(bytes, 0, baseOffset, epoch);
  return bytes;
}

/** Broker 1's replica of a partition on a simulated machine. */
export class Replica {
  readonly environment = new SimulatedEnvironment({ seed: 1 });
  readonly truncations: TruncationReport[] = [];
  readonly failures: string[] = [];
  readonly proposals: AlterPartitionEffect[] = [];
  readonly partition: Partition;
  readonly log: PartitionLog;

  private constructor(log: PartitionLog, environment: SimulatedEnvironment, highWatermark: number) {
    this.environment = environment;
    this.log = log;
    this.partition = new Partition({
      brokerId: 1,
      brokerEpoch: () => 101,
      log,
      clock: environment.clock,
      pool: new BufferPool({ poisons: true }),
      config: { replicaLagTimeMaxMs: 30_000, minInsyncReplicas: 1, countsFlushedEnds: false },
      highWatermark,
      brokers: () => BROKERS,
      fetchBackoffMs: 1000,
      events: {
        alterPartition: (_partition, effect) => this.proposals.push(effect),
        readyToAsk: () => undefined,
        truncated: (report) => this.truncations.push(report),
        failed: (_partition, reason) => this.failures.push(reason),
      },
    });
  }

  /** @param records epoch of each record, one batch each */
  static async with(records: readonly number[], highWatermark = 0): Promise<Replica> {
    const environment = new SimulatedEnvironment({ seed: 1 });
    const { files, state, clock, random, workers } = environment;
    await files.makeDirectory("log/orders-0");
    const config = {
      ...DEFAULT_LOG_CONFIG,
      segmentBytes: 1 << 20,
      maxMessageBytes: 1 << 20,
      flush: "none",
    } as const;
    const log = await PartitionLog.open({
      files,
      state,
      clock,
      random,
      workers,
      directory: "log/orders-0",
      topic: "orders",
      partition: 0,
      config,
      wasCleanShutdown: false,
      logDirectory: new LogDirectory("log"),
    });
    for (const [offset, epoch] of records.entries()) await log.appendAsFollower(stored([`r${offset}`], offset, epoch));
    return new Replica(log, environment, highWatermark);
  }

  async fetch(more: Partial<FetchPartition> = {}, fetcher: Partial<Fetcher> = {}): Promise<PartitionFetchResult> {
    const request = {
      topic: "orders",
      partition: 0,
      currentLeaderEpoch: 5,
      fetchOffset: 0,
      flushedEndOffset: 0,
      lastFetchedEpoch: -1,
      logStartOffset: 0,
      maxBytes: 1 << 20,
      ...more,
    };
    return this.partition.fetch(request, { replicaId: 2, brokerEpoch: 102, ...fetcher }, true);
  }

  epochEnd(leaderEpoch: number, currentLeaderEpoch = -1): string {
    const answer = this.partition.offsetsForLeaderEpoch({
      topic: "orders",
      partition: 0,
      currentLeaderEpoch,
      leaderEpoch,
    });
    return answer.error === "NONE" ? `(${answer.leaderEpoch},${answer.endOffset})` : answer.error;
  }
}

export async function leader(
  records: readonly number[],
  more: Partial<PartitionState> = {},
  highWatermark = 0,
): Promise<Replica> {
  const replica = await Replica.with(records, highWatermark);
  await replica.partition.applyState(stateOf(more));
  return replica;
}
