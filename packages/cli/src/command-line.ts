import { randomInt } from "node:crypto";

import { cac, type CAC } from "cac";

import { COMPRESSION_LEVEL_RANGE, COMPRESSIONS } from "./append-options.ts";
import { flagOption, integerOption, parseInteger, protectValues, type RawOptions, textOption } from "./arguments.ts";
import { BROKER_COMMAND, type BrokerTask } from "./demo/cluster/broker-messages.ts";
import { DEFAULT_SEGMENT_BYTES, SEGMENT_BYTES_MIN } from "./demo/demo-options.ts";
import { INGEST_COMMAND, type IngestTask } from "./demo/messages.ts";
import { CommandError, describeError, EXIT_CANNOT, EXIT_OK, Interrupted } from "./errors.ts";
import type { OffsetSpec } from "@tidemark/server";

import { FETCH_FORMATS, type FetchFormat, type FetchFrom } from "./fetch-options.ts";
import { interruptible } from "./interrupt.ts";
import type { SimulateWhat } from "./simulate.ts";
import { printLine } from "./terminal.ts";
import { VERSION } from "./version.ts";

// Each command is loaded when it runs: most need no engine, whose parts take a while to load.

const DEFAULT_DIRECTORY = "./data";
const OFFSET_RANGE = { min: 0, max: Number.MAX_SAFE_INTEGER };
const PARTITION_RANGE = { min: 0, max: 2 ** 31 - 1 };
const SEED_RANGE = { min: 0, max: 2 ** 32 - 1 };

/**
 * Runs the `tidemark` command.
 *
 * Whatever goes wrong becomes one line on standard error; with TIDEMARK_DEBUG=1 the stack follows.
 * @param args without the interpreter and the script
 * @returns the exit code: 0 done; 1 done, and something is wrong with the data; 2 could not be done; 128 + n stopped by signal n
 */
export async function runCommandLine(args: readonly string[]): Promise<number> {
  // lmdb prints there, with a stack, what it throws as well. We say things once.
  if (process.env["TIDEMARK_DEBUG"] !== "1") console.error = () => {};
  try {
    const [first, task] = args;
    if (first === BROKER_COMMAND) {
      const { runBroker } = await import("./demo/cluster/broker.ts");
      return await runBroker(JSON.parse(task ?? "null") as BrokerTask);
    }
    if (first === INGEST_COMMAND) {
      const { runIngest } = await import("./demo/ingest.ts");
      return await runIngest(JSON.parse(task ?? "null") as IngestTask);
    }
    return await interruptible((signal) => dispatch(args, signal));
  } catch (error) {
    if (error instanceof Interrupted) return error.exitCode;
    return reportError(error);
  }
}

function reportError(error: unknown): number {
  process.stderr.write(`tidemark: ${describeError(error)}\n`);
  if (process.env["TIDEMARK_DEBUG"] === "1" && error instanceof Error) process.stderr.write(`${chainOf(error)}\n`);
  return error instanceof CommandError ? error.exitCode : EXIT_CANNOT;
}

function chainOf(error: Error): string {
  const stack = error.stack ?? error.message;
  return error.cause instanceof Error ? `${stack}\ncaused by ${chainOf(error.cause)}` : stack;
}

async function dispatch(args: readonly string[], signal: AbortSignal): Promise<number> {
  const cli = defineCommands(signal);
  const words = protectValues(args, cli);
  cli.parse(["node", "tidemark", ...words], { run: false });
  if (cli.options["help"] === true) return EXIT_OK; // Printed by cac.
  if (cli.options["version"] === true) {
    printLine(VERSION);
    return EXIT_OK;
  }
  if (cli.matchedCommand === undefined) {
    const unknown = cli.args[0];
    if (unknown === undefined && words.length > 0) throw new CommandError(`unknown option ${words[0]?.split("=")[0]}`);
    cli.outputHelp();
    throw new CommandError(unknown === undefined ? "no command given" : `unknown command ${JSON.stringify(unknown)}`);
  }
  try {
    return await (cli.runMatchedCommand() as Promise<number>);
  } catch (error) {
    if (error instanceof Error && error.name === "CACError")
      throw new CommandError(lowerFirst(error.message).replaceAll("`", ""));
    throw error;
  }
}

