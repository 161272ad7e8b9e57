import { spawn } from "node:child_process";
import type { ChildProcess, ChildProcessWithoutNullStreams } from "node:child_process";
import { access, constants, mkdtemp, readdir, rename, rm, stat } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

// Apache Kafka as ordinary jars: fetched by Maven once, run by Java. A missing Java or Maven fails the suites that ask for
// it. They do not skip: a suite that says nothing looks like one that passed.

const KAFKA_VERSION = "4.3.1";
/** By these a folder is known to hold what the suites run: the log's classes, the tools, the broker. */
const KAFKA_JARS = ["kafka-storage", "kafka-tools", "kafka_2.13"].map((name) => `${name}-${KAFKA_VERSION}.jar`);
const HERE = dirname(fileURLToPath(import.meta.url));
const STDERR_QUOTE_CHARS = 4000;

/**
 * The folder with Kafka's jars: `KAFKA_LIBS` as it is, or a cache that Maven fills at the first call.
 * @throws when Java or Maven is missing, or Maven cannot fetch
 */
async function installKafka(): Promise<string> {
  await mustRun("java", ["-version"]);
  const given = process.env["KAFKA_LIBS"];
  if (given !== undefined && given !== "") {
    if (!(await hasKafka(given))) throw new Error(`KAFKA_LIBS=${given} lacks one of ${KAFKA_JARS.join(", ")}`);
    return given;
  }
  const cacheHome = process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache");
  const libs = join(cacheHome, "tidemark-interop", `kafka-broker-${KAFKA_VERSION}`);
  if (!(await hasKafka(libs))) await fetchWithMaven(libs);
  return libs;
}

async function fetchWithMaven(libs: string): Promise<void> {
  // Suites run side by side and may both come here: each fills a folder of its own, and the first rename wins.
  const unfinished = `${libs}.${process.pid}.tmp`;
  const versions = [`-Dkafka.version=${KAFKA_VERSION}`, `-DoutputDirectory=${unfinished}`];
  await mustRun("mvn", ["-q", "-B", "-f", join(HERE, "pom.xml"), ...versions, "dependency:copy-dependencies"]);
  try {
    await rename(unfinished, libs);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    if (!(await hasKafka(libs))) throw error;
  }
}

async function hasKafka(libs: string): Promise<boolean> {
  const names = await readdir(libs).catch((): string[] => []);
  return KAFKA_JARS.every((jar) => names.includes(jar));
}

