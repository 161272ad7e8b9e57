import { toOffset } from "@tidemark/base";
import type { BufferPool, Environment, State } from "@tidemark/base";
import { LogManager } from "@tidemark/log";
import type { CleanerConfig, TopicConfig } from "@tidemark/log";
import type { PartitionName, PeerAddress, PeerHandler, PeerTransport } from "@tidemark/wire";
import type { TruncationReport } from "./partition.ts";
import { DEFAULT_REPLICA_MANAGER_CONFIG, ReplicaManager } from "./replica-manager.ts";
import type { ReplicaManagerConfig } from "./replica-manager.ts";

/** What a broker is made of, whatever it runs on. */
export interface BrokerNodeOptions {
  readonly brokerId: number;
  /** Kafka's uuid spelling. Default: what `meta.properties` says; a random one for a new directory. */
  readonly clusterId?: string | undefined;
  readonly environment: Environment;
  /** Its small state; called once the log directory is locked. */
  readonly openState: () => Promise<State>;
  /** Of the logs. */
  readonly directory: string;
  readonly transport: PeerTransport;
  /** Of the transport, and of whoever serves. */
  readonly pool?: BufferPool;
  readonly controller: PeerAddress;
  /**
   * Begins to serve peers and clients with the handler; requests that come before all is started wait. Resolves to where others reach it.
   */
  readonly listen: (handler: PeerHandler) => Promise<{ readonly host: string; readonly port: number }>;
  /** UUID of this start of the process. */
  readonly incarnationId: string;
  /** Of the machine: an unclean stop within one boot leaves the page cache as it was. */
  readonly bootId: string;
  /** For topics that the controller names. */
  readonly topicConfig: TopicConfig;
  /** Of all its replicas, followers too. Kafka's defaults where it says nothing. */
  readonly cleaner?: Partial<CleanerConfig>;
  readonly config?: Partial<ReplicaManagerConfig>;
  readonly onTruncated?: (report: TruncationReport) => void;
  readonly onFailed?: (name: PartitionName, reason: string) => void;
}

/**
 * The assembly of a broker: opens and recovers its logs, serves, registers, and stops in the order that keeps what it says true.
 *
 * It knows no file system, socket or clock but those that it is given, so that the simulator runs it as it is.
 * Source: apache/kafka core/src/main/scala/kafka/server/BrokerServer.scala
 */
export class BrokerNode {
  readonly manager: ReplicaManager;
  readonly logs: LogManager;

  private constructor(logs: LogManager, manager: ReplicaManager) {
    this.logs = logs;
    this.manager = manager;
  }

  /** @throws LogError as `LogManager.open`, and what `listen` throws. The logs are closed again then */
  static async open(options: BrokerNodeOptions): Promise<BrokerNode> {
    const { environment, brokerId, transport, pool, topicConfig, onTruncated, onFailed } = options;
    // Until the manager runs nothing is known to be committed, and nothing goes.
    let replicas: ReplicaManager | undefined;
    const logs = await LogManager.open({
      environment,
      openState: options.openState,
      directory: options.directory,
      nodeId: brokerId,
      clusterId: options.clusterId,
      defaults: topicConfig,
      cleaner: options.cleaner,
      highWatermark: (topic, partition) => replicas?.partition({ topic, partition })?.highWatermark ?? toOffset(0),
    });
    try {
      // The port is known only when somebody listens, and the manager must know it.
      let started: (manager: ReplicaManager) => void = () => undefined;
      const whenStarted = new Promise<ReplicaManager>((resolve) => {
        started = resolve;
      });
      const { host, port } = await options.listen((request, from) =>
        replicas === undefined
          ? whenStarted.then((manager) => manager.handle(request, from))
          : replicas.handle(request, from),
      );
      const manager = ReplicaManager.start({
        brokerId,
        logs,
        clock: environment.clock,
        transport,
        controller: options.controller,
        host,
        port,
        incarnationId: options.incarnationId,
        bootId: options.bootId,
        topicConfig: () => topicConfig,
        config: managerConfigOf(options),
        ...(pool === undefined ? {} : { pool }),
        ...(onTruncated === undefined ? {} : { onTruncated }),
        ...(onFailed === undefined ? {} : { onFailed }),
      });
      replicas = manager;
      started(manager);
      return new BrokerNode(logs, manager);
    } catch (error) {
      await logs.close();
      throw error;
    }
  }

  /**
   * Stops fetching and following, then serving, flushes, and notes the clean stop with the broker epoch that it is one of.
   * @param stopServing ends what `listen` began
   * @returns whether the stop was clean
   */
  async close(stopServing: () => Promise<void>): Promise<{ readonly isClean: boolean }> {
    const { manager } = this;
    await manager.close();
    await stopServing();
    return this.logs.close({
      brokerEpoch: manager.brokerEpoch,
      highWatermark: (topic, partition) => manager.partition({ topic, partition })?.highWatermark,
    });
  }
}

/** The defaults where nothing is said. Where appends wait for the disk, so do high watermarks: what they pass is on all disks of the ISR. */
export function managerConfigOf({
  topicConfig,
  config = {},
}: Pick<BrokerNodeOptions, "topicConfig" | "config">): ReplicaManagerConfig {
  const replica = config.replica ?? DEFAULT_REPLICA_MANAGER_CONFIG.replica;
  return {
    ...DEFAULT_REPLICA_MANAGER_CONFIG,
    ...config,
    replica: { ...replica, countsFlushedEnds: topicConfig.flush === "always" },
  };
}