function defineCommands(signal: AbortSignal): CAC {
  const cli = cac("tidemark");
  const directory = ["--directory <dir>", `Directory of the log (default: ${DEFAULT_DIRECTORY})`] as const;

  cli
    .command(
      "demo",
      "Ingest real records into three brokers, kill the leader twice, prove that nothing acknowledged is lost",
    )
    .option("--nodes <number>", "3 brokers, or 1: a log in one process, which is killed (default: 3)")
    .option("--input <file>", "Lines to ingest, one record each (default: 200,000 flights of vega-datasets)")
    .option("--directory <dir>", "Work here and leave the log: a new or empty directory, or one of an earlier demo")
    .option("--keep", "Do not remove the temporary directory at the end")
    .option("--report <file>", "Write verdict and figures as JSON")
    .option("--seed <number>", "Decides at which acknowledged counts to kill (default: random, printed)")
    .option("--segment-bytes <bytes>", `Size of a segment (default: ${DEFAULT_SEGMENT_BYTES})`)
    .action(async (options: RawOptions) => {
      const { runDemo } = await import("./demo/run-demo.ts");
      return runDemo(
        {
          nodes: nodesOption(options),
          inputPath: textOption(options, "input"),
          directory: textOption(options, "directory"),
          keep: flagOption(options, "keep"),
          reportPath: textOption(options, "report"),
          seed: integerOption(options, "seed", SEED_RANGE) ?? randomInt(SEED_RANGE.max),
          segmentBytes:
            integerOption(options, "segmentBytes", { min: SEGMENT_BYTES_MIN, max: 2 ** 30 }) ?? DEFAULT_SEGMENT_BYTES,
        },
        signal,
      );
    });

  cli
    .command("append <topic>", "Append lines of a file or of standard input, one record each")
    .option(...directory)
    .option("--file <file>", "Read lines from here (default: standard input)")
    .option("--key-separator <text>", "What stands before the first of these in a line is the record's key")
    .option("--partition <number>", "Append to this partition (default: by key)")
    .option(
      "--compression <codec>",
      `Set the topic to ${COMPRESSIONS.join(", ")} (default: as it is; none for a new one)`,
    )
    .option("--compression-level <number>", "gzip 1 to 9, zstd -131072 to 22 (default: the codec's own)")
    .action(async (topic: string, options: RawOptions) => {
      const { appendLines } = await import("./append.ts");
      return appendLines(
        {
          topic,
          directory: textOption(options, "directory") ?? DEFAULT_DIRECTORY,
          filePath: textOption(options, "file"),
          keySeparator: textOption(options, "keySeparator"),
          partition: integerOption(options, "partition", PARTITION_RANGE),
          compression: compressionOption(options),
          compressionLevel: integerOption(options, "compressionLevel", COMPRESSION_LEVEL_RANGE),
        },
        signal,
      );
    });

  cli
    .command("fetch <topic>", "Print records")
    .option(...directory)
    .option("--partition <number>", "Fetch from this partition (default: 0)")
    .option("--from <offset>", "earliest, latest or an offset (default: earliest)")
    .option("--max-records <count>", "Stop after so many records")
    .option("--follow", "Wait for more records at the end of the log")
    .option("--format <format>", "value: the bytes and a line break; json; hex (default: value)")
    .action(async (topic: string, options: RawOptions) => {
      const { fetchRecords } = await import("./fetch.ts");
      return fetchRecords(
        {
          topic,
          directory: textOption(options, "directory") ?? DEFAULT_DIRECTORY,
          partition: integerOption(options, "partition", PARTITION_RANGE) ?? 0,
          from: fromOption(options),
          maxRecords: integerOption(options, "maxRecords", OFFSET_RANGE),
          follow: flagOption(options, "follow"),
          format: formatOption(options),
        },
        signal,
      );
    });

  cli
    .command("offsets <topic>", "Print an offset of each partition, as topic:partition:offset")
    .option(...directory)
    .option("--at <time>", "earliest, latest, max-timestamp, or a time: ms or 2026-01-31T12:00:00Z (default: latest)")
    .action(async (topic: string, options: RawOptions) => {
      const { listOffsets } = await import("./offsets.ts");
      return listOffsets({
        topic,
        directory: textOption(options, "directory") ?? DEFAULT_DIRECTORY,
        at: atOption(options),
      });
    });

  cli
    .command("dump <...files>", "Print batches of a .log file, entries of an .index, lines of a checkpoint")
    .option("--records", "Also each record of a .log file")
    .action(async (files: string[], options: RawOptions) => {
      const { dumpFiles } = await import("./dump.ts");
      return dumpFiles(files, { records: flagOption(options, "records") });
    });

  cli.command("verify <dir>", "Check every file of a log directory; never writes").action(async (path: string) => {
    const { verify } = await import("./verify.ts");
    return verify(path, signal);
  });

  cli
    .command("repair <dir>", "List the offsets that a directory has lost; given up, its partitions take appends again")
    .option("--accept-loss", "Give them up")
    .action(async (path: string, options: RawOptions) => {
      const { repair } = await import("./repair.ts");
      return repair(path, { acceptLoss: flagOption(options, "acceptLoss") }, signal);
    });

  cli
    .command(
      "describe <...dirs>",
      "Print leader, epoch, ISR, LEO, HW, log start and epoch cache of replicas; never writes",
    )
    .option("--json", "As JSON")
    .action(async (paths: string[], options: RawOptions) => {
      const { describe } = await import("./describe.ts");
      return describe(paths, { json: flagOption(options, "json") });
    });

  cli
    .command(
      "simulate",
      "Run clusters under simulated faults, by seed, and check the rules of replication all the while",
    )
    .option("--seed <number>", "One seed; with --minutes the first (default: random)")
    .option("--seeds <first..last>", "All of these seeds")
    .option("--minutes <number>", "One seed after another for so long")
    .option("--plan <file>", "A plan that --shrink wrote, or one edited by hand")
    .option("--html <file>", "Write a page that plays the one run")
    .option("--trace", "Print every step of the one run")
    .option("--shrink <file>", "If a rule is broken: look for the smallest plan that breaks it, and write it here")
    .option("--ledger <file>", "Append a line of JSON about these runs")
    .action(async (options: RawOptions) => {
      const { runSimulate } = await import("./simulate.ts");
      return runSimulate(
        {
          what: simulateWhat(options),
          htmlPath: textOption(options, "html"),
          trace: flagOption(options, "trace"),
          shrinkPath: textOption(options, "shrink"),
          ledgerPath: textOption(options, "ledger"),
        },
        signal,
      );
    });

  cli.help();
  cli.globalCommand.option("-v, --version", "Display the version");
  return cli;
}

