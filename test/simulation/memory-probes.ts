import { BufferPool, toLeaderEpoch, toOffset } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG, LogManager } from "@tidemark/log";
import type { PartitionLog, TopicConfig } from "@tidemark/log";
import { BrokerNode } from "@tidemark/replica";
import { SimulatedEnvironment } from "@tidemark/simulator";
import {
  compressPayload,
  decodeRecords,
  decompressBatchNow,
  encodeBatch,
  RECORD_BATCH_OVERHEAD,
  scanBatch,
  withCompressedPayload,
} from "@tidemark/wire";
import type { PeerRequest, ResponseTo } from "@tidemark/wire";
import { NODE_CODECS } from "@tidemark/codecs";

/** Above all bounds for what is done at once, and for memory that is not worth keeping. */
const VALUE_BYTES = 40_000;
const TOPIC = "orders";
const CONFIG: TopicConfig = {
  ...DEFAULT_LOG_CONFIG,
  segmentBytes: 1 << 20,
  maxMessageBytes: 1 << 20,
  flush: "none",
  compression: "none",
};

/** A value that says which batch it is of, and hardly gets shorter. */
function valueOf(environment: SimulatedEnvironment, batch: number): Uint8Array {
  const value = new Uint8Array(VALUE_BYTES);
  for (let at = 0; at < value.length; at += 1) value[at] = environment.random.below("probe", 256);
  value[0] = batch;
  return value;
}

/** The first byte of the value of each record, or what is not right about its batch. */
async function numbersIn(log: PartitionLog, environment: SimulatedEnvironment): Promise<string> {
  const found: string[] = [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 });
    const scan = scanBatch(bytes, 0);
    if (scan.type !== "batch") return `S15: no batch at ${next}`;
    const payload = decompressBatchNow(environment.workers, bytes, scan.header, 1 << 20);
    for (const { offset, value } of decodeRecords(scan.header, payload)) found.push(`${offset}:${value?.[0]}`);
    next = scan.header.lastOffset + 1;
  }
  return found.join(" ");
}

/**
 * Batches that workers convert, several at a time, and are done with in another order than they were asked.
 * @returns what is wrong: a batch that is not where its producer was told; `undefined` when nothing is
 */
export async function probeWorkers(seed: number): Promise<string | undefined> {
  const environment = new SimulatedEnvironment({ seed, mode: "kernel" });
  return environment.kernel.run(async () => {
    const openState = async () => environment.state;
    const logs = await LogManager.open({ environment, openState, directory: "log", defaults: CONFIG });
    await logs.createTopic(TOPIC, 1, { ...CONFIG, compressionType: "zstd" });
    const log = logs.partition(TOPIC, 0);
    if (log === undefined) throw new Error("the topic is there");
    await log.becomeLeader(toLeaderEpoch(0));
    const appends = Array.from({ length: 12 }, async (_none, number) => {
      const plain = encodeBatch([{ key: null, value: valueOf(environment, number), timestamp: 1 }]);
      const payload = compressPayload(NODE_CODECS, "gzip", plain.subarray(RECORD_BATCH_OVERHEAD));
      const { baseOffset } = await log.append(withCompressedPayload(plain, "gzip", payload), { origin: "client" });
      return `${baseOffset}:${number}`;
    });
    const told = (await Promise.all(appends)).join(" ");
    const found = await numbersIn(log, environment);
    await logs.close();
    return found === told ? undefined : `S15: the log holds ${found}, producers were told ${told}`;
  });
}

/**
 * A follower whose answers lie in memory that is overwritten as soon as it is given back.
 * @returns what is wrong: a batch that is not as the leader sent it; `undefined` when nothing is
 */
export async function probeAnswers(seed: number): Promise<string | undefined> {
  const environment = new SimulatedEnvironment({ seed, mode: "kernel" });
  const pool = new BufferPool({ poisons: true });
  const batches = Array.from({ length: 5 }, (_none, number) =>
    encodeBatch([{ key: null, value: valueOf(environment, number), timestamp: 1 }], {
      baseOffset: toOffset(number),
      partitionLeaderEpoch: 0,
    }),
  );
  const wait = (ms: number): Promise<void> => new Promise((resolve) => environment.clock.setTimer(ms, resolve));
  const leader = new Leader(batches, pool, wait);
  return environment.kernel.run(async () => {
    const node = await BrokerNode.open({
      brokerId: 1,
      environment,
      openState: async () => environment.state,
      directory: "log",
      transport: { request: (_address, request) => leader.answer(request), close: async () => undefined },
      pool,
      controller: { nodeId: 100, host: "controller", port: 1 },
      listen: async () => ({ host: "h", port: 1 }),
      incarnationId: "start",
      bootId: "boot",
      topicConfig: CONFIG,
    });
    for (let waits = 0; waits < 100 && leader.answered < batches.length; waits += 1) await wait(50);
    await wait(50);
    const log = node.logs.partition(TOPIC, 0);
    const found = log === undefined ? "" : await numbersIn(log, environment);
    const wanted = batches.map((_batch, number) => `${number}:${number}`).join(" ");
    return found === wanted ? undefined : `S15: the follower holds "${found}" of ${wanted}`;
  });
}

/** What a controller and a leader answer to the only follower. */
class Leader {
  readonly #batches: readonly Uint8Array[];
  readonly #pool: BufferPool;
  readonly #wait: (ms: number) => Promise<void>;
  #hasToldState = false;
  /** Batches that were asked for and sent. */
  answered = 0;

  constructor(batches: readonly Uint8Array[], pool: BufferPool, wait: (ms: number) => Promise<void>) {
    this.#batches = batches;
    this.#pool = pool;
    this.#wait = wait;
  }

  async answer<R extends PeerRequest>(request: R): Promise<ResponseTo<R>> {
    await this.#wait(1);
    const answer = this.#answerTo(request);
    if (answer === undefined) return new Promise(() => undefined);
    return answer as ResponseTo<R>;
  }

  #answerTo(request: PeerRequest): object | undefined {
    if (request.kind === "register") return { kind: "register", error: "NONE", brokerEpoch: 11 };
    if (request.kind === "clusterState") {
      if (this.#hasToldState) return undefined;
      this.#hasToldState = true;
      const brokers = [1, 2].map((brokerId) => ({ brokerId, brokerEpoch: 11, host: "h", port: 1, isFenced: false }));
      const partition = {
        number: 1,
        topic: TOPIC,
        partition: 0,
        topicId: "AAAAAAAAAAEAAAAAAAAAAg",
        replicas: [1, 2],
        isr: [2],
        leader: 2,
        leaderEpoch: 0,
        partitionEpoch: 0,
      };
      return { kind: "clusterState", error: "NONE", number: 1, brokers, partitions: [partition] };
    }
    const [asked] = request.kind === "fetch" ? request.partitions : [];
    const batch = asked && this.#batches[asked.fetchOffset];
    if (asked === undefined || batch === undefined) return undefined;
    this.answered = Math.max(this.answered, asked.fetchOffset + 1);
    const bytes = this.#pool.take(batch.length);
    bytes.set(batch);
    const answer = {
      topic: TOPIC,
      partition: 0,
      error: "NONE",
      highWatermark: 0,
      logStartOffset: 0,
      logEndOffset: this.#batches.length,
      divergingEpoch: -1,
      divergingEndOffset: -1,
      bytes,
    };
    return { kind: "fetch", partitions: [answer] };
  }
}
