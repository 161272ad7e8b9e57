import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { access, copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { runKafkaClass, spawnKafkaClass } from "./kafka.ts";

const CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg";
/** A few seconds on an idle machine. */
const START_MS_MAX = 120_000;
const STOP_MS_MAX = 60_000;
const POLL_MS = 100;
const OUTPUT_QUOTE_CHARS = 4000;
/** They name offsets of files that were in a partition directory before. */
const OFFSET_CHECKPOINTS = [
  "recovery-point-offset-checkpoint",
  "replication-offset-checkpoint",
  "log-start-offset-checkpoint",
];

/** One Apache Kafka node, broker and controller in one process, on free ports of 127.0.0.1. */
export class KafkaBroker {
  readonly bootstrapServer: string;
  /** Kafka's log directory. */
  readonly logDirectory: string;
  readonly #propertiesPath: string;
  readonly #port: number;
  #process: ChildProcess | undefined;
  #output = "";

  private constructor(directory: string, port: number) {
    this.bootstrapServer = `127.0.0.1:${port}`;
    this.#propertiesPath = join(directory, "node.properties");
    this.logDirectory = join(directory, "data");
    this.#port = port;
  }

  /** Formats a node, which does not run yet. */
  static async format(directory: string): Promise<KafkaBroker> {
    const [port, quorumPort] = await freePorts();
    const broker = new KafkaBroker(directory, port);
    await mkdir(directory, { recursive: true });
    await writeFile(broker.#propertiesPath, propertiesOf({ port, quorumPort, logDirectory: broker.logDirectory }));
    const options = ["format", "--cluster-id", CLUSTER_ID, "--config", broker.#propertiesPath];
    await mustRunClass("kafka.tools.StorageTool", options);
    return broker;
  }

  /**
   * Resolves once the node takes connections.
   * @param settings `key=value`, beside those of the properties file
   */
  async start(...settings: readonly string[]): Promise<void> {
    const overrides = settings.flatMap((setting) => ["--override", setting]);
    const child = await spawnKafkaClass("kafka.Kafka", [this.#propertiesPath, ...overrides]);
    this.#process = child;
    // The last resort, when the suite is torn down in the middle: a broker runs on without its parent.
    const killAtExit = () => child.kill("SIGKILL");
    process.once("exit", killAtExit);
    child.once("close", () => process.off("exit", killAtExit));
    this.#output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.#output = (this.#output + text).slice(-OUTPUT_QUOTE_CHARS);
      });
    }
    await this.#waitUntil("takes connections", () => isListening(this.#port));
  }

  /**
   * Stops the node in order.
   * @throws when it has to be killed, or ended before
   */
  async stop(): Promise<void> {
    const child = this.#process;
    if (child === undefined || hasEnded(child)) throw this.#error("does not run");
    const ended = once(child, "close", { signal: AbortSignal.timeout(STOP_MS_MAX) });
    child.kill("SIGTERM");
    try {
      await ended;
    } catch (error) {
      await this.kill();
      throw new Error(`the Kafka broker did not stop within ${STOP_MS_MAX} ms`, { cause: error });
    }
    this.#process = undefined;
  }

  /** Ends the node at once if it runs. */
  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child === undefined || hasEnded(child)) return;
    const ended = once(child, "close");
    child.kill("SIGKILL");
    await ended;
  }

  /** A topic of one partition. Resolves once its directory is there. */
  async createTopic(topic: string): Promise<void> {
    const shape = ["--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1"];
    await this.runTool("org.apache.kafka.tools.TopicCommand", shape);
    const metadataPath = join(this.logDirectory, `${topic}-0`, "partition.metadata");
    await this.#waitUntil(`has ${metadataPath}`, () => exists(metadataPath));
  }

  /** The stopped node takes the files of a partition directory as its partition 0 of a topic that it has. */
  async adopt(topic: string, from: string): Promise<void> {
    const target = join(this.logDirectory, `${topic}-0`);
    const withoutTopicId = async (path: string) =>
      (await readdir(path)).filter((name) => name !== "partition.metadata");
    for (const name of await withoutTopicId(target)) await rm(join(target, name));
    for (const name of await withoutTopicId(from)) await copyFile(join(from, name), join(target, name));
    for (const name of OFFSET_CHECKPOINTS) {
      const path = join(this.logDirectory, name);
      if (await exists(path)) await writeFile(path, withoutPartition(await readFile(path, "utf8"), `${topic} 0 `));
    }
  }

  /**
   * Runs one of Kafka's command-line tools against this node.
   * @returns its standard output
   * @throws when it does not end with 0
   */
  runTool(className: string, args: readonly string[]): Promise<string> {
    return mustRunClass(className, ["--bootstrap-server", this.bootstrapServer, ...args]);
  }

  async #waitUntil(what: string, isSo: () => Promise<boolean>): Promise<void> {
    const deadlineMs = performance.now() + START_MS_MAX;
    while (!(await isSo())) {
      if (this.#process === undefined || hasEnded(this.#process)) throw this.#error(`ended before it ${what}`);
      if (performance.now() > deadlineMs) throw this.#error(`took more than ${START_MS_MAX} ms until it ${what}`);
      await sleep(POLL_MS);
    }
  }

  #error(what: string): Error {
    return new Error(`the Kafka broker ${what}\n${this.#output}`);
  }
}

function propertiesOf(node: { port: number; quorumPort: number; logDirectory: string }): string {
  return [
    "process.roles=broker,controller",
    "node.id=1",
    `listeners=PLAINTEXT://127.0.0.1:${node.port},CONTROLLER://127.0.0.1:${node.quorumPort}`,
    `advertised.listeners=PLAINTEXT://127.0.0.1:${node.port}`,
    "controller.listener.names=CONTROLLER",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    `controller.quorum.voters=1@127.0.0.1:${node.quorumPort}`,
    `log.dirs=${node.logDirectory}`,
    // One partition each, and the cleaner and the checkpoints at once: nothing here waits for time to pass.
    "offsets.topic.num.partitions=1",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "log.cleaner.backoff.ms=100",
    "log.initial.task.delay.ms=100",
    "log.retention.check.interval.ms=200",
    "log.flush.offset.checkpoint.interval.ms=200",
    "log.flush.start.offset.checkpoint.interval.ms=200",
    "",
  ].join("\n");
}

/** An offset checkpoint: a version, the number of lines, and a line for each partition. */
function withoutPartition(checkpoint: string, prefix: string): string {
  const [version = "", , ...lines] = checkpoint.trimEnd().split("\n");
  const kept = lines.filter((line) => !line.startsWith(prefix));
  return [version, String(kept.length), ...kept, ""].join("\n");
}

async function mustRunClass(className: string, args: readonly string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await runKafkaClass(className, args);
  if (exitCode !== 0) throw new Error(`${className} ${args.join(" ")} ended with ${exitCode}\n${stdout}${stderr}`);
  return stdout;
}

/** Both are held at the same time, or the second could be the first again. */
async function freePorts(): Promise<[number, number]> {
  const servers = [createServer(), createServer()] as const;
  const portOf = async (server: (typeof servers)[0]): Promise<number> => {
    await once(server.listen(0, "127.0.0.1"), "listening");
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("a TCP server has a port");
    return address.port;
  };
  const ports: [number, number] = [await portOf(servers[0]), await portOf(servers[1])];
  for (const server of servers) await once(server.close(), "close");
  return ports;
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" });
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}
