import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BufferPool, toOffset } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG } from "@tidemark/log";
import { SERVER_UNSENT_BYTES_MAX, StreamPeerTransport } from "@tidemark/replica";
import { SystemClock, TcpNetwork } from "@tidemark/runtime-node";
import { checkCrc, compressionCodec, encodeBatch, encodeFrame, FrameDecoder, scanBatch } from "@tidemark/wire";
import { expect, test, vi } from "vitest";
import { Broker } from "./broker.ts";
import { ClusterProducer } from "./cluster-producer.ts";
import { ControllerNode } from "./controller-node.ts";

const BROKER_IDS = [1, 2, 3];
const BATCHES = 60;
const TOPIC = "orders";
const FETCHES_UNREAD = 64;

function valueOf(batch: number): Uint8Array {
  // From a few bytes to several reads of a socket: some frames lie in pooled memory, others not.
  return new Uint8Array([10, 20_000, 70_000, 131_072, 300_000][batch % 5] ?? 0).fill(batch + 1);
}

test("three brokers whose memory is overwritten as soon as it is given back hold every batch as it was sent", async () => {
  const directory = await mkdtemp(join(tmpdir(), "tidemark-cluster-"));
  const controller = await ControllerNode.open({ directory: join(directory, "controller") });
  const pools = BROKER_IDS.map(() => new BufferPool({ poisons: true }));
  const brokers = await Promise.all(
    BROKER_IDS.map((brokerId, at) =>
      Broker.open({
        directory: join(directory, `${brokerId}`),
        brokerId,
        controller: controller.address,
        topicConfig: {
          ...DEFAULT_LOG_CONFIG,
          segmentBytes: 4 * 1024 ** 2,
          maxMessageBytes: 1024 ** 2,
          flush: "none",
          compression: "none",
        },
        ...(pools[at] === undefined ? {} : { pool: pools[at] }),
      }),
    ),
  );
  const clock = new SystemClock();
  const transport = new StreamPeerTransport({ network: new TcpNetwork(), clock });
  try {
    await controller.controller.createTopic({
      name: TOPIC,
      topicId: "AAAAAAAAAAEAAAAAAAAAAg",
      assignments: [BROKER_IDS],
    });
    const producer = new ClusterProducer({
      transport,
      clock,
      controller: controller.address,
      topic: TOPIC,
      partition: 0,
      producerId: 7,
      acks: -1,
      requestTimeoutMs: 10_000,
      deliveryTimeoutMs: 60_000,
      retryBackoffMs: 20,
    });
    const sent: Promise<unknown>[] = [];
    for (let batch = 0; batch < BATCHES; batch += 1) {
      await producer.ready();
      sent.push(producer.send([{ key: null, value: valueOf(batch), timestamp: 1 }]));
    }
    await Promise.all(sent);
    for (const { logs } of brokers) {
      const log = logs.partition(TOPIC, 0);
      for (let batch = 0; batch < BATCHES; batch += 1) {
        const read = await log?.read({ fromOffset: toOffset(batch), maxBytes: 1 });
        const bytes = read?.bytes ?? new Uint8Array(0);
        const scan = scanBatch(bytes, 0);
        expect([batch, scan.type === "batch" && checkCrc(bytes, scan.header)]).toEqual([batch, true]);
        const expected = encodeBatch([{ key: null, value: valueOf(batch), timestamp: 1 }], {
          producerId: 7,
          producerEpoch: 0,
          baseSequence: batch,
          baseOffset: batch,
          partitionLeaderEpoch: 0,
        });
        expect(Buffer.compare(bytes, expected)).toBe(0);
      }
    }
    // All that was lent came back: a way without its `giveBack` would show as a pool that stays empty.
    expect(pools.map(({ keptBytes }) => keptBytes > 0)).toEqual([true, true, true]);
  } finally {
    await transport.close();
    for (const broker of brokers) await broker.close();
    await controller.close();
    await rm(directory, { recursive: true });
  }
});

