import { spawn } from "node:child_process";
import { readdir, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { PeerUnavailableError } from "./peers.ts";

/** Beside `src` and `dist`. */
export const KAFKA_DIRECTORY = new URL("../kafka/", import.meta.url);
export const KAFKA_VERSION = "4.3.1";

/** By this a folder is known to hold the log class. */
const STORAGE_JAR = `kafka-storage-${KAFKA_VERSION}.jar`;

/**
 * The folder with Kafka's jars: `KAFKA_LIBS`, what the interop suites fetched, or a cache of our own that Maven fills once.
 * @throws PeerUnavailableError where Maven is missing or cannot fetch
 */
export async function installKafkaJars(onProgress: (what: string) => void): Promise<string> {
  const given = process.env["KAFKA_LIBS"];
  if (given !== undefined && given !== "") {
    if (await hasJars(given)) return given;
    throw new PeerUnavailableError(`KAFKA_LIBS=${given} has no ${STORAGE_JAR}`);
  }
  const cacheHome = process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache");
  const own = join(cacheHome, "tidemark-bench", `kafka-storage-${KAFKA_VERSION}`);
  for (const libs of [join(cacheHome, "tidemark-interop", `kafka-broker-${KAFKA_VERSION}`), own]) {
    if (await hasJars(libs)) return libs;
  }
  onProgress(`fetching Apache Kafka ${KAFKA_VERSION} with Maven, once`);
  await fetchWithMaven(own);
  return own;
}

async function hasJars(libs: string): Promise<boolean> {
  const names = await readdir(libs).catch((): string[] => []);
  return names.includes(STORAGE_JAR);
}

async function fetchWithMaven(libs: string): Promise<void> {
  // Two runs may both come here: each fills a folder of its own, and the first rename wins.
  const unfinished = `${libs}.${process.pid}.tmp`;
  const pom = fileURLToPath(new URL("pom.xml", KAFKA_DIRECTORY));
  try {
    const options = [`-Dkafka.version=${KAFKA_VERSION}`, `-DoutputDirectory=${unfinished}`];
    await runMaven(["-q", "-B", "-f", pom, ...options, "dependency:copy-dependencies"]);
    await rename(unfinished, libs);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    if (!(await hasJars(libs))) throw error;
  }
}

function runMaven(args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn("mvn", args, { stdio: "ignore" });
    child.on("error", () =>
      reject(new PeerUnavailableError("Kafka's jars are not here, and Maven is not on the PATH")),
    );
    child.on("close", (code) => {
      if (code === 0) resolve();
      else
        reject(
          new PeerUnavailableError(`Kafka's jars are not here, and Maven could not fetch them (exit code ${code})`),
        );
    });
  });
}
