import { readFileSync, statfsSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism, cpus, loadavg, release, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { PEERS_DIRECTORY } from "./installed-peers.ts";
import { KAFKA_VERSION } from "./kafka-jars.ts";
import type { BenchOptions } from "./options.ts";
import type { Latencies, Result, Skipped } from "./workload.ts";

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly platform: string;
  readonly release: string;
  readonly arch: string;
  /** Processes that ran or waited to, on average in the minute before the run. Above `cores` the figures are those of a busy machine. */
  readonly loadAverage: number;
  /** Of the temporary directory, where everything is written. */
  readonly fileSystem: string;
}

/** What `--json` writes. */
export interface Report {
  readonly machine: Machine;
  /** Version, without the v. */
  readonly node: string;
  /** Packages that take part, by name. */
  readonly versions: Readonly<Record<string, string>>;
  readonly settings: { readonly quick: boolean; readonly rounds: number; readonly code: "compiled" | "sources" };
  readonly results: readonly Result[];
  /** Rows without figures. */
  readonly skipped: readonly Skipped[];
  /** Of single operations, for the workloads that are about them. */
  readonly latencies: readonly Latencies[];
}

/** Closures cost more in sources that tsx transforms while they load: such figures do not compare with those of compiled code. */
const RUNNING_CODE: Report["settings"]["code"] = import.meta.url.endsWith(".ts") ? "sources" : "compiled";

/** A report without what was measured. @param directory where things are written */
export function describeRun(
  { quick, rounds }: BenchOptions,
  directory: string,
): Omit<Report, "results" | "skipped" | "latencies"> {
  return {
    machine: describeMachine(directory),
    node: process.versions.node,
    versions: packageVersions(),
    settings: { quick, rounds, code: RUNNING_CODE },
  };
}

function describeMachine(directory: string): Machine {
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    loadAverage: loadavg()[0] ?? 0,
    platform: process.platform,
    release: release(),
    arch: process.arch,
    fileSystem: fileSystemName(statfsSync(directory).type),
  };
}

/** By the magic numbers of Linux (statfs(2)). */
function fileSystemName(type: number): string {
  const names: Readonly<Record<number, string>> = {
    0xef53: "ext4",
    0x5846_5342: "xfs",
    0x9123_683e: "btrfs",
    0x0102_1994: "tmpfs",
    0x794c_7630: "overlayfs",
    0x2fc1_2fc1: "zfs",
  };
  return names[type] ?? `0x${type.toString(16)}`;
}

function packageVersions(): Record<string, string> {
  const here = createRequire(import.meta.url);
  const wire = createRequire(import.meta.resolve("@tidemark/wire"));
  const runtime = createRequire(import.meta.resolve("@tidemark/runtime-node"));
  const own = Object.fromEntries(
    [
      { name: "@tidemark/server", from: here },
      { name: "lmdb", from: here },
      { name: "benchmark", from: here },
      { name: "@node-rs/crc32", from: wire },
      { name: "piscina", from: runtime },
    ].map(({ name, from }) => [name, versionOf(name, from)]),
  );
  return { ...own, ...peerVersions(), "Apache Kafka": KAFKA_VERSION };
}

/** As they are pinned; whether one takes part is told in its rows. */
function peerVersions(): Readonly<Record<string, string>> {
  const manifest = readFileSync(new URL("package.json", PEERS_DIRECTORY), "utf8");
  return (JSON.parse(manifest) as { optionalDependencies: Record<string, string> }).optionalDependencies;
}

/** From the nearest package.json above the package's entry: not every package exports its own. */
function versionOf(name: string, from: NodeJS.Require): string {
  try {
    for (
      let directory = dirname(from.resolve(name));
      dirname(directory) !== directory;
      directory = dirname(directory)
    ) {
      const contents = readIfPresent(join(directory, "package.json"));
      const described = contents === undefined ? {} : (JSON.parse(contents) as { name?: string; version?: string });
      if (described.name === name && described.version !== undefined) return described.version;
    }
  } catch {
    return "not installed";
  }
  return "unknown";
}

function readIfPresent(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
