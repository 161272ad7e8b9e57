import { DiskImage } from "@tidemark/simulator";
import type { CrashPoint, PendingOperation } from "@tidemark/simulator";
import { crc32c } from "@tidemark/wire";

const prints = new WeakMap<PendingOperation, string>();

/** Equal for crash points at which a crash of the machine can leave the same images. */
export function printOfPoint(point: CrashPoint): string {
  const torn = point.last?.type === "write" ? "torn" : "";
  return `${new DiskImage(point.durable).digest}/${point.pending.map(printOfOperation).join()}/${torn}`;
}

function printOfOperation(operation: PendingOperation): string {
  let print = prints.get(operation);
  if (print === undefined) prints.set(operation, (print = describe(operation)));
  return print;
}

function describe(operation: PendingOperation): string {
  if (operation.type === "write") {
    return `w${operation.inode}@${operation.positionBytes}:${operation.bytes.length}:${crc32c(operation.bytes)}`;
  }
  return JSON.stringify(operation, (key, value: unknown) => (key === "number" ? undefined : value));
}