function nodesOption(options: RawOptions): 1 | 3 {
  const text = textOption(options, "nodes") ?? "3";
  if (text === "1") return 1;
  if (text === "3") return 3;
  throw new CommandError(`--nodes must be 1 or 3, not ${JSON.stringify(text)}`);
}

function simulateWhat(options: RawOptions): SimulateWhat {
  const seed = integerOption(options, "seed", SEED_RANGE);
  const seeds = textOption(options, "seeds");
  const minutes = integerOption(options, "minutes", { min: 1, max: 24 * 60 });
  const path = textOption(options, "plan");
  const ways = [seed !== undefined && minutes === undefined, seeds, minutes, path].filter(
    (way) => way !== undefined && way !== false,
  );
  if (ways.length > 1 || (seed !== undefined && path !== undefined))
    throw new CommandError("one of --seed, --seeds, --minutes and --plan says what to run");
  if (path !== undefined) return { type: "plan", path };
  if (minutes !== undefined) return { type: "minutes", first: seed ?? randomInt(SEED_RANGE.max), minutes };
  if (seeds === undefined) {
    const only = seed ?? randomInt(SEED_RANGE.max);
    return { type: "seeds", first: only, last: only };
  }
  const [, from = "", to = ""] = /^(\d+)\.\.(\d+)$/u.exec(seeds) ?? [];
  const first = parseInteger(from, "--seeds", SEED_RANGE);
  const last = parseInteger(to, "--seeds", SEED_RANGE);
  if (first > last) throw new CommandError(`--seeds ends before it begins: ${seeds}`);
  return { type: "seeds", first, last };
}

function fromOption(options: RawOptions): FetchFrom {
  const text = textOption(options, "from") ?? "earliest";
  if (text === "earliest" || text === "latest") return text;
  if (!/^\d/u.test(text))
    throw new CommandError(`--from must be earliest, latest or an offset, not ${JSON.stringify(text)}`);
  return parseInteger(text, "--from", OFFSET_RANGE);
}

/** A time without a zone is UTC, as records' times are shown. */
function atOption(options: RawOptions): OffsetSpec {
  const text = textOption(options, "at") ?? "latest";
  if (text === "earliest" || text === "latest" || text === "max-timestamp") return text;
  const timestamp = /^\d+$/u.test(text)
    ? Number(text)
    : Date.parse(/(Z|[+-]\d\d:\d\d)$/u.test(text) ? text : `${text}Z`);
  if (Number.isSafeInteger(timestamp) && timestamp >= 0) return { timestamp };
  throw new CommandError(`--at must be earliest, latest, max-timestamp or a time, not ${JSON.stringify(text)}`);
}

function formatOption(options: RawOptions): FetchFormat {
  const text = textOption(options, "format") ?? "value";
  const format = FETCH_FORMATS.find((candidate) => candidate === text);
  if (format === undefined) {
    throw new CommandError(`--format must be one of ${FETCH_FORMATS.join(", ")}, not ${JSON.stringify(text)}`);
  }
  return format;
}

function compressionOption(options: RawOptions): (typeof COMPRESSIONS)[number] | undefined {
  const text = textOption(options, "compression");
  if (text === undefined) return undefined;
  const codec = COMPRESSIONS.find((candidate) => candidate === text);
  if (codec === undefined) {
    throw new CommandError(`--compression must be one of ${COMPRESSIONS.join(", ")}, not ${JSON.stringify(text)}`);
  }
  return codec;
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
