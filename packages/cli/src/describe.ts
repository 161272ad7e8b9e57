import { describeDirectories, type ReplicaFiles } from "@tidemark/server";
import Table from "cli-table3";

import { EXIT_FOUND_PROBLEMS, EXIT_OK } from "./errors.ts";
import { formatCount } from "./format.ts";
import { printLine, styled } from "./terminal.ts";

/**
 * Prints what the files of brokers show about their replicas. Asks no process, takes no lock and never writes.
 * @param paths directories of brokers, of a controller, or one that holds them
 * @returns EXIT_FOUND_PROBLEMS when something could not be read
 * @throws TidemarkError when a directory holds no log
 */
export async function describe(paths: readonly string[], options: { readonly json: boolean }): Promise<number> {
  const replicas = await describeDirectories(paths);
  if (options.json) printLine(JSON.stringify(replicas, undefined, 2));
  else print(replicas);
  return replicas.some(({ problems }) => problems.length > 0) ? EXIT_FOUND_PROBLEMS : EXIT_OK;
}

function print(replicas: readonly ReplicaFiles[]): void {
  if (replicas.length === 0) printLine("no partitions");
  for (const [name, group] of byPartition(replicas)) {
    const decided = group[0]?.controller;
    const isr =
      decided === undefined
        ? ""
        : `: leader ${leaderOf(decided.leader)}, epoch ${decided.leaderEpoch}, ISR ${decided.isr.join(",")}`;
    printLine(styled("bold", `${name}${isr}`));
    printLine(tableOf(group));
  }
  for (const { directory, problems } of replicas) {
    for (const problem of problems) printLine(`${styled("red", "problem")}  ${directory}: ${problem}`);
  }
}

function leaderOf(leader: number): string {
  return leader < 0 ? "none" : `${leader}`;
}

function byPartition(replicas: readonly ReplicaFiles[]): ReadonlyMap<string, readonly ReplicaFiles[]> {
  const groups = new Map<string, ReplicaFiles[]>();
  for (const replica of replicas) {
    const name = `${replica.topic}-${replica.partition}`;
    groups.set(name, [...(groups.get(name) ?? []), replica]);
  }
  return groups;
}

function tableOf(replicas: readonly ReplicaFiles[]): string {
  const isCompacted = replicas.some(({ cleaner }) => cleaner !== undefined);
  const cleanerHead = isCompacted ? ["cleaner offset", "dirty bytes"] : [];
  const head = ["broker", "role", "log start", "HW", "LEO", ...cleanerHead, "epoch cache", "files"];
  const table = new Table({
    head: head.map((title) => styled("bold", title)),
    colAligns: head.map(() => "right"),
    style: { head: [], border: [], compact: true },
  });
  for (const replica of replicas) {
    const { controller, brokerId, cleaner } = replica;
    const cleanerCells =
      cleaner === undefined
        ? cleanerHead.map(() => "n/a")
        : [cleaner.firstDirtyOffset, cleaner.dirtyBytes].map(formatCount);
    table.push([
      brokerId === undefined ? "?" : `${brokerId}`,
      controller === undefined ? "n/a" : controller.leader === brokerId ? "leader" : "follower",
      formatCount(replica.logStartOffset),
      replica.highWatermark === undefined ? "n/a" : formatCount(replica.highWatermark),
      formatCount(replica.logEndOffset),
      ...(isCompacted ? cleanerCells : []),
      replica.epochs.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ") || "none",
      replica.status,
    ]);
  }
  return table.toString();
}
