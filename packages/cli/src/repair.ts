import { stat } from "node:fs/promises";

import type { DamagedPartition } from "@tidemark/log";
import { repairDirectory } from "@tidemark/server";

import { CommandError, EXIT_FOUND_PROBLEMS, EXIT_OK } from "./errors.ts";
import { formatCount, plural } from "./format.ts";
import { printLine, styled } from "./terminal.ts";

/**
 * Lists what a directory's partitions have lost, and with `acceptLoss` gives it up, so that they can be appended to again. Takes the lock.
 * @param path what `Tidemark.open` was given
 * @returns EXIT_FOUND_PROBLEMS when there is damage and it was not accepted
 * @throws CommandError, TidemarkError
 */
export async function repair(
  path: string,
  options: { readonly acceptLoss: boolean },
  signal: AbortSignal,
): Promise<number> {
  if (!(await stat(path)).isDirectory()) throw new CommandError(`${path}: not a directory`);
  const { acceptLoss } = options;
  const { partitions, partitionsRead, isRepaired } = await repairDirectory(path, {
    acceptLoss,
    checkCancelled: () => signal.throwIfAborted(),
  });
  if (partitions.length === 0) {
    printLine(`${styled(["green", "bold"], "OK")}: ${plural(partitionsRead, "partition")}, nothing to give up`);
    return EXIT_OK;
  }
  let offsets = 0;
  for (const partition of partitions) offsets += printLosses(partition);
  const lost = `${formatCount(offsets)} ${offsets === 1 ? "offset" : "offsets"} of ${plural(partitions.length, "partition")}`;
  if (isRepaired) {
    printLine(`${styled(["green", "bold"], "REPAIRED")}: ${lost} given up; reads pass over them, and appends go on`);
    return EXIT_OK;
  }
  printLine(`${styled(["red", "bold"], "DAMAGED")}: ${lost} cannot be read. Nothing was changed. Restore them, or run`);
  printLine(`  tidemark repair --accept-loss ${path}`);
  return EXIT_FOUND_PROBLEMS;
}

/** @returns how many offsets there are */
function printLosses({ topic, partition, directory, lost }: DamagedPartition): number {
  let offsets = 0;
  for (const { fromOffset, toOffset, path, fromBytes, toBytes, reason } of lost) {
    offsets += toOffset - fromOffset;
    const range = toOffset - fromOffset === 1 ? `offset ${fromOffset}` : `offsets ${fromOffset} to ${toOffset - 1}`;
    const place = path === undefined ? `no file in ${directory}` : `${path}, bytes ${fromBytes} to ${toBytes}`;
    printLine(`${styled("red", "lost")}   ${topic}-${partition}: ${range}: ${place}: ${reason}`);
  }
  return offsets;
}
