import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { KafkaProcess } from "./kafka-process.ts";
import { PeerUnavailableError } from "./peers.ts";
import type { Peers } from "./peers.ts";

/** A workspace of its own beside `src` and `dist`: see docs/decisions/0005-benchmark-peers-apart.md. */
export const PEERS_DIRECTORY = new URL("../peers/", import.meta.url);
/** Says for which lock file and which Node the packages were installed: one of them is compiled against Node's headers. */
const STAMP = new URL("node_modules/.tidemark-installed", PEERS_DIRECTORY);
const PNPM = "pnpm@12.4.2";

/**
 * The peers of a run: packages are installed when the first one is asked for, Java is started when Kafka is.
 * @param onProgress told what takes long
 */
export class InstalledPeers implements Peers {
  readonly #onProgress: (what: string) => void;
  readonly #require = createRequire(new URL("package.json", PEERS_DIRECTORY));
  #installation: Promise<void> | undefined;
  #kafka: Promise<KafkaProcess> | undefined;

  constructor(onProgress: (what: string) => void) {
    this.#onProgress = onProgress;
  }

  async load(packageName: string): Promise<unknown> {
    this.#installation ??= install(this.#onProgress);
    await this.#installation;
    try {
      return this.#require(packageName) as unknown;
    } catch (error) {
      const message = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
      throw new PeerUnavailableError(`does not load: ${message}`, { cause: error });
    }
  }

  kafka(): Promise<KafkaProcess> {
    this.#kafka ??= KafkaProcess.start(this.#onProgress);
    return this.#kafka;
  }

  async close(): Promise<void> {
    const kafka = await this.#kafka?.catch(() => undefined);
    await kafka?.close();
  }
}

/** What the stamp has to say. */
function expectedStamp(): string {
  const lock = readFileSync(new URL("pnpm-lock.yaml", PEERS_DIRECTORY));
  return `${createHash("sha256").update(lock).digest("hex")} ${process.platform} ${process.arch} ${process.versions.modules}\n`;
}

async function install(onProgress: (what: string) => void): Promise<void> {
  const stamp = expectedStamp();
  if (readIfPresent(STAMP) === stamp) return;
  onProgress("installing the peers, once: one of them compiles for about two minutes");
  const isForce = readIfPresent(STAMP) !== undefined; // Built for another Node: what is there does not load.
  const args = ["--yes", PNPM, "install", "--frozen-lockfile", ...(isForce ? ["--force"] : [])];
  const { code, output } = await run("npx", args);
  if (code !== 0) throw new PeerUnavailableError(`the peers could not be installed: ${output}`);
  writeFileSync(STAMP, stamp);
}

const OUTPUT_QUOTE_CHARS = 200;

function run(command: string, args: readonly string[]): Promise<{ code: number | null; output: string }> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: fileURLToPath(PEERS_DIRECTORY), stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    const keep = (text: string): void => {
      output = (output + text).slice(-OUTPUT_QUOTE_CHARS);
    };
    child.stdout.setEncoding("utf8").on("data", keep);
    child.stderr.setEncoding("utf8").on("data", keep);
    child.on("error", (error) => resolve({ code: null, output: error.message }));
    child.on("close", (code) => resolve({ code, output: output.trim().replaceAll(/\s+/gu, " ") }));
  });
}

function readIfPresent(url: URL): string | undefined {
  try {
    return readFileSync(url, "utf8");
  } catch {
    return undefined;
  }
}
