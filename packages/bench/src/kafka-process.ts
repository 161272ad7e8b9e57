import { spawn } from "node:child_process";
import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { installKafkaJars, KAFKA_DIRECTORY } from "./kafka-jars.ts";
import { PeerUnavailableError } from "./peers.ts";
import type { KafkaLogProcess } from "./peers.ts";

const HEAP_BYTES_MAX = "1g";
const STDERR_QUOTE_CHARS = 400;

interface Waiting {
  readonly resolve: (answer: string) => void;
  readonly reject: (error: Error) => void;
}

/** A running KafkaLog.java: its commands and answers are told there. */
export class KafkaProcess implements KafkaLogProcess {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #waiting: Waiting[] = [];
  readonly #warm = new Set<string>();
  #stderr = "";
  #failure: Error | undefined;

  private constructor(child: ChildProcessWithoutNullStreams) {
    this.#child = child;
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_QUOTE_CHARS);
    });
    child.stdin.on("error", (error) => this.#fail(error));
    child.on("error", (error) => this.#fail(explainSpawnError(error)));
    child.on("close", (code) =>
      this.#fail(new PeerUnavailableError(`Java ended with ${code}: ${this.#stderr.trim()}`)),
    );
    createInterface({ input: child.stdout }).on("line", (line) => this.#answer(line));
  }

  /** Fetches the jars if they are not there, and starts Java. @throws PeerUnavailableError */
  static async start(onProgress: (what: string) => void): Promise<KafkaProcess> {
    const libs = await installKafkaJars(onProgress);
    const log4j = `-Dlog4j2.configurationFile=${fileURLToPath(new URL("log4j2.properties", KAFKA_DIRECTORY))}`;
    const program = fileURLToPath(new URL("KafkaLog.java", KAFKA_DIRECTORY));
    const options = [`-Xmx${HEAP_BYTES_MAX}`, "-XX:+UseSerialGC", log4j, "-cp", `${libs}/*`, program];
    return new KafkaProcess(spawn("java", options, { stdio: ["pipe", "pipe", "pipe"] }));
  }

  async run(command: string): Promise<string[]> {
    if (this.#failure !== undefined) throw this.#failure;
    const answer = await new Promise<string>((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#child.stdin.write(`${command}\n`);
    });
    const [word, ...rest] = answer.trim().split(" ");
    if (word !== "ok") throw new Error(rest.join(" "));
    return rest;
  }

  isCold(kind: string): boolean {
    if (this.#warm.has(kind)) return false;
    this.#warm.add(kind);
    return true;
  }

  /** Ends the process. */
  async close(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null || this.#child.pid === undefined) return;
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
  }

  #answer(line: string): void {
    this.#waiting.shift()?.resolve(line);
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#waiting.splice(0)) reject(this.#failure);
  }
}

function explainSpawnError(error: Error): Error {
  const isMissing = "code" in error && error.code === "ENOENT";
  return new PeerUnavailableError(isMissing ? "Java is not on the PATH" : error.message, { cause: error });
}
