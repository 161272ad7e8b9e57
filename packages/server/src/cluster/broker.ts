import { resolve } from "node:path";
import { BufferPool, fail, joinPath } from "@tidemark/base";
import { randomUuid } from "@tidemark/log";
import type { CleanerConfig, LogManager, TopicConfig } from "@tidemark/log";
import { BrokerNode, PeerServer, StreamPeerTransport } from "@tidemark/replica";
import type { ReplicaDescription, ReplicaManager, ReplicaManagerConfig, TruncationReport } from "@tidemark/replica";
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
  /** When it compacts its replicas that are to be compacted. Default: Kafka's. */
  readonly cleaner?: Partial<CleanerConfig>;
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
  readonly #node: BrokerNode;
  readonly #environment: NodeEnvironment;
  readonly #server: PeerServer;
  readonly #transport: StreamPeerTransport;
  #closing: Promise<{ readonly isClean: boolean }> | undefined;

  private constructor(parts: {
    node: BrokerNode;
    environment: NodeEnvironment;
    server: PeerServer;
    transport: StreamPeerTransport;
    host: string;
  }) {
    this.#node = parts.node;
    this.brokerId = parts.node.manager.brokerId;
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
    let server: PeerServer | undefined;
    try {
      await makeDirectoryDurably(files, directory);
      const boot = await readBootId();
      const node = await translated(
        BrokerNode.open({
          ...options,
          environment,
          openState: async () => (await openLmdbState(files, joinPath(directory, "state"))).state,
          directory: joinPath(directory, "log"),
          transport,
          pool,
          listen: async (handler) => {
            server = await PeerServer.listen({ network, host, port: options.port ?? 0, pool, handler });
            return { host, port: server.port };
          },
          incarnationId: randomUuid(random, "incarnation-id"),
          // A system that does not tell its boots apart: every unclean stop counts as one of the machine.
          bootId: boot.type === "known" ? boot.bootId : randomUuid(random, "boot-id"),
        }),
      );
      return new Broker({ node, environment, server: server ?? fail("an open broker listens"), transport, host });
    } catch (error) {
      await server?.close();
      await transport.close();
      await environment.close();
      throw error;
    }
  }

  get manager(): ReplicaManager {
    return this.#node.manager;
  }

  get logs(): LogManager {
    return this.#node.logs;
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
    const { isClean } = await this.#node.close(async () => {
      await this.#server.close();
      await this.#transport.close();
    });
    await this.#environment.close();
    return { isClean };
  }
}
