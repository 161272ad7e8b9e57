import { readFile } from "node:fs/promises";
import { basename } from "node:path";

import { parseOffset } from "@tidemark/base";
import {
  decodeProducerSnapshot,
  parseSegmentFileName,
  TRANSACTION_INDEX_SUFFIX,
  TransactionIndex,
} from "@tidemark/log";

import type { Dump } from "./dump-kind.ts";

/**
 * Each producer of a snapshot, `-1` where it has none of a thing.
 * Source: apache/kafka tools/src/main/java/org/apache/kafka/tools/DumpLogSegments.java dumpProducerIdSnapshot
 */
export const dumpProducerSnapshot: Dump = async (path, print) => {
  const decoded = decodeProducerSnapshot(await readFile(path));
  if (decoded.type === "damaged") {
    await print(`Malformed: ${path}: ${decoded.reason}`);
    return 1;
  }
  for (const [producerId, entry] of decoded.entries) {
    const last = entry.batches.at(-1);
    const batch =
      last === undefined
        ? "lastSequence: -1 lastOffset: -1 offsetDelta: 0"
        : `lastSequence: ${last.lastSequence} lastOffset: ${last.lastOffset} offsetDelta: ${last.offsetDelta}`;
    const isOpen = await print(
      [
        `producerId: ${producerId} producerEpoch: ${entry.producerEpoch} coordinatorEpoch: ${entry.coordinatorEpoch}`,
        `currentTxnFirstOffset: ${entry.transactionFirstOffset ?? "None"}`,
        `lastTimestamp: ${entry.lastTimestamp} ${batch}`,
      ].join(" "),
    );
    if (!isOpen) break;
  }
  return 0;
};

/** Each entry of a transaction index. Source: as above, dumpTxnIndex */
export const dumpTransactionIndex: Dump = async (path, print) => {
  const baseOffset = parseSegmentFileName(basename(path), TRANSACTION_INDEX_SUFFIX) ?? parseOffset(0);
  if (baseOffset === undefined) return 0;
  const decoded = TransactionIndex.decode(baseOffset, await readFile(path));
  if (!(decoded instanceof TransactionIndex)) {
    await print(`Malformed: ${path}: ${decoded.problem}`);
    return 1;
  }
  for (const { producerId, firstOffset, lastOffset, lastStableOffset } of decoded.entries) {
    const line = `version: 0 producerId: ${producerId} firstOffset: ${firstOffset} lastOffset: ${lastOffset}`;
    if (!(await print(`${line} lastStableOffset: ${lastStableOffset}`))) break;
  }
  return 0;
};