async function mustRun(command: string, args: readonly string[]): Promise<void> {
  const { exitCode, stdout, stderr } = await run(command, args);
  if (exitCode !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${exitCode}\n${stdout}${stderr}`);
}

export interface ToolResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

function run(command: string, args: readonly string[]): Promise<ToolResult> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
    const output = { stdout: "", stderr: "" };
    child.stdout.setEncoding("utf8").on("data", (text: string) => (output.stdout += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (output.stderr += text));
    child.on("error", (error) => reject(explainSpawnError(command, error)));
    child.on("close", (exitCode) => resolve({ exitCode: exitCode ?? -1, ...output }));
  });
}

function explainSpawnError(command: string, error: Error): Error {
  const isMissing = "code" in error && error.code === "ENOENT";
  const advice = `the interop suites need ${command} on the PATH (a JDK of 17 or newer; Maven, unless KAFKA_LIBS names the jars)`;
  return isMissing ? new Error(advice, { cause: error }) : error;
}

/**
 * What Java needs before the name of a class of Kafka's: its jars, and a log that only says errors, on standard error. Nothing here runs
 * long enough to be worth the second compiler, which takes as much time again as the rest of a start.
 */
function javaOptions(libs: string): string[] {
  const log4j = `-Dlog4j2.configurationFile=${join(HERE, "log4j2.properties")}`;
  return ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", log4j, "-cp", `${libs}/*`];
}

/** Runs a class of Kafka's until it ends. */
export async function runKafkaClass(className: string, args: readonly string[]): Promise<ToolResult> {
  const libs = await installKafka();
  return run("java", [...javaOptions(libs), className, ...args]);
}

/** Compiles one of the source files here against Kafka's jars, runs it, and gives what it printed. @throws when it fails */
export async function runJavaFile(name: string, args: readonly string[]): Promise<string> {
  const libs = await installKafka();
  const { exitCode, stdout, stderr } = await run("java", [...javaOptions(libs), join(HERE, name), ...args]);
  if (exitCode !== 0) throw new Error(`${name} ${args.join(" ")} ended with ${exitCode}\n${stderr}`);
  return stdout;
}

/** Starts a class of Kafka's that runs until it is stopped: the caller does that. */
export async function spawnKafkaClass(className: string, args: readonly string[]): Promise<ChildProcess> {
  const libs = await installKafka();
  return spawn("java", [...javaOptions(libs), className, ...args], { stdio: ["ignore", "pipe", "pipe"] });
}

/** Runs Kafka's dump tool (`kafka-dump-log.sh`) on files. */
export function dumpLogSegments(files: readonly string[], options: readonly string[]): Promise<ToolResult> {
  return runKafkaClass("org.apache.kafka.tools.DumpLogSegments", ["--files", files.join(","), ...options]);
}

/** A fresh folder, on a memory file system where there is one: Kafka syncs a file per new epoch, and no suite here is about power. */
export async function makeScratchDirectory(): Promise<string> {
  const shared = "/dev/shm";
  const isUsable = await access(shared, constants.W_OK).then(
    async () => (await stat(shared)).isDirectory(),
    () => false,
  );
  return mkdtemp(join(isUsable ? shared : tmpdir(), "tidemark-interop-"));
}

/** A refusal by Kafka: an exception that its class threw. */
export class OracleError extends Error {
  override readonly name = "OracleError";
  /** Simple name of the Java exception. */
  readonly exception: string;

  constructor(exception: string, message: string) {
    super(`${exception}: ${message}`);
    this.exception = exception;
  }
}

interface Waiting {
  readonly resolve: (answer: string) => void;
  readonly reject: (error: Error) => void;
}

/**
 * A running Oracle.java. Commands are answered in order, so a caller may send many and look at the answers later; the
 * caller bounds how many.
 */
export class Oracle {
  readonly #process: ChildProcessWithoutNullStreams;
  readonly #waiting: Waiting[] = [];
  readonly #ended: Promise<void>;
  #nextWaiting = 0;
  #stderr = "";
  #failure: Error | undefined;

  private constructor(process: ChildProcessWithoutNullStreams) {
    this.#process = process;
    process.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_QUOTE_CHARS);
    });
    createInterface({ input: process.stdout }).on("line", (line) => this.#answer(line));
    process.stdin.on("error", (error) => this.#fail(error)); // EPIPE: the end of the process says more.
    process.on("error", (error) => this.#fail(explainSpawnError("java", error)));
    this.#ended = new Promise((resolve) => {
      process.on("close", (exitCode) => {
        this.#fail(new Error(`the oracle ended with ${exitCode}\n${this.#stderr}`));
        resolve();
      });
    });
  }

  /** @param scratchDirectory where Kafka's caches put their files */
  static async start(scratchDirectory: string): Promise<Oracle> {
    const libs = await installKafka();
    const temporary = `-Djava.io.tmpdir=${scratchDirectory}`;
    const oracle = new Oracle(spawn("java", [temporary, ...javaOptions(libs), join(HERE, "Oracle.java")]));
    await oracle.ask("epoch new");
    return oracle;
  }

  /**
   * What stands behind "ok" in the answer.
   * @throws OracleError when Kafka refused
   */
  ask(command: string): Promise<string> {
    const failure = this.#failure;
    if (failure !== undefined) return Promise.reject(failure);
    const answer = new Promise<string>((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
    });
    this.#process.stdin.write(`${command}\n`);
    return answer;
  }

  async close(): Promise<void> {
    this.#process.stdin.end();
    await this.#ended;
  }

  #answer(line: string): void {
    const waiting = this.#waiting[this.#nextWaiting++];
    if (this.#nextWaiting === this.#waiting.length) {
      this.#waiting.length = 0;
      this.#nextWaiting = 0;
    }
    const [, kind = "", rest = ""] = /^(ok|error) ?(.*)$/s.exec(line) ?? [];
    if (waiting === undefined || kind === "") {
      this.#fail(new Error(`the oracle printed ${JSON.stringify(line)}, which answers nothing`));
    } else if (kind === "ok") {
      waiting.resolve(rest);
    } else {
      const [exception = "", ...message] = rest.split(" ");
      waiting.reject(new OracleError(exception, message.join(" ")));
    }
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#waiting.splice(0).slice(this.#nextWaiting)) reject(this.#failure);
    this.#nextWaiting = 0;
  }
}
