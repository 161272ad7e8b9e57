import { resolve } from "node:path";
import { BufferPool, joinPath } from "@tidemark/base";
import type { State } from "@tidemark/base";
import { LogManager, randomUuid } from "@tidemark/log";
import type { TopicConfig } from "@tidemark/log";
import { DEFAULT_REPLICA_MANAGER_CONFIG, PeerServer, ReplicaManager, StreamPeerTransport } from "@tidemark/replica";
import type { ReplicaDescription, ReplicaManagerConfig, TruncationReport } from "@tidemark/replica";
import { openEnvironment, readBootId, TcpNetwork } from "@tidemark/runtime-node";
import type { NodeEnvironment } from "@tidemark/runtime-node";
import type { PartitionName, PeerAddress } from "@tidemark/wire";
import { translated } from "../error.ts";
import { makeDirectoryDurably, openLmdbState } from "../node-directory.ts";

export interface BrokerOptions {
  /** `DIRECTORY/log` and `DIRECTORY/state`; made if absent. */
  readonly directory: string;
  readonly brokerId: number;
  readonly controller: PeerAddress;
  /** Kafka's uuid spelling. Default: what `meta.properties` says; a random one for a new directory. */
  readonly clusterId?: string;
  /** Where peers and clients reach it. Default 127.0.0.1, and any free port. */
  readonly host?: string;
  readonly port?: number;
  /** For topics that the controller names. */
  readonly topicConfig: TopicConfig;
  readonly config?: Partial<ReplicaManagerConfig>;
  /** Memory of the batches that come and go. Default: one of its own. */
  readonly pool?: BufferPool;
  readonly onTruncated?: (report: TruncationReport) => void;
  readonly onFailed?: (name: PartitionName, reason: string) => void;
}

/** One broker of a cluster, in this process: its logs, its replicas, its port. */
export class Broker implements AsyncDisposable {
  readonly brokerId: number;
  readonly host: string;
  readonly port: number;
  readonly manager: ReplicaManager;
  readonly logs: LogManager;
  readonly #environment: NodeEnvironment;
  readonly #server: PeerServer;
  readonly #transport: StreamPeerTransport;
  #closing: Promise<{ readonly isClean: boolean }> | undefined;

  private constructor(parts: {
    manager: ReplicaManager;
    logs: LogManager;
    environment: NodeEnvironment;
    server: PeerServer;
    transport: StreamPeerTransport;
    host: string;
  }) {
    this.manager = parts.manager;
    this.logs = parts.logs;
    this.brokerId = parts.manager.brokerId;
    this.host = parts.host;
    this.port = parts.server.port;
    this.#environment = parts.environment;
    this.#server = parts.server;
    this.#transport = parts.transport;
  }

  /**
   * Recovers the directory, listens, and registers with the controller as soon as that can be reached.
   * @throws TidemarkError as `Tidemark.open`; NetworkError when the port cannot be had. Nothing stays open or locked then
   */
  static async open(options: BrokerOptions): Promise<Broker> {
    const directory = resolve(options.directory);
    const host = options.host ?? "127.0.0.1";
    const environment = openEnvironment();
    const { files, clock, random } = environment;
    const network = new TcpNetwork();
    const pool = options.pool ?? new BufferPool();
    const transport = new StreamPeerTransport({ network, clock, pool });
    let logs: LogManager | undefined;
    try {
      await makeDirectoryDurably(files, directory);
      const openState = async (): Promise<State> => (await openLmdbState(files, joinPath(directory, "state"))).state;
      logs = await translated(
        LogManager.open({
          environment,
          openState,
          directory: joinPath(directory, "log"),
          nodeId: options.brokerId,
          clusterId: options.clusterId,
          defaults: options.topicConfig,
        }),
      );
      const boot = await readBootId();
      // The port is known only when somebody listens, and the manager must know it: requests that come before it is there wait.
      let started: (manager: ReplicaManager) => void = () => undefined;
      const whenStarted = new Promise<ReplicaManager>((resolveStarted) => {
        started = resolveStarted;
      });
      const server = await PeerServer.listen({
        network,
        host,
        port: options.port ?? 0,
        pool,
        handler: async (request) => (await whenStarted).handle(request),
      });
      const manager = ReplicaManager.start({
        brokerId: options.brokerId,
        logs,
        clock,
        transport,
        pool,
        controller: options.controller,
        host,
        port: server.port,
        incarnationId: randomUuid(random, "incarnation-id"),
        // A system that does not tell its boots apart: every unclean stop counts as one of the machine.
        bootId: boot.type === "known" ? boot.bootId : randomUuid(random, "boot-id"),
        topicConfig: () => options.topicConfig,
        config: managerConfigOf(options),
        ...(options.onTruncated === undefined ? {} : { onTruncated: options.onTruncated }),
        ...(options.onFailed === undefined ? {} : { onFailed: options.onFailed }),
      });
      started(manager);
      return new Broker({ manager, logs, environment, server, transport, host });
    } catch (error) {
      await transport.close();
      await logs?.close();
      await environment.close();
      throw error;
    }
  }

  /** Every replica here, as it is now. */
  describe(): readonly ReplicaDescription[] {
    return this.manager.describe();
  }

  /** Stops serving and fetching, flushes, and notes the clean stop. Idempotent. @returns whether the stop was clean */
  close(): Promise<{ readonly isClean: boolean }> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<{ readonly isClean: boolean }> {
    const { manager } = this;
    await manager.close();
    await this.#server.close();
    await this.#transport.close();
    const { isClean } = await this.logs.close({
      brokerEpoch: manager.brokerEpoch,
      highWatermark: (topic, partition) => manager.partition({ topic, partition })?.highWatermark,
    });
    await this.#environment.close();
    return { isClean };
  }
}

/** The defaults where nothing is said. Where appends wait for the disk, so do high watermarks: what they pass is on all disks of the ISR. */
export function managerConfigOf({
  topicConfig,
  config = {},
}: Pick<BrokerOptions, "topicConfig" | "config">): ReplicaManagerConfig {
  const replica = config.replica ?? DEFAULT_REPLICA_MANAGER_CONFIG.replica;
  return {
    ...DEFAULT_REPLICA_MANAGER_CONFIG,
    ...config,
    replica: { ...replica, countsFlushedEnds: topicConfig.flush === "always" },
  };
}
