import { crc32c } from "@tidemark/wire";
import { closeSync, fdatasyncSync, openSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { Budget } from "./budget.ts";
import type { FilledBatch } from "./content.ts";
import { storedBatches } from "./tidemark-subjects.ts";
import type { Subject } from "./workload.ts";

export interface RawWrite {
  /** What is written at a time, again and again. */
  readonly bytes: Uint8Array;
  /** A CRC-32C of the bytes before each write. */
  readonly withCrc?: boolean;
  /** An fdatasync after each write. */
  readonly withSync?: boolean;
  /** The sample, from the bytes that were written. */
  readonly toValue: (budget: Budget, bytes: number) => number;
}

/** Synchronous writes at the end of a file: the most that the file system gives to one thread. */
export function rawWrite(name: string, { bytes, withCrc = false, withSync = false, toValue }: RawWrite): Subject {
  return {
    name,
    open: async (directory) => {
      const file = openSync(join(directory, "raw"), "w");
      return {
        sample: async (budget) => {
          let writtenBytes = 0;
          let crc = 0;
          while (!budget.isSpent(writtenBytes)) {
            if (withCrc) crc ^= crc32c(bytes);
            writtenBytes += writeSync(file, bytes, 0, bytes.length, writtenBytes);
            if (withSync) fdatasyncSync(file);
          }
          if (Number.isNaN(crc)) throw new RangeError("a CRC is a number");
          return toValue(budget, writtenBytes);
        },
        close: async () => closeSync(file),
      };
    },
  };
}

/** Synchronous reads of a file that is in memory, each into fresh memory as a fetch gives it, or into the same. */
export function rawRead(
  name: string,
  options: {
    readonly batch: FilledBatch;
    readonly readBytes: number;
    readonly withFreshMemory: boolean;
    readonly toValue: (budget: Budget, bytes: number) => number;
  },
): Subject {
  const { batch, readBytes, withFreshMemory, toValue } = options;
  return {
    name,
    open: async (directory, { quick }) => {
      const file = openSync(join(directory, "raw"), "w+");
      const count = storedBatches(batch, quick);
      for (let at = 0; at < count; at += 1)
        writeSync(file, batch.bytes, 0, batch.bytes.length, at * batch.bytes.length);
      const sizeBytes = count * batch.bytes.length;
      const kept = new Uint8Array(readBytes);
      return {
        sample: async (budget) => {
          let bytesRead = 0;
          while (!budget.isSpent()) {
            const target = withFreshMemory ? new Uint8Array(readBytes) : kept;
            bytesRead += readSync(file, target, 0, readBytes, bytesRead % sizeBytes);
          }
          return toValue(budget, bytesRead);
        },
        close: async () => closeSync(file),
      };
    },
  };
}