test("leader and followers compact their own logs; the leader gives batches the topic's codec, and refuses a record without a key", async () => {
  const directory = await mkdtemp(join(tmpdir(), "tidemark-cluster-"));
  const controller = await ControllerNode.open({ directory: join(directory, "controller") });
  const brokers = await Promise.all(
    BROKER_IDS.map((brokerId) =>
      Broker.open({
        directory: join(directory, `${brokerId}`),
        brokerId,
        controller: controller.address,
        topicConfig: {
          ...DEFAULT_LOG_CONFIG,
          segmentBytes: 4096,
          flush: "none",
          compression: "none",
          compressionType: "gzip",
          cleanupPolicy: "compact",
          minCleanableDirtyRatio: 0,
        },
        cleaner: { backoffMs: 5 },
      }),
    ),
  );
  const clock = new SystemClock();
  const transport = new StreamPeerTransport({ network: new TcpNetwork(), clock });
  try {
    const assignments = [BROKER_IDS];
    await controller.controller.createTopic({ name: TOPIC, topicId: "AAAAAAAAAAEAAAAAAAAAAg", assignments });
    const producerOf = (producerId: number): ClusterProducer =>
      new ClusterProducer({
        transport,
        clock,
        controller: controller.address,
        topic: TOPIC,
        partition: 0,
        producerId,
        acks: -1,
        requestTimeoutMs: 10_000,
        deliveryTimeoutMs: 60_000,
        retryBackoffMs: 20,
      });
    const producer = producerOf(7);
    for (let batch = 0; batch < 80; batch += 1) {
      await producer.ready();
      const key = new Uint8Array([batch % 3]);
      await producer.send([{ key, value: new Uint8Array(500).fill(batch), timestamp: 1 }]);
    }
    const refused = producerOf(8);
    await refused.ready();
    await expect(refused.send([{ key: null, value: null, timestamp: 1 }])).rejects.toMatchObject({
      code: "INVALID_RECORD",
    });
    for (const { logs } of brokers) {
      const log = logs.partition(TOPIC, 0);
      if (log === undefined) throw new Error("every broker has a replica");
      await vi.waitUntil(() => (log.cleanerOffset ?? 0) > 0 && log.dirtyPart.dirtyBytes === 0, { timeout: 20_000 });
      let records = 0;
      for (let next = 0; next < log.logEndOffset;) {
        const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 });
        const scan = scanBatch(bytes, 0);
        if (scan.type !== "batch") throw new Error(scan.type);
        expect(compressionCodec(scan.header)).toBe(scan.header.recordsCount === 0 ? "none" : "gzip");
        records += scan.header.recordsCount;
        next = scan.header.lastOffset + 1;
      }
      // The last of each key in what is clean, and all of the active segment.
      const active = log.segments.at(-1)?.baseOffset ?? 0;
      expect([records, log.logEndOffset]).toEqual([3 + log.logEndOffset - active, 80]);
    }
  } finally {
    await transport.close();
    for (const broker of brokers) await broker.close();
    await controller.close();
    await rm(directory, { recursive: true });
  }
});

/** Overwrites what is given back, and counts what is not: what is large enough to be kept. */
class CountingPool extends BufferPool {
  lentBytes = 0;
  lentBytesPeak = 0;
  readonly #lent = new Map<ArrayBufferLike, number>();

  constructor() {
    super({ poisons: true });
  }

  override take(bytes: number): Uint8Array {
    const memory = super.take(bytes);
    if (bytes < 16 * 1024) return memory;
    this.#lent.set(memory.buffer, bytes);
    this.lentBytes += bytes;
    this.lentBytesPeak = Math.max(this.lentBytesPeak, this.lentBytes);
    return memory;
  }

  override giveBack(view: Uint8Array): void {
    this.lentBytes -= this.#lent.get(view.buffer) ?? 0;
    this.#lent.delete(view.buffer);
    super.giveBack(view);
  }
}

