import { resolve } from "node:path";
import { AppointedController, PeerServer } from "@tidemark/replica";
import { openEnvironment, TcpNetwork } from "@tidemark/runtime-node";
import type { NodeEnvironment } from "@tidemark/runtime-node";
import type { PeerAddress } from "@tidemark/wire";
import { makeDirectoryDurably } from "../node-directory.ts";

/** The id under which brokers address the controller. */
const CONTROLLER_NODE_ID = 0;

export interface ControllerNodeOptions {
  readonly directory: string;
  readonly host?: string;
  readonly port?: number;
  readonly sessionTimeoutMs?: number;
}

/** The appointed controller behind a port of its own, in this process. */
export class ControllerNode implements AsyncDisposable {
  readonly controller: AppointedController;
  readonly address: PeerAddress;
  readonly #server: PeerServer;
  readonly #environment: NodeEnvironment;

  private constructor(parts: {
    controller: AppointedController;
    server: PeerServer;
    environment: NodeEnvironment;
    host: string;
  }) {
    this.controller = parts.controller;
    this.#server = parts.server;
    this.#environment = parts.environment;
    this.address = { nodeId: CONTROLLER_NODE_ID, host: parts.host, port: parts.server.port };
  }

  /** @throws FileError; NetworkError; Error when the directory holds no controller's state */
  static async open(options: ControllerNodeOptions): Promise<ControllerNode> {
    const directory = resolve(options.directory);
    const host = options.host ?? "127.0.0.1";
    const environment = openEnvironment();
    const { files, clock } = environment;
    try {
      await makeDirectoryDurably(files, directory);
      const timeout = options.sessionTimeoutMs === undefined ? {} : { sessionTimeoutMs: options.sessionTimeoutMs };
      const controller = await AppointedController.open({ files, clock, directory, ...timeout });
      const network = new TcpNetwork();
      const server = await PeerServer.listen({
        network,
        host,
        port: options.port ?? 0,
        handler: (request) => controller.handle(request),
      });
      return new ControllerNode({ controller, server, environment, host });
    } catch (error) {
      await environment.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.controller.close();
    await this.#server.close();
    await this.#environment.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
