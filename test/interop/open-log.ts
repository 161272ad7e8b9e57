import { mkdir } from "node:fs/promises";
import { basename, dirname } from "node:path";

import type { Clock } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG, LogDirectory, parseDirectoryName, PartitionLog } from "@tidemark/log";
import type { LogConfig, PartitionLogOptions } from "@tidemark/log";
import { NodeFileSystem, SystemClock } from "@tidemark/runtime-node";
import { SimulatedEnvironment } from "@tidemark/simulator";

/** What the suites here differ in. */
export interface OpenLogOptions {
  /** Beside the defaults. */
  readonly config?: Partial<LogConfig>;
  /** Default true. */
  readonly wasCleanShutdown?: boolean;
  /** Default true: ours wrote the directory. */
  readonly areGapsRecorded?: boolean;
  /** Default: the system's. */
  readonly clock?: Clock;
  /** Kept from one open of a directory to the next. Default: nothing is known but the files. */
  readonly environment?: SimulatedEnvironment;
}

/**
 * Our log over real files in `directory`, which is named as a partition's (`orders-0`) and made where it is not there. Producers
 * are never forgotten: the times of the batches are nobody's present.
 * @throws LogError as `PartitionLog.open`
 */
export async function openLog(directory: string, options: OpenLogOptions = {}): Promise<PartitionLog> {
  const { state, random, workers } = options.environment ?? new SimulatedEnvironment({ seed: 1 });
  const name = parseDirectoryName(basename(directory));
  if (name?.type !== "partition") throw new Error(`${directory} is named as no partition`);
  await mkdir(directory, { recursive: true });
  const log: PartitionLogOptions = {
    files: new NodeFileSystem(),
    clock: options.clock ?? new SystemClock(),
    state,
    random,
    workers,
    directory,
    topic: name.topic,
    partition: name.partition,
    config: { ...DEFAULT_LOG_CONFIG, ...options.config },
    wasCleanShutdown: options.wasCleanShutdown ?? true,
    areGapsRecorded: options.areGapsRecorded ?? true,
    producerIdExpirationMs: Number.MAX_SAFE_INTEGER,
    logDirectory: new LogDirectory(dirname(directory)),
  };
  return PartitionLog.open(log);
}
