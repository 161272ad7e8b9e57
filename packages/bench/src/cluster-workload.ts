import { fork } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DEFAULT_LOG_CONFIG } from "@tidemark/log";
import { StreamPeerTransport } from "@tidemark/replica";
import { SystemClock, TcpNetwork } from "@tidemark/runtime-node";
import { ClusterProducer, ControllerNode } from "@tidemark/server";
import type { BrokerOptions } from "@tidemark/server";
import type { RecordInput } from "@tidemark/wire";
import type { Budget } from "./budget.ts";
import { InFlight } from "./in-flight.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import type { OpenSubject, Subject, Workload } from "./workload.ts";

const TOPIC = "bench";
const TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg";
const BROKER_IDS = [1, 2, 3];
const RECORD_BYTES = 1024;
/** With their overhead they fill 128 KiB. */
const RECORDS_PER_BATCH = 125;
const BATCHES_WAITED_FOR_MAX = 1000;

const TOPIC_CONFIG = {
  ...DEFAULT_LOG_CONFIG,
  maxMessageBytes: 1024 ** 2,
  flush: "none",
  compression: "none",
} as const;

/** Three brokers on loopback, a process each, and a producer in this one. */
export function clusterWorkloads(): readonly Workload[] {
  return [
    roundsWorkload({
      name: "replicate 1 KiB records in 128 KiB batches, three brokers, acks=all",
      unit: "MB/s",
      explanation: `An idempotent producer in this process, ${BROKER_IDS.length} brokers in processes of their own, min.insync.replicas 2.`,
      subjects: [clusterSubject("tidemark, acks=all", -1), clusterSubject("tidemark, acks=1", 1)],
      opensForEachSample: false,
    }),
  ];
}

function clusterSubject(name: string, acks: -1 | 1): Subject {
  return {
    name,
    async open(directory): Promise<OpenSubject> {
      const cluster = await BenchCluster.open(directory);
      const clock = new SystemClock();
      const transport = new StreamPeerTransport({ network: new TcpNetwork(), clock });
      const producer = new ClusterProducer({
        transport,
        clock,
        controller: cluster.controller.address,
        topic: TOPIC,
        partition: 0,
        producerId: 2 ** 40 + process.pid,
        acks,
        requestTimeoutMs: 10_000,
        deliveryTimeoutMs: 60_000,
        retryBackoffMs: 20,
      });
      const value = new Uint8Array(RECORD_BYTES).fill(0x61);
      const records: RecordInput[] = Array.from({ length: RECORDS_PER_BATCH }, () => ({
        key: null,
        value,
        timestamp: 1,
      }));
      return {
        sample: (budget) => sample(producer, records, budget),
        close: async () => {
          await transport.close();
          await cluster.close();
        },
      };
    },
  };
}

async function sample(producer: ClusterProducer, records: readonly RecordInput[], budget: Budget): Promise<number> {
  const waited = new InFlight(BATCHES_WAITED_FOR_MAX);
  let bytes = 0;
  budget.start();
  while (!budget.isSpent(bytes)) {
    await producer.ready();
    await waited.add(producer.send(records));
    bytes += records.length * RECORD_BYTES;
  }
  await waited.drain();
  return budget.megabytesPerSecond(bytes);
}

class BenchCluster {
  readonly controller: ControllerNode;
  readonly #brokers: readonly ChildProcess[];

  private constructor(controller: ControllerNode, brokers: readonly ChildProcess[]) {
    this.controller = controller;
    this.#brokers = brokers;
  }

  static async open(directory: string): Promise<BenchCluster> {
    const controller = await ControllerNode.open({ directory: join(directory, "controller") });
    const isSource = import.meta.url.endsWith(".ts");
    const program = fileURLToPath(new URL(isSource ? "./cluster-broker.ts" : "./cluster-broker.js", import.meta.url));
    const brokers = BROKER_IDS.map(() =>
      fork(program, { execArgv: process.execArgv, stdio: ["ignore", "ignore", "inherit", "ipc"] }),
    );
    const cluster = new BenchCluster(controller, brokers);
    const started = brokers.map((broker) => once(broker, "message"));
    for (const [at, brokerId] of BROKER_IDS.entries()) {
      const options: BrokerOptions = {
        directory: join(directory, `broker-${brokerId}`),
        brokerId,
        controller: controller.address,
        topicConfig: TOPIC_CONFIG,
      };
      brokers[at]?.send(options);
    }
    await Promise.all(started);
    await controller.controller.createTopic({ name: TOPIC, topicId: TOPIC_ID, assignments: [BROKER_IDS] });
    return cluster;
  }

  /** Kills the brokers: their directories are removed next. */
  async close(): Promise<void> {
    const running = this.#brokers.filter((broker) => broker.exitCode === null && broker.signalCode === null);
    const ended = running.map((broker) => once(broker, "exit"));
    for (const broker of running) broker.kill("SIGKILL");
    await Promise.all(ended);
    await this.controller.close();
  }
}