test("a client that asks for much in many requests and reads nothing makes a broker read what one connection has room for", async () => {
  const directory = await mkdtemp(join(tmpdir(), "tidemark-cluster-"));
  const controller = await ControllerNode.open({ directory: join(directory, "controller") });
  const pool = new CountingPool();
  const topicConfig = {
    ...DEFAULT_LOG_CONFIG,
    segmentBytes: 64 * 1024 ** 2,
    maxMessageBytes: 1024 ** 2,
    flush: "none",
    compression: "none",
  } as const;
  const broker = await Broker.open({
    directory: join(directory, "1"),
    brokerId: 1,
    controller: controller.address,
    topicConfig,
    pool,
  });
  const clock = new SystemClock();
  const network = new TcpNetwork();
  const transport = new StreamPeerTransport({ network, clock });
  const address = { nodeId: 1, host: broker.host, port: broker.port };
  try {
    await controller.controller.createTopic({ name: TOPIC, topicId: "AAAAAAAAAAEAAAAAAAAAAg", assignments: [[1]] });
    const producer = new ClusterProducer({
      transport,
      clock,
      controller: controller.address,
      topic: TOPIC,
      partition: 0,
      producerId: 7,
      acks: -1,
      requestTimeoutMs: 10_000,
      deliveryTimeoutMs: 60_000,
      retryBackoffMs: 20,
    });
    for (let batch = 0; batch < 64; batch += 1) {
      await producer.ready();
      await producer.send([{ key: null, value: new Uint8Array(65_000), timestamp: 1 }]);
    }
    const partition = {
      topic: TOPIC,
      partition: 0,
      currentLeaderEpoch: -1,
      fetchOffset: 0,
      flushedEndOffset: -1,
      lastFetchedEpoch: -1,
      logStartOffset: -1,
      maxBytes: 2 ** 31 - 1,
    };
    const fetch = {
      kind: "fetch",
      replicaId: -1,
      brokerEpoch: -1,
      maxWaitMs: 0,
      minBytes: 1,
      maxBytes: 2 ** 31 - 1,
      partitions: [partition],
    } as const;
    /** Sends requests and reads no answer until all of them are made, and lie there as told. */
    const unread = async (count: number, maxBytes: number, areThere: () => boolean): Promise<void> => {
      const stream = await network.connect(address, { timeoutMs: 10_000 });
      const decoder = new FrameDecoder();
      let answers = 0;
      const whenAnswered = new Promise<void>((resolve, reject) => {
        stream.pause();
        stream.start({
          onData: (chunk) => {
            try {
              // It looks at the CRC of the frame: what was overwritten before it was sent is found out.
              answers += decoder.push(chunk).length;
            } catch (error) {
              reject(error);
            }
            if (answers === count) resolve();
          },
          onEnd: () => reject(new Error("the broker hung up")),
        });
      });
      const frames = Array.from({ length: count }, (_, correlationId) =>
        encodeFrame({ type: "request", correlationId, message: { ...fetch, maxBytes } }),
      );
      await stream.write(frames.flat());
      // The broker has answered as many that came after them.
      for (let round = 0; round < count; round += 1)
        await transport.request(address, { ...fetch, maxBytes: 1 }, { timeoutMs: 10_000 });
      // Their reads may take longer than those of the small ones behind them.
      await vi.waitUntil(areThere, { timeout: 15_000 });
      stream.resume();
      await whenAnswered;
      stream.destroy();
    };
    // The first answer alone gets half of the room; how many lie there at a time depends on what the system takes from them.
    await unread(FETCHES_UNREAD, 2 ** 31 - 1, () => pool.lentBytesPeak > SERVER_UNSENT_BYTES_MAX / 4);
    // 64 batches of 65 KB for each of the requests would be 267 MB.
    expect(pool.lentBytesPeak).toBeLessThan(SERVER_UNSENT_BYTES_MAX + (FETCHES_UNREAD + 1) * 70_000);
    expect(pool.lentBytesPeak).toBeGreaterThan(SERVER_UNSENT_BYTES_MAX / 4);
    // Answers that the socket still has room for, though the system has none any more.
    await unread(4 * FETCHES_UNREAD - 1, 1, () => true);
    await vi.waitUntil(() => pool.lentBytes === 0, { timeout: 15_000 });
  } finally {
    await transport.close();
    await broker.close();
    await controller.close();
    await rm(directory, { recursive: true });
  }
});
